"""The sum "scale", which some functions ask for first: it tells where records lie, and how long they are.

Formal guarantee, for records x scaled by the study's norm, so that |x| ≤ 1. Of Σ(x, |x|²), two records of norms a and b
are at most (a + b)²(1 + (a − b)²) apart, squared, which is largest at a = b = 1: 4. So the squares cost nothing, as
records at opposite ends have the same. A regression's (y, y²), with y in [−1, 1], is likewise at most 4 apart. So the
sensitivity is 2, and √8 with labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from unspoken.arithmetic import sum_of_rows
from unspoken.learners.second_moments import LEAST_LENGTH
from unspoken.methods.base import Total
from unspoken.methods.functions.base import PreliminarySum
from unspoken.methods.parameters import Range
from unspoken.types import Floats

SCALE = "scale"
"""The name of the sum"""


class Scale(NamedTuple):
    """What its total says."""

    mean: Floats
    square: float
    """The mean square of records"""
    about_labels: Floats
    """The means of y and y², if they were asked for"""
    deviation: float
    """The deviation of the noise on each of these numbers"""

    @classmethod
    def of(cls, total: Total, features: int) -> Scale:
        records = max(int(total.exact[0]), 1)
        means = total.noisy / records
        return cls(means[:features], float(means[features]), means[features + 1 :], total.noise_std / records)


def scale_sum(features: int, share: float, with_labels: bool = False) -> PreliminarySum:
    """The sum as it is declared."""
    pairs = 2.0 if with_labels else 1.0
    size = features + (3 if with_labels else 1)
    return PreliminarySum(SCALE, size, 2.0 * math.sqrt(pairs), math.sqrt(2.0 * pairs), share)


def scale_contribution(rows: Floats, labels: Floats | None = None) -> Floats:
    """A party's part, of records of norm at most 1."""
    squares = sum_of_rows(np.einsum("ij,ij->i", rows, rows))
    about_labels = np.empty(0) if labels is None else sum_of_rows(np.stack([labels, labels**2], axis=1))
    return np.concatenate([sum_of_rows(rows), [squares], about_labels])


def reshaping_ranges(features: int) -> tuple[Range, ...]:
    """The numbers of a `Reshaping`. Divided by a length of at least `LEAST_LENGTH`, no record is too long for
    arithmetic."""
    return Range(features, -1.0, 1.0), Range(1, 0.0, 1.0), Range(1, LEAST_LENGTH, 1.0)
