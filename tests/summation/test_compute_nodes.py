"""The adversary of the compute-nodes sum: all nodes but one, with the coordinator, and what it may not get.

Written down: the adversary sees every message, holds the keys of M − 1 of the M nodes, plays the coordinator as it
likes, and knows the vectors of all parties but two. It must not learn anything about these two beyond their sum.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy import stats

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Message, Rejected, Session, Unsuitable, bitmap
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.compute_nodes import ComputeNodes, Options
from unspoken.summation.masks import add_masks
from unspoken.summation.node_messages import Fold, Framed, Reveal, Roll, Share, address, nodes_of
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words

NODES = 3


class Sum(SimulatedEndpoints[ComputeNodes]):
    """One sum, whose nodes stay."""

    def __init__(self, protocol: ComputeNodes) -> None:
        super().__init__(protocol, SecretStream())
        self.nodes = self.helpers()


def opened(
    parties: int = 5,
    dropouts: int = 1,
    length: int = 8,
    bits: int = 64,
    nodes: int = NODES,
    per_party: int | None = None,
) -> Sum:
    schedule = NoiseSchedule.plan(parties, 1, dropouts, 1e6, 1.0)
    session = Session("digest", "model", parties, 1, parties - dropouts, length, bits, schedule)
    return Sum(ComputeNodes(session, Options(nodes=nodes, per_party=per_party)))


def post(protocol: Sum, rows: Words) -> None:
    for party, row in enumerate(rows):
        for envelope in protocol.party(party, SecretStream(bytes([party]) * 32)).submit(row):
            protocol.nodes[envelope.to].step(envelope.body)


def node_of(protocol: Sum, number: int) -> ComputeNode:
    node = protocol.nodes[address(number)]
    assert isinstance(node, ComputeNode)
    return node


def plain_share(protocol: Sum, number: int, party: int) -> Words:
    """What a node knows of a party, as the vector that it adds."""
    session, held = protocol.session, node_of(protocol, number).state.waiting[party]
    share = held[: len(held) - 32 * session.components]
    if nodes_of(party, NODES, NODES)[0] == number:
        return session.unpack(share)
    return add_masks(np.zeros(session.length, dtype=np.uint64), [(share, True)], session)


def from_coordinator(protocol: Sum, number: int, message: Message) -> bytes:
    """A message that a node takes for the coordinator's: the adversary plays the coordinator."""
    channel = protocol.coordinator()._channels[number]
    label = protocol.session.label()
    return msgspec.msgpack.encode(Framed(label, number, memoryview(channel.wrap(msgspec.msgpack.encode(message)))))


def reveal(parties: int, survivors: list[int]) -> Reveal:
    return Reveal(bitmap(np.isin(np.arange(parties), survivors)))


@pytest.mark.parametrize("honest_node", range(NODES))
def test_what_all_other_nodes_know_of_a_party_is_uniform_and_the_same_for_any_vector(honest_node: int) -> None:
    """χ² of the bytes that the other nodes' shares of one party add up to; false alarms: 1 in 10,000."""
    for value in (0, 2**63 - 5):
        protocol = opened(parties=3, dropouts=0, length=4096)
        post(protocol, np.full((3, 4096), value, dtype=np.uint64))
        for party in range(3):
            others = [plain_share(protocol, node, party) for node in range(NODES) if node != honest_node]
            seen = np.sum(others, axis=0, dtype=np.uint64).view(np.uint8)
            assert stats.chisquare(np.bincount(seen, minlength=256)).pvalue > 1e-4 / 18


def test_all_nodes_together_know_everything_so_the_last_one_matters() -> None:
    """The attack that must fail below the bound succeeds at it: M colluding nodes recover a party's vector."""
    protocol = opened()
    rows = np.arange(40, dtype=np.uint64).reshape(5, 8)
    post(protocol, rows)
    recovered = sum(plain_share(protocol, node, 2) for node in range(NODES))
    assert (recovered == rows[2]).all()


