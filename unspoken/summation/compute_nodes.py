"""Secure sum by compute nodes: one message a party to each node; with all nodes, safe while one keeps its share.

Cross-silo, Algorithm 1 (DCA). A party splits its vector y into M shares that add up to y modulo 2^b. M − 1 of them
are uniformly random and travel as 32-byte seeds (the paper sends whole vectors), so a party uploads little more than
one vector however many nodes there are. Which node gets the vector goes round with the party's number, so that the
nodes share the load.

Against whom. Any M − 1 nodes, the coordinator and any parties together see, of an honest party, uniformly random
words and the total. Messages to a node are encrypted to its key from the study's roster, so the coordinator may carry
them. A node counts a party once, adds up only parties that all nodes have heard from, reveals its part of the total
once, and never below the agreed number of parties: a coordinator that asks for two different totals, or for a small
one, gets nothing.

With `per_party` = p < M each party uses p of the nodes, while the coordinator sees every node's part. Let b nodes be
corrupt. If 2p ≤ M + b, a few colluders split the nodes into groups without a party in common, and a sum opens for each
group. If 2p > M + b, any two parties have an honest node in common. A combination Σ c_j·(part of node j) is more than
random words only if c_j is the same at all honest nodes of a party that all of them count, so all such parties are in
it or none. Hence one sum opens, over all parties that every honest node of theirs counts. A node checks only its own
parties against the list that the coordinator tells it, and puts up with D missing ones; a coordinator that tells each
node another list can so leave out (M − b)·D parties. Studies need 2p > M, b = 2p − M − 1 nodes may be corrupt, noise is
sized for those who are left, and no noise components are opened, since how many depends on that list.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np
from pydantic import Field

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.study import Section
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Endpoint,
    Envelope,
    Message,
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
    from_bitmap,
)
from unspoken.summation.keys import Channel, Identity, SimulatedIdentities, agree, public_key, seal, unseal, verify
from unspoken.summation.masks import add_masks, add_streams
from unspoken.types import Flags, Words


class Options(Section):
    nodes: int = Field(3, ge=2, le=255, description="the number of compute nodes, from 2 to 255")
    per_party: int | None = Field(
        None,
        ge=2,
        le=255,
        description="how many of the nodes each party uses, more than half of them; unset: all of them",
    )


class Share(Message, frozen=True, tag="nodes/share"):
    """Party to node: its share (a seed, or the one vector) and shares of its noise seeds, sealed to the node's key."""

    session: str
    sender: int
    node: int
    key: bytes
    signature: bytes
    sealed: memoryview


class Framed(Message, frozen=True, tag="nodes/framed"):
    """What travels between a node and the coordinator: an authenticated body."""

    session: str
    node: int
    body: memoryview


class Roll(Message, frozen=True, tag="nodes/roll"):
    """Coordinator to node: whom have you heard from?"""


class Held(Message, frozen=True, tag="nodes/held"):
    """Node to coordinator: these, not yet counted."""

    senders: list[int]


class Fold(Message, frozen=True, tag="nodes/fold"):
    """Coordinator to node: all their nodes hold these; count them."""

    senders: list[int]


class Reveal(Message, frozen=True, tag="nodes/reveal"):
    """Coordinator to node: everyone who is counted; your part of their total, please."""

    survivors: bytes


class Part(Message, frozen=True, tag="nodes/part"):
    """Node to coordinator: the total of its shares, and its shares of the noise seeds that are to be opened."""

    total: memoryview
    opened: bytes


ToNode: TypeAlias = Roll | Fold | Reveal
FromNode: TypeAlias = Held | Part


def address(node: int) -> str:
    return f"node:{node}"


def nodes_of(party: int, nodes: int, per_party: int) -> list[int]:
    """The nodes that a party uses; the first of them gets the vector, the others seeds.

    >>> nodes_of(4, 5, 2)
    [4, 0]
    """
    return [(party + step) % nodes for step in range(per_party)]


def statement(label: str, sender: int, key: bytes) -> bytes:
    """What a party signs: its one-time key, and with it everything that is sealed under that key."""
    return f"share/{label}/{sender}/".encode() + key


