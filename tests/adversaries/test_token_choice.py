"""The last party to reveal its part of a list's seed knows the list, and may refuse.

What it can choose by that is how many honest records are in a batch, and that is counted in δ.
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

from adversaries.batches import fixed_batches
from shuffles import Run, assert_nobody_accepts, opened
from unspoken.data.block import Block
from unspoken.methods.base import Sum, TokenPositions, Tokens
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.methods.training.batches import FixedBatches
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import next_attempt
from unspoken.roles.messages import Carried, ask_for, carried
from unspoken.roles.party import Party
from unspoken.study import Study
from unspoken.summation.base import COORDINATOR, Envelope
from unspoken.summation.shuffle_course import Announce, Confirm, Publish, Signed, Submit
from unspoken.summation.simulated_keys import SimulatedKeys


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


@pytest.mark.parametrize("attempts", [pytest.param(1, marks=pytest.mark.long), 3])
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


@pytest.mark.parametrize(
    "dropped", [pytest.param(Announce, marks=pytest.mark.long), pytest.param(Submit, marks=pytest.mark.long), Publish]
)
def test_a_list_that_ends_before_anyone_reveals_costs_nothing(dropped: type[Signed]) -> None:
    """There are a few of these, as of all attempts, though nobody could choose by anything."""
    dealer = Dealer(fixed_batches())
    for _ in range(FREE_ATTEMPTS):
        assert Confirm not in dealer.deal(0, dropped)
    assert Confirm in dealer.deal(0, dropped=None)


def any_of(lists: int, chance: float) -> float:
    return -math.expm1(lists * math.log1p(-chance))
