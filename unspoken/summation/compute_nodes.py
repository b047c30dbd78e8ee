"""Secure sum by compute nodes: each party sends one message to each node, and one honest node suffices.

Cross-silo, Algorithm 1 (DCA). A party splits its vector y into M shares that add up to y modulo 2^b. M − 1 of them
are uniformly random and travel as 32-byte seeds (the paper sends whole vectors), so a party uploads little more than
one vector for any number of nodes. The node that gets the vector rotates with the party's index, to share the load.

Security. Any M − 1 nodes, the coordinator and any parties together see, of an honest party, uniformly random words and
the total. Messages to a node are encrypted to its key from the study's roster, so the coordinator may carry
them. A node counts a party once, adds up only parties that all nodes have heard from, reveals its part of the total
once, and never below the agreed number of parties: a coordinator that asks for two different totals, or for a small
one, gets nothing.

With `per_party` = p < M each party uses p of the nodes, while the coordinator sees every node's part. Let b nodes be
corrupt. If 2p ≤ M + b, a few colluders split the nodes into groups without a common party, and a sum opens for each
group. If 2p > M + b, any two parties have a common honest node. A combination Σ c_j·(part of node j) is more than
random words only if c_j is the same at all honest nodes of a party that all of them count, so it contains all such
parties or none. Hence one sum opens, over all parties that are counted by all their honest nodes. A node checks only
its own parties against the coordinator's list, and tolerates D missing ones; a coordinator that sends each node a
different list can therefore leave out (M − b)·D parties. Studies need 2p > M, b = 2p − M − 1 nodes may be corrupt,
noise is sized for the remaining parties, and no noise components are opened, as their number depends on that list.
"""

from __future__ import annotations

import msgspec
import numpy as np
from pydantic import Field

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Envelope,
    Openable,
    Party,
    Protocol,
    Rejected,
    Roster,
    Session,
    Unsuitable,
    bitmap,
    check_label,
    check_sender,
    check_survivors,
    decode,
)
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.keys import PUBLIC_BYTES, SIGNATURE_BYTES, TAG_BYTES, Channel, Identity, public_key, seal
from unspoken.summation.masks import add_masks
from unspoken.summation.node_messages import (
    Fold,
    Framed,
    FromNode,
    Held,
    PartialTotal,
    Reveal,
    Roll,
    Share,
    ToNode,
    address,
    exclusive_or,
    nodes_of,
    sealing_key,
    statement,
)
from unspoken.types import Flags, Words


class Options(Section):
    nodes: int = Field(3, ge=2, le=255, description="the number of compute nodes, from 2 to 255")
    per_party: int | None = Field(
        None,
        ge=2,
        le=255,
        description="the number of nodes that each party uses, more than half of all; unset: all",
    )


class PartyState(msgspec.Struct):
    key: bytes
    noise_seeds: list[bytes]
    masks: list[bytes]
    """Seeds of the shares for all nodes but the first"""
    submitted: list[tuple[int, bytes]] = []


class ComputeNodesParty(Party):
    def __init__(
        self, session: Session, roster: Roster, nodes: list[int], index: int, identity: Identity, secrets: SecretStream
    ) -> None:
        self._session, self._roster, self._nodes, self._index = session, roster, nodes, index
        self._identity, self._secrets = identity, secrets
        seeds = [secrets.key() for _ in range(session.components)]
        self.state: PartyState = PartyState(secrets.key(), seeds, [secrets.key() for _ in nodes[1:]])

    @property
    def seeds(self) -> list[bytes]:
        return self.state.noise_seeds

    def step(self, incoming: bytes) -> list[Envelope]:
        return []

    def submit(self, vector: Words) -> list[Envelope]:
        """Send the shares. Asked again, it repeats them: two vectors under one mask would reveal their difference."""
        if not self.state.submitted:
            rest = add_masks(vector, [(mask, False) for mask in self.state.masks], self._session)
            plain = [self._session.pack(rest), *self.state.masks]
            signature = self._identity.sign(self._statement())
            self.state.submitted = [
                (node, self._sealed(node, share + noise, signature))
                for node, share, noise in zip(self._nodes, plain, self._noise_shares(), strict=True)
            ]
        return [Envelope(address(node), body) for node, body in self.state.submitted]

    def forget_vector(self) -> None:
        self.state.submitted = [(node, b"") for node in self._nodes]

    def _noise_shares(self) -> list[bytes]:
        """Shares whose exclusive or is the concatenation of the noise seeds."""
        together = b"".join(self.state.noise_seeds)
        shares = [self._secrets.take(len(together)) for _ in self._nodes[1:]]
        return [exclusive_or([together, *shares]), *shares]

    def _statement(self) -> bytes:
        return statement(self._session.label(), self._index, public_key(self.state.key))

    def _sealed(self, node: int, plain: bytes, signature: bytes) -> bytes:
        label, key = self._session.label(), public_key(self.state.key)
        sealing = sealing_key(self.state.key, self._roster.helpers[node], key, label, self._index, node)
        return msgspec.msgpack.encode(
            Share(label, self._index, node, key, signature, memoryview(seal(sealing, 0, plain)))
        )


