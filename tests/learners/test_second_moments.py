"""The sensitivity of second moments, attacked by hill climbing: never exceeded, and reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from unspoken.learners.second_moments import Reshaping, SecondMoments, best_balance

FEATURES, NORM = 2, 2.5
BALANCES = (0.05, 0.7, 1.4, 3.0)
KINDS = (None, 2, 3, 10)


def record(point: np.ndarray) -> np.ndarray:
    """Any point as a record within the norm: what is longer is clipped."""
    return point * (NORM / max(NORM, float(np.linalg.norm(point))))


def climbed(distance: Callable[[np.ndarray], float], starts: list[np.ndarray]) -> float:
    """The largest distance that Nelder and Mead's method finds."""
    options = {"maxiter": 500, "xatol": 1e-3, "fatol": 1e-6}
    return max(-minimize(lambda z: -distance(z), z, method="Nelder-Mead", options=options).fun for z in starts)


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize(
    ("classes", "centred"),
    [(None, True), pytest.param(2, True, marks=pytest.mark.long), (3, True), (10, True), (3, False)],
)
def test_replacing_a_record_moves_the_moments_within_the_sensitivity_and_no_less(
    classes: int | None, centred: bool, balance: float
) -> None:
    moments = SecondMoments(FEATURES, NORM, classes, balance, centred=centred)
    rng = np.random.default_rng(0)

    def distance(z: np.ndarray, labels: Sequence[float]) -> float:
        kind = float if classes is None else int
        points = z[:FEATURES], z[FEATURES : 2 * FEATURES]
        one, other = (
            moments.of(record(point)[None], np.array([label], dtype=kind))
            for point, label in zip(points, labels, strict=True)
        )
        return float(np.linalg.norm(one - other))

    starts = [NORM * rng.normal(size=2 * FEATURES) for _ in range(2)]
    pairs = [(1, 1), (1, 0)] if classes else [(1, 1), (1, -1), (0.5, 1)]
    found = max(climbed(lambda z, pair=pair: distance(z, pair), starts) for pair in pairs)  # type: ignore[misc]
    if classes is None:
        anywhere = [np.append(start, rng.uniform(-2, 2, size=2)) for start in starts]
        found = max(found, climbed(lambda z: distance(z, np.clip(z[-2:], -1.0, 1.0).tolist()), anywhere))
    assert found <= moments.sensitivity * (1 + 1e-9)
    assert found >= 0.995 * moments.sensitivity


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("classes", KINDS)
def test_no_record_contributes_more_than_the_bound_and_one_at_the_norm_as_much(
    classes: int | None, balance: float
) -> None:
    moments = SecondMoments(FEATURES, NORM, classes, balance)
    rng = np.random.default_rng(1)
    labels = rng.uniform(-1, 1, size=500) if classes is None else rng.integers(classes, size=500)
    rows = [record(point) for point in rng.normal(scale=NORM, size=(500, FEATURES))]
    lengths = [float(np.linalg.norm(moments.of(row[None], labels[i : i + 1]))) for i, row in enumerate(rows)]
    assert max(lengths) <= moments.record_bound * (1 + 1e-12)
    furthest = moments.of(np.array([[NORM, 0.0]]), np.ones(1) if classes is None else np.ones(1, dtype=int))
    assert np.linalg.norm(furthest) == pytest.approx(moments.record_bound)


@pytest.mark.parametrize("classes", KINDS)
def test_what_is_split_again_are_the_second_moments(classes: int | None) -> None:
    """Over more records than are worked on at once."""
    moments = SecondMoments(FEATURES, NORM, classes, 0.7)
    rng = np.random.default_rng(2)
    features = rng.normal(size=(5000, FEATURES))
    labels = rng.uniform(-1, 1, size=5000) if classes is None else rng.integers(classes, size=5000)
    targets = labels[:, None] if classes is None else np.eye(classes)[labels] - 1 / classes
    vector = moments.of(features, labels)
    assert vector.shape == (moments.dimension,)
    second, mixed = moments.split(vector)
    np.testing.assert_allclose(second, features.T @ features / NORM**2)
    np.testing.assert_allclose(mixed, features.T @ targets / NORM, atol=1e-9)


