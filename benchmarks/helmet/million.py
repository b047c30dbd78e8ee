"""Claim: a million parties go through the whole local engine in memory that does not grow with their number.

1,000,000 parties × 20 records × 64 features × 10 classes: training, encoding, messages, ideal summation. The parties'
records are made on demand from a public seed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.common import Numbers, claim, conclude, options, resident_bytes, say, show_table
from benchmarks.studies import Federation, Floats, Integers, method_for, run, share_right, study
from unspoken.data.block import Block
from unspoken.data.federation import BLOCK_BYTES, BLOCK_PARTIES

CLASSES, RECORDS, FEATURES = 10, 20, 64


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--parties", type=int, help="another number of parties")
    arguments = parser.parse_args()
    conclude(arguments, measure(arguments), show)


class GeneratedFederation(Federation):
    """Parties whose records are made when they are asked for, always the same for the same public seed."""

    def __init__(self, parties: int, seed: int) -> None:
        self.parties = parties
        self.seconds = 0.0
        self._seed = seed
        self._means = 0.3 * np.random.default_rng(seed).standard_normal((CLASSES, FEATURES))

    def layout(self, most: int = BLOCK_PARTIES) -> Iterator[Integers]:
        size = min(most, BLOCK_BYTES // (RECORDS * FEATURES * 8))
        return (np.arange(start, min(start + size, self.parties)) for start in range(0, self.parties, size))

    def block(self, parties: Integers) -> Block:
        began = time.perf_counter()
        shape = (len(parties), RECORDS)
        labels, vectors = np.empty(shape, dtype=np.int64), np.empty((*shape, FEATURES))
        for row, party in enumerate(parties.tolist()):
            rng = np.random.default_rng((self._seed, party))
            labels[row], vectors[row] = rng.integers(CLASSES, size=RECORDS), rng.standard_normal((RECORDS, FEATURES))
        vectors += self._means[labels]
        vectors /= np.sqrt(np.einsum("bnd,bnd->bn", vectors, vectors))[:, :, None]
        self.seconds += time.perf_counter() - began
        return Block(vectors, labels, np.full(shape[0], RECORDS))


def measure(arguments: argparse.Namespace) -> Numbers:
    parties = arguments.parties or (20_000 if arguments.quick else 1_000_000)
    agreed = study(
        {"features": FEATURES, "classes": CLASSES, "norm": 1.0},
        {"count": parties, "records": RECORDS, "max_records": RECORDS},
        {"epsilon": 0.5, "delta": 1e-9, "colluding": 0.5},
        {"name": "helmet", "learner": "softmax", "regularization": 0.1},
    )
    federation, memory = GeneratedFederation(parties, seed=0), list[float]()
    outcome = run(method_for(agreed), federation, progress=tenths(memory)).outcome
    test = federation.block(np.arange(1000))
    features: Floats = test.features.reshape(-1, FEATURES)
    # What blocks happen to be in flight makes single samples differ by some tens of MB.
    growth = float(np.median(memory[5:]) - np.median(memory[:5])) / 1e9
    return {
        "parties": parties,
        "cores": os.cpu_count() or 1,
        "seconds": outcome.seconds,
        "microseconds_per_party": outcome.seconds / parties * 1e6,
        "seconds_making_records": federation.seconds,
        "message_bytes": outcome.bytes,
        "accuracy": share_right(agreed, outcome.release, features, test.labels.ravel()),
        "resident_mb": [used / 1e6 for used in memory],
        "claims": [
            claim("flat", "growth of the median memory in GB from the first to the second half", growth, at_most=0.1)
        ],
    }


def show(result: Numbers) -> None:
    print(
        f"{result['parties']:,} parties × {RECORDS} records × {FEATURES} features × {CLASSES} classes, ideal sum, "
        f"{result['cores']} cores\n{result['seconds']:.1f} s in all, {result['microseconds_per_party']:.1f} µs a party "
        f"(making the records: {result['seconds_making_records']:.1f} s); {result['message_bytes'] / 1e9:.2f} GB of "
        f"messages; accuracy {100 * result['accuracy']:.1f} % at ε = 0.5, half of the parties colluding\n"
    )
    shares = [[f"{10 * (i + 1)} %", f"{used:.0f}"] for i, used in enumerate(result["resident_mb"])]
    show_table(["parties done", "resident MB"], shares)


def tenths(memory: list[float]) -> Callable[[str, int, int], None]:
    """A progress callback that notes the memory at every tenth of the parties."""

    def note(_: str, done: int, parties: int) -> None:
        while len(memory) < 10 * done // parties:
            memory.append(float(resident_bytes()))
            say(f"{10 * len(memory)} % of {parties:,} parties, {memory[-1] / 1e6:.0f} MB")

    return note


if __name__ == "__main__":
    main()
