"""Least squares from noisy moments: right without noise, better than the published repairs with it, never broken."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from unspoken.learners.second_moments import SecondMoments
from unspoken.learners.solving import Repair, solve

REPAIRS = get_args(Repair)
RECORDS, FEATURES = 2000, 8
MOMENTS = SecondMoments(FEATURES, 1.0, None, 1.0)

Problem = tuple[np.ndarray, np.ndarray, np.ndarray]


def problem(rng: np.random.Generator) -> Problem:
    """Second moments of records of norm at most 1 and labels within [−1, 1], and the model that made the labels."""
    turned = np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))[0] * rng.uniform(0.2, 1.0, size=FEATURES)[:, None]
    rows = rng.normal(size=(RECORDS, FEATURES)) @ turned
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    model = rng.normal(size=(FEATURES, 1))
    model /= np.linalg.norm(model)
    return rows.T @ rows, rows.T @ (rows @ model), model


@pytest.mark.parametrize("repair", REPAIRS)
def test_without_noise_every_repair_gives_the_least_squares_model(repair: Repair) -> None:
    for seed in range(5):
        second, mixed, model = problem(np.random.default_rng(seed))
        np.testing.assert_allclose(solve(MOMENTS, second, mixed, 0.0, RECORDS, repair), model, atol=1e-8)


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_direction_without_records_is_left_at_zero(repair: Repair) -> None:
    """As of a table whose categories' indicators add up to the constant."""
    second, mixed = np.diag([*[100.0] * (FEATURES - 1), 0.0]), np.array([[*[50.0] * (FEATURES - 1), 0.0]]).T
    solved = solve(MOMENTS, second, mixed, 0.0, RECORDS, repair)
    np.testing.assert_allclose(solved.ravel(), [*[0.5] * (FEATURES - 1), 0.0], atol=1e-8)


@pytest.mark.parametrize("repair", REPAIRS)
def test_what_rounding_leaves_of_a_direction_without_spread_is_not_divided_by(repair: Repair) -> None:
    """As of a constant, whose scatter is a difference of equal numbers: it is about 1e-16, of either sign."""
    second, mixed, model = problem(np.random.default_rng(0))
    for rounding in (1e-16, -1e-16):
        bordered = np.block([[second, np.zeros((FEATURES, 1))], [np.zeros((1, FEATURES)), np.array([[rounding]])]])
        solved = solve(MOMENTS, bordered, np.append(mixed, [[1000.0]], axis=0), 0.0, RECORDS, repair)
        np.testing.assert_allclose(solved, np.append(model, [[0.0]], axis=0), atol=1e-8)


def excess(second: np.ndarray, solved: np.ndarray, model: np.ndarray) -> float:
    """How much larger the squared loss is than the least, as a share of what the model explains."""
    error = solved - model
    return float(np.sum(error * (second @ error)) / np.sum(model * (second @ model)))


@pytest.mark.parametrize(("noise", "margin"), [(0.01, 1.01), (0.03, 0.95), (0.1, 0.95), (0.3, 1.2)])
def test_the_chosen_ridge_loses_less_than_the_published_repairs(noise: float, margin: float) -> None:
    """The means over 100 random problems; the seed is fixed. Noise is in units of the mean eigenvalue: with little of
    it all repairs are alike, and where it has drowned nearly everything AdaSSP's larger ridge loses a little less."""
    rng = np.random.default_rng(0)
    lost: dict[str, list[float]] = {repair: [] for repair in REPAIRS}
    for _ in range(100):
        second, mixed, model = problem(rng)
        deviation = noise * float(np.trace(second)) / FEATURES
        square = rng.normal(scale=deviation, size=second.shape)
        noisy = second + (square + square.T) / math.sqrt(2.0)
        noisy_mixed = mixed + rng.normal(scale=math.sqrt(2.0) * deviation, size=mixed.shape)
        for repair in REPAIRS:
            lost[repair].append(excess(second, solve(MOMENTS, noisy, noisy_mixed, deviation, RECORDS, repair), model))
    means = {repair: float(np.mean(values)) for repair, values in lost.items()}
    assert means["ridge"] < margin * min(means["adassp"], means["none"])
    # No model at all would lose 1.
    assert means["ridge"] < 1.0


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1.0, 1e12, 1e100])
def test_an_indefinite_or_empty_matrix_breaks_nothing(repair: Repair, scale: float) -> None:
    rng = np.random.default_rng(0)
    moments = SecondMoments(5, 1.0, 2, 1.0)
    square, mixed = rng.normal(scale=scale, size=(5, 5)), rng.normal(scale=scale, size=(5, 2))
    for second in (square + square.T, -np.eye(5) * scale, np.zeros((5, 5)), np.diag([1.0, 0, 0, 0, -1.0]) * scale):
        for deviation in (scale, 1e-3 * scale):
            for records in (0, 1, 10**6):
                solved = solve(moments, second, mixed, deviation, records, repair)
                assert solved.shape == (5, 2)
                assert np.isfinite(solved).all()


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("scale", [1e-10, 1e-5, 1e5, 1e10])
def test_without_noise_the_unit_of_the_moments_does_not_matter(repair: Repair, scale: float) -> None:
    """A study may have a norm far above that of its records."""
    second, mixed, model = problem(np.random.default_rng(0))
    np.testing.assert_allclose(solve(MOMENTS, second * scale, mixed * scale, 0.0, RECORDS, repair), model, atol=1e-8)
