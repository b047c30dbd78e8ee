"""Bounded vectors: never longer than the study's norm, and a matter of the study and the record alone."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unspoken.data.bounding import clip_rows, indicate, scale_column, scale_labels, unscale_labels
from unspoken.data.tables import Table
from unspoken.study import Column, DataSection, StudyError, make_study
from unspoken.study.columns import SMALLEST_RANGE
from unspoken.types import Floats

FINITE = st.floats(allow_nan=False, allow_infinity=False)
MATRICES = arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.floats(min_value=-1e307, max_value=1e307)
)
NORMS = st.floats(1e-6, 1e6)


def section(width: int, norm: float, intercept: bool) -> DataSection:
    return DataSection(features=width, classes=2, norm=norm, intercept=intercept)


def norms(rows: Floats) -> Floats:
    """L2 norms that do not overflow."""
    return np.array([np.hypot.reduce(row) for row in rows])


@given(MATRICES, NORMS, st.booleans())
@example(np.array([[1e200, -1e200], [1.7e308, 1.7e308], [1e-300, 0.0]]), 2.0, True)
def test_no_row_is_longer_than_the_norm_constant_included(rows: Floats, norm: float, intercept: bool) -> None:
    bounded = clip_rows(rows, section(rows.shape[1], norm, intercept))
    assert bounded.shape == (len(rows), rows.shape[1] + intercept)
    assert np.isfinite(bounded).all()
    assert (norms(bounded) <= norm * (1.0 + 1e-12)).all()


@given(MATRICES, NORMS, st.booleans())
@example(np.array([[1e200, -1e200], [0.3, 0.4]]), 0.5, False)
def test_rows_within_the_norm_are_unchanged_and_others_keep_their_direction(
    rows: Floats, norm: float, intercept: bool
) -> None:
    bounded = clip_rows(rows, section(rows.shape[1], norm, intercept))
    whole = np.column_stack([rows, np.ones(len(rows))]) if intercept else rows
    lengths = norms(whole)
    inside = lengths <= norm * (1.0 - 1e-12)
    np.testing.assert_array_equal(bounded[inside], whole[inside])
    for row, clipped, length in zip(whole[~inside], bounded[~inside], lengths[~inside], strict=True):
        np.testing.assert_allclose(clipped / norm, row / length, rtol=1e-12, atol=1e-300)


@given(MATRICES, NORMS, st.booleans())
@example(np.array([[1e200, 1.0], [0.1, 0.3], [3.0, 4.0]]), 0.3, True)
def test_a_row_is_bounded_the_same_alone_and_among_others(rows: Floats, norm: float, intercept: bool) -> None:
    data = section(rows.shape[1], norm, intercept)
    alone = np.concatenate([clip_rows(rows[[at]], data) for at in range(len(rows))])
    np.testing.assert_array_equal(clip_rows(rows, data), alone)


@given(MATRICES)
def test_bounding_leaves_what_it_was_given_alone(rows: Floats) -> None:
    before = rows.copy()
    clip_rows(rows, section(rows.shape[1], 0.5, False))
    np.testing.assert_array_equal(rows, before)


BOUNDS = st.tuples(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100)).filter(
    lambda pair: pair[1] - pair[0] >= SMALLEST_RANGE
)


@given(arrays(np.float64, st.integers(1, 20), elements=FINITE), BOUNDS)
def test_numbers_outside_the_bounds_are_moved_to_the_nearer_one(values: Floats, bounds: tuple[float, float]) -> None:
    column = Column(min=bounds[0], max=bounds[1])
    scaled = scale_column(values, column)
    np.testing.assert_array_equal(scaled, scale_column(np.clip(values, *bounds), column))
    assert (scaled[values <= bounds[0]] == -1.0).all()
    assert (scaled[values >= bounds[1]] == 1.0).all()
    assert (np.abs(scaled) <= 1.0).all()


@given(BOUNDS)
def test_scaling_keeps_the_order_of_numbers(bounds: tuple[float, float]) -> None:
    values = np.linspace(*bounds, 20)
    assert (np.diff(scale_column(values, Column(min=bounds[0], max=bounds[1]))) >= 0.0).all()


@given(arrays(np.float64, st.integers(1, 20), elements=FINITE), BOUNDS)
def test_labels_never_leave_minus_1_to_1_and_reach_both(values: Floats, bounds: tuple[float, float]) -> None:
    scaled = scale_labels(values, DataSection(features=1, label_bounds=bounds))
    assert (np.abs(scaled) <= 1.0).all()
    assert (scaled[values <= bounds[0]] == -1.0).all()
    assert (scaled[values >= bounds[1]] == 1.0).all()


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(0.0, 1.0)), BOUNDS)
def test_labels_within_the_bounds_are_scaled_there_and_back(parts: Floats, bounds: tuple[float, float]) -> None:
    data = DataSection(features=1, label_bounds=bounds)
    low, high = bounds
    values = np.clip(low + parts * (high - low), low, high)
    # Rounding alone separates them: a few units in the last place of the larger bound.
    tolerance = 8 * np.finfo(np.float64).eps * max(abs(low), abs(high), high - low)
    np.testing.assert_allclose(unscale_labels(scale_labels(values, data), data), values, rtol=0.0, atol=tolerance)


def test_predictions_beyond_the_bounds_are_clipped_to_them() -> None:
    data = DataSection(features=1, label_bounds=(10, 20))
    np.testing.assert_array_equal(unscale_labels(np.array([-3.0, -1.0, 0.5, 2.0]), data), [10.0, 10.0, 17.5, 20.0])


@pytest.mark.parametrize("scale", [scale_labels, unscale_labels])
def test_labels_without_bounds_cannot_be_scaled(scale: Any) -> None:
    with pytest.raises(StudyError, match=r"^\[data\] lacks label_bounds: the smallest and the largest possible label"):
        scale(np.zeros(2), DataSection(features=1))


def test_a_category_becomes_an_indicator() -> None:
    column = Column(categories=["a", "b", "c"])
    np.testing.assert_array_equal(indicate(np.array([2, 0]), column), [[0, 0, 1], [1, 0, 0]])


TABLE = make_study(
    {
        "study": {"name": "heart", "task": "classification"},
        "data": {
            "label": "died",
            "classes": ["no", "yes"],
            "columns": {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}, "bmi": {"min": 5, "max": 99}},
        },
        "parties": {"count": 2},
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
        "method": {"name": "helmet"},
    }
)
PEOPLE = st.fixed_dictionaries(
    {
        "age": FINITE,
        "sex": st.sampled_from(["f", "m"]),
        "bmi": FINITE,
        "died": st.sampled_from(["no", "yes"]),
    }
)


@given(st.lists(PEOPLE, min_size=2, max_size=6))
def test_a_table_s_record_is_encoded_the_same_alone_and_among_others(people: list[dict[str, Any]]) -> None:
    table = pd.DataFrame(people)
    together = Table(table, "heart").records(TABLE)
    alone = [Table(table.iloc[[at]], "heart").records(TABLE) for at in range(len(people))]
    np.testing.assert_array_equal(together.features, np.concatenate([record.features for record in alone]))
    np.testing.assert_array_equal(together.labels, np.concatenate([record.labels for record in alone]))
    bounded = clip_rows(together.features, TABLE.data)
    np.testing.assert_array_equal(bounded, np.concatenate([clip_rows(one.features, TABLE.data) for one in alone]))
    assert (norms(bounded) <= 2.0 + 1e-12).all()


CATEGORIES = st.integers(1, 4).map(lambda count: Column(categories=list(range(count))))
NUMBERS = BOUNDS.map(lambda bounds: Column(min=bounds[0], max=bounds[1]))


@given(
    st.lists(CATEGORIES | NUMBERS, min_size=1, max_size=30), st.sampled_from(["regression", "statistics"]), st.data()
)
def test_no_record_of_a_table_exceeds_the_default_norm(columns: list[Column], task: str, data: st.DataObject) -> None:
    named = {f"c{at:02}": column for at, column in enumerate(columns)}
    described: dict[str, Any] = {"columns": {name: one.model_dump(exclude_none=True) for name, one in named.items()}}
    if task == "regression":
        intercept = data.draw(st.sampled_from([None, True, False]))
        described |= {"label": "y", "label_bounds": [0, 1]} | ({} if intercept is None else {"intercept": intercept})
    content = TABLE.model_dump(mode="json", exclude_none=True)
    study = make_study(content | {"study": {"name": "wide", "task": task}, "data": described})
    # Numbers at or near the bounds are the ones that make long vectors.
    people = [
        {
            name: data.draw(
                st.sampled_from(column.categories)
                if column.categories is not None
                else st.sampled_from([column.min, column.max]) | FINITE
            )
            for name, column in named.items()
        }
        | {"y": 0.5}
        for _ in range(3)
    ]
    features = Table(pd.DataFrame(people), "wide").records(study).features
    whole = np.column_stack([features, np.ones(3)]) if study.data.has_intercept else features
    np.testing.assert_array_equal(clip_rows(features, study.data), whole)
    # Nor is it wider than needed: a record at its bounds is as long as that.
    extreme = {name: (column.categories or [column.max])[0] for name, column in named.items()} | {"y": 0.5}
    longest = Table(pd.DataFrame([extreme]), "wide").records(study).features
    assert norms(clip_rows(longest, study.data))[0] == pytest.approx(study.data.norm, rel=1e-12)
