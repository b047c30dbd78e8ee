"""The commented study files that `unspoken new` writes."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from unspoken import defaults, plugins
from unspoken.errors import UnspokenError
from unspoken.plugins import suggestion
from unspoken.study import LARGEST_NORM, Study, Task, make_study

if TYPE_CHECKING:
    from unspoken.methods.base import Method

_HEAD = """\
# A study for unspoken: what all parties agree on before anyone touches data.
# Everyone runs the same file; `unspoken plan {path}` says what it promises and costs.

[study]
name = "{name}"
task = "{task}"
"""

_TABLE = """
[data]                        # a table: CSV (with a line of column names) or Parquet
"""

_TABLE_LABELS = {
    "classification": """\
label = "died"                # the column to predict ...
classes = ["no", "yes"]       # ... and all its possible values
""",
    "regression": """\
label = "pressure"            # the column to predict ...
label_bounds = [0, 300]       # ... and its public bounds
""",
    "statistics": "",
}

_PUBLIC = """\
# public = "{public}"       # public records without labels, with the same columns: linear classifiers learn better
"""

_COLUMNS_HEAD = """
[data.columns]                # public knowledge only: never look the bounds up in the data
"""
_COLUMNS = """\
age = { min = 0, max = 110 }
weight = { min = 0, max = 300 }
sex = { categories = ["f", "m"] }
# A missing value is refused, unless the study says what it means; days, booleans and unlisted categories:
# height = { min = 0, max = 250, missing = 170 }     # a public value takes its place
# visited = { min = 2019-01-01, max = 2024-12-31, missing = "indicator" }     # or it gets a feature of its own
# blood = { categories = ["0", "A"], other = true, missing = "category" }     # all other values are one
# smoker = "boolean"
"""
_UNFILLED = '"?"'
_HOW_TO_FILL = """\
# Replace each "?", here and elsewhere, by what is publicly known, and remove the columns that are not to be used:
#   { min = 0, max = 110 }, { min = 2019-01-01, max = 2024-12-31 }, { categories = ["f", "m"] } or "boolean"
"""

_MATRIX = """
[data]                        # a matrix: NPZ with X (records x features)"""

_MATRIX_LABELS = {
    "classification": """ and y (whole numbers from 0)
features = 64
classes = 10
""",
    "regression": """ and y (real numbers)
features = 64
label_bounds = [0, 300]       # public knowledge: labels are clipped to these bounds
""",
    "statistics": """
features = 64
""",
}

_INTERCEPT = """\
intercept = false             # append a constant 1 to each record (before clipping)?
"""

_CLIPPED = """\
norm = {norm:<22} # each record's vector{constant} is clipped to this L2 norm
"""

_UNCLIPPED = """\
# norm = 1.0                  # clips each record's vector{constant} to this L2 norm; unset: clips nothing
"""

_AGREEMENT = """
[parties]
count = {count}
{records:<29} # at least, at each party: settings are chosen for so many, so name what all surely have
{max_records:<29} # at most: a tight bound halves what parties send

[privacy]
{epsilon:<29} # smaller is more private and less accurate; 0.1 to 3 is usual
{delta:<29} # well below one over the number of records
unit = "record"               # what is protected: "record", {{ group = 5 }} records{or_a_party}
{colluding:<29} # parties that may pool what they know: a fraction or a number
{dropouts:<29} # parties that may vanish on the way: a fraction or a number
# attempts = 2                # how often a party may send its vector for one sum: epsilon then pays for all of them
"""

_METHOD = """
[method]
name = {name:<22} # {summary}
"""

_SUMMATION = """
[summation]
"""


def toml_text(text: str) -> str:
    """A text as TOML has it, readable in any language.

    >>> print(toml_text('Größe "neu"'))
    "Größe \\"neu\\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class TableColumns:
    """The names of a table's columns, without any bounds: these must be public, so nobody may read them from data."""

    names: list[str]
    label: str | None = None
    classes: list[str] | None = None

    def labels(self, lines: str) -> str:
        """The lines on labels, for this label and these classes."""
        if self.label is not None:
            lines = re.sub(r'label = "[a-z]+" *#', f"{f'label = {toml_text(self.label)}':<29} #", lines)
        if self.classes is not None:
            whole = all(re.fullmatch(r"-?[0-9]+", name) for name in self.classes)
            listed = ", ".join(self.classes) if whole else ", ".join(map(toml_text, self.classes))
            lines = re.sub(r"classes = \[.*?\] *#", f"{f'classes = [{listed}]':<29} #", lines)
        return lines

    def without_values(self, lines: str) -> str:
        """The lines on labels, with what nobody can know from names left to be filled in."""
        unknown = ["label_bounds = [0, 300]"] + (['classes = ["no", "yes"]'] if self.classes is None else [])
        for line in unknown:
            left_open = f"{line.partition('=')[0]}= {_UNFILLED}"
            lines = lines.replace(line, f"{left_open:<{len(line)}}")
        return lines

    def lines(self, value: str) -> str:
        """A line for each column but the label."""
        return "".join(f"{toml_text(name)} = {value}\n" for name in self.names if name != self.label)


