"""The released model as plain scikit-learn objects, saved with skops: no code runs when it is loaded, and unspoken is
not needed.

Preprocessing is rebuilt from the study's public bounds. The clipping to norm c is left out: it multiplies all scores
of a record by the same positive factor, so it changes no predicted class of a linear model; regressions and networks
are evaluated without it, just as the saved model predicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unspoken.methods.base import Release
from unspoken.study import Study
from unspoken.types import Floats


def to_sklearn(study: Study, release: Release) -> Any:
    """A fitted scikit-learn estimator: for a table, a pipeline that takes data frames with the study's columns."""
    if not study.data.is_table:
        return release.estimator or _estimator(study, release, list(range(study.data.raw_dimension)))
    from sklearn.pipeline import Pipeline

    preprocessing, order = _preprocessing(study)
    if release.estimator is not None:
        return Pipeline([("bound", preprocessing), ("order", _ordering(order)), ("model", release.estimator)])
    return Pipeline([("bound", preprocessing), ("model", _estimator(study, release, order))])


def _ordering(order: list[int]) -> Any:
    """Puts features that come in this order into the study's own."""
    from sklearn.compose import ColumnTransformer

    return ColumnTransformer([("order", "passthrough", np.argsort(order).tolist())]).fit(np.zeros((1, len(order))))


def _estimator(study: Study, release: Release, order: list[int]) -> Any:
    """The model for features that come in this order."""
    if release.hidden is not None:
        return _network(study, release.hidden, release.weights, order)
    weights, intercepts = release.weights, np.zeros(len(release.weights))
    if study.data.has_intercept:
        weights, intercepts = weights[:, :-1], weights[:, -1]
    if study.study.task == "regression":
        return _regressor(study, weights[0, order], float(intercepts[0]))
    return _classifier(study, release, weights[:, order], intercepts)


def save(model: Any, path: Path) -> None:
    import skops.io

    skops.io.dump(model, path)


def save_weights(state: dict[str, Any], path: Path) -> None:
    """A PyTorch model's weights by name, as plain arrays: `module.load_state_dict` takes them as tensors."""
    with path.open("wb") as file:
        np.savez(file, **state)


def _classifier(study: Study, release: Release, weights: Floats, intercepts: Floats) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer
    from sklearn.svm import LinearSVC

    classes = np.array(study.data.class_names)
    if len(weights) == 2:
        weights, intercepts = weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
    if release.probabilities == "sigmoid" and len(classes) > 2:
        model = OneVsRestClassifier(LogisticRegression())
        pairs = zip(weights, intercepts, strict=True)
        model.estimators_ = [_fitted(LogisticRegression(), np.array([0, 1]), w[None], b[None]) for w, b in pairs]
        model.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
        # In the study's order, as the rows of weights are; the binarizer has sorted its own.
        model.classes_ = classes
        model.n_features_in_ = weights.shape[1]
        return model
    return _fitted(LogisticRegression() if release.probabilities else LinearSVC(), classes, weights, intercepts)


def _regressor(study: Study, weights: Floats, intercept: float) -> Any:
    """In the units of the label, not scaled to [−1, 1]."""
    from sklearn.linear_model import LinearRegression

    model = LinearRegression()
    low, high = study.data.label_bounds or (-1.0, 1.0)
    model.coef_ = weights * (high - low) / 2.0
    model.intercept_ = (low + high) / 2.0 + intercept * (high - low) / 2.0
    model.n_features_in_ = len(weights)
    return model


def _network(study: Study, hidden: Floats, output: Floats, order: list[int]) -> Any:
    """A perceptron with one hidden layer; two classes have a single output there."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import LabelBinarizer

    classes = np.array(study.data.class_names)
    biases = hidden[:, -1] + (hidden[:, -2] if study.data.has_intercept else 0.0)
    if len(output) == 2:
        output = output[1:] - output[:1]
    model = MLPClassifier(hidden_layer_sizes=(len(hidden),), activation="relu")
    model.coefs_ = [hidden[:, order].T.copy(), output[:, :-1].T.copy()]
    model.intercepts_ = [biases.copy(), output[:, -1].copy()]
    model.n_layers_, model.n_outputs_ = 3, len(output)
    model.out_activation_ = "logistic" if len(output) == 1 else "softmax"
    model._label_binarizer = LabelBinarizer().fit(np.arange(len(classes)))
    model._label_binarizer.classes_ = classes
    model.classes_, model.n_features_in_ = classes, len(order)
    return model


def _fitted(model: Any, classes: Any, weights: Floats, intercepts: Floats) -> Any:
    model.classes_, model.coef_, model.intercept_ = classes, weights.copy(), intercepts.copy()
    model.n_features_in_, model.n_iter_ = weights.shape[1], np.array([0])
    return model


def _preprocessing(study: Study) -> tuple[Any, list[int]]:
    """Scaling and indicators as in `data.bounding`, fitted to a made-up table that spans the public bounds; and for
    each feature that comes out the position that it has in the study's vectors."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

    columns = study.data.columns or {}
    rows = max(2, *(column.width for column in columns.values()))
    made_up: dict[str, Any] = {}
    steps: list[tuple[str, Any, list[str]]] = []
    order: list[int] = []
    for number, (name, column) in enumerate(columns.items()):
        if column.categories is None:
            values, ranks = np.array([column.min, column.max]), np.array([0])
            step = MinMaxScaler(feature_range=(-1, 1), clip=True)
        else:
            # The encoder takes numbers in ascending order only.
            ranks = np.argsort(column.categories)
            values = np.array(column.categories)[ranks]
            step = OneHotEncoder(categories=[values], sparse_output=False)
        made_up[name] = np.resize(values, rows)
        # Numbered, because scikit-learn does not allow every column's name as a step's.
        steps.append((f"column{number}", step, [name]))
        order += [len(order) + int(rank) for rank in ranks]
    transformer = ColumnTransformer(steps).fit(pd.DataFrame(made_up))
    for (_, scaler, _), column in zip(transformer.transformers_, columns.values(), strict=True):
        if column.min is not None and column.max is not None:
            # scikit-learn takes bounds that are close together for a constant.
            scaler.scale_ = np.array([2.0 / (column.max - column.min)])
            scaler.min_ = -1.0 - column.min * scaler.scale_
    return transformer, order
