"""Adding in the clear: what a secure sum computes, without the security. For simulations only.

The parties' vectors reach the coordinator as they are; the engine then draws the noise of the whole total at once.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.base import (
    COORDINATOR,
    Coordinator,
    Envelope,
    Message,
    Openable,
    Party,
    Protocol,
    Roster,
    Session,
    check_label,
    check_sender,
    check_survivors,
    decode,
)
from unspoken.summation.keys import Identity
from unspoken.types import Flags, Words


class Options(Section):
    """The ideal sum has no options."""


class Clear(Message, frozen=True, tag="ideal/clear"):
    """Party to coordinator: its vector, for everyone to read."""

    session: str
    sender: int
    vector: memoryview


class PartyState(msgspec.Struct):
    sender: int


class IdealParty(Party):
    """Sends its vector as it is. The roster only says how many parties there are: nobody signs."""

    def __init__(self, session: Session, roster: Roster, index: int) -> None:
        if not 0 <= index < len(roster.parties):
            raise ValueError(f"Expected 0 <= index={index} < {len(roster.parties)} parties.")
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
    def __init__(self, session: Session, roster: Roster) -> None:
        self._session = session
        self.state: CoordinatorState = CoordinatorState(
            seen=np.zeros(len(roster.parties), dtype=np.bool_), total=session.zeros()
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

    options_type = Options
    reveals_contributions = True

    @property
    def opens_noise(self) -> bool:
        """The engine draws the noise of the total, and no more of it than is needed."""
        return True

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            'the coordinator forgets what each party sent, because the summation "ideal" adds in the clear and only '
            "simulates a secure sum",
        )

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    def upload_bytes(self) -> int:
        vector, last = sizes.of_bytes(self.session.vector_bytes), sizes.of_integer(self.session.parties - 1)
        return sizes.of_message(Clear, sizes.of_text(self.session.label()), last, vector)

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> IdealParty:
        return IdealParty(self.session, self.roster, index)

    def coordinator(self, secret: bytes, secrets: SecretStream) -> IdealCoordinator:
        return IdealCoordinator(self.session, self.roster)
