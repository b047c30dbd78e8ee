"""SecAgg and SecAgg+ with an honest coordinator: the totals, dropouts, and what colluders can and cannot read.

(A coordinator that lies: `tests/adversaries`.)
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from masked_sums import Run, ones, session, simulated
from streams import fixed
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import shamir
from unspoken.summation.base import COORDINATOR, Aborted, Rejected, Unsuitable, address_of
from unspoken.summation.graph import ChosenGraph
from unspoken.summation.introductions import mask_seed
from unspoken.summation.keys import public_key
from unspoken.summation.masks import add_masks
from unspoken.summation.pairwise import Options as PairwiseOptions
from unspoken.summation.pairwise import Pairwise
from unspoken.summation.secagg import Options, SecAgg, SecAggPlus
from unspoken.summation.secagg_messages import (
    Opened,
)
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words


def attack(run: Run, victim: int, accomplices: list[int]) -> Words | None:
    """Unmask one party's vector from what its accomplices hold: both its seeds and its mask key."""
    protocol, agreed = run.protocol, run.protocol.session
    points = np.array(accomplices, dtype=np.uint64) + np.uint64(1)
    threshold = protocol.protocol.graph.degree.threshold
    if len(points) < threshold:
        return None
    shares = held(run, victim, accomplices)
    mask_secret = shamir.combine(shares[:threshold, 0], points[:threshold])
    self_seed = shamir.combine(shares[:threshold, 1], points[:threshold])
    label = agreed.label()
    seeds = [(self_seed, False)]
    for other in run.parties[victim].state.keys:
        key = run.coordinator.state.keys[other].mask_key
        seeds.append((mask_seed(mask_secret, key, label, victim, other), not victim < other))
    return agreed.reduce(add_masks(run.masked[victim], seeds, agreed))


def held(run: Run, victim: int, accomplices: list[int]) -> Words:
    shares = [np.frombuffer(run.inboxes[accomplice][victim], dtype="<u4") for accomplice in accomplices]
    return np.stack([share.reshape(-1, shamir.SYMBOLS) for share in shares]).astype(np.uint64)


def test_the_coordinator_with_a_threshold_of_accomplices_unmasks_a_party_and_with_one_less_it_cannot() -> None:
    rows = np.arange(42, dtype=np.uint64).reshape(7, 6)
    run = Run(simulated(SecAgg, session()), rows)
    threshold = run.protocol.protocol.graph.degree.threshold
    enough = list(range(1, 1 + threshold))
    assert (attack(run, 0, enough) == rows[0]).all()
    # One accomplice less: every value of the missing share is possible, so every secret is (checked on one symbol).
    shares, points = held(run, 0, enough[:-1])[:, 0], np.array(enough, dtype=np.uint64) + np.uint64(1)
    guesses = [np.concatenate([shares, np.full((1, 9), guess, dtype=np.uint64)]) for guess in range(50)]
    found = {shamir.combine(guess, points) for guess in guesses}
    assert len(found) == 50
    assert run.secrets[0][1] not in found


@pytest.mark.parametrize("kind", [SecAgg, SecAggPlus])
def test_masked_vectors_of_inputs_with_equal_sums_are_uniform_and_alike(kind: type[SecAgg]) -> None:
    """Two inputs with the same total: each masked vector's bytes are uniform (χ²), and the two transcripts' vectors
    do not differ in distribution (Kolmogorov–Smirnov). False alarms: 1 in 1,000 altogether.
    """
    agreed = session(parties=4, dropouts=0, length=20_000, colluding=1)
    first = np.zeros((4, 20_000), dtype=np.uint64)
    second = first.copy()
    second[0] += np.uint64(2**40)
    second[1] -= np.uint64(2**40)
    runs = [
        Run(simulated(kind, agreed, fixed(name)), rows, seed=name) for name, rows in (("one", first), ("two", second))
    ]
    for run in runs:
        for vector in run.masked.values():
            assert stats.chisquare(np.bincount(vector.view(np.uint8), minlength=256)).pvalue > 1e-4
    for index in range(4):
        pair = [run.masked[index].astype(np.float64) for run in runs]
        assert stats.ks_2samp(*pair).pvalue > 5e-5


def test_a_party_never_opens_both_kinds_of_shares_of_a_dealer() -> None:
    run = Run(simulated(SecAgg, session()), ones(), absent={6})
    run.total()
    for opened in run.coordinator.state.answers.values():
        assert not set(opened.alive) & set(opened.gone)
        assert set(opened.gone) == {6}


