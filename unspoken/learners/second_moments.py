"""Second moments XᵀX and XᵀT of a party's records, and the repair of their noisy totals.

Records u = x/c of norm at most 1 and targets t of norm at most τ contribute the upper triangle of uuᵀ, its
off-diagonal scaled by √2 so that it has the Frobenius norm, and β·utᵀ: one Gaussian release of both, which is the
improved functional mechanism of CAPE (Algorithm 3) for squared and logistic loss. (The paper spends the budget on each
order separately; here both are one release. Order 0 does not move the minimiser and is left out.)

Formal guarantee. For two records with ρ = u·u', the squared distance of their contributions is at most
2(1 − ρ²) + 2β²τ²(1 + |ρ|), which is largest at |ρ| = β²τ²/2: replacing a record moves the sum by at most
√2 (1 + β²τ²/2) while β²τ² ≤ 2, and by 2βτ beyond.

The balance β. To first order, noise N in XᵀX and z in XᵀT moves W = (XᵀX)⁻¹XᵀT by (XᵀX)⁻¹(z − NW). With noise of
deviation σ on every released coordinate, an entry of z has variance σ²/β² and one of NW σ²‖w‖²/2, so the expected
excess loss is proportional to (1 + β²τ²/2)² (k/β² + R²/2) for k targets and R² = ‖W‖²: least at β² = (√(k²τ⁴ +
8kτ²R²) − kτ²)/(2τ²R²). R is a guess from the study, not from data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unspoken.arithmetic import blocks
from unspoken.learners.record_map import RecordMap
from unspoken.types import Flags, Floats, Integers, Labels


def best_balance(outputs: int, largest_target: float, coefficients: float) -> float:
    """The best β for models of norm R = `coefficients`, as above.

    >>> round(best_balance(1, 1.0, 1.0), 9)
    1.0
    """
    spread, squared = outputs * largest_target**2, coefficients**2
    if squared < 1e-9 * spread:
        return math.sqrt(2.0) / largest_target
    root = math.sqrt(spread**2 + 8.0 * spread * squared)
    return math.sqrt((root - spread) / (2.0 * largest_target**2 * squared))


@dataclass(frozen=True)
class Triangle:
    """A symmetric matrix as a vector of the same norm: its upper triangle, with what is off the diagonal times √2."""

    features: int

    @property
    def size(self) -> int:
        return self.features * (self.features + 1) // 2

    def packed(self, matrix: Floats) -> Floats:
        """
        >>> (Triangle(2).packed(np.array([[1.0, 3.0], [3.0, 2.0]])) ** 2).round(9).tolist()
        [1.0, 18.0, 4.0]
        """
        upper: Floats = matrix[self._places]
        upper[self._mixed] *= math.sqrt(2.0)
        return upper

    def unpacked(self, vector: Floats) -> Floats:
        upper = vector.copy()
        upper[self._mixed] /= math.sqrt(2.0)
        matrix = np.empty((self.features, self.features))
        rows, columns = self._places
        matrix[rows, columns] = matrix[columns, rows] = upper
        return matrix

    @cached_property
    def _places(self) -> tuple[Integers, Integers]:
        rows, columns = np.triu_indices(self.features)
        return rows, columns

    @cached_property
    def _mixed(self) -> Flags:
        rows, columns = self._places
        return np.asarray(rows != columns)


@dataclass(frozen=True)
class SecondMoments:
    """The moments of records of norm at most c, labelled with one of `classes` classes or a number in [−1, 1]."""

    features: int
    norm: float
    classes: int | None
    balance: float
    centred: bool = True
    """Whether class indicators are centred; the shift by 1/K does not change which class scores highest."""

    @property
    def outputs(self) -> int:
        return self.classes or 1

    @property
    def largest_target(self) -> float:
        """τ; targets are class indicators (minus 1/K) or the numbers themselves."""
        return math.sqrt(1.0 - 1.0 / self.classes) if self.classes and self.centred else 1.0

    @property
    def dimension(self) -> int:
        return self._triangle.size + self.features * self.outputs

    @property
    def record_bound(self) -> float:
        """The largest norm of a record's contribution."""
        return math.sqrt(1.0 + (self.balance * self.largest_target) ** 2)

    @property
    def sensitivity(self) -> float:
        """The sensitivity of the sum to replacing one record."""
        spread = (self.balance * self.largest_target) ** 2
        return math.sqrt(2.0) * (1.0 + spread / 2.0) if spread <= 2.0 else 2.0 * math.sqrt(spread)

    def of(self, features: Floats, labels: Labels, reshaping: Reshaping | None = None) -> Floats:
        """One party's contribution; padding rows are zero and add nothing."""
        second, mixed = np.zeros((self.features, self.features)), np.zeros((self.features, self.outputs))
        for block in blocks(len(features)):
            part, targets = features[block], self.targets(labels[block])
            if reshaping is not None:
                part, factors = reshaping.apply(part)
                targets = targets * factors[:, None]
            second += part.T @ part
            mixed += part.T @ targets
        upper = self._triangle.packed(second / self.norm**2)
        return np.concatenate([upper, mixed.ravel() * (self.balance / self.norm)])

    def targets(self, labels: Labels) -> Floats:
        if self.classes is None:
            return np.asarray(labels, dtype=np.float64)[:, None]
        indicators = np.asarray(labels[:, None] == np.arange(self.classes), dtype=np.float64)
        return indicators - 1.0 / self.classes if self.centred else indicators

    def split(self, total: Floats) -> tuple[Floats, Floats]:
        """UᵀU and UᵀT (u = x/c) from a total."""
        size = self._triangle.size
        mixed = total[size:].reshape(self.features, self.outputs) / self.balance
        return self._triangle.unpacked(total[:size]), mixed

    @cached_property
    def _triangle(self) -> Triangle:
        return Triangle(self.features)


