"""Adversaries of a vote's list: a coordinator that lies, and a minority of talliers that joins it.

Whatever they do, one list of enough parties is counted in an attempt, or none; and an abort names whom it can. Each
attack is also shown above its bound, where it has one: every honest tallier set back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from adversaries.lying_votes import assert_proof, play, sender
from unspoken.noise.stream import SecretStream
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import (
    Agreement,
    Ballot,
    Framed,
    PeerMessage,
    address,
)
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Envelope,
    Rejected,
)
from unspoken.summation.replicated import Group
from unspoken.summation.tally_agreement import approved
from votes import EACH_TALLIER, MANY_ARE_RARE, Vote, assert_largest, random_ballots


class Rewound(Vote):
    """A vote that was counted, and of which the adversary asks for another count without the last party.

    All talliers but the faithful ones are what they were when the ballots had come: from an old dump, or made again
    from nothing and given the same ballots. The adversary has all messages of the first count, to send them again.
    """

    def __init__(self, talliers: int, how: str, faithful: Iterable[int]) -> None:
        super().__init__(queries=20, talliers=talliers)
        self.ballots = random_ballots(queries=20)
        self.submit(self.ballots)
        self.deliver(self.coordinator.settle())
        before = {name: endpoint.dump() for name, endpoint in self.endpoints.items()}
        self.first = self.count()
        self.old = [envelope for envelope in self.seen if envelope.to != COORDINATOR]
        fresh = Vote(queries=20, talliers=talliers)
        if how == "lost":
            fresh.protocol.keys._helpers = [
                (secret, SecretStream().key()) for secret, _ in fresh.protocol.keys._helpers
            ]
        for name, endpoint in {**fresh.protocol.helpers(), COORDINATOR: fresh.coordinator}.items():
            if name not in map(address, faithful):
                self.endpoints[name] = endpoint
                if how == "stale" or name == COORDINATOR:
                    endpoint.load(before[name])
        self.coordinator = fresh.coordinator
        self.refused: list[Exception] = []

    def step(self, envelope: Envelope) -> list[Envelope]:
        try:
            return self.endpoints[envelope.to].step(envelope.body)
        except (Rejected, Aborted) as error:
            self.refused.append(error)
            return []

    def push(self, envelopes: Iterable[Envelope]) -> None:
        """Deliver messages, whatever talliers say to them."""
        waiting = list(envelopes)
        while waiting:
            waiting += self.step(waiting.pop(0))

    def recount(self) -> None:
        """Ask for the same parties without the last one, and send everything again that may help."""
        self.push(envelope for envelope in self.old if self.read(envelope) is None)
        self.push(self.coordinator.settle())
        self.coordinator.state.settled[:] = [True] * 4 + [False]
        self.push(self.coordinator.agree())
        self.push(self.coordinator.finish())
        self.push(self.old)


@pytest.mark.parametrize("how", ["lost", "stale"])
@pytest.mark.parametrize(("talliers", "faithful"), [(3, 0), (3, 2), (5, 1), pytest.param(7, 3, marks=pytest.mark.rare)])
def test_one_honest_tallier_that_remembers_prevents_a_second_list(talliers: int, faithful: int, how: str) -> None:
    """The others, also the honest ones, were set back or lost all; what the first count had opened is all there is."""
    rewound = Rewound(talliers, how, [faithful])
    rewound.recount()
    assert not rewound.coordinator.state.openings
    with pytest.raises(Aborted, match="no shares of the winners"):
        rewound.coordinator.winners()
    assert any("second, different list" in str(error) for error in rewound.refused)


@pytest.mark.parametrize("how", ["lost", "stale"])
@pytest.mark.parametrize("talliers", [3, 5])
def test_if_all_honest_talliers_forget_a_second_list_is_counted(talliers: int, how: str) -> None:
    """So their stores must not. With both counts the adversary has the difference that one party makes."""
    rewound = Rewound(talliers, how, [])
    rewound.recount()
    assert_largest(rewound.coordinator.winners(), rewound.ballots[:4].sum(axis=0))
    assert (rewound.coordinator.winners() != rewound.first).any()


def test_a_tallier_that_was_set_back_never_uses_a_nonce_twice() -> None:
    """What it says to another tallier about the second list is under the same key and number as about the first."""
    rewound = Rewound(3, "stale", [0])
    again = rewound.tallier(1).step(rewound.frame(1, rewound.list_of(0, 1, 2, 3)))
    sealed = {
        bytes(relay.body)
        for envelope in [*rewound.seen, *again]
        if envelope.to == COORDINATOR and isinstance(relay := rewound.read(envelope), PeerMessage)
        if (sender(envelope), relay.peer, relay.number) == (1, 2, messages.AGREEMENT)
    }
    assert len(sealed) == len({body[:12] for body in sealed}) == 2


def test_nothing_of_one_attempt_is_taken_in_another() -> None:
    """The same study, vote, keys and ballots: ballots, lists, agreements and words of the first are all refused."""
    first, second = (Vote(name="same", attempt=bytes([number] * 16)) for number in (1, 2))
    first.hold(random_ballots())
    kinds = set()
    for envelope in first.seen:
        kinds.add(type(first.read(envelope)))
        before = second.endpoints[envelope.to].dump()
        with pytest.raises(Rejected, match="another study or another sum"):
            second.endpoints[envelope.to].step(envelope.body)
        # The label is checked first, but it is in every key and signature, too.
        forged = msgspec.msgpack.decode(envelope.body, type=Ballot | Framed)
        forged = msgspec.structs.replace(forged, session=second.poll.session.label())
        with pytest.raises(Rejected, match=r"failed authentication|signature of party"):
            second.endpoints[envelope.to].step(msgspec.msgpack.encode(forged))
        assert second.endpoints[envelope.to].dump() == before
    assert len(kinds) == 7


@pytest.mark.parametrize("begin", [False, True])
@EACH_TALLIER
def test_talliers_that_are_shown_different_lists_count_none_and_can_prove_it(
    talliers: int, index: int, begin: bool
) -> None:
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.coordinator.agree()
    lists = [vote.list_of(0, 1, 2, 4 if tallier == index else 3, begin=begin) for tallier in vote.talliers]
    with pytest.raises(Aborted, match="counts other parties") as raised:
        vote.deliver([Envelope(address(tallier), vote.frame(tallier, which)) for tallier, which in enumerate(lists)])
    assert raised.value.blamed == (COORDINATOR,)
    assert_proof(raised.value.evidence, vote, COORDINATOR)
    assert not any(state.received for state in vote.last.values())


@MANY_ARE_RARE
def test_a_minority_that_agrees_to_everything_does_not_help(talliers: int) -> None:
    """t talliers tell each honest one that they count what it counts: the honest ones still tell each other."""
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.coordinator.agree()
    lists = {index: vote.list_of(0, 1, 2, 3 + (index == talliers - 1)) for index in vote.talliers}
    for index in range(vote.sharing.threshold):
        liar = vote.tallier(index)

        def agreeing(peer: int, number: int, plain: bytes, say: Any = liar._to_peer) -> Envelope:
            if number == messages.AGREEMENT:
                agreement = msgspec.msgpack.decode(plain, type=Agreement)
                told = {"counted": lists[peer].counted, "signature": lists[peer].signature}
                plain = msgspec.msgpack.encode(msgspec.structs.replace(agreement, **told))
            return say(peer, number, plain)  # type: ignore[no-any-return]

        liar._to_peer = agreeing  # type: ignore[method-assign]
        liar._check_agreements = lambda: None  # type: ignore[method-assign]
    ended: list[Aborted] = []
    waiting = [Envelope(address(index), vote.frame(index, which)) for index, which in lists.items()]
    while waiting:
        envelope = waiting.pop(0)
        try:
            # That talliers agreed is nothing that this coordinator wants to hear.
            with suppress(Rejected):
                waiting += vote.endpoints[envelope.to].step(envelope.body)
        except Aborted as error:
            ended.append(error)
    honest = range(vote.sharing.threshold, talliers)
    assert {error.blamed for error in ended} == {(COORDINATOR,)}
    assert all(vote.tallier(index)._computation is None for index in honest)
    assert vote.tallier(talliers - 1).state.failed
    assert not vote.coordinator.state.openings


@EACH_TALLIER
def test_a_tallier_that_claims_to_count_something_else_is_named(talliers: int, index: int) -> None:
    """It has no list of that kind from the coordinator, so that it is not the coordinator that lied."""
    vote = Vote(talliers=talliers)
    liar, honest = vote.tallier(index), vote.tallier(index)._agreement

    def other(groups: list[Group]) -> Agreement:
        return msgspec.structs.replace(honest(groups), counted=bytes(32))

    liar._agreement = other  # type: ignore[method-assign]
    liar._check_agreements = lambda: None  # type: ignore[method-assign]
    with pytest.raises(Aborted, match=f"tallier:{index} counts other parties") as raised:
        vote.hold(random_ballots())
    assert (raised.value.blamed, raised.value.evidence) == ((address(index),), ())


@MANY_ARE_RARE
def test_a_list_below_the_least_ends_the_vote_at_every_tallier(talliers: int) -> None:
    """Also one that names the same parties in bits beyond the last, or that was never signed."""
    for index in range(talliers):
        vote = Vote(least=4, talliers=talliers)
        vote.submit(random_ballots())
        vote.deliver(vote.coordinator.settle())
        short = vote.list_of(0, 1, 2)
        for forged in (
            msgspec.structs.replace(short, signature=bytes(64)),
            msgspec.structs.replace(short, survivors=bytes([0b11100111])),
            msgspec.structs.replace(short, survivors=vote.list_of(0, 1, 2, 3).survivors),
        ):
            before = vote.tallier(index).dump()
            with pytest.raises(Rejected):
                vote.tallier(index).step(vote.frame(index, forged))
            assert vote.tallier(index).dump() == before
        with pytest.raises(Aborted, match="only 3 of 5 parties") as raised:
            vote.tallier(index).step(vote.frame(index, short))
        assert raised.value.blamed == (COORDINATOR,)


@MANY_ARE_RARE
@pytest.mark.parametrize("differs", ["parties", "keys"])
def test_a_second_list_is_refused_with_proof_before_and_after_the_count(talliers: int, differs: str) -> None:
    """A list of the same parties under other keys is another one, too."""
    for done in (False, True):
        vote = Vote(talliers=talliers)
        vote.submit(random_ballots())
        vote.deliver(vote.coordinator.settle())
        other = vote.list_of(0, 1, 2, 3)
        vote.deliver(vote.coordinator.agree())
        if differs == "keys":
            label, everyone = vote.poll.session.label(), vote.coordinator.state.counting
            other = approved(vote.protocol.keys.coordinator, label, everyone, [bytes(32)] * 5, begin=True)
        if done:
            vote.deliver(vote.coordinator.finish())
        with pytest.raises(Aborted, match="second, different list") as raised:
            vote.tallier(0).step(vote.frame(0, other))
        assert raised.value.blamed == (COORDINATOR,)
        assert_proof(raised.value.evidence, vote, COORDINATOR)


@MANY_ARE_RARE
def test_nothing_is_computed_before_the_coordinator_asks_and_all_agree(talliers: int) -> None:
    vote = Vote(talliers=talliers)
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.deliver(vote.coordinator.agree())
    assert set(vote.coordinator.state.agreed) == set(vote.talliers)
    assert vote.coordinator.waiting_for == []
    assert all(vote.tallier(index)._computation is None for index in vote.talliers)
    vote.deliver(vote.coordinator.agree())
    vote.deliver(vote.coordinator.finish())
    assert_largest(vote.coordinator.winners(), random_ballots().sum(axis=0))


def test_whatever_moves_a_coordinator_makes_at_most_one_list_is_begun_with(seeds: Callable[[int, int], range]) -> None:
    """Moves at random, as long as one tallier remembers. Often lists compete, and often one is counted."""
    played = [play(seed) for seed in seeds(25, 150)]
    assert sum(len(liar.fixed) > 1 for liar in played) > 0.2 * len(played), "lists hardly compete"
    assert sum(len(liar.begun) for liar in played) > 0.2 * len(played), "there is hardly a count"