@dataclass(frozen=True)
class StudyNumbers:
    """The numbers of a study's [parties] and [privacy]."""

    count: int | None = None
    """None: nobody has said it yet."""
    records: int = 50
    max_records: int = 1000
    epsilon: float = 1.0
    delta: str = "1e-6"
    colluding: float = 0.5
    dropouts: float = 0.05

    @property
    def is_one(self) -> bool:
        """Whether there is one party only, so that nothing is added up."""
        return self.count == 1

    def lines(self) -> str:
        """The two sections."""
        lines = {name: f"{name} = {value}" for name, value in vars(self).items()}
        or_a_party = "" if self.is_one else ', or all of a "party"'
        count = 1000 if self.count is None else self.count
        return _AGREEMENT.format_map(lines | {"count": count, "or_a_party": or_a_party})


_USUAL = StudyNumbers()


def study_text(
    path: str,
    name: str,
    *,
    matrix: bool,
    task: str = "classification",
    method: str | None = None,
    numbers: StudyNumbers = _USUAL,
    columns: TableColumns | None = None,
) -> str:
    """A commented study file for a task, with its usual method unless another is named.

    With the names of columns, their bounds are left to be filled in: nobody can plan the study before.
    """
    kind = _method_of(task, method)
    _check_count(kind, task, numbers.count)
    rest = [
        numbers.lines(),
        _METHOD.format(name=f'"{kind.name}"', summary=kind.summary),
        _lines_of(kind, task, matrix),
        "" if numbers.is_one else _SUMMATION + (kind.summation_template or defaults.SUMMATION_LINES),
    ]
    data = _data(task, matrix, "", columns)
    without_norm = "".join([_HEAD.format(path="", name="study", task=task), data, *rest])
    norm = _norm_of(without_norm, kind)
    data = _data(task, matrix, norm + _public_line(kind, task, matrix), columns, filled=False)
    shown = _with_open_count("".join(rest), columns is not None and numbers.count is None)
    return _HEAD.format(path=path, name=name, task=task) + data + shown


def _with_open_count(agreement: str, is_open: bool) -> str:
    """The section [parties], with their number left to be filled in if nobody has said it."""
    left_open = f"{f'count = {_UNFILLED}':<29} # how many take part"
    return agreement.replace("count = 1000", left_open) if is_open else agreement


def _data(task: str, matrix: bool, norm: str, columns: TableColumns | None, filled: bool = True) -> str:
    """The section [data]. For a first check, columns whose bounds are not known yet get any bounds."""
    if columns is not None:
        labels = columns.labels(_TABLE_LABELS[task])
        if filled:
            return _TABLE + labels + norm + _COLUMNS_HEAD + columns.lines('"boolean"')
        lines = _HOW_TO_FILL + columns.lines(_UNFILLED)
        return _TABLE + columns.without_values(labels) + norm + _COLUMNS_HEAD + lines
    if not matrix:
        return _TABLE + _TABLE_LABELS[task] + norm + _COLUMNS_HEAD + _COLUMNS
    return _MATRIX + _MATRIX_LABELS[task] + norm + ("" if task == "statistics" else _INTERCEPT)


def _public_line(kind: type[Method], task: str, matrix: bool) -> str:
    """The line on public records, for what learns from them and does not ask about them under [method]."""
    helps = task == "classification" and not kind.votes_on_public
    return _PUBLIC.format(public=_public_name(matrix)) if helps else ""


def _public_name(matrix: bool) -> str:
    return "public.npz" if matrix else "public.csv"


def _norm_of(text: str, kind: type[Method]) -> str:
    """The line on the norm of a study's text."""
    with plugins.answerable(plugins.METHODS, kind.name):
        content = tomllib.loads(text)
    return _norm_line(make_study(content))


def _norm_line(study: Study) -> str:
    """The line on the norm: what the method takes if the study does not say."""
    data = study.data
    constant = ", constant 1 included," if data.has_intercept else ""
    clips = data.norm < (data.largest_norm if data.is_table else LARGEST_NORM)
    return (_CLIPPED if clips else _UNCLIPPED).format(norm=data.norm, constant=constant)


def _check_count(kind: type[Method], task: str, count: int | None) -> None:
    """Few methods give one party alone a result that is private."""
    from unspoken.methods.registry import METHODS

    if count is None or count >= kind.fewest_parties:
        return
    able = [name for name, other in METHODS.usable() if task in other.template and count >= other.fewest_parties]
    remedy = f"; for so few there is --method {' or '.join(able)}" if able else ""
    raise UnspokenError(f'--parties is {count}, but "{kind.name}" needs {kind.fewest_parties} or more{remedy}.')


def _lines_of(kind: type[Method], task: str, matrix: bool) -> str:
    """The method's own lines under [method]."""
    lines = kind.template[task]
    if matrix:
        lines = kind.matrix_template.get(task, lines)
    return lines.replace("{public}", _public_name(matrix))


def _method_of(task: str, method: str | None) -> type[Method]:
    """The named method, or the usual one; it must have a template for the task."""
    from unspoken.methods.registry import METHODS, check_description

    if task not in (tasks := get_args(Task)):
        raise UnspokenError(f"the task is {task!r}, but should be one of: {', '.join(tasks)}.")
    name = method or defaults.METHOD
    if name not in METHODS or task not in METHODS[name].template:
        able = [known for known, kind in METHODS.usable() if task in kind.template]
        problem = f"the method {name!r} has no template for {task}; name one of: {', '.join(able)}"
        raise UnspokenError(problem + (suggestion(name, able) or "."))
    check_description(METHODS[name], name)
    return METHODS[name]
