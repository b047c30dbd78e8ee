"""Softmax regression in steps: no record moves a turn's sum by more than 2C, and the noise in a score is as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.learners.softmax_steps import SoftmaxSteps

CLIP = 0.25
MODEL = SoftmaxSteps(features=5, classes=3, steps=8, clip=CLIP, score_noise=0.7)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1e-13, 1e-3, 1.0, 1e6]))
def test_no_record_moves_a_sum_by_more_than_twice_the_clip(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(6, 5)), rng.integers(0, 3, 6)
    other, relabelled = features.copy(), labels.copy()
    other[0], relabelled[0] = rng.normal(size=5) * scale, rng.integers(0, 3)
    axis, weights = rng.normal(size=5), rng.normal(size=(5, 3)) * 10.0
    axis /= np.linalg.norm(axis)
    first = MODEL.mean(features) - MODEL.mean(other)
    later = MODEL.gradient(axis, weights, features, labels) - MODEL.gradient(axis, weights, other, relabelled)
    assert max(np.linalg.norm(first), np.linalg.norm(later)) <= 2.0 * CLIP * (1.0 + 1e-12)


def test_opposite_records_move_the_sums_as_far_as_stated() -> None:
    ends = [np.array([[sign, 0.0, 0.0, 0.0, 0.0]]) for sign in (1.0, -1.0)]
    means = [MODEL.mean(end) for end in ends]
    slopes = [MODEL.gradient(np.zeros(5), np.zeros((5, 3)), end, np.array([1])) for end in ends]
    for one, other in (means, slopes):
        assert np.linalg.norm(one - other) == pytest.approx(2.0 * CLIP)


def test_the_noise_of_all_steps_is_the_stated_one_in_each_weight() -> None:
    sizes = MODEL.step_sizes(noise=40.0, records=1000)
    assert len(sizes) == MODEL.steps
    assert math.sqrt(float(sizes @ sizes)) * 40.0 == pytest.approx(0.7)
    assert (np.diff(sizes) < 0.0).all()


@pytest.mark.parametrize("noise", [0.0, 1e-12])
def test_without_noise_steps_stay_finite(noise: float) -> None:
    assert np.isfinite(MODEL.step_sizes(noise, records=1000)).all()


def test_the_axis_is_the_mean_s_and_vanishes_in_noise() -> None:
    mean = np.array([3.0, 0.0, 4.0, 0.0, 0.0])
    axis = MODEL.axis(mean * CLIP * 1000, noise=1e-6, records=5000)
    assert axis / np.linalg.norm(axis) == pytest.approx(mean / 5.0)
    assert 0.5 < np.linalg.norm(axis) < 1.0
    assert np.linalg.norm(MODEL.axis(mean, noise=10.0, records=5000)) == 0.0
