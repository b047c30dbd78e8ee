"""Steps of the coordinator on a model's weights."""

from __future__ import annotations

import math

import numpy as np

from unspoken.methods.training.options import TrainingOptions
from unspoken.types import Floats

_NOISE = 0.6
"""The noise in a weight that all steps together leave"""


class Optimizer:
    """SGD with momentum, or Adam: steps on flat weights. Weights decay as in torch's SGD and AdamW.

    What it makes of released totals costs no privacy.
    """

    def __init__(self, options: TrainingOptions, size: int) -> None:
        self._options = options
        self._first, self._second, self._count = np.zeros(size), np.zeros(size), 0

    def step(self, weights: Floats, gradient: Floats, step_size: float | None = None) -> Floats:
        """The weights after a step; `step_size` is for studies that leave it open and have a rule for it."""
        usual = 0.5 if self._options.optimizer == "sgd" else 0.01
        rate = (self._options.learning_rate or step_size or usual) * scheduled(self._options, self._count)
        decay = self._options.weight_decay
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


class StepByNoise:
    """The step size for SGD on a linear classifier, from the deviation of the noise in a gradient's coordinates.

    Steps η·f_t, with the schedule's factors f_t, add noise of deviation η·noise·‖f‖ to a weight (with momentum m,
    1/(1 − m) times as much). That is to be 0.6, so that scores of records of norm 1 stand out from their noise. No step
    moves the weights by more than 2K, K the number of classes: while all classes have similar scores, the curvature of
    softmax's loss is at most 1/K for records of norm 1, so that longer steps overshoot; longer records have gradients
    that are clipped.

    >>> round(StepByNoise(TrainingOptions(rounds=100), 2)(0.06), 6)
    1.0
    >>> StepByNoise(TrainingOptions(rounds=100, clip=2.0), 10)(0.0)
    10.0
    """

    def __init__(self, options: TrainingOptions, classes: int) -> None:
        self._factors = math.hypot(*(scheduled(options, turn) for turn in range(options.rounds)))
        self._longest, self._share = 2.0 * classes / options.clip, 1.0 - options.momentum

    def __call__(self, noise: float) -> float:
        return self._share * _NOISE / max(noise * self._factors, _NOISE / self._longest)


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
