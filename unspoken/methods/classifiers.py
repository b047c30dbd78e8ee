"""Classifiers that parties train to vote, or a student to be released: ours, scikit-learn's, or torch modules.

All kinds have one interface (`Classifier`): how it learns from records, and what is released if it is the student.
"""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.errors import UnspokenError, first_line
from unspoken.learners.linear import LinearLearner
from unspoken.methods.releases import FittedEstimator, LinearModel, Release, TorchWeights
from unspoken.plugins import NotImportable, imported
from unspoken.study import Study
from unspoken.types import Floats, Integers

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel

_MODULES = ("linear", "mlp", "cnn")
_STEPS = {"adam": 0.01, "sgd": 0.1}
_LOOSENESS = 100.0
"""The factor on a certified minimiser's tolerance: it changes no predicted class and halves the time."""


_MADE_UP = 10
"""The number of made-up records of each class for trying out a classifier"""


class ClassifierError(UnspokenError):
    """A classifier that cannot be trained here; `problem` says why and continues the classifier's name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the classifier {name!r} {problem}.")
        self.problem = problem


Arguments = dict[str, bool | int | float | str]
"""Arguments of a scikit-learn classifier"""
ARGUMENTS = "a table of arguments for a scikit-learn classifier, such as { C = 10.0 }"


@dataclass(frozen=True)
class ClassifierSettings:
    """Settings for training a torch module."""

    epochs: int
    batch: int
    rate: float | None
    """None: what suits the optimizer"""
    seed: int
    optimizer: str = "sgd"
    arguments: Arguments = field(default_factory=dict)
    """Of a scikit-learn classifier, in place of its defaults"""

    @property
    def step(self) -> float:
        """The step size; by default what suits the optimizer. Adam's steps do not depend on the scale of the records,
        those of plain SGD do."""
        return self.rate if self.rate is not None else _STEPS[self.optimizer]


VOTER = ClassifierSettings(30, 20, None, 0, "adam")
"""Of a voter, where a study does not say"""


class Classifier(ABC):
    """Learns from labelled records and predicts the classes of others."""

    @abstractmethod
    def fit(self, features: Floats, labels: Integers, public: Floats | None = None) -> Any:
        """A fitted model, which `predict` takes; it may look at the public records, which have no labels."""

    @abstractmethod
    def predict(self, fitted: Any, features: Floats) -> Integers: ...

    @abstractmethod
    def taught(
        self, study: Study, records: Floats, labels: Integers, details: dict[str, Any], public: Floats | None = None
    ) -> Release:
        """The release of a student that learns from public records and their class numbers.

        `public` are all public records; both come unclipped.
        """


class SoftmaxClassifier(Classifier):
    """Regularised softmax regression: weights, one row a class.

    The tolerance of a certified minimiser is proportional to the bound on record norms. No guarantee depends on it
    here, so the largest norm among the records at hand is used instead of the study's bound, which may be a million.
    """

    def __init__(self, learner: LinearLearner) -> None:
        self._learner = learner

    def fit(self, features: Floats, labels: Integers, public: Floats | None = None) -> Floats:
        largest = math.sqrt(float(np.einsum("ij,ij->i", features, features).max(initial=0.0)))
        learner = replace(self._learner, norm=min(self._learner.norm, _LOOSENESS * largest or 1.0))
        weights: Floats = learner.fit(Block(features[None], labels[None], np.array([len(labels)])))[0]
        return weights

    def predict(self, fitted: Any, features: Floats) -> Integers:
        predicted: Integers = (features @ fitted.T).argmax(axis=1)
        return predicted

    def taught(
        self, study: Study, records: Floats, labels: Integers, details: dict[str, Any], public: Floats | None = None
    ) -> Release:
        return LinearModel(self.fit(clip_rows(records, study.data), labels), "softmax", details)


class ScikitClassifier(Classifier):
    """A scikit-learn classifier with a public seed: the same records give the same model.

    One whose `fit` has an argument `public` gets the public records, too, and may adapt to them. It gets copies only: a
    classifier may change its arrays in place (`StandardScaler(copy=False)` does), and public records and queries are
    also those of the next party and of the student.
    """

    def __init__(self, name: str, kind: type, how: ClassifierSettings) -> None:
        self._name, self._kind, self._seed, self._arguments = name, kind, how.seed, how.arguments

    def fit(self, features: Floats, labels: Integers, public: Floats | None = None) -> Any:
        # Many classifiers refuse to learn from a single class.
        if len(np.unique(labels)) == 1:
            return labels[:1]
        made: Any = self._kind(**self._arguments)
        seeded = hasattr(made, "get_params") and "random_state" in made.get_params()
        if seeded and "random_state" not in self._arguments:
            made.set_params(random_state=self._seed)
        if public is not None and "public" in inspect.signature(made.fit).parameters:
            return made.fit(features.copy(), labels.copy(), public=public.copy())
        return made.fit(features.copy(), labels.copy())

    def predict(self, fitted: Any, features: Floats) -> Integers:
        if isinstance(fitted, np.ndarray):
            return np.repeat(fitted, len(features))
        return np.asarray(fitted.predict(features.copy()), dtype=np.int64)

    def taught(
        self, study: Study, records: Floats, labels: Integers, details: dict[str, Any], public: Floats | None = None
    ) -> Release:
        """It learns class names from unclipped records: they are public, so nothing need be clipped."""
        if len(np.unique(labels)) == 1:
            problem = 'cannot learn, as all queries have the same label; use "softmax", or raise epsilon'
            raise ClassifierError(self._name, problem)
        return FittedEstimator(self.fit(records, np.array(study.data.class_names)[labels], public), details)


class TorchClassifier(Classifier):
    """A torch module trained from public first weights; a fitted model is a flat vector of weights."""

    def __init__(self, model: TorchModel, how: ClassifierSettings) -> None:
        self.model, self._how = model, how

    def fit(self, features: Floats, labels: Integers, public: Floats | None = None) -> Floats:
        from unspoken.learners.torch_models import Passes

        how, order = self._how, np.random.default_rng(self._how.seed)
        passes = Passes(how.epochs, how.batch, how.step, how.optimizer == "adam")
        return self.model.trained(self.model.initial(), features, labels, passes, order)

    def predict(self, fitted: Any, features: Floats) -> Integers:
        return np.asarray(self.model.scores(fitted, features).argmax(axis=1))

    def taught(
        self, study: Study, records: Floats, labels: Integers, details: dict[str, Any], public: Floats | None = None
    ) -> Release:
        return TorchWeights(self.model, self.fit(clip_rows(records, study.data), labels), details)


def make_classifier(
    name: str, softmax: LinearLearner, features: int, classes: int, hidden: Sequence[int], how: ClassifierSettings
) -> Classifier:
    """The classifier of this name: "softmax", "linear", "mlp", "cnn" or "package.module:Class"."""
    kind = None if name in ("softmax", *_MODULES) else _imported(name)
    if kind is not None and callable(getattr(kind, "fit", None)) and callable(getattr(kind, "predict", None)):
        return _estimator(name, kind, how, features, classes)
    if how.arguments:
        raise ClassifierError(name, "takes no arguments: they are for scikit-learn's classifiers; remove them")
    if name == "softmax":
        return SoftmaxClassifier(softmax)
    from unspoken.learners.torch_models import TorchModel
    from unspoken.learners.torch_modules import ModelError

    try:
        return TorchClassifier(TorchModel(name, features, classes, "cross-entropy", hidden, how.seed), how)
    except ModelError as error:
        raise ClassifierError(name, error.problem) from None


def votes_of(
    classifier: Classifier,
    features: Floats,
    labels: Integers,
    queries: Floats,
    classes: int,
    public: Floats | None = None,
) -> Floats:
    """The ballots of a party whose classifier learns from its records: (Q, K), a 1 for the predicted class.

    A ballot is zeros where no class is predicted (−1). All ballots are zeros if the classifier fails, or does not give
    one class for each query: a classifier of another package may refuse some records, and that must not be visible.
    """
    try:
        predicted = classifier.predict(classifier.fit(features, labels, public), queries)
    except Exception:
        predicted = np.empty(0, dtype=np.int64)
    if predicted.shape != (len(queries),):
        return np.zeros((len(queries), classes))
    return np.asarray(predicted[:, None] == np.arange(classes), dtype=np.float64)


def _estimator(name: str, kind: type, how: ClassifierSettings, features: int, classes: int) -> ScikitClassifier:
    """A scikit-learn classifier that was made, and tried out."""
    try:
        kind(**how.arguments)
    except Exception as error:
        given = f"with {', '.join(how.arguments)}" if how.arguments else "without arguments"
        raise ClassifierError(name, f"cannot be made {given} ({first_line(error)})") from None
    estimator = ScikitClassifier(name, kind, how)
    _try_out(name, estimator, features, classes)
    return estimator


def _try_out(name: str, estimator: ScikitClassifier, features: int, classes: int) -> None:
    """Train and predict on made-up records, to find failures before real records are touched."""
    records = np.random.default_rng(0).uniform(-1.0, 1.0, size=(_MADE_UP * classes, features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = estimator.fit(records, np.arange(len(records)) % classes, records)
            answers = np.asarray(fitted.predict(records.copy()))
            answers.astype(np.int64)  # as in a vote: classes are whole numbers
        except Exception as error:
            raise ClassifierError(name, f"cannot be trained on {features} features ({first_line(error)})") from None
    if answers.shape != (len(records),):
        problem = f"predicts an array of shape {answers.shape} for {len(records)} records"
        raise ClassifierError(name, f"{problem}, but should predict a class for each")
    other = answers[~np.isin(answers, np.arange(-1, classes))]
    if len(other):
        raise ClassifierError(
            name,
            f"predicts {other[0]!s:.8}, but should predict one of the classes that it learns from, or -1 if it "
            "abstains; name a classifier",
        )


def _imported(name: str) -> Any:
    try:
        return imported(name, ("softmax", *_MODULES))
    except NotImportable as error:
        raise ClassifierError(name, error.problem) from None
