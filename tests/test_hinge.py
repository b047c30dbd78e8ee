"""DP-Helmet, Theorem 14: with a large Λ the average of local hinge-loss SVMs tends to the pooled SVM, as 1/M.

Every test has fixed seeds, so it gives the same verdict each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.helmet.hinge import hinge_objective, weighted_average_descent


@dataclass(frozen=True)
class Federation:
    features: np.ndarray
    signs: np.ndarray
    regularization: float
    radius: float
    repetitions: int

    @property
    def optimum(self) -> np.ndarray:
        """The pooled optimum while every record lies inside the margin, where the hinge loss is linear."""
        return (self.signs[:, :, None] * self.features).mean(axis=(0, 1)) / self.regularization

    def objective(self, weights: np.ndarray) -> float:
        dimension = self.features.shape[2]
        return hinge_objective(weights, self.features.reshape(-1, dimension), self.signs.ravel(), self.regularization)

    def average_model(self, steps: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng((seed, steps))
        models = [
            weighted_average_descent(
                features, signs, self.regularization, steps, self.radius, rng.integers(len(signs), size=steps)
            )
            for features, signs in zip(self.features, self.signs, strict=True)
        ]
        return np.mean(models, axis=0)

    def excess(self, steps: int) -> float:
        """The mean of J(average) − J(optimum) over the repetitions."""
        objectives = [self.objective(self.average_model(steps, seed)) for seed in range(self.repetitions)]
        return float(np.mean(objectives)) - self.objective(self.optimum)


def mixed_classes() -> Federation:
    """Four parties × 30 records of norm at most 1 in 10 dimensions, both classes everywhere; Λ > c²."""
    rng = np.random.default_rng(14)
    signs = rng.choice([-1.0, 1.0], size=(4, 30))
    features = 0.3 * signs[:, :, None] + 0.6 * rng.standard_normal((4, 30, 10))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=2, keepdims=True))
    return Federation(features, signs, regularization=2.0, radius=0.5, repetitions=8)


def one_class_each(regularization: float = 20.0) -> Federation:
    """The paper's Figure 2: two parties, each with a point cloud of one class; Λ = 20, R = 1, c = 5."""
    rng = np.random.default_rng(2)
    signs = np.repeat([[1.0], [-1.0]], 500, axis=1)
    centres = np.array([[1.5, 2.0], [-2.0, -1.0]])
    points = centres[:, None, :] + 0.7 * rng.standard_normal((2, 500, 2))
    features = np.concatenate([np.ones((2, 500, 1)), points], axis=2)
    features *= np.minimum(1.0, 5.0 / np.linalg.norm(features, axis=2, keepdims=True))
    return Federation(features, signs, regularization, radius=20.0 / regularization, repetitions=16)


LARGE = {"mixed classes": mixed_classes(), "one class each": one_class_each()}


@pytest.mark.parametrize("name", LARGE)
def test_with_a_large_regularization_every_record_is_inside_the_margin_of_every_optimum(name: str) -> None:
    federation = LARGE[name]
    local = (federation.signs[:, :, None] * federation.features).mean(axis=1) / federation.regularization
    for optimum in [federation.optimum, *local]:
        assert np.abs(federation.features @ optimum).max() < 1.0
    np.testing.assert_allclose(local.mean(axis=0), federation.optimum)


@pytest.mark.parametrize("name", LARGE)
def test_the_mean_of_signed_records_over_the_regularization_is_the_pooled_optimum(name: str) -> None:
    federation = LARGE[name]
    least = federation.objective(federation.optimum)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(20):
            elsewhere = federation.optimum + scale * rng.standard_normal(len(federation.optimum))
            assert federation.objective(elsewhere) > least


@pytest.mark.parametrize("name", LARGE)
def test_the_excess_of_the_average_decays_as_one_over_the_steps(name: str) -> None:
    steps = [16, 64, 256, 1024]
    excess = [LARGE[name].excess(count) for count in steps]
    slope = np.polyfit(np.log(steps), np.log(excess), 1)[0]
    assert -1.2 < slope < -0.8
    assert excess[2] > 2.5 * excess[3] > 0.0


def test_with_a_small_regularization_the_average_stays_away_from_the_pooled_optimum() -> None:
    federation = one_class_each(regularization=0.5)
    average = federation.average_model(4000, seed=0)
    # The smaller models of the large-Λ regime are better here than what the parties tend to.
    shorter = min(federation.objective(factor * federation.optimum) for factor in np.linspace(0.05, 1.0, 20))
    assert federation.objective(average) > shorter + 0.01


def test_the_objective_is_the_formula_of_the_paper() -> None:
    rng = np.random.default_rng(1)
    features, weights = rng.standard_normal((7, 3)), rng.standard_normal(3)
    signs = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    losses = [
        max(0.0, 1.0 - sign * sum(w * x for w, x in zip(weights, record, strict=True)))
        for sign, record in zip(signs, features, strict=True)
    ]
    expected = 0.25 / 2 * sum(w * w for w in weights) + sum(losses) / len(losses)
    assert hinge_objective(weights, features, signs, 0.25) == pytest.approx(expected, rel=1e-12)
    assert min(losses) == 0.0 < max(losses)


def iterates(radius: float, steps: int = 60) -> np.ndarray:
    """w_1 … w_M, taken from the averages a_M = Σ 2t·w_t / M(M+1) of ever more steps."""
    rng = np.random.default_rng(3)
    features, signs = rng.standard_normal((20, 4)), rng.choice([-1.0, 1.0], size=20)
    order = rng.integers(20, size=steps)
    averages = [np.zeros(4)]
    averages += [weighted_average_descent(features, signs, 0.1, count, radius, order) for count in range(1, steps + 1)]
    return np.array([((m + 1) * averages[m] - (m - 1) * averages[m - 1]) / 2 for m in range(1, steps + 1)])


def test_the_projection_keeps_all_iterates_within_the_radius() -> None:
    norms = np.linalg.norm(iterates(radius=0.8), axis=1)
    assert norms.max() <= 0.8 * (1 + 1e-9)
    assert (norms > 0.8 * (1 - 1e-9)).sum() > 10
    assert np.linalg.norm(iterates(radius=1e9), axis=1).max() > 8.0


def test_the_projection_leaves_iterates_inside_the_ball_alone() -> None:
    free = iterates(radius=1e9)
    reach = np.linalg.norm(free, axis=1).max()
    np.testing.assert_array_equal(iterates(radius=1.01 * reach), free)
