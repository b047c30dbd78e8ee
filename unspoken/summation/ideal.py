"""Adding in the clear: what a secure sum computes, without the security. For simulations only.

The parties' vectors reach the coordinator as they are; the engine then draws the noise of the whole total at once.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation.base import (
    COORDINATOR,
    Coordinator,
    Endpoint,
    Envelope,
    Message,
    Openable,
    Party,
    Protocol,
    Session,
    check_label,
    check_sender,
    check_survivors,
    decode,
)
from unspoken.types import Flags, Words


class Options(Section):
    """The ideal sum has no options."""


class Clear(Message, frozen=True, tag="ideal/clear"):
    session: str
    sender: int
    vector: memoryview


class PartyState(msgspec.Struct):
    sender: int


class IdealParty(Party):
    def __init__(self, session: Session, index: int) -> None:
        self._session = session
        self.state: PartyState = PartyState(index)

    def step(self, incoming: bytes) -> list[Envelope]:
        return []

    def submit(self, vector: Words) -> list[Envelope]:
        message = Clear(self._session.label(), self.state.sender, memoryview(self._session.pack(vector)))
        return [Envelope(COORDINATOR, msgspec.msgpack.encode(message))]


class CoordinatorState(msgspec.Struct):
    seen: np.ndarray
    total: np.ndarray


class IdealCoordinator(Coordinator):
    def __init__(self, session: Session) -> None:
        self._session = session
        self.state: CoordinatorState = CoordinatorState(
            seen=np.zeros(session.parties, dtype=np.bool_), total=session.zeros()
        )

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message = decode(incoming, Clear)
        check_label(message.session, self._session)
        check_sender(message.sender, self._session, self.state.seen)
        self.state.total += self._session.unpack(message.vector)
        self.state.seen[message.sender] = True
        return []

    def finish(self) -> list[Envelope]:
        check_survivors(int(self.state.seen.sum()), self._session)
        return []

    def survivors(self) -> Flags:
        return self.state.seen

    def total(self) -> Words:
        return self._session.reduce(self.state.total)


class Ideal(Protocol):
    """Adds in the clear."""

    reveals_contributions = True
    opens_noise = True

    def __init__(self, session: Session, options: Options, secrets: SecretStream) -> None:
        super().__init__(session)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            'the coordinator forgets what each party sent, because the summation "ideal" adds in the clear and only '
            "simulates a secure sum",
        )

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    def coordinator(self) -> IdealCoordinator:
        return IdealCoordinator(self.session)

    def helpers(self) -> dict[str, Endpoint]:
        return {}

    def party(self, index: int, secrets: SecretStream) -> IdealParty:
        return IdealParty(self.session, index)

    def upload_bytes(self) -> int:
        vector = np.zeros(self.session.length, dtype=np.uint64)
        return len(IdealParty(self.session, self.session.parties - 1).submit(vector)[0].body)
