"""The secure vote: the right winners or an abort, and nothing else for a curious tallier or the coordinator.

The adversary, written down: one tallier keeps to the protocol and remembers all that it gets; the coordinator plays as
it likes and carries every message; parties may send anything. Keys are fixed where a test is statistical, so that a
failure is a change of the code; its false-alarm rate is for fresh keys. That the words of the rounds can be explained
by any other totals is shown in test_replicated; here it is shown that these words are what travels.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.noise.stream import SecretStream
from tacit.summation import ballots as messages
from tacit.summation.ballots import MOST, Ballot, Count, Framed, Opening, Relay, address, explicit_share
from tacit.summation.base import COORDINATOR, Aborted, Endpoint, Envelope, Message, Rejected, bitmap
from tacit.summation.keys import Channel
from tacit.summation.masks import add_masks
from tacit.summation.replicated import TALLIERS
from tacit.summation.tallier import Tallier, TallierState
from tacit.summation.tally import Poll, Tally, TallyParty, run_in_process
from tacit.types import Integers, Words

EACH_TALLIER = pytest.mark.parametrize("index", range(TALLIERS))


def fixed(name: str) -> SecretStream:
    """Secret randomness that is the same in every run of the tests."""
    return SecretStream(hashlib.sha256(name.encode()).digest())


class Vote:
    """One vote with its endpoints, everything that was sent, and each tallier's state before it forgot it."""

    def __init__(
        self,
        parties: int = 5,
        queries: int = 4,
        classes: int = 3,
        least: int = 3,
        bound: int = 2**40,
        name: str = "vote",
    ) -> None:
        self.poll = Poll("digest", "labels", parties, least, queries, classes, bound)
        self.protocol, self.name = Tally(self.poll, fixed(name)), name
        self.coordinator = self.protocol.coordinator()
        self.endpoints: dict[str, Endpoint] = {**self.protocol.helpers(), COORDINATOR: self.coordinator}
        self.seen: list[Envelope] = []
        self.last: dict[str, TallierState] = {}
        self.alter: Callable[[Envelope], Iterable[Envelope]] = lambda envelope: [envelope]
        self.pick: Callable[[int], int] = lambda waiting: 0
        self.after_each: Callable[[], None] = lambda: None

    def tallier(self, index: int) -> Tallier:
        endpoint = self.endpoints[address(index)]
        assert isinstance(endpoint, Tallier)
        return endpoint

    def party(self, index: int) -> TallyParty:
        return self.protocol.party(index, fixed(f"{self.name}/{index}"))

    def deliver(self, envelopes: list[Envelope]) -> None:
        waiting = list(envelopes)
        while waiting:
            for envelope in self.alter(waiting.pop(self.pick(len(waiting)))):
                self.seen.append(envelope)
                if envelope.to not in self.endpoints:
                    continue
                endpoint = self.endpoints[envelope.to]
                if isinstance(endpoint, Tallier):
                    self.last[envelope.to] = endpoint.state
                waiting += endpoint.step(envelope.body)
                self.after_each()

    def submit(self, ballots: Integers) -> None:
        for index, rows in enumerate(ballots):
            self.deliver(self.party(index).submit(rows))

    def count(self) -> Integers:
        self.deliver(self.coordinator.settle())
        self.deliver(self.coordinator.finish())
        return self.coordinator.winners()

    def hold(self, ballots: Integers) -> Integers:
        self.submit(ballots)
        return self.count()

    def frame(self, index: int, message: Message) -> bytes:
        """A message that a tallier takes for the coordinator's: the adversary plays the coordinator."""
        body = self.coordinator._channels[index].wrap(msgspec.msgpack.encode(message))
        return msgspec.msgpack.encode(Framed(self.poll.session.label(), index, memoryview(body)))

    def read(self, envelope: Envelope) -> Message | None:
        """What is in a frame between a tallier and the coordinator."""
        framed: Ballot | Framed = msgspec.msgpack.decode(envelope.body, type=Ballot | Framed)
        if isinstance(framed, Ballot):
            return None
        body = bytes(framed.body)[28:]
        kinds = messages.FromTallier if envelope.to == COORDINATOR else messages.ToTallier
        found: Message = msgspec.msgpack.decode(body, type=kinds)
        return found

    def list_of(self, *parties: int) -> Count:
        return Count(bitmap(np.isin(np.arange(self.poll.parties), parties)))


