"""A party's own softmax regression, and a student's, is as good whatever norm the study allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.methods.classifiers import VOTER, Classifier, ClassifierError, SoftmaxClassifier, make_classifier


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_norm_that_bounds_nothing_spoils_no_model(scale: float) -> None:
    features, labels = load_digits(return_X_y=True)
    features = features * scale
    largest = float(np.linalg.norm(features, axis=1).max())
    found = []
    for norm in (largest, 1e6):
        classifier = SoftmaxClassifier(LinearLearner(CrossEntropy(10), norm, 0.001 * scale**2))
        fitted = classifier.fit(features[:50], labels[:50])
        found.append(classifier.predict(fitted, features[500:]))
    assert (found[0] == found[1]).mean() > 0.995


def test_records_that_are_all_nothing_can_be_learnt_from() -> None:
    classifier = SoftmaxClassifier(LinearLearner(CrossEntropy(3), 1e6, 0.01))
    fitted = classifier.fit(np.zeros((4, 2)), np.array([0, 1, 1, 2]))
    assert np.isfinite(fitted).all()


def made(name: str, **how: Any) -> Classifier:
    softmax = LinearLearner(CrossEntropy(10), 1.0, 0.001)
    return make_classifier(name, softmax, 64, 10, (), replace(VOTER, **how))


def test_a_perceptron_learns_from_few_clipped_records_with_its_defaults() -> None:
    """Steps of a fixed size are far too short for records of norm 1; Adam's do not depend on their scale."""
    features, labels = load_digits(return_X_y=True)
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    shares = {}
    for name, how in (("softmax", {}), ("mlp", {}), ("mlp", {"optimizer": "sgd"})):
        classifier = made(name, **how)
        predicted = classifier.predict(classifier.fit(features[:70], labels[:70]), features[500:])
        shares[name, *how] = float((predicted == labels[500:]).mean())
    assert shares["mlp",] > shares["softmax",] - 0.1 > 0.5
    assert shares["mlp", "optimizer"] < 0.5


def test_arguments_reach_a_classifier_of_scikit_learn() -> None:
    features, labels = load_digits(return_X_y=True)
    one = made("sklearn.neighbors:KNeighborsClassifier", arguments={"n_neighbors": 1})
    fitted = one.fit(features[:300], labels[:300])
    assert fitted.n_neighbors == 1
    assert (one.predict(fitted, features[:300]) == labels[:300]).all()


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("sklearn.svm:SVC", {"Cc": 1.0}, "cannot be made with Cc .*unexpected keyword argument"),
        ("softmax", {"C": 1.0}, "takes no arguments: they are for scikit-learn's classifiers; remove them"),
        ("mlp", {"C": 1.0}, "takes no arguments"),
        ("beside:Module", {}, "cannot be imported here .*name its folder in PYTHONPATH"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_sentence(name: str, arguments: Any, problem: str) -> None:
    with pytest.raises(ClassifierError, match=problem):
        made(name, arguments=arguments)


@pytest.mark.parametrize("line", ["1 / 0", "import sys; sys.exit(1)", "def ("])
def test_a_file_that_fails_when_it_is_imported_is_told_in_a_sentence(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_voters.py").write_text(line, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ClassifierError, match=r'cannot be imported here .*, or use one of: "softmax"'):
        made("failing_voters:Voter")
