"""The ways in which noise gets into a total, and what each leaves for an adversary to face.

All variances are in squared units of the encoding; `hidden` is the variance of the continuous Gaussian that the
adversary faces, so that sensitivity/√hidden is μ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from unspoken.noise.schedule import NoiseSchedule
from unspoken.privacy import correlated, integer
from unspoken.privacy.guarantee import Trust


class Turnout(NamedTuple):
    """How many parties there were."""

    prepared: int
    """In the sum of the noise that parties have in common (CAPE); without one, those who sent."""
    sent: int
    """In the total."""


class Mechanism(ABC):
    """Noise, as it is planned."""

    @abstractmethod
    def hidden(self, turnout: Turnout) -> float:
        """What the adversary faces when so many parties were there."""

    def weakened(self, present: int, known: int) -> float:
        """What is hidden if the adversary knows the noise of `known` of `present` parties, more than planned for."""
        return self.hidden(Turnout(present, present))

    def hidden_alone(self) -> float:
        """What is hidden if the adversary can open every party's vector by itself, and all that may be opened of it."""
        return self.hidden(Turnout(1, 1))

    @abstractmethod
    def total(self, turnout: Turnout) -> float:
        """The variance of the noise in the total."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest variance that an allowed turnout gives the total, before anything is opened."""


@dataclass(frozen=True)
class Shares(Mechanism):
    """Every party adds a share to what it puts into a secure sum; unneeded components are opened."""

    schedule: NoiseSchedule
    withheld: int = 0
    """Parties that were said to be in the total and may have been left out of it: see `Trust`."""

    @classmethod
    def plan(cls, trust: Trust, hidden: float, least: float) -> Shares:
        needed = hidden + integer.LOST_VARIANCE
        absent = trust.dropouts + trust.withheld
        return cls(NoiseSchedule.plan(trust.parties, trust.known, absent, needed, least), trust.withheld)

    def hidden(self, turnout: Turnout) -> float:
        honest = turnout.sent - self.withheld - self.schedule.known
        return self.schedule.kept(turnout.sent) * honest - integer.LOST_VARIANCE

    def weakened(self, present: int, known: int) -> float:
        return self.schedule.kept(present) * (present - known) - integer.LOST_VARIANCE

    def hidden_alone(self) -> float:
        return self.schedule.base - integer.LOST_VARIANCE

    def total(self, turnout: Turnout) -> float:
        return self.schedule.kept(turnout.sent) * turnout.sent

    @property
    def largest(self) -> float:
        return self.schedule.parties * self.schedule.whole


@dataclass(frozen=True)
class Correlated(Mechanism):
    """CAPE: messages in the open, under noise of a known sum and a little of the party's own."""

    parties: int
    known: int
    dropouts: int
    common: float
    """The variance of ê, whose sum is taken away. That of a party who vanishes after the sum was made stays in the
    total: more noise, and no bias."""
    own: float
    """The variance of g."""
    withheld: int = 0
    """Parties that were said to be in the sum of ê and may have been left out of it."""

    @classmethod
    def plan(cls, trust: Trust, hidden: float, ratio: float) -> Correlated:
        common, own = correlated.integer_noise_for(hidden, ratio, trust.honest_survivors)
        return cls(trust.parties, trust.known, trust.dropouts, common, own, trust.withheld)

    def hidden(self, turnout: Turnout) -> float:
        # Whoever is silent later only takes a message away from what the adversary sees.
        return self.weakened(turnout.prepared - self.withheld, self.known)

    def weakened(self, present: int, known: int) -> float:
        return correlated.integer_hidden_variance(self.common, self.own, present - known)

    def hidden_alone(self) -> float:
        return self.weakened(1, 0)

    def total(self, turnout: Turnout) -> float:
        return turnout.sent * self.own + (turnout.prepared - turnout.sent) * self.common

    @property
    def largest(self) -> float:
        return self.parties * self.own + self.dropouts * self.common


@dataclass(frozen=True)
class Independent(Mechanism):
    """Every message is private by its own noise alone (`conv`, `local`)."""

    parties: int
    own: float

    @classmethod
    def plan(cls, trust: Trust, hidden: float) -> Independent:
        return cls(trust.parties, hidden + integer.LOST_VARIANCE)

    def hidden(self, turnout: Turnout) -> float:
        return self.own - integer.LOST_VARIANCE

    def total(self, turnout: Turnout) -> float:
        return turnout.sent * self.own

    @property
    def largest(self) -> float:
        return self.parties * self.own


@dataclass(frozen=True)
class Curator(Mechanism):
    """One curator who may see everything adds the noise once (`central`)."""

    own: float

    @classmethod
    def plan(cls, hidden: float) -> Curator:
        return cls(hidden + integer.LOST_VARIANCE)

    def hidden(self, turnout: Turnout) -> float:
        return self.own - integer.LOST_VARIANCE

    def total(self, turnout: Turnout) -> float:
        return self.own

    @property
    def largest(self) -> float:
        return self.own


@dataclass(frozen=True)
class Inside(Mechanism):
    """Contributions that were private before they came to be added (`fedsgd`), or are not at all (`none`)."""

    own: float

    @classmethod
    def plan(cls, hidden: float) -> Inside:
        return cls(hidden + integer.LOST_VARIANCE)

    def hidden(self, turnout: Turnout) -> float:
        return self.own - integer.LOST_VARIANCE

    def total(self, turnout: Turnout) -> float:
        return 0.0

    @property
    def largest(self) -> float:
        return 0.0
