"""Estimators for scikit-learn: `fit(X, y, groups=party_of_each_row)`.

Everything runs in this process, as a simulation of the study that the parameters describe. The parties would get the
same model and guarantee on a network.
"""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unspoken.data.files import Records
from unspoken.data.splits import split
from unspoken.methods.registry import METHODS
from unspoken.simulation import Simulation, number_parties, simulate_records, sizes_of
from unspoken.study import DEFAULT_PROTOCOL, Study, make_study
from unspoken.types import Floats, Integers, Labels


class PrivacyWarning(UserWarning):
    """Something was taken from the data although the guarantee treats it as public."""


class _PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part of classifier and regressor: the study that their parameters describe."""

    _task: str

    def _learn(self, features: Floats, labels: Labels, groups: npt.ArrayLike | None) -> None:
        parties = self._parties(labels, groups)
        self._study = self._make_study(features.shape[1], parties)
        simulation = simulate_records(self._study, Records(features, labels), parties)
        self._keep(simulation)

    def _keep(self, simulation: Simulation) -> None:
        self._release = simulation.outcome.release
        self.plan_, self.guarantee_ = simulation.plan, simulation.plan.guarantee
        self.certificate_ = simulation.certificate
        for name in ("coef_", "intercept_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.__dict__.update(self._release.attributes(self._study))

    def _checked(self, X: npt.ArrayLike) -> Floats:
        check_is_fitted(self)
        features: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        return features

    def _parties(self, labels: Labels, groups: npt.ArrayLike | None) -> Integers:
        if groups is None:
            if not isinstance(self.parties, Integral) or self.parties < 2:
                raise ValueError(f"Expected a whole number of parties, 2 or more, got parties={self.parties!r}.")
            return split("iid", labels, min(int(self.parties), len(labels)), self.seed)
        parties = number_parties(groups, len(labels))
        if parties.max() == 0:
            raise ValueError("Expected groups to name at least two parties, got only one.")
        return parties

    def _data(self) -> dict[str, Any]:
        """The study's [data] without the number of features."""
        raise NotImplementedError

    def _method_options(self) -> dict[str, Any]:
        """The study's [method] without the name."""
        return dict(self.options or {})

    def _make_study(self, features: int, parties: Integers) -> Study:
        content = {
            "study": {"name": type(self).__name__, "task": self._task},
            "data": {"features": features, "norm": self.norm, "intercept": self.intercept, **self._data()},
            "parties": sizes_of(parties, self.unit),
            "privacy": {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "unit": self.unit,
                "colluding": self.colluding,
                "dropouts": self.dropouts,
            },
            "method": {"name": self.method, **self._method_options()},
            "summation": {"protocol": self.protocol},
        }
        return make_study(content, source=type(self).__name__)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Noise must not be repeatable, and on few records it dominates the result.
        tags.non_deterministic = True
        return tags


def _gives_probabilities(estimator: PrivateClassifier) -> bool:
    if hasattr(estimator, "_release"):
        return estimator._release.has_probabilities
    method = METHODS.get(estimator.method)
    return method is None or method.gives_probabilities(estimator._method_options())


