"""The nearest records vote: exactly those that scikit-learn finds, and one record moves a ballot by √2/k."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from tacit.learners.neighbours import neighbour_shares


@pytest.mark.parametrize(("records", "neighbours"), [(50, 1), (200, 7), (300, 300)])
def test_the_shares_are_those_of_the_nearest_records(records: int, neighbours: int) -> None:
    rng = np.random.default_rng(0)
    features, queries = rng.normal(size=(records, 5)), rng.normal(size=(80, 5))
    labels = rng.integers(0, 4, records)
    found = neighbour_shares(queries, features, labels, 4, neighbours)
    nearest = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(features).kneighbors(queries)[1]
    expected = np.stack([(labels[nearest] == label).mean(axis=1) for label in range(4)], axis=1)
    assert np.allclose(found, expected)
    assert np.allclose(found.sum(axis=1), 1.0)


def test_a_replaced_record_moves_a_ballot_by_one_neighbour_at_most_and_can() -> None:
    """Records replaced by others near and far, of any label: √2/k is never exceeded, and reached."""
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(300):
        features, labels = rng.normal(size=(12, 2)), rng.integers(0, 3, 12)
        queries = rng.normal(size=(10, 2))
        before = neighbour_shares(queries, features, labels, 3, 4)
        changed, relabelled = features.copy(), labels.copy()
        changed[0], relabelled[0] = queries[0] if rng.uniform() < 0.5 else 100.0, rng.integers(0, 3)
        after = neighbour_shares(queries, changed, relabelled, 3, 4)
        worst = max(worst, float(np.linalg.norm(after - before, axis=1).max()))
    assert worst == pytest.approx(math.sqrt(2.0) / 4)


def test_more_neighbours_than_records_are_refused() -> None:
    with pytest.raises(ValueError, match="neighbours"):
        neighbour_shares(np.zeros((1, 2)), np.zeros((3, 2)), np.zeros(3, dtype=np.int64), 2, 4)
