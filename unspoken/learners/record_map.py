"""Linear maps of records, after which every record is clipped to norm 1.

A method may choose such a map from earlier releases or from public records, so that noise harms the model less. Formal
guarantee: whatever the map is, mapped records have norm at most 1, since they are clipped after it, in double
precision. So no sensitivity depends on where a map came from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from unspoken.types import Floats


class RecordMap(ABC):
    """u = Ax for a matrix A, clipped to norm 1."""

    curvature: float | None = None
    """The largest mean square of mapped records in any direction, where it is known. Parties do not need it."""

    @abstractmethod
    def moved(self, rows: Floats) -> Floats:
        """Ax for every row, not yet clipped."""

    @abstractmethod
    def undo(self, weights: Floats) -> Floats:
        """AᵀW: weights (features, outputs) that score records as W scores mapped ones."""

    @abstractmethod
    def to_parameters(self) -> Floats:
        """The map as flat numbers, for a request."""

    def apply(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mapped rows of norm at most 1, and the factors by which they were clipped."""
        moved = self.moved(rows)
        norms = np.sqrt(np.einsum("ij,ij->i", moved, moved))
        factors: Floats = 1.0 / np.maximum(norms, 1.0)
        return moved * factors[:, None], factors


@dataclass(frozen=True, eq=False)
class MatrixMap(RecordMap):
    """A map that is written out as a matrix of as many rows as mapped records have features."""

    matrix: Floats
    curvature: float | None = None

    def moved(self, rows: Floats) -> Floats:
        moved: Floats = rows @ self.matrix.T
        return moved

    def undo(self, weights: Floats) -> Floats:
        undone: Floats = self.matrix.T @ weights
        return undone

    def to_parameters(self) -> Floats:
        return self.matrix.ravel()

    @classmethod
    def from_parameters(cls, parameters: Floats, features: int) -> MatrixMap:
        return cls(parameters.reshape(-1, features))


@dataclass(frozen=True)
class AlreadyMapped(RecordMap):
    """The map of records that were mapped and clipped before a method sees them: nothing is left to do."""

    curvature: float | None = None

    def moved(self, rows: Floats) -> Floats:
        return rows

    def undo(self, weights: Floats) -> Floats:
        return weights

    def to_parameters(self) -> Floats:
        return np.empty(0)
