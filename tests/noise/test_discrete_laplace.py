"""The sampler against exact probabilities. Keys are fixed: the stated false-alarm rates are those of another key."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from unspoken.noise.discrete_laplace import LARGEST_SCALE, sample
from unspoken.noise.stream import SecretStream

KEY = bytes(range(32))
COUNT = 400_000


def probability(value: np.ndarray, scale: float) -> np.ndarray:
    """P(x) = tanh(1/2b)·exp(−|x|/b)."""
    return np.tanh(0.5 / scale) * np.exp(-np.abs(value) / scale)


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0])
def test_every_value_is_as_frequent_as_it_should_be(scale: float) -> None:
    """A χ² test that fails once in a million times."""
    drawn = sample(scale, COUNT, SecretStream(KEY))
    reach = int(scale * math.log(COUNT / 50))
    values = np.arange(-reach, reach + 1)
    expected = COUNT * probability(values, scale)
    observed = np.array([(drawn == value).sum() for value in values], dtype=float)
    rest = COUNT - expected.sum()
    assert chisquare(np.append(observed, COUNT - observed.sum()), np.append(expected, rest)).pvalue > 1e-6


@pytest.mark.parametrize("scale", [1e4, 12345.678, 2.0**40])
def test_a_wide_distribution_is_the_continuous_one_s(scale: float) -> None:
    """A Kolmogorov–Smirnov test that fails once in a million times; the grid is too fine to be seen by it."""
    drawn = sample(scale, COUNT, SecretStream(KEY))
    assert kstest(drawn / scale, "laplace").pvalue > 1e-6
    # The lowest digit is as good as a coin.
    assert abs((drawn & 1).mean() - 0.5) < 5 * 0.5 / math.sqrt(COUNT)


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0, 1e4])
def test_it_is_symmetric_with_the_right_variance(scale: float) -> None:
    """Each within five of its standard errors: false alarms below one in a million."""
    drawn = sample(scale, COUNT, SecretStream(KEY)).astype(float)
    variance = 1.0 / (2.0 * math.sinh(0.5 / scale) ** 2)
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / COUNT)
    assert abs((drawn > 0).mean() - (drawn < 0).mean()) < 5 / math.sqrt(COUNT)
    # The fourth moment is at most that of a Laplace variable on top of the grid's.
    error = math.sqrt((24 * scale**4 + variance) / COUNT)
    assert drawn.var() == pytest.approx(variance, abs=5 * error)


def test_neighbouring_values_differ_by_the_factor_that_privacy_needs() -> None:
    """P(x)/P(x+1) = exp(1/b) for x ≥ 0, on both sides: within five standard errors."""
    scale = 2.0
    drawn = sample(scale, COUNT, SecretStream(KEY))
    for value in range(6):
        for sign in (1, -1):
            near, far = int((drawn == sign * value).sum()), int((drawn == sign * (value + 1)).sum())
            assert abs(math.log(near / far) - 1 / scale) < 5 * math.sqrt(1 / near + 1 / far)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e-3])
def test_next_to_no_noise_is_none(scale: float) -> None:
    assert not sample(scale, 1000, SecretStream(KEY)).any()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0 * LARGEST_SCALE])
def test_an_impossible_scale_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        sample(scale, 1, SecretStream(KEY))


def test_the_largest_scale_has_room() -> None:
    drawn = sample(LARGEST_SCALE, 10_000, SecretStream(KEY))
    assert np.abs(drawn).max() < 2**60
    assert np.abs(drawn).mean() == pytest.approx(LARGEST_SCALE, rel=0.06)