def sealing_key(secret: bytes, public: bytes, sender_key: bytes, label: str, sender: int, node: int) -> bytes:
    """The key of one party's message to one node, bound to both, to the sum and to the sender's one-time key."""
    return agree(secret, public, f"seal/{label}/{sender}/{address(node)}/".encode() + sender_key)


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
        """The same messages again if asked again: two vectors under the same masks would reveal their difference."""
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
        """The noise seeds, one after the other, as shares whose exclusive or they are."""
        together = b"".join(self.state.noise_seeds)
        shares = [self._secrets.take(len(together)) for _ in self._nodes[1:]]
        return [_exclusive_or([together, *shares]), *shares]

    def _statement(self) -> bytes:
        return statement(self._session.label(), self._index, public_key(self.state.key))

    def _sealed(self, node: int, plain: bytes, signature: bytes) -> bytes:
        label, key = self._session.label(), public_key(self.state.key)
        sealing = sealing_key(self.state.key, self._roster.helpers[node], key, label, self._index, node)
        return msgspec.msgpack.encode(
            Share(label, self._index, node, key, signature, memoryview(seal(sealing, 0, plain)))
        )


def _exclusive_or(parts: list[bytes]) -> bytes:
    rows = np.stack([np.frombuffer(part, dtype=np.uint8) for part in parts])
    return bytes(np.bitwise_xor.reduce(rows, axis=0))


class NodeState(msgspec.Struct):
    key: bytes
    heard: np.ndarray
    counted: np.ndarray
    total: np.ndarray
    noise: np.ndarray
    """(parties · bytes of noise shares): what it holds of the parties' noise seeds"""
    waiting: dict[int, bytes]
    revealed: bytes = b""


