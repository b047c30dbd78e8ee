"""Claim: with secure sums, training across parties is about as accurate as with a trusted curator, at the same ε.

Figures 1 to 5 of the cross-silo paper (Heikkilä et al. 2020) again, with what it leaves out: ε when more parties
collude than was planned for, and the honest price of batches without replacement. Every point is the mean of `--runs`
runs with fresh noise and batches, shown with the least and the best of them. Settings (learning rates; the clipping
norm of `fedavg`) are chosen from three by one run on a tenth of the training records kept aside, for each method and
point alike; that choice is not private, as in the paper.

Accuracy is measured with the ideal sum, whose total has the same distribution as a secure one's; one run goes through
SecAgg and says so. Data: CIFAR-10 features if a file is given with --cifar, else Fashion-MNIST if Debian's package
dataset-fashion-mnist is installed, else scikit-learn's digits. The published page is made with --cifar.

Writes the numbers (with --quick only if --results is given). `python -m benchmarks.cross_silo.page` makes page and
plots of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import conclude, measure_parts, run_options, runs_of, say
from benchmarks.cross_silo.data import Images, load
from benchmarks.cross_silo.findings import derived, show
from benchmarks.cross_silo.more import larger_networks, network_sweep, pair_sweep, sampling_sweep
from benchmarks.cross_silo.points import COLLUDING, DELTA, PARTIES, Curve, measured, run_study, study_of
from benchmarks.cross_silo.rounds import Setting
from benchmarks.images import add_cifar, add_fashion
from benchmarks.studies import plan_of, share_right
from unspoken.privacy.subsampled import Rounds, effective_rate, epsilon_of

RESULTS = Path(__file__).with_name("results.json")
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
PROJECTED_EPSILON = 1.7
"""The paper's, in its Figure 4."""
SLACKS = (0.0, 1e-10, 1e-6)
PAPER_RATE, PAPER_ROUNDS = 0.008, 1_250


