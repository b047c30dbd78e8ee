"""Compute nodes against a coordinator that lies, against corrupt nodes, and against parties that send two splittings.

Written down: the adversary plays the coordinator as it likes, holds the keys of the corrupt nodes and of the colluding
parties, carries, repeats and withholds all messages, and starts nodes again. It must learn one total in an attempt, of
the planned number of parties at least. Each attack fails below its bound, and succeeds above it where there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest

from adversaries.lying_nodes import NodeStage, session
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Coordinator, Endpoint, Envelope, Rejected, address_of
from unspoken.summation.evidence import convicted
from unspoken.summation.keys import public_key
from unspoken.summation.node_messages import (
    Agreed,
    Fold,
    Folded,
    PartialTotal,
    Propose,
    Reveal,
    Roll,
    Share,
    SignedKey,
    address,
    key_statement,
)
from unspoken.types import Words

EVERYONE = range(5)


# Second totals


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


# Different lists


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


# Two splittings


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


@pytest.mark.parametrize("settle_between", [False, True])
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
    assert coordinator.blamed == ({address_of(party): "signed two one-time keys"} if blamed else {})
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
    assert str(caught.value).endswith("To blame: party 4 (signed two one-time keys)")
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


# Bad keys and shares


LOW_ORDER = [bytes(32), bytes([1]) + bytes(31)]


@pytest.mark.parametrize("key", [*LOW_ORDER, b"short", bytes(33)], ids=["zero", "one", "short", "long"])
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
    assert coordinator.blamed == ({"party:2": "signed a one-time key of low order"} if len(key) == 32 else {})
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


# Any moves


class RandomCoordinator:
    """Chooses its moves at random. What honest nodes reveal must be for one list."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        nodes, per_party, corrupt = [(3, 3, 2), (3, 3, 1), (3, 2, 0), (4, 3, 1)][int(self.rng.integers(0, 4))]
        self.stage = NodeStage(session(6, 2), nodes, per_party, set(self.rng.permutation(nodes)[:corrupt].tolist()))
        self.shares = [self.stage.messages(party) for party in range(6)] + [self.stage.messages(5)]
        self.proposals: list[Propose] = []
        self.signed: dict[tuple[int, bytes], bytes] = {}
        self.revealed: dict[int, tuple[bytes, Words]] = {}
        self.accepted = 0

    def play(self) -> None:
        for share in self.shares:
            for number, body in share.items():
                if self.rng.random() < 0.9:
                    self.attempt(lambda number=number, body=body: self.stage.endpoints[number].step(body))
        for _ in range(40):
            self.attempt(self.move)

    def attempt(self, move: Callable[[], object]) -> None:
        try:
            move()
            self.accepted += 1
        except (Rejected, Aborted):
            pass

    def move(self) -> None:
        stage, number = self.stage, int(self.rng.choice(self.stage.honest))
        match int(self.rng.integers(0, 6)):
            case 0:
                held = stage.held(number)
                some = [party for party in held if self.rng.random() < 0.8]
                assert isinstance(stage.say(number, Fold([held[party] for party in some])), Folded)
            case 1 | 2:
                if len(self.proposals) < 4 or self.rng.random() < 0.1:
                    self.proposals.append(stage.proposal(self.rng.permutation(6)[: self.rng.integers(3, 7)].tolist()))
                proposal = self.proposals[int(self.rng.integers(0, len(self.proposals)))]
                self.signed[number, stage.statement(proposal)] = stage.signature(number, proposal)
            case 3 | 4 if self.proposals:
                self.reveal(number)
            case _:
                stage.restart(number)

    def reveal(self, number: int) -> None:
        proposal = self.proposals[int(self.rng.integers(0, len(self.proposals)))]
        statement = self.stage.statement(proposal)
        signatures = [
            self.stage.signature(each, proposal) if each in self.stage.corrupt else self.signed.get((each, statement))
            for each in range(self.stage.nodes)
        ]
        part = self.stage.reveal(number, [signature or bytes(64) for signature in signatures])
        self.revealed[number] = (statement, part)


def play(seed: int) -> bool:
    """Play one run, and check what must hold, whatever was said. Did a list open?"""
    player = RandomCoordinator(seed)
    player.play()
    statements = {statement for statement, _ in player.revealed.values()}
    assert len(statements) <= 1, f"seed {seed}: two lists were opened"
    for statement in statements:
        flags = np.unpackbits(np.frombuffer(statement[-33:-32], dtype=np.uint8))[:6]
        assert flags.sum() >= 4, f"seed {seed}: a list below the least was opened"
        for number in player.revealed:
            mine = [player.stage.uses(party, number) for party in range(6)]
            counted = player.stage.endpoints[number].state.counted
            assert (counted == flags.astype(bool) & mine).all(), f"seed {seed}: node {number} counted others"
    return bool(statements)


def test_a_coordinator_that_plays_at_random_opens_one_list(seeds: Callable[[int, int], range]) -> None:
    """The seed of a run that breaks something is in the failure."""
    assert sum(play(seed) for seed in seeds(40, 300)) >= 3
