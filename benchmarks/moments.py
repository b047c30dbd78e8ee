"""Claim: second moments beat blind averaging at every ε, and do not care how records are spread over parties.

The data sets of `accuracy.py` (digits, and with --cifar FILE the CIFAR-10 features), with the method's fixed
defaults: nothing is tuned. Each cell is the mean of some runs of the whole engine with fresh noise; δ = 1e-5, one
record replaced. The claim compares with the softmax accuracies that accuracy.py lists for blind averaging, whose Λ
was chosen on the test records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from _common import claim, options, say, show_claims, show_json, show_table
from accuracy import SPLITS, Experiment, cifar, digits

from unspoken.data.splits import split
from unspoken.simulation import simulate_records
from unspoken.study import Study, make_study


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cifar", type=Path, metavar="FILE", help="NPZ file with CIFAR-10 features")
    parser.add_argument("--repeats", type=int, default=3, help="runs with fresh noise for each cell")
    arguments = parser.parse_args()
    experiments = [digits(arguments.quick)]
    if arguments.cifar is not None:
        experiments.append(cifar(arguments.cifar, arguments.quick))
    results = {experiment.name: measure(experiment, arguments.repeats) for experiment in experiments}
    claims = [entry for experiment in experiments for entry in make_claims(experiment, results[experiment.name])]
    if arguments.json:
        show_json({"experiments": results, "claims": claims})
        return
    for experiment in experiments:
        rows = results[experiment.name]
        print(f"\n{experiment.name}: accuracy in %")
        show_table(
            ["split", *(f"ε = {epsilon:g}" for epsilon in experiment.epsilons)],
            [[kind, *(f"{rows[kind][f'{e:g}']:.1f}" for e in experiment.epsilons)] for kind in SPLITS],
        )
    show_claims(claims)


def study(experiment: Experiment, epsilon: float) -> Study:
    each = len(experiment.train) // experiment.parties
    return make_study(
        {
            "study": {"name": experiment.name, "task": "classification"},
            "data": {"features": experiment.train.features.shape[1], "classes": 10},
            "parties": {"count": experiment.parties, "records": each, "max_records": 2 * each},
            "privacy": {"epsilon": epsilon, "delta": 1e-5, "colluding": experiment.colluding},
            "method": {"name": "moments"},
            "summation": {"protocol": "ideal"},
        }
    )


def measure(experiment: Experiment, repeats: int) -> dict[str, dict[str, float]]:
    """Accuracies by split and ε."""
    found: dict[str, dict[str, float]] = {}
    for kind in SPLITS:
        groups = split(kind, experiment.train.labels, experiment.parties, seed=0)
        found[kind] = {}
        for epsilon in experiment.epsilons:
            agreed = study(experiment, epsilon)
            runs = [
                simulate_records(agreed, experiment.train, groups, experiment.test).metrics["accuracy"]
                for _ in range(repeats)
            ]
            found[kind][f"{epsilon:g}"] = 100.0 * float(np.mean(runs))
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
