"""Labels spread to similar records: against scikit-learn's own, and where some of those told are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading

from unspoken.learners import label_spreading
from unspoken.learners.label_spreading import can_spread, spread_labels


def digits() -> tuple[np.ndarray, np.ndarray]:
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return features[order] / 16.0, labels[order]


def test_few_labels_reach_all_records() -> None:
    features, labels = digits()
    spread = spread_labels(features, np.eye(10)[labels[:100]])
    assert (spread == labels).mean() > 0.9


def test_wrong_labels_among_right_ones_are_outvoted() -> None:
    features, labels = digits()
    rng = np.random.default_rng(1)
    told = np.where(rng.random(600) < 0.3, rng.integers(0, 10, 600), labels[:600])
    assert (told == labels[:600]).mean() < 0.8
    assert (spread_labels(features, np.eye(10)[told])[:600] == labels[:600]).mean() > 0.93


def test_it_is_about_as_good_as_scikit_learn_s() -> None:
    features, labels = digits()
    told = np.where(np.arange(len(labels)) < 60, labels, -1)
    theirs = LabelSpreading(kernel="knn", n_neighbors=5, alpha=0.9, max_iter=100).fit(features, told).transduction_
    ours = spread_labels(features, np.eye(10)[labels[:60]])
    assert (ours == labels).mean() > (theirs == labels).mean() - 0.02


def test_a_single_label_is_everyone_s_and_too_few_records_are_refused() -> None:
    rng = np.random.default_rng(0)
    assert not can_spread(label_spreading._NEIGHBOURS)
    assert can_spread(label_spreading._NEIGHBOURS + 1)
    with pytest.raises(ValueError, match="more than 5 records"):
        spread_labels(rng.normal(size=(5, 2)), np.eye(3)[[1]])
    assert set(spread_labels(rng.normal(size=(11, 2)), np.eye(3)[[1, 1]]).tolist()) == {1}


def test_noisy_totals_say_more_than_their_winners() -> None:
    features, labels = digits()
    noisy = 60.0 * np.eye(10)[labels[:600]] + np.random.default_rng(0).normal(scale=40.0, size=(600, 10))
    by_totals, by_winners = (
        float((spread_labels(features, known) == labels).mean()) for known in (noisy, np.eye(10)[noisy.argmax(axis=1)])
    )
    assert by_totals > by_winners + 0.05


def test_what_speaks_for_all_classes_alike_says_nothing() -> None:
    """Such as how many parties did not abstain."""
    features, labels = digits()
    known = np.eye(10)[labels[:100]]
    offsets = np.random.default_rng(0).choice([0.0, 64.0], size=(100, 1))
    assert np.array_equal(spread_labels(features, known + offsets), spread_labels(features, known))
