"""A helper against a coordinator that lies, and against garbage. Everyone's crashes are in `test_party_crashes`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast import Cast, study_of
from disks import Folder
from unspoken.methods.parameters import Refused
from unspoken.roles import store
from unspoken.roles.file_store import Disk
from unspoken.roles.messages import Assist, Carried, Over, carried
from unspoken.summation.base import Aborted, Rejected
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.keys import WRAPPING_BYTES
from unspoken.summation.node_messages import Roll

SCENES = [("turns", "compute-nodes"), ("messages", "compute-nodes"), ("votes", "tally")]
SCENE = pytest.mark.parametrize(("kind", "protocol"), SCENES)


def lies(name: str, assisted: list[Assist], plan: Any) -> list[tuple[str, Any]]:
    """What must be refused at any time, with a word of the refusal."""
    planned = plan.sum_named(name)
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
    found += [("not newer", assist) for assist in assisted]
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
            if msgspec.msgpack.encode(message) == cast.helpers[victim]._last[0]:
                continue  # That the last message comes again is no lie.
            with pytest.raises((Refused, Rejected), match=word):
                cast.helpers[victim].receive(msgspec.msgpack.encode(message))
            assert cast.kept(victim) == kept
            told += 1
        honest_message: Any = msgspec.msgpack.decode(body, type=Assist | Carried | Over)
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


@SCENE
@pytest.mark.parametrize("repeating", [True, False])
def test_large_messages_that_came_before_a_crash_come_again_or_the_attempt_ends(
    kind: str, protocol: str, repeating: bool, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper's store only names what needs no answer, here of any size. The helper is made again before every
    message. If senders repeat what they sent, the totals are right. If they do not, it says nothing that it does not
    know any more, and the next attempt finds it as good as new."""
    monkeypatch.setattr(store, "LARGE", 0)
    honest = Cast(study_of(public, kind, protocol)).totals()
    cast = Cast(study_of(public, kind, protocol))
    victim, sent, waited = cast.plan.helper_addresses[0], list[bytes](), 0

    def crash(to: str, body: bytes) -> None:
        nonlocal waited
        if to != victim:
            return
        helper = cast.helpers[victim] = cast.helper(victim)
        waited += len(helper._missing)
        if isinstance(msgspec.msgpack.decode(body, type=Assist | Carried | Over), Carried):
            for message in sent if repeating else []:
                with contextlib.suppress(Rejected, Refused):
                    helper.receive(message)
            sent.append(body)
        else:
            sent[:] = [body]

    cast.before = crash
    if repeating:
        assert cast.totals() == honest
        assert waited
        return
    with pytest.raises((Rejected, Aborted)):
        cast.totals()
    assert cast.helpers[victim].receive(msgspec.msgpack.encode(Assist(b"\xff" * 16, *_planned(cast)))) == []


def _planned(cast: Cast) -> Any:
    planned = cast.plan.sums[0]
    kind = "prepare" if planned.noise.prepares else "vote" if planned.classes else "sum"
    return kind, planned.name, 0


