"""Batches of fixed size against an adversary that turns the direction of the change whenever that helps it.

The worst data is one record +1 among records −1, for which a batch gives X = (1−q)N(0, σ²) + qN(2, σ²) but for a
shift, and Y = N(0, σ²) if that record is −1, too. In each round the adversary decides which of two neighbouring data
sets has the +1. Everything here is computed by numpy and scipy alone, but for the former accountant, which is that of
Poisson batches for the one direction that is the worse in a single round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import norm

from unspoken.privacy import gaussian
from unspoken.privacy.subsampled import Adjacency, Rounds, Sampling, _both_ways, composed, delta_of, epsilon_of
from unspoken.types import Flags, Floats

KIND: tuple[Adjacency, Sampling] = ("replace", "without-replacement")


def former_delta(sigma: float, rate: float, count: int, epsilon: float) -> float:
    """δ as if (X, Y) came in all rounds, or (Y, X) did."""
    return delta_of([Rounds(sigma / 2.0, rate, count)], epsilon, "add-remove", "poisson")


def former_epsilon(sigma: float, rate: float, count: int, delta: float) -> float:
    return epsilon_of([Rounds(sigma / 2.0, rate, count)], delta, "add-remove", "poisson")


def loss_of(x: Floats, sigma: float, rate: float) -> Floats:
    return np.asarray(np.log1p(rate * np.expm1(2.0 * (x - 1.0) / sigma**2)))


class Adversary:
    """Chooses the direction of each round by the privacy loss so far, so as to make δ(ε) as large as it can.

    Backward induction on a grid of losses: its value is E[max(0, 1 − e^(ε − loss))] at the end. Losses are rounded down
    in every round, and what leaves the grid is worth no more than its edge, so `delta` is never above the true δ.
    """

    def __init__(self, sigmas: Sequence[float], rate: float, epsilon: float, step: float = 5e-4, span: float = 8.0):
        self.step, self.half = step, math.ceil((span + epsilon) / step)
        losses = step * np.arange(-self.half, self.half + 1)
        value = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))
        self.turned: list[Flags] = []
        """For each round, and each loss so far: is (Y, X) the better?"""
        for sigma in reversed(sigmas):
            lowest, ahead, turned = self._masses(sigma, rate)
            room = len(ahead) + abs(lowest) + 2
            padded = np.concatenate([np.zeros(room), value, np.full(room, value[-1])])
            here = np.arange(len(value)) + room
            # Under (X, Y) a loss rises by lowest + i; under (Y, X) it falls by at most lowest + i + 1.
            first = fftconvolve(padded, ahead[::-1])[here + lowest + len(ahead) - 1]
            second = fftconvolve(padded, turned)[here - lowest - 1]
            self.turned.insert(0, second > first)
            value = np.maximum(0.0, np.maximum(first, second))
        self.delta = float(value[self.half])

    def _masses(self, sigma: float, rate: float) -> tuple[int, Floats, Floats]:
        """The masses of loss(x) between grid points, under X and under Y."""
        lowest = math.floor(math.log1p(-rate) / self.step)
        highest = math.ceil(float(loss_of(np.array(2.0 + 9.0 * sigma), sigma, rate)) / self.step)
        edges = np.expm1(self.step * np.arange(lowest, highest + 1)) / rate
        x = np.full(len(edges), -np.inf)
        x[edges > -1.0] = 1.0 + sigma**2 / 2.0 * np.log1p(edges[edges > -1.0])
        under_y = norm.cdf(x / sigma)
        return lowest, np.diff((1.0 - rate) * under_y + rate * norm.cdf((x - 2.0) / sigma)), np.diff(under_y)

    def turns(self, turn: int, losses: Floats) -> Flags:
        places = np.clip(np.floor(losses / self.step).astype(int) + self.half, 0, 2 * self.half)
        return self.turned[turn][places]


SETTINGS = [(3.0, 0.5, 10), *(pytest.param(2.0, *more, marks=pytest.mark.long) for more in ((0.2, 20), (0.05, 40)))]


@pytest.mark.parametrize(("sigma", "rate", "count"), SETTINGS)
def test_an_adversary_that_turns_adaptively_stays_within_the_stated_delta_and_beats_the_former_one(
    sigma: float, rate: float, count: int
) -> None:
    epsilon = former_epsilon(sigma, rate, count, 1e-5)
    reached = Adversary([sigma] * count, rate, epsilon, 2e-4).delta
    stated = delta_of([Rounds(sigma, rate, count)], epsilon, *KIND)
    assert 1.02e-5 < reached <= stated < 2.5 * reached
    assert epsilon_of([Rounds(sigma, rate, count)], reached, *KIND) >= epsilon


@pytest.mark.parametrize(("sigma", "rate", "count"), [*SETTINGS, (1.5, 0.3, 10)])
def test_the_stated_advantage_holds_for_an_adversary_that_turns_adaptively(
    sigma: float, rate: float, count: int
) -> None:
    reached = Adversary([sigma] * count, rate, 0.0).delta
    stated = delta_of([Rounds(sigma, rate, count)], 0.0, *KIND)
    assert 1.03 * former_delta(sigma, rate, count, 0.0) < reached <= stated < 1.25 * reached


@pytest.mark.long
def test_rounds_with_different_noise_hold_against_an_adversary_that_turns_adaptively() -> None:
    rate, noises = 0.2, [2.0] * 6 + [3.0] * 8 + [1.5] * 2
    rounds = [Rounds(2.0, rate, 6), Rounds(3.0, rate, 8), Rounds(1.5, rate, 2)]
    for epsilon in (0.0, 1.0, 4.0):
        reached = Adversary(noises, rate, epsilon).delta
        stated = delta_of(rounds, epsilon, *KIND)
        assert reached <= stated < 1.6 * reached
        assert delta_of(rounds[::-1], epsilon, *KIND) == pytest.approx(stated, rel=1e-9)


def test_an_attack_on_real_batches_of_the_worst_records_stays_within_the_stated_advantage() -> None:
    """200,000 runs on each of two neighbouring data sets, every batch drawn from the records. The advantage that is
    found has a deviation of 0.0016 at most, and is 0.05 below what is stated and 0.02 above what was stated formerly:
    a false alarm is below 1e-20."""
    records, batch, sigma, count, runs = 10, 2, 2.0, 20, 200_000
    rate = batch / records
    adversary = Adversary([sigma] * count, rate, 0.0)
    source = np.random.default_rng(0)
    right = []
    for has_it_first in (True, False):
        losses = np.zeros(runs)
        for turn in range(count):
            turned = adversary.turns(turn, losses)
            first = np.where(turned != has_it_first, 1.0, -1.0)  # all other records are −1
            one = source.integers(records, size=runs)
            other = (one + source.integers(1, records, size=runs)) % records
            total = np.where(one == 0, first, -1.0) + np.where(other == 0, first, -1.0)
            total += sigma * source.standard_normal(runs)
            losses += np.where(turned, -1.0, 1.0) * loss_of(total + batch, sigma, rate)
        right.append(float((losses > 0.0).mean()))
    found = right[0] - right[1]
    assert former_delta(sigma, rate, count, 0.0) + 0.015 < found
    assert found < delta_of([Rounds(sigma, rate, count)], 0.0, *KIND) - 0.03


@lru_cache(maxsize=1)
def densities(sigma: float, rate: float) -> tuple[Floats, Floats, float]:
    """X's and Y's on a fine grid, and its step."""
    at = np.linspace(-10.0 * sigma, 10.0 * sigma + 2.0, 400_001)
    y = norm.pdf(at, 0.0, sigma)
    return (1.0 - rate) * y + rate * norm.pdf(at, 2.0, sigma), y, float(at[1] - at[0])


def exact_delta(sigma: float, rate: float, epsilon: float) -> float:
    """∫ max(0, p − e^ε q) for (X, Y) or (Y, X), whichever is more."""
    x, y, step = densities(sigma, rate)
    excesses = (np.maximum(0.0, p - math.exp(epsilon) * q).sum() for p, q in ((x, y), (y, x)))
    return float(max(excesses) * step)


@pytest.mark.parametrize("sigma", [0.7, 2.0, 5.0])
@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_one_round_is_the_worse_of_both_directions_at_every_epsilon(sigma: float, rate: float) -> None:
    for epsilon in (-1.5, -0.5, -0.1, 0.0, 0.1, 0.5, 1.5):
        stated = delta_of([Rounds(sigma, rate, 1)], epsilon, *KIND)
        assert stated == pytest.approx(exact_delta(sigma, rate, epsilon), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("sigma", "rate"), [pytest.param(0.7, 0.02, marks=pytest.mark.long), (2.0, 0.4), (5.0, 0.9), (40.0, 0.1)]
)
def test_a_coarse_grid_errs_on_the_safe_side(sigma: float, rate: float) -> None:
    epsilons = np.linspace(-1.0, 1.0, 11) * min(1.0, 4.0 * rate / sigma)
    exact = [exact_delta(sigma, rate, epsilon) for epsilon in epsilons]
    of_three = _both_ways(sigma, rate, 1e-4).self_compose(3).get_epsilon_for_delta(1e-3)
    for step in (1e-3, 0.03, 0.4):
        found = _both_ways(sigma, rate, step)
        for epsilon, delta in zip(epsilons, exact, strict=True):
            assert found.get_delta_for_epsilon(epsilon) >= delta - 1e-9
        assert found.self_compose(3).get_epsilon_for_delta(1e-3) >= of_three
        assert found.get_delta_for_epsilon(-700.0) == pytest.approx(1.0, abs=1e-12)  # the masses add up to 1


@pytest.mark.parametrize("count", [1, 7])
def test_batches_of_all_records_are_the_gaussian_of_sensitivity_two(count: int) -> None:
    """Exactly, and by the grid of losses up to its step."""
    rounds = (Rounds(4.0, 1.0, count),)
    for epsilon in (0.0, 0.5, 2.0):
        expected = gaussian.delta_of(2.0 * math.sqrt(count) / 4.0, epsilon)
        assert delta_of(rounds, epsilon, *KIND) == pytest.approx(expected, rel=1e-12)
        on_a_grid = composed(rounds, *KIND, True).get_delta_for_epsilon(epsilon)
        assert on_a_grid == pytest.approx(expected, rel=1e-4, abs=1e-12)


def test_rounds_without_noise_promise_nothing_and_empty_batches_cost_nothing() -> None:
    assert epsilon_of([Rounds(0.0, 0.1, 1)], 1e-5, *KIND) == math.inf
    assert delta_of([Rounds(0.0, 0.1, 1)], 3.0, *KIND) == 1.0
    assert epsilon_of([Rounds(1.0, 0.0, 5)], 1e-5, *KIND) == 0.0
