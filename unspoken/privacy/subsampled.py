"""The privacy of many rounds of a Gaussian sum over a random subset of the records: the accounting of DP-SGD.

Numerical composition of privacy loss distributions, by dp-accounting. The noise multiplier σ is the standard deviation
of the noise over the clipping norm C, the largest contribution of a record.

The discretised losses are upper bounds, but their composition by Fourier transforms rounds either way (`inexact`).

- Poisson sampling at rate q, add-remove: the pair (1−q)N(0, σ²) + qN(1, σ²) against N(0, σ²).
- Poisson sampling, replace: (1−q)N(0, σ²) + qN(1, σ²) against (1−q)N(0, σ²) + qN(−1, σ²).
- Batches of fixed size b out of n without replacement, replace: a record outside the batch makes room for another one,
  which may be its opposite. So the pair is X = (1−q)N(0, σ²) + qN(2, σ²) against Y = N(0, σ²), q = b/n, and data of one
  record +1 among −1s reach it; which of X and Y is the actual data may change from round to round (`_both_ways`). (The
  cross-silo paper takes the Poisson pair for both kinds of batches.) `effective_rate` gives q when colluders know which
  of their own records are in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import rel_entr

from unspoken.privacy import gaussian
from unspoken.privacy.events import Adjacency, Sampling
from unspoken.types import Floats

_FINE, _COARSE = 1e-4, 1e-3
"""Steps of the discretised privacy loss; both give upper bounds"""
_ROUNDED = 8.0 * 2.0**-53
"""The error of δ by double precision arithmetic, for each round"""
_TRUNCATED = 1e-14
"""dp-accounting cuts off a few tails of mass 1e-15 and counts them as unprotected, so there is no finite ε for a
smaller δ"""


LEAST_NOISE = 0.2
"""The least σ of sampled rounds whose losses are composed"""


@dataclass(frozen=True)
class Rounds:
    """`count` rounds with the same noise and sampling rate."""

    noise_multiplier: float
    rate: float
    count: int


def epsilon_of(
    rounds: Sequence[Rounds], delta: float, adjacency: Adjacency, sampling: Sampling, fine: bool = True
) -> float:
    """The smallest ε for which (ε, δ) holds for all rounds together, rounded up by the discretisation.

    >>> round(epsilon_of([Rounds(1.0, 0.008, 1250)], 1e-5, "replace", "poisson"), 2)
    2.51
    """
    if _without_noise(rounds):
        return math.inf
    if (mu := _mu(rounds, adjacency, sampling)) is not None:
        return gaussian.epsilon_of(mu, delta)
    if (left := delta - inexact(_count(rounds))) <= 0.0:
        return math.inf
    return _found(tuple(rounds), adjacency, sampling, fine, left)


@lru_cache(maxsize=1024)
def _found(rounds: tuple[Rounds, ...], adjacency: Adjacency, sampling: Sampling, fine: bool, delta: float) -> float:
    """dp-accounting's ε, for which it goes through the losses one by one."""
    return float(composed(rounds, adjacency, sampling, fine).get_epsilon_for_delta(delta))


def delta_of(rounds: Sequence[Rounds], epsilon: float, adjacency: Adjacency, sampling: Sampling) -> float:
    """The smallest δ for which (ε, δ) holds for all rounds together, rounded up likewise."""
    if _without_noise(rounds):
        return 1.0
    if (mu := _mu(rounds, adjacency, sampling)) is not None:
        return gaussian.delta_of(mu, epsilon)
    found = float(composed(tuple(rounds), adjacency, sampling, True).get_delta_for_epsilon(epsilon))
    return min(1.0, found + inexact(_count(rounds)))


def inexact(count: int) -> float:
    """A bound on the rounding error of the computed δ of so many rounds: δ may be too small by this much.

    A round multiplies the transform of the losses, each time with a relative error of some 2⁻⁵³. For T rounds the
    masses' errors add up to at most √n·‖p‖·T·2⁻⁵³ for n masses p, where √n·‖p‖ is about 2, since dp-accounting cuts
    off what lies beyond a few widths. (Rounds on all records, which have an exact δ, are off by up to half of
    T·2⁻⁵³.)

    >>> inexact(1000) < 1e-12
    True
    """
    return _ROUNDED * count


def least_delta(count: int) -> float:
    """The smallest δ at which so many rounds can have a finite ε, given enough noise."""
    return _TRUNCATED + 2.0 * inexact(count)


@lru_cache(maxsize=256)
def noise_multiplier_for(
    epsilon: float, delta: float, rate: float, count: int, adjacency: Adjacency, sampling: Sampling
) -> float:
    """The smallest σ for a wanted (ε, δ), by the coarse discretisation, which errs on the safe side."""

    def excess(logarithm: float) -> float:
        return epsilon_of([Rounds(math.exp(logarithm), rate, count)], delta, adjacency, sampling, False) - epsilon

    low = high = 0.0
    while excess(high) > 0.0:
        low, high = high, high + 0.7
        if high > _LARGEST:
            raise ValueError(
                f"Expected an epsilon and delta that some noise reaches, got epsilon={epsilon}, delta={delta}."
            )
    while low == 0.0 and high > -_LARGEST:
        # Small noise takes long to account for, so go down in small steps.
        if excess(high - 0.2) > 0.0:
            low = high - 0.2
            break
        high -= 0.2
    root = float(brentq(excess, low, high, xtol=1e-4))
    while excess(root) > 0.0:
        root += 1e-4
    return math.exp(root)


