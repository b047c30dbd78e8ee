"""What the coordinator asks a node, and what the node answers: bytes, signed by keys of the study's roster.

Flower carries one message to a node and one back. Whoever runs Flower's SuperLink need not be trusted, and need not be
the coordinator: a node accepts only what the roster's coordinator has signed for it, and each answer is bound to one
question. Messages between roles travel in pieces (`network.link`), with at most one window under way in each direction,
so a large message takes several exchanges.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from importlib.metadata import version
from typing import Any

from unspoken.engines.network.frames import Done, Leaving, Piece, packed, unpacked, version_in
from unspoken.engines.network.sign_in import NONCE_BYTES, SignInRefused, series
from unspoken.errors import printable
from unspoken.summation.base import Message, Roster, address_of
from unspoken.summation.keys import Identity, is_signed

WIRE_VERSION = 1
"""Raised whenever a change keeps versions from understanding each other. Never changed, so that a mismatch can always
be reported: the tag and the first two fields of `Question`, and the tag and text of `Declines`"""


class Hello(Message, frozen=True, tag="flower/hello"):
    """Coordinator to node: who is there?"""

    plan: bytes = b""
    """The coordinator's plan as JSON, to be compared with one's own; nothing if it is larger than a piece"""


class Packet(Message, frozen=True, tag="flower/packet"):
    """Coordinator to node: messages, in pieces."""

    process: bytes
    """The node's session that they belong to"""
    expects: tuple[int, int]
    """The number of the next message that is expected, and how many bytes of it are there"""
    pieces: tuple[Piece, ...]


class Question(Message, frozen=True, tag="flower/question"):
    """The coordinator's message, on the wire."""

    wire: int
    version: str
    study: str
    """The digest of the study"""
    nonce: bytes
    key: bytes
    """The public key of the receiver; empty if it is for any node"""
    body: memoryview
    signature: bytes


class Joins(Message, frozen=True, tag="flower/joins"):
    """Node to coordinator: it takes part. Its session begins, with nothing sent or received."""

    process: bytes


class Taken(Message, frozen=True, tag="flower/taken"):
    """Node to coordinator: how far it is, and its own messages, in pieces."""

    expects: tuple[int, int]
    pieces: tuple[Piece, ...]
    done: Done
    """Which messages need not be sent again, once all these pieces have arrived"""
    more: bool
    """Whether it has more to say or to do than this"""
    signature: bytes | None = None
    """Its signature of the certificate, or nothing if it declines, once it has one"""


class Begins(Message, frozen=True, tag="flower/begins"):
    """Node to coordinator: it does not know this session, and must be greeted again."""


class SignedAnswer(Message, frozen=True, tag="flower/answer"):
    """The node's message, on the wire: the answer to a `Question`."""

    key: bytes
    body: memoryview
    signature: bytes


class Declines(Message, frozen=True, tag="flower/declines"):
    """Node to coordinator, unsigned: the node takes no part, for a reason that anyone may know."""

    reason: str


Asked = Hello | Packet
Answered = Joins | Taken | Begins | Leaving


def _statement(side: str, study: str, nonce: bytes, keys: tuple[bytes, bytes], body: bytes | memoryview) -> bytes:
    parts = (b"unspoken-1/flower", side.encode(), study.encode(), nonce, *keys, hashlib.sha256(body).digest())
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class AskingSide:
    """The coordinator's side: makes questions, and reads the answers to them."""

    def __init__(self, study: str, identity: Identity, roster: Roster, helper_addresses: list[str]) -> None:
        self._study, self._identity = study, identity
        self._addresses = {bytes(key): address_of(index) for index, key in enumerate(roster.parties)}
        self._addresses |= {bytes(key): to for key, to in zip(roster.helpers, helper_addresses, strict=False)}
        self._keys = {address: key for key, address in self._addresses.items()}

    def question(self, asked: Asked, to: str = "") -> tuple[bytes, bytes]:
        """The bytes to send, and the nonce that the answer belongs to."""
        nonce, body, key = os.urandom(NONCE_BYTES), packed(asked), self._keys.get(to, b"")
        signature = self._identity.sign(_statement("question", self._study, nonce, self._pair(key), body))
        made = Question(WIRE_VERSION, version("unspoken"), self._study, nonce, key, memoryview(body), signature)
        return packed(made), nonce

    def answer(self, content: bytes, nonce: bytes) -> tuple[str, Answered]:
        """The sender of an answer and its content; `SignInRefused` if the sender is not in the roster, or declines."""
        given: Any = unpacked(content, SignedAnswer | Declines)
        if isinstance(given, Declines):
            raise SignInRefused(printable(given.reason, 400))
        address = self._addresses.get(given.key)
        if address is None:
            raise SignInRefused("its identity is not in the study's roster")
        said = _statement("answer", self._study, nonce, self._pair(given.key), given.body)
        if not is_signed(given.key, said, given.signature):
            raise SignInRefused("its signature does not match the identity that it claims")
        return address, unpacked(bytes(given.body), Joins | Taken | Begins | Leaving)

    def _pair(self, key: bytes) -> tuple[bytes, bytes]:
        return self._identity.public, key


class AnsweringSide:
    """A node's side: reads questions, and makes the answer to the one that was read last."""

    def __init__(self, study: str, identity: Identity, roster: Roster) -> None:
        self._study, self._identity, self._coordinator = study, identity, roster.coordinator
        self._nonce = b""
        self.theirs = ""
        """The coordinator's version"""

    def read(self, content: bytes) -> Asked:
        """What is asked; `SignInRefused` with a reason that may be told to anyone if it is not to be answered."""
        wire, theirs = version_in(content, "flower/question") or (WIRE_VERSION, "")
        if wire != WIRE_VERSION:
            raise SignInRefused(
                f"it has unspoken {version('unspoken')} and speaks version {WIRE_VERSION} on the wire; the coordinator "
                f"has unspoken {printable(theirs, 40)} and speaks {wire}. All need the same version"
            )
        if theirs and series(theirs) != series(version("unspoken")):
            raise SignInRefused(
                f"it has unspoken {version('unspoken')}, and the coordinator has {printable(theirs, 40)}, which may "
                "promise something else for the same study. All need the same version"
            )
        question: Question = unpacked(content, Question)
        if not hmac.compare_digest(question.study.encode(), self._study.encode()):
            raise SignInRefused("its copy of the study differs from the coordinator's; all need the same file")
        pair = self._coordinator, question.key
        said = _statement("question", self._study, question.nonce, pair, question.body)
        if len(question.nonce) != NONCE_BYTES or not is_signed(self._coordinator, said, question.signature):
            raise SignInRefused("whoever asks does not have the coordinator's key of the study's roster")
        if question.key not in (b"", self._identity.public):
            raise SignInRefused("the question is for somebody else")
        asked: Asked = unpacked(bytes(question.body), Hello | Packet)
        if isinstance(asked, Packet) and not question.key:
            raise SignInRefused("the question is for nobody")
        self._nonce, self.theirs = question.nonce, question.version
        return asked

    def answer(self, answered: Answered) -> bytes:
        """The bytes that answer the question."""
        body, mine = packed(answered), self._identity.public
        signature = self._identity.sign(_statement("answer", self._study, self._nonce, (self._coordinator, mine), body))
        return packed(SignedAnswer(mine, memoryview(body), signature))
