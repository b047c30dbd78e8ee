"""Parties that send bad ballots, and talliers that lie: a bad party loses its own ballots, a bad tallier is named.

What a minority of talliers learns by lying depends on the totals alone; one tallier more knows the totals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import msgspec
import numpy as np
import pytest

from adversaries.lying import LOW_ORDER
from adversaries.lying_votes import assert_proof, sender
from unspoken.noise.stream import SecretStream
from unspoken.summation import argmax as circuits
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import (
    Ballot,
    Held,
    Introduction,
    PeerMessage,
    address,
    explicit_part,
    sealing_key,
    statement,
)
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Envelope,
    Rejected,
)
from unspoken.summation.keys import agreement_key, public_key, seal
from unspoken.summation.replicated import Group, ReplicatedShares, SharedComputation
from unspoken.types import Integers, Words
from votes import EACH_TALLIER, MANY_ARE_RARE, Vote, assert_largest, random_ballots


@EACH_TALLIER
def test_a_party_with_two_keys_is_left_out_by_name_with_its_two_signatures(talliers: int, index: int) -> None:
    vote, ballots = Vote(talliers=talliers), random_ballots()
    vote.submit(ballots[:4])
    first, second = (vote.protocol.party(4, SecretStream()).submit(ballots[4]) for _ in range(2))
    vote.deliver([first[tallier] if tallier == index else second[tallier] for tallier in vote.talliers])
    assert_largest(vote.count(), ballots[:4].sum(axis=0))
    assert list(vote.coordinator.blamed) == ["party:4"]
    assert "two different keys" in vote.coordinator.blamed["party:4"]
    assert_proof(vote.coordinator.evidence, vote, "party:4")


def test_if_too_few_are_left_the_abort_names_those_with_two_keys() -> None:
    vote, ballots = Vote(least=5), random_ballots()
    vote.submit(ballots[:4])
    first, second = (vote.protocol.party(4, SecretStream()).submit(ballots[4]) for _ in range(2))
    vote.deliver([*first[:1], *second[1:]])
    vote.deliver(vote.coordinator.settle())
    with pytest.raises(Aborted, match="only 4 of 5 parties") as raised:
        vote.coordinator.agree()
    assert raised.value.blamed == ("party:4",)
    assert_proof(raised.value.evidence, vote, "party:4")


def test_a_party_that_sends_everyone_the_same_two_keys_is_counted_once() -> None:
    """All talliers take the first that comes to them: nobody can tell, and nothing is mixed."""
    vote, ballots = Vote(), random_ballots()
    vote.submit(ballots)
    again = vote.protocol.party(4, SecretStream()).submit(ballots[4] + 1)
    for envelope in again:
        with pytest.raises(Rejected, match="second message came from party 4"):
            vote.endpoints[envelope.to].step(envelope.body)
    assert_largest(vote.count(), ballots.sum(axis=0))
    assert vote.coordinator.blamed == {}


@EACH_TALLIER
@pytest.mark.parametrize("order", [1, -1])
def test_a_tallier_cannot_pin_a_second_key_on_a_party(talliers: int, index: int, order: int) -> None:
    """It says that it got another key, but has no signature of it: it is named itself, in whatever order all speak."""
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    liar = vote.tallier(index)
    liar.state.ballots[2] = bytes(32), liar.state.ballots[2][1]
    vote.pick = lambda waiting: 0 if order > 0 else waiting - 1
    with pytest.raises(Aborted, match=f"tallier:{index} names a key of party 2 that the party never signed") as raised:
        vote.deliver(vote.coordinator.settle())
    assert raised.value.blamed == (address(index),)
    with pytest.raises(Aborted, match="never signed"):
        vote.coordinator.finish()


def bad_ballots(vote: Vote, index: int) -> dict[str, bytes]:
    """Ballots of party 4 that it signed, and that are no ballots."""
    party, label = vote.party(4), vote.poll.session.label()

    def signed(key: bytes, sealed: bytes) -> bytes:
        signature = party._identity.sign(statement(label, 4, key))
        return msgspec.msgpack.encode(Ballot(label, 4, index, key, signature, sealed))

    def of_length(length: int) -> bytes:
        key, theirs = public_key(party.state.key), agreement_key(vote.protocol.keys.roster.helpers[index])
        return signed(key, seal(sealing_key(party.state.key, theirs, key, label, 4, index), 0, bytes(length)))

    right = 8 * vote.poll.session.length if explicit_part(4, vote.poll) == index else 32
    found = {f"low order {number}": signed(key, bytes(64)) for number, key in enumerate(LOW_ORDER)}
    found |= {"short key": signed(b"short", bytes(64)), "long key": signed(bytes(33), bytes(64))}
    found |= {"nothing sealed": signed(public_key(party.state.key), b"")}
    found |= {f"{length} bytes": of_length(length) for length in (0, right - 1, right + 1, right + 8)}
    return found


@EACH_TALLIER
def test_bad_keys_and_bad_ballots_cost_their_sender_only(talliers: int, index: int) -> None:
    vote, ballots = Vote(talliers=talliers), random_ballots()
    vote.submit(ballots[:4])
    tallier, before = vote.tallier(index), vote.tallier(index).dump()
    for name, bad in bad_ballots(vote, index).items():
        with pytest.raises(Rejected):
            tallier.step(bad)
        assert tallier.dump() == before, name
    # The other talliers get a good one, which then counts nowhere.
    vote.deliver([envelope for envelope in vote.party(4).submit(ballots[4]) if envelope.to != address(index)])
    assert_largest(vote.count(), ballots[:4].sum(axis=0))


@EACH_TALLIER
@pytest.mark.parametrize("key", [*LOW_ORDER, b"short"])
def test_a_tallier_with_an_invalid_key_is_named_by_the_others(talliers: int, index: int, key: bytes) -> None:
    vote = Vote(talliers=talliers)
    peer = (index + 1) % talliers
    body = vote.tallier(index)._introductions[peer].wrap(msgspec.msgpack.encode(Introduction(key, bytes(32))))
    with pytest.raises(Aborted, match=f"tallier:{index} introduced itself with an invalid key") as raised:
        vote.tallier(peer).step(vote.frame(peer, PeerMessage(index, messages.INTRODUCTION, memoryview(body))))
    assert raised.value.blamed == (address(index),)


@EACH_TALLIER
def test_a_tallier_that_says_what_is_not_understood_is_named(talliers: int, index: int) -> None:
    vote = Vote(talliers=talliers)
    liar, say = vote.tallier(index), vote.tallier(index)._to_peer
    liar._to_peer = lambda peer, number, plain: say(peer, number, b"sand" if number == 1 else plain)  # type: ignore[method-assign]
    with pytest.raises(Aborted, match=f"tallier:{index} sent what is not understood") as raised:
        vote.hold(random_ballots())
    assert raised.value.blamed == (address(index),)


@EACH_TALLIER
def test_a_tallier_that_lies_about_its_sum_sets_a_winner_unseen_and_so_does_a_party(talliers: int, index: int) -> None:
    """The stated limit. Everyone else is for class 1 in all queries; the liar wants 0, 2, 0, 2."""
    wish = np.zeros((4, 3), dtype=np.int64)
    wish[np.arange(4), [0, 2, 0, 2]] = 2**39
    for liar in ("tallier", "party"):
        vote, ballots = Vote(parties=talliers, talliers=talliers), np.tile([0, 1000, 0], (talliers, 4, 1))
        if liar == "party":
            ballots[0] += wish
        vote.submit(ballots)
        if liar == "tallier":
            held = vote.tallier(index).state.ballots
            key, part = held[index]
            held[index] = key, (np.frombuffer(part, dtype="<u8") + wish.ravel().view(np.uint64)).tobytes()
        assert vote.count().tolist() == [0, 2, 0, 2]


def view_of(vote: Vote, coalition: Iterable[int]) -> list[Any]:
    """All that talliers of the coalition and the coordinator have learnt: parts, words, keys and openings."""
    states = [vote.last[address(index)] for index in coalition]
    return [
        [(state.ballots, state.received, state.agreements, state.peers) for state in states],
        sorted(vote.coordinator.state.openings.items()),
    ]


@pytest.mark.parametrize(
    ("talliers", "coalition"),
    [
        pytest.param(n, c, marks=pytest.mark.long if number > 1 else ())
        for n in (3, 5)
        for number, c in enumerate(itertools.combinations(range(1, n), (n - 1) // 2))
    ],
)
@pytest.mark.parametrize("lies", [False, True])
def test_what_a_minority_learns_by_lying_depends_on_the_totals_alone(
    talliers: int, coalition: tuple[int, ...], lies: bool
) -> None:
    """Two parties exchange votes, which leaves the totals as they are: to t talliers nothing changes, bit for bit.

    The parts of both that are not seeds are with the same honest tallier, and all secrets are the same both times. The
    liars send wrong words in many rounds, to each receiver others, and keep the right ones.
    """
    views = []
    for moved in (0, 12345):
        vote, ballots = Vote(parties=talliers + 1, queries=8, talliers=talliers), random_ballots(talliers + 1, 8)
        ballots[0] += moved
        ballots[talliers] -= moved
        vote.submit(ballots)
        for index in coalition if lies else ():
            tell_lies(vote, index)
        vote.deliver(vote.coordinator.settle())
        vote.deliver(vote.coordinator.agree())
        with pytest.raises(Aborted, match=r"opened different shares|not classes") if lies else nullcontext():
            vote.deliver(vote.coordinator.finish())
        views.append(view_of(vote, coalition))
    assert views[0] == views[1]
    assert len(views[0][1]) == talliers


def tell_lies(vote: Vote, index: int) -> None:
    liar, say = vote.tallier(index), vote.tallier(index)._to_peer

    def lie(peer: int, number: int, plain: bytes) -> Envelope:
        if number >= messages.FIRST_ROUND and (number + peer) % 3 == 0:
            plain = bytes([plain[0] ^ (1 + index + 8 * peer)]) + plain[1:]
        return say(peer, number, plain)

    liar._to_peer = lie  # type: ignore[method-assign]


@MANY_ARE_RARE
def test_one_tallier_more_than_a_minority_knows_the_totals(talliers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of the totals, as each tallier has them: t + 1 add them up, and to t exactly one is missing."""
    vote, ballots, shares = Vote(queries=50, talliers=talliers), random_ballots(queries=50), {}
    honest, orders = circuits.argmax, []

    def watched(computation: SharedComputation, values: ReplicatedShares, names: Words) -> Any:
        shares[computation._index] = dict(zip(computation._held, values.words, strict=True))
        orders.append(names.astype(np.int64))
        return honest(computation, values, names)

    monkeypatch.setattr(circuits, "argmax", watched)
    assert_largest(vote.hold(ballots), ballots.sum(axis=0))
    totals = np.take_along_axis(ballots.sum(axis=0).T, orders[0], axis=0)
    for coalition in itertools.combinations(vote.talliers, vote.sharing.threshold + 1):
        assert (pooled(shares, coalition, vote) == totals).all()
        few = coalition[:-1]
        known = {group for index in few for group in shares[index]}
        assert set(vote.sharing.groups) - known == {tuple(few)}
        assert (pooled(shares, few, vote) != totals).all()


