"""A shuffle of tokens with all its endpoints in one process: for tests and for adversaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from streams import fixed
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Envelope
from unspoken.summation.mixnet import onion_bytes, split
from unspoken.summation.record_shuffle import Options, RecordShuffle, ShuffleCoordinator, ShuffleParty
from unspoken.summation.shuffle_course import (
    Announce,
    Confirm,
    Publish,
    ShuffleEndpoint,
    ShuffleSession,
    Signed,
    Submit,
)
from unspoken.summation.simulated_keys import SimulatedKeys

COUNTS = (3, 0, 4, 2)
Tamper = Callable[[list[bytes], "Run"], list[bytes]]


class Run:
    """One run, with everything that the coordinator saw, and with what parties raised."""

    def __init__(self, counts: Sequence[int] = COUNTS, name: str = "run", study: str = "study", **facts: Any) -> None:
        self.keys = SimulatedKeys(fixed(f"{name}/identities"), len(counts))
        session = ShuffleSession(study, "list", len(counts), **facts)
        self.protocol = RecordShuffle(session, Options(), self.keys.roster)
        self.name, self.counts = name, tuple(counts)
        self.coordinator = self.new_coordinator()
        self.parties = [self.new_party(index, fixed(f"{name}/{index}")) for index in range(len(counts))]
        self.seen: list[Signed] = []
        self.aborted: dict[str, str] = {}
        self.queue: deque[Envelope] = deque()

    def new_coordinator(self) -> ShuffleCoordinator:
        return self.protocol.coordinator(self.keys.coordinator, SecretStream())

    def new_party(self, index: int, secrets: SecretStream) -> ShuffleParty:
        return self.protocol.party(index, self.keys.identity(index), secrets, self.counts[index])

    def endpoint(self, address: str) -> ShuffleEndpoint:
        return self.coordinator if address == COORDINATOR else self.parties[int(address.split(":")[1])]

    def begin(self) -> None:
        for party in self.parties:
            self.queue.extend(party.step(b""))

    def deliver(self) -> Envelope:
        """One message; who has given up gets no more."""
        envelope = self.queue.popleft()
        if envelope.to == COORDINATOR:
            self.seen.append(opened(envelope.body))
        if envelope.to not in self.aborted:
            try:
                self.queue.extend(self.endpoint(envelope.to).step(envelope.body))
            except Aborted as error:
                self.aborted[envelope.to] = str(error)
        return envelope

    def finish(self) -> Run:
        if not self.queue:
            self.begin()
        while self.queue:
            self.deliver()
        return self

    def lists(self) -> list[list[bytes]]:
        """All lists, from the first to the tokens."""
        submitted = sorted((m for m in self.seen if isinstance(m, Submit)), key=lambda message: message.sender)
        published = [message.body for message in self.seen if isinstance(message, Publish)]
        bodies = [b"".join(message.body for message in submitted), *published]
        return [[bytes(o) for o in split(body, len(self.counts) - layer)] for layer, body in enumerate(bodies)]


def opened(body: bytes) -> Signed:
    return msgspec.msgpack.decode(body, type=Announce | Submit | Publish | Confirm)


def ordered(tokens: np.ndarray) -> list[bytes]:
    return sorted(row.tobytes() for row in tokens)


def assert_nobody_accepts(run: Run) -> None:
    assert not run.coordinator.complete
    with pytest.raises(Aborted):
        run.coordinator.tokens()
    for party in run.parties:
        assert not party.complete
        with pytest.raises(Aborted):
            party.all_tokens()


def malicious(run: Run, index: int, tamper: Tamper, kind: type[Signed] = Publish) -> Run:
    """A run in which one party publishes something else than it should, signed as if it were right, and goes on."""
    party = run.parties[index]
    honest = party._signed
    party._look_at = lambda found: None

    def signed(of: type[Signed], body: bytes) -> Envelope:
        if of is kind:
            layers = len(run.counts) - (index + 1 if kind is Publish else 0)
            size = onion_bytes(layers)
            body = b"".join(tamper([body[start : start + size] for start in range(0, len(body), size)], run))
        return honest(of, body)

    party._signed = signed
    return run.finish()
