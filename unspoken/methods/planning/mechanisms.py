"""Noise mechanisms: the ways in which noise gets into a total, and how much of it an adversary does not know.

A method chooses a mechanism, and the plan sizes it. A sized mechanism says how much noise variance the adversary faces
and how much is in the total, how many secure sums it takes, what a party adds to its vector, what becomes public, and
how to describe all this. Callers never ask for its class.

All variances are in squared units of the encoding. The adversary's variance is that of a continuous Gaussian that
protects equally well: sensitivity/√(adversary's variance) is μ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple, Self

import numpy as np

from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.privacy import integer
from unspoken.privacy.guarantee import Trust
from unspoken.types import Flags, Words

CURATOR = ("one curator, whom everyone trusts, sees all records and forgets them",)


class Participation(NamedTuple):
    """The numbers of parties that took part."""

    prepared: int
    """Parties in the sum of the common noise (CAPE); without such a sum, those who sent."""
    sent: int
    """Parties in the total."""


@dataclass(frozen=True)
class NoiseSource:
    """The randomness of a party's noise."""

    secrets: SecretStream
    """The party's own stream for this request."""
    seeds: Sequence[bytes] = ()
    """The seeds of the components of its share, which the protocol can open."""
    common: SecretStream | None = None
    """The stream of the noise that it prepared for this turn."""
    index: int = 0
    """The party's number."""


class Mechanism(ABC):
    """Noise, chosen by a method and sized by the plan."""

    summed = False
    """Whether contributions go through a secure sum"""
    prepares = False
    """Whether there is a secure sum of common noise before the first contribution"""
    cancels = False
    """Whether there is a secure sum of common noise after each round of contributions"""
    in_the_open = False
    """Whether every party's message becomes public"""
    pooled = False
    """Whether all records are in one place"""
    counted = True
    """Whether the spend of a run counts this total. It does not if a trusted receiver adds the noise later."""
    assumptions: tuple[str, ...] = ()
    """The conditions under which the noise is there, in words that follow 'assumes that'."""

    @abstractmethod
    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> Self:
        """The mechanism, sized to give the adversary this variance. `opens_noise`: whether components can be opened."""

    @abstractmethod
    def adversary_variance(self, there: Participation) -> float:
        """The variance that the adversary faces when so many parties were there."""

    def variance_for(self, index: int) -> float | None:
        """The variance that the adversary of this party faces, if parties have promises of their own."""
        return None

    def weakened(self, present: int, known: int) -> float:
        """The adversary's variance if it knows the noise of `known` of `present` parties, more than planned for."""
        return self.adversary_variance(Participation(present, present))

    def adversary_variance_alone(self) -> float:
        """The adversary's variance if it can open each party's vector alone, and all components of its noise."""
        return self.adversary_variance(Participation(1, 1))

    @abstractmethod
    def total(self, there: Participation) -> float:
        """The variance of the noise in the total."""

    def total_of(self, prepared: Flags, sent: Flags) -> float:
        """The variance of the noise in the total, from who was there."""
        return self.total(Participation(int(prepared.sum()), int(sent.sum())))

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest variance that an allowed participation gives the total, before anything is opened."""

    @property
    def largest_released(self) -> float:
        """The largest variance of the released total, after all unneeded components were opened."""
        return self.largest

    @property
    def schedule(self) -> NoiseSchedule | None:
        """The components of a party's share, which may be opened."""
        return None

    def secure_sums(self, count: int) -> int:
        """The number of secure sums for `count` totals."""
        return count if self.summed or self.cancels else int(self.prepares)

    def added(self, dimension: int, source: NoiseSource) -> Words:
        """The noise that a party adds to its vector."""
        return np.zeros(dimension, dtype=np.uint64)

    def opened(self, dimension: int, sent: int, seeds: Sequence[bytes]) -> Words:
        """The part of a party's noise that is not needed if `sent` parties sent, computed from the opened seeds."""
        raise NotImplementedError("nothing is opened")

    def prepared(self, dimension: int, common: SecretStream, index: int) -> Words:
        """The common noise of the party of this number for one turn."""
        raise NotImplementedError("nothing is prepared")

    def at_once(self, dimension: int, secrets: SecretStream, there: Participation) -> Words:
        """All the noise of a total in one draw, for a total that is made in one place."""
        return drawn(self.total(there), dimension, secrets)

    def parts(self, scale: float, noise_std: float) -> dict[str, float]:
        """What the noise is made of, if it has parts of its own.

        `scale` is the encoding's, `noise_std` the deviation of the adversary's noise.
        """
        return {}

    def explained(self, parts: dict[str, float]) -> str:
        """These parts in words."""
        return ""

    @abstractmethod
    def way(self, protocol: str) -> str:
        """The way from contributions to a total, in words."""

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        """The noise in the total, in words.

        `nobody` and `most` are its deviations if nobody drops out, and if `dropouts` parties do.
        """
        return f"{nobody:.4g} in the total" + (" if nobody drops out" if dropouts else "")


