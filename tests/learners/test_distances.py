"""How long minimisers can be, and how far one record moves them: bounds that nothing exceeds, and that are reached."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.data.block import Block
from unspoken.learners import distances
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy, HuberSVM, Logistic, Loss, SoftLabelLoss

STRENGTHS = (0.01, 0.1, 1.0)
LOSSES: list[Loss] = [Logistic(2), Logistic(4), HuberSVM(2, 0.1), HuberSVM(4, 0.6), HuberSVM(2, 3.0)]
LOSSES += [CrossEntropy(classes) for classes in (2, 3, 10)]
EACH = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{type(loss).__name__}-{loss.classes}")
MIRRORED: list[Loss] = [Logistic(2), Logistic(4), HuberSVM(2, 3.0), CrossEntropy(2)]


def fitted(loss: Loss, strength: float, features: np.ndarray, labels: np.ndarray, norm: float = 1.0) -> np.ndarray:
    learner = LinearLearner(loss, norm, strength)
    return learner.fit(Block(features[None], labels[None], np.array([len(labels)])))[0]


@pytest.mark.parametrize(
    ("loss", "ratios"),
    [
        (Logistic(2), (0.053, 0.167, 0.401)),
        (Logistic(7), (0.053, 0.167, 0.401)),
        (CrossEntropy(10), (0.074, 0.235, 0.588)),
        (HuberSVM(2, 0.1), (0.095, 0.300, 0.949)),
    ],
)
def test_a_minimiser_is_so_much_shorter_than_slopes_alone_would_allow(loss: Loss, ratios: tuple[float, ...]) -> None:
    found = [loss.longest(strength, 1.0) * strength / loss.slope_norm for strength in STRENGTHS]
    assert found == pytest.approx(ratios, abs=6e-4)


@pytest.mark.parametrize(
    ("loss", "ratios"),
    [
        (Logistic(2), (0.818, 0.607, 0.510)),
        (Logistic(7), (0.818, 0.607, 0.510)),
        (CrossEntropy(2), (0.874, 0.664, 0.525)),
        (CrossEntropy(10), (0.951, 0.790, 0.677)),
        (CrossEntropy(100), (0.971, 0.750, 0.704)),
        (HuberSVM(2, 0.1), (1.0, 1.0, 1.0)),
    ],
)
def test_a_record_moves_a_minimiser_by_so_much_less_than_slopes_alone_would(
    loss: Loss, ratios: tuple[float, ...]
) -> None:
    found = [loss.distance(strength, 1.0) / (2.0 * loss.slope_norm) for strength in STRENGTHS]
    assert found == pytest.approx(ratios, abs=6e-4)


@EACH
@pytest.mark.parametrize("strength", [1e-6, 0.03, 5.0])
def test_bounds_follow_the_units_of_records_and_never_exceed_those_of_the_slopes(loss: Loss, strength: float) -> None:
    assert loss.longest(strength, 3.0) == pytest.approx(loss.longest(strength / 9.0, 1.0) / 3.0)
    assert loss.distance(strength, 3.0) == pytest.approx(3.0 * loss.distance(strength / 9.0, 1.0))
    assert loss.longest(strength, 1.0) <= loss.slope_norm / strength
    assert loss.distance(strength, 1.0) <= 2.0 * loss.slope_norm


def test_a_loss_that_says_nothing_has_the_bounds_of_its_slopes() -> None:
    loss = SoftLabelLoss(4, CrossEntropy(4))
    assert loss.longest(0.1, 2.0) == pytest.approx(math.sqrt(2.0) * 2.0 / 0.1)
    assert loss.distance(0.1, 2.0) == pytest.approx(2.0 * math.sqrt(2.0) * 2.0)


@EACH
@pytest.mark.parametrize("strength", STRENGTHS)
def test_copies_of_one_record_make_a_minimiser_as_long_as_stated(loss: Loss, strength: float) -> None:
    longest = loss.longest(strength, 1.0)
    reached = 0.0
    for length in np.minimum(best_length(loss, longest) * np.array([0.9995, 1.0, 1.0005]), 1.0):
        features = np.zeros((3, 2))
        features[:, 0] = length
        # A far larger norm, so that nothing is projected onto the ball.
        reached = max(reached, float(np.linalg.norm(fitted(loss, strength, features, np.zeros(3, dtype=int), 10.0))))
    assert reached <= longest * (1.0 + 1e-6)
    assert reached >= longest * (1.0 - 1e-3)


def best_length(loss: Loss, longest: float) -> float:
    """The length of the record that makes the longest minimiser: its pull there no longer grows."""
    lengths = np.linspace(0.0, 1.0, 10_001)[1:]
    pulls = np.array([loss.pull(length * longest) for length in lengths])
    return float(lengths[np.argmax(pulls >= pulls.max() * (1.0 - 1e-12))])


@pytest.mark.parametrize("loss", MIRRORED, ids=lambda loss: f"{type(loss).__name__}-{loss.classes}")
@pytest.mark.parametrize("strength", [pytest.param(0.03, marks=pytest.mark.long), 0.1])
def test_a_pair_mirrored_at_a_crowd_moves_a_minimiser_nearly_as_far_as_stated(loss: Loss, strength: float) -> None:
    """Both records lie on the model's wrong side, at the best angle; the more records there are, the nearer it is."""
    records, moved = 3_000, []
    longest = loss.longest(strength, 1.0)
    for angle in np.linspace(0.2, 1.0, 7):
        features = np.zeros((records, 2))
        features[:, 0] = best_length(loss, longest)
        models = []
        for side in (1.0, -1.0):
            features[0] = [-math.sin(angle), side * math.cos(angle)]
            models.append(fitted(loss, strength, features, np.zeros(records, dtype=int)))
        moved.append(records * strength * float(np.linalg.norm(models[0] - models[1])))
    stated = loss.distance(strength, 1.0)
    assert max(moved) <= stated
    assert max(moved) >= 0.97 * stated


