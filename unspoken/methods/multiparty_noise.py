"""The noise that the trainer of `multiparty` adds to its model: Laplace, as in the paper, or Gaussian.

The trainer sees all messages, so its noise is drawn in one place, and what it costs is an event of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from unspoken.methods.planning import DeclaredSum, OtherRelease, PlannedSum
from unspoken.methods.planning.budget import budget, trust_of
from unspoken.methods.planning.making import Setting, left_of_delta, plan_sum, setting_of
from unspoken.methods.planning.mechanisms import CuratorNoise
from unspoken.noise.spherical import ASSUMPTION, spherical_laplace
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import Gaussian, PureLoss
from unspoken.study import Study
from unspoken.types import Floats

_TRAINER = "the trainer, whom all parties trust, keeps to itself what it receives and adds the noise"


class TrainerNoise(ABC):
    """Noise for a model of `size` weights, of norm `bound` at most, with this sensitivity.

    `longest` is the largest norm of an exact minimiser. It is less than `bound`, and limits what all votes together can
    say.
    """

    name: ClassVar[str]
    """Its name in [method]"""
    adjective: ClassVar[str]

    def __init__(self, study: Study, size: int, bound: float, sensitivity: float, longest: float) -> None:
        self.study, self.size, self.bound, self.sensitivity = study, size, bound, sensitivity
        self.longest = longest

    @property
    @abstractmethod
    def setting(self) -> Setting:
        """The plan's setting: what the noise assumes, and what it takes of δ."""

    @property
    @abstractmethod
    def release(self) -> OtherRelease:
        """The noisy model, and what it costs."""

    @abstractmethod
    def likely_norm(self, failure: float) -> float:
        """A norm that the noise exceeds with probability `failure` at most."""

    @abstractmethod
    def added(self, weights: Floats, secrets: SecretStream) -> Floats:
        """The weights with noise."""


class LaplaceNoise(TrainerNoise):
    """Density ∝ exp(−‖b‖ε/sensitivity): pure ε."""

    name = "laplace"
    adjective = "Laplace"

    @property
    def setting(self) -> Setting:
        return Setting(trust_of(self.study), (_TRAINER, ASSUMPTION))

    @property
    def _scale(self) -> float:
        return self.sensitivity / self.study.epsilon

    @property
    def release(self) -> OtherRelease:
        deviation = self._scale * math.sqrt(self.size + 1)
        event = PureLoss(self.study.epsilon)
        return OtherRelease("model", self.size, self.name, self.sensitivity, deviation, event, self.longest)

    def likely_norm(self, failure: float) -> float:
        """scale·d·log(d/failure) (Lemma 5)."""
        return self._scale * self.size * math.log(self.size / failure)

    def added(self, weights: Floats, secrets: SecretStream) -> Floats:
        noise = spherical_laplace(weights.size, self._scale, secrets)
        return np.asarray(weights + noise.reshape(weights.shape))


class GaussianNoise(TrainerNoise):
    """Integer noise, as a curator draws it."""

    name = "gaussian"
    adjective = "Gaussian"

    @property
    def setting(self) -> Setting:
        return Setting(trust_of(self.study), (_TRAINER,), self._slack)

    @property
    def release(self) -> OtherRelease:
        planned, cost = self._planned, Gaussian(self._planned.mu)
        # With what the rounding to integers adds.
        return OtherRelease("model", self.size, self.name, planned.sensitivity, planned.noise_std, cost, self.longest)

    @cached_property
    def _slack(self) -> float:
        """The part of δ that the drawing of the noise costs."""
        return setting_of(self.study, [DeclaredSum("model", self.size, 1.0, 1.0, noise=CuratorNoise())]).slack

    @cached_property
    def _planned(self) -> PlannedSum:
        declared = DeclaredSum("model", self.size, self.bound, self.sensitivity, noise=CuratorNoise())
        left = left_of_delta(self.study, self._slack, "a larger delta")
        # However often the votes are sent, the trainer releases one model.
        return plan_sum(self.study, Setting(trust_of(self.study)), declared, budget(self.study, left, attempts=1))

    def likely_norm(self, failure: float) -> float:
        """σ(√d + √(2·log(1/failure))): the norm of d Gaussians has the mean √d·σ at most, and is 1-Lipschitz."""
        return self._planned.total_std(1) * (math.sqrt(self.size) + math.sqrt(2.0 * math.log(1.0 / failure)))

    def added(self, weights: Floats, secrets: SecretStream) -> Floats:
        return self._planned.privatised(weights.ravel(), secrets).reshape(weights.shape)


TRAINER_NOISE: dict[str, type[TrainerNoise]] = {kind.name: kind for kind in (LaplaceNoise, GaussianNoise)}
