"""Parties that send compute nodes two splittings, bad keys or bad shares, and nodes that report what nobody signed.

A bad party costs itself only; whoever can be named is named.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest

from adversaries.lying import LOW_ORDER
from adversaries.lying_nodes import NodeStage, session
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Coordinator, Endpoint, Envelope, Rejected, address_of
from unspoken.summation.evidence import convicted
from unspoken.summation.keys import public_key
from unspoken.summation.node_messages import (
    Agreed,
    Fold,
    Roll,
    Share,
    SignedKey,
    address,
    key_statement,
)
from unspoken.types import Words


def settled(stage: NodeStage, coordinator: Coordinator) -> None:
    deliver(stage, coordinator, coordinator.settle())


def deliver(stage: NodeStage, coordinator: Coordinator, envelopes: list[Envelope]) -> None:
    everyone: dict[str, Endpoint] = {COORDINATOR: coordinator}
    everyone |= {address(number): node for number, node in enumerate(stage.endpoints)}
    waiting = list(envelopes)
    while waiting:
        envelope = waiting.pop(0)
        waiting += everyone[envelope.to].step(envelope.body)


def finished(stage: NodeStage, coordinator: Coordinator) -> Words:
    for ask in (coordinator.settle, coordinator.agree, coordinator.finish):
        deliver(stage, coordinator, ask())
    return coordinator.total()


@pytest.mark.parametrize("settle_between", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_party_that_sends_again_under_another_splitting_is_counted_by_all_nodes_or_by_none(
    settle_between: bool,
) -> None:
    """It lost its state in mid-send. Every way in which its two sendings, "a" and "b", can arrive at three nodes, but
    for their names: if node 0 hears any, it hears "a" first."""
    orders, counted = ["", "a", "ab", "b", "ba"], 0
    for arrivals in itertools.product(orders[:3], orders, orders):
        stage = NodeStage(session(3, 1))
        coordinator = stage.simulated.coordinator()
        stage.post([0, 1])
        sendings = {"a": stage.messages(2), "b": stage.messages(2)}
        for turn in range(2):
            for number, order in enumerate(arrivals):
                for sending in order[turn : turn + 1]:
                    with suppress(Rejected):  # It is counted already.
                        stage.endpoints[number].step(sendings[sending][number])
            if settle_between:
                settled(stage, coordinator)
        total, survivors = finished(stage, coordinator), np.flatnonzero(coordinator.survivors()).tolist()
        assert (total == stage.total_of(survivors)).all(), f"a wrong total after {arrivals}"
        assert survivors[:2] == [0, 1]
        counted += 2 in survivors
        check_blame(stage, coordinator, 2, len(set("".join(arrivals))) == 2 and 2 not in survivors)
    # It is counted if all nodes heard one sending, and nobody the other, when the coordinator asked.
    assert counted == (8 if settle_between else 1)


def check_blame(stage: NodeStage, coordinator: Coordinator, party: int, blamed: bool) -> None:
    """A party that was left out for two keys is named, with two signed statements; nobody else is."""
    assert coordinator.blamed == ({address_of(party): "it signed two one-time keys"} if blamed else {})
    assert len(coordinator.evidence) == 2 * blamed
    found = convicted(stage.simulated.protocol, coordinator.evidence)
    assert found == ({address_of(party): "it signed two one-time keys"} if blamed else {})


def test_too_few_parties_for_the_fault_of_one_are_an_abort_that_names_it() -> None:
    stage = NodeStage(session(5, 0))
    coordinator = stage.simulated.coordinator()
    stage.post([0, 1, 2, 3])
    stage.endpoints[0].step(stage.messages(4)[0])
    again = stage.messages(4)
    for number in (1, 2):
        stage.endpoints[number].step(again[number])
    settled(stage, coordinator)
    with pytest.raises(Aborted, match="only 4 of 5 parties") as caught:
        coordinator.agree()
    assert caught.value.blamed == ("party:4",)
    assert str(caught.value).endswith("To blame: party 4 (it signed two one-time keys)")
    assert list(convicted(stage.simulated.protocol, caught.value.evidence)) == ["party:4"]


def test_nodes_that_count_a_party_under_different_keys_sign_nothing_in_common() -> None:
    """The coordinator has node 0 count one splitting and the others another: for neither of them is there a list."""
    stage = NodeStage(session(3, 1))
    stage.post([0, 1])
    stage.endpoints[0].step(stage.messages(2)[0])
    again = stage.messages(2)
    for number in (1, 2):
        stage.endpoints[number].step(again[number])
    keys = [stage.held(number)[2] for number in range(3)]
    for number in range(3):
        stage.fold(number, range(3))
    assert keys[0] != keys[1] == keys[2]
    proposal = stage.proposal(range(3), {2: keys[1]})
    with pytest.raises(Aborted, match="node 0 counted its parties under other keys"):
        stage.say(0, proposal)
    signed = [stage.signature(number, proposal) for number in (1, 2)]
    with pytest.raises(Rejected, match="signature of node 0"):
        stage.reveal(1, [signed[0], *signed])


def test_a_node_that_has_counted_another_key_aborts_and_names_the_party() -> None:
    stage = NodeStage(session(3, 1))
    stage.post([0, 1])
    for number in (0, 1):
        stage.endpoints[number].step(stage.messages(2)[number])
    stage.fold(0, range(3))
    other = stage.held(1)[2]
    with pytest.raises(Rejected, match="signature of party 2"):
        stage.say(0, Fold([SignedKey(2, other.key, bytes(64))]))
    with pytest.raises(Aborted, match="party 2 signed two one-time keys, and node 0 has counted the other") as caught:
        stage.say(0, Fold([other]))
    assert caught.value.blamed == ("party:2",)
    assert len({evidence.statement for evidence in caught.value.evidence}) == 2


def test_a_node_counts_no_party_under_a_key_that_it_holds_no_share_of() -> None:
    stage = NodeStage(session(3, 1))
    stage.post([0, 1])
    for number in (0, 1):
        stage.endpoints[number].step(stage.messages(2)[number])
    before = stage.endpoints[0].dump()
    with pytest.raises(Rejected, match="to count party 2 under a key of another share"):
        stage.say(0, Fold([stage.held(0)[0], stage.held(1)[2]]))
    assert stage.endpoints[0].dump() == before


def test_a_node_that_lost_its_state_and_hears_another_splitting_ends_the_run_and_names_the_party() -> None:
    stage = NodeStage(session(3, 1))
    coordinator = stage.simulated.coordinator()
    stage.post()
    settled(stage, coordinator)
    stage.endpoints[1] = stage.new_node(1)
    stage.endpoints[1].step(stage.messages(2)[1])
    with pytest.raises(Aborted, match="party 2 signed two one-time keys, and node:1 holds another") as caught:
        settled(stage, coordinator)
    assert caught.value.blamed == ("party:2",)
    assert len(caught.value.evidence) == 2
    for end in (coordinator.agree, coordinator.finish, coordinator.total, lambda: coordinator.step(b"")):
        with pytest.raises(Aborted, match="party 2 signed two"):
            end()


def test_a_node_that_reports_a_key_that_nobody_signed_is_named_and_not_the_party() -> None:
    """The party is missing from the total, as if the node had not heard from it."""
    stage = NodeStage(session(3, 1), corrupt={1})
    coordinator = stage.simulated.coordinator()
    stage.post()
    held = [stage.say(number, Roll()) for number in range(3)]
    held[1].keys[2] = SignedKey(2, public_key(bytes([7]) * 32), held[1].keys[2].signature)
    for number in (1, 0, 2):
        deliver(stage, coordinator, coordinator.step(stage.said_by(number, held[number])))
    assert coordinator.blamed == {"node:1": "reported a key that party 2 did not sign"}
    assert np.flatnonzero(coordinator.survivors()).tolist() == [0, 1]


@pytest.mark.parametrize("key", [bytes(32), public_key(bytes([7]) * 32)], ids=["low order", "another"])
def test_a_node_cannot_have_a_party_left_out_by_a_fault_that_it_made_up(key: bytes) -> None:
    stage = NodeStage(session(3, 1), corrupt={1})
    coordinator = stage.simulated.coordinator()
    stage.post()
    held = [stage.say(number, Roll()) for number in range(3)]
    held[1].faults.append(SignedKey(2, key, held[1].keys[2].signature))
    for number in (1, 0, 2):
        deliver(stage, coordinator, coordinator.step(stage.said_by(number, held[number])))
    assert coordinator.blamed == {"node:1": "reported a key that party 2 did not sign"}
    assert coordinator.survivors().all()


def test_a_node_that_signs_something_else_is_named_in_the_abort() -> None:
    stage = NodeStage(session(3, 1), corrupt={1})
    coordinator = stage.simulated.coordinator()
    stage.post()
    settled(stage, coordinator)
    proposals = coordinator.agree()
    deliver(stage, coordinator, [proposals[0], proposals[2]])
    other = stage.signature(1, stage.proposal([0, 1]))
    with pytest.raises(Rejected, match="signature of node 1"):
        coordinator.step(stage.said_by(1, Agreed(other)))
    with pytest.raises(Aborted, match="node:1 did not sign the survivors") as caught:
        coordinator.finish()
    assert caught.value.blamed == ("node:1",)


@pytest.mark.parametrize("key", [*LOW_ORDER[:2], b"short", bytes(33)], ids=["zero", "one", "short", "long"])
def test_a_bad_key_costs_its_party_only(key: bytes) -> None:
    """A key of low order is signed by its owner, which shows whose fault it is."""
    stage = NodeStage(session(3, 1))
    coordinator = stage.simulated.coordinator()
    stage.post([0, 1])
    signature = stage.simulated.keys.identity(2).sign(key_statement(stage.label, 2, key))
    for number in range(3):
        body = msgspec.msgpack.encode(Share(stage.label, 2, number, key, signature, memoryview(bytes(64))))
        if len(key) == 32:
            stage.endpoints[number].step(body)
        else:
            with pytest.raises(Rejected, match=f"party 2 sent a one-time key of {len(key)} bytes"):
                stage.endpoints[number].step(body)
    assert (finished(stage, coordinator) == stage.total_of([0, 1])).all()
    assert coordinator.blamed == ({"party:2": "it signed a one-time key of low order"} if len(key) == 32 else {})
    assert len(coordinator.evidence) == len(coordinator.blamed)


def test_a_bad_share_costs_its_party_only() -> None:
    """Damaged on the way, or of the wrong length; the node waits for a good one."""
    stage = NodeStage(session(4, 2))
    coordinator = stage.simulated.coordinator()
    stage.post([0, 1])
    good = stage.messages(2)
    share = msgspec.msgpack.decode(good[0], type=Share)
    damaged = Share(stage.label, 2, 0, share.key, share.signature, memoryview(bytes(len(share.sealed))))
    with pytest.raises(Rejected, match="party 2 cannot be decrypted"):
        stage.endpoints[0].step(msgspec.msgpack.encode(damaged))
    for number, body in good.items():
        stage.endpoints[number].step(body)
    party: Any = stage.simulated.party(3, SecretStream())
    for node, body in party._sealed(bytes(range(32)), [bytes(99)] * 3):
        with pytest.raises(Rejected, match="party 3 sent a share of 99 bytes"):
            stage.endpoints[node].step(body)
    assert (finished(stage, coordinator) == stage.total_of([0, 1, 2])).all()
