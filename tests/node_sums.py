"""A compute-nodes sum with all its endpoints in one process."""

from __future__ import annotations

from typing import Any

import msgspec

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Coordinator, Envelope, Message, Session
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.compute_nodes import ComputeNodes, Options
from unspoken.summation.node_messages import (
    Framed,
    FromNode,
    ToNode,
    address,
)
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words

NODES = 3


class Sum(SimulatedEndpoints[ComputeNodes]):
    """One sum, whose nodes stay."""

    def __init__(self, protocol: ComputeNodes) -> None:
        super().__init__(protocol, SecretStream())
        self.nodes = self.helpers()


def opened(
    parties: int = 5,
    dropouts: int = 1,
    length: int = 8,
    bits: int = 64,
    nodes: int = NODES,
    per_party: int | None = None,
) -> Sum:
    schedule = NoiseSchedule.plan(parties, 1, dropouts, 1e6, 1.0)
    session = Session("digest", "model", parties, 1, parties - dropouts, length, bits, schedule)
    return Sum(ComputeNodes(session, Options(nodes=nodes, per_party=per_party)))


def post(protocol: Sum, rows: Words) -> None:
    for party, row in enumerate(rows):
        for envelope in protocol.party(party, SecretStream(bytes([party]) * 32)).submit(row):
            protocol.nodes[envelope.to].step(envelope.body)


def node_of(protocol: Sum, number: int) -> ComputeNode:
    node = protocol.nodes[address(number)]
    assert isinstance(node, ComputeNode)
    return node


def from_coordinator(protocol: Sum, number: int, message: Message) -> bytes:
    """A message that a node takes for the coordinator's: the adversary plays the coordinator."""
    channel = protocol.coordinator()._channels[number]
    label = protocol.session.label()
    return msgspec.msgpack.encode(Framed(label, number, memoryview(channel.wrap(msgspec.msgpack.encode(message)))))


def asked(protocol: Sum, number: int, message: Message) -> Any:
    """A node's answer."""
    envelope = node_of(protocol, number).step(from_coordinator(protocol, number, message))[0]
    framed = msgspec.msgpack.decode(envelope.body, type=Framed)
    return msgspec.msgpack.decode(protocol.coordinator()._channels[number].unwrap(framed.body), type=FromNode)


def deliver(protocol: Sum, coordinator: Coordinator, envelopes: list[Envelope], lost: Any = ()) -> None:
    """Deliver what the coordinator sends, and what it gives rise to, but for requests of a kind that is lost."""
    endpoints, waiting = {**protocol.nodes, COORDINATOR: coordinator}, list(envelopes)
    while waiting:
        envelope = waiting.pop(0)
        if (envelope.to, kind_of(envelope)) not in lost:
            waiting += endpoints[envelope.to].step(envelope.body)


def kind_of(envelope: Envelope) -> str:
    body = msgspec.msgpack.decode(envelope.body, type=Framed).body[28:]
    return type(msgspec.msgpack.decode(body, type=ToNode | FromNode)).__name__


def run(protocol: Sum, *lost: tuple[str, str]) -> Words:
    coordinator = protocol.coordinator()
    for ask in (coordinator.settle, coordinator.agree, coordinator.finish):
        deliver(protocol, coordinator, ask(), lost)
    return coordinator.total()
