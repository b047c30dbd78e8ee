"""Claim: with secure sums, training across parties is about as accurate as with a trusted curator, at the same ε.

Figures 1 to 4 of the cross-silo paper (Heikkilä et al. 2020) again, with what it leaves out: ε when more parties
collude than was planned for, and the honest price of batches without replacement. Every point is the mean of `--runs`
runs with fresh noise and batches, shown with the least and the best of them. Settings (learning rates; the clipping
norm of `fedavg`) are chosen from three by one run on a tenth of the training records kept aside, for each method and
point alike; that choice is not private, as in the paper.

Accuracy is measured with the ideal sum, whose total has the same distribution as a secure one's; one run goes through
SecAgg and says so. Data: CIFAR-10 features if a file is given with --cifar, else Fashion-MNIST if Debian's package
dataset-fashion-mnist is installed, else scikit-learn's digits. The published page is made with --cifar.

Writes plots and the page docs/cross_silo.md (with --quick only if --output is given). --numbers keeps what was
measured, so that plots and page can be made again in seconds; --again measures named parts of it once more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import claim, kept, options, say, show_claims, show_json, show_table
from _cross_silo_data import FASHION, HeldParties, Images, load
from _cross_silo_page import write_page
from _cross_silo_plots import draw_all
from cross_silo import Setting

from unspoken.engines import local
from unspoken.methods.plan import Plan
from unspoken.methods.registry import method_for
from unspoken.privacy.subsampled import Rounds, effective_rate, epsilon_of
from unspoken.study import Study, make_study

DOCS = Path(__file__).resolve().parent.parent / "docs"
PARTIES, COLLUDING, DELTA = 10, 3, 1e-5
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
PROJECTED_EPSILON = 1.7
"""The paper's, in its Figure 4."""
SLACKS = (0.0, 1e-10, 1e-6)
PAPER_RATE, PAPER_ROUNDS = 0.008, 1_250


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, help="runs for each point (default 3, and 2 with --quick)")
    parser.add_argument("--cifar", type=Path, metavar="FILE", help="NPZ of CIFAR-10 features: X (uint8), max_sqrt, y")
    parser.add_argument("--fashion", type=Path, metavar="FOLDER", default=FASHION, help="of Fashion-MNIST's IDX files")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where cross_silo.md and images/ go (default docs)"
    )
    parser.add_argument("--numbers", type=Path, metavar="FILE", help="read the numbers from here, or keep them here")
    parser.add_argument("--again", metavar="PART", nargs="+", default=[], help="of kept numbers, such as nodes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = numbers(arguments)
    result["claims"] = make_claims(result)
    for sweep in result["accuracy"]:
        sweep["behind"], sweep["ahead"] = points_apart(sweep)
    folder = arguments.output or (None if arguments.quick else DOCS)
    if folder is not None:
        draw_all(result, folder / "images")
        write_page(result, folder / "cross_silo.md")
        say(f"wrote {folder / 'cross_silo.md'} and its plots")
    if arguments.json:
        show_json(result)
        return
    show(result)


def numbers(arguments: argparse.Namespace) -> dict[str, Any]:
    quick, runs, again = arguments.quick, arguments.runs or (2 if arguments.quick else 3), arguments.again
    images = (arguments.cifar, arguments.fashion, quick)
    return kept(arguments.numbers, lambda: measure(load(*images), quick, runs, again), bool(again))


def measure(images: Images, quick: bool, runs: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that takes time, or the named parts of it."""
    epsilons = (0.5, 4.0) if quick else EPSILONS
    sets = [images] if quick or len(images.labels) < 10_000 else [images, images.part(10)]
    parts: dict[str, Callable[[], Any]] = {
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
    }
    if unknown := set(only) - set(parts):
        raise SystemExit(f"--again names {', '.join(sorted(unknown))}, but the parts are: {', '.join(parts)}.")
    found = {name: part() for name, part in parts.items() if not only or name in only}
    return {"quick": quick, "runs": runs, "data": images.name} | found


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


@dataclass(frozen=True)
class Curve:
    """A method, and the options of which the best on records kept aside is taken."""

    label: str
    method: str
    choices: tuple[dict[str, Any], ...]
    private: bool = True


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


def measured(
    images: Images, curve: Curve, parties: int, epsilon: float, runs: int, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Mean, least and largest accuracy, and the options that were chosen."""
    options = dict(curve.choices[0])
    if len(curve.choices) > 1:
        aside = images.validation()
        scores = [accuracy(aside, curve.method, parties, epsilon, each | (extra or {})) for each in curve.choices]
        options = dict(curve.choices[int(np.argmax(scores))])
    found = [accuracy(images, curve.method, parties, epsilon, options | (extra or {})) for _ in range(runs)]
    return {"mean": float(np.mean(found)), "least": min(found), "best": max(found), "options": options}


def accuracy(images: Images, method: str, parties: int, epsilon: float, keys: dict[str, Any]) -> float:
    return run(images, study_of(images, method, parties, epsilon, keys))[0]


def run(images: Images, study: Study) -> tuple[float, local.Outcome, Plan]:
    method = method_for(study)
    plan = method.plan()
    outcome = local.run(method, plan, HeldParties.of(images, study.parties.count))
    right = outcome.release.predict(study, images.test_features) == images.test_labels
    return float(right.mean()), outcome, plan


def study_of(
    images: Images, method: str, parties: int, epsilon: float, keys: dict[str, Any], protocol: str = "ideal"
) -> Study:
    each = len(images.labels) // parties
    colluding = COLLUDING if parties == PARTIES else parties // 3
    return make_study(
        {
            "study": {"name": "figures", "task": "classification"},
            "data": {"features": images.features.shape[1], "norm": 1.0, "classes": 10},
            "parties": {"count": parties, "records": each, "max_records": each},
            "privacy": {
                "epsilon": epsilon,
                "delta": DELTA,
                "colluding": colluding,
                "unit": "party" if method == "fedavg" else "record",
            },
            "method": {
                "name": method,
                "model": "linear",
                "rounds": images.rounds,
                "rate": images.rate,
                **keys,
            },
            "summation": {"protocol": protocol},
        }
    )


def secure_run(images: Images) -> dict[str, Any]:
    """The same study with the ideal sum and through SecAgg."""
    say("one run through SecAgg")
    found: dict[str, Any] = {"records": len(images.labels)}
    keys = {"learning_rate": images.learning_rates[len(images.learning_rates) // 2], "rounds": min(images.rounds, 20)}
    for protocol in ("ideal", "secagg"):
        right, outcome, plan = run(images, study_of(images, "cross-silo", PARTIES, 1.0, keys, protocol))
        noise = plan.sums[0].total_std(PARTIES)
        found[protocol] = {"accuracy": right, "noise": noise, "bytes": outcome.bytes, "seconds": outcome.seconds}
    return found


# --- Figure 3 --------------------------------------------------------------------------------------------------------


def node_sweep(quick: bool) -> dict[str, Any]:
    """Processor seconds of a whole round with so many compute nodes, over those with the ideal sum."""
    parties, hidden, repeats = (10, (32,), 1) if quick else (100, (680, 680), 2)
    counts = (2, 4) if quick else (2, 4, 8, 12, 16, 20)
    settings = {count: Setting(parties, 20 if quick else 600, hidden, 0.01, count) for count in counts}
    ideal = next(iter(settings.values())).seconds("ideal", repeats)
    apart = sum(next(iter(settings.values())).roles("ideal").values())
    together = [setting.seconds("compute-nodes", repeats) for setting in settings.values()]
    on_their_own = [sum(setting.roles("compute-nodes").values()) for setting in settings.values()]
    return {
        "parties": parties,
        "weights": settings[counts[0]].weights,
        "nodes": list(counts),
        "ideal": ideal,
        "ideal_apart": apart,
        "one_process": [seconds / ideal for seconds in together],
        "own_machines": [seconds / apart for seconds in on_their_own],
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
    plan = method_for(study_of(images, "cross-silo", parties, 1.0, {})).plan()
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


# --- What follows ----------------------------------------------------------------------------------------------------


def make_claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    claims = []
    for sweep in result["accuracy"]:
        behind, ahead = points_apart(sweep)
        at = f"{sweep['records']:,} records"
        claims.append(
            claim("central", f"{at}: points behind a trusted curator, mean over ε", float(np.mean(behind)), at_most=3.0)
        )
        claims.append(
            claim("local", f"{at}, ε = {sweep['epsilons'][0]:g}: points ahead of local privacy", ahead[0], at_least=3.0)
        )
    secure_noise = result["secure"]["secagg"]["noise"] / result["secure"]["ideal"]["noise"]
    claims.append(claim("noise", "noise with SecAgg over the ideal sum's", secure_noise, at_least=0.999, at_most=1.001))
    return claims


def points_apart(sweep: dict[str, Any]) -> tuple[list[float], list[float]]:
    """How far secure sums are behind a trusted curator and ahead of local privacy, for each ε."""
    labels = ("cross-silo, secure sums", "central, a trusted curator", "local, every party alone")
    secure, central, alone = ([100.0 * point["mean"] for point in sweep["curves"][label]] for label in labels)
    behind = [theirs - ours for ours, theirs in zip(secure, central, strict=True)]
    return behind, [ours - theirs for ours, theirs in zip(secure, alone, strict=True)]


def show(result: dict[str, Any]) -> None:
    print(f"{result['data']}: means of {result['runs']} runs")
    for sweep in [*result["accuracy"], result["parties"]]:
        print(f"\nFigure 2: accuracy, %, {sweep.get('records', 'whole parties')}")
        rows = [
            [label, *(f"{100 * point['mean']:.1f}" for point in points)] for label, points in sweep["curves"].items()
        ]
        show_table(["ε", *(f"{epsilon:g}" for epsilon in sweep["epsilons"])], rows)
    nodes = result["nodes"]
    print(f"\nFigure 3: times the ideal sum's {nodes['ideal']:.2f} s (on own machines {nodes['ideal_apart']:.2f} s)")
    show_table(
        ["nodes", *map(str, nodes["nodes"])],
        [[name, *(f"{fold:.2f}" for fold in nodes[name])] for name in ("one_process", "own_machines")],
    )
    print(f"\nFigure 4: accuracy, %, none {100 * result['projections']['none']['mean']:.1f}")
    for kind, points in result["projections"]["curves"].items():
        show_table(
            [kind, *(str(point["size"]) for point in points)],
            [["accuracy", *(f"{100 * point['mean']:.1f}" for point in points)]],
        )
    print("\nWithout replacement")
    show_table(
        ["σ", "add-remove", "poisson", "without replacement"],
        [[f"{row['noise']:g}", *(f"{row[key]:.2f}" for key in list(row)[1:])] for row in result["sampling"]],
    )
    show_claims(result["claims"])


if __name__ == "__main__":
    main()
