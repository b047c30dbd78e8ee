"""Noise mechanisms: the ways in which noise gets into a total, and what each leaves for an adversary to face.

A method chooses a mechanism; the plan sizes it. A sized mechanism answers for itself: how much variance the adversary
faces and how much is in the total, how many secure sums it takes, what a party adds to its vector, what becomes public,
and how all this is put in words. Nobody asks for its class.

All variances are in squared units of the encoding. The adversary's is that of the continuous Gaussian that is as hard
to see through as the noise: sensitivity/√(adversary's variance) is μ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.privacy import correlated, integer
from unspoken.privacy.guarantee import Trust
from unspoken.types import Words

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


class Mechanism(ABC):
    """Noise, chosen by a method and sized by the plan."""

    summed = False
    """Do contributions go through a secure sum?"""
    prepares = False
    """Is there a secure sum of noise before the first contribution?"""
    in_the_open = False
    """Does every party's message become public?"""
    pooled = False
    """Are all records in one place?"""
    counted = True
    """Does the spend of a run count this total? Not where a trusted receiver adds noise to what it makes of it."""
    assumptions: tuple[str, ...] = ()
    """The conditions under which the noise is there, in words that follow 'assumes that'."""

    @abstractmethod
    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> Self:
        """The mechanism with so much variance for the adversary. `opens_noise`: can components be opened?"""

    @abstractmethod
    def adversary_variance(self, there: Participation) -> float:
        """The variance that the adversary faces when so many parties were there."""

    def weakened(self, present: int, known: int) -> float:
        """The adversary's variance if it knows the noise of `known` of `present` parties, more than planned for."""
        return self.adversary_variance(Participation(present, present))

    def adversary_variance_alone(self) -> float:
        """The adversary's variance if it can open every party's vector by itself, and all that may be opened of it."""
        return self.adversary_variance(Participation(1, 1))

    @abstractmethod
    def total(self, there: Participation) -> float:
        """The variance of the noise in the total."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest variance that an allowed participation gives the total, before anything is opened."""

    @property
    def largest_released(self) -> float:
        """The largest variance of the released total, when all that proved unneeded was opened."""
        return self.largest

    @property
    def schedule(self) -> NoiseSchedule | None:
        """The components of a party's share, which may be opened."""
        return None

    def secure_sums(self, count: int) -> int:
        """The number of secure sums for `count` totals."""
        return count if self.summed else int(self.prepares)

    def added(self, dimension: int, source: NoiseSource) -> Words:
        """The noise that a party adds to its vector."""
        return np.zeros(dimension, dtype=np.uint64)

    def opened(self, dimension: int, sent: int, seeds: Sequence[bytes]) -> Words:
        """The noise of a party that proved unneeded when so many sent, from the seeds that were opened."""
        raise NotImplementedError("nothing is opened")

    def prepared(self, dimension: int, common: SecretStream) -> Words:
        """A party's noise for one turn of the sum that comes before."""
        raise NotImplementedError("nothing is prepared")

    def at_once(self, dimension: int, secrets: SecretStream, there: Participation) -> Words:
        """All the noise of a total in one draw, where one place adds it."""
        return _drawn(self.total(there), dimension, secrets)

    @abstractmethod
    def way(self, protocol: str) -> str:
        """The way from contributions to a total, in words."""

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        """The noise in the total, in words, from its deviations without dropouts and with as many as may happen."""
        return f"{nobody:.4g} in the total" + (" if nobody drops out" if dropouts else "")


