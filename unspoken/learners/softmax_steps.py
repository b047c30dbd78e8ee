"""Softmax regression in a few private steps: sums of clipped gradients, after the mean direction is taken out.

The direction a of the records' mean does not distinguish classes, but takes up most of their length where features are
not centred. So the first turn is the sum of the unit records u = x/‖x‖, whose direction is a. In later turns a record
is z = (I − ωaaᵀ)x, rescaled to length 1, and contributes z·rᵀ, where r is the indicator of its class minus the model's
probabilities, clipped to norm C. With ρ the mean's square without its noise, ω = ρ/(ρ + 4/d): near 1 if ρ is well above
1/d, the value in any direction for records without a mean.

Formal guarantee. ‖z‖ ≤ 1 and ‖r‖ ≤ C, so a record's gradient has norm at most C, as has C·u: replacing a record moves
any turn's sum by at most 2C.

The steps. With noise of deviation s on each coordinate, step t is η·(1 − t/T)^q times the noisy sum, q = min(4/T, ½),
and η is chosen so that the noise of all steps has deviation κ on each weight, hence κ on each score of a record of
length 1. More privacy means shorter steps, and the noise in the model stays the same. With almost no noise, no step is
longer than `_LONGEST` if all records pull the same way.

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
    """A model with `classes` scores, trained in `steps` steps after the turn of the mean."""

    features: int
    classes: int
    steps: int
    clip: float
    score_noise: float
    """κ, the noise of a score"""

    @property
    def size(self) -> int:
        """The length of a turn's sum; the first turn is padded to it."""
        return self.features * self.classes

    def mean(self, features: Floats) -> Floats:
        """The contribution to the first turn: C·Σu."""
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
        """The contribution to a later turn: the sum of clipped descent directions at weights (features, classes)."""
        total = np.zeros((self.features, self.classes))
        for block in blocks(len(features)):
            part = features[block]
            rest = _unit(part - np.outer(part @ axis, axis))
            total += rest.T @ clipped_residuals(rest @ weights, labels[block], self.clip)
        return total.ravel()

    def step_sizes(self, noise: float, records: int) -> Floats:
        """The factor of each step, for noise of deviation `noise` on each coordinate of its sum."""
        shape = schedule(self.steps)
        shape /= float(np.linalg.norm(shape))
        longest = _LONGEST / (max(records, 1) * self.clip * float(shape[0]))
        return quiet_steps(shape, self.score_noise, noise, longest)


def schedule(steps: int) -> Floats:
    """The lengths of T steps in units of the first: (1 − t/T)^min(½, 4/T).

    >>> schedule(16).round(3)[[0, 8, 15]].tolist()
    [1.0, 0.841, 0.5]
    """
    lengths: Floats = (1.0 - np.arange(steps) / steps) ** min(0.5, 4.0 / steps)
    return lengths


def quiet_steps(shape: Floats, score_noise: float, noise: float, longest: float) -> Floats:
    """Steps of this shape, as long as their noise allows: steps as long as the shape would leave noise of deviation
    `noise` on a weight, and these are to leave κ = `score_noise`, or less if the factor would exceed `longest`."""
    sizes: Floats = shape * min(score_noise / noise if noise > 0.0 else math.inf, longest)
    return sizes


def chosen_steps(features: int, classes: int, records: int, mu: float) -> int:
    """The number of steps for so many records and μ: 16 if the noise is small, else 8.

    >>> chosen_steps(1280, 10, 50_000, 0.73), chosen_steps(1280, 10, 50_000, 0.1)
    (16, 8)
    """
    return 16 if records * mu > 100.0 * math.sqrt(features * classes) else 8


def clipped_residuals(scores: Floats, labels: Labels, clip: float) -> Floats:
    """Indicators of the classes minus the softmax of the scores, each row clipped to norm `clip`."""
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    residuals = -exponentials / exponentials.sum(axis=1, keepdims=True)
    residuals[np.arange(len(labels)), labels] += 1.0
    lengths = np.sqrt(np.einsum("ij,ij->i", residuals, residuals))
    clipped: Floats = residuals * (clip / np.maximum(lengths, clip))[:, None]
    return clipped


def _unit(rows: Floats) -> Floats:
    """Rows scaled to length 1; rows of almost no length become 0."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scaled: Floats = rows * np.where(lengths > _TINY, 1.0 / np.maximum(lengths, _TINY), 0.0)[:, None]
    return scaled
