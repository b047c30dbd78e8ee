"""One conformance suite for all summation protocols, driven message by message as an engine would."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damaging import damage
from factories import make
from other_packages import of_ours
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Endpoint,
    Envelope,
    Party,
    Protocol,
    Rejected,
    Session,
    VoteShape,
    address_of,
)
from unspoken.summation.collection import Collection
from unspoken.summation.collection import Options as CollectionOptions
from unspoken.summation.registry import PROTOCOLS, open_session
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words

EACH = pytest.mark.parametrize("name", [name for name, kind in PROTOCOLS.items() if "sum" in kind.serves])
KEY = bytes(range(32))


def session(
    parties: int = 6, dropouts: int = 2, length: int = 5, bits: int = 64, sum_name: str = "model", opening: bool = False
) -> Session:
    schedule = NoiseSchedule.plan(parties, 1, dropouts, 1e6, 1.0) if opening else None
    return Session("digest", sum_name, parties, 1, parties - dropouts, length, bits, schedule)


def opened(name: str, agreed: Session, key: bytes | None = None) -> SimulatedEndpoints[Protocol]:
    return SimulatedEndpoints(open_session(make(parties=6, summation=name), agreed), SecretStream(key))


OPENS = [
    name
    for name, kind in PROTOCOLS.items()
    if "sum" in kind.serves and not kind.reveals_contributions and opened(name, session()).protocol.opens_noise
]
"""The protocols that open the seeds of noise that is not needed"""


def test_our_protocols_that_open_noise_are_among_those_that_are_tried() -> None:
    assert {"secagg", "secagg+", "compute-nodes"} <= set(OPENS)


def vectors(agreed: Session, seed: int = 0) -> Words:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**agreed.bits, (agreed.parties, agreed.length), dtype=np.uint64)


@dataclass
class Network:
    """Delivers envelopes, and remembers all of them; parties that are gone get nothing more."""

    protocol: SimulatedEndpoints[Protocol]
    seen: list[Envelope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinator: Coordinator = self.protocol.coordinator()
        self.parties: dict[int, Party] = {
            index: self.protocol.party(index, SecretStream()) for index in range(self.protocol.session.parties)
        }
        self.endpoints: dict[str, Endpoint] = {
            **self.protocol.helpers(),
            COORDINATOR: self.coordinator,
            **{address_of(index): party for index, party in self.parties.items()},
        }

    def deliver(self, envelopes: list[Envelope]) -> None:
        waiting = list(envelopes)
        while waiting:
            envelope = waiting.pop(0)
            self.seen.append(envelope)
            if envelope.to in self.endpoints:
                waiting += self.endpoints[envelope.to].step(envelope.body)

    def lose(self, index: int) -> None:
        self.endpoints.pop(address_of(index), None)

    def set_up(self) -> None:
        for party in self.parties.values():
            self.deliver(party.step(b""))
        for _ in range(self.coordinator.setup_stages):
            self.deliver(self.coordinator.advance())

    def submit(self, rows: Words) -> None:
        for index, row in enumerate(rows):
            if address_of(index) in self.endpoints:
                self.deliver(self.parties[index].submit(row))

    def finish(self) -> Words:
        self.deliver(self.coordinator.settle())
        self.deliver(self.coordinator.agree())
        self.deliver(self.coordinator.finish())
        return self.coordinator.total()


def expected(rows: Words, agreed: Session) -> Words:
    return agreed.reduce(rows.sum(axis=0, dtype=np.uint64))


@EACH
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("length", [1, 4, 1000])
def test_the_total_is_the_sum_modulo_the_word(name: str, bits: int, length: int) -> None:
    agreed = session(bits=bits, length=length)
    rows = vectors(agreed)
    network = Network(opened(name, agreed))
    network.set_up()
    network.submit(rows)
    assert (network.finish() == expected(rows, agreed)).all()
    assert network.coordinator.survivors().all()


@pytest.mark.parametrize("name", OPENS)
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_exactly_the_unneeded_noise_seeds_are_opened_and_they_are_the_parties_own(name: str, gone: int) -> None:
    agreed = session(parties=8, dropouts=2, opening=True)
    rows = vectors(agreed)
    network = Network(opened(name, agreed))
    network.set_up()
    for index in range(gone):
        network.lose(index)
    drawn = {index: list(party.seeds) for index, party in network.parties.items()}
    network.submit(rows)
    assert (network.finish() == expected(rows[gone:], agreed)).all()
    numbers = agreed.opened(8 - gone)
    assert (numbers == ()) == (gone == 2)
    seeds = network.coordinator.opened()
    assert set(seeds) == set(range(gone, 8))
    for index, found in seeds.items():
        assert found == [drawn[index][number] for number in numbers]


def is_open(name: str) -> bool:
    """Whether vectors are sent in the clear: then nobody signs them, and two of them reveal nothing new."""
    return PROTOCOLS[name].reveals_contributions


@EACH
def test_a_party_that_sends_twice_is_counted_once(name: str) -> None:
    agreed = session()
    rows = vectors(agreed)
    network = Network(opened(name, agreed))
    network.set_up()
    for index, row in enumerate(rows):
        network.deliver(network.parties[index].submit(row))
        # A party that is asked again repeats itself, whatever it is given: two vectors would reveal their difference.
        for envelope in network.parties[index].submit(row if is_open(name) else row + np.uint64(1)):
            with pytest.raises(Rejected):
                network.deliver([envelope])
    assert (network.finish() == expected(rows, agreed)).all()


@pytest.mark.parametrize(
    "name", ["collection", *(name for name, kind in PROTOCOLS.items() if not kind.reveals_contributions)]
)
def test_one_vector_leaves_and_is_repeated_until_it_is_forgotten(name: str) -> None:
    """Two vectors under one mask, or one common noise, would reveal their difference."""
    if name == "collection":
        endpoints: Any = SimulatedEndpoints(Collection(session(), CollectionOptions()), SecretStream())
    elif name == "tally":
        vote = replace(session(), length=6, vote=VoteShape(2, 3))
        endpoints = SimulatedEndpoints(open_session(make(parties=6, summation=name), vote), SecretStream())
    else:
        endpoints = opened(name, session())
    network, rows = Network(endpoints), np.arange(12, dtype=np.uint64).reshape(2, 6)
    network.set_up()
    party, rows = network.parties[0], rows[:, : endpoints.session.length]
    first = party.submit(rows[0])
    assert first
    assert party.submit(rows[1]) == first
    party.forget_vector()
    with pytest.raises(Aborted, match=of_ours(name, "sent and deleted")):
        party.submit(rows[1])


@EACH
def test_endpoints_go_on_after_being_dumped_and_loaded_between_any_two_steps(name: str) -> None:
    agreed = session(opening=name in OPENS)
    rows = vectors(agreed)
    network = Network(opened(name, agreed, KEY))

    def reload() -> None:
        """New processes with the same keys in their rosters, and the states of the old ones."""
        fresh = Network(opened(name, agreed, KEY))
        for address, endpoint in network.endpoints.items():
            fresh.endpoints[address].load(endpoint.dump())
        network.endpoints, network.coordinator, network.parties = fresh.endpoints, fresh.coordinator, fresh.parties

    for index in range(agreed.parties):
        network.deliver(network.parties[index].step(b""))
        reload()
    for _ in range(network.coordinator.setup_stages):
        for envelope in network.coordinator.advance():
            network.deliver([envelope])
            reload()
    for index, row in enumerate(rows):
        for envelope in network.parties[index].submit(row):
            network.deliver([envelope])
            reload()
    network.deliver(network.coordinator.settle())
    reload()
    network.deliver(network.coordinator.agree())
    for envelope in network.coordinator.finish():
        network.deliver([envelope])
        reload()
    assert (network.coordinator.total() == expected(rows, agreed)).all()
    assert len(network.coordinator.opened()) in (0, agreed.parties)


@EACH
def test_messages_of_another_study_or_sum_are_rejected(name: str) -> None:
    agreed, other = session(), session(sum_name="another")
    network, foreign = Network(opened(name, agreed, KEY)), Network(opened(name, other, KEY))
    foreign.set_up()
    foreign.submit(vectors(other))
    for envelope in foreign.seen:
        with pytest.raises(Rejected):
            network.deliver([envelope])


@EACH
@given(data=st.data())
def test_altered_truncated_and_random_messages_are_rejected_and_change_nothing(name: str, data: st.DataObject) -> None:
    """One message of a run, of any kind and in any direction, arrives damaged first and then as it was sent."""
    agreed = session(parties=4, dropouts=0)
    rows = vectors(agreed)
    network = Network(opened(name, agreed))
    attacked = data.draw(st.integers(0, 30))
    counted = 0

    def deliver(envelopes: list[Envelope]) -> None:
        nonlocal counted
        waiting = list(envelopes)
        while waiting:
            envelope = waiting.pop(0)
            if counted == attacked:
                damaged = damage(envelope.body, data, flips=not is_open(name))
                before = {address: endpoint.dump() for address, endpoint in network.endpoints.items()}
                if damaged:
                    with pytest.raises(Rejected):
                        network.endpoints[envelope.to].step(damaged)
                assert {address: endpoint.dump() for address, endpoint in network.endpoints.items()} == before
            counted += 1
            waiting += network.endpoints[envelope.to].step(envelope.body)

    network.deliver = deliver  # type: ignore[method-assign]
    network.set_up()
    network.submit(rows)
    assert (network.finish() == expected(rows, agreed)).all()


@EACH
@given(garbage=st.binary(min_size=1, max_size=400))
def test_no_decoder_crashes_or_hangs_on_garbage(name: str, garbage: bytes) -> None:
    network = NETWORKS.setdefault(name, Network(opened(name, session())))
    for address, endpoint in network.endpoints.items():
        before = endpoint.dump()
        try:
            assert endpoint.step(garbage) == [], "an answer to garbage"
        except Rejected:
            continue
        assert address.startswith("party:"), "whoever takes messages rejects garbage"
        assert endpoint.dump() == before, "a party that takes no messages ignores them"


NETWORKS: dict[str, Network] = {}


@EACH
def test_a_length_that_lies_costs_no_memory(name: str) -> None:
    """MessagePack headers that announce 4 GB: refused at once, without setting anything aside."""
    network = Network(opened(name, session()))
    for header in (b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x94" * 10_000):
        with pytest.raises(Rejected):
            network.endpoints[COORDINATOR].step(header)


def test_the_label_of_a_session_does_not_depend_on_the_last_bits_of_its_noise() -> None:
    """Machines differ in these: their messages are bound to the same label all the same."""
    needed = 12_345_678.9

    def label(needed: float) -> str:
        schedule = NoiseSchedule.plan(6, 1, 2, needed, 1.0)
        return Session("digest", "model", 6, 1, 4, 5, 64, schedule).label()

    assert label(needed) == label(math.nextafter(needed, math.inf)) == label(math.nextafter(needed, 0.0))
    assert label(needed) != label(needed * 1.000001)


def test_an_unknown_protocol_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match='"carrier-pigeon", but should be one of: "compute-nodes", "ideal"'):
        opened("carrier-pigeon", session())
