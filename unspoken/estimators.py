"""Estimators for scikit-learn: `fit(X, y, groups=party_of_each_row)`.

Everything runs in this process, as a simulation of the study that the parameters describe. The parties would get the
same model and guarantee on a network.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unspoken import defaults
from unspoken.data.clipped import Holders
from unspoken.data.files import Records
from unspoken.data.numeric import check_labels, numeric_features, places_among, sorted_classes
from unspoken.data.parties import dealt_parties, named_groups, number_parties
from unspoken.data.public import as_named, with_public
from unspoken.data.scaling import Scaling
from unspoken.errors import PrivacyWarning
from unspoken.methods.planning.making import caution_on_delta
from unspoken.methods.registry import METHODS, checked_plan, method_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.certificate import certificate
from unspoken.report.remarks import before_a_run, on_predictions
from unspoken.simulation import Simulation, as_it_was_without, simulate_records, sizes_of, warn
from unspoken.study import Study, make_study
from unspoken.types import Floats, Integers, Labels


class _PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part of classifier and regressor: the study that their parameters describe."""

    _task: str

    def _validated(self, X: Any, y: Any, groups: Any, **checks: Any) -> tuple[Floats, npt.NDArray[Any], Any]:
        """The features, the labels, and the party of each row, which a data frame's column may name."""
        self._party_column = groups if isinstance(groups, str) else None
        groups = groups if groups is None else named_groups(groups, X)
        rows = numeric_features(X, self._party_column, type(self).__name__)
        check_labels(y, type(self).__name__, checks.get("y_numeric", False))
        return *validate_data(self, rows, y, dtype=np.float64, ensure_min_samples=2, **checks), groups

    def _learn(self, features: Floats, labels: Labels, groups: npt.ArrayLike | None, public: Any = None) -> None:
        parties = self._parties(labels, groups)
        names = list(getattr(self, "feature_names_in_", map("x{}".format, range(features.shape[1]))))
        self._scaling = Scaling.of(self.bounds, names)
        records = Records(self._scaling.apply(features), labels)
        self._study = self._make_study(features.shape[1], parties)
        if public is not None:
            rows = as_named(public, getattr(self, "feature_names_in_", None), self._party_column)
            self._study = with_public(self._study, rows, self._scaling.apply)
        # Said before anything is charged: who turns warnings into errors has spent nothing.
        method = method_for(self._study)
        holders, plan = Holders.of(parties, groups), checked_plan(method)
        warn(caution_on_delta(plan), 3, PrivacyWarning)
        warn([*self._scaling.remarks(features, names, holders), *before_a_run(plan, records, holders)], stacklevel=3)
        self._keep(simulate_records(self._study, records, parties, method=method, ledger=self.ledger))
        warn(on_predictions(self._study, self._release, records, getattr(self, "classes_", None)), stacklevel=3)

    def _keep(self, simulation: Simulation) -> None:
        self._release = simulation.outcome.release
        self.plan_, self.guarantee_ = simulation.plan, simulation.plan.guarantee
        self.certificate_ = certificate(simulation.plan, simulation.outcome)
        for name in ("coef_", "intercept_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.__dict__.update(self._scaling.in_units(self._release.attributes(self._study)))

    def _checked(self, X: npt.ArrayLike) -> Floats:
        check_is_fitted(self)
        rows = numeric_features(X, self._party_column, type(self).__name__)
        return self._scaling.apply(validate_data(self, rows, dtype=np.float64, reset=False))

    def _parties(self, labels: Labels, groups: npt.ArrayLike | None) -> Integers:
        method = METHODS.get(self.method)
        fewest = 2 if method is None else method.fewest_parties
        if groups is None:
            return dealt_parties(labels, self.parties, self.seed, _default(self, "parties"), fewest)
        parties = number_parties(groups, len(labels))
        if parties.max() == 0 and fewest > 1:
            raise ValueError("Expected groups to name at least two parties, got only one.")
        return parties

    def _data(self) -> dict[str, Any]:
        """The study's [data] without the number of features."""
        raise NotImplementedError

    def _method_options(self) -> dict[str, Any]:
        """The study's [method] without the name."""
        if not isinstance(self.options, Mapping | None):
            raise ValueError(f'Expected a dictionary, such as {{"steps": 16}}, got options={self.options!r}.')
        return dict(self.options or {})

    def _norm(self, features: int) -> dict[str, Any]:
        """The norm to clip records to: by default that of features within their bounds; without them, the method's."""
        if self.norm is None and self.bounds is None:
            return {}
        return {"norm": math.sqrt(features + bool(self.intercept)) if self.norm is None else self.norm}

    def _make_study(self, features: int, parties: Integers) -> Study:
        content = {
            "study": {"name": type(self).__name__, "task": self._task},
            "data": {"features": features, "intercept": self.intercept, **self._norm(features), **self._data()},
            "parties": sizes_of(parties, self.unit),
            "privacy": {key: getattr(self, key) for key in ("epsilon", "delta", "unit", "colluding", "dropouts")},
            "method": {"name": self.method, **self._method_options()},
            "summation": {"protocol": self.protocol},
        }
        return make_study(content, source=type(self).__name__)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Noise must not be repeatable, and on few records it dominates the result.
        tags.non_deterministic = True
        return tags


def _refuse(unserved: dict[str, Any]) -> None:
    """Refuse arguments of `fit` that other estimators have. None counts as not given."""
    unserved = {name: value for name, value in unserved.items() if name != "sample_weight" or value is not None}
    if "sample_weight" in unserved:
        raise TypeError("sample_weight is not supported: the promise needs records of equal weight; leave it out.")
    if "public" in unserved:
        raise TypeError("public is for classifiers: a regression makes no use of public records; leave it out.")
    if unserved:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(unserved))!r}")


