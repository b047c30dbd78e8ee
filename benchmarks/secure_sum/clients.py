"""Everybody whom one party of SecAgg+ hears from in a sum, made up: their keys, shares and signatures."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from benchmarks.secure_sum.endpoints import advertisement
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Envelope, Message, address_of
from unspoken.summation.incoming import bitmap
from unspoken.summation.introductions import Introduce, introduced
from unspoken.summation.keys import Channel, seal
from unspoken.summation.secagg_messages import (
    SHARE_BYTES,
    Begin,
    DealtShares,
    Survivors,
    Unmask,
    agreed_statement,
    marks_of,
    sealing_key,
)
from unspoken.summation.simulated_keys import SimulatedEndpoints


def neighbours_of_one(endpoints: SimulatedEndpoints[Any], step: Callable[[bytes], list[Envelope]]) -> None:
    """Bring party 0 through all rounds. `step` gives it a message (empty: begin), and says what it answers."""
    agreed, label, graph = endpoints.session, endpoints.session.label(), endpoints.protocol.graph
    mine = advertisement(step(b"")[0].body)
    channel = Channel(endpoints.keys.coordinator.agreement_secret, mine.cipher_key, label, COORDINATOR, address_of(0))

    def say(message: Message) -> None:
        step(channel.wrap(msgspec.msgpack.encode(message)))

    chosen: list[int] = graph.read(0, label, mine.chosen)
    draws = np.random.default_rng(0).random(agreed.parties) < graph.degree.neighbours / (agreed.parties - 1)
    dealers = [other for other in range(1, agreed.parties) if draws[other]]
    others: dict[int, Any] = {other: endpoints.party(other, SecretStream()) for other in sorted({*dealers, *chosen})}
    shown = {other: introduced(advertisement(endpoint.step(b"")[0].body)) for other, endpoint in others.items()}
    say(Introduce([shown[other] for other in chosen], [shown[other] for other in dealers if other not in chosen]))
    share = os.urandom((2 + agreed.components) * SHARE_BYTES)
    sealed = [
        seal(sealing_key(others[other].state.cipher_secret, mine.cipher_key, label, other, 0), int(other > 0), share)
        for other in dealers
    ]
    say(DealtShares(dealers, sealed, b"".join(marks_of(label, other, 0, share) for other in dealers)))
    everyone = bitmap(np.ones(agreed.parties, dtype=np.bool_))
    say(Begin(everyone))
    say(Survivors(everyone))
    statement = agreed_statement(label, everyone, everyone)
    signatures = b"".join(endpoints.keys.identity(index).sign(statement) for index in range(agreed.parties))
    say(Unmask(everyone, everyone, signatures, [], b""))
