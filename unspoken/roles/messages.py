"""The messages between roles: requests, and the messages of the protocols that answer them. Typed, and bounded in size.

Every request belongs to an attempt: an identifier that was never used before, bound into all messages of the protocol
that answers the request. The address on an envelope only says for whom a message is. Whether it is genuine is checked
by the protocol and by the connection.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.methods.base import Cancel, Collect, PartyRequest, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.summation import sizes
from unspoken.summation.base import ATTEMPT_BYTES, Envelope, Message, Rejected
from unspoken.summation.incoming import decode
from unspoken.types import Floats, Integers

_INTEGER = sizes.of_integer((1 << 64) - 1)
"""The size of the largest integer"""

Kind = Literal["sum", "vote", "collect", "prepare", "cancel", "shuffle"]
_REQUESTS: dict[Kind, type[Any]] = {
    "sum": Sum,
    "vote": Vote,
    "collect": Collect,
    "prepare": ZeroSum,
    "cancel": Cancel,
    "shuffle": Tokens,
}


class Ask(Message, frozen=True, tag="role/ask"):
    """Coordinator to party: a request, and the attempt at it."""

    attempt: bytes
    kind: Kind
    name: str
    turn: int
    numbers: bytes = b""
    """The parameters, eight bytes each."""
    indices: bytes = b""
    """Indices of public records, eight bytes each."""
    only: int | None = None


class Assist(Message, frozen=True, tag="role/assist"):
    """Coordinator to helper: an attempt in which the helper is needed."""

    attempt: bytes
    kind: Literal["sum", "vote", "prepare", "cancel"]
    name: str
    turn: int


class Carried(Message, frozen=True, tag="role/carried"):
    """Between any two roles: a message of the protocol that runs in this attempt."""

    attempt: bytes
    body: memoryview


class Over(Message, frozen=True, tag="role/over"):
    """Coordinator to party or helper: an attempt is over, and its secrets can be forgotten."""

    attempt: bytes


_ANY = Ask | Assist | Carried | Over


def kind_of(request: Request) -> Kind:
    """The name of a request's kind in messages; `ValueError` if parties do not answer such requests."""
    for kind, made in _REQUESTS.items():
        if isinstance(request, made):
            return kind
    raise ValueError("Expected a request that parties answer.")


def ask_for(request: Request, turn: int, attempt: bytes) -> Ask:
    """The message that asks a party for something."""
    kind = kind_of(request)
    if not isinstance(request, PartyRequest):
        return Ask(attempt, kind, request.name, turn)
    numbers = b"" if request.parameters is None else request.parameters.astype("<f8").tobytes()
    indices = b"" if request.indices is None else request.indices.astype("<i8").tobytes()
    only = request.only if isinstance(request, Collect) else None
    return Ask(attempt, kind, request.name, turn, numbers, indices, only)


def request_of(ask: Ask) -> Request:
    """The request that a message asks for."""
    match ask.kind:
        case "prepare":
            return ZeroSum(ask.name)
        case "cancel":
            return Cancel(ask.name, ask.turn)
        case "shuffle":
            return Tokens(ask.turn)
        case "sum":
            return Sum(ask.name, _numbers(ask), ask.turn, _indices(ask))
        case "vote":
            return Vote(ask.name, _numbers(ask), ask.turn, _indices(ask))
        case "collect":
            return Collect(ask.name, _numbers(ask), ask.turn, _indices(ask), ask.only)


def assist_with(request: Request, turn: int, attempt: bytes) -> Assist:
    """The message that tells a helper of an attempt."""
    match kind := kind_of(request):
        case "sum" | "vote" | "prepare" | "cancel":
            return Assist(attempt, kind, request.name, turn)
        case _:
            raise ValueError("Expected a request that helpers are needed for.")


def assisted(assist: Assist) -> Request:
    """The request that a helper is told of, without its parameters."""
    request: Request = _REQUESTS[assist.kind](assist.name)
    return request


def _numbers(ask: Ask) -> Floats | None:
    return _array(ask, ask.numbers, "<f8").astype(np.float64) if ask.numbers else None


def _indices(ask: Ask) -> Integers | None:
    return _array(ask, ask.indices, "<i8").astype(np.int64) if ask.indices else None


def _array(ask: Ask, content: bytes, kind: str) -> npt.NDArray[Any]:
    if len(content) % 8:
        raise Refused(f'the request for "{ask.name}" carries {len(content)} bytes, which are no list of numbers.')
    return np.frombuffer(content, dtype=kind)


def largest_ask(name: str, parameters: int = 0, indices: int = 0) -> int:
    """The largest size of an `Ask` of this name with so many parameters and indices. `Assist` and `Over` are no
    larger."""
    kind = max(map(sizes.of_text, get_args(Kind)))
    numbers, places = sizes.of_bytes(8 * parameters), sizes.of_bytes(8 * indices)
    attempt = sizes.of_bytes(ATTEMPT_BYTES)
    return sizes.of_message(Ask, attempt, kind, sizes.of_text(name), _INTEGER, numbers, places, _INTEGER)


def largest_carried(body: int) -> int:
    """The largest size of a message that carries a protocol's message of so many bytes."""
    return sizes.of_message(Carried, sizes.of_bytes(ATTEMPT_BYTES), sizes.of_bytes(body))


def carried(envelopes: list[Envelope], attempt: bytes) -> list[Envelope]:
    """The protocol's envelopes, as messages between roles."""
    return [Envelope(to, msgspec.msgpack.encode(Carried(attempt, memoryview(body)))) for to, body in envelopes]


def is_carried(body: bytes) -> bool:
    """Whether a message belongs to an attempt under way, rather than beginning or ending one."""
    return isinstance(decode(body, _ANY), Carried)


def is_over(body: bytes) -> bool:
    """Whether a message ends an attempt."""
    return isinstance(decode(body, _ANY), Over)


def attempt_of(body: bytes) -> bytes:
    """The attempt that a message belongs to."""
    attempt: bytes = decode(body, _ANY).attempt
    return attempt


def unpacked(incoming: bytes, kind: type[Message] | object, largest: int) -> Message:
    """A message of this kind, or `Rejected`."""
    if len(incoming) > largest:
        raise Rejected(f"a message of {len(incoming):,} bytes came where {largest:,} are the most")
    message: _ANY = decode(incoming, kind)
    if len(message.attempt) != ATTEMPT_BYTES:
        raise Rejected(f"an attempt of {len(message.attempt)} bytes came where {ATTEMPT_BYTES} were due")
    if isinstance(message, Carried) and not len(message.body):
        # To an endpoint an empty message means "begin". Only its own role may say so.
        raise Rejected("an empty message came")
    return message
