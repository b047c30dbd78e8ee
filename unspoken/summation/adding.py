"""A coordinator that adds the parties' vectors as they come, for protocols that send vectors in the clear."""

from __future__ import annotations

import msgspec
import numpy as np

from unspoken.summation.base import Coordinator, Envelope, Message, Rejected, Session
from unspoken.summation.incoming import check_label, check_sender, check_survivors, decode
from unspoken.types import Flags, Words


class Part(Message, frozen=True, tag="adding/part"):
    """The sum of some parties' vectors."""

    session: str
    senders: list[int]
    total: memoryview


class AddingState(msgspec.Struct):
    seen: np.ndarray
    total: np.ndarray


class AddingCoordinator(Coordinator):
    """Adds vectors. A subclass says how a vector stands in a message."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.state: AddingState = AddingState(np.zeros(session.parties, dtype=np.bool_), session.zeros())

    def part(self) -> bytes | None:
        senders = np.flatnonzero(self.state.seen).tolist()
        total = memoryview(self._session.pack(self.state.total))
        return msgspec.msgpack.encode(Part(self._session.label(), senders, total))

    def absorb(self, part: bytes) -> None:
        found: Part = decode(part, Part)
        check_label(found.session, self._session)
        for sender in found.senders:
            check_sender(sender, self._session, self.state.seen)
        if len(set(found.senders)) != len(found.senders):
            raise Rejected("a party is twice in a part of the total")
        self.state.total += self._session.unpack(found.total)
        self.state.seen[found.senders] = True

    def finish(self) -> list[Envelope]:
        check_survivors(int(self.state.seen.sum()), self._session)
        return []

    def survivors(self) -> Flags:
        return self.state.seen

    def total(self) -> Words:
        return self._session.reduce(self.state.total)

    def _check(self, label: str, sender: int) -> None:
        """Refuse a message of another sum, from a stranger, or a second one from the same party."""
        check_label(label, self._session)
        check_sender(sender, self._session, self.state.seen)

    def _add(self, sender: int, vector: memoryview) -> None:
        self.state.total += self._session.unpack(vector)
        self.state.seen[sender] = True