_LARGEST = math.log(1e9)


def effective_rate(batch: int, records: int, known: int, slack: float) -> float:
    """The sampling rate of honest records in batches without replacement, except with probability `slack`.

    Colluders who hold `known` of the records know how many of the `batch` are theirs; the rest come from the n − known
    honest records. Their number is hypergeometric and exceeds m with probability at most `slack`, so the rate is
    m/(n − known). (Cross-silo, Section 3.4.1.)

    >>> effective_rate(100, 1000, 0, 1e-6)
    0.1
    """
    from scipy.stats import hypergeom  # the import takes half a second, and most studies do not need it

    honest = records - known
    if honest < 1:
        raise ValueError(f"Expected records > known, got records={records}, known={known}.")
    largest = int(hypergeom.isf(slack, records, honest, batch)) if slack > 0.0 else min(batch, honest)
    # The inverse tail is inexact for tiny probabilities.
    while slack > 0.0 and largest < min(batch, honest) and hypergeom.sf(largest, records, honest, batch) > slack:
        largest += 1
    return min(largest, batch, honest) / honest


def largest_rate(rate: float, honest: int, slack: float) -> float:
    """The largest share of honest records in a batch of the share `rate` of all, except with probability `slack`.

    It holds for at least `honest` honest records and any number of others: P[share ≥ r] ≤ exp(−h·KL(r ‖ rate)) for
    Poisson sampling, and sampling without replacement deviates no more (Hoeffding 1963, Theorems 1 and 4). Where all
    numbers are known, `effective_rate` is exact.

    >>> round(largest_rate(0.1, 1000, 1e-9), 3)
    0.166
    """
    low, high = rate, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if honest * _divergence(middle, rate) >= -math.log(slack) else (middle, high)
    return high


def _divergence(one: float, other: float) -> float:
    """KL divergence of Bernoulli variables: r·log(r/q) + (1 − r)·log((1 − r)/(1 − q))."""
    return float(rel_entr(one, other) + rel_entr(1.0 - one, 1.0 - other))


def _count(rounds: Sequence[Rounds]) -> int:
    return sum(part.count for part in rounds)


def _without_noise(rounds: Sequence[Rounds]) -> bool:
    return any(part.noise_multiplier == 0.0 and part.rate > 0.0 for part in rounds)


def _mu(rounds: Sequence[Rounds], adjacency: Adjacency, sampling: Sampling) -> float | None:
    """μ, if every round uses all records or none, so that nothing is random but the noise; else None.

    Also an upper bound, as if batches were all records, where some round has hardly any noise: its losses, thousands of
    them at σ = 0.01, would take gigabytes, for an ε that promises nothing.
    """
    _check(adjacency, sampling)
    sampled = [part for part in rounds if 0.0 < part.rate < 1.0]
    if sampled and min(part.noise_multiplier for part in sampled) >= LEAST_NOISE:
        return None
    return gaussian.compose(mu_of_all(part.noise_multiplier, part.count, adjacency) for part in rounds if part.rate)


def mu_of_all(noise_multiplier: float, count: int, adjacency: Adjacency) -> float:
    """μ of rounds on all records. Sampled rounds lose no more: the hockey-stick divergence is jointly convex."""
    return (1.0 if adjacency == "add-remove" else 2.0) * math.sqrt(count) / noise_multiplier


def _check(adjacency: Adjacency, sampling: Sampling) -> None:
    if sampling == "without-replacement" and adjacency != "replace":
        raise ValueError("Expected adjacency='replace' for batches without replacement.")


def step_of(fine: bool) -> float:
    """The step of the discretised privacy loss."""
    return _FINE if fine else _COARSE


@lru_cache(maxsize=256)
def composed(rounds: tuple[Rounds, ...], adjacency: Adjacency, sampling: Sampling, fine: bool) -> Any:
    """The privacy loss distribution (dp-accounting's) of all rounds together."""
    from dp_accounting.pld import privacy_loss_distribution

    _check(adjacency, sampling)
    step = step_of(fine)
    whole = None
    for part in rounds:
        if part.rate > 0.0:
            single = (
                _both_ways(part.noise_multiplier, part.rate, step)
                if sampling == "without-replacement"
                else _poisson(part.noise_multiplier, part.rate, step, adjacency)
            )
            several = single if part.count == 1 else single.self_compose(part.count)
            whole = several if whole is None else whole.compose(several)
    return privacy_loss_distribution.identity(step) if whole is None else whole


