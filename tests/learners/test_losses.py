"""The losses' slopes are their derivatives, and their stated constants bound what they state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.learners.losses import CrossEntropy, HuberSVM, Logistic, Loss

LOSSES = [HuberSVM(2, 0.1), HuberSVM(5, 0.5), Logistic(2), Logistic(5), CrossEntropy(2), CrossEntropy(5)]
EACH = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{type(loss).__name__}-{loss.classes}")


def drawn(loss: Loss, seed: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(scale=size, size=(40, loss.outputs)), loss.targets(rng.integers(0, loss.classes, 40))


@EACH
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.1, 1.0, 10.0]))
def test_slopes_are_the_derivative_of_the_values(loss: Loss, seed: int, size: float) -> None:
    scores, targets = drawn(loss, seed, size)
    step = 1e-6
    for output in range(loss.outputs):
        shift = np.zeros(loss.outputs)
        shift[output] = step
        numeric = (loss.values(scores + shift, targets) - loss.values(scores - shift, targets)) / (2 * step)
        assert np.allclose(loss.slopes(scores, targets)[:, output], numeric, atol=1e-5)


@EACH
def test_no_slopes_are_longer_than_stated_and_some_reach_it(loss: Loss) -> None:
    norms = []
    for label in range(loss.classes):
        targets = loss.targets(np.array([label]))
        wrong = -1000.0 * targets
        if isinstance(loss, CrossEntropy):
            wrong = np.zeros_like(targets)
            wrong[0, (label + 1) % loss.classes] = 1000.0
        norms.append(np.linalg.norm(loss.slopes(wrong, targets)))
    for seed in range(20):
        scores, targets = drawn(loss, seed, 5.0)
        norms.extend(np.linalg.norm(loss.slopes(scores, targets), axis=1))
    assert max(norms) <= loss.slope_norm * (1 + 1e-12)
    assert max(norms) >= 0.999 * loss.slope_norm


@EACH
def test_another_label_moves_slopes_by_no_more_than_stated_and_somewhere_by_as_much(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    moved = []
    for size in (0.0, 0.5, 5.0):
        scores = rng.normal(scale=size, size=(40, loss.outputs))
        for one, other in ((0, 1), (1, 0), (0, loss.classes - 1)):
            slopes = [loss.slopes(scores.copy(), loss.targets(np.full(40, label))) for label in (one, other)]
            moved.extend(np.linalg.norm(slopes[0] - slopes[1], axis=1))
    assert max(moved) <= loss.label_effect * (1 + 1e-12)
    assert max(moved) >= 0.999 * loss.label_effect


@EACH
def test_slopes_change_no_faster_than_the_curvature_says_and_somewhere_as_fast(loss: Loss) -> None:
    rates = []
    rng = np.random.default_rng(0)
    for size in (0.0, 0.01, 0.5, 1.0, 3.0):
        for _ in range(200):
            targets = loss.targets(rng.integers(0, loss.classes, 1))
            base = targets if isinstance(loss, HuberSVM) else np.zeros((1, loss.outputs))
            if isinstance(loss, CrossEntropy):
                base = np.where(np.arange(loss.outputs) < 2, 0.0, -50.0)[None]
            scores = base + rng.normal(scale=size, size=(1, loss.outputs)) if size else base
            step = 1e-6 * rng.normal(size=(1, loss.outputs))
            if isinstance(loss, CrossEntropy):
                step = (
                    1e-6
                    * np.where(np.arange(loss.outputs) == 0, 1.0, np.where(np.arange(loss.outputs) == 1, -1.0, 0.0))[
                        None
                    ]
                )
            change = loss.slopes(scores + step, targets) - loss.slopes(scores, targets)
            rates.append(np.linalg.norm(change) / np.linalg.norm(step))
    assert max(rates) <= loss.curvature * (1 + 1e-6)
    assert max(rates) >= 0.99 * loss.curvature


def test_slopes_stay_finite_at_extreme_scores() -> None:
    for loss in LOSSES:
        targets = loss.targets(np.array([0, 1]))
        for size in (1e308, -1e308, 750.0):
            scores = np.full((2, loss.outputs), size)
            scores[:, 0] = -size
            assert np.isfinite(loss.slopes(scores / 4, targets)).all()


def test_one_versus_rest_has_one_output_for_two_classes() -> None:
    assert Logistic(2).outputs == 1
    assert Logistic(3).outputs == 3
    assert HuberSVM(4).slope_norm == math.sqrt(4)
