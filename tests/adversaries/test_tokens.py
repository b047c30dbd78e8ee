"""Adversaries of a list of tokens: parties that flood or spoil it, and the last one that sees the seed and may refuse.

Numbers of tokens are within the plan's bounds before anyone works with them. Who spoils a list is named where that can
be known. What the last to reveal can choose is how many honest records are in a batch, and that is counted in δ.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from scipy import stats

from factories import make
from shuffles import Run, assert_nobody_accepts, malicious, opened
from unspoken.data.block import Block
from unspoken.methods.base import Sum, TokenPositions, Tokens
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.plan import FREE_ATTEMPTS
from unspoken.methods.training.batches import FixedBatches
from unspoken.noise.stream import SecretStream
from unspoken.roles.messages import Carried, ask_for, carried
from unspoken.roles.party import Party
from unspoken.roles.tries import next_attempt
from unspoken.study import Study
from unspoken.summation import shuffle_course
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, SignedStatement, address_of
from unspoken.summation.keys import verify
from unspoken.summation.mixnet import onion_bytes, wrap
from unspoken.summation.shuffle_course import Announce, Confirm, Publish, Signed, Submit
from unspoken.summation.simulated_keys import SimulatedKeys

BOUNDED = {"least": 1, "most": 4}


def assert_shown(run: Run, who: int) -> None:
    """The coordinator blames this party, with something that it signed."""
    state = run.coordinator.state
    assert state.blamed == (address_of(who),)
    assert state.evidence
    for each in state.evidence:
        assert isinstance(each, SignedStatement)
        assert each.signer == address_of(who)
        verify(run.keys.roster.parties[who], each.statement, each.signature, each.signer)


# Floods


@pytest.mark.parametrize("count", [0, 5, 9])
def test_a_party_with_more_or_fewer_tokens_than_planned_is_named_before_anyone_works(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it signed has the length, so that anyone can see it. No onion is hashed or opened."""
    run = Run((2, 4, 1, 2), **BOUNDED)
    monkeypatch.setattr(shuffle_course, "digests", lambda onions: pytest.fail("an onion was looked at"))
    malicious(run, 2, lambda onions, run: [bytes([number] * onion_bytes(4)) for number in range(count)], Submit)
    assert run.aborted[COORDINATOR] == f"party 2 submitted {count} onions; 1 to 4 are allowed"
    assert_shown(run, 2)
    assert f"/{count * onion_bytes(4)}/".encode() in run.coordinator.state.evidence[0].statement
    assert_nobody_accepts(run)


@pytest.mark.parametrize("count", [1, 4])
def test_the_planned_bounds_themselves_are_allowed(count: int) -> None:
    run = Run((count, 4, 1), **BOUNDED).finish()
    assert run.coordinator.counts == (count, 4, 1)


@pytest.mark.parametrize("count", [0, 5])
def test_a_party_does_not_begin_with_tokens_beyond_the_bounds(count: int) -> None:
    with pytest.raises(ValueError, match=f"Expected 1 <= count={count} <= 4"):
        Run((2, count), **BOUNDED)


def test_bounds_are_those_of_the_study() -> None:
    study = fixed_batches(records=3, max_records=7)
    session = CrossSilo(study).plan().shuffle(0).session
    assert (session.least, session.most) == (3, 7)


def test_what_is_larger_than_any_message_is_rejected_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run((2, 4, 1, 2), **BOUNDED)
    monkeypatch.setattr(shuffle_course, "decode", lambda incoming, kind: pytest.fail("a message was decoded"))
    for endpoint in (run.coordinator, *run.parties):
        before = endpoint.dump()
        with pytest.raises(Rejected, match="bytes came where"):
            endpoint.step(bytes(run.protocol.session.largest_message + 1))
        assert endpoint.dump() == before


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_no_message_is_larger_than_stated(parties: int) -> None:
    """If all parties have as many tokens as they may, the longest message is as long as stated."""
    run = Run((4,) * parties, **BOUNDED).finish()
    longest = max(len(msgspec.msgpack.encode(message)) for message in run.seen)
    assert longest == run.protocol.session.largest_message


# Sand


