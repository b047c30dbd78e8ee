"""Secret sharing gives the secret back from any threshold of shares, and less says nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unspoken.noise.stream import SecretStream
from unspoken.summation.shamir import PRIME, combine, split, weights_at_zero


@given(data=st.data(), secret=st.binary(min_size=32, max_size=32))
def test_any_threshold_of_shares_gives_the_secret_back(data: st.DataObject, secret: bytes) -> None:
    count = data.draw(st.integers(1, 30))
    threshold = data.draw(st.integers(1, count))
    drawn = data.draw(st.sets(st.integers(1, PRIME - 1), min_size=count, max_size=count))
    points = np.array(sorted(drawn), dtype=np.uint64)
    shares = split([bytes(32), secret], points, threshold, SecretStream())
    chosen = data.draw(st.permutations(range(count)))[:threshold]
    assert combine(shares[chosen, 1], points[chosen]) == secret
    assert combine(shares[chosen, 0], points[chosen]) == bytes(32)


def test_shares_are_the_values_of_a_polynomial_in_exact_arithmetic() -> None:
    """Interpolating threshold shares with Python's integers predicts all the others."""
    points = np.array([1, 5, 77, 1000, PRIME - 1], dtype=np.uint64)
    shares = split([bytes(range(32))], points, 3, SecretStream())[:, 0]
    for symbol in range(shares.shape[1]):
        known = [(int(x), int(y)) for x, y in zip(points[:3], shares[:3, symbol], strict=True)]
        for point, share in zip(points, shares[:, symbol], strict=True):
            value = 0
            for i, (x, y) in enumerate(known):
                for j, (z, _) in enumerate(known):
                    if j != i:
                        y = y * (int(point) - z) * pow(x - z, -1, PRIME) % PRIME
                value += y
            assert value % PRIME == int(share)


def test_fewer_shares_than_the_threshold_look_the_same_for_any_secret() -> None:
    """Threshold − 1 shares of two very different secrets: Kolmogorov–Smirnov; false alarms: 1 in 10,000."""
    points = np.arange(1, 5, dtype=np.uint64)
    stream = SecretStream(bytes(range(32)))
    drawn = [
        np.concatenate([split([secret], points, 4, stream)[:3].ravel() for _ in range(300)])
        for secret in (bytes(32), b"\xff" * 32)
    ]
    assert stats.ks_2samp(*drawn).pvalue > 1e-4
    assert stats.kstest(drawn[0] / PRIME, "uniform").pvalue > 1e-4


def test_weights_give_the_value_at_zero_of_any_polynomial() -> None:
    points = np.array([2, 3, 11], dtype=np.uint64)
    values = [(7 + 5 * int(x) + 9 * int(x) ** 2) % PRIME for x in points]
    weights = weights_at_zero(points)
    assert sum(int(w) * v for w, v in zip(weights, values, strict=True)) % PRIME == 7


@pytest.mark.parametrize(
    ("points", "threshold", "message"),
    [
        ([1, 2, 3], 4, "threshold"),
        ([1, 2, 3], 0, "threshold"),
        ([0, 1], 1, "distinct points"),
        ([4, 4], 2, "distinct points"),
    ],
)
def test_impossible_sharings_are_refused(points: list[int], threshold: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split([bytes(32)], np.array(points, dtype=np.uint64), threshold, SecretStream())
