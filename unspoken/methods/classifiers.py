"""Classifiers that parties train to vote, or a student to be released: ours, scikit-learn's, or torch modules.

Each kind says how it learns from public records and what is then released. Nobody asks for the kind.
"""

from __future__ import annotations

import importlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.errors import UnspokenError
from unspoken.learners.linear import LinearLearner
from unspoken.methods.releases import FittedEstimator, LinearModel, Release, TorchWeights
from unspoken.study import Study
from unspoken.types import Floats, Integers

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel

_MODULES = ("linear", "mlp", "cnn")
_LOOSENESS = 100.0
"""The factor on a certified minimiser's tolerance: it changes no predicted class and halves the time."""


_MADE_UP = 10
"""The number of made-up records of each class for trying out a classifier"""


class ClassifierError(UnspokenError):
    """A classifier that cannot be trained here; `problem` says why and continues the classifier's name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the classifier {name!r} {problem}.")
        self.problem = problem


@dataclass(frozen=True)
class Training:
    """Settings for training a torch module."""

    epochs: int
    batch: int
    rate: float
    seed: int


class Classifier(ABC):
    """Learns from labelled records and predicts the classes of others."""

    @abstractmethod
    def fit(self, features: Floats, labels: Integers) -> Any:
        """A fitted model, which `predict` takes."""

    @abstractmethod
    def predict(self, fitted: Any, features: Floats) -> Integers: ...

    @abstractmethod
    def taught(self, study: Study, records: Floats, labels: Integers, details: dict[str, Any]) -> Release:
        """The release of a student that learns from public records, which come unclipped, and their class numbers."""


class SoftmaxRegression(Classifier):
    """Regularised softmax regression: weights, one row a class.

    The tolerance of a certified minimiser is proportional to the bound on record norms. No guarantee depends on it
    here, so the largest norm among the records at hand is used instead of the study's bound, which may be a million.
    """

    def __init__(self, learner: LinearLearner) -> None:
        self._learner = learner

    def fit(self, features: Floats, labels: Integers) -> Floats:
        largest = math.sqrt(float(np.einsum("ij,ij->i", features, features).max(initial=0.0)))
        learner = replace(self._learner, norm=min(self._learner.norm, _LOOSENESS * largest or 1.0))
        weights: Floats = learner.fit(Block(features[None], labels[None], np.array([len(labels)])))[0]
        return weights

    def predict(self, fitted: Any, features: Floats) -> Integers:
        predicted: Integers = (features @ fitted.T).argmax(axis=1)
        return predicted

    def taught(self, study: Study, records: Floats, labels: Integers, details: dict[str, Any]) -> Release:
        return LinearModel(self.fit(clip_rows(records, study.data), labels), "softmax", details)


class Estimator(Classifier):
    """A scikit-learn classifier with default settings and a public seed: the same records give the same model."""

    def __init__(self, name: str, kind: type, seed: int) -> None:
        self._name, self._kind, self._seed = name, kind, seed

    def fit(self, features: Floats, labels: Integers) -> Any:
        # Many classifiers refuse to learn from a single class.
        if len(np.unique(labels)) == 1:
            return labels[:1]
        made: Any = self._kind()
        if hasattr(made, "get_params") and "random_state" in made.get_params():
            made.set_params(random_state=self._seed)
        return made.fit(features, labels)

    def predict(self, fitted: Any, features: Floats) -> Integers:
        if isinstance(fitted, np.ndarray):
            return np.repeat(fitted, len(features))
        return np.asarray(fitted.predict(features), dtype=np.int64)

    def taught(self, study: Study, records: Floats, labels: Integers, details: dict[str, Any]) -> Release:
        """It learns class names from unclipped records: they are public, so nothing need be clipped."""
        if len(np.unique(labels)) == 1:
            problem = 'cannot learn, as all queries have the same label; use "softmax", or raise epsilon'
            raise ClassifierError(self._name, problem)
        return FittedEstimator(self.fit(records, np.array(study.data.class_names)[labels]), details)


class Module(Classifier):
    """A torch module trained by plain SGD from public first weights; a fitted model is a flat vector of weights."""

    def __init__(self, model: TorchModel, how: Training) -> None:
        self.model, self._how = model, how

    def fit(self, features: Floats, labels: Integers) -> Floats:
        how, order = self._how, np.random.default_rng(self._how.seed)
        return self.model.trained(self.model.initial(), features, labels, how.epochs, how.batch, how.rate, order)

    def predict(self, fitted: Any, features: Floats) -> Integers:
        return np.asarray(self.model.scores(fitted, features).argmax(axis=1))

    def taught(self, study: Study, records: Floats, labels: Integers, details: dict[str, Any]) -> Release:
        return TorchWeights(self.model, self.fit(clip_rows(records, study.data), labels), details)


def make_classifier(
    name: str, softmax: LinearLearner, features: int, classes: int, hidden: Sequence[int], how: Training
) -> Classifier:
    """The classifier of this name: "softmax", "linear", "mlp", "cnn" or "package.module:Class"."""
    if name == "softmax":
        return SoftmaxRegression(softmax)
    kind = None if name in _MODULES else _imported(name)
    if kind is not None and callable(getattr(kind, "fit", None)) and callable(getattr(kind, "predict", None)):
        try:
            kind()
        except TypeError as error:
            raise ClassifierError(name, f"cannot be made without arguments ({error})") from None
        estimator = Estimator(name, kind, how.seed)
        _try_out(name, estimator, features, classes)
        return estimator
    from unspoken.learners.torch_models import TorchModel
    from unspoken.learners.torch_modules import ModelError

    try:
        return Module(TorchModel(name, features, classes, "cross-entropy", hidden, how.seed), how)
    except ModelError as error:
        raise ClassifierError(name, error.problem) from None


def _try_out(name: str, estimator: Estimator, features: int, classes: int) -> None:
    """Train and predict on made-up records, to find failures before real records are touched."""
    records = np.random.default_rng(0).uniform(-1.0, 1.0, size=(_MADE_UP * classes, features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator.predict(estimator.fit(records, np.arange(len(records)) % classes), records)
        except Exception as error:
            reason = str(error).split("\n", maxsplit=1)[0]
            raise ClassifierError(name, f"cannot be trained on {features} features ({reason})") from None


def _imported(name: str) -> type:
    path, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(path), attribute)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as error:
        raise ClassifierError(
            name,
            f'cannot be made here ({error}); name "softmax", "mlp", "cnn", or a class as "package.module:Class"',
        ) from None
