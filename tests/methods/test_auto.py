"""The function "auto" for a regression: how far a record moves its totals, whatever a request says."""

from __future__ import annotations

import numpy as np
import pytest

from factories import make
from unspoken.methods.functions.auto import AutoRegression
from unspoken.methods.functions.method import function_for
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.workloads import Query


def regression() -> AutoRegression:
    agreed = make(
        task="regression",
        parties={"count": 6, "records": 20, "max_records": 20},
        method={"name": "moments", "function": "auto", "steps": 2},
        epsilon=8.0,
    )
    workload = function_for(agreed, agreed.options("method", FunctionOptions))
    assert isinstance(workload, AutoRegression)
    return workload


def test_a_record_and_its_label_move_the_first_total_as_far_as_is_stated() -> None:
    """Both to their opposites: by 2 each, so by √8."""
    workload, record = regression(), np.eye(4)[:1]
    one, other = (workload.preliminary_of(Query("scale"), sign * record, np.array([sign])) for sign in (1.0, -1.0))
    (stated,) = (first.sensitivity for first in workload.preliminary if first.name == "scale")
    assert np.linalg.norm(one - other) == pytest.approx(stated)


def test_no_record_is_longer_than_the_clip_in_a_step_of_a_regression() -> None:
    """The scale of the labels may be tiny, and the weights huge: residuals are clipped after them."""
    workload = regression()
    ranges = workload.parameters("function", 0).ranges
    low, high = (
        np.repeat([getattr(part, end) for part in ranges], [part.size for part in ranges]) for end in ("low", "high")
    )
    longest = 0.0
    for number in range(20):
        chosen = np.random.default_rng(number).integers(2, size=len(low))
        for weighed in (0.0, 1.0):
            numbers = np.where(chosen, low, high)
            numbers[-workload.dimension :] *= weighed
            for label in (-1.0, 1.0):
                moved = np.linalg.norm(workload.of(np.eye(4)[:1], np.array([label]), numbers))
                longest = max(longest, float(moved))
    assert longest == pytest.approx(workload.rule.clip, rel=1e-9)
