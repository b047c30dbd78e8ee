"""Studies as somebody writes them, changed at one place, and the one sentence that is said of a wrong one."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from unspoken.methods.registry import method_for
from unspoken.study import Study, StudyError, make_study, read_study

EXAMPLE = """\
[study]
name = "heart"
task = "classification"            # or "regression"

[data]                             # a table (CSV, Parquet) …
label = "died"
classes = ["no", "yes"]            # regression instead: label_bounds = [0, 110]
[data.columns]
age = { min = 0, max = 110 }
sex = { categories = ["f", "m"] }

[parties]
count = 1000
records = 50                       # at least, at each party

[privacy]
epsilon = 0.59
delta = 1e-5
unit = "record"                    # or "party", or { group = 5 }
colluding = 0.5                    # a fraction below 1, or a whole number of parties
dropouts = 0.05                    # likewise

[method]
name = "helmet"
learner = "softmax"                # "svm" "logistic"
regularization = 0.1

[summation]
protocol = "compute-nodes"
"""

MATRIX = """\
[data]
features = 1280
norm = 1.0
classes = 10
intercept = false
"""


def example(key: str, value: str | None) -> str:
    """The example with another value of a key; None: without it."""
    lines = EXAMPLE.splitlines()
    at = line_of(EXAMPLE, f"{key} = ") - 1
    lines[at : at + 1] = [] if value is None else [f"{key} = {value}"]
    return "\n".join(lines) + "\n"


def with_matrix() -> str:
    table = EXAMPLE[EXAMPLE.index("[data]") : EXAMPLE.index("[parties]")]
    return EXAMPLE.replace(table, MATRIX)


def line_of(text: str, start: str) -> int:
    """The number of the line that starts like this."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith(start))


def complaint(folder: Path, text: str) -> str:
    """The one sentence about a study file, without its name."""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        method_for(read_study(path)).plan()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    assert message.endswith((".", "?"))
    return message.removeprefix(str(path))


def of_task(task: str, *, matrix: bool = False, **data: Any) -> dict[str, Any]:
    """The content of a study of another task, with more keys in its [data]."""
    content = tomllib.loads(with_matrix() if matrix else EXAMPLE)
    del content["data"]["classes"]
    if task == "statistics":
        content["data"].pop("label", None)
    else:
        content["data"]["label_bounds"] = [0, 300]
    content["study"]["task"] = task
    content["data"] |= data
    return content


def from_text(text: str) -> Study:
    return make_study(tomllib.loads(text))
