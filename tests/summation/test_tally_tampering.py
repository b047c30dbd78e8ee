"""Ballots, shares and messages of a secure vote that were altered: noticed, and where possible by their sender's name.

Parties may send anything, and the coordinator may alter what it carries. Talliers keep to the protocol; one that sends
a wrong word before the opening is out of scope, and a test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damaging import damage
from unspoken.noise.stream import SecretStream
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import Ballot, Opening, PeerMessage, address
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Envelope,
    Rejected,
)
from unspoken.summation.masks import add_masks
from votes import EACH_NUMBER, EACH_TALLIER, MANY_ARE_RARE, Vote, assert_largest, random_ballots


@EACH_TALLIER
def test_a_party_that_sends_talliers_parts_of_different_ballots_is_left_out_by_all(talliers: int, index: int) -> None:
    """A party that started twice: parts of two submissions add up to garbage, and the one-time keys tell them apart."""
    vote, ballots = Vote(talliers=talliers), random_ballots()
    vote.submit(ballots[:4])
    first = vote.protocol.party(4, SecretStream()).submit(ballots[4])
    second = vote.protocol.party(4, SecretStream()).submit(ballots[4])
    vote.deliver([first[tallier] if tallier == index else second[tallier] for tallier in vote.talliers])
    assert_largest(vote.count(), ballots[:4].sum(axis=0))
    assert vote.coordinator.survivors().tolist() == [True] * 4 + [False]
    assert list(vote.coordinator.blamed) == ["party:4"]


@MANY_ARE_RARE
def test_whatever_a_party_sends_under_one_key_is_one_ballot(talliers: int) -> None:
    """Parts that it makes up, each sealed to its tallier: their sum is what is counted, and all shares agree on it."""
    vote, ballots = Vote(queries=50, talliers=talliers), random_ballots(queries=50)
    vote.submit(ballots[:4])
    party = vote.party(4)
    party.state.submitted = [
        party._sealed(index, bytes([index]) * (8 * 150 if index == 4 % talliers else 32)) for index in vote.talliers
    ]
    vote.deliver(party.submit(ballots[4]))
    parts = [np.frombuffer(bytes([4 % talliers]) * 8 * 150, dtype="<u8")]
    masks = [(bytes([index]) * 32, True) for index in vote.talliers if index != 4 % talliers]
    parts.append(add_masks(np.zeros(150, dtype=np.uint64), masks, vote.poll.session))
    # Totals that differ by 2⁶³ or more have no order: only those within the bounds are compared.
    sent = np.sum(parts, axis=0, dtype=np.uint64).view(np.int64).reshape(50, 3)
    winners, totals = vote.count(), ballots[:4].sum(axis=0) + sent
    near = (np.abs(totals) < 2**62).all(axis=1)
    assert_largest(winners[near], totals[near])
    assert near.any()


@EACH_TALLIER
def test_an_altered_ballot_is_rejected_by_its_senders_name(talliers: int, index: int) -> None:
    vote = Vote(talliers=talliers)
    envelope = vote.party(3).submit(random_ballots()[3])[index]
    ballot = msgspec.msgpack.decode(envelope.body, type=Ballot)
    altered: dict[str, dict[str, Any]] = {
        "message of party 3": {"sealed": ballot.sealed[:-1] + bytes([ballot.sealed[-1] ^ 1])},
        "signature of party 3": {"key": bytes(32)},
        "signature of party 4": {"sender": 4},
        "party 5; the study has 5 parties": {"sender": 5},
        f"for tallier {(index + 1) % talliers} came to tallier {index}": {"tallier": (index + 1) % talliers},
        "another study": {"session": "other"},
    }
    before = vote.tallier(index).dump()
    for complaint, change in altered.items():
        with pytest.raises(Rejected, match=complaint):
            vote.tallier(index).step(msgspec.msgpack.encode(msgspec.structs.replace(ballot, **change)))
    assert vote.tallier(index).dump() == before
    vote.tallier(index).step(envelope.body)
    with pytest.raises(Rejected, match="second message came from party 3"):
        vote.tallier(index).step(envelope.body)


def test_a_coordinator_cannot_invent_parties() -> None:
    vote, impostor = Vote(), Vote(name="impostor")
    for envelope in impostor.party(0).submit(random_ballots()[0]):
        with pytest.raises(Rejected, match="signature of party 0"):
            vote.endpoints[envelope.to].step(envelope.body)


def altered_words(vote: Vote, index: int, turn: int) -> None:
    """Tallier `index` sends a wrong word in one round, and goes on with the right one itself."""
    tallier = vote.tallier(index)
    original = tallier._round

    def wrong() -> list[Envelope]:
        right = tallier._sent
        if len(tallier.state.received) == turn:
            tallier._sent = right + right.dtype.type(1)
        envelopes = original()
        tallier._sent = right
        return envelopes

    tallier._round = wrong  # type: ignore[method-assign]


@EACH_TALLIER
def test_shares_that_do_not_agree_at_the_opening_are_noticed(talliers: int, index: int) -> None:
    """A wrong word in the last round is caught by the other talliers that hold the share."""
    vote = Vote(talliers=talliers)
    altered_words(vote, index, vote.poll.rounds - 1)
    with pytest.raises(Aborted, match="opened different shares") as raised:
        vote.hold(random_ballots())
    assert address(index) in str(raised.value)
    with pytest.raises(Aborted, match="opened different shares"):
        vote.coordinator.winners()


@pytest.mark.parametrize(
    ("talliers", "index"),
    [
        pytest.param(n, index, marks=pytest.mark.long if 0 < index < n - 1 and n > 3 else ())
        for n in (3, 5)
        for index in range(n)
    ],
)
def test_a_wrong_share_of_the_winners_is_noticed_whichever_it_is(talliers: int, index: int) -> None:
    held = len(Vote(talliers=talliers).sharing.held(index))
    for place in range(held):
        vote = Vote(talliers=talliers)
        original = vote.coordinator._take

        def wrong(tallier: int, opening: Opening, take: Callable[[int, Opening], None] = original) -> None:
            shares = bytearray(opening.shares)
            if tallier == index:
                shares[len(shares) // held * place] ^= 1  # noqa: B023
            take(tallier, Opening(memoryview(shares)))

        vote.coordinator._take = wrong  # type: ignore[method-assign]
        with pytest.raises(Aborted, match=f"tallier:{index}.* opened different shares"):
            vote.hold(random_ballots())


@EACH_TALLIER
def test_a_wrong_word_before_the_opening_is_out_of_scope(talliers: int, index: int) -> None:
    """Talliers are trusted to compute as agreed: one that counts other words than it got changes a winner unseen."""
    vote = Vote(parties=talliers, queries=1, classes=2, talliers=talliers)
    vote.submit(np.tile(np.array([[0, 1]]), (talliers, 1, 1)))
    held = vote.tallier(index).state.ballots
    key, part = held[index]
    held[index] = key, (np.frombuffer(part, dtype="<u8") + np.array([100, 0], dtype=np.uint64)).tobytes()
    assert vote.count().tolist() == [0]


@EACH_NUMBER
def test_winners_that_are_no_classes_are_noticed(talliers: int) -> None:
    vote = Vote(talliers=talliers)
    original, group = vote.coordinator._take, vote.sharing.groups[-1]

    def shifted(tallier: int, opening: Opening) -> None:
        shares = np.frombuffer(opening.shares, "<u8").reshape(-1, 4).copy()
        # One share, at all of its holders.
        if tallier not in group:
            shares[vote.sharing.held(tallier).index(group)] += np.uint64(3)
        original(tallier, Opening(memoryview(shares.tobytes())))

    vote.coordinator._take = shifted  # type: ignore[method-assign]
    with pytest.raises(Aborted, match="winners that are not classes"):
        vote.hold(random_ballots())


@EACH_TALLIER
def test_a_talliers_own_words_cannot_be_turned_back_to_it(talliers: int, index: int) -> None:
    """Each direction has its own key: with one for both, two messages would have the same key and number."""
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    sent = vote.tallier(index).step(vote.coordinator.finish()[index].body)
    assert len(sent) == talliers - 1
    for envelope in sent:
        relay = vote.read(envelope)
        assert isinstance(relay, PeerMessage)
        with pytest.raises(Rejected, match=f"message of tallier:{relay.peer} cannot be decrypted"):
            vote.tallier(index).step(vote.frame(index, relay))


@given(data=st.data())
def test_altered_truncated_and_random_messages_are_rejected_and_change_nothing(data: st.DataObject) -> None:
    """One message of a vote, of any kind and in any direction, arrives damaged first and then as it was sent."""
    talliers, messages_sent = data.draw(st.sampled_from([(3, 100), (5, 350)]))
    vote, ballots = Vote(parties=4, classes=2, talliers=talliers), random_ballots(4, 4, 2)
    attacked, counted = data.draw(st.integers(0, messages_sent + 10)), 0

    def damaged_first(envelope: Envelope) -> list[Envelope]:
        nonlocal counted
        if counted == attacked:
            before = {name: endpoint.dump() for name, endpoint in vote.endpoints.items()}
            if damaged := damage(envelope.body, data):
                with pytest.raises(Rejected):
                    vote.endpoints[envelope.to].step(damaged)
            assert {name: endpoint.dump() for name, endpoint in vote.endpoints.items()} == before
        counted += 1
        return [envelope]

    vote.alter = damaged_first
    assert_largest(vote.hold(ballots), ballots.sum(axis=0))
    assert counted >= messages_sent


@given(data=st.data())
def test_what_the_coordinator_alters_between_talliers_is_rejected(data: st.DataObject) -> None:
    """It can frame what it likes; it cannot make one tallier's words to another one's, or of another round."""
    talliers, relayed = data.draw(st.sampled_from([(3, 45), (5, 180)]))
    vote, ballots = Vote(parties=4, classes=2, talliers=talliers), random_ballots(4, 4, 2)
    attacked, counted = data.draw(st.integers(0, relayed - 1)), 0

    def relayed_first(envelope: Envelope) -> list[Envelope]:
        nonlocal counted
        relay = vote.read(envelope)
        if envelope.to == COORDINATOR or not isinstance(relay, PeerMessage):
            return [envelope]
        if counted == attacked:
            index = int(envelope.to[-1])
            kind = data.draw(st.sampled_from(["peer", "number", "body"]))
            peer = (
                data.draw(st.integers(-1, talliers).filter(lambda n: n != relay.peer)) if kind == "peer" else relay.peer
            )
            number = data.draw(st.integers(-1, 20).filter(lambda n: n != relay.number))
            number = number if kind == "number" else relay.number
            body = memoryview(damage(bytes(relay.body), data) if kind == "body" else bytes(relay.body))
            before = vote.tallier(index).dump()
            with pytest.raises(Rejected):
                vote.tallier(index).step(vote.frame(index, PeerMessage(peer, number, body)))
            assert vote.tallier(index).dump() == before
        counted += 1
        return [envelope]

    vote.alter = relayed_first
    assert_largest(vote.hold(ballots), ballots.sum(axis=0))
    assert counted == talliers * (2 * (talliers - 1) + vote.sharing.threshold * vote.poll.rounds) >= relayed


@given(garbage=st.binary(min_size=1, max_size=400))
def test_no_decoder_crashes_or_hangs_on_garbage(garbage: bytes) -> None:
    for endpoint in GARBAGE.endpoints.values():
        with pytest.raises(Rejected):
            endpoint.step(garbage)


GARBAGE = Vote()


def test_messages_of_another_vote_are_rejected() -> None:
    """Another bound is another vote: everyone agrees on it beforehand."""
    vote, other = Vote(), Vote(bound=2**41)
    other.hold(random_ballots())
    for envelope in other.seen:
        with pytest.raises(Rejected, match="another study or another sum"):
            vote.endpoints[envelope.to].step(envelope.body)


def test_only_the_coordinator_can_ask_a_tallier() -> None:
    vote, stranger = Vote(), Vote(name="stranger")
    with pytest.raises(Rejected, match="failed authentication"):
        vote.tallier(0).step(stranger.frame(0, messages.Roll(0)))


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (PeerMessage(1, 2, memoryview(b"")), "not another tallier"),
        (PeerMessage(3, 2, memoryview(b"")), "not another tallier"),
        (PeerMessage(-1, 2, memoryview(b"")), "not another tallier"),
        (messages.Held(0, [(5, b"", b"")]), "not in the study"),
        (messages.Held(0, [(-1, b"", b"")]), "not in the study"),
        (messages.Held(0, [(4, b"", b"")] * 2), "two of one"),
        (messages.Held(6, []), "from 6 on; 5 are known"),
        (messages.Held(-1, []), "from -1 on"),
        (messages.Agreed(b""), "not asked to count"),
        (Opening(memoryview(bytes(64))), "twice, or unasked"),
    ],
)
def test_a_tallier_can_say_to_the_coordinator_only_what_is_due(message: messages.FromTallier, complaint: str) -> None:
    vote = Vote()
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    before = vote.coordinator.dump()
    with pytest.raises(Rejected, match=complaint):
        vote.coordinator.step(vote.tallier(1)._enveloped(message).body)
    assert vote.coordinator.dump() == before
    assert_largest(vote.count(), random_ballots().sum(axis=0))
    with pytest.raises(Rejected):
        vote.coordinator.step(vote.tallier(1)._enveloped(messages.Held(5, [])).body)


def test_a_round_of_the_wrong_length_ends_the_vote() -> None:
    vote = Vote()
    tallier = vote.tallier(2)
    original = tallier._to_peer
    tallier._to_peer = lambda peer, number, plain: original(peer, number, plain[:-1] if number == 5 else plain)  # type: ignore[method-assign]
    with pytest.raises(Aborted, match="tallier:2 sent 31 bytes in round 3; 32 were due"):
        vote.hold(random_ballots())
    dumped, again = vote.tallier(1).dump(), Vote().tallier(1)
    again.load(dumped)
    for tallier in (vote.tallier(1), again):
        with pytest.raises(Aborted, match="tallier:2 sent 31 bytes"):
            tallier.step(b"")
