"""The study files that `unspoken new` writes: whole, commented, and ready to be edited."""

from __future__ import annotations

from unspoken.errors import UnspokenError

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

_METHODS = {
    "helmet": """
[method]
name = "helmet"               # blind averaging; or "moments" (least squares; it has neither of the next two keys)
learner = "softmax"           # or "logistic", "svm"
regularization = {regularization}          # larger: less noise, simpler models
""",
    "moments": """
[method]
name = "moments"              # least squares and a few steps from secure sums over all records
""",
    "cape": """
[method]
name = "cape"                 # noise correlated across parties, so that most of it cancels in the sum
{function}
""",
    "cross-silo": """
[method]
name = "cross-silo"           # private SGD of any PyTorch model, by secure sums (needs the extra "torch")
model = "linear"              # or "mlp" (with hidden = [64]), "cnn", or a torch module as "package.module:Class"
rounds = 100                  # more rounds: more steps, each under more noise
rate = 0.1                    # the expected share of all records in a round's batch
clip = 1.0                    # the largest norm of an example's gradient
optimizer = "sgd"             # or "adam"
learning_rate = 0.5
""",
    "voting": """
[method]
name = "voting"               # parties vote on public records; a student learns from the winners
public = "{public}"         # public records without labels, with the same columns (of a matrix: NPZ with X)
# public_sha256 = "…"         # of that file, as `unspoken plan` prints it: nobody can then vote on another one
queries = 100                 # how many of them are asked about: each takes a part of epsilon
ballots = "ensemble"          # by models of the parties' own; or "neighbours", by their nearest records
model = "softmax"             # or "mlp", "cnn", a scikit-learn classifier or torch module as "package.module:Class"
student = "softmax"           # likewise
""",
    "multiparty": """
[method]
name = "multiparty"           # parties' classifiers label public records for a trainer whom all trust
public = "{public}"         # public records without labels, with the same columns (of a matrix: NPZ with X)
# public_sha256 = "…"         # of that file, as `unspoken plan` prints it: nobody can then vote on another one
labels = "weighted"           # all votes count; or "majority", or "average" (of parameters, without public records)
learner = "softmax"           # or "logistic", "svm"
regularization = 0.01         # larger: less noise, simpler models
""",
}

_FUNCTIONS = {
    "classification": 'function = "logistic-regression"  # of two classes; or "softmax", "discriminant", "network"',
    "regression": 'function = "linear-regression"  # least squares, the function that fits this task',
    "statistics": 'function = "mean"             # of each column; or "histogram", with bins = 10',
}

_TASKS = {
    "classification": tuple(_METHODS),
    "regression": ("cape", "moments", "cross-silo"),
    "statistics": ("cape",),
}
"""The methods of a task, the usual one first"""

_TALLY = """
[summation]
protocol = "tally"            # talliers open the winners only; any sum works too, but then noisy totals become known
talliers = 3                  # or 5, 7: more than half of them keep to themselves what they receive
"""

_SUMMATION = """
[summation]
protocol = "compute-nodes"    # or "secagg+", "secagg", "pairwise"; "ideal" adds in the clear: simulation only
nodes = 3                     # (of compute-nodes) the total is safe while one of them keeps its share to itself
"""


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
    regularization: float = 0.1,
) -> str:
    """A commented study file for a task, by its usual method unless one is named."""
    if task not in _TASKS:
        raise UnspokenError(f"the task is {task!r}, but should be one of: {', '.join(_TASKS)}.")
    method = method or _TASKS[task][0]
    if method not in _TASKS[task]:
        raise UnspokenError(f"the method is {method!r}, but for {task} it should be one of: {', '.join(_TASKS[task])}.")
    data = _MATRIX + _MATRIX_LABELS[task] if matrix else _TABLE + _TABLE_LABELS[task] + _COLUMNS
    agreement = (_AGREEMENT + _METHODS[method]).format(
        count=count,
        records=records,
        max_records=max_records,
        epsilon=epsilon,
        delta=delta,
        colluding=colluding,
        dropouts=dropouts,
        public="public.npz" if matrix else "public.csv",
        regularization=regularization,
        function=_FUNCTIONS[task],
    )
    summation = _TALLY if method == "voting" else _SUMMATION
    return _HEAD.format(path=path, name=name, task=task) + data + agreement + summation
