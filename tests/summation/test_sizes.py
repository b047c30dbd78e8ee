"""Stated sizes are those of the encoded messages, for all protocols and for any numbers."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import sizes
from unspoken.summation.base import COORDINATOR, Endpoint, Envelope, Message, Protocol, Session, VoteShape, address_of
from unspoken.summation.collection import Collection, Options
from unspoken.summation.graph import ChosenGraph
from unspoken.summation.registry import PROTOCOLS, open_session
from unspoken.summation.simulated_keys import SimulatedEndpoints


class Sample(Message, frozen=True, tag="sizes/sample"):
    number: int
    text: str
    body: bytes
    numbers: list[int]


@given(number=st.integers(0, 2**64 - 1), text=st.text(), start=st.integers(0, 70_000), count=st.integers(0, 300))
def test_the_size_of_a_message_is_that_of_its_encoding(number: int, text: str, start: int, count: int) -> None:
    body, numbers = bytes(start), list(range(start, start + count))
    parts = (sizes.of_integer(number), sizes.of_text(text), sizes.of_bytes(start), sizes.of_range(start, start + count))
    encoded = msgspec.msgpack.encode(Sample(number, text, body, numbers))
    assert sizes.of_message(Sample, *parts) == len(encoded)


@pytest.mark.parametrize("count", [0, 15, 16, 127, 128, 255, 256, 65_535, 65_536])
def test_sizes_at_the_boundaries(count: int) -> None:
    def encoded(value: Any) -> int:
        return len(msgspec.msgpack.encode(value))

    assert sizes.of_integer(count) == encoded(count)
    assert sizes.of_bytes(count) == encoded(bytes(count))
    assert sizes.of_text("x" * count) == encoded("x" * count)
    assert sizes.of_header(count) + count == encoded([0] * count)
    assert sizes.of_range(0, count) == encoded(list(range(count)))


def opened(name: str, parties: int, length: int = 12) -> Protocol:
    session = Session("d" * 64, "model/ε", parties, 1, parties - 1, length, 64, vote=VoteShape(length // 3, 3))
    if name == "collection":
        return Collection(session, Options())
    study = make(parties=parties, summation=name)
    if open_session(study, session).opens_noise:
        session = replace(session, schedule=NoiseSchedule.plan(parties, 1, 1, 1e6, 1.0))
    return open_session(study, session)


def sent(protocol: Protocol) -> Counter[str]:
    """The bytes that each endpoint sends if nobody drops out."""
    simulated = SimulatedEndpoints(protocol, SecretStream())
    coordinator = simulated.coordinator()
    everyone: dict[str, Endpoint] = {**simulated.helpers(), COORDINATOR: coordinator}
    parties = [simulated.party(index, SecretStream()) for index in range(protocol.session.parties)]
    everyone |= {address_of(index): party for index, party in enumerate(parties)}
    found: Counter[str] = Counter()

    def deliver(sender: str, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            found[sender] += len(envelope.body)
            deliver(envelope.to, everyone[envelope.to].step(envelope.body))

    for index, party in enumerate(parties):
        deliver(address_of(index), party.step(b""))
    for _ in range(coordinator.setup_stages):
        deliver(COORDINATOR, coordinator.advance())
    for index, party in enumerate(parties):
        deliver(address_of(index), party.submit(np.zeros(protocol.session.length, dtype=np.uint64)))
    deliver(COORDINATOR, coordinator.settle())
    deliver(COORDINATOR, coordinator.agree())
    deliver(COORDINATOR, coordinator.finish())
    return found


SETTINGS = [(name, *size) for name in (*PROTOCOLS, "collection") for size in ((5, 12), (12, 300), (130, 9))]


# With 130 parties each of whom masks with all others it would take a while.
@pytest.mark.parametrize(
    ("name", "parties", "length"), [each for each in SETTINGS if each[:2] not in (("secagg", 130), ("pairwise", 130))]
)
def test_the_stated_upload_is_the_most_that_a_party_sends(name: str, parties: int, length: int) -> None:
    protocol = opened(name, parties, length)
    found = sent(protocol)
    most = max(found[address_of(index)] for index in range(parties))
    # A party does not write to itself, so of many neighbours one may have a shorter number than was counted. Where
    # parties choose their neighbours, more of them may choose the same one than did here.
    room = 4 * (parties > 128) + (0.6 * most if isinstance(getattr(protocol, "graph", None), ChosenGraph) else 0)
    assert most <= protocol.upload_bytes() <= most + room


@pytest.mark.parametrize("name", [*PROTOCOLS, "collection"])
def test_the_upload_of_a_large_study_is_stated_at_once(name: str) -> None:
    """Of vectors of 8 GB among a thousand parties: nothing of that size is set aside. (Seen: milliseconds.)"""
    protocol = opened(name, 1000, 3 * 333_333_333)
    started = time.process_time()
    assert protocol.upload_bytes() > 8 * 999_999_999
    assert time.process_time() - started < 1.0
