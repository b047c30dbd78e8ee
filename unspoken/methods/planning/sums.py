"""Sums as a method declares them and as a plan sizes them: frozen data.

`plan` puts them together; `making` sizes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from unspoken.arithmetic import ROWS
from unspoken.methods.planning.mechanisms import Mechanism, NoiseShares, Participation
from unspoken.noise.encoding import Encoding
from unspoken.noise.schedule import COMPONENTS
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import Adjacency, Event, Gaussian, Sampling, SubsampledGaussian, Unprotected
from unspoken.types import Flags, Floats

_SHARES = NoiseShares()


@dataclass(frozen=True)
class RecordSampling:
    """The sampling of records for each round of a sum, and its cost in δ."""

    rate: float
    """The chance of an honest record to be in a round's batch."""
    kind: Sampling = "poisson"
    slack: float = 0.0
    """The cost of the sampling in δ, for all rounds together."""
    steps: int = 1
    """The number of noisy sums in a round."""
    rate_if: Callable[[int], float] | None = None
    """The rate if so many parties collude, where it depends on them."""
    tokens: bool = False
    """Whether a shuffled list of tokens decides which records are in a batch."""


def contributions_apart(adjacency: Adjacency) -> int:
    """The number of contributions that neighbours' batches differ by: a replaced record takes one away and brings
    another."""
    return 2 if adjacency == "replace" else 1


def drawn_by(parties: int, numbers: int) -> int:
    """The samples that parties draw to put noise on so many numbers each, in all components of their noise."""
    return parties * numbers * (COMPONENTS + 1)


@dataclass(frozen=True)
class DeclaredSum:
    """A total that a method will ask for."""

    name: str
    dimension: int
    """The number of coordinates that carry noise."""
    bound: float
    """The largest L2 norm of a party's contribution."""
    sensitivity: float
    """The sensitivity of the total to the protected unit, in L2 norm. With `sampling`, that of a total whose batch has
    the unit: two contributions if it is replaced, one if it is added or removed."""
    exact: tuple[str, ...] = ()
    """Further coordinates, whole numbers that are the same for all neighbours, so that they need no noise."""
    count: int = 1
    """The number of times that it is asked for."""
    share: float = 1.0
    """This sum's weight when μ² is divided among all sums."""
    noise: Mechanism = _SHARES
    most: float | None = None
    """A bound on the norm of totals, exceeded with negligible probability; None: the sum of the parties' bounds."""
    rows: int = ROWS
    """The number of records that are added up in one block: see `arithmetic`."""
    sampling: RecordSampling | None = None
    """None: every contribution is made of all records."""
    classes: int | None = None
    """The number of classes of each query, if it is a sum of ballots."""
    adjacency: Adjacency = "replace"
    """The neighbours that the sensitivity is for."""
    longest: float = math.inf
    """The largest norm of a total of parties with as few records as the study allows, where it is less than their
    number times half of the sensitivity: it limits what all of them together can say."""

    @property
    def noisy_numbers(self) -> int:
        """The numbers that get noise, each time that it is asked for, if no attempt fails."""
        return self.dimension * self.count * (self.sampling.steps if self.sampling else 1)


