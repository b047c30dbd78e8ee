"""The exact privacy of the Gaussian mechanism (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022).

A release with L2 sensitivity s and Gaussian noise of standard deviation σ is as private as telling N(0, 1) from
N(μ, 1) is hard, μ = s/σ. Everything else follows from μ: the trade-off δ(ε), composition, calibration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from unspoken.types import Floats


def delta_of(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), the smallest δ for which (ε, δ) holds.

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    return float(deltas_of(mu, np.array(epsilon)))


def deltas_of(mu: float, epsilons: Floats) -> Floats:
    """`delta_of` for many ε at once."""
    if mu == 0.0:
        return np.zeros_like(epsilons)
    # For large ε the two terms are nearly equal, so they are computed as logarithms.
    first = log_ndtr(mu / 2.0 - epsilons / mu)
    second = epsilons + log_ndtr(-mu / 2.0 - epsilons / mu)
    with np.errstate(invalid="ignore"):
        return np.where(second < first, np.exp(first) * -np.expm1(second - first), 0.0)


@lru_cache(maxsize=4096)
def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε for which (ε, δ) holds.

    >>> round(epsilon_of(1.0, 1e-5), 4)
    4.3772
    """
    if mu == 0.0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    # δ(ε) is below the tail Φ(μ/2 − ε/μ), which is below δ from here on.
    upper = mu * (mu / 2.0 + math.sqrt(2.0 * math.log(1.0 / delta)))
    return _root(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, upper)


@lru_cache(maxsize=4096)
def mu_for(epsilon: float, delta: float) -> float:
    """The largest μ for which (ε, δ) holds: noise of standard deviation s/μ is enough for sensitivity s.

    >>> round(mu_for(1.0, 1e-5), 6)
    0.268051
    """
    if not (epsilon >= 0.0 and 0.0 < delta < 1.0):
        raise ValueError(f"Expected epsilon >= 0 and 0 < delta < 1, got epsilon={epsilon}, delta={delta}.")
    upper = 1.0
    while delta_of(upper, epsilon) < delta:
        upper *= 2.0
    mu = _root(lambda mu: delta_of(mu, epsilon) - delta, 0.0, upper)
    # Root finding may end on either side, but only the safe side keeps the promise.
    while delta_of(mu, epsilon) > delta:
        mu *= 1.0 - 1e-12
    return mu


def compose(mus: Iterable[float]) -> float:
    """μ of several releases of the same data: μ² = Σ μ_j².

    >>> compose([3.0, 4.0])
    5.0
    """
    return math.hypot(*mus)


def advantage(mu: float) -> float:
    """The best attacker's advantage over a coin flip in telling two neighbouring data sets apart: 2Φ(μ/2) − 1."""
    return 2.0 * float(ndtr(mu / 2.0)) - 1.0


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-300, rtol=1e-14, maxiter=500))
