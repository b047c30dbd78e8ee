"""A linear model, of classes or of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unspoken.data.bounding import scale_labels, with_constant
from unspoken.data.files import Records
from unspoken.learners.public_directions import PublicDirections
from unspoken.learners.scores import Link
from unspoken.methods.releases.scikit import ScikitModel
from unspoken.study import Study
from unspoken.types import Floats


@dataclass(frozen=True)
class LinearModel(ScikitModel):
    """One row of weights an output, for the constant last if the study has one."""

    weights: Floats
    """A regression has one row, which gives labels scaled to [−1, 1] by their public bounds."""
    link: Link | None
    details: dict[str, Any]

    def scores(self, study: Study, features: Floats) -> Floats:
        scores: Floats = with_constant(features, study.data) @ self.weights.T
        return scores

    def mapped_back(self, directions: PublicDirections) -> LinearModel:
        return replace(self, weights=directions.undo(directions.told(self.weights)))

    def metrics(self, study: Study, test: Records, train: Records | None = None) -> dict[str, float]:
        """Also, given training records, a regression's `coefficient_error`: ‖w − w*‖/d (CAPE, Section 5.2), w* their
        least-squares model without privacy, both for labels scaled to [−1, 1]."""
        metrics = super().metrics(study, test)
        if train is not None and study.task == "regression":
            moved = self.weights[0] - _least_squares(study, train)
            metrics["coefficient_error"] = float(np.linalg.norm(moved) / len(moved))
        return metrics

    def attributes(self, study: Study) -> dict[str, Any]:
        """The weights in the units of the features, and in a regression of the label."""
        weights, intercepts = self.weights, np.zeros(len(self.weights))
        if study.data.has_intercept:
            weights, intercepts = weights[:, :-1], weights[:, -1] * study.data.constant
        if study.task == "classification":
            return {"coef_": weights.copy(), "intercept_": intercepts.copy()}
        low, high = study.data.label_bounds or (-1.0, 1.0)
        half = (high - low) / 2.0
        return {"coef_": weights[0] * half, "intercept_": (low + high) / 2.0 + float(intercepts[0]) * half}

    def fitted(self, study: Study, order: list[int]) -> Any:
        found = self.attributes(study)
        weights, intercepts = found["coef_"][..., order], found["intercept_"]
        if study.task == "classification":
            return self._classifier(np.array(study.data.class_names), weights, intercepts)
        return _clipped(weights, float(intercepts), *(study.data.label_bounds or (-1.0, 1.0)))

    def _classifier(self, classes: Any, weights: Floats, intercepts: Floats) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import LinearSVC

        if len(weights) == 2:
            weights, intercepts = weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
        if self.link == "sigmoid" and len(classes) > 2:
            return _one_versus_rest(classes, weights, intercepts)
        kind = LogisticRegression if self.has_probabilities else LinearSVC
        return _with(kind(), weights, intercepts, classes_=classes, n_iter_=np.array([0]))


def _one_versus_rest(classes: Any, weights: Floats, intercepts: Floats) -> Any:
    """A logistic regression for each class, whose probabilities are divided by their sum.

    Where noise has driven all of them to 0, scikit-learn leaves them at 0; our own are then all alike.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    model = OneVsRestClassifier(LogisticRegression())
    model.estimators_ = [
        _with(LogisticRegression(), row[None], intercept[None], classes_=np.array([0, 1]), n_iter_=np.array([0]))
        for row, intercept in zip(weights, intercepts, strict=True)
    ]
    model.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    # In the study's order, as the rows of weights are; the binarizer has sorted its own.
    model.classes_, model.n_features_in_ = classes, weights.shape[1]
    return model


def _clipped(weights: Floats, intercept: float, low: float, high: float) -> Any:
    """A linear regression whose predictions are clipped to the label's bounds.

    The inner model predicts the share of the way from `low` to `high`. Of what `skops` trusts, quantiles, here the two
    bounds, are what clips on the way back.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import QuantileTransformer

    way = QuantileTransformer(n_quantiles=2)
    way.n_quantiles_, way.n_features_in_ = 2, 1
    way.references_, way.quantiles_ = np.array([0.0, 1.0]), np.array([[low], [high]])
    share = _with(LinearRegression(), weights / (high - low), (intercept - low) / (high - low))
    model = TransformedTargetRegressor(regressor=LinearRegression(), transformer=QuantileTransformer(n_quantiles=2))
    model.regressor_, model.transformer_, model._training_dim = share, way, 1
    return model


def _with(model: Any, weights: Floats, intercepts: Any, **attributes: Any) -> Any:
    """The scikit-learn model, as if it had been fitted."""
    model.coef_, model.intercept_, model.n_features_in_ = weights, intercepts, weights.shape[-1]
    vars(model).update(attributes)
    return model


def _least_squares(study: Study, train: Records) -> Floats:
    """The weights of the least-squares model of all records, without privacy."""
    labels = scale_labels(np.asarray(train.labels, dtype=np.float64), study.data)
    return np.asarray(np.linalg.lstsq(with_constant(train.features, study.data), labels)[0])