LOW_ORDER = [bytes(32), bytes([1]) + bytes(31), bytes.fromhex("ec" + "ff" * 30 + "7f")]


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_key_that_hides_nothing_is_refused_when_it_comes(key: bytes) -> None:
    run = Run()
    honest = run.parties[1]._signed
    run.parties[1]._signed = lambda kind, body: honest(kind, key + body[32:] if kind is Announce else body)
    run.finish()
    assert run.aborted[COORDINATOR] == "party 1 announced an invalid key"
    assert not any(isinstance(message, Submit) for message in run.seen)
    assert_shown(run, 1)
    assert_nobody_accepts(run)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (Announce, b"short", "announced a key and a digest of 5 bytes; 64 were due"),
        (Submit, b"short", "submitted 5 bytes; its onions must have 208 each"),
        (Publish, b"short", "published a list of 5 bytes"),
        (Publish, bytes(9 * 112), "list of party 1 has the same onion twice"),
        (Confirm, bytes(32), "revealed a part of the seed that does not match its commitment"),
    ],
)
def test_who_signs_what_is_wrong_by_itself_is_named_with_proof(kind: type[Signed], body: bytes, reason: str) -> None:
    run = Run()
    honest = run.parties[1]._signed
    run.parties[1]._signed = lambda of, right: honest(of, body if of is kind else right)
    run.finish()
    assert reason in run.aborted[COORDINATOR]
    assert_shown(run, 1)
    assert_nobody_accepts(run)


def test_who_copies_another_party_s_onion_is_named_by_the_coordinator() -> None:
    """It can copy only what it has seen, so that its own comes later. Parties cannot know what came first."""
    run = Run()

    def copied(onions: list[bytes], run: Run) -> list[bytes]:
        first = next(bytes(opened(each.body).body) for each in run.queue if each.to == COORDINATOR)
        return [*onions[:-1], first[: onion_bytes(4)]]

    malicious(run, 2, copied, Submit)
    assert "the list of all submissions has the same onion twice" in run.aborted[COORDINATOR]
    assert run.coordinator.state.blamed == (address_of(2),)


def test_a_party_that_signs_another_history_is_named_by_the_coordinator() -> None:
    run = Run()
    party, honest = run.parties[3], run.parties[3]._signed

    def elsewhere(kind: type[Signed], body: bytes) -> Envelope:
        if kind is Submit:
            party.state.after = bytes(32)
        return honest(kind, body)

    party._signed = elsewhere
    run.finish()
    assert "party 3 signed a different history" in run.aborted[COORDINATOR]
    assert_shown(run, 3)


@pytest.mark.parametrize("owner", [0, 2, 3])
@pytest.mark.parametrize("kind", ["garbage", "a token twice"])
def test_the_first_to_peel_names_the_owner_of_a_bad_onion(owner: int, kind: str) -> None:
    """Nobody has shuffled yet, so that the place of an onion shows whose it is."""

    def bad(onions: list[bytes], run: Run) -> list[bytes]:
        if kind == "garbage":
            return [*onions[:-1], bytes(onion_bytes(4))]
        keys = run.coordinator.state.keys
        inner = wrap(bytes(16), keys[1:])[0]
        return [sealed(inner, keys[0]) for _ in onions]

    run = malicious(Run(), owner, bad, Submit)
    assert "cannot be decrypted" in run.aborted[address_of(0)] or "hold the same" in run.aborted[address_of(0)]
    assert run.parties[0].state.blamed == (address_of(owner),)
    assert_nobody_accepts(run)


def sealed(inner: bytes, key: bytes) -> bytes:
    from nacl.public import PublicKey, SealedBox

    found: bytes = SealedBox(PublicKey(key)).encrypt(inner)
    return found


@pytest.mark.parametrize("index", [0, 1, 3])
def test_who_drops_an_onion_is_blamed_by_its_owner(index: int) -> None:
    def replaced(onions: list[bytes], run: Run) -> list[bytes]:
        theirs = run.parties[2].state.marks[index + 1]
        place = next(i for i, onion in enumerate(onions) if hashlib.sha256(onion).digest() in theirs)
        own = wrap(bytes(16), run.coordinator.state.keys[index + 1 :])[0]
        return [*onions[:place], own, *onions[place + 1 :]]

    run = malicious(Run(), index, replaced)
    assert run.parties[2].state.blamed == (address_of(index),)


def test_a_party_that_gives_up_keeps_no_secret() -> None:
    run = Run()
    states = [party.state for party in run.parties]
    secrets = [secret for state in states for secret in (state.layer_secret, state.shuffle_key, state.part_of_seed)]
    secrets += [state.own[:16] for state in states if state.own]
    malicious(run, 1, lambda onions, run: onions[1:])
    # The coordinator has given up, and would hand it to nobody.
    short = next(msgspec.msgpack.encode(message) for message in reversed(run.seen) if isinstance(message, Publish))
    for party in run.parties:
        with pytest.raises(Aborted, match="party 1 published a list"):
            party.step(short)
        assert not [secret for secret in secrets if secret in party.dump()]
        assert party.state.marks == []