@dataclass(frozen=True)
class NoiseShares(Mechanism):
    """Every party adds a share to what it puts into a secure sum; components that prove unneeded are opened."""

    summed = True

    shares: NoiseSchedule | None = None
    withheld: int = 0
    """Parties that were said to be in the total and may have been left out of it: see `Trust`."""

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> NoiseShares:
        needed = adversary_variance + integer.LOST_VARIANCE
        absent = trust.dropouts + trust.withheld
        least = integer.LEAST_SHARE**2 if opens_noise else math.inf
        return NoiseShares(NoiseSchedule.plan(trust.parties, trust.known, absent, needed, least), trust.withheld)

    @property
    def schedule(self) -> NoiseSchedule:
        if self.shares is None:
            raise RuntimeError("The noise has no size yet.")
        return self.shares

    def adversary_variance(self, there: Participation) -> float:
        honest = there.sent - self.withheld - self.schedule.known
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
        noise = _drawn(self.schedule.base, dimension, source.secrets)
        # A party whose setup never ended has no seeds, and sends nothing.
        for variance, seed in zip(self.schedule.components, source.seeds, strict=False):
            noise += _drawn(variance, dimension, SecretStream(seed))
        return noise

    def opened(self, dimension: int, sent: int, seeds: Sequence[bytes]) -> Words:
        noise = np.zeros(dimension, dtype=np.uint64)
        for number, seed in zip(self.schedule.opened(sent), seeds, strict=True):
            noise += _drawn(self.schedule.components[number], dimension, SecretStream(seed))
        return noise

    def way(self, protocol: str) -> str:
        return protocol


@dataclass(frozen=True)
class CorrelatedNoise(Mechanism):
    """CAPE: messages in the open, under noise of a known sum and a little of the party's own."""

    prepares = True
    in_the_open = True

    ratio: float = 1.0
    """The variance of the noise that is taken away over that of the noise that stays."""
    parties: int = 0
    known: int = 0
    dropouts: int = 0
    common: float = 0.0
    """The variance of ê, whose sum is taken away. That of a party who vanishes after the sum was made stays in the
    total: more noise, and no bias."""
    own: float = 0.0
    """The variance of g."""
    withheld: int = 0
    """Parties that were said to be in the sum of ê and may have been left out of it."""

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> CorrelatedNoise:
        common, own = correlated.integer_noise_for(adversary_variance, self.ratio, trust.honest_survivors)
        return CorrelatedNoise(
            self.ratio, trust.parties, trust.known, trust.dropouts, common, own, withheld=trust.withheld
        )

    def adversary_variance(self, there: Participation) -> float:
        # Whoever is silent later only takes a message away from what the adversary sees.
        return self.weakened(there.prepared - self.withheld, self.known)

    def weakened(self, present: int, known: int) -> float:
        return correlated.integer_hidden_variance(self.common, self.own, present - known)

    def adversary_variance_alone(self) -> float:
        return self.weakened(1, 0)

    def total(self, there: Participation) -> float:
        return there.sent * self.own + (there.prepared - there.sent) * self.common

    @property
    def largest(self) -> float:
        return self.parties * self.own + self.dropouts * self.common

    def added(self, dimension: int, source: NoiseSource) -> Words:
        if source.common is None:
            raise RuntimeError("Expected the noise of the sum that comes before a message.")
        return _drawn(self.own, dimension, source.secrets) + self.prepared(dimension, source.common)

    def prepared(self, dimension: int, common: SecretStream) -> Words:
        return _drawn(self.common, dimension, common)

    def way(self, protocol: str) -> str:
        return f"messages in the open, and {protocol} for the sum of the noise that they have in common"

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        text = super().amount(nobody, most, dropouts)
        if dropouts:
            left = "one party vanishes" if dropouts == 1 else f"{dropouts:,} vanish"
            text += f", {most:.4g} if {left} between the noise and the messages"
        return text


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
        return _drawn(self.own, dimension, source.secrets)

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
    """Contributions that were private before they came to be added: made of noisy steps (`fedsgd`)."""

    in_the_open = True

    def at_once(self, dimension: int, secrets: SecretStream, there: Participation) -> Words:
        return _drawn(self.own, dimension, secrets)

    def way(self, protocol: str) -> str:
        return "messages in the open"

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        return "in every party's own steps"


@dataclass(frozen=True)
class NoNoise(_NothingAdded):
    """Messages without noise: to a trainer whom all parties trust (`multiparty`), or to everyone (`none`)."""

    trusted: bool = False
    """Does a trusted receiver keep them to itself, and put the noise into what it makes of them?"""

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


def _drawn(variance: float, dimension: int, secrets: SecretStream) -> Words:
    return sample(math.sqrt(variance), dimension, secrets).view(np.uint64)
