"""Compute nodes against a coordinator that lies and against corrupt nodes: one total of enough parties, or none.

Written down: the adversary plays the coordinator as it likes, holds the keys of the corrupt nodes, carries, repeats and
withholds all messages, and starts nodes again. It must learn one total in an attempt, of the planned number of parties
at least. Each attack fails below its bound, and succeeds above it where there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from adversaries.lying_nodes import NodeStage, session
from adversaries.random_nodes import play
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Rejected
from unspoken.summation.node_messages import (
    Fold,
    PartialTotal,
    Reveal,
    Share,
    SignedKey,
)

EVERYONE = range(5)


def test_shares_of_one_attempt_are_worth_nothing_in_another() -> None:
    """A run ends, and the coordinator has its nodes add up the same shares again, without party 0's."""
    keys = SecretStream().key()
    first, second = (NodeStage(session(5, 1), keys=SecretStream(keys)) for _ in range(2))
    shares = first.post()
    assert (first.open(EVERYONE) == first.total_of(EVERYONE)).all()
    for _, number, body in shares:
        share = msgspec.msgpack.decode(body, type=Share)
        with pytest.raises(Rejected, match="another study or another sum"):
            second.endpoints[number].step(body)
        renamed = Share(second.label, share.sender, share.node, share.key, share.signature, share.sealed)
        with pytest.raises(Rejected, match="signature of party"):
            second.endpoints[number].step(msgspec.msgpack.encode(renamed))


def test_signatures_of_one_attempt_are_worth_nothing_in_another() -> None:
    """Even if all parties send the same vectors under the same keys."""
    keys = SecretStream().key()
    first, second = (NodeStage(session(5, 1), corrupt={1, 2}, keys=SecretStream(keys)) for _ in range(2))
    for stage, party in itertools.product((first, second), EVERYONE):
        for envelope in stage.simulated.party(party, SecretStream(bytes([party]) * 32)).submit(stage.rows[party]):
            stage.endpoints[int(envelope.to.split(":")[1])].step(envelope.body)
    old, proposal = first.signatures(first.proposal(EVERYONE)), second.proposal(EVERYONE)
    assert first.proposal(EVERYONE) == proposal
    second.signatures(proposal)
    with pytest.raises(Rejected, match="signature of node 0"):
        second.reveal(0, old)


@pytest.mark.parametrize("forgetful", [{0}, {1}, {0, 1}])
def test_a_second_total_needs_all_honest_nodes_to_lose_their_state(forgetful: set[int]) -> None:
    """Nodes 0 and 1 are honest. Who has lost its state counts, signs and reveals a second time, without party 0."""
    stage = NodeStage(session(5, 1), corrupt={2})
    shares = stage.post()
    first = stage.open(EVERYONE)
    for number in forgetful:
        stage.endpoints[number] = stage.new_node(number)
    for party, number, body in shares:
        if number in forgetful and party != 0:
            stage.endpoints[number].step(body)
    if forgetful == {0, 1}:
        signatures = stage.signatures(stage.proposal(EVERYONE[1:]))
        second = sum(stage.reveal(number, signatures) for number in stage.honest) + stage.known(EVERYONE[1:])
        assert (first - second == stage.rows[0]).all()
        return
    with pytest.raises(Aborted, match="second list of survivors"):
        stage.signatures(stage.proposal(EVERYONE[1:]))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("corrupt", [set(), {1}, {1, 2}])
def test_a_node_reveals_one_total_and_repeats_it(corrupt: set[int], restarted: bool) -> None:
    stage = NodeStage(session(5, 1), corrupt=corrupt)
    stage.post()
    smaller, everyone = stage.proposal(EVERYONE[1:]), stage.proposal(EVERYONE)
    signatures = stage.signatures(smaller)
    part = stage.reveal(0, signatures)
    if restarted:
        stage.restart(0)
    assert (stage.reveal(0, signatures) == part).all()
    assert stage.signature(0, smaller) == signatures[0]
    with pytest.raises(Rejected, match="not heard from"):
        stage.say(0, Fold([SignedKey(0, bytes(32), bytes(64))]))
    with pytest.raises(Aborted, match="second list of survivors, and refuses") as caught:
        stage.say(0, everyone)
    assert caught.value.blamed == (COORDINATOR,)
    with pytest.raises(Aborted, match="second list of survivors"):
        stage.reveal(0, signatures)


def test_no_list_below_the_planned_number_is_signed() -> None:
    stage = NodeStage(session(5, 1), corrupt={1, 2})
    stage.post()
    with pytest.raises(Aborted, match="only 3 of 5 parties are left"):
        stage.signatures(stage.proposal([0, 1, 2]))
    with pytest.raises(Aborted, match="only 3 of 5"):
        stage.signatures(stage.proposal(EVERYONE))


@pytest.mark.parametrize("signed", [[], [0, 1], [0, 1, 2, 2]], ids=["none", "too few", "too many"])
def test_nothing_is_revealed_without_the_signatures_of_all_nodes(signed: list[int]) -> None:
    stage = NodeStage(session(5, 1), corrupt={1, 2})
    stage.post()
    signatures = stage.signatures(stage.proposal(EVERYONE))
    with pytest.raises(Rejected, match="before all nodes had signed"):
        stage.reveal(0, [signatures[number] for number in signed])
    with pytest.raises(Rejected, match="signature of node 1"):
        stage.reveal(0, [signatures[0], signatures[0], signatures[2]])
    stage.reveal(0, signatures)


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_each_node_s_signature_counts(nodes: int) -> None:
    """Whichever node has not signed, and whichever other one's signature stands in its place."""
    stage = NodeStage(session(5, 1), nodes, nodes, corrupt=set(range(1, nodes)))
    stage.post()
    signatures = stage.signatures(stage.proposal(EVERYONE))
    for missing in range(nodes):
        forged = [signatures[(missing + 1) % nodes] if node == missing else signatures[node] for node in range(nodes)]
        with pytest.raises(Rejected, match=f"signature of node {missing}"):
            stage.reveal(0, forged)
    stage.reveal(0, signatures)


