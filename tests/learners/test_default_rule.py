"""The default rule: what it chooses from public facts, and that its maps and steps are what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unspoken.learners.default_rule import MOST_WHITENED, DefaultRule


def rule(signal: float, features: int = 20, classes: int | None = 3) -> DefaultRule:
    return DefaultRule(features, classes, signal)


def test_records_are_whitened_from_a_signal_on_that_grows_with_the_features() -> None:
    least = 0.25 * 20**1.5
    assert not rule(least * 0.99).whitens
    assert rule(least * 1.01).whitens
    assert not rule(1e9, MOST_WHITENED + 1).whitens
    assert not DefaultRule(20, 3, 1e9, is_mapped=True).whitens


def test_with_less_noise_there_are_more_steps_and_a_study_may_name_them() -> None:
    assert [rule(signal).steps for signal in (500.0, 1000.0)] == [8, 16]
    assert [DefaultRule(20, 3, signal, is_mapped=True).steps for signal in (1.0, 1000.0)] == [8, 16]
    # Without whitening, twice as many.
    assert [rule(signal, 1280, 10).steps for signal in (1.0, 8000.0, 9000.0)] == [16, 16, 32]
    assert DefaultRule(20, 3, 1e9, given_steps=5).steps == 5


def test_a_regression_takes_steps_where_they_pay_and_one_sum_elsewhere() -> None:
    assert [rule(signal, 20, None).takes_steps for signal in (49.0, 51.0)] == [False, True]
    assert [rule(signal, 100, None).takes_steps for signal in (249.0, 251.0)] == [False, True]
    assert not rule(1e9, MOST_WHITENED + 1, None).takes_steps
    clips = [rule(signal, 20, None).clip for signal in (51.0, 4e3, 1e6)]
    assert clips[0] == 1.0 < clips[1] < clips[2] == 4.0


@pytest.mark.parametrize(
    ("chosen", "settings"),
    [
        pytest.param(rule(500.0), (8, 0.35, 1.0, (0.05, 0.05)), id="whitened"),
        pytest.param(DefaultRule(20, 3, 500.0, is_mapped=True), (8, 0.3, 0.85, (0.0, 0.0)), id="mapped"),
        pytest.param(rule(710.0, 1280, 10), (16, 0.25, 0.7, (0.1, 0.0)), id="neither, under much noise"),
        pytest.param(rule(720.0, 1280, 10), (16, 0.25, 0.7, (0.05, 0.0)), id="neither"),
        pytest.param(rule(2560.0, 16, None), (8, 2.0, 0.5, (0.2, 0.1)), id="regression"),
    ],
)
def test_the_settings_are_those_that_were_measured(chosen: DefaultRule, settings: tuple[object, ...]) -> None:
    assert (chosen.steps, chosen.clip, chosen.score_noise, chosen.shares) == settings


@pytest.mark.parametrize("classes", [2, None])
@pytest.mark.parametrize("signal", [1.0, 100.0, 1e4])
def test_the_turns_before_the_steps_leave_most_of_the_budget(classes: int | None, signal: float) -> None:
    scale, spread = rule(signal, 20, classes).shares
    assert 0.05 <= scale <= 0.2
    if rule(signal, 20, classes).takes_steps:
        assert (spread > 0.0) == rule(signal, 20, classes).whitens
    assert scale + spread < 0.31


def test_the_noise_of_all_steps_is_that_of_the_scores_unless_steps_would_overshoot() -> None:
    chosen = rule(1000.0)
    sizes = chosen.step_sizes(13.0, 10**4, curvature=0.05)
    assert len(sizes) == chosen.steps == 16
    assert (np.diff(sizes) < 0.0).all()
    assert math.sqrt(float(((sizes * 13.0) ** 2).sum())) == pytest.approx(1.0)
    for noise in (1e-6, 0.0):
        assert chosen.step_sizes(noise, 10**4, curvature=0.05).max() == pytest.approx(8.0 * 3 / (0.05 * 10**4))
        # Of squares, the curvature is λn at every prediction.
        squares = rule(1000.0, classes=None).step_sizes(noise, 10**4, curvature=0.05)
        assert squares.max() == pytest.approx(1.0 / (0.05 * 10**4))


def test_the_first_map_leaves_a_twentieth_of_what_records_have_in_common_and_doubles_the_rest() -> None:
    """Records of mean square 1, of which 0.64 are common; a record of half the rest's length gets length 1."""
    first = rule(1000.0, 3).first_map(np.array([0.8, 0.0, 0.0]), 1.0, 0.0)
    common, rest = first.moved(np.array([[0.8, 0.0, 0.0], [0.0, math.sqrt(0.36), 0.0]]))
    assert rest @ rest == pytest.approx(2.0**2)
    assert common @ common == pytest.approx(0.05 * 2.0**2)


