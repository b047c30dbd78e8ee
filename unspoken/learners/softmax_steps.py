"""Softmax regression in a few private steps: sums of clipped gradients, of records without their common direction.

What all records have in common (their mean's direction a) tells no class from another, but takes up most of their
length where features are not centred. So the first turn is the sum of the unit records u = x/‖x‖, whose direction
is a; from then on a record is z = (I − ωaaᵀ)x, brought to length 1 again, and contributes z·rᵀ, r the indicator of its
class minus the model's probabilities, cut to norm C. ω is near 1 if the mean's square ρ, less its noise, is well above
1/d, which each direction of records without any mean has: ω = ρ/(ρ + 4/d).

Formal guarantee. ‖z‖ ≤ 1 and ‖r‖ ≤ C, so a record's gradient has norm at most C, and C·u has, too: replacing a record
moves any turn's sum by at most 2C.

The steps. With noise of deviation s on each coordinate, step t is η·(1 − t/T)^q times the noisy sum, q = 4/T but at
most ½, and η such that the noises of all steps add up to deviation κ on each weight, which is κ on each score of a
record of length 1. So more privacy means shorter steps, and the noise in the model stays as it is. Where there is next
to no noise, no step is longer than `_LONGEST` if all records pull the same way.

Second moments do not help here: preconditioning with the exact XᵀX gains at most 0.3 points on CIFAR-10 features, and
with a noisy one it loses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unspoken.arithmetic import blocks, sum_of_rows
from unspoken.types import Floats, Labels

_LONGEST = 1000.0
_TINY = 1e-12


@dataclass(frozen=True)
class SoftmaxSteps:
    """A model of `classes` scores from `features` features, in `steps` steps after the turn of the mean."""

    features: int
    classes: int
    steps: int
    clip: float
    score_noise: float
    """κ"""

    @property
    def size(self) -> int:
        """A turn's sum; the first turn's is padded to it, so that all are alike."""
        return self.features * self.classes

    def mean(self, features: Floats) -> Floats:
        """The first turn: C·Σu."""
        padded = np.zeros(self.size)
        padded[: self.features] = self.clip * sum_of_rows(_unit(features))
        return padded

    def axis(self, mean: Floats, noise: float, records: int) -> Floats:
        """√ω·a from the first turn's noisy sum."""
        squared = float(mean @ mean)
        signal = max(0.0, squared - self.features * noise**2) / (self.clip * max(records, 1)) ** 2
        omega = signal / (signal + 4.0 / self.features)
        scaled: Floats = mean * (math.sqrt(omega) / max(math.sqrt(squared), 1e-300))
        return scaled

    def gradient(self, axis: Floats, weights: Floats, features: Floats, labels: Labels) -> Floats:
        """A later turn: the sum of the records' clipped gradients, downhill, for weights (features, classes)."""
        total = np.zeros((self.features, self.classes))
        for block in blocks(len(features)):
            part = features[block]
            rest = _unit(part - np.outer(part @ axis, axis))
            total += rest.T @ self._residuals(rest @ weights, labels[block])
        return total.ravel()

    def _residuals(self, scores: Floats, labels: Labels) -> Floats:
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        residuals = -exponentials / exponentials.sum(axis=1, keepdims=True)
        residuals[np.arange(len(labels)), labels] += 1.0
        lengths = np.sqrt(np.einsum("ij,ij->i", residuals, residuals))
        clipped: Floats = residuals * (self.clip / np.maximum(lengths, self.clip))[:, None]
        return clipped

    def step_sizes(self, noise: float, records: int) -> Floats:
        """What each step multiplies its noisy sum with, for noise of deviation `noise` on each coordinate."""
        shape = (1.0 - np.arange(self.steps) / self.steps) ** min(0.5, 4.0 / self.steps)
        shape /= math.sqrt(float(shape @ shape))
        longest = _LONGEST / (max(records, 1) * self.clip * float(shape[0]))
        sizes: Floats = shape * min(self.score_noise / noise if noise > 0.0 else math.inf, longest)
        return sizes


def chosen_steps(features: int, classes: int, records: int, mu: float) -> int:
    """How many steps so many records are worth under a promise of μ: 16 where noise is small, else 8.

    >>> chosen_steps(1280, 10, 50_000, 0.73), chosen_steps(1280, 10, 50_000, 0.1)
    (16, 8)
    """
    return 16 if records * mu > 100.0 * math.sqrt(features * classes) else 8


def _unit(rows: Floats) -> Floats:
    """Rows at length 1; what has no length to speak of stays 0."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scaled: Floats = rows * np.where(lengths > _TINY, 1.0 / np.maximum(lengths, _TINY), 0.0)[:, None]
    return scaled