@dataclass(frozen=True)
class NoiseShares(Mechanism):
    """Every party adds a share of the noise to its vector in a secure sum; unneeded components are opened later."""

    summed = True

    shares: NoiseSchedule | None = None

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> NoiseShares:
        needed = adversary_variance + integer.LOST_VARIANCE
        least = integer.LEAST_SHARE**2 if opens_noise else math.inf
        # Parties that a lying coordinator may have left out unnoticed contribute no noise either.
        useless = trust.known + trust.withheld
        return NoiseShares(NoiseSchedule.plan(trust.parties, useless, trust.dropouts, needed, least))

    @property
    def schedule(self) -> NoiseSchedule:
        if self.shares is None:
            raise RuntimeError("The noise has no size yet.")
        return self.shares

    def adversary_variance(self, there: Participation) -> float:
        honest = there.sent - self.schedule.known
        return self.schedule.kept(there.sent) * honest - integer.LOST_VARIANCE

    def weakened(self, present: int, known: int) -> float:
        return self.schedule.kept(present) * (present - known) - integer.LOST_VARIANCE

    def adversary_variance_alone(self) -> float:
        return self.schedule.base - integer.LOST_VARIANCE

    def total(self, there: Participation) -> float:
        return self.schedule.kept(there.sent) * there.sent

    @property
    def largest(self) -> float:
        return self.schedule.parties * self.schedule.whole

    @property
    def largest_released(self) -> float:
        return self.schedule.largest_total

    def added(self, dimension: int, source: NoiseSource) -> Words:
        noise = drawn(self.schedule.base, dimension, source.secrets)
        # A party whose setup never ended has no seeds, and sends nothing. If one sent, no noise must be missing: what
        # has no seed cannot be opened, so it comes from the party's own stream.
        for variance, seed in zip_longest(self.schedule.components, source.seeds):
            noise += drawn(variance, dimension, source.secrets if seed is None else SecretStream(seed))
        return noise

    def opened(self, dimension: int, sent: int, seeds: Sequence[bytes]) -> Words:
        noise = np.zeros(dimension, dtype=np.uint64)
        for number, seed in zip(self.schedule.opened(sent), seeds, strict=True):
            noise += drawn(self.schedule.components[number], dimension, SecretStream(seed))
        return noise

    def way(self, protocol: str) -> str:
        return protocol


@dataclass(frozen=True)
class _OwnNoise(Mechanism):
    """One vector is private by its own noise alone."""

    own: float = 0.0
    """The variance of its noise."""

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> Self:
        return replace(self, own=adversary_variance + integer.LOST_VARIANCE)

    def adversary_variance(self, there: Participation) -> float:
        return self.own - integer.LOST_VARIANCE

    def total(self, there: Participation) -> float:
        return self.own

    @property
    def largest(self) -> float:
        return self.own


@dataclass(frozen=True)
class IndependentNoise(_OwnNoise):
    """Every message is private by its own noise alone (`conv`, `local`)."""

    in_the_open = True

    parties: int = 0

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> IndependentNoise:
        return replace(super().sized(trust, adversary_variance, opens_noise), parties=trust.parties)

    def total(self, there: Participation) -> float:
        return there.sent * self.own

    @property
    def largest(self) -> float:
        return self.parties * self.own

    def added(self, dimension: int, source: NoiseSource) -> Words:
        return drawn(self.own, dimension, source.secrets)

    def way(self, protocol: str) -> str:
        return "messages in the open"


@dataclass(frozen=True)
class CuratorNoise(_OwnNoise):
    """One curator who may see everything adds the noise once (`central`)."""

    pooled = True
    assumptions = CURATOR

    def way(self, protocol: str) -> str:
        return "all records in one place"


class _NothingAdded(Mechanism):
    """Contributions are added up as they are."""

    def total(self, there: Participation) -> float:
        return 0.0

    @property
    def largest(self) -> float:
        return 0.0


@dataclass(frozen=True)
class PreNoised(_NothingAdded, _OwnNoise):
    """Contributions that are already private, because parties compute them in noisy steps (`fedsgd`)."""

    in_the_open = True

    def at_once(self, dimension: int, secrets: SecretStream, there: Participation) -> Words:
        return drawn(self.own, dimension, secrets)

    def way(self, protocol: str) -> str:
        return "messages in the open"

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        return "in every party's own steps"


@dataclass(frozen=True)
class NoNoise(_NothingAdded):
    """Messages without noise: to a trainer whom all parties trust (`multiparty`), or to everyone (`none`)."""

    trusted: bool = False
    """Whether a trusted receiver keeps them to itself, and adds noise to the model that it makes of them"""

    @property
    def in_the_open(self) -> bool:  # type: ignore[override]
        return not self.trusted

    @property
    def counted(self) -> bool:  # type: ignore[override]
        return not self.trusted

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> Self:
        return self

    def adversary_variance(self, there: Participation) -> float:
        return 0.0

    def way(self, protocol: str) -> str:
        return "messages to a trainer whom all parties trust" if self.trusted else "messages in the open"

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        return "none"


def drawn(variance: float, dimension: int, secrets: SecretStream) -> Words:
    """Integer noise of this variance."""
    return sample(math.sqrt(variance), dimension, secrets).view(np.uint64)