def test_without_noise_whitened_records_are_as_long_in_every_direction() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 5)) * [1.0, 0.5, 0.3, 0.2, 0.1] + [0.0, 0.0, 2.0, 0.0, 0.0]
    features /= np.linalg.norm(features, axis=1).max()
    chosen = rule(1e6, 5)
    first = chosen.first_map(features.mean(axis=0), float((features**2).sum(axis=1).mean()), 0.0)
    rows, _ = first.apply(features)
    found = chosen.whitened(first, rows.T @ rows / len(rows), 0.0)
    # Before the second clipping, of rows that were clipped once.
    white = rows @ np.linalg.inv(_matrix(first)).T @ found.matrix.T
    spread = np.linalg.eigvalsh(white.T @ white / len(white))
    assert spread == pytest.approx(np.full(5, 0.81 / 5), rel=1e-3)
    assert found.curvature == pytest.approx(0.81 / 5, rel=1e-3)
    mapped, factors = found.apply(features)
    assert np.linalg.norm(mapped, axis=1).max() <= 1.0 + 1e-12
    np.testing.assert_allclose(mapped / factors[:, None] @ np.ones((5, 2)), features @ found.undo(np.ones((5, 2))))


def _matrix(first: object) -> np.ndarray:
    moved: np.ndarray = first.moved(np.eye(5)).T  # type: ignore[attr-defined]
    return moved


def test_directions_that_are_nothing_but_noise_are_not_blown_up() -> None:
    rng = np.random.default_rng(0)
    chosen, second = rule(1e6, 10), np.diag([0.5, 0.2, *np.zeros(8)])
    noise = np.triu(rng.normal(size=(10, 10)), 1) * 0.01
    first = chosen.first_map(np.zeros(10), 1.0, 0.0)
    lengths = np.linalg.norm(chosen.whitened(first, second + noise + noise.T, 0.01).matrix, axis=0)
    assert lengths[2:].max() < 10.0 * lengths[0]


def test_the_deviation_of_labels_is_rather_taken_too_small() -> None:
    chosen = rule(1e3, 5, None)
    assert chosen.label_scale(0.5, 0.34, 0.0) == pytest.approx(0.3)
    assert chosen.label_scale(0.5, 0.34, 0.02) == pytest.approx(math.sqrt(0.05))
    assert chosen.label_scale(0.0, -5.0, 1.0) == pytest.approx(0.2)
    assert chosen.label_scale(9.0, 100.0, 0.0) == 1.0
    assert chosen.label_scale(0.0, 0.0, 0.0) == pytest.approx(1e-3)


@pytest.mark.parametrize(("features", "signal"), [(5, 0.1), (5, 1e5), (1000, 1e9)])
@pytest.mark.parametrize("classes", [None, 2])
def test_it_says_what_it_chose_and_why(features: int, signal: float, classes: int | None) -> None:
    chosen = rule(signal, features, classes)
    assert chosen.sentence.startswith("chosen by rule: ")
    assert (f"{chosen.steps} steps" in chosen.sentence) == chosen.takes_steps
    assert ("too many to send" in chosen.sentence) == (features == 1000)