def test_nothing_is_revealed_by_a_node_that_has_not_signed() -> None:
    stage = NodeStage(session(5, 1), corrupt={1, 2})
    stage.post()
    proposal = stage.proposal(EVERYONE)
    forged = [stage.simulated.keys.helper(number).sign(stage.statement(proposal)) for number in range(3)]
    with pytest.raises(Rejected, match="before all nodes had signed"):
        stage.reveal(0, forged)


def test_a_coordinator_cannot_leave_out_other_parties_at_each_node() -> None:
    """Three nodes, two for each of six parties, two dropouts allowed. Nodes 0 and 2 are each told that the two parties
    they share with node 1 are gone: their parts would add up to the sum over two parties. Both sign, neither reveals.
    """
    stage = NodeStage(session(6, 2), nodes=3, per_party=2)
    stage.post()
    told = {0: stage.proposal([1, 2, 4, 5]), 1: stage.proposal(range(6)), 2: stage.proposal([0, 2, 3, 5])}
    signed = {number: stage.signature(number, proposal) for number, proposal in told.items()}
    for number in range(3):
        with pytest.raises(Rejected, match=f"signature of node {1 if number == 0 else 0}"):
            stage.reveal(number, [signed[each] for each in range(3)])


def test_a_node_that_signs_two_lists_does_not_join_them() -> None:
    """Nodes 0 and 1 are honest and are told different lists; node 2 signs both."""
    stage = NodeStage(session(5, 1), corrupt={2})
    stage.post()
    told = {0: stage.proposal(EVERYONE), 1: stage.proposal(EVERYONE[1:])}
    signed = {number: stage.signature(number, proposal) for number, proposal in told.items()}
    for number, proposal in told.items():
        signatures = [signed[0], signed[1], stage.signature(2, proposal)]
        with pytest.raises(Rejected, match=f"signature of node {1 - number}"):
            stage.reveal(number, signatures)


@pytest.mark.parametrize("corrupt", [{1}, {1, 3}])
def test_a_sum_splits_if_two_parties_have_no_common_honest_node(corrupt: set[int]) -> None:
    """Four nodes, three for each party: one may be corrupt, since 2·3 > 4 + 1. With two corrupt ones, and parties 0, 2,
    4 and 6 on its side, the coordinator gets the sum over parties 1 and 5 from the part of node 2."""
    stage = NodeStage(session(8, 0, colluding=4), nodes=4, per_party=3, corrupt=corrupt)
    stage.post()
    shares = {(number, party): stage.share(number, party) for number, party in pairs(stage)}
    signatures = stage.signatures(stage.proposal(range(8)))
    part = stage.reveal(2, signatures)
    theirs = sum(shares[2, party] for party in (0, 2, 4, 6))
    corrupted = sum(shares[number, party] for number, party in shares if number in corrupt and party in (1, 5))
    assert (part - theirs + corrupted == stage.total_of([1, 5])).all() == (len(corrupt) == 2)


def pairs(stage: NodeStage) -> list[tuple[int, int]]:
    everyone = itertools.product(range(stage.nodes), range(stage.agreed.parties))
    return [(number, party) for number, party in everyone if stage.uses(party, number)]


@pytest.mark.parametrize("corrupt", [set(), {1}, {1, 2, 3}])
def test_no_noise_is_opened_for_survivors_that_are_none(corrupt: set[int]) -> None:
    """Five nodes, three for each of ten parties, so none may be corrupt. Parties 1 and 6, which use nodes 1, 2 and 3,
    never sent anything. Whoever takes them for survivors opens components that the others' noise still needs."""
    schedule = NoiseSchedule.plan(10, 1, 2, 1e6, 1.0)
    stage = NodeStage(session(10, 2, schedule=schedule), nodes=5, per_party=3, corrupt=corrupt)
    stage.post(party for party in range(10) if party not in (1, 6))
    invented = {party: SignedKey(party, bytes([party]) * 32, bytes(64)) for party in (1, 6)}
    proposal = stage.proposal(range(10), invented)
    if corrupt == {1, 2, 3}:
        signatures = stage.signatures(proposal)
        part: PartialTotal = stage.say(0, Reveal(signatures))
        assert len(part.opened) == 32 * len(schedule.opened(10)) * 6 > 32 * len(schedule.opened(8)) * 6
        return
    with pytest.raises(Aborted, match="counted other parties than the coordinator names"):
        stage.signatures(proposal)


@pytest.mark.parametrize("sent", [8, 9, 10])
def test_noise_is_opened_for_as_many_as_are_in_the_list_and_no_more(sent: int) -> None:
    schedule = NoiseSchedule.plan(10, 1, 2, 1e6, 1.0)
    stage = NodeStage(session(10, 2, schedule=schedule), corrupt={1, 2})
    stage.post(range(sent))
    part: PartialTotal = stage.say(0, Reveal(stage.signatures(stage.proposal(range(sent)))))
    assert len(part.opened) == 32 * len(schedule.opened(sent)) * sent
    assert len(schedule.opened(8)) < len(schedule.opened(10))


def test_a_coordinator_that_plays_at_random_opens_one_list(seeds: Callable[[int, int], range]) -> None:
    """The seed of a run that breaks something is in the failure."""
    assert sum(play(seed) for seed in seeds(40, 300)) >= 3
