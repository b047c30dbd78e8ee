"""CORAL moves a party's records to where public ones lie."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from unspoken.learners.coral import aligned


def test_mean_and_covariance_become_those_of_the_public_records() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 3))
    public, rows = rng.normal(size=(4000, 3)) @ mixing + 2.0, rng.normal(size=(4000, 3)) * [5.0, 5.0, 8.0]
    moved = aligned(rows, public)
    assert moved.mean(axis=0) == pytest.approx(public.mean(axis=0))
    # The ridge is small beside what the party's records vary.
    assert np.cov(moved.T) == pytest.approx(np.cov(public.T), abs=0.15 * np.trace(np.cov(public.T)))


def test_a_model_of_moved_records_knows_the_public_ones() -> None:
    """Another scanner: features that are stretched and displaced."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 600)
    both = rng.normal(size=(600, 4)) + 4.0 * labels[:, None] * [1.0, 0.0, 0.0, 0.0]
    own, public = both[:300] * [4.0, 0.3, 1.0, 2.0] + [9.0, 0.0, 5.0, 0.0], both[300:]
    shares = [
        LogisticRegression(max_iter=1000).fit(rows, labels[:300]).score(public, labels[300:])
        for rows in (own, aligned(own, public))
    ]
    assert shares[0] < 0.7 < 0.85 < shares[1]


@pytest.mark.parametrize("rows", [np.zeros((1, 3)), np.ones((5, 3)), np.full((2, 3), 1e150)])
@pytest.mark.parametrize("public", [np.zeros((4, 3)), np.eye(3)])
def test_records_that_do_not_vary_are_moved_all_the_same(rows: np.ndarray, public: np.ndarray) -> None:
    moved = aligned(rows, public)
    assert moved.shape == rows.shape
    assert moved == pytest.approx(np.tile(public.mean(axis=0), (len(rows), 1)))