def _default(estimator: BaseEstimator, parameter: str) -> Any:
    """The default of a parameter."""
    return inspect.signature(type(estimator).__init__).parameters[parameter].default


def _gives_probabilities(estimator: PrivateClassifier) -> bool:
    if hasattr(estimator, "_release"):
        return estimator._release.has_probabilities
    method = METHODS.get(estimator.method)
    return method is None or method.gives_probabilities(estimator._method_options())


_OF_SOME_METHODS = ("learner", "regularization", "weights", "radius", "solver")
"""Parameters that only some methods have"""


class PrivateClassifier(ClassifierMixin, _PrivateEstimator):  # type: ignore[misc]
    """A classifier learnt from many parties' records with differential privacy.

    Parameters
    ----------
    method : "moments" (a model from secure sums over all records; nothing to tune), "helmet" (blind averaging of the
        parties' models), "cape" (correlated noise), "cross-silo" (private SGD of a PyTorch model, in `options`), or a
        baseline: "conv", "local", "central", "independent-models", "dp-fm", "objective-perturbation", "fedavg",
        "fedsgd", "none".
    learner : for helmet: "softmax", "logistic" or "svm".
    epsilon, delta : the promise; smaller is more private.
    unit : the protected unit: "record", "party", or {"group": k} for any k records.
    colluding, dropouts : parties that may pool their knowledge, and that may vanish; fractions or whole numbers.
    regularization : Λ, for helmet; larger means less noise and simpler models. By default a rule chooses it from
        epsilon and the number of parties and records; `plan_.facts` has it.
    bounds : (low, high), *public* bounds of the features, two numbers or one each a feature. Features are clipped to
        them and scaled to [−1, 1], also in prediction. By default features are taken as they are.
    norm : every record, its constant included, is clipped to this L2 norm in training. By default no record is
        clipped that lies within bounds, or without them has features of norm 1. Records are not clipped in prediction,
        except for PyTorch models.
    intercept : whether to append a constant to each record: 1, or for helmet a smaller one, by a rule.
    classes : all possible labels. By default they are taken from y, with a `PrivacyWarning`: the guarantee does not
        cover which labels occur.
    weights, radius, solver : for helmet, as in a study's [method].
    options : further keys of the method, as in a study's [method] (docs/methods.md); for example
        {"function": "network", "hidden": 32} for cape.
    protocol : the summation: "compute-nodes", "secagg+", "secagg", "pairwise", or "ideal", which adds in the clear.
    parties : the number of parties to split the rows over when `fit` gets no groups; 1 (for helmet and the baselines on
        records in one place) is a party that adds all of the noise itself.
    seed : the public seed of that split; the noise has none.
    ledger : an `unspoken.Ledger` that fits are charged to, also those of clones: its `guarantee(delta)` is of them all.
        It holds if rows, and their parties, were chosen without regard to records and labels, none twice in a fit: in a
        search by `cv=KFold(…)`, where `cv=5` would look at labels. Scores, and what is chosen by them, it leaves out.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : the labels, the number of features, and a data frame's names of them.
    coef_, intercept_ : the released model, unless it is a network.
    guarantee_ : the guarantee (`guarantee_.sentence()` says it in words).
    plan_, certificate_ : the plan, and what happened.
    """

    _task = "classification"

    def __init__(
        self,
        method: str = defaults.METHOD,
        learner: str = "softmax",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        unit: str | dict[str, int] = "record",
        colluding: float = 0,
        dropouts: float = 0,
        regularization: float | None = None,
        bounds: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        norm: float | None = None,
        intercept: bool = True,
        classes: npt.ArrayLike | None = None,
        weights: str | None = None,
        radius: float | None = None,
        solver: str = "certified",
        options: dict[str, Any] | None = None,
        protocol: str = defaults.PROTOCOL,
        parties: int = 10,
        seed: int = 0,
        ledger: Ledger | None = None,
    ) -> None:
        self.method = method
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.colluding = colluding
        self.dropouts = dropouts
        self.regularization = regularization
        self.bounds = bounds
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
        self.ledger = ledger

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None, **unserved: Any) -> PrivateClassifier:
        """Learn from X, y; groups: the party of each row, or a data frame's column of it; public: rows like X."""
        _refuse(unserved)
        with as_it_was_without(self, "_release"):
            features, targets, groups = self._validated(X, y, groups)
            check_classification_targets(targets)
            self.classes_, labels = self._encode(targets)
            self._learn(features, labels, groups, public)
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
        taken = () if method is None else method.estimator_parameters
        for name in _OF_SOME_METHODS:
            if method is not None and name not in taken and getattr(self, name) != _default(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is for other methods than {self.method!r}, which would ignore it; "
                    "leave it out, or pass the method's own keys in options={…}."
                )
        own = {name: getattr(self, name) for name in taken}
        return {name: value for name, value in own.items() if value is not None} | super()._method_options()

    def _encode(self, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Integers]:
        """The sorted classes, and each label's index among them."""
        present, labels = np.unique(y, return_inverse=True)
        if self.classes is None:
            if len(present) < 2:
                raise ValueError(f"Expected at least two classes in y, got only one class: {present.tolist()[0]!r}.")
            source = "the classes were taken from y: the guarantee does not cover which labels occur"
            warn([f"{source}. Pass classes=[…] with all possible labels"], 3, PrivacyWarning)
            return present, labels
        classes = sorted_classes(self.classes)
        return classes, places_among(classes, present, labels)


