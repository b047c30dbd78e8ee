"""Numbers that are hard for floating point are encoded, clipped and learnt from, and never end in an error.

An error for one record and not for its neighbour would be a bit about it, without noise. Warnings are errors in these
tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unspoken.data.block import Block
from unspoken.learners import certified
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy, HuberSVM, Logistic, Loss
from unspoken.methods.parameters import LARGEST_WEIGHT, NO_PARAMETERS, Parameters, Range
from unspoken.noise.encoding import Encoding

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(values=arrays(np.float64, 5, elements=NUMBERS), scale=st.sampled_from([0.5, 1.0, LARGEST_WEIGHT]))
def test_what_a_coordinator_makes_of_its_numbers_is_allowed_and_as_near_as_can_be(
    values: np.ndarray, scale: float
) -> None:
    allowed = Parameters((Range(3, -scale, scale), Range(2, 0.25, scale)))
    nearest = allowed.nearest(values)
    allowed.check("model", nearest)
    inside = (values >= np.array([-scale] * 3 + [0.25] * 2)) & (values <= scale)
    assert (nearest[inside] == values[inside]).all()
    NO_PARAMETERS.check("model", None)


@given(vectors=arrays(np.float64, (3, 4), elements=NUMBERS), bound=st.floats(1e-3, 1e6))
def test_any_numbers_are_encoded_and_clipped_to_the_bound(vectors: np.ndarray, bound: float) -> None:
    encoding = Encoding(scale=2.0**20, bits=64, bound=bound)
    found = encoding.decode(encoding.encode(vectors))
    for row, decoded in zip(vectors, found, strict=True):
        if not np.isfinite(row).all():
            assert not decoded.any()
            continue
        peak = float(np.abs(row).max()) or 1.0
        length = float(np.linalg.norm(row / peak))  # in units of the largest number: the squares do not overflow
        expected = row if length <= bound / peak else row / peak * (bound / length)
        assert np.abs(decoded - expected).max() <= 0.5 / encoding.scale * (1 + 1e-6) + 1e-12 * bound


LOSSES: list[Loss] = [CrossEntropy(3), Logistic(2), HuberSVM(3, 0.1), HuberSVM(2, 1e-3)]


EACH_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


@pytest.mark.parametrize(
    ("norm", "regularization"), [pytest.param(1.0, 1e-6, marks=pytest.mark.long), (1.0, 0.1), (1e6, 1e-6), (1e6, 0.1)]
)
@EACH_LOSS
def test_the_certified_solver_reaches_its_tolerance_for_records_that_are_hard(
    loss: Loss, norm: float, regularization: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaches_its_tolerance(loss, norm, regularization, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(("norm", "regularization"), [(1.0, 1e-3), (1e3, 1e-6), (1e3, 1e-3), (1e3, 0.1), (1e6, 1e-3)])
@EACH_LOSS
def test_the_certified_solver_reaches_its_tolerance_between_the_extremes(
    loss: Loss, norm: float, regularization: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaches_its_tolerance(loss, norm, regularization, monkeypatch)


def reaches_its_tolerance(loss: Loss, norm: float, regularization: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the last step that it may take. And neighbours' models are no further apart than stated."""
    taken: list[np.ndarray] = []

    def reached(space: Any, *arguments: Any) -> Any:
        coefficients = minimise(space, *arguments)
        targets, weights = arguments[1], arguments[2]
        slopes = loss.slopes(space.scores(coefficients), targets) * weights[:, :, None]
        taken.append(space.norm_bounds(space.gradient(slopes) + regularization * coefficients) / arguments[4])
        return coefficients

    minimise = certified.minimise
    monkeypatch.setattr(certified, "minimise", reached)
    monkeypatch.setattr(certified, "MAXIMUM_STEPS", 50_000)
    rng = np.random.default_rng(0)
    for count, features in ((20, 5), (5, 20)):
        learner = LinearLearner(loss, norm, regularization)
        rows = rng.normal(size=(count, features))
        rows *= norm / np.linalg.norm(rows, axis=1, keepdims=True)
        scales = 10.0 ** rng.uniform(-8, 0, size=(count, 1))
        near = rows[:1] + 1e-6 * rows
        near *= norm / np.linalg.norm(near, axis=1, keepdims=True)
        for hard in (rows, np.tile(rows[:1], (count, 1)), near, rows * scales, rows * 0.0, rows * 1e-12):
            labels = rng.integers(0, loss.classes, count)
            other, others = hard.copy(), labels.copy()
            other[0], others[0] = -rows[1], 1 - min(labels[0], 1)
            one, two = (
                learner.fit(Block(each[None], known[None], np.array([count])))[0]
                for each, known in ((hard, labels), (other, others))
            )
            assert np.isfinite(one).all()
            assert np.linalg.norm(one - two) <= learner.sensitivity(count)
            assert np.linalg.norm(one - two) * count <= learner.scaled_sensitivity(count)
    assert max(float(each.max()) for each in taken) <= 1.0 + 1e-6


def test_a_tolerance_that_cannot_be_reached_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified, "MAXIMUM_STEPS", 3)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1, 30, 5))
    learner = LinearLearner(CrossEntropy(4), 10.0, 1e-4)
    model = learner.fit(Block(rows, rng.integers(0, 4, (1, 30)), np.array([30])))
    assert np.isfinite(model).all()
