"""A scikit-learn classifier that learnt from public records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.methods.releases.scikit import ScikitModel
from unspoken.study import Study
from unspoken.types import Floats, Integers


@dataclass(frozen=True)
class FittedEstimator(ScikitModel):
    """Any scikit-learn classifier: its predictions, scores and probabilities are its own."""

    model: Any
    """Fitted to the study's class names, and to features without the constant, unclipped."""
    details: dict[str, Any]
    link = None

    def scores(self, study: Study, features: Floats) -> Floats:
        """The values of its `decision_function`, or its probabilities, or else 1 for the class that it predicts."""
        if hasattr(self.model, "decision_function"):
            found = self.model.decision_function(features)
            # One column of two classes: so their difference is that column again.
            columns = np.column_stack([-found, found]) / 2.0 if found.ndim == 1 else found
            return self._in_order(study, columns, -np.inf)
        if self.has_probabilities:
            return self.probabilities(study, features)
        return np.eye(len(study.data.class_names))[self.predict(study, features)]

    def predict(self, study: Study, features: Floats) -> Integers:
        return _numbers(study, self.model.predict(features))

    @property
    def has_probabilities(self) -> bool:
        return hasattr(self.model, "predict_proba")

    def probabilities(self, study: Study, features: Floats) -> Floats:
        return self._in_order(study, self.model.predict_proba(features), 0.0)

    def fitted(self, study: Study, order: list[int]) -> Any:
        if order == sorted(order):
            return self.model
        from sklearn.compose import ColumnTransformer
        from sklearn.pipeline import Pipeline

        own = ColumnTransformer([("order", "passthrough", np.argsort(order).tolist())])
        return Pipeline([("order", own.fit(np.zeros((1, len(order))))), ("model", self.model)])

    def _in_order(self, study: Study, columns: Floats, missing: float) -> Floats:
        """One column a class of the study; the model knows only those that it was taught, and sorts them."""
        found = np.full((len(columns), len(study.data.class_names)), missing)
        found[:, _numbers(study, self.model.classes_)] = columns
        return found


def _numbers(study: Study, names: Any) -> Integers:
    """The numbers of classes that are named."""
    numbers = {name: number for number, name in enumerate(np.array(study.data.class_names).tolist())}
    return np.array([numbers[name] for name in np.asarray(names).tolist()], dtype=np.int64)
