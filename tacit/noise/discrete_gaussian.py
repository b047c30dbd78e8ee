"""Exact-to-2⁻¹¹⁰ sampling of the discrete Gaussian: P(x) ∝ exp(−x²/2σ²) on the integers (Canonne, Kamath & Steinke
2020).

A small σ is drawn by inversion from a 127-bit table of cumulative probabilities. A large one is put together: with
independent x_0, …, x_m from the table's σ₀, x_0 + k_1 x_1 + … + k_m x_m follows the discrete Gaussian of variance σ₀²
(1 + Σ k_j²) (convolution, Micciancio & Walter 2017).

Formal guarantee. Each sample is within total variation distance 2⁻¹¹⁰ of the exact distribution:
- table: every cumulative probability is rounded to 2⁻¹²⁷ and what lies beyond 14σ₀ (mass below 2⁻¹⁴⁰) is left out;
  with at most 2¹³ entries that is 2⁻¹¹⁴ a draw, and a sample takes at most seven;
- convolution: adding k·x_j to a partial sum of deviation σ' changes each probability by a factor within 1 ±
  4·exp(−2π²s²), s = σ'σ₀/√(σ'² + k²σ₀²). Steps are kept at s ≥ 2.4, that is below 2⁻¹⁶¹. No floating-point number
  takes part in drawing, so no low-order bits of one can leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numba
import numpy as np

from tacit.noise.stream import SecretStream
from tacit.types import Integers, Words

DISTANCE = 2.0**-110
"""The statistical distance of one sample from the exact distribution, as counted in δ."""

_TABLE_SIGMA = 512.0
_TAIL = 14.0
_LEAST_SMOOTHING = 2.4
_GUIDE_BITS = 12
_CHUNK = 1 << 16


@dataclass(frozen=True)
class _Table:
    """Cumulative probabilities of |x| in 127 bits: `high` the upper 63 bits, `low` the rest."""

    high: Words
    low: Words
    guide: Integers


def sample(sigma: float, count: int, stream: SecretStream) -> Integers:
    """`count` independent samples with parameter `sigma`, up to 2⁴⁸."""
    if not 0.0 < sigma <= 2.0**48:
        raise ValueError(f"Expected 0 < sigma <= 2**48, got sigma={sigma}.")
    table_sigma, factors = _decompose(sigma)
    table = _table(table_sigma)
    samples = np.empty(count, dtype=np.int64)
    for start in range(0, count, _CHUNK):
        part = samples[start : start + _CHUNK]
        _draw(
            stream.words(part.size * len(factors)), stream.words(64), table.high, table.low, table.guide, factors, part
        )
    return samples


@lru_cache(maxsize=64)
def _decompose(sigma: float) -> tuple[float, Integers]:
    """σ₀ and the factors (1, k_1, …, k_m) with σ = σ₀ √(1 + Σ k_j²), every convolution step smooth enough."""
    if sigma <= _TABLE_SIGMA:
        return sigma, np.array([1], dtype=np.int64)
    for levels in range(1, 9):
        ratio = (sigma / _TABLE_SIGMA) ** (1.0 / levels)
        factors = np.array([max(1, round(ratio**level)) for level in range(levels + 1)], dtype=np.int64)
        partial = np.sqrt(np.cumsum(factors.astype(np.float64) ** 2))
        table_sigma = sigma / float(partial[-1])
        if (table_sigma * partial[:-1] / partial[1:]).min() >= _LEAST_SMOOTHING:
            return table_sigma, factors
    raise ValueError(f"No decomposition for sigma={sigma}.")


@lru_cache(maxsize=64)
def _table(sigma: float) -> _Table:
    """The cumulative distribution of |x|, with 100 decimal digits.

    e^(−r(k+1)²) = e^(−rk²) · e^(−r(2k+1)): one multiplication leads from a mass to the next, another from factor to
    factor.
    """
    with localcontext() as context:
        context.prec = 100
        rate = Decimal(1) / (2 * Decimal(sigma) * Decimal(sigma))
        last = max(1, math.ceil(_TAIL * sigma))
        mass, factor, step = Decimal(1), (-rate).exp(), (-2 * rate).exp()
        sums = [mass]
        for _ in range(last):
            mass, factor = mass * factor, factor * step
            sums.append(sums[-1] + 2 * mass)
        thresholds = [int((partial / sums[-1] * 2**127).to_integral_value()) for partial in sums]
    thresholds[-1] = 2**127
    # The last entry is never compared: it would not fit, and nothing lies above it.
    high = np.array([threshold >> 64 for threshold in thresholds[:-1]], dtype=np.uint64)
    low = np.array([threshold & (2**64 - 1) for threshold in thresholds[:-1]], dtype=np.uint64)
    starts = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(63 - _GUIDE_BITS)
    guide = np.searchsorted(high, starts, side="left").astype(np.int64)
    return _Table(high, low, guide)


@numba.njit(cache=True, nogil=True)
def _draw(
    words: Words, spare: Words, high: Words, low: Words, guide: Integers, factors: Integers, samples: Integers
) -> None:
    """Inversion: |x| is the number of thresholds at or below the 127-bit uniform; one more bit is the sign.

    The upper 63 bits decide unless they equal a threshold's, which happens with probability below 2⁻⁴⁹: only then
    is a word of `spare` used.
    """
    shift = np.uint64(63 - _GUIDE_BITS)
    used = 0
    position = 0
    for index in range(samples.size):
        value = np.int64(0)
        for factor in factors:
            word = words[position]
            position += 1
            uniform = word >> np.uint64(1)
            magnitude = guide[uniform >> shift]
            while magnitude < high.size and high[magnitude] < uniform:
                magnitude += 1
            if magnitude < high.size and high[magnitude] == uniform:
                rest = spare[used]
                used += 1
                while magnitude < high.size and high[magnitude] == uniform and low[magnitude] <= rest:
                    magnitude += 1
            value += factor * (magnitude if word & np.uint64(1) else -magnitude)
        samples[index] = value
