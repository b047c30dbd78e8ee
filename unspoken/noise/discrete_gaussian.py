"""Sampling of the discrete Gaussian, P(x) ∝ exp(−x²/2σ²) on the integers (Canonne, Kamath & Steinke 2020).

For small σ: a table of 127-bit probabilities, arranged as aliases (Walker 1977): 2^b slots of equal mass, each shared
by at most two values, so that one look-up and one comparison decide. A draw takes 32 random bits (the sign, the slot,
and the first bits of the comparison), and 96 more if these tie, with probability at most 2⁻¹⁸. For large σ: a
combination. With independent x_0, …, x_m from the table's σ₀, x_0 + k_1 x_1 + … + k_m x_m follows the discrete Gaussian
of variance σ₀² (1 + Σ k_j²) (convolution, Micciancio & Walter 2017).

Formal guarantee. Each sample is within total variation distance 2⁻¹¹⁰ of the exact distribution:
- table: every cumulative probability is right to 2⁻¹²⁷, and values beyond 14σ₀ (mass below 2⁻¹⁴⁰) are left out;
  with at most 2¹³ entries that is 2⁻¹¹⁴ a draw, and a sample takes at most seven. Aliases rearrange these multiples of
  2⁻¹²⁷ and round nothing;
- convolution: adding k·x_j to a partial sum of deviation σ' changes each probability by a factor within 1 ±
  4·exp(−2π²s²), s = σ'σ₀/√(σ'² + k²σ₀²). Steps have s ≥ 2.4, that is below 2⁻¹⁶¹. Drawing uses no floating-point
  numbers, so none of their low-order bits can leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unspoken.compiling import compiled
from unspoken.noise.stream import SecretStream
from unspoken.types import Integers, Words

DISTANCE = 2.0**-110
"""The statistical distance of one sample from the exact distribution, counted in δ"""

LARGEST_SIGMA = 2.0**48
"""The largest parameter that is drawn for"""

_TABLE_SIGMA = 585.0
"""The largest σ whose table has 2¹³ slots, which fit the fastest cache"""
_TAIL = 14.0
_LEAST_SMOOTHING = 2.4
_BITS = 127
_POINT = 192
"""Binary places of the masses that a table is made of; sums of 2¹³ of them are right to 2⁻¹⁵⁰"""
_TIES = 64
"""Ties in a chunk for which words are ready; the mean is at most ¼, and more have probability below 2⁻²⁰⁰"""
_CHUNK = 1 << 16


@dataclass(frozen=True)
class _Table:
    """The distribution of |x| in slots of equal mass. Within a slot, places below its threshold mean the slot's own
    number, and places above it mean its alias.

    A threshold's upper bits, as many as fit a draw's first word, are in `upper`; the 96 others in `middle` (32) and
    `lower` (64).
    """

    upper: NDArray[np.uint32]
    alias: NDArray[np.uint16]
    middle: Words
    lower: Words


def sample(sigma: float, count: int, stream: SecretStream) -> Integers:
    """`count` independent samples with parameter `sigma`, up to 2⁴⁸."""
    if not 0.0 < sigma <= LARGEST_SIGMA:
        raise ValueError(f"Expected 0 < sigma <= 2**48, got sigma={sigma}.")
    table_sigma, factors = _decompose(sigma)
    table = _table(table_sigma)
    samples = np.zeros(count, dtype=np.int64)
    for start in range(0, count, _CHUNK):
        part = samples[start : start + _CHUNK]
        for factor in factors:
            words, spare = np.frombuffer(stream.take(4 * part.size), dtype=np.uint32), stream.words(2 * _TIES)
            _add_draws(words, spare, table.upper, table.alias, table.middle, table.lower, factor, part)
    return samples


@lru_cache(maxsize=64)
def _decompose(sigma: float) -> tuple[float, Integers]:
    """σ₀ and factors (1, k_1, …, k_m) with σ = σ₀ √(1 + Σ k_j²), such that every convolution step is smooth enough."""
    if sigma <= _TABLE_SIGMA:
        return sigma, np.array([1], dtype=np.int64)
    for levels in range(1, 9):
        ratio = (sigma / _TABLE_SIGMA) ** (1.0 / levels)
        factors = np.array([math.ceil(ratio**level) for level in range(levels + 1)], dtype=np.int64)
        partial = np.sqrt(np.cumsum(factors.astype(np.float64) ** 2))
        table_sigma = sigma / float(partial[-1])
        if (table_sigma * partial[:-1] / partial[1:]).min() >= _LEAST_SMOOTHING:
            return table_sigma, factors
    raise ValueError(f"No decomposition for sigma={sigma}.")


@lru_cache(maxsize=64)
def _table(sigma: float) -> _Table:
    thresholds, aliases = _aliases(_masses(sigma))
    halves = np.frombuffer(b"".join(threshold.to_bytes(16, "little") for threshold in thresholds), dtype="<u8")
    lower, rest = halves[0::2].copy(), halves[1::2]
    upper, middle = (rest >> np.uint64(32)).astype(np.uint32), rest & np.uint64(2**32 - 1)
    return _Table(upper, np.array(aliases, dtype=np.uint16), middle, lower)


def _masses(sigma: float) -> list[int]:
    """The probabilities of |x| = 0, 1, … in units of 2⁻¹²⁷, by differences of cumulative ones.

    e^(−r(k+1)²) = e^(−rk²) · e^(−r(2k+1)): one multiplication gives the next mass, another the next factor. All are
    whole multiples of 2⁻¹⁹², and each multiplication rounds down.
    """
    with localcontext() as context:
        context.prec = 100
        rate = Decimal(1) / (2 * Decimal(sigma) * Decimal(sigma))
        factor, step = (int((times * rate).exp() * 2**_POINT) for times in (-1, -2))
    mass = partial = 1 << _POINT
    sums = [partial]
    for _ in range(max(1, math.ceil(_TAIL * sigma))):
        mass, factor = mass * factor >> _POINT, factor * step >> _POINT
        partial += 2 * mass
        sums.append(partial)
    # One division for all: 2¹²⁷ over the last sum, with as many places again.
    scale, half = (1 << _BITS + 2 * _POINT) // partial, 1 << 2 * _POINT - 1
    cumulative = [partial * scale + half >> 2 * _POINT for partial in sums[:-1]]
    return [after - before for before, after in pairwise([0, *cumulative, 2**_BITS])]


def _aliases(masses: list[int]) -> tuple[list[int], list[int]]:
    """Slots of equal mass (Vose 1991): the thresholds below which a slot is its own number, and the numbers above.

    >>> _aliases([2**126, 2**125, 2**125]) == ([2**125, 2**125, 2**125, 0], [0, 1, 2, 0])
    True
    """
    slots = 1 << max(1, (len(masses) - 1).bit_length())
    room = 2**_BITS // slots
    left = masses + [0] * (slots - len(masses))
    thresholds, aliases = [room] * slots, list(range(slots))
    small = [slot for slot in range(slots) if left[slot] < room]
    large = [slot for slot in range(slots) if left[slot] > room]
    while small:
        slot, giver = small.pop(), large[-1]
        thresholds[slot], aliases[slot] = left[slot], giver
        left[giver] -= room - left[slot]
        if left[giver] <= room:
            large.pop()
        if left[giver] < room:
            small.append(giver)
    return thresholds, aliases


@compiled
def _add_draws(
    words: NDArray[np.uint32],
    spare: Words,
    upper: NDArray[np.uint32],
    alias: NDArray[np.uint16],
    middle: Words,
    lower: Words,
    factor: int,
    samples: Integers,
) -> None:
    """Add a draw times the factor to each sample; a word holds, from the lowest bit, sign, slot and place in it."""
    one, slots, width = np.uint32(1), np.uint32(upper.size - 1), np.uint32(0)
    while (slots >> width) != 0:
        width += one
    ties = 0
    for index in range(samples.size):
        word = words[index]
        slot, place = (word >> one) & slots, word >> (one + width)
        threshold, other = upper[slot], alias[slot]
        ties += place == threshold
        magnitude = np.int64(slot if place < threshold else other)
        # −magnitude if the sign bit is set, without an unpredictable branch.
        sign = np.int64(word & one)
        samples[index] += factor * ((magnitude ^ -sign) + sign)
    used = 0
    for index in range(samples.size if ties else 0):
        word = words[index]
        slot, place = (word >> one) & slots, word >> (one + width)
        if place == upper[slot]:
            first, second = spare[2 * used] >> np.uint64(32), spare[2 * used + 1]
            used += 1
            if first < middle[slot] or (first == middle[slot] and second < lower[slot]):
                moved = np.int64(slot) - np.int64(alias[slot])
                samples[index] += factor * (-moved if word & one else moved)
