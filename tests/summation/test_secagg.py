"""The adversary of SecAgg and SecAgg+: a curious coordinator with some parties, and what it may not get.

Written down: the adversary sees all that the coordinator sees and holds the secrets of its parties. Below the
threshold it cannot unmask a single honest party; with one accomplice more it can, so the bound is where it is said to
be.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import pytest
from scipy import stats

from unspoken.noise.stream import SecretStream
from unspoken.summation import shamir
from unspoken.summation.base import COORDINATOR, Aborted, Rejected, Session, address_of, bitmap
from unspoken.summation.graph import Degree
from unspoken.summation.introductions import Advertise, Introduce, mask_seed
from unspoken.summation.keys import public_key
from unspoken.summation.masks import add_masks
from unspoken.summation.pairwise import Options as PairwiseOptions
from unspoken.summation.pairwise import Pairwise
from unspoken.summation.secagg import Options, SecAgg, SecAggParty, SecAggPlus
from unspoken.summation.secagg_coordinator import SecAggCoordinator
from unspoken.summation.secagg_messages import Masked, Relay, Unmask
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words


def session(parties: int = 7, dropouts: int = 2, length: int = 6, colluding: int = 2) -> Session:
    return Session("digest", "model", parties, colluding, parties - dropouts, length, 64)


def simulated(kind: type[SecAgg], agreed: Session, secrets: SecretStream | None = None) -> SimulatedEndpoints[SecAgg]:
    return SimulatedEndpoints(kind(agreed, Options()), secrets or SecretStream())


def fixed(name: str) -> SecretStream:
    """Secret randomness that is the same in every run of the tests."""
    return SecretStream(hashlib.sha256(name.encode()).digest())


class Run:
    """A run up to the vectors, with everything that the coordinator saw."""

    def __init__(
        self, protocol: SimulatedEndpoints[SecAgg], rows: Words, absent: set[int] | None = None, seed: str = ""
    ) -> None:
        self.protocol = protocol
        self.coordinator: SecAggCoordinator = protocol.coordinator()
        self.parties: list[SecAggParty] = [
            protocol.party(i, fixed(f"{seed}/{i}")) for i in range(protocol.session.parties)
        ]
        self.masked: dict[int, Words] = {}
        for party in self.parties:
            self.coordinator.step(party.step(b"")[0].body)
        for _ in range(2):
            for envelope in self.coordinator.advance():
                for answer in self.at(envelope.to).step(envelope.body):
                    self.coordinator.step(answer.body)
        for index, row in enumerate(rows):
            if index not in (absent or set()):
                envelope = self.parties[index].submit(row)[0]
                framed = msgspec.msgpack.decode(envelope.body)
                masked = msgspec.msgpack.decode(framed[3][28:], type=Masked)
                self.masked[index] = protocol.session.unpack(masked.vector)
                self.coordinator.step(envelope.body)

    def at(self, address: str) -> SecAggParty:
        return self.parties[int(address.split(":")[1])]


def attack(run: Run, victim: int, accomplices: list[int]) -> Words | None:
    """Unmask one party's vector from what its accomplices hold: both its seeds and its mask key."""
    protocol, session_ = run.protocol, run.protocol.session
    points = np.array(accomplices, dtype=np.uint64) + np.uint64(1)
    threshold = protocol.protocol.degree.threshold
    if len(points) < threshold:
        return None
    shares = np.stack([run.parties[accomplice]._share_of(victim) for accomplice in accomplices]).astype(np.uint64)
    mask_secret = shamir.combine(shares[:threshold, 0], points[:threshold])
    self_seed = shamir.combine(shares[:threshold, 1], points[:threshold])
    label = session_.label()
    seeds = [(self_seed, False)]
    for other in run.parties[victim].state.inbox:
        key = run.coordinator.state.keys[other].mask_key
        seeds.append((mask_seed(mask_secret, key, label, victim, other), not victim < other))
    return session_.reduce(add_masks(run.masked[victim], seeds, session_))


