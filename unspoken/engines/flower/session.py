"""A node's side of a study: it gets a question, processes the messages in it, and answers. Between two questions the
session is stored as bytes.

Stock SuperNodes start a process for every question. What must outlive this process is in two places: the role's state
in its store, and the progress of messages in the session. When the coordinator greets the node again, a session begins,
and the coordinator repeats what the role must see again, as after any crash. When it has said how the study has ended,
no vector leaves in this session.

Messages are taken one at a time, and the next one only when all answers to the last have arrived.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from typing import Any

import msgspec

from unspoken.engines.flower.exchanges import Asked, Begins, Hello, Joins, Packet, Taken
from unspoken.engines.network.frames import ENDING, Done, Ending, Leaving, Signatures, unpacked
from unspoken.engines.network.link import WINDOW_BYTES, Arrived, Link
from unspoken.engines.network.participant import Finished, Told, answers, checked, restrained
from unspoken.engines.network.sign_in import PROCESS_BYTES
from unspoken.privacy.ledger import LedgerError
from unspoken.roles.charging import LimitReached
from unspoken.roles.role import Role
from unspoken.roles.store import StoreError
from unspoken.summation.base import Rejected

_MOST_AHEAD = 4 * WINDOW_BYTES
"""The most bytes of messages that may wait for an answer to arrive. A coordinator that sends more is ignored"""


class _State(msgspec.Struct):
    """All that a session remembers."""

    process: bytes = b""
    link: bytes = b""
    arrived: list[tuple[int, str, bytes]] = []
    """Messages that were not taken yet"""
    taken: int = -1
    answered: int = -1
    """The last message that was taken, and the last that was answered"""
    sent: int = 0
    ending: bytes = b""
    """How the study has ended, as it came"""
    signature: bytes | None = None
    disagrees: str = ""


class Session:
    """One participant's conversation with the coordinator."""

    def __init__(self, role: Role[Any], largest_ending: int, told: Told, kept: bytes = b"") -> None:
        """`kept` is what `dump` gave after the last question; without it, a session begins."""
        self._role, self._told = role, restrained(told)
        self._state = msgspec.msgpack.decode(kept, type=_State) if kept else _State(os.urandom(PROCESS_BYTES))
        self._link = Link(lambda: max(role.largest, largest_ending))
        if self._state.link:
            self._link.load(self._state.link)
        self._arrived = deque(Arrived(*each) for each in self._state.arrived)
        self.finished: Finished | None = None
        """How the study has ended, when the last word has come"""

    @property
    def signed(self) -> Finished | None:
        """The result that was signed here. The last word, with the others' signatures, may still come, or be lost."""
        return self._result if self._state.signature else None

    @property
    def sent(self) -> int:
        """Bytes of messages."""
        return self._state.sent

    def dump(self) -> bytes:
        """The session, to be gone on with."""
        arrived = [(number, peer, body) for number, peer, body in self._arrived]
        self._state.link, self._state.arrived = self._link.dump(), arrived
        return msgspec.msgpack.encode(self._state)

    def answer(self, asked: Asked) -> Joins | Taken | Begins:
        """Take what came, and say what follows from it.

        `LimitReached` if the ledger does not allow to go on, and `StoreError`, `LedgerError` or `OSError` if something
        cannot be kept: then the study goes on without this participant (`leaving`).
        """
        if isinstance(asked, Hello):
            return Joins(self._state.process)
        if asked.process != self._state.process:
            return Begins()
        if self._state.signature is not None:
            self._role.leave()
        try:
            self._read(asked)
        except Rejected as reason:
            self._told.line(f"the session is ended: {reason}")
            return Begins()
        while self._arrived and self._link.is_empty:
            self._one(self._arrived.popleft())
        pieces = tuple(self._link.pieces())
        under_way = sum(len(piece.part) for piece in pieces)
        more = bool(self._arrived) or self._link.left > under_way
        done = Done(self._state.taken, self._state.answered)
        return Taken(self._link.expects, pieces, done, more, self._state.signature)

    def _read(self, packet: Packet) -> None:
        """Put pieces together. Those that have come before are skipped: their answer was lost."""
        self._link.resume(packet.expects)
        for piece in packet.pieces:
            if (piece.number, piece.offset) < self._link.expects:
                continue
            _, arrived = self._link.take(piece)
            if arrived is not None:
                self._arrived.append(arrived)
        if sum(len(arrived.body) for arrived in self._arrived) > _MOST_AHEAD + self._role.largest:
            raise Rejected("more comes than was acknowledged")

    def _one(self, arrived: Arrived) -> None:
        """Take one message."""
        state = self._state
        state.taken = arrived.number
        if arrived.peer == ENDING:
            self._end(arrived.body)
            return
        envelopes = answers(self._role, arrived, self._told)
        for to, body in envelopes:
            state.sent += len(body)
            self._link.put(to, body)
        if envelopes:
            state.answered = arrived.number

    def _end(self, body: bytes) -> None:
        """The study is over: sign its certificate, then wait for all signatures."""
        said: Ending | Signatures = unpacked(body, Ending | Signatures)
        state = self._state
        # Whatever the certificate says: one of another engine is refused before it is looked at as a whole.
        self._role.leave()
        if isinstance(said, Signatures):
            if (result := self._result) is not None:
                self.finished = replace(result, signatures=said.signatures)
        elif not said.certificate:
            # A result that was signed stays one.
            self.finished = self._result if state.signature else Finished(said)
            state.signature = state.signature or b""
        elif state.signature and said.certificate != self._ending.certificate:
            self._told.line("another certificate came after one was signed, and is not signed")
        else:
            result = checked(said, self._told)
            state.ending, state.signature, state.disagrees = body, result.signature, result.disagrees

    @property
    def _ending(self) -> Ending:
        return unpacked(self._state.ending, Ending)

    @property
    def _result(self) -> Finished | None:
        """The result that came, and what this participant makes of it."""
        if not self._state.ending:
            return None
        return Finished(self._ending, self._state.signature or b"", self._state.disagrees)


KEPT_BACK = (LimitReached, StoreError, LedgerError, OSError)
"""What keeps a participant from going on"""


def leaving(error: Exception) -> Leaving:
    """What the coordinator is told if a participant cannot go on: only whether its ledger or its disk is the reason."""
    return Leaving("ledger" if isinstance(error, LimitReached) else "disk")
