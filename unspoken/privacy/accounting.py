"""Computes ε of one run, or of many runs together, from their events. The only place that makes a `Guarantee`.

Gaussian events compose exactly: μ² = Σ μ_j² (`privacy.gaussian`). Pure events add up: ε = Σ ε_j. Everything else is
composed numerically as privacy loss distributions (dp-accounting), which errs on the safe side, with room in δ for
rounding errors (`subsampled.inexact`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from unspoken.privacy import gaussian, subsampled
from unspoken.privacy.events import Event, Gaussian, PureLoss, Sampling, Spend, SubsampledGaussian, Unprotected
from unspoken.privacy.guarantee import Guarantee, Trust
from unspoken.privacy.subsampled import Rounds


@dataclass(frozen=True)
class Terms:
    """The parts of a guarantee besides ε, fixed before anything is released."""

    delta: float
    trust: Trust
    assumptions: tuple[str, ...] = ()
    seen: str = "the result"
    """The public output, as a phrase that follows 'sees'"""
    attempts: int = 1
    """The number of times that a party may send its vector for one sum, all counted in the spend"""


def guarantee_of(spend: Spend, terms: Terms, promised: float | None = None) -> Guarantee:
    """The guarantee of a run. If an ε was promised, the guarantee states no more than that, and a larger spend is an
    error."""
    epsilon, delta = epsilon_of(spend, terms.delta), terms.delta
    if promised is not None:
        check_kept(epsilon, promised)
        epsilon = min(epsilon, promised)
    if _all(spend, PureLoss):
        delta = spend.slack
    elif not math.isfinite(epsilon):
        delta = 0.0
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        group=spend.group,
        trust=terms.trust,
        mu=mu_of(spend),
        assumptions=terms.assumptions,
        adjacency=spend.adjacency,
        seen=terms.seen,
        advantage=_advantage(spend),
        slack=spend.slack,
        attempts=terms.attempts,
    )


def guarantee_after(guarantee: Guarantee, spend: Spend) -> Guarantee:
    """The guarantee for the actual releases, which never exceeds the promised one."""
    epsilon = epsilon_of(spend, guarantee.delta)
    check_kept(epsilon, guarantee.epsilon)
    return replace(guarantee, epsilon=min(epsilon, guarantee.epsilon), mu=mu_of(spend))


def check_kept(spent: float, promised: float) -> None:
    """Raise an error if the noise does not keep the promise: better no result than a false promise."""
    if spent > promised * (1.0 + 1e-9):
        raise RuntimeError(f"The noise gives epsilon = {spent:g}, but {promised:g} was promised.")


def epsilon_of(spend: Spend, delta: float, fine: bool = True) -> float:
    """The smallest ε for which (ε, δ) holds for the whole spend, of one run or from `events.together`.

    >>> round(epsilon_of(Spend((Gaussian(0.6), Gaussian(0.8)), group=1), 1e-5), 4)
    4.3772
    """
    if _unprotected(spend):
        return math.inf
    if _all(spend, PureLoss):
        return _pure(spend)
    left = delta - spend.slack
    if left <= 0.0:
        return math.inf
    if (mu := mu_of(spend)) is not None:
        return gaussian.epsilon_of(mu, left)
    if (rounds := _rounds(spend)) is not None:
        return subsampled.epsilon_of(rounds.parts, left, spend.adjacency, rounds.sampling, fine)
    if _hardly_protects(spend):
        return gaussian.epsilon_of(_mu_of_all(spend), left) + _pure(spend)
    left -= subsampled.inexact(_count(spend))
    return _found(spend, fine, left) if left > 0.0 else math.inf


@lru_cache(maxsize=256)
def _found(spend: Spend, fine: bool, delta: float) -> float:
    """ε by dp-accounting, cached because it is slow."""
    return float(_composed(spend, fine).get_epsilon_for_delta(delta))


def mu_of(spend: Spend) -> float | None:
    """μ, which gives the whole trade-off, if all events are Gaussian; else None."""
    if not _all(spend, Gaussian):
        return None
    events = [event for event in spend.events if isinstance(event, Gaussian)]
    return gaussian.compose(event.mu for event in events for _ in range(event.count))


@dataclass(frozen=True)
class _Sampled:
    parts: tuple[Rounds, ...]
    sampling: Sampling


def _rounds(spend: Spend) -> _Sampled | None:
    """The events as subsampled rounds, if all are subsampled in the same way; else None."""
    events = [event for event in spend.events if isinstance(event, SubsampledGaussian)]
    if len(events) != len(spend.events) or len({event.sampling for event in events}) != 1:
        return None
    parts = tuple(Rounds(event.noise_multiplier, event.rate, event.count) for event in events)
    return _Sampled(parts, events[0].sampling)


def _advantage(spend: Spend) -> float | None:
    """δ at ε = 0, the best attacker's advantage over a coin flip, where μ is not known."""
    if mu_of(spend) is not None or _unprotected(spend) or _all(spend, PureLoss):
        return None
    if (rounds := _rounds(spend)) is not None:
        return subsampled.delta_of(rounds.parts, 0.0, spend.adjacency, rounds.sampling)
    if _hardly_protects(spend):
        return 1.0
    found = float(_composed(spend, True).get_delta_for_epsilon(0.0))
    return min(1.0, found + subsampled.inexact(_count(spend)))


