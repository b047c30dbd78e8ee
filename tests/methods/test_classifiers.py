"""A party's own softmax regression, and a student's, is as good whatever norm the study allows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.methods.classifiers import SoftmaxRegression


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_norm_that_bounds_nothing_spoils_no_model(scale: float) -> None:
    features, labels = load_digits(return_X_y=True)
    features = features * scale
    largest = float(np.linalg.norm(features, axis=1).max())
    found = []
    for norm in (largest, 1e6):
        classifier = SoftmaxRegression(LinearLearner(CrossEntropy(10), norm, 0.001 * scale**2))
        fitted = classifier.fit(features[:50], labels[:50])
        found.append(classifier.predict(fitted, features[500:]))
    assert (found[0] == found[1]).mean() > 0.995


def test_records_that_are_all_nothing_can_be_learnt_from() -> None:
    classifier = SoftmaxRegression(LinearLearner(CrossEntropy(3), 1e6, 0.01))
    fitted = classifier.fit(np.zeros((4, 2)), np.array([0, 1, 1, 2]))
    assert np.isfinite(fitted).all()
