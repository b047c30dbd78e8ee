"""Polynomials of several variables, as the functional mechanism releases them (Zhang et al. 2012; CAPE, Section 4).

A cost f(w) = Σ_j ⟨Λ_j, w ⊗ … ⊗ w⟩ has one symmetric tensor Λ_j for each order j. A tensor is packed into a vector of
the same norm: each of its different entries once, times the root of how often it is there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from unspoken.types import Floats, Integers

_STEPS = 500
_STARTS = 8
"""The number of starting points beside 0. The best end is taken"""
_HALVINGS = 60


@dataclass(frozen=True)
class Monomials:
    """The monomials of one order in `variables` variables."""

    variables: int
    order: int

    @property
    def size(self) -> int:
        """The number of different entries of a symmetric tensor.

        >>> Monomials(3, 2).size, Monomials(3, 0).size
        (6, 1)
        """
        return math.comb(self.variables + self.order - 1, self.order)

    def packed(self, tensor: Floats) -> Floats:
        """A tensor as a vector: its symmetric part, which alone matters, with the norm of that.

        >>> (Monomials(2, 2).packed(np.array([[1.0, 4.0], [2.0, 2.0]])) ** 2).round(9).tolist()
        [1.0, 18.0, 4.0]
        """
        sums = np.bincount(self._entries, weights=np.ravel(tensor), minlength=self.size)
        return np.asarray(sums / self._roots)

    def unpacked(self, vector: Floats) -> Floats:
        """The symmetric tensor of a packed vector."""
        return np.asarray((vector / self._roots)[self._entries]).reshape((self.variables,) * self.order)

    @cached_property
    def _entries(self) -> Integers:
        """The number of the different entry that each entry of a tensor equals: that with the same indices in order."""
        if not self.order:
            return np.zeros(1, dtype=np.int64)
        shape = (self.variables,) * self.order
        ordered = np.sort(np.indices(shape).reshape(self.order, -1), axis=0)
        # The different entries are listed in the order of their places.
        known = np.ravel_multi_index(tuple(self._places), shape)
        return np.asarray(np.searchsorted(known, np.ravel_multi_index(tuple(ordered), shape)))

    @cached_property
    def _roots(self) -> Floats:
        return np.sqrt(self._times)

    @cached_property
    def _places(self) -> Integers:
        """The places of the different entries, one row for each index."""
        rows = list(combinations_with_replacement(range(self.variables), self.order))
        return np.array(rows, dtype=np.int64).reshape(len(rows), self.order).T

    @cached_property
    def _times(self) -> Integers:
        """How often each of them is in the tensor."""
        repeats = [math.prod(map(math.factorial, Counter(place).values())) for place in self._places.T.tolist()]
        return np.array([math.factorial(self.order) // repeat for repeat in repeats], dtype=np.int64)


@dataclass(frozen=True)
class Polynomial:
    """A polynomial, by the symmetric tensor of each order.

    >>> square = Polynomial({1: np.array([-2.0, 0.0]), 2: np.eye(2)})
    >>> float(square.value(np.array([1.0, 0.0]))), square.gradient(np.array([1.0, 0.0])).tolist()
    (-1.0, [0.0, 0.0])
    >>> square.minimiser(radius=5.0).round(9).tolist(), square.minimiser(radius=0.5).round(9).tolist()
    ([1.0, 0.0], [0.5, 0.0])
    """

    coefficients: Mapping[int, Floats]

    @property
    def variables(self) -> int:
        return next(len(tensor) for order, tensor in self.coefficients.items() if order)

    def value(self, weights: Floats) -> float:
        """f(w)."""
        return sum(float(_contracted(tensor, weights, order)) for order, tensor in self.coefficients.items())

    def gradient(self, weights: Floats) -> Floats:
        """∇f(w) = Σ_j j·⟨Λ_j, w ⊗ … ⊗ w⟩, with one w less."""
        parts = [
            order * _contracted(tensor, weights, order - 1) for order, tensor in self.coefficients.items() if order
        ]
        return np.asarray(sum(parts, np.zeros(self.variables)))

    def minimiser(self, radius: float, ridge: float = 0.0) -> Floats:
        """The w of norm at most `radius` with the least f(w) + ridge·‖w‖².

        Noise may leave a polynomial without a least value, hence the radius: public, as all that noise is made for. Up
        to order 2 it is the least one; beyond, the best that descents from 0 and a few fixed points find.
        """
        if not radius > 0.0:
            raise ValueError(f"Expected radius > 0, got radius={radius}.")
        if max(self.coefficients) <= 2:
            return self._least_square(radius, ridge)
        rng = np.random.default_rng(0)
        starts = [
            np.zeros(self.variables),
            *(_within(row, radius) for row in rng.normal(size=(_STARTS, self.variables))),
        ]
        ends = [self._descended(start, radius, ridge) for start in starts]
        return min(ends, key=lambda weights: self._cost(weights, ridge))

    def _cost(self, weights: Floats, ridge: float) -> float:
        return self.value(weights) + ridge * float(weights @ weights)

    def _least_square(self, radius: float, ridge: float) -> Floats:
        """min gᵀw + wᵀHw in the ball: −(H + λ)⁻¹g/2, with the least λ ≥ 0 that is enough."""
        linear = self.coefficients.get(1, np.zeros(self.variables))
        square = self.coefficients.get(2, np.zeros((self.variables, self.variables))) + ridge * np.eye(self.variables)
        values, vectors = np.linalg.eigh(square)
        turned = -(vectors.T @ linear) / 2.0
        low, size = max(0.0, -float(values[0])), float(np.linalg.norm(linear))
        least = 1e-12 * max(float(np.abs(values).max()), size / radius, 1e-300)

        def solved(extra: float) -> Floats:
            found: Floats = turned / (values + extra)
            return found

        found = solved(low + least)
        if np.linalg.norm(found) <= radius:
            if low > least:
                # The cost falls along the first vector, both ways, up to the ball's surface; without a linear part, as
                # in a principal component, neither way is better.
                found[0] = math.copysign(math.sqrt(max(0.0, radius**2 - float(found[1:] @ found[1:]))), found[0])
            return np.asarray(vectors @ found)
        high = low + size / radius + least
        for _ in range(100):
            middle = (low + high) / 2.0
            low, high = (middle, high) if np.linalg.norm(solved(middle)) > radius else (low, middle)
        return np.asarray(vectors @ solved(high))

    def _descended(self, weights: Floats, radius: float, ridge: float) -> Floats:
        """Projected gradient descent, with steps that shrink until the cost does."""
        step, cost = 1.0, self._cost(weights, ridge)
        for _ in range(_STEPS):
            slope = self.gradient(weights) + 2.0 * ridge * weights
            for _ in range(_HALVINGS):
                moved = _within(weights - step * slope, radius)
                change = moved - weights
                if self._cost(moved, ridge) <= cost - 0.25 * float(change @ change) / step:
                    break
                step /= 2.0
            else:
                return weights
            if float(change @ change) <= 1e-24 * radius**2:
                return moved
            weights, cost, step = moved, self._cost(moved, ridge), 2.0 * step
        return weights


def _contracted(tensor: Floats, weights: Floats, times: int) -> Floats:
    """The tensor with w put into so many of its places."""
    for _ in range(times):
        tensor = np.asarray(tensor @ weights)
    return tensor


def _within(weights: Floats, radius: float) -> Floats:
    return np.asarray(weights * min(1.0, radius / max(float(np.linalg.norm(weights)), 1e-300)))