class CoordinatorState(msgspec.Struct):
    settled: np.ndarray
    total: np.ndarray
    held: dict[int, list[int]]
    parts: dict[int, bytes]
    """Each node's shares of the opened noise seeds"""


class NodesCoordinator(Coordinator):
    def __init__(self, session: Session, roster: Roster, per_party: int, secret: bytes) -> None:
        self._session, self._nodes, self._per_party = session, len(roster.helpers), per_party
        self._channels = [
            Channel(secret, key, session.label(), COORDINATOR, address(node)) for node, key in enumerate(roster.helpers)
        ]
        self.state: CoordinatorState = CoordinatorState(
            settled=np.zeros(session.parties, dtype=np.bool_),
            total=session.zeros(),
            held={},
            parts={},
        )

    def settle(self) -> list[Envelope]:
        self.state.held = {}
        return self._to_all(Roll())

    def finish(self) -> list[Envelope]:
        check_survivors(int(self.state.settled.sum()), self._session)
        return self._to_all(Reveal(bitmap(self.state.settled)))

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        framed: Framed = decode(incoming, Framed)
        check_label(framed.session, self._session)
        if not 0 <= framed.node < self._nodes:
            raise Rejected(f"a message came from node {framed.node}; there are {self._nodes}")
        message: FromNode = decode(self._channels[framed.node].unwrap(framed.body), FromNode)
        if isinstance(message, Held):
            return self._gather(framed.node, message)
        self._add(framed.node, message)
        return []

    def _gather(self, node: int, held: Held) -> list[Envelope]:
        """Once all nodes have answered, count the parties that all their nodes have heard from."""
        state = self.state
        state.held[node] = held.senders
        if len(state.held) < self._nodes:
            return []
        heard = {number: set(senders) for number, senders in state.held.items()}
        everyone = sorted(set().union(*heard.values()))
        common = [
            party
            for party in everyone
            if all(party in heard[number] for number in nodes_of(party, self._nodes, self._per_party))
        ]
        for party in common:
            check_sender(party, self._session, state.settled)
        state.settled[common] = True
        state.held = {}
        folds = []
        for number in range(self._nodes):
            mine = [party for party in common if number in nodes_of(party, self._nodes, self._per_party)]
            folds += [self._to(number, Fold(mine))] if mine else []
        return folds

    def _add(self, node: int, part: PartialTotal) -> None:
        if node in self.state.parts:
            raise Rejected(f"node {node} sent its part twice")
        if len(part.opened) != self._counted_by(node) * self._opened_bytes():
            raise Rejected(f"node {node} sent {len(part.opened)} bytes of noise seeds")
        self.state.total += self._session.unpack(part.total)
        self.state.parts[node] = part.opened

    def survivors(self) -> Flags:
        return self.state.settled

    def total(self) -> Words:
        missing = [address(node) for node in range(self._nodes) if node not in self.state.parts]
        if missing:
            raise Aborted(f"no part of the total came from {', '.join(missing)}; nothing was revealed")
        return self._session.reduce(self.state.total)

    def opened(self) -> dict[int, list[bytes]]:
        size = self._opened_bytes()
        seeds: dict[int, list[bytes]] = {int(party): [] for party in np.flatnonzero(self.state.settled)}
        if not size:
            return seeds
        shares: dict[int, list[bytes]] = {party: [] for party in seeds}
        for node, opened in self.state.parts.items():
            mine = [party for party in seeds if node in nodes_of(party, self._nodes, self._per_party)]
            for position, party in enumerate(mine):
                shares[party].append(opened[position * size : (position + 1) * size])
        for party, parts in shares.items():
            together = exclusive_or(parts)
            seeds[party] = [together[start : start + KEY_BYTES] for start in range(0, size, KEY_BYTES)]
        return seeds

    def _opened_bytes(self) -> int:
        return KEY_BYTES * len(self._session.opened(int(self.state.settled.sum())))

    def _counted_by(self, node: int) -> int:
        settled = np.flatnonzero(self.state.settled)
        return sum(node in nodes_of(int(party), self._nodes, self._per_party) for party in settled)

    def _to_all(self, message: ToNode) -> list[Envelope]:
        return [self._to(node, message) for node in range(self._nodes)]

    def _to(self, node: int, message: ToNode) -> Envelope:
        body = self._channels[node].wrap(msgspec.msgpack.encode(message))
        return Envelope(address(node), msgspec.msgpack.encode(Framed(self._session.label(), node, memoryview(body))))


