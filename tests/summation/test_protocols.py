"""One conformance suite for all summation protocols, driven message by message as an engine would."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.noise.stream import SecretStream
from tacit.study import Study, make_study
from tacit.summation.base import COORDINATOR, Aborted, Coordinator, Endpoint, Envelope, Protocol, Rejected, Session
from tacit.summation.registry import open_session
from tacit.types import Words

PROTOCOLS = ("compute-nodes", "ideal")
EACH = pytest.mark.parametrize("name", PROTOCOLS)
KEY = bytes(range(32))


def study(name: str) -> Study:
    return make_study(
        {
            "study": {"name": "sum", "task": "classification"},
            "data": {"features": 2, "classes": 2},
            "parties": {"count": 6},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "method": {"name": "helmet"},
            "summation": {"protocol": name},
        }
    )


def session(parties: int = 6, dropouts: int = 2, length: int = 5, bits: int = 64, sum_name: str = "model") -> Session:
    return Session("digest", sum_name, parties, parties - dropouts, length, bits)


def opened(name: str, agreed: Session, key: bytes | None = None) -> Protocol:
    return open_session(study(name), agreed, SecretStream(key))


def vectors(agreed: Session, seed: int = 0) -> Words:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**agreed.bits, (agreed.parties, agreed.length), dtype=np.uint64)


@dataclass
class Network:
    """Delivers envelopes; remembers all of them."""

    protocol: Protocol
    seen: list[Envelope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinator: Coordinator = self.protocol.coordinator()
        self.endpoints: dict[str, Endpoint] = {**self.protocol.helpers(), COORDINATOR: self.coordinator}

    def deliver(self, envelopes: list[Envelope]) -> None:
        waiting = list(envelopes)
        while waiting:
            envelope = waiting.pop(0)
            self.seen.append(envelope)
            waiting += self.endpoints[envelope.to].step(envelope.body)

    def finish(self) -> Words:
        self.deliver(self.coordinator.settle())
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
    for party, row in enumerate(rows):
        network.deliver(network.protocol.party(party, row, SecretStream()).step(b""))
    assert (network.finish() == expected(rows, agreed)).all()
    assert network.coordinator.survivors().all()


@EACH
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_run_ends_in_the_exact_sum_over_its_survivors_or_in_an_abort(name: str, data: st.DataObject) -> None:
    """Parties vanish before any of their messages, messages arrive in any order, and settling happens at any time."""
    agreed = session(parties=6, dropouts=data.draw(st.integers(0, 4)))
    rows = vectors(agreed, seed=data.draw(st.integers(0, 99)))
    network = Network(opened(name, agreed))
    posted = []
    for party, row in enumerate(rows):
        envelopes = network.protocol.party(party, row, SecretStream()).step(b"")
        kept = data.draw(st.integers(0, len(envelopes)))
        posted += [(party, envelope, kept == len(envelopes)) for envelope in envelopes[:kept]]
    posted = data.draw(st.permutations(posted))
    complete = {party for party, _, whole in posted if whole}
    for _, envelope, _ in posted:
        network.deliver([envelope])
        if data.draw(st.booleans()):
            network.deliver(network.coordinator.settle())
    if len(complete) < agreed.least_survivors:
        with pytest.raises(Aborted, match="nothing was revealed"):
            network.finish()
        return
    total = network.finish()
    assert set(np.flatnonzero(network.coordinator.survivors())) == complete
    assert (total == expected(rows[sorted(complete)], agreed)).all()


@EACH
def test_a_party_that_sends_twice_is_counted_once(name: str) -> None:
    agreed = session()
    rows = vectors(agreed)
    network = Network(opened(name, agreed))
    for party, row in enumerate(rows):
        endpoint = network.protocol.party(party, row, SecretStream())
        network.deliver(endpoint.step(b""))
        for envelope in endpoint.step(b""):
            with pytest.raises(Rejected, match=f"second message came from party {party}"):
                network.deliver([envelope])
    assert (network.finish() == expected(rows, agreed)).all()


@EACH
def test_endpoints_go_on_after_being_dumped_and_loaded_between_any_two_steps(name: str) -> None:
    agreed = session()
    rows = vectors(agreed)
    network = Network(opened(name, agreed))

    def reload() -> None:
        fresh = opened(name, agreed)
        endpoints: dict[str, Endpoint] = {**fresh.helpers(), COORDINATOR: fresh.coordinator()}
        for address, endpoint in endpoints.items():
            endpoint.load(network.endpoints[address].dump())
        network.endpoints = endpoints
        network.coordinator = endpoints[COORDINATOR]  # type: ignore[assignment]

    for party, row in enumerate(rows):
        for envelope in network.protocol.party(party, row, SecretStream()).step(b""):
            network.deliver([envelope])
            reload()
    network.deliver(network.coordinator.settle())
    reload()
    network.deliver(network.coordinator.finish())
    reload()
    assert (network.coordinator.total() == expected(rows, agreed)).all()


@EACH
def test_messages_of_another_study_or_sum_are_rejected(name: str) -> None:
    agreed, other = session(), session(sum_name="another")
    network, foreign = Network(opened(name, agreed, KEY)), opened(name, other, KEY)
    for envelope in foreign.party(0, vectors(other)[0], SecretStream()).step(b""):
        with pytest.raises(Rejected, match="another study or another sum"):
            network.deliver([envelope])


@EACH
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_altered_truncated_and_random_messages_are_rejected_and_change_nothing(name: str, data: st.DataObject) -> None:
    agreed = session(parties=3, dropouts=0)
    rows = vectors(agreed)
    network = Network(opened(name, agreed, KEY))
    honest = [network.protocol.party(party, row, SecretStream()).step(b"") for party, row in enumerate(rows)]
    victim = data.draw(st.sampled_from(honest[0]))
    body = bytearray(victim.body)
    # Nothing authenticates what is added in the clear, so in the ideal sum a flipped bit may go unnoticed.
    kinds = ["cut", "random", "extend"] if name == "ideal" else ["flip", "cut", "random", "extend"]
    kind = data.draw(st.sampled_from(kinds))
    if kind == "flip":
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        body = body[: data.draw(st.integers(0, len(body) - 1))]
    elif kind == "random":
        body = bytearray(data.draw(st.binary(max_size=200)))
    else:
        body += data.draw(st.binary(min_size=1, max_size=9))
    before = {address: endpoint.dump() for address, endpoint in network.endpoints.items()}
    try:
        network.deliver([Envelope(victim.to, bytes(body))])
    except Rejected:
        assert {address: endpoint.dump() for address, endpoint in network.endpoints.items()} == before
    else:
        # An empty message only says "begin".
        assert not body
    for envelopes in honest:
        network.deliver(envelopes)
    assert (network.finish() == expected(rows, agreed)).all()


@EACH
def test_the_stated_upload_is_what_a_party_sends(name: str) -> None:
    protocol = opened(name, session(length=1000))
    envelopes = protocol.party(5, np.zeros(1000, dtype=np.uint64), SecretStream()).step(b"")
    assert protocol.upload_bytes() == sum(len(envelope.body) for envelope in envelopes)


def test_an_unknown_protocol_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match='"carrier-pigeon", but should be "compute-nodes" or "ideal"'):
        opened("carrier-pigeon", session())
