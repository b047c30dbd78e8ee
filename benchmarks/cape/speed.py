"""Claim: capeFM costs little beyond the product of matrices that it cannot do without.

Moments: `SecondMoments.of` on 1,000,000 records × 100 features against one `X.T @ X` of the same array, with as many
BLAS threads. Message: what one site of D = 1,000 features does beyond computing its half a million moments, in its two
phases as every party runs them: draw the noise that cancels and put it into the secure sum; then encode the moments,
draw the noise that stays, draw the noise that cancels once more, and sign the message. Solving: coefficients from the
noisy moments of D = 1,280 features.

Goals are printed beside the figures; on a busy machine they say little.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.common import Numbers, best_of, claim, conclude, options, say, show_table
from benchmarks.studies import study
from unspoken.learners.second_moments import SecondMoments
from unspoken.learners.solving import solve
from unspoken.methods.cape import Cape
from unspoken.methods.functions import FunctionOptions
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.noise.stream import SecretStream
from unspoken.roles.secrets import PartySecrets
from unspoken.summation.base import Envelope, Protocol
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Floats, Words

SITE = 1


def main() -> None:
    arguments = options(__doc__).parse_args()
    conclude(arguments, measure(arguments), show)


def show(result: Numbers) -> None:
    print(f"BLAS threads: {result['threads']}\n")
    rows = [[name, f"{seconds:.3f}"] for name, seconds in result["seconds"].items()]
    show_table(["work", "seconds"], rows)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    quick = arguments.quick
    repeats = 2 if quick else 4
    product, moments = time_moments(*((20_000, 20) if quick else (1_000_000, 100)), repeats)
    phases = time_message(100 if quick else 1_000, repeats)
    solving = time_solving(100 if quick else 1_280, repeats)
    site = phases["noise phase"] + phases["message phase"]
    return {
        "threads": max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1),
        "seconds": {"X.T @ X": product, "moments": moments, **phases, "solving": solving},
        "claims": [
            claim("moments", "moments over one X.T @ X", moments / product, at_most=1.5),
            claim("message", "a site's noise and message, seconds", site, at_most=0.5),
            claim("solving", "solving, seconds", solving, at_most=5.0),
        ],
    }


def time_moments(records: int, features: int, repeats: int) -> tuple[float, float]:
    """Seconds of the bare product, and of the moments."""
    say(f"moments of {records:,} records × {features} features")
    rng = np.random.default_rng(1)
    X = rng.standard_normal((records, features))
    X /= np.linalg.norm(X, axis=1).max()
    y = rng.uniform(-1.0, 1.0, records)
    moments = SecondMoments(features, 1.0, None, 1.0)
    # In turn, so that what else the machine does hits both.
    turns = [(best_of(1, lambda: X.T @ X)[0], best_of(1, lambda: moments.of(X, y))[0]) for _ in range(repeats)]
    products, ours = zip(*turns, strict=True)
    return min(products), min(ours)


# --- A site's message ------------------------------------------------------------------------------------------------


def time_message(features: int, repeats: int) -> dict[str, float]:
    """Seconds of each phase, and of their parts."""
    say(f"a site's noise and message for {features:,} features")
    method = Cape(_study(features))
    plan = method.plan()
    planned = plan.sum_named("function")
    site = _Site(plan, planned, np.random.default_rng(2).standard_normal((1, planned.dimension)))
    site.noise_phase(), site.message_phase()  # compiles the sampler
    return {name: best_of(repeats, work)[0] for name, work in site.parts().items()}


def _study(features: int) -> Any:
    return study(
        {"features": features, "label_bounds": [-1.0, 1.0]},
        {"count": 5, "records": 10_000, "max_records": 20_000},
        {"epsilon": 1.0, "delta": 1e-6, "colluding": 1},
        {"name": "cape"},
        "compute-nodes",
    )


class _Site:
    """What one party does in the two phases, as `roles.contributor` has it, without its records."""

    def __init__(self, plan: Plan, planned: PlannedSum, contribution: Floats) -> None:
        self._plan, self._planned, self._contribution = plan, planned, contribution
        self._secrets = PartySecrets(SecretStream().key(), SITE)

    def parts(self) -> dict[str, Any]:
        common = self.common()
        return {
            "noise phase": self.noise_phase,
            "  noise that cancels": self.common,
            "  into the secure sum (compute nodes)": lambda: self.mask(common),
            "message phase": self.message_phase,
            "  encoding": self.encode,
            "  noise that stays, and once more what cancels": self.noise,
            "  signing": lambda: self.sign(common),
        }

    def noise_phase(self) -> list[Envelope]:
        return self.mask(self.common())

    def message_phase(self) -> list[Envelope]:
        words = self.encode()[0]
        words += self.noise()
        return self.sign(words)

    def common(self) -> Words:
        return self._planned.noise.prepared(self._planned.dimension, self._secrets.common(0), self._secrets.index)

    def noise(self) -> Words:
        source = self._secrets.noise(common=self._secrets.common(0))
        return self._planned.noise.added(self._planned.dimension, source)

    def encode(self) -> Words:
        return self._planned.encoding.encode(self._contribution)

    def mask(self, vector: Words) -> list[Envelope]:
        return self._submit(self._plan.preparation(self._planned), vector)

    def sign(self, words: Words) -> list[Envelope]:
        count = np.array([10_000], dtype=np.uint64)
        return self._submit(self._plan.collection(self._planned), np.concatenate([words, count]))

    def _submit(self, protocol: Protocol, vector: Words) -> list[Envelope]:
        endpoints = SimulatedEndpoints(protocol, SecretStream())
        return endpoints.party(SITE, self._secrets.stream("keys")).submit(vector)


# --- Solving ---------------------------------------------------------------------------------------------------------


def time_solving(features: int, repeats: int) -> float:
    """Seconds to solve for the coefficients from moments with noise of a tenth of the smallest eigenvalue's scale."""
    say(f"solving for {features:,} features")
    rng = np.random.default_rng(3)
    records = 20 * features
    X = rng.standard_normal((records, features)) / features**0.5
    y = np.clip(X @ rng.standard_normal(features) / 4.0, -1.0, 1.0)
    moments = SecondMoments(features, 1.0, None, 1.0)
    deviation = 0.1 * records / features / features**0.5
    noisy = moments.of(X, y) + rng.normal(scale=deviation * 2.0**0.5, size=moments.dimension)
    second, mixed = moments.split(noisy)
    repair = FunctionOptions().repair
    seconds, _ = best_of(min(repeats, 2), lambda: solve(moments, second, mixed, deviation, records, repair))
    return seconds


if __name__ == "__main__":
    main()
