"""What a curious minority of talliers and the coordinator see of a secure vote tells them nothing but the winners.

The adversary, written down: t of 2t + 1 talliers keep to the protocol and put together all that they get; the
coordinator plays as it likes and carries every message. Keys are fixed where a test is statistical, so that a failure
is a change of the code; its false-alarm rate is for fresh keys. That the words of the rounds can be explained by any
other totals is shown in test_replicated_secrecy; here it is shown that these words are what travels.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from scipy import stats

from unspoken.noise.stream import SecretStream
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import PeerMessage, Poll, address
from unspoken.summation.base import (
    Rejected,
)
from unspoken.summation.keys import Channel, agreement_key
from unspoken.summation.masks import add_masks
from unspoken.summation.tallier_state import TallierState
from unspoken.types import Words
from votes import EACH_NUMBER, MANY_ARE_RARE, Vote, random_ballots


@MANY_ARE_RARE
@pytest.mark.parametrize("value", [0, 2**40 // 3])
def test_all_that_a_tallier_receives_is_uniform(talliers: int, value: int) -> None:
    """Every ballot the same number, 4,096 times: χ² of the bytes of each message; false alarms 1 in 10,000.

    What it receives: the parts that parties sent it, and from each of the t talliers after it one message a round.
    """
    vote = Vote(parties=talliers, queries=4096, classes=2, name=f"uniform/{value}", talliers=talliers)
    vote.hold(np.full((talliers, 4096, 2), value))
    received = [words for state in vote.last.values() for turn in state.received for words in turn]
    assert len(received) == talliers * vote.sharing.threshold * vote.poll.rounds
    received = list(set(received))
    explicit = [part for state in vote.last.values() for _, part in state.ballots.values() if len(part) > 32]
    assert len(received) == talliers * vote.poll.rounds
    assert len(explicit) == talliers
    for words in received + explicit:
        counts = np.bincount(np.frombuffer(words, dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4 / len(received + explicit)


def part_of(state: TallierState, party: int, length: int) -> Words:
    """What a tallier knows of a party's ballots."""
    part, session = state.ballots[party][1], Poll("", "", 1, 1, length, 2, 0).session
    if len(part) > 32:
        return np.frombuffer(part, dtype="<u8").copy()
    return add_masks(np.zeros(2 * length, dtype=np.uint64), [(part, True)], session)


