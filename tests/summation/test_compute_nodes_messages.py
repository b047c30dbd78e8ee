"""Messages of a compute-nodes sum that are lost, late or doubled, and nodes that are missing or have an older state."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from node_sums import NODES, Sum, asked, deliver, from_coordinator, kind_of, node_of, opened, post, run
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Coordinator, Envelope, Rejected
from unspoken.summation.node_messages import (
    Fold,
    Folded,
    Held,
    Roll,
    address,
)
from unspoken.types import Words


@pytest.mark.parametrize("senders", [[0, 0], [7], [-1], [0, 1, 1]])
def test_a_node_counts_no_party_twice_and_none_it_has_not_heard_from(senders: list[int]) -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    keys = {signed.sender: signed for signed in asked(protocol, 1, Roll()).keys}
    before = node_of(protocol, 1).dump()
    with pytest.raises(Rejected, match="a party twice, or one that this node has not heard from"):
        asked(protocol, 1, Fold([msgspec.structs.replace(keys[0], sender=sender) for sender in senders]))
    assert node_of(protocol, 1).dump() == before


def test_folding_again_changes_nothing_and_is_acknowledged_again() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    held: Held = asked(protocol, 1, Roll())
    assert asked(protocol, 1, Fold(held.keys[:3])) == Folded([0, 1, 2])
    before = node_of(protocol, 1).dump()
    assert asked(protocol, 1, Fold(held.keys[:3])) == Folded([0, 1, 2])
    assert node_of(protocol, 1).dump() == before
    assert asked(protocol, 1, Fold(held.keys[2:])) == Folded([2, 3, 4])
    assert node_of(protocol, 1).state.waiting == {}


@pytest.mark.parametrize(
    ("lost", "message"), [("Reveal", "no part of the total came from"), ("Propose", "did not sign the survivors")]
)
def test_a_missing_node_ends_in_an_abort_that_names_it(lost: str, message: str) -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    with pytest.raises(Aborted, match=message) as caught:
        run(protocol, (address(2), lost))
    assert caught.value.blamed == ("node:2",)


def test_a_node_that_took_in_nothing_is_named_and_not_taken_for_a_lack_of_parties() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    told = "node 2 took in nothing of what 5 parties sent, and a total needs every node; have it there next time"
    with pytest.raises(Aborted, match=told) as caught:
        run(protocol, (address(2), "Roll"))
    # Whether it was the node or the way to it, nobody can tell.
    assert caught.value.blamed == ()


def test_nodes_that_are_all_silent_are_not_taken_for_a_lack_of_parties() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    coordinator = protocol.coordinator()
    coordinator.settle()
    with pytest.raises(Aborted, match=r"^no compute node answers, so nobody knows what parties sent") as caught:
        coordinator.agree()
    assert caught.value.blamed == ()


def test_nodes_that_hold_nothing_and_say_so_are_not_blamed_for_a_lack_of_parties() -> None:
    with pytest.raises(Aborted, match="only 0 of 5 parties are left"):
        run(opened())


def test_a_lack_of_parties_is_told_as_such() -> None:
    protocol = opened()
    post(protocol, np.ones((3, 8), dtype=np.uint64))
    with pytest.raises(Aborted, match="only 3 of 5 parties are left"):
        run(protocol)


@pytest.mark.parametrize("lost", [(address(1), "Fold"), (COORDINATOR, "Folded")])
def test_a_lost_fold_is_made_good(lost: tuple[str, str]) -> None:
    """By the next `settle`, which tells a node what it did not acknowledge; and without one, by the list to sign."""
    rows = np.arange(40, dtype=np.uint64).reshape(5, 8)
    for settled_again in (False, True):
        protocol = opened()
        post(protocol, rows)
        coordinator = protocol.coordinator()
        deliver(protocol, coordinator, coordinator.settle(), [lost])
        if settled_again:
            again = coordinator.settle()
            repeated = [envelope.to for envelope in again if kind_of(envelope) == "Fold"]
            assert repeated == ([address(1)] if lost[1] == "Fold" else [address(number) for number in range(NODES)])
            deliver(protocol, coordinator, again)
            assert node_of(protocol, 1).state.counted.all()
            assert [kind_of(envelope) for envelope in coordinator.settle()] == ["Roll"] * NODES
        assert (run_from(protocol, coordinator) == rows.sum(axis=0)).all()


def run_from(protocol: Sum, coordinator: Coordinator) -> Words:
    for ask in (coordinator.agree, coordinator.finish):
        deliver(protocol, coordinator, ask())
    return coordinator.total()


def test_lost_reports_signatures_and_parts_are_asked_for_again() -> None:
    rows = np.arange(40, dtype=np.uint64).reshape(5, 8)
    protocol = opened()
    post(protocol, rows)
    coordinator = protocol.coordinator()
    for ask, answer in (
        (coordinator.settle, "Held"),
        (coordinator.agree, "Agreed"),
        (coordinator.finish, "PartialTotal"),
    ):
        held_up: list[Envelope] = []
        for envelope in ask():
            held_up += protocol.nodes[envelope.to].step(envelope.body)
        assert {kind_of(envelope) for envelope in held_up} == {answer}
        # Two nodes' answers arrive, the third's is lost: the question is repeated to all.
        deliver(protocol, coordinator, held_up[:2])
        for envelope in ask():
            for one in protocol.nodes[envelope.to].step(envelope.body):
                if answer != "PartialTotal" or envelope.to == address(2):
                    deliver(protocol, coordinator, [one])
    assert (coordinator.total() == rows.sum(axis=0)).all()


def test_a_part_that_comes_twice_is_added_once() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    coordinator = protocol.coordinator()
    deliver(protocol, coordinator, coordinator.settle())
    deliver(protocol, coordinator, coordinator.agree())
    for envelope in coordinator.finish():
        part = protocol.nodes[envelope.to].step(envelope.body)[0]
        coordinator.step(part.body)
        with pytest.raises(Rejected, match="sent its part twice"):
            coordinator.step(part.body)
    assert (coordinator.total() == 5).all()


def test_a_late_report_changes_nothing_once_the_survivors_are_fixed() -> None:
    protocol = opened()
    rows = np.arange(40, dtype=np.uint64).reshape(5, 8)
    post(protocol, rows[:4])
    coordinator = protocol.coordinator()
    deliver(protocol, coordinator, coordinator.settle())
    proposal = coordinator.agree()
    late = protocol.party(4, SecretStream()).submit(rows[4])
    for envelope in late:
        protocol.nodes[envelope.to].step(envelope.body)
    for number in range(NODES):
        report = node_of(protocol, number).step(from_coordinator(protocol, number, Roll()))[0]
        assert coordinator.step(report.body) == []
    assert coordinator.settle() == []
    deliver(protocol, coordinator, proposal)
    for envelope in late:
        with pytest.raises(Rejected, match="party 4 came after the parties in the total were fixed"):
            protocol.nodes[envelope.to].step(envelope.body)
    deliver(protocol, coordinator, coordinator.finish())
    assert (coordinator.total() == rows[:4].sum(axis=0)).all()


def test_a_node_goes_on_from_an_older_state_that_has_the_same_shares() -> None:
    """It has forgotten what it counted, reports it again, and is told again."""
    protocol = opened()
    rows = np.arange(40, dtype=np.uint64).reshape(5, 8)
    post(protocol, rows)
    before = node_of(protocol, 1).dump()
    coordinator = protocol.coordinator()
    deliver(protocol, coordinator, coordinator.settle())
    assert node_of(protocol, 1).dump() != before
    node_of(protocol, 1).load(before)
    deliver(protocol, coordinator, coordinator.settle())
    assert node_of(protocol, 1).state.counted.all()
    assert (run_from(protocol, coordinator) == rows.sum(axis=0)).all()