def test_a_party_that_lost_its_state_puts_no_token_under_the_key_that_it_announced_before() -> None:
    """The coordinator hands on what it signed before it began again: it could not take that layer off any more."""
    run = Run()
    run.begin()
    announced = [envelope.body for envelope in run.queue]
    again = run.new_party(1, SecretStream())
    again.step(b"")
    for body in announced[:-1]:
        again.step(body)
    with pytest.raises(Aborted, match="announced a key in this party's name"):
        again.step(announced[-1])


def test_the_coordinator_names_who_has_not_answered() -> None:
    run = Run()
    run.begin()
    while run.coordinator.waiting_for != [2]:
        run.deliver()
    run.aborted[address_of(2)] = "gone"
    run.finish()
    with pytest.raises(Aborted, match=r"parties \[2\] have not answered") as raised:
        run.coordinator.tokens()
    assert raised.value.blamed == (address_of(2),)


def test_nothing_of_one_attempt_is_taken_in_another() -> None:
    """Not even if its label is changed: it is in all signatures."""
    first = Run(attempt=bytes([1] * 16)).finish()
    second = Run(attempt=bytes([2] * 16))
    second.begin()
    for message in first.seen:
        for altered, reason in ((message, "another list"), (relabelled(message, second), r"signature|not due")):
            for endpoint in (second.coordinator, *second.parties):
                before = endpoint.dump()
                with pytest.raises(Rejected, match=reason):
                    endpoint.step(msgspec.msgpack.encode(altered))
                assert endpoint.dump() == before
    assert second.finish().coordinator.complete


def relabelled(message: Signed, run: Run) -> Signed:
    return msgspec.structs.replace(message, session=run.protocol.session.label())


# The last to reveal


def test_the_last_to_reveal_knows_the_seed_and_can_prevent_the_list() -> None:
    """That is its whole choice: it cannot reveal another number, and without it nobody has a list."""
    run = Run()
    honest = run.parties[3]._signed
    withheld: list[bytes] = []

    def silent(kind: type[Signed], body: bytes) -> Envelope:
        if kind is Confirm:
            withheld.append(body)
            return Envelope("nobody", b"")
        return honest(kind, body)

    run.parties[3]._signed = silent
    run.aborted["nobody"] = "what is sent there gets lost"
    run.finish()
    parts = {message.sender: bytes(message.body) for message in run.seen if isinstance(message, Confirm)} | {
        3: withheld[0]
    }
    known = hashlib.sha256(b"".join(parts[party] for party in range(4))).digest()[:16]
    assert int.from_bytes(known) == Run().finish().coordinator.seed()
    assert_nobody_accepts(run)


def fixed_batches(rounds: int = 2, attempts: int = 1, **section: int) -> Study:
    """Four parties, of which one may collude; a batch has three in ten of all records."""
    section = {"count": 4, "records": 5, "max_records": 5} | section
    method = {"name": "cross-silo", "sampling": "without-replacement", "rounds": rounds, "rate": 0.3}
    promise = {"delta": 1e-2, "colluding": 1, "attempts": attempts}
    return make(task="regression", parties=section, method=method, **promise)


def batches_of(study: Study) -> FixedBatches:
    batches = CrossSilo(study).make_workload().batches  # type: ignore[attr-defined]
    assert isinstance(batches, FixedBatches)
    return batches


def test_choosing_among_lists_tells_nothing_of_which_honest_records_are_in_the_batch(
    runs: Callable[[int, int], int],
) -> None:
    """Of eight lists the adversary takes the one with most honest records, or with its own first token in the batch:
    given their number, all honest records are in it alike. χ² for each number; false alarms: 1 in 10,000.
    """
    batches, rng = batches_of(fixed_batches()), np.random.default_rng(0)
    honest, everyone = 15, 20
    seen: dict[int, Counter[int]] = {}
    trials: Counter[int] = Counter()
    for turn in range(runs(1500, 8000)):
        best: tuple[int, list[int]] | None = None
        for _ in range(8):
            # The order of honest tokens is secret; where the adversary's are it knows, and chooses by that.
            places = rng.permutation(everyone)
            batch = set(batches.batch(TokenPositions(places, everyone, int(rng.integers(2**63)))).tolist())
            taken = [record for record in range(honest) if int(places[record]) in batch]
            first = int(places[honest]) in batch
            score = len(taken) if turn % 2 else first
            if best is None or score > best[0]:
                best = score, taken
        assert best is not None
        taken = best[1]
        trials[len(taken)] += 1
        seen.setdefault(len(taken), Counter()).update(taken)
    tested = [number for number in seen if 0 < number < honest and trials[number] * number > 200]
    assert tested
    for number in tested:
        counts = [seen[number][record] for record in range(honest)]
        # Drawn without replacement within a batch, so that counts vary a little less than χ² says.
        assert stats.chisquare(counts).pvalue > 1e-4 / len(tested)


