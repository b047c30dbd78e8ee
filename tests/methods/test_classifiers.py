"""Classifiers of parties and students: as good whatever norm the study allows; those of others harm no other party."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from factories import make
from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.methods.classifiers import VOTER, Classifier, ClassifierError, SoftmaxClassifier, make_classifier
from unspoken.methods.registry import method_for


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
        ("sklearn.linear_model:LinearRegression", {}, r"predicts -?[0-9.]+, but should predict one of the classes"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_sentence(name: str, arguments: Any, problem: str) -> None:
    with pytest.raises(ClassifierError, match=problem):
        made(name, arguments=arguments)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sklearn.cluster:KMeans", "clusterer"),
        ("sklearn.ensemble:IsolationForest", "outlier_detector"),
        ("sklearn.tree:DecisionTreeRegressor", "regressor"),
    ],
)
def test_what_only_predicts_numbers_like_those_of_classes_is_refused(name: str, kind: str) -> None:
    with pytest.raises(ClassifierError, match=f'says that it is of the kind "{kind}", .*; name a classifier'):
        made(name)


@pytest.mark.parametrize("line", ["1 / 0", "import sys; sys.exit(1)", "def ("])
def test_a_file_that_fails_when_it_is_imported_is_told_in_a_sentence(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_voters.py").write_text(line, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ClassifierError, match=r'cannot be imported here .*, or use one of: "softmax"'):
        made("failing_voters:Voter")


class ScaledInPlace(Pipeline):
    """It scales the rows that it is given, not a copy, to save memory."""

    def __init__(self) -> None:
        super().__init__([("scale", StandardScaler(copy=False)), ("vote", KNeighborsClassifier(1))])


class MovesEverything:
    """It changes all that it is given."""

    def fit(self, features: Any, labels: Any, public: Any = None) -> MovesEverything:
        self._mean = features.mean(axis=0)
        public -= self._mean
        features[:], labels[:] = 0.0, 0
        return self

    def predict(self, features: Any) -> Any:
        features -= self._mean
        return (features[:, 0] > 0.0).astype(int)


class WrongShape:
    """It does not predict one class for each query if some record is large."""

    def fit(self, features: Any, labels: Any) -> WrongShape:
        self._large = features.max() > 1.0
        return self

    def predict(self, features: Any) -> Any:
        return np.zeros((len(features), 3) if self._large else len(features), dtype=int)


class Table(WrongShape):
    """It never does."""

    def fit(self, features: Any, labels: Any) -> Table:
        self._large = True
        return self


def voters(folder: Path, name: str, kind: type) -> Any:
    """A method with public records whose parties vote by a classifier of this kind."""
    np.savez(folder / "public.npz", X=np.random.default_rng(0).uniform(-1.0, 1.0, size=(20, 2)))
    keys = {"public": str(folder / "public.npz"), "model": f"{__name__}:{kind.__name__}"}
    data = {"features": 2, "classes": 3, "norm": 50.0}
    return method_for(make(data=data, parties={"count": 2, "records": 4}, unit="party", method={"name": name, **keys}))


def asked(method: Any) -> Any:
    return method.request if hasattr(method, "request") else next(method.coordinate(method.plan()))


@pytest.mark.parametrize("kind", [ScaledInPlace, MovesEverything])
@pytest.mark.parametrize("name", ["voting", "multiparty"])
def test_a_voter_that_changes_its_rows_in_place_changes_no_other_party_s(name: str, kind: type, tmp_path: Path) -> None:
    """Nor the public records, by which the released model is trained: its sensitivity does not cover them."""
    method, found = voters(tmp_path, name, kind), []
    first = np.random.default_rng(1).uniform(-1.0, 1.0, size=(2, 4, 2))
    public = (method._public if name == "voting" else method.public).copy()
    labels = np.tile([0, 1, 2, 0], (2, 1))
    for far in (0.0, 20.0):
        rows = first + np.array([far, 0.0])[:, None, None]
        before = rows.copy()
        found.append(method.contribute(asked(method), Block(rows, labels, np.array([4, 4]))).noisy)
        assert (rows == before).all()
    assert (found[0][0] != found[1][0]).any()
    assert (found[0][1] == found[1][1]).all()
    assert ((method._public if name == "voting" else method.public) == public).all()


@pytest.mark.parametrize("name", ["voting", "multiparty"])
def test_a_voter_whose_predictions_do_not_fit_some_records_abstains_unseen(name: str, tmp_path: Path) -> None:
    method = voters(tmp_path, name, WrongShape)
    rows = np.stack([np.full((4, 2), 0.5), np.full((4, 2), 2.0)])
    votes = method.contribute(asked(method), Block(rows, np.tile([0, 1, 2, 0], (2, 1)), np.array([4, 4]))).noisy
    assert (votes[0].reshape(-1, 3)[:, 0] == 1.0).all()
    assert (votes[1].reshape(-1, 3)[:, 0] == (0.0 if name == "voting" else 1.0)).all()
    with pytest.raises(ClassifierError, match=r"predicts an array of shape \(30, 3\) for 30 records, but should"):
        make_classifier(f"{__name__}:Table", LinearLearner(CrossEntropy(3), 1.0, 0.001), 2, 3, (), VOTER)


class Exits(WrongShape):
    """It ends the program if some record is large."""

    def fit(self, features: Any, labels: Any) -> Exits:
        if features.max() > 1.0:
            sys.exit("a large record")
        return super().fit(features, labels)


class Forgetful(WrongShape):
    """Its fit does not end with "return self"."""

    def fit(self, features: Any, labels: Any) -> None:  # type: ignore[override]
        super().fit(features, labels)


@pytest.mark.parametrize("name", ["voting", "multiparty"])
def test_a_voter_that_ends_the_program_at_some_records_abstains_unseen(name: str, tmp_path: Path) -> None:
    method = voters(tmp_path, name, Exits)
    rows = np.stack([np.full((4, 2), 0.5), np.full((4, 2), 2.0)])
    votes = method.contribute(asked(method), Block(rows, np.tile([0, 1, 2, 0], (2, 1)), np.array([4, 4]))).noisy
    assert (votes[1].reshape(-1, 3)[:, 0] == (0.0 if name == "voting" else 1.0)).all()


def test_a_voter_whose_fit_gives_nothing_back_is_fitted_all_the_same(tmp_path: Path) -> None:
    method = voters(tmp_path, "voting", Forgetful)
    block = Block(np.full((1, 4, 2), 0.5), np.array([[0, 1, 2, 0]]), np.array([4]))
    assert (method.contribute(method.request, block).noisy.reshape(-1, 3)[:, 0] == 1.0).all()


ready = KNeighborsClassifier(1)


def test_an_object_in_place_of_a_class_is_told_what_it_should_be() -> None:
    with pytest.raises(ClassifierError, match="is an object, a KNeighborsClassifier, but should be its class"):
        made(f"{__name__}:ready")
