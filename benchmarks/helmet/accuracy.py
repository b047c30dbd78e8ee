"""Claim: blind averaging (helmet) keeps the accuracy listed here for each ε, with nothing tuned on test records.

scikit-learn's digits (1,400 records over 20 parties, nobody colluding), and with --cifar FILE the CIFAR-10 features in
that file (1,000 parties × 50 records, half of them colluding; for whole parties, nobody): an NPZ with `X`, uint8, of
which (X/255 · max_sqrt)² is the feature, `max_sqrt`, and `y`; the first 50,000 rows are for training, the others for
testing. Every row is centred by its own mean and brought to unit length: by itself alone, so nothing of other records
gets into it. δ = 1e-5; one record replaced, or all records of a party.

Each cell is the mean of some runs of the whole engine with fresh noise; what parties train is kept from run to run.
Λ is that of the method's own rule, or a fixed one. "no noise": the same average without noise. The claims allow 3
points of chance below the listed accuracies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.helmet.data import SPLITS, Experiment, add_experiment_options, experiments
from benchmarks.helmet.remembering import Remembering
from benchmarks.studies import ArrayFederation, Integers, method_for, run, share_right, split
from unspoken.methods.helmet import Helmet
from unspoken.report.evaluation import accuracy, pooled_accuracy

RESULTS = Path(__file__).with_name("results.json")
UNITS = ("record", "party")
ROWS = (("softmax", None), ("softmax", 0.1), ("softmax", 0.01), ("svm", None))
"""Learners with Λ (None: by the rule); fixed ones for records that are spread at random only"""
TOLERANCE = 3.0


class Setting(NamedTuple):
    """What is measured in a cell."""

    unit: str
    split: str
    learner: str
    regularization: float | None
    """None: by the rule"""
    epsilon: float


def main() -> None:
    parser = run_options(__doc__, RESULTS)
    add_experiment_options(parser)
    arguments = parser.parse_args()
    made = experiments(arguments)
    parts: dict[str, Callable[[], Any]] = {e.name: partial(measure, e, arguments) for e in made}
    parts |= {f"{e.name}-pooled": partial(pooled, e) for e in made}
    # Without the CIFAR-10 file, its numbers stay as they are.
    arguments.only = arguments.only or list(parts)
    found = measure_parts(arguments, {"quick": arguments.quick}, parts)
    shown = [experiment for experiment in made if experiment.name in found]
    claims = [entry for experiment in shown for entry in make_claims(experiment, found[experiment.name])]
    conclude(arguments, {**found, "claims": claims}, partial(show, shown))


def measure(experiment: Experiment, arguments: argparse.Namespace) -> dict[str, Any]:
    """All splits, learners, Λ, units and epsilons."""
    repeats = arguments.repeats or experiment.repeats
    rows = []
    for kind in SPLITS:
        groups = split(kind, experiment.train.labels, experiment.parties, seed=0)
        kept = Remembering()
        for learner, regularization in ROWS:
            if regularization is not None and (kind != "iid" or arguments.quick):
                continue
            for unit in UNITS:
                settings = [Setting(unit, kind, learner, regularization, e) for e in experiment.epsilons_of(unit)]
                rows += [cell(experiment, setting, groups, repeats, kept) for setting in settings]
            say(f"{experiment.name}, {kind}, {learner}, Λ = {regularization or 'by rule'}: done")
    return {
        "parties": experiment.parties,
        "records": len(experiment.train),
        "colluding": {unit: experiment.colluding_of(unit) for unit in UNITS},
        "repeats": repeats,
        "rows": rows,
    }


def pooled(experiment: Experiment) -> float:
    """The accuracy of a softmax model of all records, not private."""
    agreed = experiment.study({"name": "helmet"}, 1.0)
    return 100.0 * pooled_accuracy(agreed, experiment.train, experiment.test)


def cell(experiment: Experiment, setting: Setting, groups: Integers, repeats: int, kept: Remembering) -> dict[str, Any]:
    """Accuracy in %, mean and standard deviation over the repeats, and without noise."""
    keys: dict[str, Any] = {"name": "helmet", "learner": setting.learner}
    if setting.regularization is not None:
        keys["regularization"] = setting.regularization
    agreed = experiment.study(keys, setting.epsilon, setting.unit)
    method = method_for(agreed)
    if not isinstance(method, Helmet):
        raise TypeError("Expected blind averaging.")
    kept.watch(method)
    federation = ArrayFederation(agreed, experiment.train, groups)
    test = experiment.test
    releases = [run(method, federation).release for _ in range(repeats)]
    found = [100.0 * share_right(agreed, release, test.features, test.labels) for release in releases]
    total = np.sum([kept.average(method, block) for _, block in federation.blocks()], axis=0)
    return {
        **setting._asdict(),
        "by_rule": setting.regularization is None,
        "regularization": method.learner.regularization,
        "accuracy": float(np.mean(found)),
        "deviation": float(np.std(found)),
        "no_noise": 100.0 * accuracy(total, test.features, test.labels),
    }


def make_claims(experiment: Experiment, result: dict[str, Any]) -> list[dict[str, Any]]:
    """How far the accuracies are below the claimed ones at worst."""
    claims = []
    for learner, claimed in experiment.claimed.items():
        found = {
            row["epsilon"]: row["accuracy"]
            for row in result["rows"]
            if row["by_rule"] and (row["unit"], row["split"], row["learner"]) == ("record", "iid", learner)
        }
        shortfall = max(wanted - found[epsilon] for epsilon, wanted in claimed.items())
        text = f"{experiment.name}, {learner}, iid: most points below the listed accuracies"
        claims.append(claim("accuracy", text, shortfall, at_most=TOLERANCE))
    return claims


def show(made: list[Experiment], found: Numbers) -> None:
    for experiment in made:
        result = found[experiment.name]
        print(
            f"{experiment.name}: {result['records']:,} records over {result['parties']:,} parties, δ = 1e-5; accuracy "
            f"in %, mean and standard deviation of {result['repeats']} runs, and without noise (Λ)"
        )
        for unit in UNITS:
            epsilons = experiment.epsilons_of(unit)
            lines: dict[str, list[str]] = {}
            for row in result["rows"]:
                if row["unit"] == unit:
                    chosen = "by rule" if row["by_rule"] else f"= {row['regularization']:g}"
                    name = f"{unit}, {row['split']}, {row['learner']}, Λ {chosen}"
                    reached = f"{row['accuracy']:.1f} ±{row['deviation']:.1f} / {row['no_noise']:.1f}"
                    lines.setdefault(name, []).append(f"{reached} ({row['regularization']:g})")
            show_table(
                ["", *(f"ε = {epsilon:g}" for epsilon in epsilons)], [[name, *row] for name, row in lines.items()]
            )
        if (alone := found.get(f"{experiment.name}-pooled")) is not None:
            print(f"all records in one place, not private (softmax): {alone:.1f}\n")


if __name__ == "__main__":
    main()
