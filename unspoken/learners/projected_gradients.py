"""Sums of clipped per-example gradients, whole or projected to fewer numbers (cross-silo, Algorithm 3).

Gradients are clipped either before the projection, as in the paper, where ‖Pᵀz‖ exceeds the bound C̃ with a small
probability δ' in every round, which counts in δ; or after it, where no example's contribution exceeds C, and δ is not
affected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from unspoken.arithmetic import ROWS, rows_of
from unspoken.learners.random_projection import GaussianProjection, HadamardProjection, LayerProjection, projected_bound
from unspoken.types import Floats, Integers, Labels

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel


class Projection(ABC):
    """Maps examples to the sums of a round, and a total back to a gradient."""

    size: int
    bound: float
    """The largest norm of an example's contribution, except with probability `slack`"""
    slack: float = 0.0
    assumptions: tuple[str, ...] = ()
    """Conditions of the bound, each to follow 'assumes that'"""
    rows: int
    """The number of examples that are summed in one block"""

    def __init__(self, model: TorchModel, clip: float) -> None:
        self._model, self._clip = model, clip
        self.size, self.bound, self.rows = model.size, clip, model.rows

    @abstractmethod
    def sums(self, weights: Floats, features: Floats, labels: Labels, counts: Integers, turn: int) -> Floats:
        """One row a party; `counts` are the parties' numbers of examples, in order."""

    @abstractmethod
    def lift(self, total: Floats, turn: int) -> Floats:
        """The gradient that a total stands for."""


class Plain(Projection):
    """No projection."""

    def sums(self, weights: Floats, features: Floats, labels: Labels, counts: Integers, turn: int) -> Floats:
        return self._model.clipped_gradients(weights, features, labels, counts, self._clip)

    def lift(self, total: Floats, turn: int) -> Floats:
        return total


class BeforeProjection(Projection):
    """Gradients are clipped, summed, then projected by a Gaussian matrix, as in the paper.

    The bound is for gradients that do not depend on the matrix. Whoever knows the seed can make records whose gradients
    it stretches by up to 1 + √(d/k).
    """

    assumptions = ("nobody chose records by the seed of the projection",)

    def __init__(self, model: TorchModel, clip: float, size: int, seed: int, slack: float) -> None:
        super().__init__(model, clip)
        self.size, self.slack, self.bound = size, slack, projected_bound(clip, size, slack)
        self._seed = seed

    def sums(self, weights: Floats, features: Floats, labels: Labels, counts: Integers, turn: int) -> Floats:
        whole = self._model.clipped_gradients(weights, features, labels, counts, self._clip)
        return self._matrix(turn).project(whole)

    def lift(self, total: Floats, turn: int) -> Floats:
        return self._matrix(turn).lift(total)

    def _matrix(self, turn: int) -> GaussianProjection:
        return GaussianProjection(self._model.size, self.size, self._seed, turn)


class LayersProjection(Projection):
    """For networks of linear layers: each example's gradient is projected from its factors, then clipped."""

    def __init__(self, model: TorchModel, clip: float, size: int, seed: int) -> None:
        super().__init__(model, clip)
        self._layers = model.layers or []
        self._shapes = [(layer.outputs, layer.inputs + layer.bias) for layer in self._layers]
        self._wanted, self._seed = size, seed
        self.size, self.rows = self._matrix(0).size, ROWS

    def sums(self, weights: Floats, features: Floats, labels: Labels, counts: Integers, turn: int) -> Floats:
        sums, matrix = np.zeros((len(counts), self.size)), self._matrix(turn)
        for party, rows in enumerate(rows_of(counts)):
            if counts[party]:
                # By themselves, as in `TorchModel.clipped_gradients`
                books = self._model.outer_products(weights, features[rows], labels[rows])
                backs = [back.double().numpy() for back, _ in books]
                inputs = [seen.double().numpy() for _, seen in books]
                sums[party] = matrix.clipped_sum(backs, inputs, self._clip)
        return sums

    def lift(self, total: Floats, turn: int) -> Floats:
        parts = []
        for layer, matrix in zip(self._layers, self._matrix(turn).lift(total), strict=True):
            parts.append(matrix[:, : layer.inputs].ravel())
            if layer.bias:
                parts.append(matrix[:, -1])
        return np.concatenate(parts)

    def _matrix(self, turn: int) -> LayerProjection:
        return LayerProjection(self._shapes, self._wanted, self._seed, turn)


class AfterProjection(Projection):
    """For any other module: each example's gradient is projected by a Hadamard transform, then clipped."""

    def __init__(self, model: TorchModel, clip: float, size: int, seed: int) -> None:
        super().__init__(model, clip)
        self.size, self._seed = size, seed

    def sums(self, weights: Floats, features: Floats, labels: Labels, counts: Integers, turn: int) -> Floats:
        sums, matrix = np.zeros((len(counts), self.size)), self._matrix(turn)
        for party, rows in enumerate(rows_of(counts)):
            for slopes in self._model.example_gradients(weights, features[rows], labels[rows]):
                down = matrix.project(slopes)
                norms = np.linalg.norm(down, axis=1)
                # An example whose gradient is not finite contributes nothing.
                kept = np.isfinite(norms)
                sums[party] += (self._clip / np.maximum(norms[kept], self._clip)) @ down[kept]
        return sums

    def lift(self, total: Floats, turn: int) -> Floats:
        return self._matrix(turn).lift(total)

    def _matrix(self, turn: int) -> HadamardProjection:
        return HadamardProjection(self._model.size, self.size, self._seed, turn)


def after_projection(model: TorchModel, clip: float, size: int, seed: int) -> Projection:
    """The structured projection for the model."""
    if model.layers is not None:
        return LayersProjection(model, clip, max(size, len(model.layers)), seed)
    return AfterProjection(model, clip, size, seed)
