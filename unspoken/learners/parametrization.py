"""Two parametrizations of linear models: by weights, or by coefficients of the records.

A regularised linear model is a combination of its party's records (the representer theorem, DP-Helmet
Appendix C.4): W = Xᵀ A. A party with fewer records than features therefore trains its n×outputs coefficients A
on the n×n Gram matrix XXᵀ instead of the d×outputs weights. Both spaces offer the same few operations, batched over
parties, so a solver is written once; a gradient step is the same step on the model in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from unspoken.types import Floats, Integers


class Space(ABC):
    """Coefficients of B models at once, and the linear maps between coefficients and scores."""

    dimension: int
    """The number of coefficient rows of one model."""

    @abstractmethod
    def scores(self, coefficients: Floats) -> Floats:
        """The scores (B, n, outputs) of every record under its party's model."""

    @abstractmethod
    def scores_of(self, coefficients: Floats, rows: Integers) -> Floats:
        """The scores of some rows of every party."""

    @abstractmethod
    def gradient(self, slopes: Floats) -> Floats:
        """Coefficients of Σ_records slopes ⊗ x: the loss part of the gradient."""

    @abstractmethod
    def squared_norms(self, coefficients: Floats) -> Floats:
        """‖W‖² of each model in feature space."""

    @abstractmethod
    def norm_bounds(self, coefficients: Floats) -> Floats:
        """A cheap upper bound on ‖W‖ of each model in feature space."""

    @abstractmethod
    def inner(self, left: Floats, right: Floats, right_scores: Floats) -> Floats:
        """⟨W, V⟩ of each pair of models, given V's coefficients and its scores."""

    @abstractmethod
    def lengths(self) -> Floats:
        """‖x‖ of the longest record of each party."""

    @abstractmethod
    def second_moment(self) -> Floats:
        """The matrices Q (B, m, m) that map coefficients of W to those of Xᵀ X W."""

    @abstractmethod
    def weights(self, coefficients: Floats) -> Floats:
        """The models as weight matrices (B, outputs, d)."""


class FeatureSpace(Space):
    """Coefficients are the weights themselves, (B, d, outputs)."""

    def __init__(self, features: Floats) -> None:
        self.features = features
        self.dimension = features.shape[2]

    def scores(self, coefficients: Floats) -> Floats:
        return self.features @ coefficients

    def scores_of(self, coefficients: Floats, rows: Integers) -> Floats:
        return self.features[:, rows] @ coefficients

    def gradient(self, slopes: Floats) -> Floats:
        return self.features.transpose(0, 2, 1) @ slopes

    def squared_norms(self, coefficients: Floats) -> Floats:
        norms: Floats = np.einsum("bij,bij->b", coefficients, coefficients)
        return norms

    def norm_bounds(self, coefficients: Floats) -> Floats:
        return np.sqrt(self.squared_norms(coefficients))

    def inner(self, left: Floats, right: Floats, right_scores: Floats) -> Floats:
        inner: Floats = np.einsum("bij,bij->b", left, right)
        return inner

    def lengths(self) -> Floats:
        squared = np.einsum("bij,bij->bi", self.features, self.features)
        return np.asarray(np.sqrt(squared.max(axis=1)))

    def second_moment(self) -> Floats:
        return self.features.transpose(0, 2, 1) @ self.features

    def weights(self, coefficients: Floats) -> Floats:
        return coefficients.transpose(0, 2, 1)


class GramSpace(Space):
    """Coefficients A (B, n, outputs) of the records: W = Xᵀ A."""

    def __init__(self, features: Floats) -> None:
        self.features = features
        self.gram = features @ features.transpose(0, 2, 1)
        self.dimension = features.shape[1]
        # The Frobenius norm bounds the largest eigenvalue: ‖Xᵀ A‖² = tr(Aᵀ G A) ≤ ‖G‖ ‖A‖².
        self._reach = np.sqrt(np.sqrt(np.einsum("bij,bij->b", self.gram, self.gram)))

    def scores(self, coefficients: Floats) -> Floats:
        return self.gram @ coefficients

    def scores_of(self, coefficients: Floats, rows: Integers) -> Floats:
        return self.gram[:, rows] @ coefficients

    def gradient(self, slopes: Floats) -> Floats:
        return slopes

    def squared_norms(self, coefficients: Floats) -> Floats:
        norms: Floats = np.einsum("bij,bij->b", coefficients, self.gram @ coefficients)
        return norms.clip(min=0.0)

    def norm_bounds(self, coefficients: Floats) -> Floats:
        bounds: Floats = self._reach * np.sqrt(np.einsum("bij,bij->b", coefficients, coefficients))
        return bounds

    def inner(self, left: Floats, right: Floats, right_scores: Floats) -> Floats:
        inner: Floats = np.einsum("bij,bij->b", left, right_scores)
        return inner

    def lengths(self) -> Floats:
        return np.asarray(np.sqrt(np.einsum("bii->bi", self.gram).max(axis=1)))

    def second_moment(self) -> Floats:
        return self.gram

    def weights(self, coefficients: Floats) -> Floats:
        return coefficients.transpose(0, 2, 1) @ self.features


def space_for(features: Floats) -> Space:
    """The smaller of the two spaces for features of shape (B, n, d)."""
    _, records, dimension = features.shape
    return GramSpace(features) if records < dimension else FeatureSpace(features)
