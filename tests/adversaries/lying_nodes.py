"""A coordinator that tells compute nodes what it likes, with some nodes and parties on its side.

`NodeStage` has the real endpoints. The coordinator's secrets and those of the corrupt nodes are in the adversary's
hands: `say` puts any message before any node, rightly wrapped, and a corrupt node signs any statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Message, Session
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.compute_nodes import ComputeNodes, Options
from unspoken.summation.incoming import bitmap
from unspoken.summation.keys import Channel, agreement_key
from unspoken.summation.masks import add_masks
from unspoken.summation.node_messages import (
    Agreed,
    Fold,
    Framed,
    FromNode,
    Held,
    KeyTable,
    PartialTotal,
    Propose,
    Reveal,
    Roll,
    SignedKey,
    address,
    nodes_of,
    survivors_statement,
)
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words

ATTEMPTS = count(1)


def session(parties: int, dropouts: int, colluding: int = 1, attempt: bytes | None = None, **more: Any) -> Session:
    """A sum of four numbers, in an attempt of its own."""
    attempt = next(ATTEMPTS).to_bytes(16, "big") if attempt is None else attempt
    return Session("digest", "model", parties, colluding, parties - dropouts, 4, 64, attempt=attempt, **more)


@dataclass
class NodeStage:
    """One attempt at a sum before a lying coordinator."""

    agreed: Session
    nodes: int = 3
    per_party: int = 3
    corrupt: set[int] = field(default_factory=set)
    keys: SecretStream = field(default_factory=SecretStream)

    def __post_init__(self) -> None:
        protocol = ComputeNodes(self.agreed, Options(nodes=self.nodes, per_party=self.per_party))
        self.simulated = SimulatedEndpoints(protocol, self.keys)
        self.label = self.agreed.label()
        self.endpoints = [self.new_node(number) for number in range(self.nodes)]
        rng = np.random.default_rng(0)
        self.rows: Words = rng.integers(0, 2**64, (self.agreed.parties, self.agreed.length), dtype=np.uint64)
        self.channels = [
            Channel(
                self.simulated.keys.coordinator.agreement_secret,
                agreement_key(self.simulated.keys.roster.helpers[number]),
                self.label,
                COORDINATOR,
                address(number),
            )
            for number in range(self.nodes)
        ]

    @property
    def honest(self) -> list[int]:
        return [number for number in range(self.nodes) if number not in self.corrupt]

    def new_node(self, number: int) -> ComputeNode:
        """A node that has nothing but its identity."""
        node = self.simulated.helpers()[address(number)]
        assert isinstance(node, ComputeNode)
        return node

    def restart(self, number: int, dumped: bytes | None = None) -> None:
        """A node goes on from a state: its own, unless another is given."""
        dumped = self.endpoints[number].dump() if dumped is None else dumped
        self.endpoints[number] = self.new_node(number)
        self.endpoints[number].load(dumped)

    def messages(self, party: int) -> dict[int, bytes]:
        """What a party that has just been started sends, by node: a splitting and a key of its own each time."""
        sent = self.simulated.party(party, SecretStream()).submit(self.rows[party])
        return {int(envelope.to.split(":")[1]): envelope.body for envelope in sent}

    def post(self, parties: Iterable[int] | None = None) -> list[tuple[int, int, bytes]]:
        """Parties send their vectors. Returns what the coordinator has carried: party, node, message."""
        everyone = range(self.agreed.parties) if parties is None else parties
        seen = [(party, number, body) for party in everyone for number, body in self.messages(party).items()]
        for _, number, body in seen:
            self.endpoints[number].step(body)
        return seen

    def said_by(self, number: int, message: FromNode) -> bytes:
        """Any message that a corrupt node sends to the coordinator."""
        return self.endpoints[number]._enveloped(message).body

    def say(self, number: int, message: Message) -> Any:
        """A node's answer to any message from the coordinator."""
        body = memoryview(self.channels[number].wrap(msgspec.msgpack.encode(message)))
        envelopes = self.endpoints[number].step(msgspec.msgpack.encode(Framed(self.label, number, body)))
        framed = msgspec.msgpack.decode(envelopes[0].body, type=Framed)
        return msgspec.msgpack.decode(self.channels[number].unwrap(framed.body), type=FromNode)

    def held(self, number: int) -> dict[int, SignedKey]:
        """The keys of the shares that a node holds."""
        held: Held = self.say(number, Roll())
        return {signed.sender: signed for signed in held.keys}

    def fold(self, number: int, parties: Iterable[int]) -> None:
        held = self.held(number)
        self.say(number, Fold([held[party] for party in parties if self.uses(party, number)]))

    def uses(self, party: int, number: int) -> bool:
        return number in nodes_of(party, self.nodes, self.per_party)

    def proposal(self, survivors: Iterable[int], keys: dict[int, SignedKey] | None = None) -> Propose:
        """These survivors, under the keys that any of their nodes holds, unless others are given."""
        table, listed = KeyTable.empty(self.agreed.parties), set(survivors)
        for endpoint in self.endpoints:
            for party in listed:
                if party in endpoint.state.waiting:
                    KeyTable(table).put(endpoint.state.waiting[party].signed)
                elif endpoint.state.counted[party]:
                    KeyTable(table).put(KeyTable(endpoint.state.keys).of(party))
        for signed in (keys or {}).values():
            KeyTable(table).put(signed)
        flags = np.isin(np.arange(self.agreed.parties), list(listed))
        digests = b"".join(KeyTable(table).digest(flags, number, self.nodes) for number in range(self.nodes))
        return Propose(bitmap(flags), digests)

    def statement(self, proposal: Propose) -> bytes:
        return survivors_statement(self.label, proposal.survivors, proposal.digests)

    def signature(self, number: int, proposal: Propose) -> bytes:
        """A node's signature: a corrupt one signs anything."""
        if number in self.corrupt:
            return self.simulated.keys.helper(number).sign(self.statement(proposal))
        agreed: Agreed = self.say(number, proposal)
        return agreed.signature

    def signatures(self, proposal: Propose) -> list[bytes]:
        return [self.signature(number, proposal) for number in range(self.nodes)]

    def reveal(self, number: int, signatures: list[bytes]) -> Words:
        """An honest node's part of the total."""
        part: PartialTotal = self.say(number, Reveal(signatures))
        return self.agreed.reduce(self.agreed.unpack(part.total))

    def open(self, survivors: Iterable[int]) -> Words:
        """The total of these survivors, by the parts of the honest nodes and the shares of the corrupt ones."""
        survivors = list(survivors)
        proposal = self.proposal(survivors)
        known = self.known(survivors)
        signatures = self.signatures(proposal)
        return known + sum(self.reveal(number, signatures) for number in self.honest)

    def known(self, parties: Iterable[int]) -> Words:
        """What corrupt nodes hold of these parties, added up."""
        total = np.zeros(self.agreed.length, dtype=np.uint64)
        for party in parties:
            for number in nodes_of(party, self.nodes, self.per_party):
                total += self.share(number, party) if number in self.corrupt else np.uint64(0)
        return total

    def share(self, number: int, party: int) -> Words:
        """What a node knows of a party that it has not counted, as the vector that it would add."""
        plain = self.endpoints[number].state.waiting[party].plain
        share = plain[: len(plain) - 32 * self.agreed.components]
        if nodes_of(party, self.nodes, self.per_party)[0] == number:
            return self.agreed.reduce(self.agreed.unpack(share))
        return self.agreed.reduce(
            add_masks(np.zeros(self.agreed.length, dtype=np.uint64), [(share, True)], self.agreed)
        )

    def total_of(self, parties: Iterable[int]) -> Words:
        return self.rows[list(parties)].sum(axis=0, dtype=np.uint64)
