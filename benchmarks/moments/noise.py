"""Claim: where noise is longer than any total of the records, models are little better than a constant.

`plan` and `simulate` warn where the signal X (records over the noise of a total that one record moves by 1) is below
2√(d(K − 1)), for d features of K classes: `methods.planning.expectation` derives it from public facts. Here ε is chosen
so that X is so many times √(d(K − 1)), on iris, digits, and normal clouds of points. Numbers are means over runs of the
engine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.common import Numbers, claim, conclude, options, say, show_table
from benchmarks.moments.data import Split
from benchmarks.studies import Records, Study, deal, plan_of, run_records, share_right, study
from unspoken.methods.planning.directions import signal_of
from unspoken.methods.planning.expectation import hidden

TIMES = (1.0, 1.9, 2.1, 4.0, 8.0, 16.0)
"""X over √(d(K − 1))"""
MUCH = 15.0
"""Points above the most frequent class that a model would need to be called of use"""
_DELTA = 1e-5


def main() -> None:
    arguments = options(__doc__).parse_args()
    runs = 3 if arguments.quick else 20
    names = ("iris",) if arguments.quick else tuple(DATA)
    found: Numbers = {name: measure(name, runs) for name in names}
    claims = []
    for name, rows in found.items():
        quiet = [row["gain"] - 2.0 * row["error"] for row in rows if row["warns"]]
        claims.append(
            claim(
                "warned",
                f"{name}: most points gained where there is a warning, less two errors",
                max(quiet),
                at_most=MUCH,
            )
        )
        claims.append(claim("warning", f"{name}: warnings", len(quiet), at_least=1))
    conclude(arguments, {**found, "claims": claims}, show)


def show(found: Numbers) -> None:
    heads = ["data", *(f"X = {times:g}√(d(K−1))" for times in TIMES)]
    cells = [
        [name, *(f"{row['gain']:+.1f}{' (warns)' if row['warns'] else ''}" for row in rows)]
        for name, rows in found.items()
        if name != "claims"
    ]
    print("points above the share of the most frequent class")
    show_table(heads, cells)


def measure(name: str, runs: int) -> list[dict[str, float]]:
    split, parties = DATA[name]
    rows = []
    for times in TIMES:
        gains, agreed = [], _with_signal(split(0), parties, times)
        for run in range(runs):
            found = split(run)
            groups = deal(len(found.labels), parties)
            release = run_records(agreed, Records(found.train, found.labels), groups).release
            right = share_right(agreed, release, found.test, found.test_labels)
            gains.append(100.0 * (right - float(np.bincount(found.test_labels).max()) / len(found.test_labels)))
        row = {"times": times, "gain": float(np.mean(gains)), "error": float(np.std(gains) / np.sqrt(runs))}
        rows.append({**row, "warns": hidden(plan_of(agreed)) < 1.0})
        say(f"{name}, X = {times:g}√(d(K − 1)): {row['gain']:+.1f} ± {row['error']:.1f}")
    return rows


def _with_signal(found: Split, parties: int, times: float) -> Study:
    """The study whose ε makes the signal so many times √(d(K − 1)), by bisection."""
    classes = int(found.labels.max()) + 1
    low, high = 1e-4, 1000.0
    for _ in range(25):
        middle = float(np.sqrt(low * high))
        agreed = _study(found, parties, classes, middle)
        wanted = times * float(np.sqrt(agreed.data.dimension * (classes - 1)))
        low, high = (middle, high) if signal_of(plan_of(agreed)) < wanted else (low, middle)
    return agreed


def _study(found: Split, parties: int, classes: int, epsilon: float) -> Study:
    features, each = found.train.shape[1], len(found.labels) // parties
    return study(
        {"features": features, "classes": classes, "norm": float(np.sqrt(features + 1)), "intercept": True},
        {"count": parties, "records": each, "max_records": 2 * each},
        {"epsilon": epsilon, "delta": _DELTA},
        {},
    )


def _scikit(name: str, train: int, largest: float) -> Callable[[int], Split]:
    """A data set of scikit-learn, scaled from [0, largest] to [−1, 1]."""
    from sklearn import datasets

    features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    return _shuffled(np.clip(features / largest * 2.0 - 1.0, -1.0, 1.0), labels, train)


def _clouds(classes: int, features: int) -> Callable[[int], Split]:
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=1_500)
    centres = rng.uniform(-0.6, 0.6, size=(classes, features))
    points = np.clip(centres[labels] + rng.normal(scale=0.25, size=(1_500, features)), -1.0, 1.0)
    return _shuffled(points, labels, 1_000)


def _shuffled(features: np.ndarray, labels: np.ndarray, train: int) -> Callable[[int], Split]:
    def split(run: int) -> Split:
        order = np.random.default_rng(run).permutation(len(labels))
        rows, others = order[:train], order[train:]
        return Split(features[rows], labels[rows], features[others], labels[others])

    return split


DATA: dict[str, tuple[Callable[[int], Split], int]] = {
    "iris": (_scikit("iris", 120, 8.0), 3),
    "digits": (_scikit("digits", 1_400, 16.0), 20),
    "2 clouds of 5 features": (_clouds(2, 5), 10),
    "5 clouds of 10 features": (_clouds(5, 10), 10),
}


if __name__ == "__main__":
    main()
