"""The commented study files that `unspoken new` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspoken.errors import UnspokenError
from unspoken.plugins import suggestion

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
norm = 1.0                    # each record's vector, constant 1 included, is clipped to this L2 norm
""",
    "regression": """\
label = "pressure"            # the column to predict ...
label_bounds = [0, 300]       # ... and its public bounds
# norm = 1.0                  # clips each record's vector, constant 1 included, to this L2 norm; unset: clips nothing
""",
    "statistics": """\
# norm = 1.0                  # clips each record's vector to this L2 norm; unset: clips nothing
""",
}

_COLUMNS = """
[data.columns]                # public knowledge only: never look the bounds up in the data
age = { min = 0, max = 110 }
weight = { min = 0, max = 300 }
sex = { categories = ["f", "m"] }
"""

_MATRIX = """
[data]                        # a matrix: NPZ with X (records x features)"""

_MATRIX_LABELS = {
    "classification": """ and y (whole numbers from 0)
features = 64
classes = 10
norm = 1.0                    # each record's vector is clipped to this L2 norm
intercept = false             # append a constant 1 to each record (before clipping)?
""",
    "regression": """ and y (real numbers)
features = 64
label_bounds = [0, 300]       # public knowledge: labels are clipped to these bounds
norm = 1.0                    # each record's vector is clipped to this L2 norm
intercept = false             # append a constant 1 to each record (before clipping)?
""",
    "statistics": """
features = 64
norm = 1.0                    # each record's vector is clipped to this L2 norm
""",
}

_AGREEMENT = """
[parties]
count = {count}
records = {records}                  # at least, at each party
max_records = {max_records}          # at most: a tight bound halves what parties send

[privacy]
epsilon = {epsilon}                 # smaller is more private and less accurate; 0.1 to 3 is usual
delta = {delta}                  # well below one over the number of records
unit = "record"               # what is protected: "record", {{ group = 5 }} records, or all of a "party"
colluding = {colluding}               # parties that may pool what they know: a fraction or a number
dropouts = {dropouts}               # parties that may vanish on the way: a fraction or a number
"""

_METHOD = """
[method]
name = {name:<22} # {summary}
"""

_SUMMATION = """
[summation]
"""

_USUAL_SUMMATION = """\
protocol = "compute-nodes"    # or "secagg+", "secagg", "pairwise"; "ideal" adds in the clear: simulation only
nodes = 3                     # (of compute-nodes) the total is safe while one of them keeps its share to itself
"""

_USUAL: dict[str, str] = {"classification": "helmet", "regression": "cape", "statistics": "cape"}
"""The method of a task if none is named"""


def study_text(
    path: str,
    name: str,
    *,
    matrix: bool,
    task: str = "classification",
    method: str | None = None,
    count: int = 1000,
    records: int = 50,
    max_records: int = 1000,
    epsilon: float = 1.0,
    delta: str = "1e-6",
    colluding: float = 0.5,
    dropouts: float = 0.05,
) -> str:
    """A commented study file for a task, with its usual method unless another is named."""
    kind = _method_of(task, method)
    data = _MATRIX + _MATRIX_LABELS[task] if matrix else _TABLE + _TABLE_LABELS[task] + _COLUMNS
    agreement = _AGREEMENT.format(
        count=count,
        records=records,
        max_records=max_records,
        epsilon=epsilon,
        delta=delta,
        colluding=colluding,
        dropouts=dropouts,
    )
    public = "public.npz" if matrix else "public.csv"
    parts = [
        _HEAD.format(path=path, name=name, task=task),
        data,
        agreement,
        _METHOD.format(name=f'"{kind.name}"', summary=kind.summary),
        kind.template[task].replace("{public}", public),
        _SUMMATION,
        kind.summation_template or _USUAL_SUMMATION,
    ]
    return "".join(parts)


def _method_of(task: str, method: str | None) -> type[Method]:
    """The named method, or the usual one; it must have a template for the task."""
    from unspoken.methods.registry import METHODS

    if task not in _USUAL:
        raise UnspokenError(f"the task is {task!r}, but should be one of: {', '.join(_USUAL)}.")
    name = method or _USUAL[task]
    if name not in METHODS or task not in METHODS[name].template:
        able = [known for known, kind in METHODS.usable() if task in kind.template]
        problem = f"the method is {name!r}, but for {task} it should be one of: {', '.join(able)}"
        raise UnspokenError(problem + (suggestion(name, able) or "."))
    return METHODS[name]