class ComputeNode(Endpoint):
    def __init__(self, session: Session, roster: Roster, node: int, nodes: int, per_party: int, key: bytes) -> None:
        self._session, self._roster, self._node, self._nodes, self._per_party = session, roster, node, nodes, per_party
        self._channel = Channel(key, roster.coordinator, session.label(), address(node), COORDINATOR)
        self._noise_bytes = session.components * KEY_BYTES
        self.state: NodeState = NodeState(
            key=key,
            heard=np.zeros(session.parties, dtype=np.bool_),
            counted=np.zeros(session.parties, dtype=np.bool_),
            total=session.zeros(),
            noise=np.zeros(session.parties * self._noise_bytes, dtype=np.uint8),
            waiting={},
        )

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message: Share | Framed = decode(incoming, Share | Framed)
        check_label(message.session, self._session)
        if isinstance(message, Share):
            self._take(message)
            return []
        if message.node != self._node:
            raise Rejected(f"a message for node {message.node} came to node {self._node}")
        request: ToNode = decode(self._channel.unwrap(message.body), ToNode)
        match request:
            case Roll():
                return [self._answer(Held(sorted(self.state.waiting)))]
            case Fold():
                self._fold(request)
                return []
            case Reveal():
                return [self._answer(self._part(request))]

    def _take(self, share: Share) -> None:
        """Check who sent it, open it, and keep it until its party is counted."""
        if self.state.revealed:
            raise Rejected("a share came after the total had been revealed")
        check_sender(share.sender, self._session, self.state.heard)
        if share.node != self._node or self._node not in self._nodes_of(share.sender):
            raise Rejected(f"a share for node {share.node} came to node {self._node}")
        who = f"party {share.sender}"
        signed = statement(share.session, share.sender, share.key)
        verify(self._roster.parties[share.sender], signed, share.signature, who)
        sealing = sealing_key(self.state.key, share.key, share.key, share.session, share.sender, self._node)
        plain = unseal(sealing, 0, share.sealed, who)
        size = len(plain) - self._noise_bytes
        due = self._session.length * self._session.wire_type.itemsize if self._holds_vector(share.sender) else KEY_BYTES
        if size != due:
            raise Rejected(f"{who} sent a share of {size} bytes; {due} were due")
        self.state.waiting[share.sender] = plain
        self.state.heard[share.sender] = True

    def _fold(self, fold: Fold) -> None:
        state, session = self.state, self._session
        if state.revealed:
            raise Rejected("the total has been revealed; this sum is over")
        if len(set(fold.senders)) != len(fold.senders) or not state.waiting.keys() >= set(fold.senders):
            raise Rejected("the coordinator asks to count parties that this node has not heard from, or counts twice")
        seeds = []
        for sender in fold.senders:
            plain = memoryview(state.waiting.pop(sender))
            share, noise = plain[: len(plain) - self._noise_bytes], plain[len(plain) - self._noise_bytes :]
            start = sender * self._noise_bytes
            state.noise[start : start + self._noise_bytes] = np.frombuffer(noise, dtype=np.uint8)
            if self._holds_vector(sender):
                state.total += session.unpack(share)
            else:
                seeds.append((bytes(share), True))
            state.counted[sender] = True
        add_streams(state.total, seeds)

    def _part(self, reveal: Reveal) -> Part:
        """The part of the total, for one set of parties only: a second, different set would reveal a difference."""
        state, session = self.state, self._session
        survivors = from_bitmap(reveal.survivors, session.parties)
        check_survivors(int(survivors.sum()), session)
        mine = np.array([self._node in self._nodes_of(party) for party in range(session.parties)])
        if (state.counted != (survivors & mine)).any():
            raise Aborted(
                f"node {self._node} has counted other parties than the coordinator names; nothing was revealed"
            )
        if state.revealed and state.revealed != reveal.survivors:
            raise Aborted("the coordinator asks for a second, different total; it gets nothing")
        state.revealed = reveal.survivors
        opened = list(session.opened(int(survivors.sum())))
        noise = state.noise.reshape(session.parties, session.components, KEY_BYTES)[state.counted][:, opened]
        return Part(memoryview(session.pack(state.total)), noise.tobytes())

    def _answer(self, message: FromNode) -> Envelope:
        body = self._channel.wrap(msgspec.msgpack.encode(message))
        return Envelope(
            COORDINATOR, msgspec.msgpack.encode(Framed(self._session.label(), self._node, memoryview(body)))
        )

    def _nodes_of(self, party: int) -> list[int]:
        return nodes_of(party, self._nodes, self._per_party)

    def _holds_vector(self, party: int) -> bool:
        return self._nodes_of(party)[0] == self._node


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
        """When all nodes have answered: count the parties that every one of their nodes has heard from."""
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

    def _add(self, node: int, part: Part) -> None:
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
            together = _exclusive_or(parts)
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

    def __init__(self, session: Session, options: Options, secrets: SecretStream) -> None:
        super().__init__(session)
        self._count = options.nodes
        self._per_party = options.nodes if options.per_party is None else options.per_party
        self.opens_noise = self._per_party == self._count
        if self._per_party > self._count:
            raise Unsuitable("summation.per_party", f"is {self._per_party}, but there are only {self._count} nodes")
        if 2 * self._per_party <= self._count:
            raise Unsuitable(
                "summation.per_party",
                f"is {self._per_party} of {self._count} nodes, with which a few parties that collude or drop out split "
                f"the total into smaller ones; use {self._count // 2 + 1} or more, or leave it out to use all nodes",
            )
        self._secret = secrets.key()
        self._identities = SimulatedIdentities(secrets.key(), session.parties)
        node_secrets = [secrets.key() for _ in range(options.nodes)]
        self._roster = Roster(
            self._identities, public_key(self._secret), tuple(public_key(key) for key in node_secrets)
        )
        self._nodes = {
            address(node): ComputeNode(session, self._roster, node, self._count, self._per_party, key)
            for node, key in enumerate(node_secrets)
        }

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
        """How many nodes may pool what they receive: as many as leave every two parties an honest node in common."""
        return 2 * self._per_party - self._count - 1

    def openable(self, colluding: int) -> Openable:
        """Of all parties but those that a lying coordinator can leave out: D at each node that may be honest."""
        allowed = self.session.parties - self.session.least_survivors
        return Openable(max(0, self.session.parties - (self._count - self._corrupt) * allowed))

    def coordinator(self) -> NodesCoordinator:
        return NodesCoordinator(self.session, self._roster, self._per_party, self._secret)

    def helpers(self) -> dict[str, Endpoint]:
        return dict(self._nodes)

    def party(self, index: int, secrets: SecretStream) -> ComputeNodesParty:
        nodes = nodes_of(index, self._count, self._per_party)
        identity = self._identities.identity(index)
        return ComputeNodesParty(self.session, self._roster, nodes, index, identity, secrets)

    def upload_bytes(self) -> int:
        party = self.party(self.session.parties - 1, SecretStream())
        vector = np.zeros(self.session.length, dtype=np.uint64)
        return sum(len(envelope.body) for envelope in party.submit(vector))
