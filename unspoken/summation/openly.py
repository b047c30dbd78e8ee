"""Messages that are private on their own, sent in the open and added up (CAPE's second phase, and `conv`).

Nothing is hidden here: each vector carries all the noise that it needs. Signatures bind it to its sender, its study
and its turn, so a coordinator cannot make parties up.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Endpoint,
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
from unspoken.summation.keys import Identity, SimulatedIdentities, public_key, verify
from unspoken.types import Flags, Words

_FORGOTTEN = b"forgotten"


class Open(Message, frozen=True, tag="openly/open"):
    """Party to coordinator: its vector, noise included."""

    session: str
    sender: int
    vector: memoryview
    signature: bytes


class PartyState(msgspec.Struct):
    submitted: bytes = b""


class OpenParty(Party):
    def __init__(self, session: Session, index: int, identity: Identity) -> None:
        self._session, self._index, self._identity = session, index, identity
        self.state: PartyState = PartyState()

    def step(self, incoming: bytes) -> list[Envelope]:
        return []

    def submit(self, vector: Words) -> list[Envelope]:
        if self.state.submitted == _FORGOTTEN:
            raise Aborted("a party was asked for its message again after it had been sent and forgotten")
        if not self.state.submitted:
            # Kept as sent: another vector under the same common noise would reveal the difference.
            packed = self._session.pack(vector)
            signature = self._identity.sign(_statement(self._session, self._index, packed))
            message = Open(self._session.label(), self._index, memoryview(packed), signature)
            self.state.submitted = msgspec.msgpack.encode(message)
        return [Envelope(COORDINATOR, self.state.submitted)]

    def forget_vector(self) -> None:
        self.state.submitted = _FORGOTTEN


class CoordinatorState(msgspec.Struct):
    seen: np.ndarray
    total: np.ndarray


class OpenCoordinator(Coordinator):
    def __init__(self, session: Session, roster: Roster) -> None:
        self._session, self._roster = session, roster
        self.state: CoordinatorState = CoordinatorState(
            seen=np.zeros(session.parties, dtype=np.bool_), total=session.zeros()
        )

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message: Open = decode(incoming, Open)
        check_label(message.session, self._session)
        check_sender(message.sender, self._session, self.state.seen)
        statement = _statement(self._session, message.sender, message.vector)
        verify(self._roster.parties[message.sender], statement, message.signature, f"party {message.sender}")
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


class Openly(Protocol):
    """Adds signed messages that need no hiding; its parties are made up, for simulation."""

    def __init__(self, session: Session, secrets: SecretStream) -> None:
        super().__init__(session)
        self._identities = SimulatedIdentities(secrets.key(), session.parties)
        self._roster = Roster(self._identities, public_key(secrets.key()))

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ()

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    def coordinator(self) -> OpenCoordinator:
        return OpenCoordinator(self.session, self._roster)

    def helpers(self) -> dict[str, Endpoint]:
        return {}

    def party(self, index: int, secrets: SecretStream) -> OpenParty:
        return OpenParty(self.session, index, self._identities.identity(index))

    def upload_bytes(self) -> int:
        last = self.session.parties - 1
        vector = np.zeros(self.session.length, dtype=np.uint64)
        return len(OpenParty(self.session, last, self._identities.identity(last)).submit(vector)[0].body)


def _statement(session: Session, sender: int, vector: bytes | memoryview) -> bytes:
    """What a party signs: for this study, this total, this turn, this vector."""
    return f"openly/{session.label()}/{sender}/".encode() + hashlib.sha256(vector).digest()
