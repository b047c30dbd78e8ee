"""Typical records come first, all others after them, and nothing is lost or asked about twice."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.learners.typical import typical_first


@pytest.mark.parametrize(("count", "features", "asked"), [(50, 3, 10), (200, 80, 20), (40, 2, 30), (12_000, 2, 1_500)])
def test_every_record_has_one_place(count: int, features: int, asked: int) -> None:
    records = np.random.default_rng(0).normal(size=(count, features))
    order = typical_first(records, asked)
    assert sorted(order.tolist()) == list(range(count))
    assert np.array_equal(order, typical_first(records, asked))


def test_records_that_are_all_alike_are_asked_about_as_they_come() -> None:
    assert typical_first(np.zeros((50, 2)), 10).tolist() == list(range(50))


def test_they_stand_for_more_of_the_others_than_the_first_do() -> None:
    """The mean distance from a record to the nearest one that is asked about."""
    records = np.random.default_rng(0).normal(size=(1_000, 4))

    def far(asked: np.ndarray) -> float:
        return float(np.linalg.norm(records[:, None] - records[asked], axis=2).min(axis=1).mean())

    assert far(typical_first(records, 50)[:50]) < 0.9 * far(np.arange(50))
