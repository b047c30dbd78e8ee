"""What the secure sum and its noise are compared with: Flower's SecAgg+ and OpenDP's discrete Gaussian."""

from __future__ import annotations

import os
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.common import say
from benchmarks.secure_sum.endpoints import DROPOUTS, timed


def time_flower(parties: int, neighbours: int, threshold: int, length: int) -> dict[str, float] | None:
    """What Flower's functions take for the same client, and for the server's unmasking (extrapolated from a few)."""
    if find_spec("flwr") is None:
        say("flwr is not installed (pip install '.[benchmarks]'): no comparison")
        return None
    theirs = _Flower(neighbours, threshold, length)
    clock = {"keys": 0.0, "shares": 0.0, "mask": 0.0}
    for name in clock:
        timed(clock, name, getattr(theirs, name))
    clock["whole"] = sum(clock.values())
    dropped = round(DROPOUTS * parties)
    streams = parties - dropped + dropped * neighbours
    return {**clock, "server": parties * theirs.combining() + streams * theirs.expanding()}


class _Flower:
    """One client of Flower's SecAgg+, made of its functions."""

    def __init__(self, neighbours: int, threshold: int, length: int) -> None:
        package = "flwr.common.secure_aggregation"
        self._shamir: Any = import_module(f"{package}.crypto.shamir")
        self._cipher: Any = import_module(f"{package}.crypto.symmetric_encryption")
        self._arithmetic: Any = import_module(f"{package}.ndarrays_arithmetic")
        self._pair: Any = import_module("flwr.supercore.primitives.asymmetric").generate_key_pairs
        self._stream: Any = import_module(f"{package}.secaggplus_utils").pseudo_rand_gen
        self._neighbours, self._threshold, self._length = neighbours, threshold, length
        self._peers = [self._pair()[1] for _ in range(neighbours)]
        self._own = [self._pair() for _ in range(2)]

    def keys(self) -> None:
        self._own = [self._pair() for _ in range(2)]

    def shares(self) -> None:
        for _ in range(2):
            self._shamir.create_shares(os.urandom(32), self._threshold, self._neighbours)
        for peer in self._peers:
            self._cipher.encrypt(self._cipher.generate_shared_key(self._own[1][0], peer), bytes(200))

    def mask(self) -> None:
        vector = self._arithmetic.parameters_addition(self._zeros(), self._expanded(os.urandom(32)))
        for peer in self._peers:
            vector = self._arithmetic.parameters_subtraction(vector, self._expanded(self._seed(peer)))
        self._arithmetic.parameters_mod(vector, 2**32)

    def combining(self) -> float:
        """Seconds that the server takes to put one secret together."""
        shares = self._shamir.create_shares(os.urandom(32), self._threshold, self._neighbours)
        started = time.process_time()
        for _ in range(3):
            self._shamir.combine_shares(shares)
        return (time.process_time() - started) / 3

    def expanding(self) -> float:
        """Seconds that the server takes to expand one mask and add it."""
        some = self._peers[:20]
        started, vector = time.process_time(), self._zeros()
        for peer in some:
            vector = self._arithmetic.parameters_addition(vector, self._expanded(self._seed(peer)))
        return (time.process_time() - started) / len(some)

    def _zeros(self) -> Any:
        return [np.zeros(self._length, dtype=np.int64)]

    def _seed(self, peer: Any) -> Any:
        return self._cipher.generate_shared_key(self._own[0][0], peer)[:32]

    def _expanded(self, seed: Any) -> Any:
        return self._stream(seed, 2**32, [(self._length,)])


def time_opendp(sigma: float, count: int = 2_000) -> float:
    try:
        import opendp.prelude as dp
    except ImportError:
        return float("nan")
    dp.enable_features("contrib")
    measurement = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), scale=sigma)
    started = time.process_time()
    measurement([0] * count)
    return (time.process_time() - started) / count