def pooled(shares: dict[int, dict[Group, Words]], coalition: Iterable[int], vote: Vote) -> Integers:
    """The sum of all shares that someone in the coalition has."""
    known: dict[Group, Words] = {}
    for index in coalition:
        known |= shares[index]
    total: Words = np.sum([known[group] for group in vote.sharing.groups if group in known], axis=0, dtype=np.uint64)
    return total.view(np.int64)


@EACH_TALLIER
def test_a_tallier_that_gives_up_keeps_no_secret(talliers: int, index: int) -> None:
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    before = vote.tallier(index).state
    secrets = [before.secret, before.root, before.seed, *(part[:16] for _, part in before.ballots.values())]
    vote.deliver(vote.coordinator.agree())
    with pytest.raises(Aborted):
        vote.tallier(index).step(vote.frame(index, vote.list_of(0, 1, 2)))
    dumped = vote.tallier(index).dump()
    assert not [secret for secret in secrets if secret in dumped]
    assert not vote.tallier(index)._pair_keys
    with pytest.raises(Aborted, match="second, different list"):
        vote.tallier(index).step(b"")


def test_ballots_that_a_tallier_names_are_told_once_and_again_if_asked() -> None:
    """Lists grow by what is new; a message that was lost or comes late changes nothing."""
    vote, ballots = Vote(), random_ballots()
    told: list[Held] = []

    def noted(envelope: Envelope) -> list[Envelope]:
        if envelope.to == COORDINATOR and isinstance(held := vote.read(envelope), Held) and sender(envelope) == 1:
            told.append(held)
            # The second is lost.
            return [] if len(told) == 2 else [envelope]
        return [envelope]

    vote.alter = noted
    for party in range(5):
        vote.deliver(vote.party(party).submit(ballots[party]))
        vote.deliver(vote.coordinator.settle())
    assert [(held.start, len(held.ballots)) for held in told] == [(0, 1), (1, 1), (1, 2), (3, 1), (4, 1)]
    assert_largest(vote.count(), ballots.sum(axis=0))