def gradients_apart(loss: Loss, weights: np.ndarray, records: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The distances of two records' gradients, for many models (n, outputs, d), pairs (n, 2, d) and labels (n, 2)."""
    slopes = loss.slopes(np.einsum("nkd,npd->npk", weights, records), loss.targets(labels))
    gradients = slopes[:, :, :, None] * records[:, :, None, :]
    return np.linalg.norm((gradients[:, 0] - gradients[:, 1]).reshape(len(labels), -1), axis=1)


def climb(loss: Loss, reach: float, seed: int) -> float:
    """The largest distance that a hill climb finds for models of norm `reach` and records of norm at most 1."""
    rng = np.random.default_rng(seed)
    count, features = 400, 3
    weights = rng.normal(size=(count, loss.outputs, features))
    records = rng.normal(size=(count, 2, features))
    labels = rng.integers(0, loss.classes, (count, 2))
    labels[::2, 1] = labels[::2, 0]
    best, scale = np.zeros(count), 1.0
    for _ in range(150):
        moved = weights + scale * rng.normal(size=weights.shape)
        moved *= reach / np.linalg.norm(moved.reshape(count, -1), axis=1)[:, None, None]
        shifted = records + scale / reach * rng.normal(size=records.shape)
        shifted /= np.maximum(np.linalg.norm(shifted, axis=2, keepdims=True), 1.0)
        found = gradients_apart(loss, moved, shifted, labels)
        better = found > best
        best[better], weights[better], records[better] = found[better], moved[better], shifted[better]
        scale *= 0.975
    return float(best.max())


@EACH
@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_no_search_finds_gradients_further_apart_than_stated(loss: Loss, strength: float) -> None:
    reach = loss.longest(strength, 1.0)
    found = climb(loss, reach, seed=0) / loss.distance(strength, 1.0)
    assert found <= 1.0
    assert found >= 0.8


@given(
    seed=st.integers(0, 2**32 - 1),
    classes=st.sampled_from([3, 4, 10, 100]),
    reach=st.sampled_from([0.3, 1.0, 3.0, 6.0, 20.0]),
)
def test_a_pair_of_records_lies_within_the_bound_for_its_own_angles(seed: int, classes: int, reach: float) -> None:
    """Random pairs at one angle, with two directions of scores in which one or two classes stand out."""
    rng = np.random.default_rng(seed)
    angles = np.array([rng.uniform(0.0, math.pi / 4.0), rng.uniform(0.0, math.pi / 2.0)])
    angles = np.where(rng.random(2) < 0.3, [0.0, math.pi / 2.0 * rng.integers(2)], angles)
    low = angles[None] * np.where(rng.random(2) < 0.5, 1.0, rng.random(2))
    bound = math.sqrt(distances._Pair(classes, reach, low, angles[None]).squared_distance()[0])
    turn = 0.0 if rng.random() < 0.5 else math.pi / 2.0
    found = 0.0
    g, o = angles
    for _ in range(20):
        first, second = (outstanding(rng, classes) for _ in range(2))
        weights = reach * np.stack([first * math.sin(o), second * math.cos(o)], axis=1)
        records = np.array([[math.cos(g), math.sin(g)], [-math.cos(g), math.sin(g)]])
        records = records if turn == 0.0 else records * [[1.0, 1.0], [-1.0, -1.0]]
        labels = rng.integers(0, min(classes, 3), 2)
        found = max(found, float(gradients_apart(CrossEntropy(classes), weights[None], records[None], labels[None])[0]))
    assert found <= bound * (1.0 + 1e-12)


def outstanding(rng: np.random.Generator, classes: int) -> np.ndarray:
    """A centred vector of norm 1, most of it in the first few classes."""
    scores = rng.normal(size=classes) * np.where(np.arange(classes) < 3, 1.0, rng.choice([0.0, 0.1, 1.0]))
    scores -= scores.mean()
    return scores / np.linalg.norm(scores)


def test_a_certified_maximum_is_above_the_maximum_and_close_to_it() -> None:
    def bound(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.exp(-2.0 * low[:, 0]) * np.sin(high[:, 1]) * high[:, 0]

    exact = math.exp(-1.0) / 2.0
    assert exact <= distances.largest(bound, (3.0, math.pi / 2.0), 4) <= exact * (1.0 + 2e-4)
