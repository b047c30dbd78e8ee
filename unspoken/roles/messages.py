"""The messages between roles: requests, and those of the protocol that answers one. Typed, and bounded in size.

Every request has an attempt: an identifier that was never used before, bound into all messages of the protocol that
answers it. The address on an envelope says who is meant; that a message is genuine is for the protocol to check, and
for the connection.
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
    """Places of public records, eight bytes each."""
    only: int | None = None


class Assist(Message, frozen=True, tag="role/assist"):
    """Coordinator to helper: an attempt that it is needed for."""

    attempt: bytes
    kind: Literal["sum", "vote", "prepare", "cancel"]
    name: str
    turn: int


class Carried(Message, frozen=True, tag="role/carried"):
    """Between any two: a message of the protocol that an attempt runs."""

    attempt: bytes
    body: memoryview


class Over(Message, frozen=True, tag="role/over"):
    """Coordinator to party or helper: an attempt is over, and with it the reason to keep its secrets."""

    attempt: bytes


def kind_of(request: Request) -> Kind:
    """The word for a request in messages; `ValueError` if it is none that parties answer."""
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
    """The request that a helper is told of, without what it carries."""
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
    """The largest size of a request of this name, with so many parameters and places; also of `Assist` and `Over`."""
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
    """Whether a role's message belongs to an attempt under way, rather than to begin or to end one."""
    return isinstance(decode(body, Ask | Assist | Carried | Over), Carried)


def unpacked(incoming: bytes, kind: type[Message] | object, largest: int) -> Message:
    """A message of this kind, or `Rejected`."""
    if len(incoming) > largest:
        raise Rejected(f"a message of {len(incoming):,} bytes came where {largest:,} are the most")
    message: Ask | Assist | Carried | Over = decode(incoming, kind)
    if len(message.attempt) != ATTEMPT_BYTES:
        raise Rejected(f"an attempt of {len(message.attempt)} bytes came where {ATTEMPT_BYTES} were due")
    if isinstance(message, Carried) and not len(message.body):
        # To an endpoint no bytes mean: begin. That is for its role to say.
        raise Rejected("an empty message came")
    return message
