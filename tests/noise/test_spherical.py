"""Noise of density exp(−‖b‖/scale): its length and its direction. Keys are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, gamma, kstest

from unspoken.noise.spherical import spherical_laplace
from unspoken.noise.stream import SecretStream

KEY = bytes(range(32))


@pytest.fixture(scope="module", params=[1, 2, 3, 20])
def drawn(request: pytest.FixtureRequest) -> np.ndarray:
    stream = SecretStream(KEY)
    return np.array([spherical_laplace(request.param, 2.5, stream) for _ in range(15_000)])


def test_the_length_has_the_gamma_distribution(drawn: np.ndarray) -> None:
    """A Kolmogorov–Smirnov test that fails once in a million times."""
    lengths = np.linalg.norm(drawn, axis=1)
    assert kstest(lengths, gamma(drawn.shape[1], scale=2.5).cdf).pvalue > 1e-6


def test_the_direction_is_uniform_and_has_nothing_to_do_with_the_length(drawn: np.ndarray) -> None:
    """Two tests of each of a few directions, each failing once in ten million times."""
    dimension = drawn.shape[1]
    lengths = np.linalg.norm(drawn, axis=1)
    directions = drawn / lengths[:, None]
    # A sum of squares that is only nearly round shows along an axis, or between axes.
    for along in (np.eye(dimension)[0], np.ones(dimension), np.arange(1.0, dimension + 1)):
        seen = directions @ (along / np.linalg.norm(along))
        if dimension == 1:
            assert abs((seen > 0).mean() - 0.5) < 5.4 * 0.5 / len(seen) ** 0.5
        else:
            side = (dimension - 1) / 2
            assert kstest((seen + 1) / 2, beta(side, side).cdf).pvalue > 1e-7
        halves = seen[lengths > np.median(lengths)], seen[lengths <= np.median(lengths)]
        assert abs(halves[0].mean() - halves[1].mean()) < 5.4 * 2 * seen.std() / len(seen) ** 0.5
