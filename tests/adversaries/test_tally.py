"""Adversaries of a vote: a coordinator that lies, a minority of talliers that joins it, parties that throw sand.

Whatever they do, one list of enough parties is counted in an attempt, or none; a bad party costs its own ballots; and
an abort names whom it can. Each attack is also shown above its bound, where it has one: every honest tallier set back,
or one tallier more than a minority.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import msgspec
import numpy as np
import pytest

from unspoken.noise.stream import SecretStream
from unspoken.summation import argmax as circuits
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import (
    TALLIERS,
    Agreement,
    Ballot,
    Framed,
    Held,
    Introduction,
    Relay,
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
    SignedStatement,
)
from unspoken.summation.evidence import convicted
from unspoken.summation.keys import agreement_key, public_key, seal
from unspoken.summation.replicated import Group, ReplicatedShares, SharedComputation
from unspoken.summation.tally_agreement import approved
from unspoken.types import Integers, Words
from votes import Vote, assert_largest, random_ballots

EACH_NUMBER = pytest.mark.parametrize("talliers", TALLIERS)
EACH_TALLIER = pytest.mark.parametrize(("talliers", "index"), [(n, i) for n in (3, 5) for i in range(n)])


def assert_proof(evidence: tuple[SignedStatement, ...], vote: Vote, signer: str) -> None:
    """Two different statements about the same vote, which anyone can check with the roster alone."""
    assert len(evidence) == 2
    assert list(convicted(vote.protocol.protocol, evidence)) == [signer]


# A second list, or one that is too short


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
@pytest.mark.parametrize(("talliers", "faithful"), [(3, 0), (3, 2), (5, 1), (7, 3)])
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
        if envelope.to == COORDINATOR and isinstance(relay := rewound.read(envelope), Relay)
        if (sender(envelope), relay.peer, relay.number) == (1, 2, messages.AGREEMENT)
    }
    assert len(sealed) == len({body[:12] for body in sealed}) == 2


def sender(envelope: Envelope) -> int:
    return msgspec.msgpack.decode(envelope.body, type=Framed).tallier


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


@EACH_NUMBER
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


@EACH_NUMBER
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


@EACH_NUMBER
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


@EACH_NUMBER
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


LISTS = ((0, 1, 2), (0, 1, 2, 3), (1, 2, 3), (0, 1))
MOVES = {"deliver": 0.7, "repeat": 0.1, "ask": 0.14, "keep": 0.03, "set back": 0.02, "forget": 0.01}


class Liar:
    """A coordinator that makes any moves, in any order, and sets back or makes again all talliers but the first.

    It prefers one list, and asks for others now and then, in some runs never: else there would hardly be a count.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.vote = np.random.default_rng(seed), Vote(parties=4, queries=1, classes=2)
        self.strays, self.preferred = float(self.rng.choice([0.0, 0.02, 0.5])), self.pick(range(3))
        self.pending: list[Envelope] = []
        self.known: list[Envelope] = []
        self.dumps: list[tuple[int, bytes]] = []
        self.begun: set[bytes] = set()
        self.fixed: set[bytes] = set()
        for party, ballots in enumerate(random_ballots(4, 1, 2)):
            for envelope in self.vote.party(party).submit(ballots):
                self.known.append(envelope)
                self.deliver(envelope)
        for index in range(3):
            self.send(self.vote.tallier(index).step(b""))
        self.lists = [self.vote.list_of(*parties) for parties in LISTS]
        self.vote.keys = {party: key for party, (key, _) in self.vote.tallier(0).state.ballots.items()}

    def pick(self, among: Sequence[Any]) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def send(self, envelopes: Iterable[Envelope]) -> None:
        """Hand on what a tallier says to another one; what it says to the coordinator is heard."""
        for envelope in envelopes:
            if isinstance(relay := self.vote.read(envelope), Relay):
                handed = Relay(sender(envelope), relay.number, relay.body)
                envelope = Envelope(address(relay.peer), self.vote.frame(relay.peer, handed))
                self.pending.append(envelope)
                self.known.append(envelope)

    def move(self) -> None:
        index = int(self.rng.integers(3))
        match self.rng.choice(list(MOVES), p=list(MOVES.values())):
            case "deliver" if self.pending:
                self.deliver(self.pending.pop(int(self.rng.integers(len(self.pending)))))
            case "repeat":
                self.deliver(self.pick(self.known))
            case "ask":
                which = self.pick(self.lists) if self.rng.random() < self.strays else self.lists[self.preferred]
                count = msgspec.structs.replace(which, begin=bool(self.rng.integers(2)))
                self.deliver(Envelope(address(index), self.vote.frame(index, count)))
            case "keep" if index:
                self.dumps.append((index, self.vote.tallier(index).dump()))
            case "set back" if self.dumps and self.strays:
                index, dumped = self.pick(self.dumps)
                self.vote.tallier(index).load(dumped)
            case "forget" if index and self.strays:
                keys = self.vote.protocol.keys
                fresh = self.vote.protocol.protocol.helper(index, keys.helper(index), SecretStream())
                self.vote.endpoints[address(index)] = fresh

    def deliver(self, envelope: Envelope) -> None:
        tallier = self.vote.tallier(int(envelope.to[-1]))
        with suppress(Rejected, Aborted):
            self.send(tallier.step(envelope.body))
        if tallier.state.counted:
            self.fixed.add(tallier.state.counted)
        if tallier._computation is not None or tallier.state.opening:
            self.begun.add(tallier.state.counted)


def play(seed: int) -> Liar:
    """Play one run, and check what must hold, whatever was said."""
    liar = Liar(seed)
    for _ in range(600):
        liar.move()
    assert len(liar.begun) <= 1, f"seed {seed}: two lists were begun with"
    assert liar.lists[3].counted not in liar.fixed, f"seed {seed}: a list below the least was agreed on"
    return liar


def test_whatever_moves_a_coordinator_makes_at_most_one_list_is_begun_with(seeds: Callable[[int, int], range]) -> None:
    """Moves at random, as long as one tallier remembers. Often lists compete, and often one is counted."""
    played = [play(seed) for seed in seeds(25, 150)]
    assert sum(len(liar.fixed) > 1 for liar in played) > 0.2 * len(played), "lists hardly compete"
    assert sum(len(liar.begun) for liar in played) > 0.2 * len(played), "there is hardly a count"


# Parties that throw sand


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


LOW_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


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


# Talliers that lie


@EACH_TALLIER
@pytest.mark.parametrize("key", [*LOW_ORDER, b"short"])
def test_a_tallier_with_an_invalid_key_is_named_by_the_others(talliers: int, index: int, key: bytes) -> None:
    vote = Vote(talliers=talliers)
    peer = (index + 1) % talliers
    body = vote.tallier(index)._introductions[peer].wrap(msgspec.msgpack.encode(Introduction(key, bytes(32))))
    with pytest.raises(Aborted, match=f"tallier:{index} introduced itself with an invalid key") as raised:
        vote.tallier(peer).step(vote.frame(peer, Relay(index, messages.INTRODUCTION, memoryview(body))))
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
    ("talliers", "coalition"), [(n, c) for n in (3, 5) for c in itertools.combinations(range(1, n), (n - 1) // 2)]
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


@EACH_NUMBER
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
