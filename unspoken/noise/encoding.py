"""Real vectors as integers modulo 2^b: clip, scale, round.

Noise is added after rounding, as integers, so the sum reveals an integer total plus integer noise, and nothing that
depends on floating-point arithmetic. Rounding moves two neighbouring vectors apart by at most one unit a coordinate, so
it adds at most √dimension units to the L2 sensitivity. (Cross-silo rounds after adding real noise, which is not
post-processing of the noisy sum.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unspoken.types import Floats, Integers, Words

_CHUNK = 1 << 14


@dataclass(frozen=True)
class Encoding:
    """Integers modulo 2^bits in units of 1/scale; vectors are first clipped to L2 norm `bound`."""

    scale: float
    bits: int
    bound: float

    def encode(self, vectors: Floats) -> Words:
        """Rows of real vectors as words. Only their residues modulo 2^bits count.

        It never fails, as a failure would be visible to others: a row that is not finite is encoded as zeros.
        """
        # Squares of integers or of half precision would overflow, and a long row would pass for a short one.
        vectors, norms = _with_norms(np.asarray(vectors, dtype=np.float64), self.bound)
        factors = self.scale * (self.bound / np.maximum(norms, self.bound))
        words = np.empty(vectors.shape, dtype=np.int64)
        # In chunks, which stay in the processor's cache from one step to the next.
        for row, factor, rounded in zip(vectors, factors, words, strict=True):
            for start in range(0, row.size, _CHUNK):
                part = row[start : start + _CHUNK] * factor
                rounded[start : start + _CHUNK] = np.rint(part, out=part)
        return words.view(np.uint64)

    def decode(self, totals: Words) -> Floats:
        """The real numbers of smallest magnitude that the residues stand for."""
        return self.centered(totals).astype(np.float64) / self.scale

    def centered(self, words: Words) -> Integers:
        """Residues as integers in [−2^(bits−1), 2^(bits−1))."""
        shift = np.uint64(64 - self.bits)
        return (words << shift).view(np.int64) >> np.int64(64 - self.bits)

    @staticmethod
    def rounding(dimension: int) -> float:
        """The units that rounding adds to an L2 sensitivity: √dimension.

        >>> Encoding.rounding(9)
        3.0
        """
        return math.sqrt(dimension)


def _with_norms(vectors: Floats, bound: float) -> tuple[Floats, Floats]:
    """The rows and their L2 norms.

    Rows whose squares overflow are scaled down to a norm of at least `bound`, so that they clip to the same vector.
    Rows that are not finite become zeros.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    beyond = ~np.isfinite(norms)
    if not beyond.any():
        return vectors, norms
    rows = vectors[beyond]
    rows[~np.isfinite(rows).all(axis=1)] = 0.0
    peaks = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
    rows = rows / peaks * bound
    vectors = vectors.copy()
    vectors[beyond] = rows
    norms[beyond] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return vectors, norms