def test_the_coordinator_that_carries_the_messages_cannot_read_them() -> None:
    """The same vector sent twice looks different everywhere, and the vector's bytes do not occur."""
    protocol = opened(length=64)
    row = np.full(64, 0x0123456789ABCDEF, dtype=np.uint64)
    first, second = (protocol.party(1, SecretStream()).submit(row) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert row[:2].tobytes() not in one.body
        assert one.body != other.body


def test_a_coordinator_cannot_invent_parties() -> None:
    """To isolate a victim it would have to fill the sum with vectors that it knows: their signatures fail."""
    protocol = opened()
    impostor = opened()
    for envelope in impostor.party(0, SecretStream()).submit(np.ones(8, dtype=np.uint64)):
        share = msgspec.msgpack.decode(envelope.body, type=Share)
        with pytest.raises(Rejected, match="signature of party 0"):
            protocol.nodes[envelope.to].step(envelope.body)
        assert share.sender == 0


def test_a_node_reveals_its_part_for_one_set_of_parties_only() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node = node_of(protocol, 0)
    node.step(from_coordinator(protocol, 0, Fold([0, 1, 2, 3])))
    first = node.step(from_coordinator(protocol, 0, reveal(5, [0, 1, 2, 3])))
    # The same question again (the coordinator may have crashed) gets an answer; a second set would reveal party 4.
    assert len(node.step(from_coordinator(protocol, 0, reveal(5, [0, 1, 2, 3])))) == len(first) == 1
    with pytest.raises(Rejected, match="this sum is over"):
        node.step(from_coordinator(protocol, 0, Fold([4])))
    with pytest.raises(Aborted, match="counted other parties"):
        node.step(from_coordinator(protocol, 0, reveal(5, [0, 1, 2, 3, 4])))


def test_a_node_reveals_nothing_below_the_agreed_number_of_parties() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node = node_of(protocol, 1)
    node.step(from_coordinator(protocol, 1, Fold([0, 1, 2])))
    with pytest.raises(Aborted, match="only 3 of 5 parties"):
        node.step(from_coordinator(protocol, 1, reveal(5, [0, 1, 2])))


def test_a_node_opens_no_more_noise_than_the_survivors_it_counted_allow() -> None:
    """Naming more survivors than there are would open components that are still needed."""
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node = node_of(protocol, 1)
    node.step(from_coordinator(protocol, 1, Fold([0, 1, 2, 3])))
    with pytest.raises(Aborted, match="counted other parties"):
        node.step(from_coordinator(protocol, 1, reveal(5, [0, 1, 2, 3, 4])))


@pytest.mark.parametrize("senders", [[0, 0], [7], [0, 1, 1]])
def test_a_node_counts_no_party_twice_and_none_it_has_not_heard_from(senders: list[int]) -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node = node_of(protocol, 1)
    with pytest.raises(Rejected, match="a party twice, or one that this node has not heard from"):
        node.step(from_coordinator(protocol, 1, Fold(senders)))
    node.step(from_coordinator(protocol, 1, Fold([0])))
    with pytest.raises(Rejected, match="a party twice, or one that this node has not heard from"):
        node.step(from_coordinator(protocol, 1, Fold([0])))


def test_a_share_for_one_node_cannot_be_turned_to_another() -> None:
    protocol = opened()
    envelopes = protocol.party(0, SecretStream()).submit(np.ones(8, dtype=np.uint64))
    with pytest.raises(Rejected, match="a share for node 1 came to node 2"):
        node_of(protocol, 2).step(envelopes[1].body)


def test_only_the_coordinator_can_ask_a_node() -> None:
    protocol = opened()
    stranger = opened().coordinator()
    body = stranger._channels[0].wrap(msgspec.msgpack.encode(Roll()))
    with pytest.raises(Rejected, match="claims to be from the coordinator failed authentication"):
        node_of(protocol, 0).step(msgspec.msgpack.encode(Framed(protocol.session.label(), 0, memoryview(body))))


def run(protocol: Sum, without: str | None = None) -> Words:
    coordinator = protocol.coordinator()
    endpoints = {**protocol.nodes, COORDINATOR: coordinator}
    for ask in (coordinator.settle, coordinator.finish):
        waiting = ask()
        while waiting:
            envelope = waiting.pop(0)
            if envelope.to != without or ask == coordinator.settle:
                waiting += endpoints[envelope.to].step(envelope.body)
    return coordinator.total()


def test_a_missing_node_ends_in_an_abort_that_names_it() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    with pytest.raises(Aborted, match="node:2"):
        run(protocol, without=address(2))


@pytest.mark.parametrize(("nodes", "per_party"), [(4, 3), (5, 3), (3, 3)])
def test_a_party_may_use_some_of_the_nodes_only(nodes: int, per_party: int) -> None:
    protocol = opened(parties=7, dropouts=0, nodes=nodes, per_party=per_party)
    rows = np.arange(56, dtype=np.uint64).reshape(7, 8)
    post(protocol, rows)
    assert (run(protocol) == rows.sum(axis=0)).all()
    assert len(protocol.party(0, SecretStream()).submit(rows[0])) == per_party


def test_more_nodes_a_party_than_there_are_is_refused() -> None:
    with pytest.raises(Unsuitable, match="there are only 3 nodes"):
        opened(nodes=3, per_party=4)


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_the_upload_is_one_vector_however_many_nodes_there_are(nodes: int) -> None:
    length = 61_450
    protocol = opened(length=length, nodes=nodes)
    assert protocol.protocol.upload_bytes() <= 1.05 * 8 * length