def _hardly_protects(spend: Spend) -> bool:
    """Whether one of several kinds of events has so large losses that they are not composed one by one, as in
    `subsampled`."""
    return any(
        (isinstance(event, SubsampledGaussian) and event.noise_multiplier < subsampled.LEAST_NOISE)
        or (isinstance(event, Gaussian) and event.mu > 2.0 / subsampled.LEAST_NOISE)
        for event in spend.events
    )


def _mu_of_all(spend: Spend) -> float:
    """An upper bound of what the Gaussian events amount to, as if none were sampled."""
    found = []
    for event in spend.events:
        match event:
            case Gaussian(mu, count):
                found.append(mu * math.sqrt(count))
            case SubsampledGaussian(noise, rate, _, count) if rate > 0.0:
                found.append(subsampled.mu_of_all(noise, count, spend.adjacency))
    return gaussian.compose(found)


def _pure(spend: Spend) -> float:
    return sum(event.epsilon for event in spend.events if isinstance(event, PureLoss))


def _count(spend: Spend) -> int:
    """The number of all releases that are composed."""
    return sum(event.count if isinstance(event, Gaussian | SubsampledGaussian) else 1 for event in spend.events)


@lru_cache(maxsize=64)
def _composed(spend: Spend, fine: bool) -> Any:
    """The privacy loss distribution of events of several kinds."""
    from dp_accounting.pld import privacy_loss_distribution

    composed = privacy_loss_distribution.identity(subsampled.step_of(fine))
    for event in spend.events:
        composed = composed.compose(_single(event, spend, fine))
    return composed


def _single(event: Event, spend: Spend, fine: bool) -> Any:
    from dp_accounting.pld import common, privacy_loss_distribution

    step = subsampled.step_of(fine)
    match event:
        case Gaussian(0.0):
            return privacy_loss_distribution.identity(step)
        case Gaussian(mu, count):
            one = privacy_loss_distribution.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=step)
            return one.self_compose(count)
        case SubsampledGaussian(noise, rate, sampling, count):
            return subsampled.composed((Rounds(noise, rate, count),), spend.adjacency, sampling, fine)
        case PureLoss(epsilon):
            bound = common.DifferentialPrivacyParameters(epsilon, 0.0)
            return privacy_loss_distribution.from_privacy_parameters(bound, value_discretization_interval=step)
        case Unprotected():
            raise ValueError("Expected events that protect something.")


def _unprotected(spend: Spend) -> bool:
    return any(
        isinstance(event, Unprotected)
        or (isinstance(event, SubsampledGaussian) and event.noise_multiplier == 0.0 and event.rate > 0.0)
        for event in spend.events
    )


def _all(spend: Spend, kind: type) -> bool:
    return bool(spend.events) and all(isinstance(event, kind) for event in spend.events)
