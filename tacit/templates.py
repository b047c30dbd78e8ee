"""The study files that `tacit new` writes: whole, commented, and ready to be edited."""

from __future__ import annotations

_HEAD = """\
# A tacit study: what all parties agree on before anyone touches data.
# Everyone runs the same file; `tacit plan {path}` says what it promises and costs.

[study]
name = "{name}"
task = "classification"
"""

_TABLE = """
[data]                        # a table: CSV (with a line of column names) or Parquet
label = "died"                # the column to predict ...
classes = ["no", "yes"]       # ... and all its possible values
norm = 1.0                    # each record's vector, constant 1 included, is clipped to this L2 norm

[data.columns]                # public knowledge only: never look the bounds up in the data
age = { min = 0, max = 110 }
weight = { min = 0, max = 300 }
sex = { categories = ["f", "m"] }
"""

_MATRIX = """
[data]                        # a matrix: NPZ with X (records x features) and y (whole numbers from 0)
features = 64
classes = 10
norm = 1.0                    # each record's vector is clipped to this L2 norm
intercept = false             # append a constant 1 to each record (before clipping)?
"""

_TAIL = """
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

[method]
name = "helmet"               # blind averaging; or "moments" (least squares; it has neither of the next two keys)
learner = "softmax"           # or "logistic", "svm"
regularization = {regularization}          # larger: less noise, simpler models

[summation]
protocol = "compute-nodes"    # or "secagg+", "secagg", "pairwise"; "ideal" adds in the clear: simulation only
nodes = 3                     # (of compute-nodes) the total is safe while one of them keeps its share to itself
"""


def study_text(
    path: str,
    name: str,
    *,
    matrix: bool,
    count: int = 1000,
    records: int = 50,
    max_records: int = 1000,
    epsilon: float = 1.0,
    delta: str = "1e-6",
    colluding: float = 0.5,
    dropouts: float = 0.05,
    regularization: float = 0.1,
) -> str:
    """A commented study file."""
    tail = _TAIL.format(
        count=count,
        records=records,
        max_records=max_records,
        epsilon=epsilon,
        delta=delta,
        colluding=colluding,
        dropouts=dropouts,
        regularization=regularization,
    )
    return _HEAD.format(path=path, name=name) + (_MATRIX if matrix else _TABLE) + tail
