"""Sums in floating point are off by no more than is said, and by more than nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unspoken.arithmetic import ROWS, floating_point_slack, sum_of_products, sum_of_rows

UNIT = 2.0**-53


def test_a_sum_can_be_off_by_as_much_as_its_terms_are_many() -> None:
    """After a 1, numbers just below half of its last digit are lost one by one, but not after something smaller."""
    lost = np.full(3_999, 0.999 * UNIT)
    one, other = (sum_of_rows(np.repeat(np.append(first, lost)[:, None], 2, axis=1))[0] for first in (1.0, 0.5))
    off = abs((one - other) - 0.5)
    assert off > 1_000 * UNIT
    assert off <= floating_point_slack(4_000) * math.fsum([1.0, *lost])


@pytest.mark.parametrize("count", [10, ROWS, 3 * ROWS + 5])
def test_sums_are_off_by_no_more_than_is_said(count: int) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(count, 2)) * rng.choice([1e-8, 1.0, 1e8], size=(count, 1)) for _ in range(2))
    for column in range(2):
        exact, size = math.fsum(left[:, column]), math.fsum(np.abs(left[:, column]))
        assert abs(sum_of_rows(left)[column] - exact) <= floating_point_slack(count) * size
    products = left[:, 0].astype(np.longdouble) * right[:, 1]
    off = abs(float(sum_of_products(left, right)[0, 1] - products.sum()))
    assert off <= floating_point_slack(count) * float(np.abs(products).sum())


def test_blocks_keep_it_small_for_many_records() -> None:
    assert floating_point_slack(100) == 2 * 116 * UNIT
    assert floating_point_slack(10**9) < 1e-3 * 10**9 * 2 * UNIT
    assert floating_point_slack(10**6, rows=1) == 2 * (10**6 + 16) * UNIT
