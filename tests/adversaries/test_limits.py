"""The largest message that may come, and one byte more, before every message of a study to everyone in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adversaries.said import without_wrapping
from cast import Cast, study_of
from unspoken.methods.parameters import Refused
from unspoken.roles.messages import Carried
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected


class Padded(Cast):
    """Before a participant takes a message, it is sent one that is too long by a byte, and one of just the size."""

    def __init__(self, public: Path, kind: str, protocol: str) -> None:
        super().__init__(study_of(public, kind, protocol))
        self.kinds: set[str] = set()

    def step(self, to: str, body: bytes, *more: Any) -> list[Envelope]:
        role: Any = self.coordinator if to == COORDINATOR else {**self.parties, **self.helpers}[to]
        sender = more[-1:] if to == COORDINATOR else ()
        kind = kind_of(body)
        if (to.split(":")[0] + kind) not in self.kinds:
            self.kinds.add(to.split(":")[0] + kind)
            largest = role._largest
            assert len(body) <= largest
            before = None if to == COORDINATOR else self.kept(to)
            for length, refusal in ((largest + 1, "bytes came where"), (largest, "type that this endpoint")):
                with pytest.raises(Rejected, match=refusal):
                    role.receive(body + bytes(length - len(body)) if length > len(body) else longer(body), *sender)
            assert to == COORDINATOR or self.kept(to) == before
        return super().step(to, body, *more)


def longer(body: bytes) -> bytes:
    """Not a message, of the same length as one."""
    return bytes([0xC1]) + body[1:]


def kind_of(body: bytes) -> str:
    message = msgspec.msgpack.decode(body)
    if message[0] != "role/carried":
        return str(message[0])
    carried = bytes(msgspec.msgpack.decode(body, type=Carried).body)
    try:
        return str(msgspec.msgpack.decode(without_wrapping(carried))[0])
    except (msgspec.DecodeError, TypeError, ValueError):
        return "wrapped"  # to a party, which only its channel reads


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        ("turns", "secagg+"),
        ("turns", "pairwise"),
        ("turns", "compute-nodes"),
        ("messages", "secagg"),
        ("votes", "tally"),
        pytest.param("tokens", "ideal", marks=pytest.mark.long),  # Lists are long: 5 s.
    ],
)
def test_a_message_of_the_largest_size_is_looked_at_and_one_byte_more_is_not(
    kind: str, protocol: str, public: Path
) -> None:
    """For every kind of message to parties, helpers and the coordinator: it is refused, and changes nothing."""
    cast = Padded(public, kind, protocol)
    cast.totals()
    assert len(cast.kinds) >= 3


@pytest.mark.parametrize(("kind", "protocol"), [("turns", "secagg+"), ("turns", "compute-nodes")])
def test_nothing_that_comes_is_larger_than_the_study_s_largest(kind: str, protocol: str, public: Path) -> None:
    """A connection takes no more than that, before it knows which attempt a message belongs to."""
    cast, most = Cast(study_of(public, kind, protocol)), 0

    def measure(to: str, body: bytes) -> None:
        nonlocal most
        role: Any = cast.coordinator if to == COORDINATOR else {**cast.parties, **cast.helpers}[to]
        most = max(most, len(body))
        assert len(body) <= role.largest

    cast.before = measure
    cast.totals()
    assert 0 < most <= cast.coordinator.largest
    with pytest.raises((Rejected, Refused, Aborted)):
        cast.parties["party:0"].receive(bytes(cast.parties["party:0"].largest + 1))
