"""Sampling of the discrete Laplace distribution: P(x) ∝ exp(−|x|/b) on the integers.

A sample is the difference of two geometric variables, P(k) ∝ exp(−k/b). Their binary digits are independent: digit i is
1 with probability 1/(1 + exp(2^i/b)).

Formal guarantee. Each sample is within total variation distance 2⁻¹¹⁵ of the exact distribution: a digit's probability
is rounded to 2⁻¹²⁷, at most 60 digits are drawn for each of two variables, and digits of probability below 2⁻¹³⁰ are
left out.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.types import Integers

DISTANCE = 2.0**-115
LARGEST_SCALE = 2.0**48
_RAREST = 91
"""exp(−91) < 2⁻¹³⁰"""


def sample(scale: float, count: int, stream: SecretStream) -> Integers:
    """`count` independent samples of scale b, up to 2⁴⁸."""
    if not 0.0 < scale <= LARGEST_SCALE:
        raise ValueError(f"Expected 0 < scale <= 2**48, got scale={scale}.")
    return _geometric(scale, count, stream) - _geometric(scale, count, stream)


def _geometric(scale: float, count: int, stream: SecretStream) -> Integers:
    values = np.zeros(count, dtype=np.int64)
    for digit, threshold in enumerate(_thresholds(scale)):
        high, low = np.uint64(threshold >> 64), np.uint64(threshold & (2**64 - 1))
        # The upper 63 of 127 uniform bits decide, except for one draw in 2⁶³.
        upper, lower = stream.words(count) >> np.uint64(1), stream.words(count)
        ones = (upper < high) | ((upper == high) & (lower < low))
        values += ones.astype(np.int64) << np.int64(digit)
    return values


def _thresholds(scale: float) -> list[int]:
    """2¹²⁷ times the probability of each binary digit, the lowest first."""
    thresholds = []
    with localcontext() as context:
        context.prec = 60
        for digit in range(60):
            exponent = Decimal(2**digit) / Decimal(scale)
            if exponent > _RAREST:
                break
            thresholds.append(int((2**127 / (1 + exponent.exp())).to_integral_value()))
    return thresholds
