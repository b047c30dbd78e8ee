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

from unspoken.methods.base import Answer, Collect, Method, Pool, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.plan import Plan
from unspoken.methods.releases import Release
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import largest_message, name_of, protocol_for
from unspoken.roles.messages import Assist, Carried, ask_for, carried, unpacked
from unspoken.roles.totals import Totals, nothing
from unspoken.summation.base import ATTEMPT_BYTES, Aborted, Envelope, Protocol, Rejected, Roster, address_of
from unspoken.summation.base import Coordinator as SummationCoordinator
from unspoken.summation.record_shuffle import ShuffleCoordinator

Stage = Literal["setup", "vectors", "agreement", "result", "shuffle", "done"]


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
        self.stage: Stage = "setup"
        self.release: Release | None = None
        self._request: Request = Pool()
        self._attempt, self._closed = b"", 0
        self._noise = SecretStream()
        self._protocol: Protocol | None = None
        self._endpoint: SummationCoordinator | ShuffleCoordinator | None = None
        self._shuffled = 0

    def start(self) -> list[Envelope]:
        """Ask for the first thing that the method wants."""
        return self._open(next(self._conversation))

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message of a party or a helper, and say what to send. `Rejected` changes nothing."""
        largest = largest_message(self.plan, self._request, self._turn)
        message: Any = unpacked(incoming, Carried, largest)
        if self._endpoint is None or message.attempt != self._attempt:
            raise Rejected("a message of an attempt that is not under way came")
        return carried(self._endpoint.step(bytes(message.body)), self._attempt)

    def close_stage(self) -> list[Envelope]:
        """Go on with those who are there; `Aborted` if they are too few."""
        endpoint = self._endpoint
        if isinstance(endpoint, ShuffleCoordinator):
            endpoint.tokens()  # Aborted unless everyone has confirmed the list.
            self._shuffled += 1
            return self._go_on(nothing(self.plan.trust.parties))
        if endpoint is None:
            raise RuntimeError("There is no stage to close.")
        if self._closed < endpoint.setup_stages:
            self._closed += 1
            self.stage = "setup" if self._closed < endpoint.setup_stages else "vectors"
            return carried(endpoint.advance(), self._attempt)
        if self.stage == "vectors":
            self.stage = "agreement"
            return carried(endpoint.settle(), self._attempt)
        if self.stage == "agreement":
            self.stage = "result"
            return carried(endpoint.finish(), self._attempt)
        return self._go_on(self._answer(endpoint))

    @property
    def setup_stages(self) -> int:
        """How many stages of the attempt come before vectors are sent."""
        return self._endpoint.setup_stages if isinstance(self._endpoint, SummationCoordinator) else 0

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

    @property
    def _turn(self) -> int:
        return self._shuffled if isinstance(self._request, Tokens) else self.totals.turn(name_of(self._request))

    def _go_on(self, answer: Answer) -> list[Envelope]:
        try:
            request = self._conversation.send(answer)
        except StopIteration as end:
            self.release, self.stage, self._endpoint = end.value, "done", None
            return []
        return self._open(request)

    def _open(self, request: Request) -> list[Envelope]:
        """Open an attempt at a request."""
        if isinstance(request, Pool):
            raise Aborted("this method needs all records in one place: it runs in simulations of one process only")
        self._request, self._attempt, self._closed = request, os.urandom(ATTEMPT_BYTES), 0
        self._noise = self._noise_of(self._attempt, request)
        ask = msgspec.msgpack.encode(ask_for(request, self._turn, self._attempt))
        envelopes = [Envelope(address_of(party), ask) for party in self.expected()]
        if isinstance(request, Tokens):
            shuffle = self.plan.shuffle(self._turn, self._attempt).with_roster(self._roster)
            self._endpoint, self.stage = shuffle.coordinator(self._secret, SecretStream()), "shuffle"
            return envelopes
        self._protocol = protocol_for(self.plan, request, self._turn, self._attempt).with_roster(self._roster)
        endpoint = self._protocol.coordinator(self._secret, SecretStream())
        self._endpoint, self.stage = endpoint, "setup" if endpoint.setup_stages else "vectors"
        return self._assistance(request, self._protocol) + envelopes

    def _assistance(self, request: Request, protocol: Protocol) -> list[Envelope]:
        """What helpers are told of the attempt."""
        if not protocol.helper_addresses:
            return []
        kind: Literal["sum", "vote", "prepare"]
        kind = "prepare" if isinstance(request, ZeroSum) else "vote" if isinstance(request, Vote) else "sum"
        assist = msgspec.msgpack.encode(Assist(self._attempt, kind, name_of(request), self._turn))
        return [Envelope(address, assist) for address in protocol.helper_addresses]

    def _answer(self, endpoint: SummationCoordinator) -> Answer:
        match self._request:
            case Sum():
                clear = self._protocol is not None and self._protocol.reveals_contributions
                return self.totals.summed(self._request, endpoint, self._noise if clear else None)
            case Vote():
                return self.totals.voted(self._request, endpoint)
            case ZeroSum():
                return self.totals.prepared(self._request, endpoint)
            case Collect():
                return self.totals.collected(self._request, endpoint)
            case _:
                raise RuntimeError("There is nothing to answer.")
