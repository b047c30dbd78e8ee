"""What passes between roles: requests, and the messages of the protocol that answers one. Typed, and bounded in size.

Every request has an attempt: an identifier that was never used before, bound into all messages of the protocol that
answers it. The address on an envelope says who is meant; that a message is genuine is for the protocol to check, and
for the connection.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.methods.base import Collect, PartyRequest, Pool, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.summation.base import ATTEMPT_BYTES, Envelope, Message, Rejected, Session, decode
from unspoken.types import Floats, Integers

_HEADER = 1 << 16
"""Room for everything in a message but vectors and lists of parties."""
_FOR_EACH_PARTY = 4096
"""Room for what a message says about one party: its keys, and sealed shares of its secrets."""


Kind = Literal["sum", "vote", "collect", "prepare", "shuffle"]


class Ask(Message, frozen=True, tag="role/ask"):
    """Coordinator to party: a request, and the attempt at it."""

    attempt: bytes
    kind: Kind
    name: str
    turn: int
    numbers: bytes = b""
    """The parameters, eight bytes each."""
    indices: bytes = b""
    """Places of public records, eight bytes each."""
    only: int | None = None


class Assist(Message, frozen=True, tag="role/assist"):
    """Coordinator to helper: an attempt that it is needed for."""

    attempt: bytes
    kind: Literal["sum", "vote", "prepare"]
    name: str
    turn: int


class Carried(Message, frozen=True, tag="role/carried"):
    """Between any two: a message of the protocol that an attempt runs."""

    attempt: bytes
    body: memoryview


def ask_for(request: Request, turn: int, attempt: bytes) -> Ask:
    """The message that asks a party for something."""
    match request:
        case Sum():
            return _asked("sum", request, turn, attempt)
        case Vote():
            return _asked("vote", request, turn, attempt)
        case Collect():
            return _asked("collect", request, turn, attempt, request.only)
        case ZeroSum(name):
            return Ask(attempt, "prepare", name, turn)
        case Tokens():
            return Ask(attempt, "shuffle", "tokens", turn)
        case Pool():
            raise ValueError("Expected a request that parties answer.")


def _asked(kind: Kind, request: PartyRequest, turn: int, attempt: bytes, only: int | None = None) -> Ask:
    numbers = b"" if request.parameters is None else request.parameters.astype("<f8").tobytes()
    indices = b"" if request.indices is None else request.indices.astype("<i8").tobytes()
    return Ask(attempt, kind, request.name, turn, numbers, indices, only)


def request_of(ask: Ask) -> Request:
    """The request that a message asks for."""
    match ask.kind:
        case "prepare":
            return ZeroSum(ask.name)
        case "shuffle":
            return Tokens(ask.turn)
        case "sum":
            return Sum(ask.name, _numbers(ask), ask.turn, _indices(ask))
        case "vote":
            return Vote(ask.name, _numbers(ask), ask.turn, _indices(ask))
        case "collect":
            return Collect(ask.name, _numbers(ask), ask.turn, _indices(ask), ask.only)


def _numbers(ask: Ask) -> Floats | None:
    return _array(ask, ask.numbers, "<f8").astype(np.float64) if ask.numbers else None


def _indices(ask: Ask) -> Integers | None:
    return _array(ask, ask.indices, "<i8").astype(np.int64) if ask.indices else None


def _array(ask: Ask, content: bytes, kind: str) -> npt.NDArray[Any]:
    if len(content) % 8:
        raise Refused(f'the request for "{ask.name}" carries {len(content)} bytes, which are no list of numbers.')
    return np.frombuffer(content, dtype=kind)


def largest_ask(parameters: int) -> int:
    """The most bytes that a request with so many parameters has."""
    return _HEADER + 8 * parameters


def largest_carried(session: Session) -> int:
    """The most bytes that a message of this session has."""
    return _HEADER + session.vector_bytes + _FOR_EACH_PARTY * session.parties


def carried(envelopes: list[Envelope], attempt: bytes) -> list[Envelope]:
    """The protocol's envelopes, as messages between roles."""
    return [Envelope(to, msgspec.msgpack.encode(Carried(attempt, memoryview(body)))) for to, body in envelopes]


def unpacked(incoming: bytes, kind: type[Message] | object, largest: int) -> Message:
    """A message of this kind, or `Rejected`."""
    if len(incoming) > largest:
        raise Rejected(f"a message of {len(incoming):,} bytes came where {largest:,} are the most")
    message: Ask | Assist | Carried = decode(incoming, kind)
    if len(message.attempt) != ATTEMPT_BYTES:
        raise Rejected(f"an attempt of {len(message.attempt)} bytes came where {ATTEMPT_BYTES} were due")
    if isinstance(message, Carried) and not len(message.body):
        # To an endpoint no bytes mean: begin. That is for its role to say.
        raise Rejected("an empty message came")
    return message
