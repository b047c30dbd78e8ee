"""The adversary of the compute-nodes sum: all nodes but one, with the coordinator, and what it may not get.

Written down: the adversary sees every message, holds the keys of M − 1 of the M nodes, plays the coordinator as it
likes, and knows the vectors of all parties but two. It must not learn anything about these two beyond their sum.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy import stats

from tacit.noise.stream import SecretStream
from tacit.summation.base import COORDINATOR, Aborted, Rejected, Session
from tacit.summation.compute_nodes import ComputeNodes, Fold, Held, Options, Part, Reveal, Roll, address, expand
from tacit.types import Words

NODES = 3


def opened(parties: int = 5, dropouts: int = 1, length: int = 8, bits: int = 64, nodes: int = NODES) -> ComputeNodes:
    session = Session("digest", "model", parties, parties - dropouts, length, bits)
    return ComputeNodes(session, Options(nodes=nodes), SecretStream())


def post(protocol: ComputeNodes, rows: Words) -> None:
    for party, row in enumerate(rows):
        for envelope in protocol.party(party, row, SecretStream()).step(b""):
            protocol.helpers()[envelope.to].step(envelope.body)


def plain_share(protocol: ComputeNodes, node: int, party: int) -> Words:
    """What a node knows of a party, as the vector that it adds."""
    state = protocol.helpers()[address(node)].state
    session = protocol.session
    held = state.waiting[party]  # type: ignore[attr-defined]
    return session.unpack(held) if party % NODES == node else expand(held, session)


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
    first, second = (protocol.party(1, row, SecretStream()).step(b"") for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert row[:2].tobytes() not in one.body
        assert one.body != other.body


def sealed(protocol: ComputeNodes, message: object) -> bytes:
    return msgspec.msgpack.encode(message)


def test_a_node_reveals_its_part_once_and_then_nothing_more() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node, label = protocol.helpers()[address(0)], protocol.session.label()
    node.step(sealed(protocol, Fold(label, [0, 1, 2, 3])))
    node.step(sealed(protocol, Reveal(label)))
    # A second total over five parties would reveal the fifth one by difference.
    for message in (Fold(label, [4]), Reveal(label), Roll(label)):
        with pytest.raises(Rejected, match="this sum is over"):
            node.step(sealed(protocol, message))


def test_a_node_reveals_nothing_below_the_agreed_number_of_parties() -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node, label = protocol.helpers()[address(1)], protocol.session.label()
    node.step(sealed(protocol, Fold(label, [0, 1, 2])))
    with pytest.raises(Aborted, match="only 3 of 5 parties"):
        node.step(sealed(protocol, Reveal(label)))


@pytest.mark.parametrize("senders", [[0, 0], [7], [0, 1, 1]])
def test_a_node_counts_no_party_twice_and_none_it_has_not_heard_from(senders: list[int]) -> None:
    protocol = opened()
    post(protocol, np.ones((5, 8), dtype=np.uint64))
    node, label = protocol.helpers()[address(1)], protocol.session.label()
    with pytest.raises(Rejected, match="not heard from, or counts twice"):
        node.step(sealed(protocol, Fold(label, senders)))
    node.step(sealed(protocol, Fold(label, [0])))
    with pytest.raises(Rejected, match="not heard from, or counts twice"):
        node.step(sealed(protocol, Fold(label, [0])))


def test_a_share_for_one_node_cannot_be_turned_to_another() -> None:
    protocol = opened()
    envelopes = protocol.party(0, np.ones(8, dtype=np.uint64), SecretStream()).step(b"")
    with pytest.raises(Rejected, match="a share for node 1 came to node 2"):
        protocol.helpers()[address(2)].step(envelopes[1].body)


def test_a_party_outside_the_study_is_refused() -> None:
    protocol = opened()
    envelope = protocol.party(9, np.ones(8, dtype=np.uint64), SecretStream()).step(b"")[0]
    with pytest.raises(Rejected, match="party 9, who is not among the 5"):
        protocol.helpers()[envelope.to].step(envelope.body)


def test_nodes_that_counted_different_parties_give_no_total() -> None:
    protocol = opened()
    coordinator, label = protocol.coordinator(), protocol.session.label()
    for node in range(NODES):
        coordinator.step(sealed(protocol, Held(label, node, [0, 1, 2, 3])))
    coordinator.finish()
    with pytest.raises(Aborted, match="node 1 has counted other parties"):
        coordinator.step(sealed(protocol, Part(label, 1, b"x" * 32, bytes(64))))


def test_a_missing_node_ends_in_an_abort_that_names_it() -> None:
    protocol = opened()
    rows = np.ones((5, 8), dtype=np.uint64)
    post(protocol, rows)
    coordinator = protocol.coordinator()
    for envelope in coordinator.settle():
        for answer in protocol.helpers()[envelope.to].step(envelope.body):
            folds = coordinator.step(answer.body)
    for envelope in folds:
        protocol.helpers()[envelope.to].step(envelope.body)
    for envelope in coordinator.finish():
        if envelope.to != address(2):
            for answer in protocol.helpers()[envelope.to].step(envelope.body):
                assert answer.to == COORDINATOR
                coordinator.step(answer.body)
    with pytest.raises(Aborted, match="node:2"):
        coordinator.total()


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_the_upload_is_one_vector_however_many_nodes_there_are(nodes: int) -> None:
    length = 61_450
    protocol = opened(length=length, nodes=nodes)
    assert protocol.upload_bytes() <= 1.05 * 8 * length
