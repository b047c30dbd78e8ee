"""Messages between roles: what is sent is what arrives, in the stated sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cast import EACH_SCENE, Cast, study_of
from unspoken.methods.base import Cancel, Collect, Pool, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.roles import coordinator, role
from unspoken.roles.messages import (
    Ask,
    Assist,
    Carried,
    Over,
    ask_for,
    carried,
    largest_ask,
    largest_carried,
    request_of,
    unpacked,
)
from unspoken.roles.planned_requests import largest_request
from unspoken.summation.base import Envelope, Rejected

ATTEMPT = bytes(range(16))
KINDS: list[Any] = ["sum", "vote", "prepare"]
NAMES, TURNS = st.text(min_size=1, max_size=20), st.integers(0, 2**31)
NUMBERS = st.none() | arrays.arrays(np.float64, st.integers(1, 9))
PLACES = st.none() | arrays.arrays(np.int64, st.integers(1, 9))
REQUESTS = st.one_of(
    st.builds(Sum, NAMES, NUMBERS, TURNS, PLACES),
    st.builds(Vote, NAMES, NUMBERS, TURNS, PLACES),
    st.builds(Collect, NAMES, NUMBERS, TURNS, PLACES, st.none() | st.integers(0, 99)),
    st.builds(ZeroSum, NAMES),
    st.builds(Cancel, NAMES, TURNS),
    st.builds(Tokens, TURNS),
)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.tobytes() == second.tobytes()
    return bool(first == second)


@given(REQUESTS)
def test_a_request_arrives_as_it_was_made(request: Request) -> None:
    """Not a bit of a number changes, infinite or not a number as it may be; and places stay whole numbers."""
    turn = getattr(request, "turn", 0)
    message = unpacked(msgspec.msgpack.encode(ask_for(request, turn, ATTEMPT)), Ask, 1 << 20)
    assert isinstance(message, Ask)
    assert message.attempt == ATTEMPT
    arrived = request_of(message)
    assert type(arrived) is type(request)
    for field, value in vars(request).items():
        assert same(value, getattr(arrived, field)), field


def test_places_travel_as_whole_numbers() -> None:
    """A float has no room for 2⁶² + 1."""
    asked = request_of(ask_for(Sum("a", None, 0, np.array([2**62 + 1])), 0, ATTEMPT))
    assert isinstance(asked, Sum)
    assert asked.indices is not None
    assert asked.indices.tolist() == [2**62 + 1]


def test_nobody_is_asked_for_all_records() -> None:
    with pytest.raises(ValueError, match="parties answer"):
        ask_for(Pool(), 0, ATTEMPT)


@given(st.binary(min_size=1, max_size=100))
def test_what_is_carried_arrives_as_it_was_sent(body: bytes) -> None:
    (envelope,) = carried([Envelope("party:3", body)], ATTEMPT)
    message = unpacked(envelope.body, Ask | Carried, 1 << 10)
    assert envelope.to == "party:3"
    assert isinstance(message, Carried)
    assert (message.attempt, bytes(message.body)) == (ATTEMPT, body)


@pytest.mark.parametrize("kind", KINDS)
def test_helpers_are_told_what_they_are_needed_for(kind: Any) -> None:
    assist = Assist(ATTEMPT, kind, "model", 3)
    assert unpacked(msgspec.msgpack.encode(assist), Assist | Carried, 1 << 10) == assist


def test_one_byte_too_many_is_rejected() -> None:
    message = msgspec.msgpack.encode(Ask(ATTEMPT, "sum", "model", 0))
    assert unpacked(message, Ask, len(message))
    with pytest.raises(Rejected, match="are the most"):
        unpacked(message, Ask, len(message) - 1)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Ask(ATTEMPT[:-1], "sum", "model", 0), "attempt of 15 bytes"),
        (Carried(ATTEMPT + b"1", memoryview(b"x")), "attempt of 17 bytes"),
        (Carried(ATTEMPT, memoryview(b"")), "empty"),
        (Assist(ATTEMPT, "sum", "model", 0), "a type that this endpoint does not take"),
    ],
)
def test_messages_that_no_party_takes_are_rejected(message: Any, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        unpacked(msgspec.msgpack.encode(message), Ask | Carried, 1 << 10)


def test_bytes_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(Refused, match="no list of numbers"):
        request_of(Ask(ATTEMPT, "sum", "model", 0, b"123"))


@EACH_SCENE
def test_no_message_of_a_run_is_larger_than_stated(
    kind: str, protocol: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all messages to all roles. They fill the room that is not for headers and keys, so the bound is not idle."""
    sizes: list[tuple[int, int]] = []

    def weighed(incoming: bytes, kind: Any, largest: int) -> Any:
        sizes.append((len(incoming), largest))
        return unpacked(incoming, kind, largest)

    for module in (role, coordinator):
        monkeypatch.setattr(module, "unpacked", weighed)
    cast = Cast(study_of(public, kind, protocol))
    cast.totals()
    assert len(sizes) > len(cast.parties)
    assert all(0 < size <= largest for size, largest in sizes)
    # Nothing of a size that a study has no use for is decoded.
    assert max(largest for _, largest in sizes) < max(size for size, _ in sizes) + 40_000


def test_a_request_may_be_as_large_as_its_parameters(public: Path) -> None:
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    size = cast.method.parameters(Sum("function", None, 1)).size
    assert size
    largest = largest_request(cast.method, cast.plan)
    assert largest == largest_ask("function", size)
    ask = ask_for(Sum("function", np.zeros(size), 1), 1, ATTEMPT)
    # A turn and the number of a party have room for any number.
    assert largest - 32 < len(msgspec.msgpack.encode(ask)) <= largest


@given(NAMES, st.integers(0, 100), st.integers(0, 100), TURNS, st.none() | st.integers(0, 2**31))
def test_requests_of_any_kind_have_at_most_the_stated_size(
    name: str, parameters: int, indices: int, turn: int, only: int | None
) -> None:
    numbers, places = np.zeros(parameters), np.zeros(indices, dtype=np.int64)
    largest = largest_ask(name, parameters, indices)
    requests = [
        Sum(name, numbers, turn, places),
        Vote(name, numbers, turn, places),
        Collect(name, numbers, turn, places, only),
    ]
    for request in requests:
        assert largest - 48 < len(msgspec.msgpack.encode(ask_for(request, turn, ATTEMPT))) <= largest
    small = [
        ask_for(ZeroSum(name), turn, ATTEMPT),
        ask_for(Cancel(name), turn, ATTEMPT),
        Over(ATTEMPT),
        *(Assist(ATTEMPT, k, name, turn) for k in KINDS),
    ]
    assert all(len(msgspec.msgpack.encode(message)) <= largest for message in small)


@given(st.integers(1, 70_000))
def test_what_carries_a_message_adds_a_known_number_of_bytes(size: int) -> None:
    (envelope,) = carried([Envelope("party:3", bytes(size))], ATTEMPT)
    assert len(envelope.body) == largest_carried(size)
