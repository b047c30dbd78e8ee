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
_FAILURES = (Exception, SystemExit)
"""What a classifier of another package may raise at some records: one that calls sys.exit must not be seen, either"""


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
        told = {} if public is None or not _sees_public(made) else {"public": public.copy()}
        fitted = made.fit(features.copy(), labels.copy(), **told)
        # "return self" is easily forgotten.
        return made if fitted is None else fitted

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
        try:
            return FittedEstimator(self.fit(records, np.array(study.data.class_names)[labels], public), details)
        except _FAILURES as error:
            problem = f'cannot learn from these winners ({first_line(error)}); use "softmax", or another student'
            raise ClassifierError(self._name, problem) from None


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
    name: str,
    softmax: LinearLearner,
    features: int,
    classes: int,
    hidden: Sequence[int],
    how: ClassifierSettings,
    student_of: Study | None = None,
) -> Classifier:
    """The classifier of this name: "softmax", "linear", "mlp", "cnn" or "package.module:Class".

    Those of other packages are tried out: as voters, or as the student of a study.
    """
    kind = None if name in ("softmax", *_MODULES) else _imported(name)
    if kind is not None and callable(getattr(kind, "fit", None)) and callable(getattr(kind, "predict", None)):
        estimator = _estimator(name, kind, how)
        if student_of is None:
            _try_out(name, estimator, features, classes)
        else:
            _try_as_student(name, estimator, student_of)
        if (other := _other_than_classifier(kind(**how.arguments))) is not None:
            problem = f'says that it is of the kind "{other}", whose numbers only look like classes; name a classifier'
            raise ClassifierError(name, problem)
        return estimator
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
    except _FAILURES:
        predicted = np.empty(0, dtype=np.int64)
    if predicted.shape != (len(queries),):
        return np.zeros((len(queries), classes))
    return np.asarray(predicted[:, None] == np.arange(classes), dtype=np.float64)


def votes_again(classifier: Classifier, features: int, classes: int) -> bool:
    """Whether a party's votes are the same if they are cast again, of the same (made-up) records."""
    records, labels = _made_up(features, np.arange(classes))
    one, other = (votes_of(classifier, records, labels, -records, classes, records) for _ in range(2))
    return bool(np.array_equal(one, other))


def _sees_public(made: Any) -> bool:
    return "public" in inspect.signature(made.fit).parameters


def _estimator(name: str, kind: Any, how: ClassifierSettings) -> ScikitClassifier:
    """A scikit-learn classifier that was made once."""
    if not isinstance(kind, type):
        problem = f"is an object, a {type(kind).__name__}, but should be its class, which every party makes for itself"
        raise ClassifierError(name, problem)
    try:
        kind(**how.arguments)
    except _FAILURES as error:
        given = f"with {', '.join(how.arguments)}" if how.arguments else "without arguments"
        raise ClassifierError(name, f"cannot be made {given} ({first_line(error)})") from None
    return ScikitClassifier(name, kind, how)


def _other_than_classifier(made: Any) -> str | None:
    """What an estimator says it is, if that is no classifier: a clusterer's numbers may look like classes."""
    from sklearn.base import BaseEstimator
    from sklearn.utils import get_tags

    if not isinstance(made, BaseEstimator):
        return None
    try:
        kind = get_tags(made).estimator_type
    except _FAILURES:
        return None
    return None if kind in (None, "classifier") else str(kind)


def _try_out(name: str, estimator: ScikitClassifier, features: int, classes: int) -> None:
    """Train and predict as a voter, on made-up records, to find failures before real records are touched."""
    _, answers = _answers(name, estimator, np.arange(classes), features)
    for answer in answers:
        if answer not in range(-1, classes):
            raise ClassifierError(
                name,
                f"predicts {answer!s:.8}, but should predict one of the classes that it learns from, or -1 if it "
                "abstains; name a classifier",
            )


def _try_as_student(name: str, estimator: ScikitClassifier, study: Study) -> None:
    """The same as the study's student, which learns names of classes, and is saved: the vote would be over by then."""
    known = study.data.class_names
    names = np.array(known).tolist()
    learns = f" and the classes' names ({names[0]}, …)"
    fitted, answers = _answers(name, estimator, np.array(known), study.data.raw_dimension, learns)
    for answer in answers:
        if answer not in names:
            problem = f"predicts {answer!s:.8}, but should predict one of the names that a student learns"
            raise ClassifierError(name, f"{problem} ({names[0]}, …)")
    from sklearn.base import BaseEstimator

    if study.data.is_table and not isinstance(fitted, BaseEstimator):
        problem = "is no BaseEstimator, which a pipeline for tables needs; derive it from sklearn.base.BaseEstimator"
        raise ClassifierError(name, problem)
    release = FittedEstimator(fitted, {})
    try:
        release.scores(study, _made_up(study.data.raw_dimension, np.arange(1))[0])
        release.to_bytes(study)
    except _FAILURES as error:
        raise ClassifierError(
            name, f"cannot be asked for scores, or saved, once fitted ({first_line(error)})"
        ) from None


def _answers(
    name: str, estimator: ScikitClassifier, labels: Any, features: int, and_labels: str = ""
) -> tuple[Any, list[Any]]:
    """The classifier, fitted to made-up records with these labels, and what it predicts for them."""
    records, learnt = _made_up(features, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = estimator.fit(records, learnt, records)
            answers = np.asarray(fitted.predict(records.copy()))
        except _FAILURES as error:
            problem = f"cannot be trained on {features} features{and_labels} ({first_line(error)})"
            raise ClassifierError(name, problem) from None
    if answers.shape != (len(records),):
        problem = f"predicts an array of shape {answers.shape} for {len(records)} records"
        raise ClassifierError(name, f"{problem}, but should predict a class for each")
    return fitted, answers.tolist()


def _made_up(features: int, labels: Any) -> tuple[Floats, Any]:
    """Records that are drawn, and labels for them in turn."""
    records = np.random.default_rng(0).uniform(-1.0, 1.0, size=(_MADE_UP * len(labels), features))
    return records, labels[np.arange(len(records)) % len(labels)]


def _imported(name: str) -> Any:
    try:
        return imported(name, ("softmax", *_MODULES))
    except NotImportable as error:
        raise ClassifierError(name, error.problem) from None
