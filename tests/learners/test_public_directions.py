"""Directions from public records: a symmetric map that fades out what noise hides, after which records are clipped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.covariance import LedoitWolf

from unspoken.learners.public_directions import PublicDirections, Spectrum, rank_for

RNG = np.random.default_rng(0)
LENGTHS = np.array([3.0, 1.0, 0.3, 0.1, 0.03, 0.01])
ROWS = RNG.normal(size=(400, 6)) * LENGTHS / np.linalg.norm(LENGTHS)


def made(signal: float, rows: np.ndarray = ROWS, norm: float = 1.0, length: float | None = None) -> PublicDirections:
    return PublicDirections.of(rows, norm, 2, signal, length)


def test_the_spectrum_is_that_of_ledoit_and_wolf() -> None:
    few = ROWS[:8]
    theirs = LedoitWolf(assume_centered=True).fit(few)
    assert theirs.shrinkage_ > 0.05
    np.testing.assert_allclose(Spectrum.of(few).values, np.linalg.eigvalsh(theirs.covariance_), rtol=1e-9)


@given(signal=st.floats(0.0, 1e9), norm=st.sampled_from([1e-3, 1.0, 50.0]), seed=st.integers(0, 100))
def test_mapped_records_are_as_long_as_the_norm_at_most(signal: float, norm: float, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(20, 6)) * 10.0
    rows *= norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), norm)
    mapped, factors = made(signal, ROWS * norm, norm).apply(rows)
    assert np.linalg.norm(mapped, axis=1).max() <= norm * (1.0 + 1e-12)
    assert (factors <= 1.0).all()


def test_more_noise_leaves_fewer_directions() -> None:
    ranks = [rank_for(signal, 2, 6) for signal in (0.0, 30.0, 100.0, 1e9)]
    assert ranks == sorted(ranks)
    assert ranks[0] == 2.0  # K/2 + 1
    assert ranks[-1] == pytest.approx(0.98 * 6)
    mapped = [np.abs(made(signal).matrix[5, 5] / made(signal).matrix[0, 0]) for signal in (0.0, 1e9)]
    assert mapped[0] < 0.1, "what varies little fades out under much noise"
    assert mapped[1] > 1.0, "and is stretched where there is little"


def test_nothing_is_amplified_without_bound_however_small_the_noise() -> None:
    """A direction that public records do not have is stretched √(w/w̄ · 10 + 1) times as much as any other, at most."""
    empty = ROWS * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    matrix = made(1e12, empty).matrix
    assert 0.0 < matrix[5, 5] <= np.diag(matrix)[:5].min() * np.sqrt(1.0 + 10.0 * 6.0)


def test_weights_score_records_as_the_learnt_ones_score_mapped_records() -> None:
    directions, weights = made(100.0), RNG.normal(size=(3, 6))
    mapped, factors = directions.apply(ROWS)
    np.testing.assert_allclose(ROWS @ directions.undo(weights).T, mapped @ weights.T / factors[:, None], rtol=1e-9)


def test_the_last_digit_of_a_sum_does_not_matter() -> None:
    """Two machines may add up public records in another order; eigenvectors of equal eigenvalues may then be others."""
    rows = np.concatenate([np.eye(6), np.eye(6)[::-1]] * 3)
    for made_of in (rows, ROWS):
        one, other = (made(50.0, found).matrix for found in (made_of, made_of * (1.0 + 1e-15) + 1e-17))
        np.testing.assert_allclose(one, other, atol=1e-10)
        np.testing.assert_allclose(one, one.T, atol=1e-12)


def test_public_records_keep_a_given_length_or_are_a_little_longer_than_allowed() -> None:
    for length, wanted in ((None, 1.7 * 4.0), (0.7, 0.7)):
        moved = ROWS @ made(50.0, norm=2.0, length=length).matrix
        assert (moved**2).sum(axis=1).mean() == pytest.approx(wanted)


def test_the_largest_mean_square_is_that_of_mapped_records() -> None:
    directions = made(1e9)
    moved = ROWS @ directions.matrix
    assert directions.largest == pytest.approx(np.linalg.eigvalsh(moved.T @ moved / len(ROWS)).max(), rel=0.05)


@pytest.mark.parametrize("rows", [np.tile([0.0, 0.3, 0.0], (12, 1)), np.eye(3)[[0] * 12 + [1]]])
def test_public_records_that_are_all_alike_leave_every_direction_open(rows: np.ndarray) -> None:
    directions = made(1e6, rows)
    assert np.isfinite(directions.matrix).all()
    assert (np.diag(directions.matrix) > 0.0).all()


def clustered(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in two of six directions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    rows = 0.3 * rng.normal(size=(count, 6))
    rows[:, :2] += np.column_stack([np.cos(2.0 * labels), np.sin(2.0 * labels)])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def right(weights: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> float:
    return float(((rows @ weights.T).argmax(axis=1) == labels).mean())


def test_public_records_average_some_of_a_model_s_noise_out() -> None:
    (public, _), (rows, labels) = clustered(600, 1), clustered(2_000, 2)
    directions, rng = made(20.0, public), np.random.default_rng(3)
    mapped, _ = directions.apply(rows)
    best = np.linalg.lstsq(mapped, np.eye(3)[labels], rcond=None)[0].T
    noisy = [best + 2.0 * np.abs(best).mean() * rng.normal(size=best.shape) for _ in range(20)]
    gains = [right(directions.told(model), mapped, labels) - right(model, mapped, labels) for model in noisy]
    assert np.mean(gains) > 0.01


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_a_model_keeps_at_least_three_quarters_of_itself(outputs: int) -> None:
    directions, weights = made(0.0), RNG.normal(size=(outputs, 6))
    mapped, _ = directions.apply(ROWS)
    told = directions.told(weights)
    added = 4.0 * told - 3.0 * weights
    assert float(((mapped @ added.T) ** 2).mean()) <= float(((mapped @ weights.T) ** 2).mean()) * (1.0 + 1e-9)
    np.testing.assert_allclose(directions.told(3.0 * weights), 3.0 * told, rtol=1e-9)


def test_a_model_is_drawn_towards_the_regression_on_its_own_sharpened_scores() -> None:
    """(1 − γ)W + γ(UᵀU/m + ρI)⁻¹UᵀT/m, where scores have mean square 4 and ρ is a tenth of an eigenvalue."""
    directions, weights = made(50.0), np.random.default_rng(1).normal(size=(3, 6))
    rows, _ = directions.apply(ROWS)
    scores = rows @ weights.T
    centred = scores - scores.mean(axis=1, keepdims=True)
    chances = softmax(centred * np.sqrt(4.0 / (centred**2).mean()), axis=1)
    targets = scores.mean(axis=0) + (chances - chances.mean(axis=0)) * np.sqrt(
        scores.var(axis=0).mean() / chances.var(axis=0).mean()
    )
    second = rows.T @ rows / len(rows)
    ridge = 0.1 * np.linalg.eigvalsh(second).mean()
    found = np.linalg.solve(second + ridge * np.eye(6), rows.T @ targets / len(rows)).T
    own = 1.0 / (4.0 + 50.0 / (3.0 * 3.0 * math.sqrt(len(rows))))
    np.testing.assert_allclose(directions.told(weights), (1.0 - own) * weights + own * found, rtol=1e-9)


def test_a_model_with_little_noise_stays_as_it_is() -> None:
    weights = RNG.normal(size=(3, 6))
    np.testing.assert_allclose(made(1e9).told(weights), weights, rtol=1e-4)
    np.testing.assert_array_equal(made(float("inf")).told(weights), weights)


def test_a_model_without_weights_is_told_nothing() -> None:
    np.testing.assert_array_equal(made(10.0).told(np.zeros((3, 6))), np.zeros((3, 6)))


def test_directions_near_the_noise_stay_shorter_and_those_below_it_fade_out() -> None:
    """f² = 1/(w + 2ℓ + ℓ⁴/w³ + w̄/10), where ℓ leaves two directions of one that is large and three that are alike."""
    rows = np.concatenate([np.eye(4), -np.eye(4)] * 2_000) * np.sqrt([100.0, 1.0, 1.0, 1.0])
    directions, values = made(0.0, rows), Spectrum.of(rows).values[::-1]
    noise = Spectrum.of(rows).faded(2.0)
    assert noise == pytest.approx(2.0**0.25 * values[1], rel=1e-6)
    wanted = 1.0 / (values + 2.0 * noise + noise**4 / values**3 + values.mean() / 10.0)
    found = np.diag(directions.matrix) ** 2
    np.testing.assert_allclose(found / found.sum(), wanted / wanted.sum(), rtol=1e-9)