def random_ballots(parties: int = 5, queries: int = 4, classes: int = 3, seed: int = 0) -> Integers:
    return np.random.default_rng(seed).integers(-1000, 1000, (parties, queries, classes))


def assert_largest(winners: Integers, totals: Integers) -> None:
    assert winners.shape == (len(totals),)
    assert (totals[np.arange(len(totals)), winners] == totals.max(axis=1)).all()


def shared_out(totals: Integers, parties: int, seed: int) -> Integers:
    """Ballots of so many parties that add up to the totals, none larger than these."""
    rng = np.random.default_rng(seed)
    ballots, rest = np.zeros((parties, *totals.shape), dtype=np.int64), totals.copy()
    for party in range(parties - 1):
        part = (rest * rng.random(rest.shape)).astype(np.int64) // 2
        ballots[party], rest = part, rest - part
    ballots[-1] = rest
    return ballots


def totals_of(kind: str, queries: int, classes: int, seed: int) -> Integers:
    most, size, rng = MOST - 1, (queries, classes), np.random.default_rng([seed, classes])
    match kind:
        case "random":
            return rng.integers(-(2**50), 2**50, size)
        case "small":
            return rng.integers(-2, 3, size)
        case "negative":
            return rng.integers(-most, -most // 2, size)
        case "extreme":
            return rng.choice(np.array([-most, -most + 1, -1, 0, 1, most - 1, most]), size)
        case "equal":
            return np.full(size, [most, -most, 0, 1, -1][seed])
        case _:
            return most - 1 + (rng.random(size).argsort(axis=1) == 0)


@pytest.mark.parametrize("classes", [2, 3, 10, 17])
@pytest.mark.parametrize("queries", [1, 3000])
@pytest.mark.parametrize("kind", ["random", "small", "negative", "extreme", "equal", "one apart"])
def test_the_winners_are_those_of_the_totals(classes: int, queries: int, kind: str) -> None:
    for seed in range(5 if queries == 1 else 1):
        totals = totals_of(kind, queries, classes, seed)
        winners = run_in_process(shared_out(totals, 4, seed))
        assert_largest(winners, totals)
        if kind in ("random", "one apart"):
            assert (winners == totals.argmax(axis=1)).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_winners_of_any_ballots(data: st.DataObject) -> None:
    parties, queries, classes = (data.draw(st.integers(low, high)) for low, high in ((1, 5), (1, 3), (2, 6)))
    most = (MOST - 1) // parties
    numbers = st.integers(-most, most) | st.sampled_from([-most, 0, 1, most])
    count = parties * queries * classes
    flat = data.draw(st.lists(numbers, min_size=count, max_size=count))
    ballots = np.array(flat, dtype=np.int64).reshape(parties, queries, classes)
    assert_largest(run_in_process(ballots), ballots.sum(axis=0))


MPYC = """
import json, pathlib
ballots = json.loads(pathlib.Path(__file__).with_name("ballots.json").read_text())
from mpyc.runtime import mpc
number = mpc.SecInt(40)

async def main():
    await mpc.start()
    totals = [[mpc.sum([number(party[q][k]) for party in ballots]) for k in range(len(ballots[0][0]))]
              for q in range(len(ballots[0]))]
    winners = await mpc.output([mpc.argmax(row)[0] for row in totals])
    await mpc.shutdown()
    if mpc.pid == 0:
        print(json.dumps([int(winner) for winner in winners]), flush=True)

mpc.run(main())
"""


def test_the_winners_are_those_of_mpyc(tmp_path: Path) -> None:
    """An independent secure argmax, of three processes; about 3 seconds. It may hang, so it gets a deadline."""
    ballots = np.random.default_rng(0).integers(-(2**30), 2**30, (3, 36, 10))
    (tmp_path / "vote.py").write_text(MPYC)
    (tmp_path / "ballots.json").write_text(json.dumps(ballots.tolist()))
    command = [sys.executable, str(tmp_path / "vote.py"), "-M3", "--no-log", "-B", str(three_free_ports())]
    # The processes that it starts are in its session, and end with it.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        printed, _ = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert json.loads(printed) == run_in_process(ballots).tolist()


def three_free_ports() -> int:
    for base in range(20_000 + os.getpid() % 10_000, 40_000, 3):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(base, base + 3):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return base
    raise AssertionError("no free ports")


@pytest.mark.parametrize("tied", [(0, 1, 2), (0, 3), (1, 2, 3, 4)])
def test_of_equal_totals_each_wins_with_equal_probability(tied: tuple[int, ...]) -> None:
    """χ² over 6,000 queries; false alarms 1 in 10,000."""
    totals = np.full((6000, 5), -7)
    totals[:, tied] = 3
    winners = run_in_process(shared_out(totals, 3, 0), secrets=fixed("ties"))
    counts = np.bincount(winners, minlength=5)
    assert counts.sum() == counts[list(tied)].sum()
    assert stats.chisquare(counts[list(tied)]).pvalue > 1e-4


def test_ties_are_broken_by_all_three_seeds_and_only_by_them() -> None:
    """The same ballots under other keys of the parties win alike; with another seed of any one tallier they do not."""
    ballots = np.zeros((3, 400, 4), dtype=np.int64)
    usual = Vote(3, 400, 4).hold(ballots)
    again = Vote(3, 400, 4)
    again.party = lambda index: again.protocol.party(index, SecretStream())  # type: ignore[method-assign]
    assert (again.hold(ballots) == usual).all()
    for index in range(TALLIERS):
        other = Vote(3, 400, 4)
        other.tallier(index).state.seed = bytes(32)
        assert (other.hold(ballots) != usual).mean() > 0.5


@pytest.mark.parametrize("value", [0, 2**40 // 3])
def test_all_that_a_tallier_receives_is_uniform(value: int) -> None:
    """Every ballot the same number, 4,096 times: χ² of the bytes of each message; false alarms 1 in 10,000.

    What it receives: the shares that parties sent it, and from the tallier after it one message a round.
    """
    vote = Vote(parties=3, queries=4096, classes=3, name=f"uniform/{value}")
    vote.hold(np.full((3, 4096, 3), value))
    received = [words for state in vote.last.values() for words in state.received]
    received += [plain for state in vote.last.values() for _, plain in state.ballots.values() if len(plain) > 64]
    assert len(received) == TALLIERS * (vote.poll.rounds + 1)
    for words in received:
        counts = np.bincount(np.frombuffer(words, dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4 / len(received)


def held_shares(state: TallierState, index: int, party: int, length: int) -> dict[int, Words]:
    """What a tallier knows of a party's ballots, by the number of the share."""
    plain, shares, session = state.ballots[party][1], {}, Poll("", "", 1, 1, length, 2, 0).session
    for share in (index, (index + 1) % TALLIERS):
        if explicit_share(party) != share:
            seed = plain[:32] if share == index else plain[-32:]
            shares[share] = add_masks(np.zeros(2 * length, dtype=np.uint64), [(seed, True)], session)
        elif share == index:
            shares[share] = np.frombuffer(plain[:-32], dtype="<u8").copy()
    return shares


@EACH_TALLIER
def test_what_a_tallier_holds_of_a_ballot_adds_up_to_noise(index: int) -> None:
    """χ² of the sum of a tallier's shares of one party; false alarms 1 in 10,000."""
    vote = Vote(parties=3, queries=2048, classes=2, name="held")
    vote.submit(np.full((3, 2048, 2), 2**39))
    for party in range(3):
        shares = held_shares(vote.tallier(index).state, index, party, 2048)
        seen = np.sum(list(shares.values()), axis=0, dtype=np.uint64).view(np.uint8)
        assert stats.chisquare(np.bincount(seen, minlength=256)).pvalue > 1e-4 / 9


@EACH_TALLIER
def test_two_talliers_together_know_every_ballot(index: int) -> None:
    """The written-down bound: what must fail for one tallier succeeds for two (here one holds the explicit share)."""
    vote, ballots = Vote(3, 6, 2), random_ballots(3, 6, 2)
    vote.submit(ballots)
    other = (index + 1) % TALLIERS
    for party in range(3):
        if explicit_share(party) not in (index, other):
            continue
        shares = held_shares(vote.tallier(index).state, index, party, 6)
        shares |= held_shares(vote.tallier(other).state, other, party, 6)
        found = np.sum(list(shares.values()), axis=0, dtype=np.uint64).view(np.int64)
        assert (found.reshape(6, 2) == ballots[party]).all()


def test_the_coordinator_that_carries_the_messages_cannot_read_them() -> None:
    """Nothing that a tallier opened, of parties or of other talliers, occurs in what went over the wire."""
    vote = Vote(queries=50)
    vote.hold(random_ballots(queries=50))
    wire = b"".join(envelope.body for envelope in vote.seen)
    plain = [words[:16] for state in vote.last.values() for words in state.received]
    plain += [shares[:16] for state in vote.last.values() for _, shares in state.ballots.values()]
    plain += [agreement.seed[:16] for state in vote.last.values() for agreement in state.agreements.values()]
    assert len(plain) == TALLIERS * (vote.poll.rounds + 5 + 2)
    assert not [words for words in plain if words in wire]


def test_the_keys_of_a_vote_are_new_in_each_vote() -> None:
    """The same talliers, study and vote once more: what they say to each other is under other keys."""
    first, second = Vote(), Vote()
    for index in range(TALLIERS):
        second.tallier(index).state.secret = SecretStream().key()
    for vote in (first, second):
        vote.hold(random_ballots())
    for index in range(TALLIERS):
        one, other = (vote.last[address(index)].received for vote in (first, second))
        assert one[0] == other[0]  # The sums of the explicit shares, which have masks of their own.
        assert not set(one[1:]) & set(other[1:])


@pytest.mark.parametrize("gone", [(), (0,), (1, 4)])
def test_parties_that_drop_out_are_not_counted(gone: tuple[int, ...]) -> None:
    vote, ballots = Vote(queries=200), random_ballots(queries=200)
    for index in range(5):
        envelopes = vote.party(index).submit(ballots[index])
        # The first to go sends nothing; the second is cut off before its last message.
        vote.deliver(envelopes if index not in gone else envelopes[: 2 * gone.index(index)])
    winners = vote.count()
    there = [index for index in range(5) if index not in gone]
    assert np.flatnonzero(vote.coordinator.survivors()).tolist() == there
    assert_largest(winners, ballots[there].sum(axis=0))


def test_too_few_parties_are_not_counted_whoever_asks() -> None:
    vote, ballots = Vote(least=4), random_ballots()
    vote.submit(ballots[:3])
    vote.deliver(vote.coordinator.settle())
    with pytest.raises(Aborted, match="only 3 of 5 parties"):
        vote.coordinator.finish()
    with pytest.raises(Aborted, match="only 3 of 5 parties"):
        vote.tallier(0).step(vote.frame(0, vote.list_of(0, 1, 2)))


def test_talliers_that_are_told_different_lists_notice() -> None:
    vote = Vote()
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.coordinator.finish()
    lists = [vote.list_of(0, 1, 2, 3), vote.list_of(0, 1, 2, 3), vote.list_of(0, 1, 2, 4)]
    with pytest.raises(Aborted, match=r"tallier:. counts other parties"):
        vote.deliver([Envelope(address(index), vote.frame(index, which)) for index, which in enumerate(lists)])
    assert not any(state.received for state in vote.last.values())


def test_talliers_count_one_list_only_and_say_the_same_again() -> None:
    vote = Vote()
    winners = vote.hold(random_ballots())
    again = vote.tallier(1).step(vote.frame(1, vote.list_of(*range(5))))
    opening = vote.read(again[0])
    assert isinstance(opening, Opening)
    assert (bytes(opening.first), bytes(opening.second)) == vote.coordinator.state.openings[1]
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
        vote.tallier(0).step(vote.frame(0, Count(b"\xff\xff")))
    assert_largest(vote.count(), random_ballots()[:4].sum(axis=0))


def test_ballots_that_come_after_the_count_has_begun_are_rejected() -> None:
    vote = Vote()
    vote.submit(random_ballots()[:4])
    vote.count()
    for envelope in vote.party(4).submit(random_ballots()[4]):
        with pytest.raises(Rejected, match="after the count had begun"):
            vote.endpoints[envelope.to].step(envelope.body)


def test_a_party_that_started_twice_cannot_be_counted_in_pieces() -> None:
    """Shares of two different submissions would add up to garbage: the one-time keys tell them apart."""
    vote, ballots = Vote(), random_ballots()
    vote.submit(ballots[:4])
    first = vote.protocol.party(4, SecretStream()).submit(ballots[4])
    second = vote.protocol.party(4, SecretStream()).submit(ballots[4])
    vote.deliver([first[0], second[1], second[2]])
    with pytest.raises(Aborted, match="counts other parties, or other ballots"):
        vote.count()


@pytest.mark.parametrize("party", [0, 1, 2])
def test_a_party_that_sends_talliers_different_shares_is_named(party: int) -> None:
    vote, ballots = Vote(), random_ballots()
    cheat, honest = vote.party(party), vote.party(party).submit(ballots[party])
    cheat.state.masks[party % 2] = bytes(32)
    bodies = cheat.submit(ballots[party])
    swapped = (party + 1) % TALLIERS
    for index in range(5):
        vote.deliver(vote.party(index).submit(ballots[index]) if index != party else [])
    vote.deliver([bodies[index] if index == swapped else honest[index] for index in range(TALLIERS)])
    with pytest.raises(Aborted, match=f"party {party} sent tallier:. and tallier:. different shares"):
        vote.count()


def test_a_party_asked_again_repeats_itself() -> None:
    vote, ballots = Vote(), random_ballots()
    party = vote.party(0)
    assert party.submit(ballots[0]) == party.submit(ballots[1])
    party.forget_vector()
    with pytest.raises(Aborted, match="sent and forgotten"):
        party.submit(ballots[0])


@EACH_TALLIER
def test_an_altered_ballot_is_rejected_by_its_senders_name(index: int) -> None:
    vote = Vote()
    envelope = vote.party(3).submit(random_ballots()[3])[index]
    ballot = msgspec.msgpack.decode(envelope.body, type=Ballot)
    altered = {
        "message of party 3": {"sealed": ballot.sealed[:-1] + bytes([ballot.sealed[-1] ^ 1])},
        "signature of party 3": {"key": bytes(32)},
        "signature of party 4": {"sender": 4},
        "party 5, who is not among": {"sender": 5},
        f"for tallier {(index + 1) % 3} came to tallier {index}": {"tallier": (index + 1) % 3},
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

    def wrong() -> Envelope:
        right = tallier._sent
        if len(tallier.state.received) == turn:
            tallier._sent = right + right.dtype.type(1)
        envelope = original()
        tallier._sent = right
        return envelope

    tallier._round = wrong  # type: ignore[method-assign]


@EACH_TALLIER
def test_shares_that_do_not_agree_at_the_opening_are_noticed(index: int) -> None:
    """A wrong share at the opening, or in the last round, is caught by the other tallier that holds it."""
    vote = Vote()
    altered_words(vote, index, vote.poll.rounds - 1)
    with pytest.raises(Aborted, match=f"tallier:{(index - 1) % 3} and tallier:{index} opened different shares"):
        vote.hold(random_ballots())
    with pytest.raises(Aborted, match="opened different shares"):
        vote.coordinator.winners()


@EACH_TALLIER
def test_a_wrong_word_before_the_opening_is_out_of_scope(index: int) -> None:
    """Talliers are trusted to compute as agreed: one that counts other words than it got changes a winner unseen."""
    vote = Vote(parties=3, queries=1, classes=2)
    vote.submit(np.tile(np.array([[0, 1]]), (3, 1, 1)))
    held = vote.tallier(index).state.ballots
    party = next(party for party in held if explicit_share(party) == index)
    key, plain = held[party]
    words = np.frombuffer(plain[:-32], dtype="<u8") + np.array([100, 0], dtype=np.uint64)
    held[party] = key, words.tobytes() + plain[-32:]
    assert vote.count().tolist() == [0]


def test_winners_that_are_no_classes_are_noticed() -> None:
    vote = Vote()
    original = vote.coordinator._take

    def shifted(tallier: int, opening: Opening) -> None:
        first, second = (np.frombuffer(share, "<u8").copy() for share in (opening.first, opening.second))
        # The share with the number 0, at both of its holders.
        first += np.uint64(3 if tallier == 0 else 0)
        second += np.uint64(3 if tallier == 2 else 0)
        original(tallier, Opening(memoryview(first.tobytes()), memoryview(second.tobytes())))

    vote.coordinator._take = shifted  # type: ignore[method-assign]
    with pytest.raises(Aborted, match="winners that are not classes"):
        vote.hold(random_ballots())


@EACH_TALLIER
def test_a_tallier_cannot_choose_its_seed_after_the_others(index: int) -> None:
    vote = Vote()
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    vote.tallier(index).state.seed = bytes(32)
    with pytest.raises(Aborted, match=f"tallier:{index} reveals another seed"):
        vote.deliver(vote.coordinator.finish())


def test_no_ballots_are_combined_before_all_seeds_are_known() -> None:
    vote = Vote()
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    first, second, third = vote.coordinator.finish()
    vote.deliver([first, second])
    assert all(vote.tallier(index)._computation is None for index in range(TALLIERS))
    vote.deliver([third])
    assert_largest(vote.coordinator.winners(), random_ballots().sum(axis=0))


@pytest.mark.parametrize("classes", [2, 5])
def test_endpoints_go_on_after_being_dumped_and_loaded_between_any_two_steps(classes: int) -> None:
    """New processes with the same keys after every message: the same winners, ties and all."""
    ballots = np.random.default_rng(0).integers(0, 2, (5, 30, classes))
    usual, vote = Vote(queries=30, classes=classes), Vote(queries=30, classes=classes)
    loads = 0

    def reload() -> None:
        nonlocal loads
        fresh = Vote(queries=30, classes=classes)
        for name, endpoint in vote.endpoints.items():
            fresh.endpoints[name].load(endpoint.dump())
            assert fresh.endpoints[name].dump() == endpoint.dump()
        vote.endpoints, vote.coordinator = fresh.endpoints, fresh.coordinator
        loads += 1

    vote.after_each = reload
    party = vote.party(0)
    envelopes = party.submit(ballots[0])
    resumed = vote.protocol.party(0, SecretStream())
    resumed.load(party.dump())
    assert resumed.submit(ballots[0]) == envelopes
    assert (vote.hold(ballots) == usual.hold(ballots)).all()
    assert loads > 2 * TALLIERS * vote.poll.rounds


def test_a_tallier_that_is_done_remembers_no_share_and_no_key() -> None:
    vote = Vote()
    vote.hold(random_ballots())
    for index in range(TALLIERS):
        state, before = vote.tallier(index).state, vote.last[address(index)]
        assert before.secret not in vote.tallier(index).dump()
        assert (state.ballots, state.received, state.agreements, state.seed) == ({}, [], {}, b"")


@pytest.mark.parametrize("seed", range(20))
def test_messages_may_overtake_each_other_and_come_twice(seed: int) -> None:
    """Everything that a tallier gets from parties and other talliers comes again at once, and is rejected then."""
    vote, rejected, rng = Vote(), 0, np.random.default_rng(seed)
    vote.pick = lambda waiting: int(rng.integers(waiting))

    def twice() -> None:
        nonlocal rejected
        envelope = vote.seen[-1]
        if envelope.to == COORDINATOR or not isinstance(vote.read(envelope), Relay | None):
            return
        with pytest.raises(Rejected):
            vote.endpoints[envelope.to].step(envelope.body)
        rejected += 1

    vote.after_each = twice
    assert_largest(vote.hold(random_ballots()), random_ballots().sum(axis=0))
    assert rejected == 5 * 3 + TALLIERS * (2 + 2 + vote.poll.rounds)


@EACH_TALLIER
def test_a_talliers_own_words_cannot_be_turned_back_to_it(index: int) -> None:
    """Each direction has its own key: with one for both, two messages would have the same key and number."""
    vote = Vote()
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    sent = vote.tallier(index).step(vote.coordinator.finish()[index].body)
    assert len(sent) == 2
    for envelope in sent:
        relay = vote.read(envelope)
        assert isinstance(relay, Relay)
        with pytest.raises(Rejected, match=f"message of tallier:{relay.peer} cannot be opened"):
            vote.tallier(index).step(vote.frame(index, relay))


@EACH_TALLIER
@pytest.mark.parametrize("turn", [0, 1, 3, 4, 11, 26])
def test_when_a_tallier_dies_there_are_no_winners_and_it_is_named(index: int, turn: int) -> None:
    """It falls silent after so many messages to others: two introductions, two agreements, then one a round."""
    vote, said = Vote(), 0

    def mute(envelope: Envelope) -> list[Envelope]:
        nonlocal said
        if envelope.to != COORDINATOR:
            return [envelope]
        if msgspec.msgpack.decode(envelope.body, type=Framed).tallier != index:
            return [envelope]
        if isinstance(vote.read(envelope), Relay):
            said += 1
        return [envelope] if said <= turn else []

    vote.alter = mute
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    if turn < 2:
        assert vote.coordinator.waiting_for == [address(index)]
        with pytest.raises(Aborted, match="no list of ballots came from"):
            vote.coordinator.finish()
        return
    assert vote.coordinator.waiting_for == []
    vote.deliver(vote.coordinator.finish())
    assert vote.coordinator.waiting_for == [address(index)]
    with pytest.raises(Aborted, match=f"no shares of the winners came from .*tallier:{index}.*nothing was revealed"):
        vote.coordinator.winners()
    assert len(vote.coordinator.state.openings) <= 1


def test_two_openings_are_known_to_be_enough() -> None:
    vote = Vote()

    def lose_the_last(envelope: Envelope) -> list[Envelope]:
        lost = len(vote.coordinator.state.openings) == 2 and isinstance(vote.read(envelope), Opening)
        return [] if lost else [envelope]

    vote.alter = lose_the_last
    with pytest.raises(Aborted, match=r"no shares of the winners came from tallier:.; count the vote as spent"):
        vote.hold(random_ballots())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_altered_truncated_and_random_messages_are_rejected_and_change_nothing(data: st.DataObject) -> None:
    """One message of a vote, of any kind and in any direction, arrives damaged first and then as it was sent."""
    vote, ballots = Vote(parties=4, classes=2), random_ballots(4, 4, 2)
    attacked, counted = data.draw(st.integers(0, 110)), 0

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
    assert counted >= 100


def damage(body: bytes, data: st.DataObject) -> bytes:
    kind = data.draw(st.sampled_from(["cut", "random", "extend", "flip"]))
    if kind == "flip":
        position = data.draw(st.integers(0, len(body) - 1))
        return body[:position] + bytes([body[position] ^ data.draw(st.integers(1, 255))]) + body[position + 1 :]
    if kind == "cut":
        return body[: data.draw(st.integers(0, len(body) - 1))]
    if kind == "extend":
        return body + data.draw(st.binary(min_size=1, max_size=9))
    return data.draw(st.binary(max_size=200).filter(lambda random: random != body))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_what_the_coordinator_alters_between_talliers_is_rejected(data: st.DataObject) -> None:
    """It can frame what it likes; it cannot make one tallier's words to another one's, or of another round."""
    vote, ballots = Vote(parties=4, classes=2), random_ballots(4, 4, 2)
    attacked, counted = data.draw(st.integers(0, 40)), 0

    def relayed_first(envelope: Envelope) -> list[Envelope]:
        nonlocal counted
        relay = vote.read(envelope)
        if envelope.to == COORDINATOR or not isinstance(relay, Relay):
            return [envelope]
        if counted == attacked:
            index = int(envelope.to[-1])
            kind = data.draw(st.sampled_from(["peer", "number", "body"]))
            peer = data.draw(st.integers(-1, 3).filter(lambda n: n != relay.peer)) if kind == "peer" else relay.peer
            number = data.draw(st.integers(-1, 20).filter(lambda n: n != relay.number))
            number = number if kind == "number" else relay.number
            body = memoryview(damage(bytes(relay.body), data) if kind == "body" else bytes(relay.body))
            before = vote.tallier(index).dump()
            with pytest.raises(Rejected):
                vote.tallier(index).step(vote.frame(index, Relay(peer, number, body)))
            assert vote.tallier(index).dump() == before
        counted += 1
        return [envelope]

    vote.alter = relayed_first
    assert_largest(vote.hold(ballots), ballots.sum(axis=0))
    assert counted == TALLIERS * (4 + vote.poll.rounds)


@settings(max_examples=200, deadline=None)
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
    with pytest.raises(Rejected, match="did not send as it is"):
        vote.tallier(0).step(stranger.frame(0, messages.Roll()))


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Relay(1, 2, memoryview(b"")), "not another tallier"),
        (Relay(3, 2, memoryview(b"")), "not another tallier"),
        (Relay(-1, 2, memoryview(b"")), "not another tallier"),
        (messages.Held([0, 5]), "not in the study"),
        (Opening(memoryview(bytes(32)), memoryview(bytes(32))), "twice, or unasked"),
    ],
)
def test_a_tallier_can_say_to_the_coordinator_only_what_is_due(message: messages.FromTallier, complaint: str) -> None:
    vote = Vote()
    vote.submit(random_ballots())
    vote.deliver(vote.coordinator.settle())
    before = vote.coordinator.dump()
    with pytest.raises(Rejected, match=complaint):
        vote.coordinator.step(vote.tallier(1)._answer(message).body)
    assert vote.coordinator.dump() == before
    assert_largest(vote.count(), random_ballots().sum(axis=0))
    with pytest.raises(Rejected):
        vote.coordinator.step(vote.tallier(1)._answer(messages.Held([0, 1, 2])).body)


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


@pytest.mark.parametrize(
    "wrong",
    [{"bound": 2**62}, {"bound": -1}, {"classes": 1}, {"queries": 0}, {"least_survivors": 0}, {"least_survivors": 6}],
)
def test_parameters_that_cannot_be_right_are_refused(wrong: dict[str, int]) -> None:
    right = {"parties": 5, "least_survivors": 3, "queries": 4, "classes": 3, "bound": 2**62 - 1}
    Poll("digest", "labels", **right)
    with pytest.raises(ValueError, match="Expected"):
        Poll("digest", "labels", **(right | wrong))


def test_ballots_beyond_the_bound_or_of_another_shape_are_refused() -> None:
    vote = Vote(bound=10)
    for number in (11, -11, -(2**63)):
        with pytest.raises(ValueError, match="beyond the bound=10"):
            vote.party(0).submit(np.full((4, 3), number))
    with pytest.raises(ValueError, match="Expected 4 × 3 64-bit"):
        vote.party(0).submit(np.zeros((4, 4), dtype=np.int64))
    with pytest.raises(ValueError, match="Expected 4 × 3 64-bit"):
        vote.party(0).submit(np.zeros((4, 3)))  # type: ignore[arg-type]
    vote.party(0).submit(np.full((4, 3), -10))


@pytest.mark.parametrize("party", [0, 1, 2])
def test_the_upload_is_one_vector(party: int) -> None:
    vote = Vote(parties=3, queries=3000, classes=10)
    sent = sum(len(envelope.body) for envelope in vote.party(party).submit(np.zeros((3000, 10), dtype=np.int64)))
    assert sent == vote.protocol.upload_bytes()
    assert sent <= 1.01 * 8 * 3000 * 10


def test_what_must_be_assumed_is_said() -> None:
    protocol = Vote(classes=10).protocol
    assert protocol.assumptions[0].startswith("at most one of the three talliers is curious")
    assert protocol.parameters == {"talliers": 3, "rounds": 45}


def test_the_channels_between_talliers_are_not_those_to_the_coordinator() -> None:
    """An introduction counts only if the tallier itself wrapped it: the coordinator's key will not do."""
    vote = Vote()
    body = msgspec.msgpack.encode(messages.Introduction(bytes(32), bytes(32)))
    forged = Channel(SecretStream().key(), vote.protocol._roster.helpers[0], "", address(1), address(0)).wrap(body)
    with pytest.raises(Rejected, match="tallier:1 did not send"):
        vote.tallier(0).step(vote.frame(0, Relay(1, 0, memoryview(forged))))
