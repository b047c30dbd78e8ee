"""Steps of the coordinator on a model's weights."""

from __future__ import annotations

import numpy as np

from unspoken.methods.training.options import TrainingOptions
from unspoken.types import Floats


class Optimizer:
    """SGD with momentum, or Adam: steps on flat weights."""

    def __init__(self, options: TrainingOptions, size: int) -> None:
        self._options = options
        self._rate = options.learning_rate or (0.5 if options.optimizer == "sgd" else 0.01)
        self._first, self._second, self._count = np.zeros(size), np.zeros(size), 0

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        if self._options.optimizer == "sgd":
            self._first = self._options.momentum * self._first + gradient
            return weights - self._rate * self._first
        self._count += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        first = self._first / (1.0 - 0.9**self._count)
        second = self._second / (1.0 - 0.999**self._count)
        moved: Floats = weights - self._rate * first / (np.sqrt(second) + 1e-8)
        return moved
