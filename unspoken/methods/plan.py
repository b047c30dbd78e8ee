"""The plan of a method, derived from the study alone: its sums, their noise, and the guarantee that follows.

A plan is frozen data. What it spends is a list of events; `privacy.accounting` turns them into the guarantee.
`methods.planning` makes plans.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from unspoken.arithmetic import ROWS
from unspoken.methods.mechanisms import Mechanism, NoiseShares, Participation
from unspoken.noise.encoding import Encoding
from unspoken.noise.stream import SecretStream
from unspoken.privacy import accounting
from unspoken.privacy.events import Event, Gaussian, Sampling, Spend, SubsampledGaussian, Unprotected
from unspoken.privacy.guarantee import Guarantee, Trust
from unspoken.study import Study
from unspoken.summation.base import NO_ATTEMPT, Protocol, Session, VoteShape
from unspoken.summation.collection import Collection
from unspoken.summation.collection import Options as CollectionOptions
from unspoken.summation.record_shuffle import Options as ShuffleOptions
from unspoken.summation.record_shuffle import RecordShuffle
from unspoken.summation.registry import open_session
from unspoken.summation.shuffle_course import ShuffleSession
from unspoken.types import Floats

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
    upload: int = 0
    """The number of bytes that a party sends in a round for the sampling itself."""

    @property
    def by_tokens(self) -> bool:
        """Does a shuffled list of tokens decide which records are in a batch?"""
        return self.kind == "without-replacement"


@dataclass(frozen=True)
class DeclaredSum:
    """A total that a method will ask for."""

    name: str
    dimension: int
    """The number of coordinates that carry noise."""
    bound: float
    """The largest L2 norm of a party's contribution."""
    sensitivity: float
    """The sensitivity of the total to the protected unit, in L2 norm. With `sampling`: a record's largest
    contribution."""
    exact: tuple[str, ...] = ()
    """Further coordinates, whole numbers that are the same for all neighbours, so that they need no noise."""
    count: int = 1
    """The number of times that it is asked for."""
    share: float = 1.0
    """This sum's weight when μ² is divided among all sums."""
    noise: Mechanism = _SHARES
    """The noise mechanism."""
    most: float | None = None
    """A bound on the norm of every total, but for a negligible chance; None: all parties' bounds added up."""
    rows: int = ROWS
    """The number of records that are added up before their sum joins others: see `arithmetic`."""
    sampling: RecordSampling | None = None
    """None: every contribution is made of all records."""
    classes: int | None = None
    """The number of classes of each query, if it is a sum of ballots."""


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
    noise_std: float
    """The deviation of the noise without the shares of colluders and dropped parties."""
    count: int = 1
    sampling: RecordSampling | None = None
    classes: int | None = None
    """The number of classes of each query, if it is a sum of ballots."""

    @property
    def length(self) -> int:
        return self.dimension + len(self.exact)

    @property
    def mu(self) -> float:
        """μ of each time that it is asked for."""
        return self.sensitivity / self.noise_std

    def total_std(self, sent: int, prepared: int | None = None) -> float:
        """The standard deviation of all the noise in the released total, unneeded components taken away."""
        return math.sqrt(self.noise.total(Participation(prepared or sent, sent))) / self.encoding.scale

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
            1.0 / (self.sensitivity / noise_std), rate, self.sampling.kind, count * self.sampling.steps
        )

    def privatised(self, vector: Floats, secrets: SecretStream, parties: int = 1) -> Floats:
        """A vector, rounded and with all of its noise, from one place that draws it at once. `parties`: the vector
        sums up so many parties' contributions, so that it may exceed the bound of one."""
        encoding = replace(self.encoding, bound=self.encoding.bound * parties)
        words = encoding.encode(vector.reshape(1, -1))[0]
        words += self.noise.at_once(self.dimension, secrets, Participation(1, 1))
        return encoding.decode(words)

    def rate_if(self, known: int) -> float | None:
        """The rate of sampling for someone who knows the records of so many parties; None: it does not depend on it."""
        depends = self.sampling.rate_if if self.sampling else None
        return None if depends is None else depends(known)

    def to_json(self, plan: Plan) -> dict[str, Any]:
        # A replaced record takes one contribution away from a batch and brings another.
        twice = self.sampling is not None and plan.guarantee.adjacency == "replace"
        return {
            "name": self.name,
            "sensitivity": self.sensitivity * (2.0 if twice else 1.0),
            "noise_std": self.noise_std,
            "count": self.count,
            "dimension": self.dimension,
            "exact": list(self.exact),
            "total_noise_std": self.total_std(plan.asked),
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

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "sensitivity": self.sensitivity,
            "noise_std": self.noise_std,
            "count": 1,
            "dimension": self.dimension,
            "noise": self.noise,
        }


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed before data is touched."""

    study: Study
    method: str
    sums: tuple[PlannedSum, ...]
    guarantee: Guarantee
    slack: float
    """The cost in δ of the summation's dice, the drawing of noise and the sampling."""
    notes: tuple[str, ...] = ()
    others: tuple[OtherRelease, ...] = ()
    senders: int | None = None
    """The number of parties that are asked, if not all."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Entries that the method adds to the plan's JSON."""

    @property
    def asked(self) -> int:
        """The number of parties that are to take part."""
        return self.senders or self.trust.parties

    @property
    def rounds(self) -> int:
        """The number of times that parties are asked for something."""
        preparations = sum(planned.noise.prepares for planned in self.sums)
        return preparations + sum(planned.count for planned in self.sums) + len(self.others)

    @property
    def trust(self) -> Trust:
        return self.guarantee.trust

    @property
    def secure_sums(self) -> int:
        """The number of all secure sums."""
        return sum(planned.noise.secure_sums(planned.count) for planned in self.sums)

    @property
    def is_summed(self) -> bool:
        """Is there a secure sum?"""
        return self.secure_sums > 0

    @property
    def is_pooled(self) -> bool:
        """Does someone see all records? Then it is a baseline, and its summation does not matter."""
        return any(planned.noise.pooled for planned in self.sums) or bool(self.others and not self.sums)

    @property
    def spend(self) -> Spend:
        """The cost of the run if as few parties take part as the plan allows."""
        events = [planned.event(planned.count, planned.noise_std) for planned in self.sums if planned.noise.counted]
        return self._spend([*events, *(other.event for other in self.others)])

    def _spend(self, events: list[Event]) -> Spend:
        return Spend(tuple(events), self.guarantee.group, self.guarantee.adjacency, self.slack)

    @cached_property
    def upload_bytes(self) -> int:
        """The number of bytes that one party sends in all."""
        if self.is_pooled:
            return self.study.parties.records * (self.study.data.dimension + 1) * 8
        return sum(self._upload(planned) for planned in self.sums)

    def _upload(self, planned: PlannedSum) -> int:
        prepared = self.preparation(planned).upload_bytes() if planned.noise.prepares else 0
        sampling = planned.sampling.upload if planned.sampling else 0
        return prepared + planned.count * (self._carrier(planned).upload_bytes() + sampling)

    def _carrier(self, planned: PlannedSum) -> Protocol:
        """The protocol that carries the contributions: a secure sum, or messages in the open."""
        carrier = self.protocol if planned.noise.summed else self.collection
        return carrier(planned)

    @cached_property
    def helper_addresses(self) -> tuple[str, ...]:
        """The addresses of the helpers that the study's protocol needs, in the order of their keys in the roster."""
        return agreed_protocol(self.study, self.trust, self.sums).helper_addresses if self.is_summed else ()

    @cached_property
    def summation_parameters(self) -> dict[str, int]:
        """The protocol's parameters: word size, neighbours, thresholds, nodes."""
        if self.is_pooled:
            return {}
        planned = self.sums[0]
        protocol = self.preparation(planned) if planned.noise.prepares else self._carrier(planned)
        return {"bits": planned.encoding.bits, **protocol.parameters}

    def planned(self, name: str) -> PlannedSum:
        return next(planned for planned in self.sums if planned.name == name)

    def protocol(self, planned: PlannedSum, turn: int = 0, attempt: bytes = NO_ATTEMPT) -> Protocol:
        """The summation protocol of the study, for one of the plan's sums: the turn-th time that it is asked for."""
        name = f"{planned.name}/{turn}" if turn else planned.name
        session = self._session(name, planned.length, planned.encoding.bits, attempt)
        session = replace(session, schedule=planned.noise.schedule, vote=_vote(planned.length, planned.classes))
        return open_session(self.study, session)

    def preparation(self, planned: PlannedSum, attempt: bytes = NO_ATTEMPT) -> Protocol:
        """The same protocol for the sum of the parties' common noise, for all turns at once."""
        name, length = f"{planned.name}/common-noise", planned.dimension * planned.count
        return open_session(self.study, self._session(name, length, planned.encoding.bits, attempt))

    def collection(
        self, planned: PlannedSum, turn: int = 0, only: int | None = None, attempt: bytes = NO_ATTEMPT
    ) -> Protocol:
        """Messages in the open, private on their own: all parties', or that of one."""
        name = f"{planned.name}/message/{turn}"
        session = self._session(name, planned.length, planned.encoding.bits, attempt)
        session = session if only is None else replace(session, least_survivors=1)
        return Collection(session, CollectionOptions())

    def shuffle(self, turn: int, attempt: bytes = NO_ATTEMPT) -> RecordShuffle:
        """A list with a token for each record, for one round."""
        session = ShuffleSession(self.study.digest(), f"tokens/{turn}", self.trust.parties, attempt)
        return RecordShuffle(session, ShuffleOptions())

    def _session(self, name: str, length: int, bits: int, attempt: bytes) -> Session:
        return replace(session_of(self.study, self.trust, name, length, bits), attempt=attempt)

    def released_spend(self, there: dict[str, list[Participation]]) -> Spend:
        """The true cost of the run, by the parties that took part each time."""
        events: list[Event] = []
        for planned in self.sums:
            if planned.noise.counted:
                for participation, count in Counter(there[planned.name]).items():
                    deviation = math.sqrt(planned.noise.adversary_variance(participation)) / planned.encoding.scale
                    events.append(planned.event(count, deviation))
        return self._spend([*events, *(other.event for other in self.others)])

    def released(self, there: dict[str, list[Participation]]) -> Guarantee:
        """The guarantee of what was really released."""
        if self.is_pooled or not self.guarantee.is_promise:
            return self.guarantee
        return accounting.kept(self.guarantee, self.released_spend(there))

    def weakening(self) -> list[dict[str, float]]:
        """ε if more parties collude than the study allows, and as many vanish as it does.

        From some number on, colluders get around the protocol with a chance above δ (`alone`): then every honest party
        stands alone, with its own share of the noise. Empty where it does not matter how many collude.
        """
        if not self.is_summed:
            return []
        fewest = self.trust.least_survivors - self.trust.withheld
        counts = np.unique(np.linspace(self.trust.colluding, fewest - 1, 9).astype(int)).tolist()
        protocol = agreed_protocol(self.study, self.trust, self.sums)
        return [self._weakened(protocol, count) for count in counts]

    def _weakened(self, protocol: Protocol, colluding: int) -> dict[str, float]:
        delta, known = self.study.privacy.delta, max(colluding, self.trust.known)
        opening, planned_for = protocol.openable(colluding), protocol.openable(self.trust.colluding)
        more = self.secure_sums * (opening.exposure - planned_for.exposure)
        alone = opening.alone or more >= delta - self.slack
        events = []
        for planned in self.sums:
            noise = planned.noise
            variance = noise.adversary_variance_alone() if alone else noise.weakened(opening.parties, known)
            deviation = math.sqrt(variance) / planned.encoding.scale
            events.append(planned.event(planned.count, deviation, planned.rate_if(known)))
        epsilon = accounting.epsilon_of(self._spend(events), delta - (0.0 if alone else more), fine=False)
        return {"colluding": colluding, "epsilon": epsilon, "alone": alone}

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "study_sha256": self.study.digest(),
            "method": self.method,
            "guarantee": self.guarantee.to_json(),
            "releases": [planned.to_json(self) for planned in self.sums] + [other.to_json() for other in self.others],
            "rounds": self.rounds,
            "upload_bytes": self.upload_bytes,
            "summation": self.study.summation.protocol if self.is_summed else None,
            "summation_parameters": self.summation_parameters,
            "parties": self.trust.parties,
            "notes": list(self.notes),
            **self._sampling(),
            **self.facts,
        }

    def _sampling(self) -> dict[str, Any]:
        """The sampling of records, if there is one."""
        for planned in self.sums:
            if planned.sampling is not None:
                return {
                    "noise_multiplier": planned.noise_std / planned.sensitivity,
                    "sampling": {"kind": planned.sampling.kind, "rate": planned.sampling.rate},
                }
        return {}


def agreed_protocol(study: Study, trust: Trust, sums: Sequence[DeclaredSum] | Sequence[PlannedSum]) -> Protocol:
    """The study's protocol, to be asked what it can open. It may count votes if nothing else is to be added up."""
    classes = {planned.classes for planned in sums}
    common = classes.pop() if len(classes) == 1 else None
    session = session_of(study, trust, "plan", common or 1, 64)
    return open_session(study, replace(session, vote=_vote(session.length, common)))


def session_of(study: Study, trust: Trust, name: str, length: int, bits: int) -> Session:
    return Session(study.digest(), name, trust.parties, trust.colluding, trust.least_survivors, length, bits)


def _vote(length: int, classes: int | None) -> VoteShape | None:
    """The vote that ballots of this length decide, if they are ballots."""
    return None if classes is None else VoteShape(length // classes, classes)
