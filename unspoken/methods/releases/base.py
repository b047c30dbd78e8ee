"""The interface of every release.

Features are those of the study's records (`data.files.Records`): a table's numbers scaled to [−1, 1] and its categories
as indicators, a matrix as it is; in both the constant is not yet appended and nothing is clipped. Models score records
without clipping them, which is for learning only. Clipping would multiply all scores of a record by one positive
factor, which changes no predicted class of a linear model; without it, `coef_` and `intercept_` describe the model
completely. PyTorch models are the exception (`TorchWeights`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from unspoken.data.bounding import unscale_labels
from unspoken.data.files import Records
from unspoken.learners.public_directions import PublicDirections
from unspoken.learners.scores import Link, classify, probabilities
from unspoken.study import Study
from unspoken.types import Floats, Labels


class Release(ABC):
    """The result of a study, which becomes public."""

    kind: ClassVar[Literal["model", "statistics"]] = "model"
    """The word for it in names of files and in certificates"""
    suffix: ClassVar[str]
    """The suffix of its file's name"""
    details: dict[str, Any]
    """Facts for the certificate, such as the number of records"""
    link: Link | None
    """The link from a classification's scores to probabilities; None: it has none"""

    @abstractmethod
    def scores(self, study: Study, features: Floats) -> Floats:
        """One column an output: a class each (for two classes perhaps one for the second alone), or the scaled label of
        a regression."""

    @abstractmethod
    def estimator(self, study: Study) -> Any:
        """The model as others use it, without unspoken: a fitted scikit-learn estimator, or a `torch.nn.Module`."""

    @abstractmethod
    def to_bytes(self, study: Study) -> bytes:
        """The content of its file, which runs no code when it is loaded: the same bytes whenever they are made."""

    def save(self, study: Study, path: Path) -> None:
        path.write_bytes(self.to_bytes(study))

    def mapped_back(self, directions: PublicDirections) -> Release:
        """The same model for records before they are mapped: a linear one only."""
        raise TypeError(f"Expected a linear model to map back, got {self!r}.")

    def predict(self, study: Study, features: Floats) -> Labels:
        """Class numbers, or a regression's labels within the study's label_bounds."""
        scores = self.scores(study, features)
        if study.task == "regression":
            return unscale_labels(scores[:, 0], study.data)
        return classify(scores)

    def failures(self, study: Study, features: Floats) -> tuple[int, str]:
        """How many records the model cannot score, so that their scores are zero, and what it says of one of them."""
        return 0, ""

    @property
    def has_probabilities(self) -> bool:
        return self.link is not None

    def probabilities(self, study: Study, features: Floats) -> Floats:
        """One column a class, in the study's order."""
        if self.link is None:
            raise ValueError("Expected a model with probabilities, got one that has scores only.")
        return probabilities(self.scores(study, features), self.link)

    def metrics(self, study: Study, test: Records, train: Records | None = None) -> dict[str, float]:
        """The quality on the test records. The guarantee does not cover these numbers."""
        predicted = self.predict(study, test.features)
        if study.task == "regression":
            error, spread = float(((predicted - test.labels) ** 2).mean()), float(np.var(test.labels))
            return {"mse": error} | ({"r2": 1.0 - error / spread} if spread > 0.0 else {})
        right, classes = predicted == test.labels, np.unique(test.labels)
        recalls = [float(right[test.labels == each].mean()) for each in classes]
        return {"accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(recalls))}

    def attributes(self, study: Study) -> dict[str, Any]:
        """The attributes of a scikit-learn estimator with this model, such as `coef_`."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """The released numbers, where programs should see them at once; a model is in its file."""
        return {}

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The released numbers, where people should see them at once: column, statistic, value, noise."""
        return []
