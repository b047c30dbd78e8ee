"""The compute-nodes sum: what others know of a party, and what is left of it at the end.

The adversary sees every message, holds the keys of M − 1 of the M nodes, and knows the vectors of all parties but two.
It must not learn anything about these two beyond their sum. What a coordinator that lies may try is in
`tests/adversaries/test_nodes_*.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from node_sums import NODES, Sum, asked, node_of, opened, post, run
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Rejected, Unsuitable
from unspoken.summation.masks import add_masks
from unspoken.summation.node_messages import (
    Fold,
    Framed,
    Propose,
    Roll,
    Share,
    address,
    nodes_of,
)
from unspoken.types import Words


def plain_share(protocol: Sum, number: int, party: int) -> Words:
    """What a node knows of a party, as the vector that it adds."""
    session, held = protocol.session, node_of(protocol, number).state.waiting[party].plain
    share = held[: len(held) - 32 * session.components]
    if nodes_of(party, NODES, NODES)[0] == number:
        return session.unpack(share)
    return add_masks(np.zeros(session.length, dtype=np.uint64), [(share, True)], session)


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


def test_another_vector_from_the_same_state_has_another_key_and_other_masks() -> None:
    """A state that was written down before the vector left is loaded again, and another vector is sent from it."""
    protocol = opened(length=64)
    party = protocol.party(1, SecretStream())
    before, seen = party.dump(), []
    for value in (3, 4, 3):
        party.load(before)
        party.submit(np.full(64, value, dtype=np.uint64))
        seen.append(party.state.submitted)
    assert seen[0] == seen[2]
    plain = []
    for sent in seen[:2]:
        nodes: dict[str, Any] = protocol.helpers()
        for number, body in sent:
            nodes[address(number)].step(body)
        plain.append([nodes[address(number)].state.waiting[1] for number in range(NODES)])
    for one, other in zip(*plain, strict=True):
        assert one.signed.key != other.signed.key
        assert not {one.plain[start : start + 32] for start in range(0, len(one.plain), 32)} & {
            other.plain[start : start + 32] for start in range(0, len(other.plain), 32)
        }


def test_what_is_left_of_a_party_that_has_sent_is_nothing() -> None:
    protocol = opened()
    party = protocol.party(1, SecretStream())
    assert party.seeds
    party.submit(np.arange(8, dtype=np.uint64))
    party.forget_vector()
    other = protocol.party(2, SecretStream())
    other.submit(np.ones(8, dtype=np.uint64))
    other.forget_vector()
    assert party.dump() == other.dump()
    with pytest.raises(Aborted, match="sent and deleted"):
        party.submit(np.arange(8, dtype=np.uint64))


def test_what_is_left_of_a_node_that_has_revealed_its_part_is_that_part() -> None:
    """Party 4 is heard by two nodes only. Of the others more noise seeds are shared than are opened."""
    protocol = opened(parties=5, dropouts=2)
    rows = np.arange(40, dtype=np.uint64).reshape(5, 8)
    post(protocol, rows[:4])
    for envelope in protocol.party(4, SecretStream()).submit(rows[4])[:2]:
        protocol.nodes[envelope.to].step(envelope.body)
    secrets = {number: [each.plain for each in node_of(protocol, number).state.waiting.values()] for number in range(3)}
    assert (run(protocol) == rows[:4].sum(axis=0)).all()
    opened_bytes = 32 * len(protocol.session.opened(4))
    assert 0 < opened_bytes < 32 * protocol.session.components
    for number, plains in secrets.items():
        node = node_of(protocol, number)
        kept, dumped = node.state.opened + protocol.session.pack(node.state.total), node.dump()
        # Every word of a share, and every noise seed that stayed closed.
        for plain in plains:
            for start in range(0, len(plain), 32):
                word = plain[start : start + 32]
                assert word not in dumped or word in kept
        assert node.state.waiting == node.state.faults == {}
        assert not node.state.noise.size


def test_what_is_left_of_a_node_that_has_given_up_is_no_share() -> None:
    protocol = opened()
    post(protocol, np.arange(40, dtype=np.uint64).reshape(5, 8))
    node = node_of(protocol, 0)
    asked(protocol, 0, Fold(asked(protocol, 0, Roll()).keys[:2]))
    plain = node.state.waiting[4].plain
    total = protocol.session.pack(node.state.total)
    assert plain in node.dump()
    with pytest.raises(Aborted):
        asked(protocol, 0, Propose(bytes(1), bytes(32 * NODES)))
    assert plain[:32] not in node.dump()
    assert total not in node.dump()
    with pytest.raises(Aborted, match="only 0 of 5"):
        asked(protocol, 0, Roll())
