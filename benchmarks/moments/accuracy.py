"""Claim: second moments beat blind averaging at every ε, and do not care how records are spread over parties.

The data sets of `benchmarks.helmet.accuracy` (digits, and with --cifar FILE the CIFAR-10 features), with the method's
fixed defaults: nothing is tuned. Each cell is the mean of some runs of the whole engine with fresh noise; δ = 1e-5, one
record replaced. The claim compares with the softmax accuracies listed there for blind averaging, whose Λ was chosen on
the test records.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, conclude, options, say, show_table
from benchmarks.helmet.data import SPLITS, Experiment, add_experiment_options, experiments
from benchmarks.studies import split


def main() -> None:
    parser = options(__doc__)
    add_experiment_options(parser)
    parser.set_defaults(repeats=3)
    arguments = parser.parse_args()
    made = experiments(arguments)
    results = {experiment.name: measure(experiment, arguments.repeats) for experiment in made}
    claims = [entry for experiment in made for entry in make_claims(experiment, results[experiment.name])]
    conclude(arguments, {"experiments": results, "claims": claims}, partial(show, made))


def show(made: list[Experiment], found: Numbers) -> None:
    for experiment in made:
        rows = found["experiments"][experiment.name]
        print(f"\n{experiment.name}: accuracy in %")
        show_table(
            ["split", *(f"ε = {epsilon:g}" for epsilon in experiment.epsilons)],
            [[kind, *(f"{rows[kind][f'{e:g}']:.1f}" for e in experiment.epsilons)] for kind in SPLITS],
        )


def measure(experiment: Experiment, repeats: int) -> dict[str, dict[str, float]]:
    """Accuracies by split and ε."""
    found: dict[str, dict[str, float]] = {}
    for kind in SPLITS:
        groups = split(kind, experiment.train.labels, experiment.parties, seed=0)
        found[kind] = {}
        for epsilon in experiment.epsilons:
            runs = experiment.accuracies(experiment.study({"name": "moments"}, epsilon), groups, repeats)
            found[kind][f"{epsilon:g}"] = float(np.mean(runs))
            say(f"{experiment.name}, {kind}, ε = {epsilon:g}: {found[kind][f'{epsilon:g}']:.1f}")
    return found


def make_claims(experiment: Experiment, rows: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    listed = {epsilon: value for epsilon, value in experiment.claimed["softmax"].items() if epsilon is not None}
    gains = [rows["iid"][f"{epsilon:g}"] - value for epsilon, value in listed.items()]
    apart = [abs(rows["iid"][key] - rows["by-class"][key]) for key in rows["iid"]]
    return [
        claim("gain", f"{experiment.name}: fewest points above blind averaging", min(gains), at_least=0.0),
        claim("spread", f"{experiment.name}: most points between the splits (chance)", max(apart), at_most=4.0),
    ]


if __name__ == "__main__":
    main()
