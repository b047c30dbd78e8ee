"""A network of two layers, with clipped sums of per-record gradients that are never held one by one.

Hidden units are rectified, the output is a softmax over the classes (for two classes that is a sigmoid of the
difference), the loss is cross entropy. A layer's gradient is the outer product of its input and of the gradient at its
output, so its norm is the product of theirs (Goodfellow 2015), and the clipped sum is one product of matrices a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspoken.arithmetic import sum_of_products
from unspoken.data.bounding import append_one
from unspoken.types import Floats, Integers


@dataclass(frozen=True)
class Network:
    """Weights are one flat vector: the hidden layer's (its constant input last), then the output layer's."""

    features: int
    hidden: int
    classes: int
    clip: float

    @property
    def size(self) -> int:
        return self.hidden * (self.features + 1) + self.classes * (self.hidden + 1)

    def initial(self, seed: int) -> Floats:
        """First weights from a public seed: variance 2/features in the hidden layer, zeros elsewhere."""
        flat = np.zeros(self.size)
        hidden, _ = self.layers(flat)
        hidden[:, :-1] = np.random.default_rng(seed).normal(
            scale=(2.0 / self.features) ** 0.5, size=hidden[:, :-1].shape
        )
        return flat

    def layers(self, flat: Floats) -> tuple[Floats, Floats]:
        """The two layers' weights, as views."""
        cut = self.hidden * (self.features + 1)
        return flat[:cut].reshape(self.hidden, -1), flat[cut:].reshape(self.classes, -1)

    def scores(self, flat: Floats, features: Floats) -> Floats:
        hidden, output = self.layers(flat)
        return scores(hidden, output, features)

    def clipped_gradient(self, flat: Floats, features: Floats, labels: Integers) -> Floats:
        """The sum of the records' gradients, each clipped to the norm `clip`."""
        hidden, output = self.layers(flat)
        inputs = append_one(features)
        with np.errstate(over="ignore", invalid="ignore"):
            before = inputs @ hidden.T
            active = append_one(np.maximum(before, 0.0))
            back_output = _probabilities(active @ output.T) - (labels[:, None] == np.arange(self.classes))
            back_hidden = (back_output @ output[:, :-1]) * (before > 0.0)
            squared = _squared(active) * _squared(back_output) + _squared(inputs) * _squared(back_hidden)
        if not np.isfinite(squared).all():
            # The weights have diverged: a record whose gradient is not finite contributes nothing.
            kept = np.isfinite(squared)
            return self.clipped_gradient(flat, features[kept], labels[kept])
        weights = self.clip / np.maximum(np.sqrt(squared), self.clip)
        hidden_sum = sum_of_products(back_hidden * weights[:, None], inputs)
        output_sum = sum_of_products(back_output * weights[:, None], active)
        return np.concatenate([hidden_sum.ravel(), output_sum.ravel()])


def scores(hidden: Floats, output: Floats, features: Floats) -> Floats:
    """Scores of the classes: log probabilities up to a constant."""
    result: Floats = append_one(np.maximum(append_one(features) @ hidden.T, 0.0)) @ output.T
    return result


def _probabilities(scores: Floats) -> Floats:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def _squared(rows: Floats) -> Floats:
    squared: Floats = np.einsum("ij,ij->i", rows, rows)
    return squared
