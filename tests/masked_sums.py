"""A sum by SecAgg with all its endpoints in one process, some of whose parties may be bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from streams import fixed
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Envelope, Session, address_of
from unspoken.summation.introductions import Framed
from unspoken.summation.keys import WRAPPING_BYTES, Channel, agreement_key
from unspoken.summation.secagg import Options, SecAgg
from unspoken.summation.secagg_coordinator import SecAggCoordinator
from unspoken.summation.secagg_messages import (
    FromParty,
    Masked,
)
from unspoken.summation.secagg_party import SecAggParty
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words


def session(parties: int = 7, dropouts: int = 2, length: int = 6, colluding: int = 2, **more: Any) -> Session:
    return Session("digest", "model", parties, colluding, parties - dropouts, length, 64, **more)


def simulated(kind: type[SecAgg], agreed: Session, secrets: SecretStream | None = None) -> SimulatedEndpoints[SecAgg]:
    return SimulatedEndpoints(kind(agreed, Options()), secrets or SecretStream())


Change = Callable[[int, Any], Any]
"""What a bad party does to one of its own messages: (its index, the message) to what it sends instead"""


class Run:
    """A run with an honest coordinator, and everything that it saw. `change` alters what parties send."""

    def __init__(
        self,
        protocol: SimulatedEndpoints[SecAgg],
        rows: Words,
        absent: set[int] | None = None,
        seed: str = "",
        change: Change | None = None,
    ) -> None:
        self.protocol, self.rows, self.absent, self.change = protocol, rows, absent or set(), change
        self.coordinator: SecAggCoordinator = protocol.coordinator()  # type: ignore[assignment]
        self.parties: list[SecAggParty] = [
            protocol.party(i, fixed(f"{seed}/{i}"))
            for i in range(protocol.session.parties)  # type: ignore[misc]
        ]
        self.secrets = [(party.state.cipher_secret, party.state.mask_secret) for party in self.parties]
        self.masked: dict[int, Words] = {}
        for index, party in enumerate(self.parties):
            self.send(index, party.step(b""))
        for _ in range(3):
            self.deliver(self.coordinator.advance())
        self.inboxes = [dict(party.state.inbox) for party in self.parties]
        for index, row in enumerate(rows):
            if index not in self.absent and self.parties[index].ready:
                envelopes = self.parties[index].submit(row)
                self.masked[index] = protocol.session.unpack(self.body(envelopes[0], Masked).vector)
                self.send(index, envelopes)

    def body(self, envelope: Envelope, kind: Any) -> Any:
        framed = msgspec.msgpack.decode(envelope.body, type=Framed)
        return msgspec.msgpack.decode(framed.body[WRAPPING_BYTES:], type=kind)

    def send(self, index: int, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            self.coordinator.step(self.changed(index, envelope).body)

    def changed(self, index: int, envelope: Envelope) -> Envelope:
        """The party's own message, altered by itself: rightly wrapped."""
        if self.change is None or self.coordinator.state.stage == "keys":
            return envelope
        return self.wrapped(index, self.change(index, self.body(envelope, FromParty)))

    def wrapped(self, index: int, message: Any) -> Envelope:
        label, coordinator = self.protocol.session.label(), agreement_key(self.protocol.keys.roster.coordinator)
        channel = Channel(self.secrets[index][0], coordinator, label, address_of(index), COORDINATOR)
        wrapped = channel.wrap(msgspec.msgpack.encode(message))
        return Envelope(COORDINATOR, msgspec.msgpack.encode(Framed(label, index, memoryview(wrapped))))

    def deliver(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            index = int(envelope.to.split(":")[1])
            self.send(index, self.parties[index].step(envelope.body))

    def total(self) -> Words:
        self.deliver(self.coordinator.agree())
        self.deliver(self.coordinator.finish())
        return self.coordinator.total()


def ones(parties: int = 7) -> Words:
    return np.ones((parties, 6), dtype=np.uint64)
