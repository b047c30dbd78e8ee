"""A table's columns, bounded and encoded as in `data.columns`, by scikit-learn alone.

Each is fitted to made-up values that span the column's public bounds. No value of any record is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.methods.releases.days import day_numbers
from unspoken.study import Column, Study


@dataclass(frozen=True)
class _Encoded:
    """Transformers of one column, values to fit them to, and the position of each feature that they make."""

    transformers: list[Any]
    values: list[Any]
    places: list[int]


def preprocessing(study: Study) -> tuple[Any, list[int]]:
    """The table's preprocessing as a fitted transformer of data frames, and for each feature that comes out the
    position that it has in the study's vectors."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer

    columns = study.data.columns or {}
    made_up: dict[str, Any] = {}
    steps: list[tuple[str, Any, list[str]]] = []
    order: list[int] = []
    parts = {name: _encoded(name, column) for name, column in columns.items()}
    rows = max(len(part.values) for part in parts.values())
    for name, part in parts.items():
        kind = object if isinstance(part.values[0], str | bool) else None
        made_up[name] = pd.Series([part.values[row % len(part.values)] for row in range(rows)], dtype=kind)
        # Numbered, because scikit-learn does not allow every column's name as a step's.
        steps += [(f"column{len(steps) + at}", each, [name]) for at, each in enumerate(part.transformers)]
        order += [len(order) + place for place in part.places]
    transformer = ColumnTransformer(steps).fit(pd.DataFrame(made_up))
    for _, fitted, names in transformer.transformers_:
        _set(fitted, columns[names[0]])
    return transformer, order


def _encoded(name: str, column: Column) -> _Encoded:
    if column.categories is not None:
        return _of_category(column)
    if column.kind == "date":
        return _of_days(name, column)
    from sklearn.impute import KNNImputer, MissingIndicator

    values = [column.low, column.high]
    if column.missing is None:
        return _Encoded([_scaler()], values, [0])
    filled = _chain([_scaler(), KNNImputer()])
    if not column.has_missing_feature:
        return _Encoded([filled], values, [0])
    return _Encoded([filled, _chain([_scaler(), MissingIndicator(features="all")])], values, [0, 1])


def _scaler() -> Any:
    from sklearn.preprocessing import MinMaxScaler

    return MinMaxScaler(feature_range=(-1, 1), clip=True)


def _of_days(name: str, column: Column) -> _Encoded:
    """Days come as text, and become their numbers first. A missing one that has a feature is in the middle."""
    from sklearn.compose import ColumnTransformer
    from sklearn.frozen import FrozenEstimator

    numbers = day_numbers(name, (column.low + column.high) / 2.0 if column.has_missing_feature else column.fill)
    features = [("day", _scaler(), [0]), *([("missing", "passthrough", [1])] if column.has_missing_feature else [])]
    scaled = ColumnTransformer(features).fit(np.array([[column.low, 0.0], [column.high, 0.0]]))
    _set(scaled.named_transformers_["day"], column)
    values = [column.shown(column.low), column.shown(column.high)]
    return _Encoded([FrozenEstimator(_chain([numbers, scaled]))], values, list(range(column.width)))


def _of_category(column: Column) -> _Encoded:
    """Indicators. Before, values get numbers if some may be unlisted or missing."""
    from sklearn.impute import KNNImputer
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    categories = column.categories or []
    # The encoders take numbers in ascending order only.
    places = np.argsort(np.array(categories)).tolist()
    values = [categories[place] for place in places]
    if not column.other and column.missing is None:
        return _Encoded([OneHotEncoder(categories=[np.array(values)], sparse_output=False)], values, places)
    known = np.array([*values, math.nan], dtype=object if isinstance(values[0], str | bool) else None)
    unlisted = {"handle_unknown": "use_encoded_value", "unknown_value": -1} if column.other else {}
    steps: list[Any] = [OrdinalEncoder(categories=[known if column.missing is not None else known[:-1]], **unlisted)]
    if column.missing is not None:
        steps.append(KNNImputer())
    codes = range(-1 if column.other else 0, len(values) + column.has_missing_feature)
    steps.append(OneHotEncoder(categories=[np.array(codes, dtype=np.float64)], sparse_output=False))
    own = [column.width - 1] if column.has_missing_feature else []
    # The encoder keeps its categories in the type of what it is fitted to, and whole numbers have no NaN.
    values = known[:-1].tolist()
    return _Encoded([_chain(steps)], values, [*([len(values)] if column.other else []), *places, *own])


def _chain(steps: list[Any]) -> Any:
    from sklearn.pipeline import Pipeline

    return steps[0] if len(steps) == 1 else Pipeline([(f"step{at}", step) for at, step in enumerate(steps)])


def _set(fitted: Any, column: Column) -> None:
    """Give a scaler the column's exact bounds, and an imputer the value for missing ones.

    scikit-learn takes bounds that are close together for a constant. Of its imputers, only this one leaves nothing in a
    file that `skops` would ask about. A row that has no number at all gets the mean of those that the imputer knows:
    it knows one.
    """
    from sklearn.impute import KNNImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import MinMaxScaler

    for step in [each for _, each in fitted.steps] if isinstance(fitted, Pipeline) else [fitted]:
        if isinstance(step, MinMaxScaler):
            step.scale_ = np.array([2.0 / (column.high - column.low)])
            step.min_ = -1.0 - column.low * step.scale_
        elif isinstance(step, KNNImputer):
            step.fit(np.array([[_filled(column)]]))


def _filled(column: Column) -> float:
    """The number for a missing value, after scaling or as a category's number."""
    if column.categories is not None:
        known = len(column.categories)
        return float(
            known if column.fill is None else np.argsort(np.array(column.categories)).tolist().index(column.fill)
        )
    return 0.0 if column.fill is None else 2.0 * (column.fill - column.low) / (column.high - column.low) - 1.0
