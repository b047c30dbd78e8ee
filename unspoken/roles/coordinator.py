"""The coordinator: drives the method, opens an attempt for each request, and makes totals and in the end the release.

It says what to send and which stage it is in. When a stage is over is for the engine to say, by `close_stage`: when
everyone has answered, or when time is up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np

from unspoken.methods.base import Answer, Collect, Method, Pool, Request, Sum, Tokens, Total, Vote, ZeroSum, release_of
from unspoken.methods.plan import Plan
from unspoken.methods.releases import Release
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import largest_message, name_of, protocol_for
from unspoken.roles.messages import Assist, Carried, ask_for, carried, unpacked
from unspoken.roles.stages import ShufflingStages, Stage, Stages, SummingStages
from unspoken.roles.totals import Totals
from unspoken.summation.base import ATTEMPT_BYTES, Aborted, Envelope, Protocol, Rejected, Roster, address_of
from unspoken.summation.base import Coordinator as SummationCoordinator


class Coordinator:
    """The coordinator of a study."""

    def __init__(
        self,
        method: Method,
        secret: bytes,
        roster: Roster,
        *,
        plan: Plan | None = None,
        noise_of: Callable[[bytes, Request], SecretStream] | None = None,
    ) -> None:
        """`secret` is the coordinator's X25519 key. `noise_of` gives the stream of an attempt's noise where the total
        is made in the clear (simulations): the operating system's randomness, unless a test injects another."""
        self._method, self._secret, self._roster = method, secret, roster
        self.plan = plan or method.plan()
        self._noise_of = noise_of or (lambda attempt, request: SecretStream())
        self._conversation = method.coordinate(self.plan)
        self.totals = Totals(self.plan)
        self.release: Release | None = None
        self._request: Request = Pool()
        self._attempt, self._largest, self._shuffled = b"", 0, 0
        self._stages: Stages | None = None

    def start(self) -> list[Envelope]:
        """Ask for the first thing that the method wants."""
        return self._open(next(self._conversation))

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message of a party or a helper, and say what to send. `Rejected` changes nothing."""
        if self._stages is None:
            raise Rejected("a message came, and nothing is asked for")
        message: Any = unpacked(incoming, Carried, self._largest)
        if message.attempt != self._attempt:
            raise Rejected("a message of an attempt that is not under way came")
        return carried(self._stages.endpoint.step(bytes(message.body)), self._attempt)

    def close_stage(self) -> list[Envelope]:
        """Go on with those who are there; `Aborted` if they are too few."""
        if self._stages is None:
            raise RuntimeError("There is no stage to close.")
        envelopes = carried(self._stages.close(), self._attempt)
        return self._go_on(self._stages.answer()) if self._stages.stage == "done" else envelopes

    @property
    def stage(self) -> Stage:
        """The stage that the engine is to close next; "done" when there is a release."""
        if self._stages is None:
            return "setup" if self.release is None else "done"
        return self._stages.stage

    @property
    def setup_stages(self) -> int:
        """How many stages of the attempt come before vectors are sent."""
        return 0 if self._stages is None else self._stages.setup_stages

    @property
    def request(self) -> Request:
        """What is asked for now."""
        return self._request

    def expected(self) -> list[int]:
        """The parties that are asked in this attempt."""
        request = self._request
        if isinstance(request, Collect):
            if request.only is not None:
                return [request.only]
            if common := self.totals.common.get(request.name):
                return [int(party) for party in np.flatnonzero(common.prepared)]
        return list(range(self.plan.trust.parties))

    def _go_on(self, answer: Answer) -> list[Envelope]:
        self._shuffled += isinstance(self._request, Tokens)
        try:
            request = self._conversation.send(answer)
        except StopIteration as end:
            self.release, self._stages = release_of(self._method, end), None
            return []
        return self._open(request)

    def _open(self, request: Request) -> list[Envelope]:
        """Open an attempt at a request."""
        if isinstance(request, Pool):
            raise Aborted("this method needs all records in one place: it runs in simulations of one process only")
        self._request, self._attempt = request, os.urandom(ATTEMPT_BYTES)
        turn = self._shuffled if isinstance(request, Tokens) else self.totals.turn(name_of(request))
        self._largest = largest_message(self.plan, request, turn)
        noise = self._noise_of(self._attempt, request)
        ask = msgspec.msgpack.encode(ask_for(request, turn, self._attempt))
        envelopes = [Envelope(address_of(party), ask) for party in self.expected()]
        if isinstance(request, Tokens):
            shuffle = self.plan.shuffle(turn, self._attempt).with_roster(self._roster)
            endpoint = shuffle.coordinator(self._secret, SecretStream())
            self._stages = ShufflingStages(endpoint, self.plan.trust.parties)
            return envelopes
        protocol = protocol_for(self.plan, request, turn, self._attempt).with_roster(self._roster)
        answer = self._answering(request, noise if protocol.reveals_contributions else None)
        self._stages = SummingStages(protocol.coordinator(self._secret, SecretStream()), answer)
        return self._assistance(request, turn, protocol) + envelopes

    def _assistance(self, request: Request, turn: int, protocol: Protocol) -> list[Envelope]:
        """What helpers are told of the attempt."""
        if not protocol.helper_addresses:
            return []
        kind: Literal["sum", "vote", "prepare"]
        kind = "prepare" if isinstance(request, ZeroSum) else "vote" if isinstance(request, Vote) else "sum"
        assist = msgspec.msgpack.encode(Assist(self._attempt, kind, name_of(request), turn))
        return [Envelope(address, assist) for address in protocol.helper_addresses]

    def _answering(self, request: Request, noise: SecretStream | None) -> Callable[[SummationCoordinator], Total]:
        """What makes the answer of a sum that has ended. `noise`: all of it is drawn here."""
        match request:
            case Sum():
                return lambda endpoint: self.totals.summed(request, endpoint, noise)
            case Vote():
                return lambda endpoint: self.totals.voted(request, endpoint)
            case ZeroSum():
                return lambda endpoint: self.totals.prepared(request, endpoint)
            case Collect():
                return lambda endpoint: self.totals.collected(request, endpoint)
            case _:
                raise ValueError(f"Expected a request for vectors, got {type(request).__name__}.")
