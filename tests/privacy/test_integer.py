"""Integer noise is at least as private as the continuous Gaussian that the plan counts with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unspoken.privacy import integer
from unspoken.privacy.gaussian import delta_of


def pmf(sigma: float) -> np.ndarray:
    reach = math.ceil(40 * sigma)
    mass = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return mass / mass.sum()


def exact_delta(mass: np.ndarray, shift: int, epsilon: float) -> float:
    """δ(ε) of telling a distribution on the integers from itself, shifted."""
    first = np.concatenate([mass, np.zeros(shift)])
    second = np.concatenate([np.zeros(shift), mass])
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


@pytest.mark.parametrize("sigma", [8.0, 20.0, 100.0])
@pytest.mark.parametrize("shift", [1, 3, 20])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_discrete_noise_is_no_less_private_than_the_continuous_noise_it_is_counted_as(
    sigma: float, shift: int, epsilon: float
) -> None:
    counted = delta_of(shift / integer.continuous_deviation(sigma), epsilon)
    exact = exact_delta(pmf(sigma), shift, epsilon)
    assert exact <= counted + 1e-13
    if sigma == 100.0 and exact > 1e-6:
        assert exact >= 0.98 * counted


@pytest.mark.parametrize("shares", [2, 5, 30])
def test_the_sum_of_shares_is_the_discrete_gaussian_of_the_summed_variance(shares: int) -> None:
    share = integer.LEAST_SHARE
    total = np.array([1.0])
    for _ in range(shares):
        total = np.convolve(total, pmf(share))
    centre = len(total) // 2
    offsets = np.arange(len(total)) - centre
    expected = np.exp(-(offsets**2) / (2 * shares * share**2))
    expected /= expected.sum()
    assert np.abs(total - expected).sum() < 1e-12


def test_integer_noise_is_worth_a_little_less_than_its_own_variance() -> None:
    assert integer.continuous_deviation(123.0) ** 2 == pytest.approx(123.0**2 - 2.5**2)


def test_slack_grows_with_samples_and_epsilon_and_is_negligible_in_use() -> None:
    assert integer.slack(1.0, 2_000) == pytest.approx(2 * integer.slack(1.0, 1_000))
    assert integer.slack(2.0, 1_000) > integer.slack(1.0, 1_000)
    assert integer.slack(3.0, 61_450 * 1_000_000) < 1e-20