@pytest.mark.parametrize(("records", "rounds", "attempts"), [(100, 1, 1), (100, 7, 1), (100, 7, 3), (400, 30, 5)])
def test_the_choice_among_as_many_lists_as_are_counted_is_within_delta_and_among_more_is_not(
    records: int, rounds: int, attempts: int
) -> None:
    """The chance that in some round the best of its lists has more honest records than the noise is sized for."""
    study = fixed_batches(rounds, attempts, records=records, max_records=records)
    batches = batches_of(study)
    sampling = batches.sampling(0.0)
    everyone, theirs = 4 * records, records
    honest, size = everyone - theirs, batches.size(everyone)
    most = round(sampling.rate * honest)
    assert most < min(size, honest)
    beyond = float(stats.hypergeom.sf(most, everyone, honest, size))
    lists = rounds * attempts
    assert 0.0 < any_of(lists, beyond) <= sampling.slack == pytest.approx(0.01 * study.privacy.delta)
    too_many = math.ceil(2.0 * sampling.slack / beyond)
    assert any_of(too_many, beyond) > sampling.slack
    # One record more would have been counted for nothing: the rate is as small as it can be.
    assert any_of(lists, float(stats.hypergeom.sf(most - 1, everyone, honest, size))) > sampling.slack


class Dealer:
    """A coordinator that lets the last party refuse, and asks for another list.

    It drops a kind of messages instead of handing them on: with the confirmations it has all parts of the seed, and
    parties have no list.
    """

    def __init__(self, study: Study) -> None:
        self.method = CrossSilo(study)
        self.plan, self.keys = self.method.plan(), SimulatedKeys(SecretStream(), study.parties.count)
        features = np.zeros((1, study.parties.records, study.data.dimension))
        records = Block(features, np.zeros(features.shape[:2]), np.array([study.parties.records]))
        self.parties = [
            Party(self.method, records, self.keys.identity(index), self.keys.roster, plan=self.plan)
            for index in range(study.parties.count)
        ]
        self.attempt = b""

    def deal(self, turn: int, dropped: type[Signed] | None) -> set[type[Signed]]:
        """One list for a turn; returns what parties have sent."""
        self.attempt = next_attempt(self.attempt)
        shuffle = self.plan.shuffle(turn, self.attempt).with_roster(self.keys.roster)
        endpoint = shuffle.coordinator(self.keys.coordinator, SecretStream())
        ask = msgspec.msgpack.encode(ask_for(Tokens(turn), turn, self.attempt))
        waiting = [envelope for party in self.parties for envelope in party.receive(ask)]
        sent = set()
        while waiting:
            envelope = waiting.pop(0)
            if envelope.to != COORDINATOR:
                waiting += self.parties[int(envelope.to.split(":")[1])].receive(envelope.body)
                continue
            body = bytes(msgspec.msgpack.decode(envelope.body, type=Carried).body)
            sent.add(type(opened(body)))
            if type(opened(body)) is not dropped:
                waiting += carried(endpoint.step(body), self.attempt)
        return sent


@pytest.mark.parametrize("attempts", [1, 3])
def test_parties_reveal_their_parts_of_as_many_seeds_a_round_as_are_counted(attempts: int) -> None:
    """After so many refusals by the last one, there is no other list for the round, and no batch without one."""
    dealer = Dealer(fixed_batches(attempts=attempts))
    for _ in range(attempts):
        assert Confirm in dealer.deal(0, dropped=Confirm)
    with pytest.raises(Refused, match='turn 0 of "tokens" is over'):
        dealer.deal(0, dropped=None)
    ask = msgspec.msgpack.encode(ask_for(Sum("gradient", np.zeros(5), 0), 0, next_attempt(dealer.attempt)))
    with pytest.raises(Refused, match="no list of tokens for turn 0"):
        dealer.parties[0].receive(ask)
    assert dealer.deal(1, dropped=None) == {Announce, Submit, Publish, Confirm}


@pytest.mark.parametrize("dropped", [Announce, Submit, Publish])
def test_a_list_that_ends_before_anyone_reveals_costs_nothing(dropped: type[Signed]) -> None:
    """There are a few of these, as of all attempts, though nobody could choose by anything."""
    dealer = Dealer(fixed_batches())
    for _ in range(FREE_ATTEMPTS):
        assert Confirm not in dealer.deal(0, dropped)
    assert Confirm in dealer.deal(0, dropped=None)


def any_of(lists: int, chance: float) -> float:
    return -math.expm1(lists * math.log1p(-chance))