class PrivateClassifier(ClassifierMixin, _PrivateEstimator):  # type: ignore[misc]
    """A classifier learnt from many parties' records with differential privacy.

    Parameters
    ----------
    method : "helmet" (blind averaging of the parties' models), "moments" (a model from secure sums over all records,
        for any distribution over parties), "cape" (correlated noise), "cross-silo" (private SGD of a PyTorch model, in
        `options`), or a baseline: "conv", "local", "central", "dp-fm", "objective-perturbation", "fedavg", "fedsgd",
        "none".
    learner : for helmet: "softmax", "logistic" or "svm".
    epsilon, delta : the promise; smaller is more private.
    unit : the protected unit: "record", "party", or {"group": k} for any k records.
    colluding, dropouts : parties that may pool their knowledge, and that may vanish; fractions or whole numbers.
    regularization : Λ, for helmet; larger means less noise and simpler models.
    norm : every record, its constant 1 included, is clipped to this L2 norm in training. Scale features by *public*
        bounds first. Records are not clipped in prediction, except for PyTorch models.
    intercept : whether to append a constant 1 to each record.
    classes : all possible labels. By default they are taken from y, with a `PrivacyWarning`: the guarantee does not
        cover which labels occur.
    weights, radius, solver : for helmet, as in a study's [method].
    options : further keys of the method, as in a study's [method]; for example {"function": "network", "hidden": 32}
        for cape.
    protocol : the summation, "compute-nodes" or "ideal".
    parties : the number of parties to split the rows over when `fit` gets no groups.
    seed : the public seed of that split; the noise has none.

    Attributes
    ----------
    classes_, n_features_in_ : the labels, and the number of features.
    coef_, intercept_ : the released model, unless it is a network.
    guarantee_ : the guarantee (`guarantee_.sentence()` says it in words).
    plan_, certificate_ : the plan, and what happened.
    """

    _task = "classification"

    def __init__(
        self,
        method: str = "helmet",
        learner: str = "softmax",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        unit: str | dict[str, int] = "record",
        colluding: float = 0,
        dropouts: float = 0,
        regularization: float = 0.1,
        norm: float = 1.0,
        intercept: bool = True,
        classes: npt.ArrayLike | None = None,
        weights: str | None = None,
        radius: float | None = None,
        solver: str = "certified",
        options: dict[str, Any] | None = None,
        protocol: str = DEFAULT_PROTOCOL,
        parties: int = 10,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.colluding = colluding
        self.dropouts = dropouts
        self.regularization = regularization
        self.norm = norm
        self.intercept = intercept
        self.classes = classes
        self.weights = weights
        self.radius = radius
        self.solver = solver
        self.options = options
        self.protocol = protocol
        self.parties = parties
        self.seed = seed

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, groups: npt.ArrayLike | None = None) -> PrivateClassifier:
        """Learn from the records X, y; groups names the party of each row."""
        features, targets = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(targets)
        self.classes_, labels = self._encode(targets)
        self._learn(features, labels, groups)
        return self

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most likely class of each row."""
        features = self._checked(X)
        labels: npt.NDArray[Any] = self.classes_[self._release.predict(self._study, features)]
        return labels

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """The scores of the classes; for two classes a single one, positive for the second."""
        features = self._checked(X)
        scores = self._release.scores(self._study, features)
        if len(self.classes_) > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """The probabilities of the classes, if the model gives any."""
        features = self._checked(X)
        return self._release.probabilities(self._study, features)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def _data(self) -> dict[str, Any]:
        return {"classes": len(self.classes_)}

    def _method_options(self) -> dict[str, Any]:
        method = METHODS.get(self.method)
        own = {} if method is None else {name: getattr(self, name) for name in method.estimator_parameters}
        return {name: value for name, value in own.items() if value is not None} | super()._method_options()

    def _encode(self, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Integers]:
        """The sorted classes, and each label's index among them."""
        present, labels = np.unique(y, return_inverse=True)
        if self.classes is None:
            if len(present) < 2:
                raise ValueError(f"Expected at least two classes in y, got only one class: {present.tolist()[0]!r}.")
            warnings.warn(
                "The classes were taken from y: the guarantee does not cover which labels occur. Pass classes=[…] with "
                "all possible labels.",
                PrivacyWarning,
                stacklevel=3,
            )
            return present, labels
        classes = np.unique(np.asarray(self.classes))
        if np.ndim(self.classes) != 1 or len(classes) < 2:
            raise ValueError(f"Expected a list of at least two classes, got classes={self.classes!r}.")
        positions = np.searchsorted(classes, present)
        unknown = (positions == len(classes)) | (classes[np.minimum(positions, len(classes) - 1)] != present)
        if unknown.any():
            label = present[unknown].tolist()[0]
            raise ValueError(f"y has the label {label!r}, which is not among classes={self.classes!r}.")
        return classes, positions[labels]


class PrivateRegressor(RegressorMixin, _PrivateEstimator):  # type: ignore[misc]
    """A linear regression learnt from many parties' records with differential privacy.

    Parameters
    ----------
    method : "moments" (a secure sum of second moments), "cape" (messages with correlated noise), or a baseline: "conv",
        "local", "central", "dp-fm", "objective-perturbation", "none".
    label_bounds : the smallest and the largest possible label; labels are clipped to them. By default they are taken
        from y, with a `PrivacyWarning`: the guarantee does not cover what they reveal.
    norm : every record, its constant 1 included, is clipped to this L2 norm in training. Scale features by *public*
        bounds first, so that hardly any is longer: records are not clipped in prediction.
    epsilon, delta, unit, colluding, dropouts, intercept, options, protocol, parties, seed : see `PrivateClassifier`.

    Attributes
    ----------
    coef_, intercept_, n_features_in_ : the released model, in the units of the label.
    guarantee_, plan_, certificate_ : see `PrivateClassifier`.
    """

    _task = "regression"

    def __init__(
        self,
        method: str = "moments",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        unit: str | dict[str, int] = "record",
        colluding: float = 0,
        dropouts: float = 0,
        label_bounds: tuple[float, float] | None = None,
        norm: float = 1.0,
        intercept: bool = True,
        options: dict[str, Any] | None = None,
        protocol: str = DEFAULT_PROTOCOL,
        parties: int = 10,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.colluding = colluding
        self.dropouts = dropouts
        self.label_bounds = label_bounds
        self.norm = norm
        self.intercept = intercept
        self.options = options
        self.protocol = protocol
        self.parties = parties
        self.seed = seed

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, groups: npt.ArrayLike | None = None) -> PrivateRegressor:
        """Learn from the records X, y; groups names the party of each row."""
        features, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        labels = np.asarray(targets, dtype=np.float64)
        self._bounds = self._label_bounds(labels)
        self._learn(features, labels, groups)
        return self

    def predict(self, X: npt.ArrayLike) -> Floats:
        """The predicted label of each row; neither rows nor labels are clipped."""
        features = self._checked(X)
        return np.asarray(self._release.predict(self._study, features))

    def _label_bounds(self, labels: Floats) -> tuple[float, float]:
        if self.label_bounds is None:
            warnings.warn(
                "The label's bounds were taken from y: the guarantee does not cover what they reveal. Pass "
                "label_bounds=(smallest, largest) from public knowledge.",
                PrivacyWarning,
                stacklevel=3,
            )
            low, high = float(labels.min()), float(labels.max())
            return (low, high) if low < high else (low - 1.0, low + 1.0)
        if np.shape(self.label_bounds) != (2,):
            raise ValueError(f"Expected label_bounds=(smallest, largest), got label_bounds={self.label_bounds!r}.")
        low, high = (float(bound) for bound in self.label_bounds)
        return low, high

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _data(self) -> dict[str, Any]:
        return {"label_bounds": list(self._bounds)}
