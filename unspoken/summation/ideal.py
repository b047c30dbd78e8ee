"""The ideal sum, for simulations only: it gives the result of a secure sum, without the security.

The coordinator sees the parties' vectors in the clear; the engine then draws the noise of the whole total at once.
"""

from __future__ import annotations

import msgspec

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.adding import AddingCoordinator
from unspoken.summation.base import COORDINATOR, Envelope, Message, Openable, Party, Protocol, Roster, Session
from unspoken.summation.incoming import decode
from unspoken.summation.keys import Identity
from unspoken.types import Words


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
    """Sends its vector in the clear, any number of times. The roster only gives the number of parties: nobody signs."""

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


class IdealCoordinator(AddingCoordinator):
    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message = decode(incoming, Clear)
        self._check(message.session, message.sender)
        self._add(message.sender, message.vector)
        return []


class Ideal(Protocol):
    """Adds in the clear."""

    options_type = Options
    reveals_contributions = True

    @property
    def opens_noise(self) -> bool:
        """True: the engine draws only as much noise for the total as is needed."""
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

    @property
    def largest_message(self) -> int:
        """The size of a vector's message, the only one."""
        return self.upload_bytes()

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> IdealParty:
        return IdealParty(self.session, self.roster, index)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> IdealCoordinator:
        return IdealCoordinator(self.session)
