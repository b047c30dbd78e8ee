"""The stages of a secure vote: one list is counted, each endpoint survives a restart, and a dead tallier is named."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from unspoken.noise.stream import SecretStream
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import Agreement, Count, Framed, Opening, PeerMessage, address
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Envelope,
    Rejected,
)
from votes import EACH_NUMBER, EACH_TALLIER, Vote, assert_largest, random_ballots


def test_too_few_parties_are_not_counted_whoever_asks() -> None:
    vote, ballots = Vote(least=4), random_ballots()
    vote.submit(ballots[:3])
    vote.deliver(vote.coordinator.settle())
    with pytest.raises(Aborted, match="only 3 of 5 parties"):
        vote.coordinator.finish()
    with pytest.raises(Aborted, match="only 3 of 5 parties"):
        vote.tallier(0).step(vote.frame(0, vote.list_of(0, 1, 2)))


@EACH_TALLIER
def test_talliers_that_are_told_different_lists_notice(talliers: int, index: int) -> None:
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.coordinator.finish()
    lists = [vote.list_of(0, 1, 2, 4 if tallier == index else 3) for tallier in vote.talliers]
    with pytest.raises(Aborted, match=r"tallier:. counts other parties"):
        vote.deliver([Envelope(address(tallier), vote.frame(tallier, which)) for tallier, which in enumerate(lists)])
    assert not any(state.received for state in vote.last.values())


def test_talliers_count_one_list_only_and_say_the_same_again() -> None:
    vote = Vote()
    winners = vote.hold(random_ballots())
    again = vote.tallier(1).step(vote.frame(1, vote.list_of(*range(5))))
    opening = vote.read(again[0])
    assert isinstance(opening, Opening)
    assert bytes(opening.shares) == vote.coordinator.state.openings[1]
    with pytest.raises(Aborted, match="second, different list"):
        vote.tallier(1).step(vote.frame(1, vote.list_of(0, 1, 2, 3)))
    assert (vote.coordinator.winners() == winners).all()


def test_a_count_that_names_an_unknown_party_or_comes_too_early_is_rejected() -> None:
    vote = Vote()
    vote.submit(random_ballots()[:4])
    with pytest.raises(Rejected, match="before the talliers know each other"):
        vote.tallier(0).step(vote.frame(0, vote.list_of(0, 1, 2)))
    vote.deliver(vote.coordinator.settle())
    with pytest.raises(Rejected, match="has not heard from"):
        vote.tallier(0).step(vote.frame(0, vote.list_of(0, 1, 4)))
    with pytest.raises(Rejected, match="list of parties"):
        vote.tallier(0).step(vote.frame(0, Count(b"\xff\xff", b"", b"", True)))
    assert_largest(vote.count(), random_ballots()[:4].sum(axis=0))


def test_ballots_that_come_after_the_count_has_begun_are_rejected() -> None:
    vote = Vote()
    vote.submit(random_ballots()[:4])
    vote.count()
    for envelope in vote.party(4).submit(random_ballots()[4]):
        with pytest.raises(Rejected, match="after the count had begun"):
            vote.endpoints[envelope.to].step(envelope.body)


def test_a_party_asked_again_repeats_itself() -> None:
    vote, ballots = Vote(), random_ballots()
    party = vote.party(0)
    assert party.submit(ballots[0]) == party.submit(ballots[1])
    party.forget_vector()
    with pytest.raises(Aborted, match="sent and deleted"):
        party.submit(ballots[0])


@EACH_TALLIER
def test_a_tallier_cannot_choose_its_seed_after_the_others(talliers: int, index: int) -> None:
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.tallier(index).state.seed = bytes(32)
    with pytest.raises(Aborted, match=f"tallier:{index} reveals a seed that does not match"):
        vote.deliver(vote.coordinator.finish())


@EACH_TALLIER
@pytest.mark.parametrize("wrong", [[bytes(32)] * 4, [bytes(31)] * 3])
def test_keys_that_are_not_those_due_end_the_vote(talliers: int, index: int, wrong: list[bytes]) -> None:
    vote = Vote(talliers=talliers)
    tallier = vote.tallier(index)
    original = tallier._to_peer

    def altered(peer: int, number: int, plain: bytes) -> Envelope:
        if number == messages.AGREEMENT:
            agreement = msgspec.msgpack.decode(plain, type=Agreement)
            plain = msgspec.msgpack.encode(msgspec.structs.replace(agreement, keys=wrong))
        return original(peer, number, plain)

    tallier._to_peer = altered  # type: ignore[method-assign]
    with pytest.raises(Aborted, match=f"tallier:{index} did not send the"):
        vote.hold(random_ballots())


@EACH_NUMBER
def test_no_ballots_are_combined_before_all_seeds_are_known(talliers: int) -> None:
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    *others, last = vote.coordinator.finish()
    vote.deliver(others)
    assert all(vote.tallier(index)._computation is None for index in vote.talliers)
    vote.deliver([last])
    assert_largest(vote.coordinator.winners(), random_ballots().sum(axis=0))


@pytest.mark.parametrize(("talliers", "classes"), [(3, 2), pytest.param(3, 5, marks=pytest.mark.long), (5, 2)])
def test_endpoints_go_on_after_being_dumped_and_loaded_between_any_two_steps(
    talliers: int, classes: int, runs: Callable[[int, int], int]
) -> None:
    """New processes with the same keys after every message of three talliers, and after some of five: the same winners,
    ties and all."""
    ballots = np.random.default_rng(0).integers(0, 2, (5, 30, classes))
    usual, vote = (Vote(queries=30, classes=classes, talliers=talliers) for _ in range(2))
    loads = 0

    def reload() -> None:
        nonlocal loads
        loads += 1
        if talliers > 3 and loads % runs(10, 3):
            return
        fresh = Vote(queries=30, classes=classes, talliers=talliers)
        for name, endpoint in vote.endpoints.items():
            fresh.endpoints[name].load(endpoint.dump())
            assert fresh.endpoints[name].dump() == endpoint.dump()
        vote.endpoints, vote.coordinator = fresh.endpoints, fresh.coordinator

    vote.after_each = reload
    party = vote.party(0)
    envelopes = party.submit(ballots[0])
    resumed = vote.protocol.party(0, SecretStream())
    resumed.load(party.dump())
    assert resumed.submit(ballots[0]) == envelopes
    assert (vote.hold(ballots) == usual.hold(ballots)).all()
    assert loads > 2 * talliers * vote.poll.rounds


@EACH_TALLIER
@pytest.mark.parametrize("turn", [0, 1, 2, 3, 10, -1])
def test_when_a_tallier_dies_there_are_no_winners_and_it_is_named(talliers: int, index: int, turn: int) -> None:
    """It falls silent before the last message of a turn: to all others it introduces itself, then agrees with all on
    what is counted, then sends words to t of them in each round."""
    vote, said = Vote(talliers=talliers), 0
    turns = [talliers - 1] * 2 + [vote.sharing.threshold] * vote.poll.rounds
    heard = sum(turns[: turn % len(turns) + 1]) - 1

    def mute(envelope: Envelope) -> list[Envelope]:
        nonlocal said
        if envelope.to != COORDINATOR:
            return [envelope]
        if msgspec.msgpack.decode(envelope.body, type=Framed).tallier != index:
            return [envelope]
        if isinstance(vote.read(envelope), PeerMessage):
            said += 1
        return [envelope] if said <= heard else []

    vote.alter = mute
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    if turn == 0:
        assert vote.coordinator.waiting_for == [address(index)]
        with pytest.raises(Aborted, match=f"^no list of ballots came from {address(index)}; nothing") as ended:
            vote.coordinator.finish()
        assert list(ended.value.blamed) == [address(index)], "the others only wait for it"
        return
    assert vote.coordinator.waiting_for == []
    vote.deliver(vote.coordinator.finish())
    assert vote.coordinator.waiting_for == [address(index)]
    known = "count the vote as spent" if vote.coordinator.state.openings else "nothing was revealed"
    with pytest.raises(Aborted, match=f"no shares of the winners came from .*tallier:{index}.*; {known}"):
        vote.coordinator.winners()
    assert turn == -1 or not vote.coordinator.state.openings