@pytest.mark.parametrize("outputs", [1, 2, 10])
@pytest.mark.parametrize("largest", [1.0, math.sqrt(0.5), math.sqrt(0.9)])
@pytest.mark.parametrize("coefficients", [1e-6, 0.1, 1.0, 2.0, 100.0])
def test_no_balance_is_better_than_the_best(outputs: int, largest: float, coefficients: float) -> None:
    def loss(logarithm: float) -> float:
        squared = math.exp(2.0 * logarithm)
        return (1 + squared * largest**2 / 2) ** 2 * (outputs / squared + coefficients**2 / 2)

    best = best_balance(outputs, largest, coefficients)
    found = minimize_scalar(loss, bounds=(-10, 5), method="bounded", options={"xatol": 1e-10})
    assert loss(math.log(best)) <= found.fun * (1 + 1e-9)
    assert best == pytest.approx(math.exp(found.x), rel=1e-4)
    # The formula for the sensitivity that the loss uses is the right one there.
    assert (best * largest) ** 2 <= 2 * (1 + 1e-9)


def reshaped(records: np.ndarray, norm: float = 1.0) -> Reshaping:
    unit = records / norm
    return Reshaping.of(unit.mean(axis=0), float((unit**2).sum(axis=1).mean()), 0.0)


def test_reshaping_keeps_every_record_within_norm_1_and_linear_models_as_they_are() -> None:
    """Records far from the origin in one direction: what differs grows, and y = wᵀx still holds of what is left."""
    rng = np.random.default_rng(0)
    records = rng.normal(size=(500, 8)) * 0.1 + 0.3
    records /= np.linalg.norm(records, axis=1).max()
    map_ = reshaped(records)
    moved, factors = map_.apply(records)
    assert np.linalg.norm(moved, axis=1).max() <= 1.0 + 1e-12
    assert ((factors > 0.0) & (factors <= 1.0)).all()
    assert moved.var(axis=0).sum() > 2.0 * records.var(axis=0).sum()
    true = rng.normal(size=(8, 2))
    solved = np.linalg.lstsq(moved, (records @ true) * factors[:, None])[0]
    assert np.allclose(map_.undo(solved), true)
    again = Reshaping.from_parameters(map_.to_parameters())
    assert np.array_equal(again.axis, map_.axis)
    assert (again.shrinkage, again.length) == (map_.shrinkage, map_.length)


def test_reshaping_by_noise_alone_changes_nothing_but_the_length() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=30) * 0.01
    map_ = Reshaping.of(noise, 0.5, 0.01)
    assert map_.shrinkage > 0.5 or float(noise @ noise) < 30 * 0.01**2 * 2
    assert map_.length <= 1.0


def test_no_two_records_move_the_mean_and_square_by_more_than_2() -> None:
    """The sum of the records and of their squares: opposite records reach 2, and none goes beyond."""
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=(20_000, 3)) for _ in range(2))
    pairs = [
        rows * (rng.uniform(size=(20_000, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)) for rows in (one, other)
    ]
    values = [np.column_stack([rows, (rows**2).sum(axis=1)]) for rows in pairs]
    assert np.linalg.norm(values[0] - values[1], axis=1).max() <= 2.0
    edge = one / np.linalg.norm(one, axis=1, keepdims=True)
    assert np.linalg.norm(edge - -edge, axis=1).max() == pytest.approx(2.0)


@pytest.mark.parametrize("balance", [0.5, 1.0])
def test_reshaped_records_stay_within_the_sensitivity(balance: float) -> None:
    """Random pairs, at any length and with any label, through a reshaping that shrinks and stretches."""
    rng = np.random.default_rng(2)
    moments = SecondMoments(4, 1.0, None, balance)
    map_ = Reshaping(np.array([0.6, 0.8, 0.0, 0.0]), 0.2, 0.3)
    worst = 0.0
    for _ in range(3000):
        rows = rng.normal(size=(2, 4))
        rows *= (rng.uniform(0.2, 1.0, size=2) / np.linalg.norm(rows, axis=1))[:, None]
        if rng.uniform() < 0.5:
            rows[1] = -rows[0] + 0.3 * rng.normal(size=4)
            rows[1] /= max(1.0, float(np.linalg.norm(rows[1])))
        labels = rng.choice([-1.0, 1.0], size=2)
        one, other = (moments.of(rows[i : i + 1], labels[i : i + 1], map_) for i in range(2))
        worst = max(worst, float(np.linalg.norm(one - other)))
    assert 0.8 * moments.sensitivity < worst <= moments.sensitivity