class PrivateRegressor(RegressorMixin, _PrivateEstimator):  # type: ignore[misc]
    """A linear regression learnt from many parties' records with differential privacy.

    Parameters
    ----------
    method : "moments" (secure sums over all records; nothing to tune), "cape" (messages with correlated noise), or a
        baseline: "conv", "local", "central", "dp-fm", "objective-perturbation", "none".
    label_bounds : the smallest and the largest possible label; labels are clipped to them. By default they are taken
        from y, with a `PrivacyWarning`: the guarantee does not cover what they reveal.
    bounds : (low, high), *public* bounds of the features: see `PrivateClassifier`.
    norm : every record, its constant 1 included, is clipped to this L2 norm in training. By default no record is
        clipped that lies within bounds, or without them has features of norm 1. Hardly any should be longer: records
        are not clipped in prediction.
    epsilon, delta, unit, colluding, dropouts, intercept, options, protocol, parties, seed, ledger : see
        `PrivateClassifier`.

    Attributes
    ----------
    coef_, intercept_, n_features_in_ : the released model, in the units of the label, before predictions are clipped.
    guarantee_, plan_, certificate_ : see `PrivateClassifier`.
    """

    _task = "regression"

    def __init__(
        self,
        method: str = defaults.METHOD,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        unit: str | dict[str, int] = "record",
        colluding: float = 0,
        dropouts: float = 0,
        label_bounds: tuple[float, float] | None = None,
        bounds: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        norm: float | None = None,
        intercept: bool = True,
        options: dict[str, Any] | None = None,
        protocol: str = defaults.PROTOCOL,
        parties: int = 10,
        seed: int = 0,
        ledger: Ledger | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.colluding = colluding
        self.dropouts = dropouts
        self.label_bounds = label_bounds
        self.bounds = bounds
        self.norm = norm
        self.intercept = intercept
        self.options = options
        self.protocol = protocol
        self.parties = parties
        self.seed = seed
        self.ledger = ledger

    def fit(self, X: Any, y: Any, groups: Any = None, **unserved: Any) -> PrivateRegressor:
        """Learn from X, y; groups: the party of each row, or a data frame's column of it."""
        _refuse(unserved)
        with as_it_was_without(self, "_release"):
            features, targets, groups = self._validated(X, y, groups, y_numeric=True)
            labels = np.asarray(targets, dtype=np.float64)
            self._scaled_from = self._label_bounds(labels)
            self._learn(features, labels, groups)
        return self

    def predict(self, X: npt.ArrayLike) -> Floats:
        """The predicted label of each row, clipped to label_bounds; rows are not clipped to the norm."""
        features = self._checked(X)
        return np.asarray(self._release.predict(self._study, features))

    def _label_bounds(self, labels: Floats) -> tuple[float, float]:
        if self.label_bounds is None:
            source = "the label's bounds were taken from y: the guarantee does not cover what they reveal"
            warn([f"{source}. Pass label_bounds=(smallest, largest) from public knowledge"], 3, PrivacyWarning)
            low, high = float(labels.min()), float(labels.max())
            return (low, high) if low < high else (low - 1.0, low + 1.0)
        if np.shape(self.label_bounds) != (2,) or not all(isinstance(bound, Real) for bound in self.label_bounds):
            raise ValueError(f"Expected label_bounds=(smallest, largest), got label_bounds={self.label_bounds!r}.")
        low, high = (float(bound) for bound in self.label_bounds)
        return low, high

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _data(self) -> dict[str, Any]:
        return {"label_bounds": list(self._scaled_from)}
