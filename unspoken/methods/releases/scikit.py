"""Models that are saved as plain scikit-learn objects with skops: no code runs when one is loaded, and unspoken is not
needed.

For a table, preprocessing is rebuilt from the study's public bounds.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from unspoken.methods.releases.base import Release
from unspoken.study import Study


class ScikitModel(Release):
    """A model that has a scikit-learn form."""

    suffix = "skops"

    @abstractmethod
    def fitted(self, study: Study, order: list[int]) -> Any:
        """The scikit-learn form for features that come in this order: `order[i]` is the place of feature i in the
        study's own vectors."""

    def estimator(self, study: Study) -> Any:
        """A fitted scikit-learn estimator: for a table, a pipeline that takes data frames with the study's columns."""
        if not study.data.is_table:
            return self.fitted(study, list(range(study.data.raw_dimension)))
        from sklearn.pipeline import Pipeline

        preprocessing, order = _preprocessing(study)
        return Pipeline([("bound", preprocessing), ("model", self.fitted(study, order))])

    def save(self, study: Study, path: Path) -> None:
        import skops.io

        skops.io.dump(self.estimator(study), path)


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
