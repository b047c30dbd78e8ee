"""Steps of the coordinator on a model's weights."""

from __future__ import annotations

import math

import numpy as np

from unspoken.methods.training.options import TrainingOptions
from unspoken.types import Floats


class Optimizer:
    """SGD with momentum, or Adam: steps on flat weights. Weights decay as in torch's SGD and AdamW.

    What it makes of released totals costs no privacy.
    """

    def __init__(self, options: TrainingOptions, size: int) -> None:
        self._options = options
        self._rate = options.learning_rate or (0.5 if options.optimizer == "sgd" else 0.01)
        self._first, self._second, self._count = np.zeros(size), np.zeros(size), 0

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        rate, decay = self._rate * scheduled(self._options, self._count), self._options.weight_decay
        self._count += 1
        if self._options.optimizer == "sgd":
            self._first = self._options.momentum * self._first + (gradient + decay * weights)
            return weights - rate * self._first
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        first = self._first / (1.0 - 0.9**self._count)
        second = self._second / (1.0 - 0.999**self._count)
        moved: Floats = (1.0 - rate * decay) * weights - rate * first / (np.sqrt(second) + 1e-8)
        return moved


def scheduled(options: TrainingOptions, turn: int) -> float:
    """The factor on the step size in a turn, from 0: steps grow for `warmup` rounds, then follow the schedule.

    >>> cosine = TrainingOptions(rounds=4, schedule="cosine")
    >>> [round(scheduled(cosine, turn), 2) for turn in range(4)]
    [1.0, 0.85, 0.5, 0.15]
    >>> scheduled(TrainingOptions(rounds=9, warmup=4), 1)
    0.5
    """
    if turn < options.warmup:
        return (turn + 1) / options.warmup
    passed = (turn - options.warmup) / (options.rounds - options.warmup)
    match options.schedule:
        case "linear":
            return 1.0 - passed
        case "cosine":
            return (1.0 + math.cos(math.pi * passed)) / 2.0
    return 1.0
