"""The plan of a method, derived from the study alone: its sums, their noise, and the guarantee that follows.

A plan is frozen data. What it spends is a list of events; `privacy.accounting` turns them into the guarantee.
`making` makes plans.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from unspoken.methods.planning.budget import setups_for
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.planning.sums import (
    DeclaredSum,
    OtherRelease,
    PlannedSum,
    drawn_by,
)
from unspoken.privacy import accounting, integer
from unspoken.privacy.events import Event, Spend
from unspoken.privacy.guarantee import Guarantee, Trust
from unspoken.privacy.ledger import Run
from unspoken.study import Study
from unspoken.summation.base import NO_ATTEMPT, Protocol, Session, VoteShape
from unspoken.summation.collection import Collection, CollectionApart
from unspoken.summation.collection import Options as CollectionOptions
from unspoken.summation.record_shuffle import Options as ShuffleOptions
from unspoken.summation.record_shuffle import RecordShuffle
from unspoken.summation.registry import open_session, protocol_of
from unspoken.summation.shuffle_course import STAGES, ShuffleSession


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed before data is touched."""

    study: Study
    method: str
    sums: tuple[PlannedSum, ...]
    guarantee: Guarantee
    slack: float
    """The cost in δ of the summation's random choices, the drawing of noise and the sampling."""
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = field(default=(), kw_only=True)
    """Those of the notes that say why little or nothing may be learnt, by public facts"""
    others: tuple[OtherRelease, ...] = ()
    senders: int | None = None
    """The number of parties that are asked, if not all."""
    may_end_early: bool = False
    """Whether what was released may decide that no more is asked for"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Entries that the method adds to the plan's JSON."""

    def __post_init__(self) -> None:
        """Check that the noise keeps the stated guarantee, however the plan was made."""
        accounting.check_kept(accounting.epsilon_of(self.spend, self.guarantee.delta), self.guarantee.epsilon)
        fewest = Participation(self.trust.least_survivors, self.trust.least_survivors)
        for planned in self.sums:
            if planned.noise.counted and planned.adversary_std(fewest) < planned.noise_std * (1.0 - 1e-9):
                raise RuntimeError(f'The noise of "{planned.name}" is smaller than its stated deviation.')

    @property
    def parties_asked(self) -> int:
        """The number of parties that are to take part."""
        return self.senders or self.trust.parties

    @property
    def rounds(self) -> int:
        """The number of times that parties are asked for something."""
        each = [planned.noise.prepares + planned.count * (1 + planned.noise.cancels) for planned in self.sums]
        # What a trainer releases afterwards asks nobody for anything; a curator gets all records at once.
        return sum(each) or len(self.others)

    @property
    def trust(self) -> Trust:
        return self.guarantee.trust

    @property
    def secure_sums(self) -> int:
        """The number of all secure sums."""
        return sum(planned.noise.secure_sums(planned.count) for planned in self.sums)

    @property
    def attempts(self) -> int:
        """The number of times that a party may send its vector for one sum."""
        return max((planned.attempts for planned in self.sums), default=1)

    @property
    def attempts_in_all(self) -> int:
        """The number of attempts at all sums in which vectors may leave."""
        return sum(planned.releases for planned in self.sums)

    @property
    def setups(self) -> int:
        """The number of times that secure sums may be begun. Each time the protocol makes its random choices."""
        return setups_for(self.secure_sums, self.attempts)

    @property
    def is_summed(self) -> bool:
        """Whether there is a secure sum."""
        return self.secure_sums > 0

    @property
    def adds_in_the_clear(self) -> bool:
        """Whether the coordinator sees every contribution without noise. Then it is for simulations."""
        return self.is_summed and protocol_of(self.study).reveals_contributions

    def check_masked(self) -> None:
        """Refuse a summation that is for simulations, where contributions would really leave."""
        if self.adds_in_the_clear:
            raise self.study.error(
                "summation.protocol",
                f'is "{self.study.summation.protocol}", by which every contribution leaves in the clear, without '
                'noise: it is for simulations; choose one that hides them, such as "secagg+" (for votes, "tally")',
            )

    @property
    def is_pooled(self) -> bool:
        """Whether someone sees all records. Then it is a baseline, and its summation does not matter."""
        return any(planned.noise.pooled for planned in self.sums) or bool(self.others and not self.sums)

    @property
    def spend(self) -> Spend:
        """The cost of the run if as few parties take part, and as many attempts are made, as the plan allows."""
        return self._spend([*self.costs, *(other.event for other in self.others)])

    @property
    def costs(self) -> tuple[Event, ...]:
        """The cost of all vectors that one party may send."""
        return self.costs_of(None)

    def costs_of(self, party: int | None) -> tuple[Event, ...]:
        """The same for this party, which may have a promise of its own; None: for any."""
        counted = [planned for planned in self.sums if planned.noise.counted]
        return tuple(planned.event(planned.releases, planned.noise_std_for(party)) for planned in counted)

    def guarantee_for(self, party: int | None) -> Guarantee:
        """The guarantee of this party's own records, which is stronger than that of all if it adds more noise."""
        own = self.costs_of(party)
        if own == self.costs:
            return self.guarantee
        return accounting.guarantee_after(self.guarantee, self._spend([*own, *(other.event for other in self.others)]))

    def costs_of_a_vector(self, name: str, party: int | None = None, first: bool = False) -> tuple[Event, ...]:
        """The cost of one vector of this party for the named sum, if as few take part as the plan allows.

        Vectors of different turns and attempts have noise of their own, so their costs compose: to `costs`, if all are
        sent. A trusted receiver's vectors cost nothing; what it releases does, once (`run`). A run that may end early
        costs the same wherever it ends (`guarantee_after`): the party's `first` vector costs all.
        """
        if self.may_end_early:
            return self.costs_of(party) if first else ()
        planned = self.sum_named(name)
        return (planned.event(1, planned.noise_std_for(party)),) if planned.noise.counted else ()

    def ledger_run(self, identifier: str, seat: bool = False) -> Run:
        """The plan for a ledger: all that is counted once. `seat`: for one party."""
        return Run(
            identifier=identifier,
            study=self.study.name,
            study_sha256=self.study.digest(),
            method=self.method,
            group=self.guarantee.group,
            adjacency=self.guarantee.adjacency,
            delta=self.study.privacy.delta,
            slack=self.slack,
            distance=self._distance,
            trust=self.trust,
            assumptions=self.guarantee.assumptions,
            once=tuple(other.event for other in self.others),
            seat=seat,
        )

    @property
    def _distance(self) -> float:
        """A bound on the statistical distance of all noise that parties, or a curator, may draw from what is stated."""
        numbers = sum(planned.noisy_numbers for planned in self.sums)
        numbers += sum(other.dimension for other in self.others)
        return integer.distance(drawn_by(self.trust.parties, numbers))

    def _spend(self, events: list[Event]) -> Spend:
        return Spend(tuple(events), self.guarantee.group, self.guarantee.adjacency, self.slack)

    @cached_property
    def upload_bytes(self) -> int:
        """The most bytes that one party sends in all, if no attempt fails and all have as few records as allowed."""
        if self.is_pooled:
            return self.study.parties.records * (self.study.data.dimension + 1) * 8
        return sum(self._upload(planned) for planned in self.sums)

    def _upload(self, planned: PlannedSum) -> int:
        found = self.preparation(planned).upload_bytes() if planned.noise.prepares else 0
        # Messages carry the number of their turn, so their size depends on its digits. The first turn has none.
        digits = Counter(len(str(turn)) if turn else 0 for turn in range(planned.count))
        carriers = [self._carrier] + [self.cancellation] * planned.noise.cancels
        records = self.study.parties.records
        for count, turns in digits.items():
            turn = 10 ** (count - 1) if count else 0
            found += turns * sum(carrier(planned, turn).upload_bytes() for carrier in carriers)
            if planned.draws_by_tokens:
                found += turns * self.shuffle(turn).upload_bytes(records, self.trust.parties * records)
        return found

    @cached_property
    def party_messages(self) -> int:
        """How often one party has something to send in all, if no attempt fails: several times for most secure sums."""
        if self.is_pooled:
            return 1
        found = 0
        for planned in self.sums:
            carriers = [self._carrier(planned), *([self.cancellation(planned)] if planned.noise.cancels else [])]
            tokens = len(STAGES) if planned.draws_by_tokens else 0
            found += planned.count * (tokens + sum(carrier.party_messages for carrier in carriers))
            found += self.preparation(planned).party_messages if planned.noise.prepares else 0
        return found

    def _carrier(self, planned: PlannedSum, turn: int = 0) -> Protocol:
        """The protocol that carries the contributions: a secure sum, or messages in the open."""
        return self.protocol(planned, turn) if planned.noise.summed else self.collection(planned, turn)

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
        protocol = self._carrier(planned)
        if planned.noise.prepares or planned.noise.cancels:
            protocol = self.preparation(planned) if planned.noise.prepares else self.cancellation(planned)
        return {"bits": planned.encoding.bits, **protocol.parameters}

    def sum_named(self, name: str) -> PlannedSum:
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

    def cancellation(self, planned: PlannedSum, turn: int = 0, attempt: bytes = NO_ATTEMPT) -> Protocol:
        """The same protocol for the sum of the common noise of one turn's messages."""
        session = self._session(f"{planned.name}/noise/{turn}", planned.dimension, planned.encoding.bits, attempt)
        return open_session(self.study, session)

    def collection(
        self, planned: PlannedSum, turn: int = 0, only: int | None = None, attempt: bytes = NO_ATTEMPT
    ) -> Protocol:
        """Messages in the open, private on their own: all parties', or that of one."""
        name = f"{planned.name}/message/{turn}"
        session = self._session(name, planned.length, planned.encoding.bits, attempt)
        session = session if only is None else replace(session, least_survivors=1)
        return (CollectionApart if planned.noise.cancels else Collection)(session, CollectionOptions())

    def shuffle(self, turn: int, attempt: bytes = NO_ATTEMPT) -> RecordShuffle:
        """A list with a token for each record, for one round."""
        facts, parties = (self.study.digest(), f"tokens/{turn}", self.trust.parties), self.study.parties
        session = ShuffleSession(*facts, attempt, parties.records, parties.max_records)
        return RecordShuffle(session, ShuffleOptions())

    def _session(self, name: str, length: int, bits: int, attempt: bytes) -> Session:
        return replace(session_of(self.study, self.trust, name, length, bits), attempt=attempt)

    def spend_after(
        self, there: dict[str, list[Participation]], failed: Mapping[str, int] = MappingProxyType({})
    ) -> Spend:
        """The true cost of the run, by the parties that took part each time. What was not asked for costs nothing.

        `failed` is the number of attempts at each sum that gave no total after vectors had left. Nobody knows who took
        part in them, or what became known, so each counts as a total of as few parties as can open.
        """
        events: list[Event] = []
        for planned in filter(lambda planned: planned.noise.counted, self.sums):
            for participation, count in Counter(there.get(planned.name, ())).items():
                events.append(planned.event(count, planned.adversary_std(participation)))
            if failed.get(planned.name):
                events.append(planned.event(failed[planned.name], planned.noise_std))
        return self._spend([*events, *(other.event for other in self.others)])

    def guarantee_after(
        self, there: dict[str, list[Participation]], failed: Mapping[str, int] = MappingProxyType({})
    ) -> Guarantee:
        """The guarantee of what was really released.

        A run that may end by what it released is promised what was planned, wherever it ended: it could end just where
        it has told more than so few rounds usually do, and their ε would then be exceeded more often than δ allows.
        """
        if self.is_pooled or self.may_end_early or not self.guarantee.is_promise:
            return self.guarantee
        return accounting.guarantee_after(self.guarantee, self.spend_after(there, failed))

    def least_epsilon(self, sent: Mapping[str, int]) -> float:
        """The least that so many totals, by their names, can have cost, whoever was in them."""
        events = [
            planned.event(sent[planned.name], max(planned.noise_std, planned.largest_total_std))
            for planned in self.sums
            if planned.noise.counted and sent.get(planned.name)
        ]
        return accounting.epsilon_of(self._spend(events), self.guarantee.delta) if events else 0.0

    def weakening(self) -> list[dict[str, float]]:
        """ε if more parties collude than the study allows, and as many vanish as it does.

        From some number on, colluders break the protocol with a probability above δ (`alone`): then every honest party
        is protected by its own share of the noise only. The list is empty if the number of colluders does not matter.
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
        more = self.setups * (opening.exposure - planned_for.exposure)
        alone = opening.alone or more >= delta - self.slack
        events = []
        for planned in self.sums:
            noise = planned.noise
            variance = noise.adversary_variance_alone() if alone else noise.weakened(opening.parties, known)
            deviation = math.sqrt(variance) / planned.encoding.scale
            events.append(planned.event(planned.releases, deviation, planned.rate_if(known)))
        epsilon = accounting.epsilon_of(self._spend(events), delta - (0.0 if alone else more), fine=False)
        return {"colluding": colluding, "epsilon": epsilon, "alone": alone}

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "study_sha256": self.study.digest(),
            "method": self.method,
            "guarantee": self.guarantee.to_json(),
            "releases": [planned.to_json(self.parties_asked) for planned in self.sums]
            + [other.to_json() for other in self.others],
            "rounds": self.rounds,
            "party_messages": self.party_messages,
            "attempts": self.attempts,
            "upload_bytes": self.upload_bytes,
            "summation": self.study.summation.protocol if self.is_summed else None,
            "summation_parameters": self.summation_parameters,
            "parties": self.trust.parties,
            "notes": list(self.notes),
            **self._sampling(),
            **self.facts,
        }

    def compared(self) -> dict[str, Any]:
        """What all participants must plan alike: the plan as it is told to people, and how numbers are encoded."""
        encodings = {planned.name: vars(planned.encoding) for planned in self.sums}
        return self.to_json() | {"encodings": encodings}

    def _sampling(self) -> dict[str, Any]:
        """The sampling of records, if there is one."""
        for planned in self.sums:
            if planned.sampling is not None:
                return {
                    "noise_multiplier": planned.noise_multiplier,
                    "sampling": {"kind": planned.sampling.kind, "rate": planned.sampling.rate},
                }
        return {}


def agreed_protocol(study: Study, trust: Trust, sums: Sequence[DeclaredSum] | Sequence[PlannedSum]) -> Protocol:
    """The study's protocol for a made-up sum, to be asked for its properties. If all sums are ballots, it is a vote."""
    classes = {planned.classes for planned in sums}
    common = classes.pop() if len(classes) == 1 else None
    session = session_of(study, trust, "plan", common or 1, 64)
    return open_session(study, replace(session, vote=_vote(session.length, common)))


def session_of(study: Study, trust: Trust, name: str, length: int, bits: int) -> Session:
    return Session(study.digest(), name, trust.parties, trust.colluding, trust.least_survivors, length, bits)


def _vote(length: int, classes: int | None) -> VoteShape | None:
    """The vote that ballots of this length decide, if they are ballots."""
    return None if classes is None else VoteShape(length // classes, classes)
