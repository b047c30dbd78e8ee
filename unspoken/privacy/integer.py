"""Integer Gaussian noise, summed from many parties' shares, is as private as continuous Gaussian noise.

Formal guarantee. Let h honest parties each add a discrete Gaussian share of parameter σ_s ≥ 8 to every coordinate,
and let two neighbouring totals differ by an integer vector of L2 norm s. Up to the statistical distance counted by
`slack`, the noisy totals are as hard to tell apart as continuous Gaussians of standard deviation √(hσ_s² − r²), r =
2.5, at distance s:

1. The sum of h shares has probabilities within a factor 1 ± h·4·exp(−π²σ_s²) of the discrete Gaussian with variance
   hσ_s² (Poisson summation; also Kairouz, Liu & Steinke 2021, Theorem 11). With σ_s ≥ 8 that is below h·2⁻⁹⁰⁰.
2. Draw x ~ N(0, σ² − r²), then an integer y with probability ∝ exp(−(y − x)²/2r²). This y is the discrete Gaussian of
   variance σ² up to a factor 1 ± 4·exp(−2π²r²), below 2⁻¹⁷⁰ for r = 2.5. The second step commutes with integer
   shifts, so it is post-processing of x + shift: the noisy total reveals no more than a continuous Gaussian of
   variance σ² − r².
3. Every drawn sample is within the sampler's own distance of its distribution. Distances η cost (1 + e^ε)·η in δ.
"""

from __future__ import annotations

import math

from unspoken.noise.discrete_gaussian import DISTANCE

LEAST_SHARE = 8.0
"""The smallest σ_s, in encoding units, for which point 1 is used"""

LARGEST_PLANNED_EPSILON = 30.0
"""The largest ε that noise is planned for, because e^ε multiplies statistical distances. Larger ε get the noise of this
one."""

LOST_VARIANCE = 2.5**2
"""r², the variance lost in point 2"""


def continuous_deviation(sigma: float) -> float:
    """The deviation of a continuous Gaussian that protects no better than integer noise of parameter `sigma`."""
    return math.sqrt(sigma**2 - LOST_VARIANCE)


def slack(epsilon: float, samples: int) -> float:
    """The cost in δ of `samples` drawn numbers (of all parties and rounds), on top of the continuous Gaussian's."""
    return cost(epsilon, distance(samples))


def cost(epsilon: float, distance: float) -> float:
    """The cost in δ of a statistical distance η at ε: (1 + e^ε)·η, of point 3."""
    return (1.0 + math.exp(epsilon)) * distance


def distance(samples: int) -> float:
    """The statistical distance of so many drawn numbers from the stated distribution."""
    return samples * (DISTANCE + 2.0**-160)
