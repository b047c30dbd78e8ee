"""The coordinator: drives the method, opens an attempt for each request, and makes totals and in the end the release.

The coordinator says what to send, in which stage it is, and whether everyone has answered in this stage (`complete`).
The engine ends a stage by `close_stage`, when it is complete or when time is up. When an attempt ends in `Aborted`,
`retry` opens another one if the plan allows it. In the end `end` tells everyone that the study is over.

With a store, the coordinator can go on after its process was stopped (`roles.coordinator_log`): `start` then opens the
next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from unspoken.methods.base import (
    Answer,
    Cancel,
    Collect,
    Method,
    Pool,
    Request,
    Sum,
    Tokens,
    Total,
    Vote,
    ZeroSum,
    release_of,
)
from unspoken.methods.planning import Plan
from unspoken.methods.releases import Release
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import AttemptCounts, given_up, next_attempt
from unspoken.roles.coordinator_log import CoordinatorLog
from unspoken.roles.messages import Carried, Over, ask_for, assist_with, attempt_of, carried, unpacked
from unspoken.roles.planned_requests import largest_message, largest_of_study, protocol_for
from unspoken.roles.stages import ShufflingStages, Stage, Stages, SummingStages
from unspoken.roles.store import Store
from unspoken.roles.totals import Totals
from unspoken.summation.addresses import is_party, party_at
from unspoken.summation.base import Aborted, Envelope, Protocol, Rejected, Roster, SignedStatement, address_of
from unspoken.summation.base import Coordinator as SummationCoordinator
from unspoken.summation.keys import Identity


class Coordinator:
    """The coordinator of a study."""

    def __init__(
        self,
        method: Method,
        identity: Identity,
        roster: Roster,
        *,
        plan: Plan | None = None,
        noise_of: Callable[[bytes, Request], SecretStream] | None = None,
        store: Store | None = None,
    ) -> None:
        """`noise_of` is used in simulations that add vectors in the clear. It gives the stream of an attempt's noise:
        the operating system's randomness, unless a test injects another."""
        self._method, self._identity, self._roster = method, identity, roster
        self.plan = plan or method.agreed_plan
        self._noise_of = noise_of or (lambda attempt, request: SecretStream())
        self._conversation = method.coordinate(self.plan)
        self.totals = Totals(self.plan)
        self.release: Release | None = None
        self._request: Request = Pool()
        self.attempts = AttemptCounts(self.plan)
        self._waiting: list[Request] = []
        """Requests to make before the method goes on"""
        self._attempt, self._largest, self._largest_ever = b"", 0, largest_of_study(self.plan)
        self._told: set[str] = set()
        """The addresses of all who know of the attempt under way"""
        self._stages: Stages | None = None
        self.blamed: dict[str, str] = {}
        """The faults in all attempts so far, by address. (A sum may go on without those at fault.)"""
        self.evidence: tuple[SignedStatement, ...] = ()
        """Signed statements that prove these faults, where there are some (`roles.evidence` checks them)"""
        self.log, self._left = CoordinatorLog(store), False
        self._given_up: Aborted | None = None
        self._rest: list[Envelope] = []
        """Messages of an attempt that is over, which may not have arrived"""
        self.has_begun = bool(self.log.attempts)
        """Whether an earlier process has opened an attempt"""
        if self.has_begun:
            self._recall()

    def start(self) -> list[Envelope]:
        """Make the method's first request, or go on where the log ends; `Aborted` if neither is possible."""
        if self._given_up is not None:
            raise self._given_up
        if self.release is not None:
            return self.end()
        if not self.has_begun:
            self._waiting = [next(self._conversation)]
        return self._rest + self._open(self._waiting.pop(0))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to ask for."""
        return self.release is not None or self._given_up is not None

    def _recall(self) -> None:
        """Restore the state at the end of the log. The attempt that was under way has ended with its process."""
        everyone = [address_of(party) for party in range(self.plan.trust.parties)]
        self._told = {*everyone, *self.plan.helper_addresses}
        self._waiting = [next(self._conversation)]
        try:
            while self.log.attempts:
                kept = self.log.attempts.pop(0)
                self._request, self._attempt = self._waiting.pop(0), kept.attempt
                kept.check(self._request)
                if (answer := kept.recall(self._request, self.totals)) is not None:
                    self._answered(answer)
                    # Parties that have these messages already reject them, because for them the attempt is over.
                    self._rest = carried([Envelope(to, body) for to in everyone for body in kept.rest], kept.attempt)
                else:
                    self._try_again(kept.left, Aborted("the coordinator was stopped in mid-attempt"))
        except Aborted as ended:
            self._given_up = ended
        if self.log.ended is not None and self.log.ended.reason:
            self._given_up = Aborted(self.log.ended.reason)

    def receive(self, incoming: bytes, sender: str = "") -> list[Envelope]:
        """Take a message of a party or a helper, and say what to send. `Rejected` changes nothing.

        `sender` is the address from which the engine has the message. Parties that were not asked are rejected.
        """
        if self._stages is None:
            raise Rejected("a message came, and nothing is asked for")
        if is_party(sender) and party_at(sender) not in self.expected():
            raise Rejected(f"{sender} was not asked in this attempt")
        message: Any = unpacked(incoming, Carried, self._largest)
        if message.attempt != self._attempt:
            raise Rejected("a message of an attempt that is not under way came")
        return self._letting(self._stages.step(bytes(message.body), sender))

    @property
    def largest(self) -> int:
        """The size of the largest message that anyone may send in the study. `receive` limits messages to the attempt
        under way."""
        return self._largest_ever

    def passed(self, sender: str, to: str, body: bytes) -> None:
        """Note that the engine carried a message from a party to a helper; `complete` needs to know.

        Who comes back may still send a vector of an attempt that is over: it does not stand for the next one.
        """
        if self._stages is not None and attempt_of(body) == self._attempt:
            self._stages.passed(sender, to)

    @property
    def complete(self) -> bool:
        """Whether everyone who is expected has answered in this stage, so that it can be closed."""
        return self._stages is not None and not self._stages.missing

    @property
    def missing(self) -> set[str]:
        """The addresses of all who are expected to say something more in this stage."""
        return set() if self._stages is None else self._stages.missing

    @property
    def chain(self) -> int:
        """The most messages of helpers in this stage of which each waits for the one before."""
        return 1 if self._stages is None else self._stages.chain

    def close_stage(self) -> list[Envelope]:
        """Go on with those who are there; `Aborted` if they are too few."""
        if self._stages is None:
            raise RuntimeError("There is no stage to close.")
        envelopes = self._letting(self._stages.close())
        if self._stages.stage != "done":
            return envelopes
        answer = self._stages.answer()
        self._blame(*self._stages.blame)
        self.log.answer(self._request, answer, self.totals, self._stages.rest)
        self._answered(answer)
        return self._open(self._waiting.pop(0)) if self._waiting else self.end()

    def _letting(self, envelopes: list[Envelope]) -> list[Envelope]:
        """The protocol's messages, for sending. If they let vectors leave, this is logged first."""
        if self._stages is not None and self._stages.left and not self._left:
            self.log.leave()
            self._left = True
        return carried(envelopes, self._attempt)

    def retry(self, ended: Aborted) -> list[Envelope]:
        """Open another attempt at the request, after one has ended in `ended`; raises `ended` if the plan allows no
        more."""
        self.fail(ended)
        return self.again()

    def fail(self, ended: Aborted) -> None:
        """End the attempt under way, which has come to nothing; raises `ended` if the plan allows no other one.

        Attempts that ended before vectors could leave are free, up to a number (`roles.attempts`). Until `again`,
        nothing is asked for.
        """
        if self._stages is None:
            raise ended
        self._blame(*self._stages.blame)
        self._blame(ended.faults or dict.fromkeys(ended.blamed, str(ended)), ended.evidence)
        left, self._stages = self._stages.left, None
        self._try_again(left, ended)

    def again(self) -> list[Envelope]:
        """Open another attempt after one that has failed."""
        return self._open(self._waiting.pop(0))

    def _try_again(self, left: bool, ended: Aborted) -> None:
        """Count an attempt that has ended, and queue the requests of the next one; raises an error if the plan allows
        no more."""
        try:
            self._waiting = self.attempts.again(self._request, left, ended) + self._waiting
        except Aborted:
            told = given_up(self.plan, self.totals.participation, self.attempts, ended)
            earlier = {who: fault for who, fault in self.blamed.items() if who not in ended.blamed}
            raise told.with_blame(earlier, self.evidence) from ended

    def _blame(self, faults: Mapping[str, str], evidence: tuple[SignedStatement, ...]) -> None:
        self.blamed |= faults
        self.evidence += tuple(each for each in evidence if each not in self.evidence)

    def end(self) -> list[Envelope]:
        """The study is over, with a release or without: tell everyone, so that they forget their secrets."""
        self._stages = None
        return self._over(self._attempt, set())

    @property
    def stage(self) -> Stage:
        """The stage that the engine is to close next; "done" when there is a release."""
        if self._stages is None:
            return "setup" if self.release is None else "done"
        return self._stages.stage

    @property
    def setup_stages(self) -> int:
        """The number of stages of the attempt before vectors are sent."""
        return 0 if self._stages is None else self._stages.setup_stages

    @property
    def request(self) -> Request:
        """The request under way."""
        return self._request

    @property
    def attempt(self) -> bytes:
        """The attempt under way."""
        return self._attempt

    def expected(self) -> list[int]:
        """The parties that are asked in this attempt."""
        request = self._request
        if isinstance(request, Cancel):
            return sorted(self.totals.senders(request.name))
        if isinstance(request, Collect):
            if request.only is not None:
                return [request.only]
            if common := self.totals.common.get(request.name):
                return [int(party) for party in np.flatnonzero(common.prepared)]
        return list(range(self.plan.trust.parties))

    def _answered(self, answer: Answer) -> None:
        """Count an attempt that gave an answer, and go on to the next request, or to the release."""
        self.attempts.succeeded(self._request)
        if self._waiting:
            return
        try:
            self._waiting = [self._conversation.send(answer)]
        except StopIteration as end:
            self.release = release_of(self._method, end)

    def _over(self, attempt: bytes, others: set[str]) -> list[Envelope]:
        """Tell all who know of the attempt that it is over, except `others`, who hear of the next attempt instead."""
        over = msgspec.msgpack.encode(Over(attempt))
        left, self._told = self._told - others, others
        return [Envelope(address, over) for address in sorted(left)]

    def _open(self, request: Request) -> list[Envelope]:
        """Open an attempt at a request, and end the one before it."""
        before = self._attempt
        envelopes = self._opened(request)
        self._left = self._stages is not None and self._stages.left
        self.log.open(self._attempt, request, self._left)
        return self._over(before, {to for to, _ in envelopes}) + envelopes

    def _opened(self, request: Request) -> list[Envelope]:
        if isinstance(request, Pool):
            raise Aborted("this method needs all records in one place: it runs in simulations of one process only")
        self._request, self._attempt = request, next_attempt(self._attempt)
        # Noise is prepared for all turns at once, also when it is prepared again because a later turn failed.
        turn = request.turn if isinstance(request, Tokens | ZeroSum) else self.totals.turn(request.name)
        self._largest = largest_message(self.plan, request, turn)
        noise = self._noise_of(self._attempt, request)
        ask = msgspec.msgpack.encode(ask_for(request, turn, self._attempt))
        envelopes = [Envelope(address_of(party), ask) for party in self.expected()]
        if isinstance(request, Tokens):
            shuffle = self.plan.shuffle(turn, self._attempt).with_roster(self._roster)
            lists = shuffle.coordinator(self._identity, SecretStream())
            self._stages = ShufflingStages(lists, self.plan.trust.parties)
            return envelopes
        protocol = protocol_for(self.plan, request, turn, self._attempt).with_roster(self._roster)
        answer = self._answering(request, noise if protocol.reveals_contributions else None)
        endpoint = protocol.coordinator(self._identity, SecretStream())
        self._stages = SummingStages(protocol, endpoint, self.expected(), answer)
        return self._assistance(request, turn, protocol) + envelopes

    def _assistance(self, request: Request, turn: int, protocol: Protocol) -> list[Envelope]:
        """Messages that tell the helpers of the attempt."""
        if not protocol.helper_addresses:
            return []
        assist = msgspec.msgpack.encode(assist_with(request, turn, self._attempt))
        return [Envelope(address, assist) for address in protocol.helper_addresses]

    def _answering(self, request: Request, noise: SecretStream | None) -> Callable[[SummationCoordinator], Total]:
        """A function that makes the answer from a finished sum. `noise`: the stream from which all noise is drawn, if
        parties added none."""
        match request:
            case Sum():
                return lambda endpoint: self.totals.summed(request, endpoint, noise)
            case Vote():
                return lambda endpoint: self.totals.voted(request, endpoint)
            case ZeroSum():
                return lambda endpoint: self.totals.prepared(request, endpoint)
            case Collect():
                return lambda endpoint: self.totals.collected(request, endpoint)
            case Cancel():
                return lambda endpoint: self.totals.cancelled(request, endpoint)
            case _:
                raise ValueError(f"Expected a request for vectors, got {type(request).__name__}.")