def test_a_message_that_was_not_taken_before_the_crash_waits_for_those_that_were(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LARGE", 0)
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    victim = cast.plan.helper_addresses[0]
    cast.run_until(victim, lambda envelopes: envelopes)
    helper = cast.helper(victim)
    attempt = helper._attempt or b""
    missing = len(helper._missing)
    assert missing == len(cast.parties)
    with pytest.raises(Rejected, match=f"{missing} messages that came before a crash must come again"):
        helper.receive(msgspec.msgpack.encode(Carried(attempt, memoryview(b"something else"))))
    assert helper.receive(msgspec.msgpack.encode(Over(b"\0" * 16))) == []
    assert len(cast.helper(victim)._missing) == missing
    assert helper.receive(msgspec.msgpack.encode(Over(attempt))) == []
    assert not helper._missing
    assert cast.helper(victim)._attempt is None


def test_a_new_attempt_waits_for_nothing_that_came_before_a_crash(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LARGE", 0)
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    victim, attempt = cast.plan.helper_addresses[0], b"\xff" * 16
    cast.run_until(victim, lambda envelopes: envelopes)
    helper = cast.helper(victim)
    assert helper._missing
    assert helper.receive(msgspec.msgpack.encode(Assist(attempt, *_planned(cast)))) == []
    with pytest.raises(Rejected, match="type that this endpoint does not take"):
        helper.receive(msgspec.msgpack.encode(Carried(attempt, memoryview(b"damaged"))))


def test_an_error_while_messages_are_taken_again_leaves_nothing_half_done(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that went on from the middle would not know that it signed a list, and would sign another one."""
    monkeypatch.setattr(store, "LARGE", 0)
    monkeypatch.setattr(ComputeNode, "has_forgotten", False)  # No snapshot: it has only named the shares it counted.
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    victim, sent = cast.plan.helper_addresses[0], list[bytes]()
    cast.before = lambda to, body: sent.append(body) if to == victim else None
    cast.run_until(victim, lambda envelopes: cast.helpers[victim]._endpoint.state.statement)
    helper = cast.helper(victim)
    named = [body for body in sent if store.name_of(body) in helper._missing]
    step, steps = ComputeNode.step, iter(range(100))

    def failing(node: ComputeNode, incoming: bytes) -> Any:
        if next(steps) == 2:
            raise MemoryError
        return step(node, incoming)

    with monkeypatch.context() as patch:
        patch.setattr(ComputeNode, "step", failing)
        for body in named[:-1]:
            helper.receive(body)
        with pytest.raises(MemoryError):
            helper.receive(named[-1])
    assert len(helper._missing) == len(named)
    for body in named:
        helper.receive(body)
    assert not helper._missing
    assert helper._endpoint.state.statement


def test_a_message_that_comes_again_in_another_form_ends_the_attempt(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender made another one of the same name: it does not get into a sum for which something was said before."""
    monkeypatch.setattr(store, "LARGE", 0)
    monkeypatch.setattr(store, "_BEGINNING", 64)
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    victim, sent = cast.plan.helper_addresses[0], list[bytes]()
    cast.before = lambda to, body: sent.append(body) if to == victim else None
    cast.run_until(victim, lambda envelopes: envelopes)
    helper = cast.helper(victim)
    first, *others = [body for body in sent if store.name_of(body) in helper._missing]
    changed = bytearray(first)
    changed[len(first) // 2] ^= 1
    for body in others:
        assert helper.receive(body) == []
    with pytest.raises(Aborted, match="came again in another form"):
        helper.receive(bytes(changed))
    assert helper._attempt is None
    assert cast.helper(victim)._attempt is None


def test_a_node_waits_for_its_disk_only_where_something_leaves_that_depends_on_it(public: Path, tmp_path: Path) -> None:
    """The files and folders that are synced by each message of a sum. To begin and to end cost one each: a snapshot is
    whole before it takes the place of another. What a node that has signed says again costs nothing."""

    class Counting(Disk):
        synced = 0

        def sync(self, file: int) -> None:
            Counting.synced += 1

        def sync_folder(self, folder: Path) -> None:
            Counting.synced += 1

    cast = Cast(study_of(public, "turns", "compute-nodes"))
    victim, found = cast.plan.helper_addresses[0], list[tuple[str, int]]()
    cast.stores[victim] = Folder(tmp_path).open(cast._keys.helper(0), cast.study.digest(), victim, disk=Counting())
    cast.helpers[victim] = cast.helper(victim)
    Counting.synced = 0

    def count(to: str, envelopes: list[Any]) -> None:
        if to == victim:
            answers = [msgspec.msgpack.decode(envelope.body, type=Carried).body for envelope in envelopes]
            framed = [msgspec.msgpack.decode(answer)[3] for answer in answers]
            named = [msgspec.msgpack.decode(body[WRAPPING_BYTES:])[0] for body in framed]
            found.append((*named, Counting.synced) if named else ("", Counting.synced))
            Counting.synced = 0

    cast.after = count
    cast.totals()
    cast.stores[victim].close()
    most: dict[str, int] = {}
    for said, synced in found:
        most[said] = max(most.get(said, 0), synced)
    assert most == {"": 1, "nodes/held": 3, "nodes/folded": 2, "nodes/agreed": 3, "nodes/part": 0}


def test_a_sender_of_many_messages_does_not_fill_the_disk(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many messages a snapshot takes their place."""
    monkeypatch.setattr(store, "MOST_MESSAGES", 20)
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    victim, records = cast.plan.helper_addresses[0], list[int]()
    cast.run_until(victim, lambda envelopes: envelopes)
    nodes: Any = cast.coordinator._stages.endpoint  # type: ignore[union-attr]
    for _ in range(50):
        (asked,) = carried([nodes._to(0, Roll())], cast.coordinator.attempt)
        assert cast.helpers[victim].receive(asked.body)
        records.append(len(cast.kept(victim)))
    assert max(records) == 21
    assert records.count(1) >= 2