@pytest.mark.parametrize(
    "absent", [pytest.param(set(), marks=pytest.mark.long), pytest.param({3}, marks=pytest.mark.long), {3, 17}]
)
def test_a_chosen_graph_sums_whoever_is_there(absent: set[int]) -> None:
    agreed = session(parties=120, dropouts=2, colluding=10)
    protocol = simulated(SecAggPlus, agreed)
    assert isinstance(protocol.protocol.graph, ChosenGraph)
    rows = np.random.default_rng(0).integers(0, 2**63, (120, 6), dtype=np.uint64)
    run = Run(protocol, rows, absent)
    there = [index for index in range(120) if index not in absent]
    assert (run.total() == rows[there].sum(axis=0, dtype=np.uint64)).all()


@pytest.mark.parametrize("kind", [SecAgg, SecAggPlus])
def test_a_curious_coordinator_needs_no_quorum(kind: type[SecAgg]) -> None:
    protocol = SimulatedEndpoints(kind(session(parties=60), Options(coordinator="curious")), SecretStream())
    run = Run(protocol, ones(60), absent={5})
    assert (run.total() == 59).all()
    assert not run.coordinator.state.signed
    assert "follows the protocol" in protocol.protocol.assumptions[0]
    assert not protocol.protocol.withstands_lies
    assert SecAgg(session(), Options()).withstands_lies


def test_parties_that_vanish_after_they_sent_are_in_the_total_as_long_as_a_quorum_stays() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    for envelope in run.coordinator.agree():
        if envelope.to != address_of(3):
            run.deliver([envelope])
    for envelope in run.coordinator.finish():
        if envelope.to not in (address_of(3), address_of(4)):
            run.deliver([envelope])
    assert (run.coordinator.total() == 7).all()


def test_without_a_quorum_there_is_no_total() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    for envelope in run.coordinator.agree()[:4]:
        run.deliver([envelope])
    with pytest.raises(Aborted, match="only 4 parties agreed on the survivors and 5 are needed; nothing was revealed"):
        run.coordinator.finish()


def test_a_party_that_is_told_to_begin_again_after_its_masks_refuses() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    with pytest.raises(Rejected, match="told to begin after"):
        run.parties[0].step(b"")


@pytest.mark.parametrize(("parties", "dropouts"), [(1, 0), (2, 1), (7, 6)])
def test_a_sum_that_may_be_left_with_one_party_is_refused(parties: int, dropouts: int) -> None:
    few = session(parties=parties, dropouts=dropouts, colluding=0)
    with pytest.raises(Unsuitable, match="nobody to mask with"):
        SecAgg(few, Options(coordinator="curious"))
    with pytest.raises(Unsuitable, match="nobody to mask with"):
        Pairwise(few, PairwiseOptions())


def test_noise_seeds_are_recovered_from_other_shares_too() -> None:
    schedule = NoiseSchedule.plan(7, 2, 1, 1e6, 1.0)

    def lie(index: int, message: Any) -> Any:
        if index == 0 and isinstance(message, Opened):
            return msgspec.structs.replace(message, alive_shares=bytes(part ^ 1 for part in message.alive_shares))
        return message

    run = Run(simulated(SecAgg, session(dropouts=1, schedule=schedule)), ones(), change=lie)
    assert (run.total() == 7).all()
    assert all(len(seeds) == len(run.protocol.session.opened(7)) for seeds in run.coordinator.opened().values())


def test_a_party_takes_no_second_introduction_and_no_second_set_of_shares() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    again = run.coordinator._introduce()[0].body
    with pytest.raises(Rejected, match="introduced twice"):
        run.parties[0].step(again)
    run.coordinator.state.keys.pop(3)
    run.coordinator._chosen = {}
    other = run.coordinator._introduce()[0].body
    with pytest.raises(Aborted, match="two different sets"):
        run.parties[0].step(other)


def test_pairwise_masks_are_lost_with_a_party_that_vanishes_and_the_sum_is_given_up() -> None:
    protocol = SimulatedEndpoints(Pairwise(session(), PairwiseOptions()), SecretStream())
    coordinator = protocol.coordinator()
    parties = [protocol.party(index, SecretStream()) for index in range(7)]
    for party in parties:
        coordinator.step(party.step(b"")[0].body)
    for envelope in coordinator.advance():
        parties[int(envelope.to.split(":")[1])].step(envelope.body)
    for party in parties[:6]:
        coordinator.step(party.submit(np.ones(6, dtype=np.uint64))[0].body)
    with pytest.raises(Aborted, match="party 6 exchanged keys but sent no vector"):
        coordinator.finish()


def test_addresses_are_told_apart() -> None:
    assert address_of(3) == "party:3" != COORDINATOR
    assert len(public_key(bytes(31) + b"1")) == 32
    with pytest.raises(ValueError, match="32 bytes"):
        public_key(b"")
