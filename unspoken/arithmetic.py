"""Sums over many records in floating point, and how far off they can be.

A sum of n numbers in double precision, in whatever order, is off by up to n·2⁻⁵³ of the sum of their absolute values
(Higham 2002, section 4.2). Sums of neighbouring data sets may be off in opposite directions, so this adds to their
distance (Casacuberta et al. 2022). Sums in blocks, as here, have a far smaller error for many records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from unspoken.types import Floats, Integers

ROWS = 4096
"""The number of records in a block"""
MOST_POOLED = 10**8
"""The largest number of records that a curator adds up"""
_OTHER = 16
"""Further roundings, in computing and scaling a record's contribution"""


def floating_point_slack(records: int, rows: int = ROWS) -> float:
    """The distance that rounding can add between two sums over records, divided by the sum of the records' norms.

    The sums are taken in blocks of `rows` records.

    >>> floating_point_slack(1_000) == 2 * (1_000 + 16) * 2.0**-53
    True
    """
    steps = min(records, rows + math.ceil(records / rows))
    return 2.0 * (steps + _OTHER) * 2.0**-53


def blocks(count: int) -> Iterator[slice]:
    """Slices of `ROWS` rows that cover `count` rows."""
    for start in range(0, count, ROWS):
        yield slice(start, min(start + ROWS, count))


def rows_of(counts: Integers) -> list[slice]:
    """The rows of each party in a batch that has so many examples of each, in order.

    >>> rows_of(np.array([2, 0, 1]))
    [slice(0, 2, None), slice(2, 2, None), slice(2, 3, None)]
    """
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]


def sum_of_rows(rows: Floats) -> Floats:
    """Σ x_i, in blocks.

    >>> sum_of_rows(np.ones((10_000, 2))).tolist()
    [10000.0, 10000.0]
    """
    total = np.zeros(rows.shape[1:])
    for block in blocks(len(rows)):
        total += rows[block].sum(axis=0)
    return total


def sum_of_products(left: Floats, right: Floats) -> Floats:
    """Σ x_i ⊗ y_i of the rows of two matrices, in blocks.

    >>> sum_of_products(np.ones((10_000, 1)), np.full((10_000, 2), 0.5)).tolist()
    [[5000.0, 5000.0]]
    """
    total = np.zeros((left.shape[1], right.shape[1]))
    for block in blocks(len(left)):
        total += left[block].T @ right[block]
    return total