@dataclass(frozen=True)
class Reshaping(RecordMap):
    """A linear map that shrinks the direction a of the mean: u ↦ (u − (1 − τ)a(aᵀu))/ℓ.

    If features are not centred, their mean takes up most of a record's length, and so of the budget. So the direction
    of the mean is shrunk by τ, until its square is a quarter of the rest, and records are stretched to a typical length
    of 1. Longer records are clipped together with their targets, so that t = wᵀu still holds. τ and ℓ come from the
    released mean and mean square.
    """

    axis: Floats
    shrinkage: float
    length: float

    @classmethod
    def of(cls, mean: Floats, square: float, deviation: float) -> Reshaping:
        """The map for a noisy mean and mean square of records, with noise of `deviation` on each number."""
        axis, common, rest = parted(mean, square, deviation)
        shrinkage = shrinkage_to(_LEFT, common, rest)
        return cls(axis, shrinkage, min(1.0, _ROOM * math.sqrt(rest + shrinkage**2 * common)))

    def moved(self, rows: Floats) -> Floats:
        moved: Floats = (rows - (1.0 - self.shrinkage) * np.outer(rows @ self.axis, self.axis)) / self.length
        return moved

    def undo(self, weights: Floats) -> Floats:
        undone: Floats = (weights - (1.0 - self.shrinkage) * np.outer(self.axis, self.axis @ weights)) / self.length
        return undone

    def to_parameters(self) -> Floats:
        return np.concatenate([self.axis, [self.shrinkage, self.length]])

    @classmethod
    def from_parameters(cls, parameters: Floats) -> Reshaping:
        return cls(parameters[:-2], float(parameters[-2]), float(parameters[-1]))


_LEAST_ENERGY = 0.02
LEAST_LENGTH = 0.01
"""A lower bound on ℓ: ℓ ≥ `_ROOM`·√(energy·`_LEAST_ENERGY`) = 0.023"""
_LEFT = 0.25
"""The mean's remaining square over the rest; a regression needs it, and it makes records only an eighth longer"""
_ROOM = 1.15


def parted(mean: Floats, square: float, deviation: float) -> tuple[Floats, float, float]:
    """The direction of a noisy mean of records, its square without the noise, and the rest of their mean square."""
    energy = min(max(square, _LEAST_ENERGY), 1.0)
    raw = float(mean @ mean)
    common = min(max(raw - len(mean) * deviation**2, 0.0), energy * (1.0 - _LEAST_ENERGY))
    return mean / max(math.sqrt(raw), 1e-300), common, energy - common


def shrinkage_to(share: float, common: float, rest: float) -> float:
    """τ that leaves the mean's square as this share of the rest; 1 if it is no more than that."""
    return min(1.0, math.sqrt(share * rest / common)) if common > 0.0 else 1.0


def cleaned_eigenvalues(observed: Floats, scale: float) -> Floats:
    """Eigenvalues that, with the noisy matrix's eigenvectors, come closest to the true matrix.

    A symmetric matrix of noise of deviation s has its own eigenvalues in ±2γ, γ = s√d = `scale`; the best guess for an
    observed eigenvalue v is v − 2γ² h(v), h the Hilbert transform of the observed spectrum (Bun, Allez, Bouchaud &
    Potters 2016), smoothed over a few spacings; never below 0.
    """
    if scale == 0.0:
        return np.maximum(observed, 0.0)
    width = 2.0 * scale / math.sqrt(len(observed))
    apart = observed[:, None] - observed[None, :]
    transform = (apart / (apart**2 + width**2)).mean(axis=1)
    return np.asarray(np.maximum(observed - 2.0 * scale**2 * transform, 0.0))
