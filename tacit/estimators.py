"""The scikit-learn shaped front: `fit(X, y, groups=party_of_each_row)`.

Everything runs in this process, as a simulation of the study that the parameters describe; the model and its
guarantee are the same that the parties would get on a network.
"""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.data.bounding import clip_rows
from tacit.data.files import Records
from tacit.data.splits import split
from tacit.methods.baselines import predict
from tacit.simulation import number_parties, simulate_records
from tacit.study import Study, make_study
from tacit.types import Floats, Integers


class PrivacyWarning(UserWarning):
    """Something was taken from the data that the guarantee treats as public."""


_OPTIONS = {"helmet": ("learner", "regularization", "weights", "radius", "solver"), "moments": ("ridge",)}
"""Which parameters a method takes: as in a study's [method]."""


def _gives_probabilities(estimator: PrivateClassifier) -> bool:
    return estimator.method == "helmet" and estimator.learner != "svm"


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier learnt from many parties' records under differential privacy.

    Parameters
    ----------
    method : the system to use: "helmet" (blind averaging of the parties' models) or "moments" (least squares from
        pooled second moments, which does not care how records are spread over parties).
    learner : of helmet: "softmax", "logistic" or "svm".
    epsilon, delta : the promise; smaller is more private.
    unit : what is protected: "record", "party", or {"group": k} for any k records.
    colluding, dropouts : parties that may pool their knowledge, and that may vanish; fractions or whole numbers.
    regularization : of helmet: Λ; larger means less noise and simpler models.
    ridge : of moments: the ridge in units of the noise's scale.
    norm : every record, its constant 1 included, is clipped to this L2 norm. Scale features by *public* bounds first.
    intercept : append a constant 1 to each record?
    classes : all possible labels. If not given they are taken from y, with a `PrivacyWarning`: the guarantee does not
        cover which labels occur.
    weights, radius, solver : of helmet, as in a study's [method].
    protocol : the summation, "compute-nodes" or "ideal".
    parties : over how many parties to deal out the rows when `fit` gets no groups.
    seed : public seed of that deal; the noise has none.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_ : the released model.
    guarantee_ : the promise it was made under (`guarantee_.sentence()` says it in words).
    plan_, certificate_ : what was planned, and what happened.
    """

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
        ridge: float | None = None,
        protocol: str = "compute-nodes",
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
        self.ridge = ridge
        self.protocol = protocol
        self.parties = parties
        self.seed = seed

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, groups: npt.ArrayLike | None = None) -> PrivateClassifier:
        """Learn from the records X, y; groups names the party of each row."""
        features, targets = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(targets)
        self.classes_, labels = self._encode(targets)
        parties = self._parties(labels, groups)
        study = self._study(features.shape[1], parties)
        simulation = simulate_records(study, Records(features, labels), parties)
        self._data, self._weights = study.data, simulation.outcome.release.weights
        self.coef_ = self._weights[:, : self.n_features_in_]
        self.intercept_ = self._weights[:, -1] if self.intercept else np.zeros(len(self._weights))
        self.plan_, self.guarantee_ = simulation.plan, simulation.plan.guarantee
        self.certificate_ = simulation.certificate
        return self

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The likeliest class of each row."""
        features = self._features(X)
        labels: npt.NDArray[Any] = self.classes_[predict(self._weights, features)]
        return labels

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """The scores of the classes; for two classes a single one, positive for the second."""
        scores: Floats = self._features(X) @ self._weights.T
        if len(self.classes_) > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """The classes' probabilities according to the model (softmax and logistic only)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            second = expit(scores)
            return np.column_stack([1.0 - second, second])
        if self.learner == "softmax":
            return np.asarray(softmax(scores, axis=1))
        each = expit(scores)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Noise that could be repeated would be no protection, and on a few records it drowns everything.
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

    def _features(self, X: npt.ArrayLike) -> Floats:
        check_is_fitted(self)
        return clip_rows(validate_data(self, X, dtype=np.float64, reset=False), self._data)

    def _encode(self, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Integers]:
        """All classes in order, and each label's number among them."""
        present, labels = np.unique(y, return_inverse=True)
        if self.classes is None:
            if len(present) < 2:
                raise ValueError(f"Expected at least two classes in y, got only one class: {present.tolist()[0]!r}.")
            warnings.warn(
                "The classes were taken from y: the guarantee does not cover which labels occur. Pass classes=[…] with "
                "all labels that are possible.",
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

    def _parties(self, labels: Integers, groups: npt.ArrayLike | None) -> Integers:
        if groups is None:
            if not isinstance(self.parties, Integral) or self.parties < 2:
                raise ValueError(f"Expected a whole number of parties, 2 or more, got parties={self.parties!r}.")
            return split("iid", labels, min(int(self.parties), len(labels)), self.seed)
        parties = number_parties(groups, len(labels))
        if parties.max() == 0:
            raise ValueError("Expected groups to name at least two parties, got only one.")
        return parties

    def _study(self, features: int, parties: Integers) -> Study:
        sizes = np.bincount(parties)
        options = {name: getattr(self, name) for name in _OPTIONS.get(self.method, ())}
        method = {"name": self.method} | {name: value for name, value in options.items() if value is not None}
        content = {
            "study": {"name": type(self).__name__, "task": "classification"},
            "data": {
                "features": features,
                "classes": len(self.classes_),
                "norm": self.norm,
                "intercept": self.intercept,
            },
            "parties": {
                "count": len(sizes),
                "records": int(sizes.min()),
                "max_records": int(sizes.max()),
            },
            "privacy": {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "unit": self.unit,
                "colluding": self.colluding,
                "dropouts": self.dropouts,
            },
            "method": method,
            "summation": {"protocol": self.protocol},
        }
        return make_study(content, source=type(self).__name__)
