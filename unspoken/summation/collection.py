"""A collection: messages that are private on their own, sent in the clear and added (CAPE's second phase, `conv`).

The vectors need no hiding, since each carries all the noise that it needs. A signature binds each vector to its sender,
study and turn, so a coordinator cannot invent parties.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

import msgspec

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.adding import AddingCoordinator, AddingState
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Message, Openable, Party, Protocol, Roster, Session
from unspoken.summation.incoming import decode
from unspoken.summation.keys import SIGNATURE_BYTES, Identity, verify
from unspoken.types import Words

_FORGOTTEN = b"forgotten"


class Options(Section):
    """A collection has no options."""


class OwnMessage(Message, frozen=True, tag="collect/own"):
    """Party to coordinator: its vector, noise included."""

    session: str
    sender: int
    vector: memoryview
    signature: bytes


class PartyState(msgspec.Struct):
    submitted: bytes = b""


class CollectionParty(Party):
    def __init__(self, session: Session, roster: Roster, index: int, identity: Identity) -> None:
        if not 0 <= index < len(roster.parties):
            raise ValueError(f"Expected 0 <= index={index} < {len(roster.parties)} parties.")
        self._session, self._index, self._identity = session, index, identity
        self.state: PartyState = PartyState()

    def step(self, incoming: bytes) -> list[Envelope]:
        return []

    def submit(self, vector: Words) -> list[Envelope]:
        if self.state.submitted == _FORGOTTEN:
            raise Aborted("a party was asked for its message again after it was sent and deleted")
        if not self.state.submitted:
            # Kept as sent: two vectors with the same common noise would reveal their difference.
            packed = self._session.pack(vector)
            signature = self._identity.sign(_statement(self._session, self._index, packed))
            message = OwnMessage(self._session.label(), self._index, memoryview(packed), signature)
            self.state.submitted = msgspec.msgpack.encode(message)
        return [Envelope(COORDINATOR, self.state.submitted)]

    def forget_vector(self) -> None:
        self.state.submitted = _FORGOTTEN


class CollectionState(AddingState):
    messages: dict[int, bytes] = {}
    """Each party's message, if they are kept apart"""


class CollectionCoordinator(AddingCoordinator):
    def __init__(self, session: Session, roster: Roster, apart: bool = False) -> None:
        super().__init__(session)
        self._roster, self._apart = roster, apart
        self.state: CollectionState = CollectionState(self.state.seen, self.state.total)

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message: OwnMessage = decode(incoming, OwnMessage)
        self._check(message.session, message.sender)
        statement = _statement(self._session, message.sender, message.vector)
        verify(self._roster.parties[message.sender], statement, message.signature, f"party {message.sender}")
        self._add(message.sender, message.vector)
        if self._apart:
            self.state.messages[message.sender] = bytes(message.vector)
        return []

    def part(self) -> bytes | None:
        """A part of the total; none if messages are kept apart."""
        return None if self._apart else super().part()

    def messages(self) -> dict[int, Words]:
        """Each party's message, where they are kept apart."""
        return {sender: self._session.unpack(vector).copy() for sender, vector in self.state.messages.items()}


class Collection(Protocol):
    """Adds signed messages that need no hiding. Methods plan it; a study's [summation] cannot name it."""

    options_type = Options
    apart: ClassVar[bool] = False
    """Whether the coordinator keeps the messages apart, since some may be left out of the total later"""

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ()

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    def upload_bytes(self) -> int:
        vector, last = sizes.of_bytes(self.session.vector_bytes), sizes.of_integer(self.session.parties - 1)
        label, signature = sizes.of_text(self.session.label()), sizes.of_bytes(SIGNATURE_BYTES)
        return sizes.of_message(OwnMessage, label, last, vector, signature)

    @property
    def largest_message(self) -> int:
        """The size of a vector's message, the only one."""
        return self.upload_bytes()

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> CollectionParty:
        return CollectionParty(self.session, self.roster, index, identity)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> CollectionCoordinator:
        return CollectionCoordinator(self.session, self.roster, self.apart)


class CollectionApart(Collection):
    """The same, with the messages kept apart."""

    apart = True


def _statement(session: Session, sender: int, vector: bytes | memoryview) -> bytes:
    """The statement that a party signs: this vector is its own, for this study, sum and turn."""
    return f"collect/{session.label()}/{sender}/".encode() + hashlib.sha256(vector).digest()