@dataclass(frozen=True)
class PlannedSum:
    """A declared sum with its encoding and noise."""

    name: str
    dimension: int
    exact: tuple[str, ...]
    encoding: Encoding
    noise: Mechanism
    """The noise mechanism, sized in units of the encoding."""
    sensitivity: float
    """The declared sensitivity and what rounding adds to it."""
    contribution: float
    """What one record (or party) adds to a sum over sampled ones, at most: a noise multiplier is a multiple of it. In
    other sums, the sensitivity."""
    noise_std: float
    """The deviation of the noise without the shares of colluders and dropped parties."""
    count: int = 1
    attempts: int = 1
    """The number of times that a party may send its vector, each time that it is asked for."""
    sampling: RecordSampling | None = None
    classes: int | None = None
    longest: float = math.inf

    @property
    def length(self) -> int:
        return self.dimension + len(self.exact)

    @property
    def draws_by_tokens(self) -> bool:
        """Whether a shuffled list of tokens decides which records are in it."""
        return self.sampling is not None and self.sampling.tokens

    @property
    def mu(self) -> float:
        """μ of a single total."""
        return self.sensitivity / self.noise_std

    @property
    def noise_multiplier(self) -> float:
        """The deviation of the noise over the largest contribution."""
        return self.noise_std / self.contribution

    @property
    def releases(self) -> int:
        """The number of totals that an adversary may see: one of every attempt in which vectors left."""
        return self.count * self.attempts

    @property
    def noisy_numbers(self) -> int:
        """The numbers that get noise, in all attempts."""
        return self.dimension * self.releases * (self.sampling.steps if self.sampling else 1)

    def total_std(self, sent: int, prepared: int | None = None) -> float:
        """The standard deviation of all the noise in the released total, unneeded components taken away."""
        return math.sqrt(self.noise.total(Participation(prepared or sent, sent))) / self.encoding.scale

    def noise_std_for(self, party: int | None) -> float:
        """The deviation of the noise that this party's adversary faces, if parties have promises of their own."""
        own = None if party is None else self.noise.variance_for(party)
        return self.noise_std if own is None else math.sqrt(own) / self.encoding.scale

    def total_std_of(self, prepared: Flags, sent: Flags) -> float:
        """The same, from who was there."""
        return math.sqrt(self.noise.total_of(prepared, sent)) / self.encoding.scale

    @property
    def parts(self) -> dict[str, float]:
        """What the noise is made of, if it has parts of its own."""
        return self.noise.parts(self.encoding.scale, self.noise_std)

    def adversary_std(self, there: Participation) -> float:
        """The deviation of the noise that the adversary faces."""
        return math.sqrt(self.noise.adversary_variance(there)) / self.encoding.scale

    @property
    def largest_total_std(self) -> float:
        """The largest such deviation over all allowed numbers of parties."""
        return math.sqrt(self.noise.largest_released) / self.encoding.scale

    def event(self, count: int, noise_std: float, rate: float | None = None) -> Event:
        """The cost of `count` totals under so much noise, if records are sampled at this rate (None: as planned)."""
        if noise_std == 0.0:
            return Unprotected()
        if self.sampling is None:
            return Gaussian(self.sensitivity / noise_std, count)
        rate = self.sampling.rate if rate is None else rate
        return SubsampledGaussian(
            1.0 / (self.contribution / noise_std), rate, self.sampling.kind, count * self.sampling.steps
        )

    def privatised(self, vector: Floats, secrets: SecretStream, parties: int = 1) -> Floats:
        """The vector, rounded, with all its noise drawn at once, as a curator does it.

        It is the sum of the contributions of `parties` parties, and bounded accordingly.
        """
        encoding = replace(self.encoding, bound=self.encoding.bound * parties)
        words = encoding.encode(vector.reshape(1, -1))[0]
        words += self.noise.at_once(self.dimension, secrets, Participation(1, 1))
        return encoding.decode(words)

    def rate_if(self, known: int) -> float | None:
        """The sampling rate for an adversary who knows the records of `known` parties; None: the rate is the same."""
        depends = self.sampling.rate_if if self.sampling else None
        return None if depends is None else depends(known)

    def to_json(self, asked: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "sensitivity": self.sensitivity,
            "noise_std": self.noise_std,
            "count": self.count,
            "attempts": self.attempts,
            "dimension": self.dimension,
            "exact": list(self.exact),
            "total_noise_std": self.total_std(asked),
            **({"noise_parts": self.parts} if self.parts else {}),
        }


@dataclass(frozen=True)
class OtherRelease:
    """A release that is no total of contributions: what a curator or a trainer publishes."""

    name: str
    dimension: int
    noise: str
    """The kind of noise, in words."""
    sensitivity: float
    noise_std: float
    event: Event
    """The cost of the release."""
    longest: float = math.inf
    """The largest norm of what is released, before noise"""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "sensitivity": self.sensitivity,
            "noise_std": self.noise_std,
            "count": 1,
            "dimension": self.dimension,
            "noise": self.noise,
        }
