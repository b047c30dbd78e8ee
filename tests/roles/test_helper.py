"""A helper against a coordinator that lies, and against garbage. Crashes are in `test_party`, with everyone's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cast import Cast, study_of
from hypothesis import given
from hypothesis import strategies as st

from unspoken.methods.parameters import Refused
from unspoken.roles.messages import Assist, Carried
from unspoken.summation.base import Rejected

SCENES = [("turns", "compute-nodes"), ("messages", "compute-nodes"), ("votes", "tally")]
SCENE = pytest.mark.parametrize(("kind", "protocol"), SCENES)


def lies(name: str, assisted: list[Assist], plan: Any) -> list[tuple[str, Any]]:
    """What must be refused at any time, with a word of the refusal."""
    planned = plan.planned(name)
    wrong: Any = "prepare" if planned.noise.summed else "sum"
    right: Any = "sum" if planned.noise.summed else "prepare"
    found: list[tuple[str, Any]] = [
        ("not in the plan", Assist(b"a" * 16, "sum", "salary", 0)),
        ("not how the plan has it", Assist(b"b" * 16, wrong, name, 0)),
        ("more often than planned", Assist(b"c" * 16, right, name, planned.count)),
        ("more often than planned", Assist(b"d" * 16, right, name, -1)),
        ("not under way", Carried(b"e" * 16, memoryview(b"x"))),
        ("attempt of 3 bytes", Assist(b"abc", right, name, 0)),
    ]
    found += [("used before", assist) for assist in assisted]
    if assisted:
        found.append(("message", Carried(assisted[-1].attempt, memoryview(b"damaged"))))
    return found


@SCENE
def test_lies_are_refused_and_change_nothing(kind: str, protocol: str, public: Path) -> None:
    honest = Cast(study_of(public, kind, protocol)).totals()
    cast = Cast(study_of(public, kind, protocol))
    victim, assisted, told = cast.plan.helper_addresses[0], list[Assist](), 0

    def lie(to: str, body: bytes) -> None:
        nonlocal told
        if to != victim:
            return
        for word, message in lies(cast.plan.sums[0].name, assisted, cast.plan):
            kept = cast.kept(victim)
            with pytest.raises((Refused, Rejected), match=word):
                cast.helpers[victim].receive(msgspec.msgpack.encode(message))
            assert cast.kept(victim) == kept
            told += 1
        honest_message: Any = msgspec.msgpack.decode(body, type=Assist | Carried)
        if isinstance(honest_message, Assist):
            assisted.append(honest_message)

    cast.before = lie
    assert cast.totals() == honest
    assert assisted
    assert told > 20


@given(st.binary(max_size=100))
def test_garbage_is_rejected(garbage: bytes) -> None:
    cast = Cast(study_of(Path("no public records"), "turns", "compute-nodes"))
    helper = cast.helpers[cast.plan.helper_addresses[0]]
    with pytest.raises(Rejected):
        helper.receive(garbage)
    helper.receive(msgspec.msgpack.encode(Assist(b"a" * 16, "sum", "function", 0)))
    with pytest.raises(Rejected):
        helper.receive(garbage)
    with pytest.raises(Rejected):
        helper.receive(msgspec.msgpack.encode(Carried(b"a" * 16, memoryview(garbage))))


def test_an_oversized_message_is_rejected_unread(public: Path) -> None:
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    with pytest.raises(Rejected, match="are the most"):
        cast.helpers[cast.plan.helper_addresses[0]].receive(bytes(1 << 24))