class ComputeNodes(Protocol):
    """Additive secret sharing among compute nodes."""

    options_type = Options

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        self._count = options.nodes
        self._per_party = options.nodes if options.per_party is None else options.per_party
        if self._per_party > self._count:
            raise Unsuitable("summation.per_party", f"is {self._per_party}, but there are only {self._count} nodes")
        if 2 * self._per_party <= self._count:
            raise Unsuitable(
                "summation.per_party",
                f"is {self._per_party} of {self._count} nodes, so a few parties that collude or drop out can split the "
                f"total into smaller ones; use {self._count // 2 + 1} or more, or leave it out to use all nodes",
            )
        super().__init__(session, options, roster)

    @property
    def opens_noise(self) -> bool:
        """True if all nodes see all parties; else the number to open would depend on the coordinator's word."""
        return self._per_party == self._count

    @property
    def parameters(self) -> dict[str, int]:
        return {"nodes": self._count, "per_party": self._per_party}

    @property
    def assumptions(self) -> tuple[str, ...]:
        honest = self._count - self._corrupt
        keep = "one" if honest == 1 else f"{honest}"
        whose = "keeps to itself what it receives" if honest == 1 else "keep to themselves what they receive"
        return (f"at least {keep} of the {self._count} compute nodes {whose}",)

    @property
    def _corrupt(self) -> int:
        """The number of nodes that may be corrupt while any two parties still have a common honest node."""
        return 2 * self._per_party - self._count - 1

    def openable(self, colluding: int) -> Openable:
        """A lying coordinator can leave out D parties at each honest node; all others are in the total."""
        allowed = self.session.parties - self.session.least_survivors
        return Openable(max(0, self.session.parties - (self._count - self._corrupt) * allowed))

    def upload_bytes(self) -> int:
        """The bytes of one party: a vector for its first node, seeds for the others, noise shares for all."""
        session, last = self.session, self.session.parties - 1
        label, sender = sizes.of_text(session.label()), sizes.of_integer(last)
        key, signature = sizes.of_bytes(PUBLIC_BYTES), sizes.of_bytes(SIGNATURE_BYTES)
        noise = session.components * KEY_BYTES + TAG_BYTES
        sealed = [session.vector_bytes + noise, *[KEY_BYTES + noise] * (self._per_party - 1)]
        nodes = nodes_of(last, self._count, self._per_party)
        return sum(
            sizes.of_message(Share, label, sender, sizes.of_integer(node), key, signature, sizes.of_bytes(size))
            for node, size in zip(nodes, sealed, strict=True)
        )

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        return tuple(address(node) for node in range(self._count))

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> ComputeNodesParty:
        nodes = nodes_of(index, self._count, self._per_party)
        return ComputeNodesParty(self.session, self.roster, nodes, index, identity, secrets)

    def coordinator(self, secret: bytes, secrets: SecretStream) -> NodesCoordinator:
        return NodesCoordinator(self.session, self.roster, self._per_party, secret)

    def helper(self, index: int, secret: bytes, secrets: SecretStream) -> ComputeNode:
        return ComputeNode(self.session, self.roster, index, self._count, self._per_party, secret)
