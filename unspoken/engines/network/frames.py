"""The frames of a connection. Each is one WebSocket message, of at most a piece and a little more.

A message between roles travels in pieces with acknowledged offsets, so that a large one neither times out nor has to
begin again when the connection is cut.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from unspoken.summation.base import Message, Rejected
from unspoken.summation.incoming import decode

PIECE_BYTES = 1 << 18
"""The most of a message that one frame carries"""
FRAME_BYTES = PIECE_BYTES + 1024
"""The largest frame"""
SIGN_IN_BYTES = 2048
"""The largest frame before the other side has proved who it is"""
MOST_WAITING = 1 << 16
"""The most small frames that may wait to be sent"""
MOST_SECONDS = 1e12
"""The most that can be left of a stage"""
MOST_COUNTED = 1 << 31
"""The most participants, rounds and attempts that anybody is told of"""
MOST_BYTES = 1 << 60
"""The most bytes that can have been moved"""
ADDRESS_LENGTH = 64
"""The most characters of a participant's address"""
WIRE_VERSION = 1
"""Raised whenever a change keeps versions from understanding each other. Never changed, so that a mismatch can always
be reported: the tags of `Challenge`, `Proof` and `Denied`, the first two fields of `Challenge` and `Proof`, and that
`Denied` is one text"""


class Challenge(Message, frozen=True, tag="net/challenge"):
    """Server to client, first of all."""

    wire: int
    version: str
    study: str
    """The digest of the study that is served"""
    nonce: bytes


class Proof(Message, frozen=True, tag="net/proof"):
    """Client to server: who it is. The signature covers both nonces and the study."""

    wire: int
    version: str
    study: str
    identity: bytes
    nonce: bytes
    process: bytes
    """Drawn when the client's process began: after a restart it is another one"""
    expects: tuple[int, int]
    """The number of the next message that it expects, and how many bytes of it are there"""
    signature: bytes


class Accepted(Message, frozen=True, tag="net/accepted"):
    """Server to client: the coordinator's own proof, and where the client is to go on."""

    process: bytes
    expects: tuple[int, int]
    signature: bytes
    plan: bytes = b""
    """The coordinator's plan as JSON, to be compared with one's own; nothing if it is larger than a piece"""


class Denied(Message, frozen=True, tag="net/denied"):
    """Server to client: no connection, and why."""

    reason: str


class Piece(Message, frozen=True, tag="net/piece"):
    """A part of a message. The server names the sender, the client the address."""

    number: int
    peer: str
    size: int
    offset: int
    part: memoryview


class Got(Message, frozen=True, tag="net/got"):
    """So many bytes of a message have arrived."""

    number: int
    offset: int


class Done(Message, frozen=True, tag="net/done"):
    """Client to server: messages were taken, and all answers to them have arrived."""

    number: int
    """The last one that was taken"""
    answered: int
    """The last one that was answered; −1: none"""


class News(Message, frozen=True, tag="net/news"):
    """Server to client, for people: what is going on."""

    stage: str
    present: int
    expected: int
    seconds: float
    """Until the stage is closed at the latest"""
    absent: tuple[str, ...] = ()
    """Addresses of some who are not there"""
    round: int = 0
    rounds: int = 0
    """How often parties are asked for something, in all"""
    attempt: int = 1
    """The number of the try at this round's total"""
    survivors: int = 0
    """Parties that have not dropped out of this attempt when the last stage ended"""
    bytes: int = 0
    """Of messages, when the last stage ended"""

    def __post_init__(self) -> None:
        if not abs(self.seconds) <= MOST_SECONDS:
            raise ValueError(f"{self.seconds} seconds are left, which cannot be")
        numbers = (self.present, self.expected, self.round, self.rounds, self.attempt, self.survivors, self.bytes)
        is_odd = self.present > self.expected or self.survivors > self.expected or self.round > self.rounds
        if is_odd or min(numbers) < 0 or max(numbers[:-1]) > MOST_COUNTED or self.bytes > MOST_BYTES:
            raise ValueError("the numbers of how far the study is cannot be")


class Ending(Message, frozen=True, tag="net/ending"):
    """Server to client, in pieces: the study is over, with this result, or without one for this reason."""

    certificate: bytes = b""
    reason: str = ""
    signature: bytes = b""
    """The coordinator's, of the certificate"""
    name: str = ""
    """The end of the released file's name, such as model.skops; nothing for helpers, who need no model"""
    file: bytes = b""


class Signatures(Message, frozen=True, tag="net/signatures"):
    """Server to client, in pieces: all signatures of the certificate, by addresses."""

    signatures: dict[str, bytes]


class Countersigned(Message, frozen=True, tag="net/countersigned"):
    """Client to server: its signature of the certificate, or empty if it declines. The reason is not sent, as it may
    mention the client's own files."""

    signature: bytes


class Leaving(Message, frozen=True, tag="net/leaving"):
    """Client to server: it takes no further part. The ledger's exact message is not sent."""

    why: Literal["ledger", "disk", "plan"]


ENDING = "ending"
"""The sender of what is said when a study is over: `Ending` and `Signatures`"""
Kind = TypeVar("Kind", bound=Message)


def socket_settings(ping_seconds: float, sign_in_seconds: float) -> dict[str, Any]:
    """The settings of a WebSocket, the same at both ends."""
    return {
        "max_size": FRAME_BYTES,
        "max_queue": 1,
        "compression": None,
        "ping_interval": ping_seconds,
        "ping_timeout": 2 * ping_seconds,
        "close_timeout": 1.0,
        "open_timeout": sign_in_seconds,
    }


def version_in(content: object, tag: str) -> tuple[int, str] | None:
    """The versions on the wire and of the package in a first frame of any version; None if it is no such frame."""
    try:
        found = msgspec.msgpack.decode(content, strict=True) if isinstance(content, bytes) else None
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return None
    match found:
        case [str(given), int(wire), str(version), *_] if given == tag:
            return wire, version
    return None


def packed(frame: Message) -> bytes:
    return msgspec.msgpack.encode(frame)


def unpacked(content: object, kind: type[Kind] | object) -> Kind:
    """Decode a frame of this kind; `Rejected` if it is not one."""
    if not isinstance(content, bytes):
        raise Rejected("text came where bytes were due")
    return decode(content, kind)  # type: ignore[no-any-return]