@MANY_ARE_RARE
def test_what_all_but_one_tallier_hold_of_a_ballot_adds_up_to_noise(talliers: int) -> None:
    """χ² of the sum of their parts of one party; false alarms 1 in 10,000. All together know every ballot."""
    vote = Vote(parties=3, queries=2048, classes=2, name="held", talliers=talliers)
    ballots = np.full((3, 2048, 2), 2**39)
    vote.submit(ballots)
    for party in range(3):
        parts = [part_of(vote.tallier(index).state, party, 2048) for index in vote.talliers]
        total = np.sum(parts, axis=0, dtype=np.uint64)
        assert (total.view(np.int64).reshape(2048, 2) == ballots[party]).all()
        for part in parts:
            counts = np.bincount((total - part).view(np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-4 / (3 * talliers)


@EACH_NUMBER
def test_the_coordinator_that_carries_the_messages_cannot_read_them(talliers: int) -> None:
    """Nothing that a tallier opened, of parties or of other talliers, occurs in what went over the wire."""
    vote = Vote(queries=50, talliers=talliers)
    vote.hold(random_ballots(queries=50))
    wire = b"".join(envelope.body for envelope in vote.seen)
    states = vote.last.values()
    plain = [words[:16] for state in states for turn in state.received for words in turn]
    plain += [part[:16] for state in states for _, part in state.ballots.values()]
    plain += [agreement.seed[:16] for state in states for agreement in state.agreements.values()]
    plain += [key for state in states for agreement in state.agreements.values() for key in agreement.keys]
    sharing = vote.sharing
    keys = len(sharing.masked) * (sharing.threshold + 1) * sharing.threshold
    assert len(plain) == talliers * (sharing.threshold * vote.poll.rounds + 5 + talliers - 1) + keys
    assert not [words for words in plain if words in wire]


@EACH_NUMBER
def test_the_key_of_a_share_is_known_to_its_holders_only(talliers: int) -> None:
    """All of them put something into it, and to t talliers everything about the key of the share they lack is new."""
    vote = Vote(talliers=talliers)
    vote.hold(random_ballots())
    keys, told = [], []
    for index in vote.talliers:
        tallier = vote.tallier(index)
        tallier.state = vote.last[address(index)]
        keys.append(tallier._group_keys())
        told.append({group: tallier._contribution(group) for group in keys[-1]})
    for group in vote.sharing.masked:
        holders = vote.sharing.holders(group)
        assert len({keys[index][group] for index in holders}) == 1
        assert len({told[index][group] for index in holders}) == len(holders)
        secret = [keys[holders[0]][group], *(told[index][group] for index in holders)]
        for index in group:
            assert group not in keys[index]
            received = [key for agreement in vote.last[address(index)].agreements.values() for key in agreement.keys]
            assert not set(secret) & set(received)
    for index, peer in itertools.permutations(vote.talliers, 2):
        tallier = vote.tallier(index)
        contributed = tallier.state.agreements[peer].keys
        right, contributed[:] = list(contributed), [bytes(32)] * len(contributed)
        changed = {group for group, key in tallier._group_keys().items() if key != keys[index][group]}
        assert changed == set(tallier._common(peer))
        contributed[:] = right
    common = [key for held in keys for key in held.values()]
    assert len(set(common)) == len(vote.sharing.masked)


@EACH_NUMBER
def test_the_key_of_a_pair_is_known_to_both_and_for_one_purpose(talliers: int) -> None:
    vote = Vote(talliers=talliers)
    vote.deliver(vote.coordinator.settle())
    keys = set()
    for one, other in itertools.combinations(vote.talliers, 2):
        for purpose, sender, receiver in (("zero", one, other), ("seal", one, other), ("seal", other, one)):
            known = {vote.tallier(index)._pair_key(purpose, sender, receiver) for index in (one, other)}
            assert len(known) == 1
            keys |= known
    assert len(keys) == 3 * talliers * (talliers - 1) // 2


@pytest.mark.parametrize("talliers", [3, 5])
def test_the_keys_of_a_vote_are_new_in_each_vote(talliers: int) -> None:
    """The same talliers, study and vote once more: what they say to each other is under other keys."""
    first, second = Vote(talliers=talliers), Vote(talliers=talliers)
    for index in first.talliers:
        second.tallier(index).state.secret = SecretStream().key()
    for vote in (first, second):
        vote.hold(random_ballots())
    one, other = (
        {words for state in vote.last.values() for turn in state.received for words in turn} for vote in (first, second)
    )
    assert not one & other


@EACH_NUMBER
def test_a_tallier_that_is_done_remembers_no_share_and_no_key(talliers: int) -> None:
    vote = Vote(talliers=talliers)
    vote.hold(random_ballots())
    for index in vote.talliers:
        tallier, before = vote.tallier(index), vote.last[address(index)]
        state, dumped = tallier.state, tallier.dump()
        assert before.secret not in dumped
        assert before.root not in dumped
        assert (state.ballots, state.received, state.agreements, state.seed, state.root) == ({}, [], {}, b"", b"")
        assert not tallier._pair_keys


def test_the_channels_between_talliers_are_not_those_to_the_coordinator() -> None:
    """An introduction counts only if the tallier itself wrapped it: the coordinator's key will not do."""
    vote = Vote()
    body = msgspec.msgpack.encode(messages.Introduction(bytes(32), bytes(32)))
    forged = Channel(
        SecretStream().key(), agreement_key(vote.protocol.keys.roster.helpers[0]), "", address(1), address(0)
    ).wrap(body)
    with pytest.raises(Rejected, match="from tallier:1 failed authentication"):
        vote.tallier(0).step(vote.frame(0, PeerMessage(1, 0, memoryview(forged))))