def _poisson(noise: float, rate: float, step: float, adjacency: Adjacency) -> Any:
    """One round on a Poisson batch.

    The same as dp-accounting's `from_gaussian_mechanism`, which computes the grid of losses one by one and is slower.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    def one_way(kind: AdjacencyType) -> Any:
        pair = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=kind)
        bounds = pair.connect_dots_bounds()
        first, last = math.floor(bounds.epsilon_lower / step), math.ceil(bounds.epsilon_upper / step)
        losses = step * np.arange(first, last + 1)
        # dp-accounting's outcomes have the larger losses the smaller they are.
        outcomes = _CUTOFFS[kind.name](noise, rate, losses)
        deltas = pair.mu_upper_cdf(outcomes) - np.exp(losses + pair.mu_lower_log_cdf(outcomes))
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, first, last, np.clip(deltas, 0.0, 1.0))

    if adjacency == "replace":
        return privacy_loss_distribution.PrivacyLossDistribution(one_way(AdjacencyType.REPLACE))
    return privacy_loss_distribution.PrivacyLossDistribution(
        one_way(AdjacencyType.REMOVE), one_way(AdjacencyType.ADD) if rate < 1.0 else None
    )


def _unsampled(losses: Floats, rate: float) -> Floats:
    """The loss of N(1, σ²) against N(0, σ²) where (1−q)N(0, σ²) + qN(1, σ²) has the given one: log(1 + (e^l − 1)/q).

    Losses below log(1 − q) are nowhere: −∞.
    """
    with np.errstate(divide="ignore"):
        above = np.maximum(losses, 0.0)
        positive = np.logaddexp(0.0, above + np.log(-np.expm1(-above)) - math.log(rate))
        return np.where(losses > 0.0, positive, np.log1p(np.maximum(np.expm1(np.minimum(losses, 0.0)) / rate, -1.0)))


def _cutoffs_of_removal(noise: float, rate: float, losses: Floats) -> Floats:
    """The points at which (1−q)N(0, σ²) + qN(−1, σ²) against N(0, σ²) has these losses."""
    return -0.5 - noise**2 * _unsampled(losses, rate)


def _cutoffs_of_replacement(noise: float, rate: float, losses: Floats) -> Floats:
    """The points at which (1−q)N(0, σ²) + qN(−1, σ²) against (1−q)N(0, σ²) + qN(1, σ²) has these losses.

    With a = e^(1/2σ²)·(1−q)/q: x = −σ²·(l/2 + asinh(a·sinh(l/2))), the latter from its logarithm, which may be large.
    """
    halves = np.abs(losses) / 2.0
    with np.errstate(divide="ignore"):
        scale = 0.5 / noise**2 + np.log1p(-rate) - math.log(rate)
        logarithms = scale + halves + np.log(-np.expm1(-2.0 * halves) / 2.0)
    inverse: Floats = np.logaddexp(np.logaddexp(0.0, 2.0 * logarithms) / 2.0, logarithms)
    return -(noise**2) * np.sign(losses) * (halves + inverse)


_CUTOFFS: dict[str, Callable[[float, float, Floats], Floats]] = {
    "REMOVE": _cutoffs_of_removal,
    "ADD": lambda noise, rate, losses: -_cutoffs_of_removal(noise, rate, -losses),
    "REPLACE": _cutoffs_of_replacement,
}


def _both_ways(noise: float, rate: float, step: float) -> Any:
    """One round on a batch without replacement.

    The pair dominates (X, Y) and (Y, X) for every α, so it also holds if one round's output decides which of them comes
    next (Zhu, Dong & Wang 2022).

    For α ≥ 1 (X, Y) is the worse, with H(α) = q·δ(log(1 + (α − 1)/q)), δ the Gaussian's for sensitivity 2 (Balle,
    Barthe & Gaboardi 2018). For α < 1 it is (Y, X), with 1 − α + α·H(1/α). So the losses l > 0 of (X, Y) keep their
    masses p, the mass p·e^(−l) goes to −l, and the rest to 0: no smaller pair dominates both.

    H is exact on a grid of losses and linear in α in between. As H is convex, that is an upper bound (Doroshenko et al.
    2022), and so is its mirror image, linear on the mirrored grid. The rest is not negative, as the steps at ±1 see at
    most P[X > 1] + P[Y > 1] = q + 2(1 − q)Φ(−1/σ) ≤ 1.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    mu = 2.0 / noise
    # Beyond this loss the mass of X is below q·Φ(−10), and counted as unprotected.
    last = mu * mu / 2.0 + 10.0 * mu
    last += math.log(rate + (1.0 - rate) * math.exp(-last))
    losses: Floats = step * np.arange(max(1, math.ceil(last / step)) + 1, dtype=np.float64)
    deltas = np.minimum.accumulate(rate * gaussian.deltas_of(mu, _unsampled(losses, rate)))
    differences = np.diff(deltas, append=deltas[-1])
    masses = np.maximum(0.0, (differences[1:] - math.exp(step) * differences[:-1]) / math.expm1(step))
    mirrored = masses * np.exp(-losses[1:])
    rest = max(0.0, 1.0 - deltas[-1] - masses.sum() - mirrored.sum())
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(
            step, -len(masses), np.concatenate([mirrored[::-1], [rest], masses]), float(deltas[-1]), True
        )
    )