def test_the_coordinator_with_a_threshold_of_accomplices_unmasks_a_party_and_with_one_less_it_cannot() -> None:
    rows = np.arange(42, dtype=np.uint64).reshape(7, 6)
    run = Run(simulated(SecAgg, session()), rows)
    threshold = run.protocol.protocol.degree.threshold
    enough = list(range(1, 1 + threshold))
    assert (attack(run, 0, enough) == rows[0]).all()
    # One accomplice less: every value of the missing share is possible, so every secret is (checked on one symbol).
    shares = np.stack([run.parties[a]._share_of(0) for a in enough[:-1]]).astype(np.uint64)
    points = np.array(enough, dtype=np.uint64) + np.uint64(1)
    for guess in (0, 1, 12345):
        missing = np.full((1, shares.shape[2]), guess, dtype=np.uint64)
        found = shamir.combine(np.concatenate([shares[:, 0], missing]), points)
        assert found != run.parties[0].state.mask_secret
    assert (
        len(
            {
                shamir.combine(np.concatenate([shares[:, 0], np.full((1, 9), g, dtype=np.uint64)]), points)
                for g in range(50)
            }
        )
        == 50
    )


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


def unmask(run: Run, survivors: list[int]) -> bytes:
    present = np.isin(np.arange(run.protocol.session.parties), survivors)
    return msgspec.msgpack.encode(Unmask(bitmap(present)))


def ask(run: Run, party: int, message: bytes) -> list[object]:
    """What a party answers to a coordinator that says what it likes."""
    return list(run.parties[party].step(run.coordinator._channel(party).wrap(message)))


def test_a_party_answers_one_unmasking_request_and_no_second_one_that_differs() -> None:
    rows = np.ones((7, 6), dtype=np.uint64)
    run = Run(simulated(SecAgg, session()), rows)
    assert ask(run, 0, unmask(run, [0, 1, 2, 3, 4, 5]))
    assert ask(run, 0, unmask(run, [0, 1, 2, 3, 4, 5]))
    with pytest.raises(Aborted, match="second, different unmasking"):
        ask(run, 0, unmask(run, [0, 1, 2, 3, 4, 6]))


def test_a_party_never_opens_both_kinds_of_shares_of_a_neighbour() -> None:
    rows = np.ones((7, 6), dtype=np.uint64)
    run = Run(simulated(SecAgg, session()), rows, absent={6})
    for envelope in run.coordinator.finish():
        for answer in run.at(envelope.to).step(envelope.body):
            framed = msgspec.msgpack.decode(answer.body)
            _, alive, _, gone, _ = msgspec.msgpack.decode(framed[3][28:])
            assert not set(alive) & set(gone)
            assert set(gone) == {6}


def test_a_party_refuses_to_unmask_too_few_or_without_itself() -> None:
    run = Run(simulated(SecAgg, session()), np.ones((7, 6), dtype=np.uint64))
    with pytest.raises(Aborted, match="only 4 of 7 parties"):
        ask(run, 0, unmask(run, [0, 1, 2, 3]))
    with pytest.raises(Aborted, match="left out this party"):
        ask(run, 0, unmask(run, [1, 2, 3, 4, 5]))


def introduced(protocol: SimulatedEndpoints[SecAgg]) -> Introduce:
    """What an honest coordinator would introduce party 0 to."""
    coordinator = protocol.coordinator()
    for index in range(protocol.session.parties):
        coordinator.step(protocol.party(index, SecretStream()).step(b"")[0].body)
    neighbours = [coordinator.state.keys[other] for other in coordinator._neighbours(0)]
    return Introduce(coordinator.state.nonce, neighbours)


def meet(protocol: SimulatedEndpoints[SecAgg], introduction: Introduce) -> None:
    protocol.party(0, SecretStream())._meet(introduction)


