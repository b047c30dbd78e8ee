"""Objective perturbation: how far a replaced record changes the volume element, and what is left of ε."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

from factories import make
from unspoken.methods.objective_perturbation import ObjectivePerturbation
from unspoken.types import Floats


def perturbation(epsilon: float, regularization: float, task: str = "classification") -> ObjectivePerturbation:
    kind = {"classes": 2} if task == "classification" else {"label_bounds": [-1.0, 1.0]}
    return ObjectivePerturbation(
        make(
            "objective-perturbation",
            task=task,
            data={"features": 3, "norm": 1.0, **kind},
            parties={"records": 10},
            epsilon=epsilon,
            method={"regularization": regularization},
            summation="ideal",
        )
    )


def log_volume(features: Floats, weights: Floats, ridge: float, task: str) -> float:
    """log det of the noise's derivative by the minimiser: Σ h·xxᵀ + n·ridge·I."""
    margins = features @ weights
    bends = expit(margins) * expit(-margins) if task == "classification" else np.ones(len(features))
    hessian = (features.T * bends) @ features + len(features) * ridge * np.eye(features.shape[1])
    return float(np.linalg.slogdet(hessian)[1])


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("epsilon", "regularization"), [(0.5, 1e-3), (0.5, 0.02), (2.0, 1e-3), (8.0, 1e-4)])
def test_the_budget_pays_for_the_largest_change_of_volume_and_for_no_more(
    task: str, epsilon: float, regularization: float, runs: Callable[[int, int], int]
) -> None:
    """Random neighbours of norm 1 or less among random others, many or few, long or short."""
    method, source = perturbation(epsilon, regularization, task), np.random.default_rng(0)
    nearest = 0.0
    for _ in range(runs(1000, 6000)):
        count = int(source.integers(1, 40))
        directions = source.normal(size=(count + 1, 3))
        lengths = source.uniform(size=count + 1) ** source.choice([0.2, 1.0, 30.0])
        rows = directions / np.linalg.norm(directions, axis=1)[:, None] * lengths[:, None]
        rows[-2] /= np.linalg.norm(rows[-2])
        rows[-1] *= source.choice([0.0, 1.0])
        weights = source.normal(size=3) * source.choice([0.0, 0.1, 3.0])
        left, ridge = method.budget(count)
        one, other = (log_volume(np.delete(rows, gone, axis=0), weights, ridge, task) for gone in (-1, -2))
        assert abs(one - other) <= epsilon - left + 1e-9
        nearest = max(nearest, abs(one - other) / (epsilon - left))
    assert nearest > 0.98


@pytest.mark.parametrize("regularization", [1e-5, 1e-3, 0.1])
def test_more_records_never_need_more_noise_or_a_larger_ridge_and_half_of_epsilon_is_always_left(
    regularization: float,
) -> None:
    for epsilon in (0.1, 0.5, 2.0, 8.0):
        method = perturbation(epsilon, regularization)
        budgets = [method.budget(records) for records in (10, 100, 300, 1000, 3000, 10_000, 10**6)]
        assert all(epsilon / 2.0 * (1 - 1e-12) <= left < epsilon and ridge >= regularization for left, ridge in budgets)
        assert np.diff([left for left, _ in budgets]).min() >= -1e-12
        assert np.diff([ridge for _, ridge in budgets]).max() <= 0.0


def test_the_noise_is_a_fifth_of_what_the_squared_ratio_would_ask_for() -> None:
    left, ridge = perturbation(0.5, 1e-3).budget(1000)
    assert ridge == 1e-3
    assert left == pytest.approx(0.5 - math.log(1.25))
    assert left > 5.0 * (0.5 - 2.0 * math.log(1.25))