def main() -> None:
    parser = run_options(__doc__, RESULTS, (5, 2))
    add_cifar(parser)
    add_fashion(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs, images = runs_of(arguments), load(arguments.cifar, arguments.fashion, arguments.quick)
    heading: dict[str, Any] = {"quick": arguments.quick}
    if not arguments.only:
        heading |= {"data": images.name, "runs": runs}
    result = measure_parts(arguments, heading, parts(images, arguments.quick, runs))
    conclude(arguments, derived(result), show)


def parts(images: Images, quick: bool, runs: int) -> dict[str, Callable[[], Any]]:
    """Everything that takes time."""
    epsilons = (0.5, 4.0) if quick else EPSILONS
    sets = [images] if quick or len(images.labels) < 10_000 else [images, images.part(10)]
    return {
        "rates": sampling_rates,
        "accuracy": lambda: [accuracy_sweep(each, epsilons, runs) for each in sets],
        "parties": lambda: party_sweep(images, (4.0,) if quick else (1.0, 2.0, 4.0, 8.0), quick, runs),
        "secure": lambda: secure_run(sets[-1]),
        "nodes": lambda: node_sweep(quick),
        "projections": lambda: projection_sweep(images, quick, runs),
        "weakening": lambda: [
            weakened(images, PARTIES, COLLUDING),
            *([] if quick else [weakened(images, 100, 33)]),
        ],
        "sampling": lambda: sampling_costs(quick),
        "samplings": lambda: sampling_sweep(sets[-1], (0.5, 4.0) if quick else EPSILONS[1:5], runs),
        "network": lambda: network_sweep(images, (4.0,) if quick else EPSILONS[1:5], quick, runs),
        "larger": lambda: larger_networks(sets[-1], quick, runs),
        "pairs": lambda: pair_sweep(quick),
    }


# --- Figure 1 --------------------------------------------------------------------------------------------------------


def sampling_rates(parties: int = 100, each: int = 600) -> dict[str, Any]:
    """The rate at which honest records are sampled, against the number of malicious parties."""
    records = parties * each
    batch = round(PAPER_RATE * records)
    malicious = list(range(0, parties, 3))
    return {
        "parties": parties,
        "each": each,
        "batch": batch,
        "malicious": malicious,
        "poisson": batch / records,
        "curves": {
            f"{slack:g}": [effective_rate(batch, records, count * each, slack) for count in malicious]
            for slack in SLACKS
        },
    }


# --- Figure 2 --------------------------------------------------------------------------------------------------------


def accuracy_sweep(images: Images, epsilons: Sequence[float], runs: int) -> dict[str, Any]:
    """Accuracy on test records against ε."""
    once = [{"learning_rate": rate} for rate in images.learning_rates]
    steps = 5
    # As many noisy steps in all as the others have rounds.
    within = [{"local_rate": rate, "local_steps": steps} for rate in images.learning_rates]
    # Nobody counts rounds without noise: enough of them to get there.
    without = {"rounds": 5 if len(images.labels) > 10_000 else 40, "rate": 1.0, "batch": 50}
    alone = [without | {"local_rate": rate / 4.0} for rate in images.learning_rates]
    curves = (
        Curve("cross-silo, secure sums", "cross-silo", tuple(once)),
        Curve("central, a trusted curator", "central", tuple(once)),
        Curve("local, every party alone", "local", tuple(once)),
        Curve("fedsgd, noise inside", "fedsgd", tuple(each | {"rounds": images.rounds // steps} for each in within)),
        Curve("not private", "none", tuple(alone), private=False),
    )
    points: dict[str, list[dict[str, Any]]] = {}
    for curve in curves:
        say(f"{images.name}, {len(images.labels):,} records: {curve.label}")
        if curve.private:
            points[curve.label] = [measured(images, curve, PARTIES, epsilon, runs) for epsilon in epsilons]
        else:
            points[curve.label] = [measured(images, curve, PARTIES, 1.0, runs)] * len(epsilons)
    return {
        "records": len(images.labels),
        "rounds": images.rounds,
        "rate": images.rate,
        "epsilons": list(epsilons),
        "curves": points,
    }


def party_sweep(images: Images, epsilons: Sequence[float], quick: bool, runs: int) -> dict[str, Any]:
    """`fedavg`, which protects whole parties: few parties have no crowd to hide in."""
    choices = tuple(
        {"rounds": 10, "local_rate": images.learning_rates[0], "clip": clip}
        for clip in ((1.0,) if quick else (0.3, 1.0, 3.0))
    )
    curve = Curve("fedavg", "fedavg", choices)
    found = {}
    for parties, rate in ((PARTIES, 1.0),) if quick else ((PARTIES, 1.0), (500, 0.2)):
        say(f"fedavg with {parties} parties")
        # A party of many records takes larger batches: as many steps would only take longer.
        extra = {"rate": rate, "batch": 100 if len(images.labels) > 1_000 * parties else 20}
        points = [measured(images, curve, parties, epsilon, runs, extra) for epsilon in epsilons]
        found[f"fedavg, {parties} parties"] = points
    return {"epsilons": list(epsilons), "curves": found}


def secure_run(images: Images) -> dict[str, Any]:
    """The same study with the ideal sum and through SecAgg."""
    say("one run through SecAgg")
    found: dict[str, Any] = {"records": len(images.labels)}
    keys = {"learning_rate": images.learning_rates[len(images.learning_rates) // 2], "rounds": min(images.rounds, 20)}
    for protocol in ("ideal", "secagg"):
        agreed = study_of(images, "cross-silo", PARTIES, 1.0, keys, protocol)
        finished = run_study(images, agreed)
        found[protocol] = {
            "accuracy": share_right(agreed, finished.release, images.test_features, images.test_labels),
            "noise": finished.plan.sums[0].total_std(PARTIES),
            "bytes": finished.outcome.bytes,
            "seconds": finished.outcome.seconds,
        }
    return found


# --- Figure 3 --------------------------------------------------------------------------------------------------------


def node_sweep(quick: bool) -> dict[str, Any]:
    """Processor seconds of a whole round with so many compute nodes, over those with the ideal sum."""
    parties, hidden, repeats = (10, (32,), 1) if quick else (100, (680, 680), 2)
    counts = (2, 4) if quick else (2, 4, 8, 12, 16, 20)
    settings = {count: Setting(parties, 20 if quick else 600, hidden, 0.01, count) for count in counts}
    # One beside the other, since a machine is not as fast all the time.
    together = [[each.seconds(kind, repeats) for kind in ("ideal", "compute-nodes")] for each in settings.values()]
    apart = [[sum(each.roles(kind).values()) for kind in ("ideal", "compute-nodes")] for each in settings.values()]
    return {
        "parties": parties,
        "weights": settings[counts[0]].weights,
        "nodes": list(counts),
        "ideal": float(np.median([ideal for ideal, _ in together])),
        "ideal_apart": float(np.median([ideal for ideal, _ in apart])),
        "one_process": [secure / ideal for ideal, secure in together],
        "own_machines": [secure / ideal for ideal, secure in apart],
    }


# --- Figure 4 --------------------------------------------------------------------------------------------------------


def projection_sweep(images: Images, quick: bool, runs: int) -> dict[str, Any]:
    """Accuracy against how many numbers a gradient is projected to."""
    full = 10 * (images.features.shape[1] + 1)
    sizes = [size for size in ((32, 256) if quick else (32, 128, 512, 2_048, 8_192)) if size < full]
    curves: dict[str, list[dict[str, Any]]] = {}
    for kind, most in (("structured", full), ("gaussian", 512)):
        points = []
        for size in [size for size in sizes if size <= most]:
            say(f"projection to {size} numbers, {kind}")
            # E‖PPᵀu‖² is about (d/k)‖u‖², so steps are shorter.
            shorter = [rate * (size / full) ** 0.25 for rate in images.learning_rates]
            choices = tuple({"learning_rate": rate, "projection": size, "projection_kind": kind} for rate in shorter)
            points.append(
                {"size": size} | measured(images, Curve(kind, "cross-silo", choices), PARTIES, PROJECTED_EPSILON, runs)
            )
        curves[kind] = points
    plain = Curve("none", "cross-silo", tuple({"learning_rate": rate} for rate in images.learning_rates))
    return {
        "epsilon": PROJECTED_EPSILON,
        "full": full,
        "curves": curves,
        "none": measured(images, plain, PARTIES, PROJECTED_EPSILON, runs),
    }


# --- Tables ----------------------------------------------------------------------------------------------------------


def weakened(images: Images, parties: int, colluding: int) -> dict[str, Any]:
    """ε if more parties collude than was planned for."""
    plan = plan_of(study_of(images, "cross-silo", parties, 1.0, {}))
    return {"parties": parties, "colluding": colluding, "epsilon": plan.guarantee.epsilon, "rows": plan.weakening()}


def sampling_costs(quick: bool) -> list[dict[str, float]]:
    """ε of the paper's schedule by the Poisson pairs, and by the pair that batches without replacement reach."""
    rows = []
    for noise in (2.0,) if quick else (1.0, 2.0):
        rounds = [Rounds(noise, PAPER_RATE, PAPER_ROUNDS)]
        rows.append(
            {
                "noise": noise,
                "add-remove": epsilon_of(rounds, DELTA, "add-remove", "poisson"),
                "poisson": epsilon_of(rounds, DELTA, "replace", "poisson"),
                "without-replacement": epsilon_of(rounds, DELTA, "replace", "without-replacement"),
            }
        )
    return rows


if __name__ == "__main__":
    main()
