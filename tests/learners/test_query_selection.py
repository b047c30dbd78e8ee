"""Typical records are different ones, no more than were wanted, and stand for the others."""

from __future__ import annotations

import numpy as np
import pytest

from unspoken.learners.query_selection import typical_records


@pytest.mark.parametrize(
    ("count", "features", "wanted", "least"),
    [(50, 3, 10, 8), (200, 80, 20, 15), (40, 2, 30, 0), (4_000, 2, 1_500, 900)],
)
def test_they_are_as_many_as_were_wanted_or_fewer(count: int, features: int, wanted: int, least: int) -> None:
    records = np.random.default_rng(0).normal(size=(count, features))
    found = typical_records(records, wanted)
    assert least <= len(found) <= wanted
    assert (np.diff(found) > 0).all()
    assert np.array_equal(found, typical_records(records, wanted))


def test_records_that_are_all_alike_have_one_that_is_typical() -> None:
    assert typical_records(np.zeros((50, 2)), 10).tolist() == [0]


def test_they_stand_for_more_of_the_others_than_the_first_do() -> None:
    """The mean distance from a record to the nearest one that is asked about."""
    records = np.random.default_rng(0).normal(size=(1_000, 4))

    def far(asked: np.ndarray) -> float:
        return float(np.linalg.norm(records[:, None] - records[asked], axis=2).min(axis=1).mean())

    assert far(typical_records(records, 50)) < 0.9 * far(np.arange(50))