def test_a_party_refuses_a_weaker_graph_and_foreign_or_forged_neighbours() -> None:
    protocol = simulated(SecAggPlus, session(parties=60, dropouts=2, colluding=3))
    assert protocol.protocol.degree.neighbours < 59
    whole = introduced(protocol)
    meet(protocol, whole)
    few = whole.neighbours[: protocol.protocol.degree.threshold - 1]
    with pytest.raises(Aborted, match="neighbours were introduced; "):
        meet(protocol, msgspec.structs.replace(whole, neighbours=few))
    stranger = next(i for i in range(1, 60) if i not in {n.sender for n in whole.neighbours})
    foreign = protocol.party(stranger, SecretStream()).step(b"")[0]
    advertised = msgspec.msgpack.decode(msgspec.msgpack.decode(foreign.body)[3], type=Advertise)
    with pytest.raises(Aborted, match=f"party {stranger} was introduced twice, or is not a neighbour"):
        meet(protocol, msgspec.structs.replace(whole, neighbours=[*whole.neighbours, advertised]))
    with pytest.raises(Aborted, match="introduced twice, or is not a neighbour"):
        meet(protocol, msgspec.structs.replace(whole, neighbours=[*whole.neighbours, whole.neighbours[0]]))
    forged = msgspec.structs.replace(whole.neighbours[0], mask_key=public_key(bytes(32)))
    with pytest.raises(Rejected, match="signature of party"):
        meet(protocol, msgspec.structs.replace(whole, neighbours=[forged, *whole.neighbours[1:]]))


def test_a_coordinator_cannot_introduce_itself_under_a_partys_name() -> None:
    """Keys that another roster's party 1 signed do not fit this roster."""
    protocol, other = (simulated(SecAgg, session()) for _ in range(2))
    envelope = other.party(1, SecretStream()).step(b"")[0]
    with pytest.raises(Rejected, match="signature of party 1"):
        protocol.coordinator().step(envelope.body)


def test_a_party_takes_no_second_introduction_and_no_second_set_of_shares() -> None:
    run = Run(simulated(SecAgg, session()), np.ones((7, 6), dtype=np.uint64))
    party = run.parties[0]
    keys = [run.coordinator.state.keys[other] for other in range(1, 7)]
    again = msgspec.msgpack.encode(Introduce(run.coordinator.state.nonce, keys))
    with pytest.raises(Rejected, match="introduced twice"):
        ask(run, 0, again)
    other = msgspec.msgpack.encode(Introduce(bytes(16), keys))
    with pytest.raises(Aborted, match="two different sets"):
        ask(run, 0, other)
    with pytest.raises(Rejected, match="shares came twice"):
        ask(run, 0, msgspec.msgpack.encode(Relay(list(party.state.inbox), list(party.state.inbox.values()))))


def test_a_wrong_share_ends_in_an_abort_and_never_in_a_wrong_total() -> None:
    for kind in ("alive", "gone"):
        run = Run(simulated(SecAgg, session()), np.ones((7, 6), dtype=np.uint64), absent={6})
        for envelope in run.coordinator.finish():
            for answer in run.at(envelope.to).step(envelope.body):
                run.coordinator.step(answer.body)
        answers = run.coordinator.state.answers
        holder, victim = next((sender, getattr(a, kind)[0]) for sender, a in answers.items() if getattr(a, kind))
        shares = getattr(answers[holder], f"{kind}_shares")
        # Not the lowest bits: X25519 ignores three of them in a key, so a change there changes nothing.
        damaged = shares[:2] + bytes([shares[2] ^ 1]) + shares[3:]
        answers[holder] = msgspec.structs.replace(answers[holder], **{f"{kind}_shares": damaged})
        with pytest.raises(Aborted, match=f"opened shares of party {victim} do not give"):
            run.coordinator.total()


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
    with pytest.raises(Aborted, match="parties 6 exchanged keys but sent no vector"):
        coordinator.finish()


def test_pairwise_masks_along_a_graph_that_colluders_could_cut_are_refused() -> None:
    big = Session("digest", "model", 500, 250, 500, 6, 64)
    with pytest.raises(Exception, match="could cut an honest party off"):
        Pairwise(big, PairwiseOptions(group=10))
    assert Pairwise(big, PairwiseOptions(group=120)).degree == Degree(120, 120)


def test_addresses_are_told_apart() -> None:
    assert address_of(3) == "party:3" != COORDINATOR
