"""Claim: in cross-silo training, secrecy, projections, clipping and accounting cost little beside the training itself.

Round: one round of a network of a million weights with 100 parties and 8 compute nodes against the same round with the
ideal sum, through the local engine, which does everyone's work in one process; nothing is subtracted. With the ideal
sum the noise of the total is drawn once, with a secure sum by every party, so both are timed without any draws, too.
"On machines of their own" is the paper's way to count (one core a party): one party, then the busiest node, then the
coordinator. "Projected" is the paper's own remedy: parties send a structured projection of the gradient, a twentieth as
long.
With M nodes each, a key stream as long as the model is made 2(M − 1) times a party, half of them at the nodes, and a
share of the noise is drawn once a party instead of once for all: these, not messages or keys, are what secrecy costs.
Projection: a batch's clipped gradients as 1,000 numbers against an ordinary gradient of the same batch. Clipping: sums
of clipped per-example gradients against Opacus and torch.func. Planning: from epochs, batch and ε to noise.

Needs torch; Opacus is compared with if it is installed. Goals are printed beside the figures; all are ratios within one
run, of processor seconds, but on a busy machine they say little all the same.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from benchmarks.common import Numbers, claim, conclude, options, say, show_table
from benchmarks.cross_silo.findings import GOAL
from benchmarks.cross_silo.gradients import CONVOLUTIONS, gradient_claims, gradient_rows, time_gradients
from benchmarks.cross_silo.rounds import CLASSES, Setting, time_rounds
from benchmarks.studies import method_for, study
from unspoken.privacy import subsampled


def main() -> None:
    arguments = options(__doc__).parse_args()
    torch.set_num_threads(1)
    conclude(arguments, measure(arguments), show)


def show(result: Numbers) -> None:
    for title, headings in (
        ("round", ["a round", "seconds", "processor seconds"]),
        ("roles", ["on machines of their own", "ideal, ms", "compute nodes, ms"]),
        ("gradients", ["gradients of a batch", "ms", "over the plain gradient"]),
        ("planning", ["planning", "seconds", "noise multiplier"]),
    ):
        show_table(headings, result[title])
        print()


def measure(arguments: argparse.Namespace) -> Numbers:
    quick = arguments.quick
    setting = Setting(10, 20, (32,), 0.1, 3) if quick else Setting(100, 600, (680, 680), 0.01, 8)
    projection = 1_000 if quick else 50_000
    rounds = time_rounds(setting, projection, 1 if quick else 3)
    roles = {protocol: setting.roles(protocol) for protocol in ("ideal", "compute-nodes")}
    hidden, batch = ((32,), 32) if quick else ((680, 680), 256)
    linear = time_gradients("mlp", hidden, batch, 2 if quick else 5)
    others = time_gradients(CONVOLUTIONS, (), 16 if quick else 64, 2 if quick else 3)
    planning = [time_planning(*case) for case in (PLANS[:2] if quick else PLANS)]
    return {
        "weights": setting.weights,
        "bits": setting.bits,
        "round": [[name, f"{wall:.2f}", f"{work:.2f}"] for name, (wall, work) in rounds.items()],
        "roles": [[name, *(f"{1e3 * parts[name]:.1f}" for parts in roles.values())] for name in roles["ideal"]],
        "gradients": [*gradient_rows("linear layers", linear), *gradient_rows("convolutions", others)],
        "planning": [[name, f"{seconds:.2f}", f"{noise:.3f}"] for name, seconds, noise in planning],
        "claims": [
            *round_claims({name: work for name, (_, work) in rounds.items()}, roles, projection),
            *gradient_claims(linear, others),
            claim("planning", "slowest planning, seconds", max(row[1] for row in planning), at_most=5.0),
        ],
    }


def round_claims(work: dict[str, float], roles: dict[str, dict[str, float]], projection: int) -> list[dict[str, Any]]:
    """From processor seconds of whole rounds, and of each role in them."""
    apart = {name: sum(parts.values()) for name, parts in roles.items()}
    numbers = f"gradients as {projection:,} numbers"
    return [
        claim(name, text, secure / ideal, at_most=GOAL)
        for name, text, secure, ideal in (
            (
                "round",
                "a secure round over the ideal one, everyone's work in one process",
                work["compute nodes"],
                work["ideal"],
            ),
            (
                "round without draws",
                "the same, with no noise drawn by either",
                work["compute nodes, no noise"],
                work["ideal, no noise"],
            ),
            (
                "own machines",
                "the same, parties and nodes on machines of their own",
                apart["compute-nodes"],
                apart["ideal"],
            ),
            (
                "projected",
                f"a secure round with {numbers} over the ideal one with all of them",
                work["projected, compute nodes"],
                work["ideal"],
            ),
        )
    ]


# --- Planning --------------------------------------------------------------------------------------------------------

PLANS = (
    ("50,000 records, batch 400, 10 epochs, ε = 1", 50_000, 400, 10, 1.0, "poisson"),
    ("the same, ε = 0.25", 50_000, 400, 10, 0.25, "poisson"),
    ("the same, ε = 8", 50_000, 400, 10, 8.0, "poisson"),
    ("the same, ε = 1, without replacement", 50_000, 400, 10, 1.0, "without-replacement"),
    ("60,000 records, batch 256, 60 epochs, ε = 3", 60_000, 256, 60, 3.0, "poisson"),
    ("1,000,000 records, batch 1,000, 100 epochs, ε = 2", 1_000_000, 1_000, 100, 2.0, "poisson"),
    ("1,500 records, batch 150, 20 epochs, ε = 2", 1_500, 150, 20, 2.0, "poisson"),
)


def time_planning(
    name: str, records: int, batch: int, epochs: int, epsilon: float, sampling: str
) -> tuple[str, float, float]:
    """Processor seconds of the whole plan, and its noise multiplier."""
    say(f"planning: {name}")
    each = records // 10
    method = method_for(
        study(
            {"features": 64, "norm": 1.0, "classes": CLASSES},
            {"count": 10, "records": each, "max_records": each},
            {"epsilon": epsilon, "delta": 1e-6, "colluding": 3},
            {
                "name": "cross-silo",
                "model": "linear",
                "rounds": epochs * records // batch,
                "rate": batch / records,
                "sampling": sampling,
            },
            "compute-nodes",
        )
    )
    subsampled.composed.cache_clear()
    started = time.process_time()
    plan = method.plan()
    seconds = time.process_time() - started
    return name, seconds, plan.sums[0].noise_multiplier


if __name__ == "__main__":
    main()
