"""Secure sum by compute nodes: one message a party to each node, and the total is safe while one node keeps its share.

Cross-silo, Algorithm 1 (DCA). A party splits its vector y into M shares that add up to y modulo 2^b. M − 1 of them
are uniformly random and travel as 32-byte seeds (the paper sends whole vectors), so a party uploads little more than
one vector however many nodes there are. Which node gets the vector goes round with the party's number, so that the
nodes share the load.

Against whom. Any M − 1 nodes, the coordinator and any parties together see, of an honest party, uniformly random
words and the total. Messages to a node are encrypted to its key from the study's roster, so the coordinator may carry
them. A node counts a party once, adds up only parties that all nodes have heard from, reveals its part of the total
once, and never below the agreed number of parties: a coordinator that asks for two different totals, or for a small
one, gets nothing.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import Field

from tacit.noise.stream import KEY_BYTES, SecretStream
from tacit.study import Section
from tacit.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Endpoint,
    Envelope,
    Message,
    Protocol,
    Rejected,
    Session,
    check_label,
    check_sender,
    check_survivors,
    decode,
)
from tacit.types import Flags, Words


class Options(Section):
    nodes: int = Field(3, ge=2, le=255, description="the number of compute nodes, from 2 to 255")


class Share(Message, frozen=True, tag="nodes/share"):
    """Party to node: its share (a seed, or the one vector), sealed to the node's key."""

    session: str
    sender: int
    node: int
    key: bytes
    sealed: bytes


class Roll(Message, frozen=True, tag="nodes/roll"):
    """Coordinator to node: whom have you heard from?"""

    session: str


class Held(Message, frozen=True, tag="nodes/held"):
    """Node to coordinator: these, not yet counted."""

    session: str
    node: int
    senders: list[int]


class Fold(Message, frozen=True, tag="nodes/fold"):
    """Coordinator to node: all nodes hold these; count them."""

    session: str
    senders: list[int]


class Reveal(Message, frozen=True, tag="nodes/reveal"):
    """Coordinator to node: your part of the total, please."""

    session: str


class Part(Message, frozen=True, tag="nodes/part"):
    """Node to coordinator: the total of its shares, and a fingerprint of whose they are."""

    session: str
    node: int
    counted: bytes
    total: bytes


ToNode: TypeAlias = Share | Roll | Fold | Reveal
ToCoordinator: TypeAlias = Held | Part


def address(node: int) -> str:
    return f"node:{node}"


def expand(seed: bytes, session: Session) -> Words:
    """The uniformly random share that a seed stands for."""
    words = SecretStream(seed).words(session.length)
    return session.reduce(words)


def seal_key(shared: bytes, sender_key: bytes, session: str, sender: int, node: int) -> bytes:
    """The key of one party's message to one node, bound to both, to the sum and to the sender's one-time key."""
    info = f"{session}/party:{sender}/{address(node)}/".encode() + sender_key
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(shared)


class PartyState(msgspec.Struct):
    shares: list[Share]


class ComputeNodesParty(Endpoint):
    def __init__(
        self, session: Session, index: int, vector: Words, node_keys: list[bytes], secrets: SecretStream
    ) -> None:
        private = X25519PrivateKey.from_private_bytes(secrets.key())
        public = private.public_key().public_bytes_raw()
        holder = index % len(node_keys)
        rest, plain = vector, {}
        for node in range(len(node_keys)):
            if node != holder:
                plain[node] = secrets.key()
                rest = rest - expand(plain[node], session)
        plain[holder] = session.pack(session.reduce(rest))
        shares, label = [], session.label()
        for node, node_key in enumerate(node_keys):
            shared = private.exchange(X25519PublicKey.from_public_bytes(node_key))
            cipher = AESGCM(seal_key(shared, public, label, index, node))
            # The key serves for this one message, so the nonce may be fixed.
            shares.append(Share(label, index, node, public, cipher.encrypt(bytes(12), plain[node], None)))
        self.state: PartyState = PartyState(shares)

    def step(self, incoming: bytes) -> list[Envelope]:
        """Any call gives the same messages again: sending twice reveals nothing."""
        return [Envelope(address(share.node), msgspec.msgpack.encode(share)) for share in self.state.shares]


class NodeState(msgspec.Struct):
    key: bytes
    heard: np.ndarray
    counted: np.ndarray
    total: np.ndarray
    waiting: dict[int, bytes]
    revealed: bool = False


class ComputeNode(Endpoint):
    def __init__(self, session: Session, node: int, nodes: int, key: bytes) -> None:
        self._session, self._node, self._nodes = session, node, nodes
        self.state: NodeState = NodeState(
            key=key,
            heard=np.zeros(session.parties, dtype=np.bool_),
            counted=np.zeros(session.parties, dtype=np.bool_),
            total=np.zeros(session.length, dtype=np.uint64),
            waiting={},
        )

    @property
    def public_key(self) -> bytes:
        return X25519PrivateKey.from_private_bytes(self.state.key).public_key().public_bytes_raw()

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message: ToNode = decode(incoming, ToNode)
        check_label(message.session, self._session)
        if self.state.revealed:
            raise Rejected("the total has been revealed; this sum is over")
        match message:
            case Share():
                self._take(message)
                return []
            case Roll():
                held = Held(message.session, self._node, sorted(self.state.waiting))
                return [Envelope(COORDINATOR, msgspec.msgpack.encode(held))]
            case Fold():
                self._fold(message)
                return []
            case Reveal():
                return self._reveal()

    def _take(self, share: Share) -> None:
        check_sender(share.sender, self._session, self.state.heard)
        if share.node != self._node:
            raise Rejected(f"a share for node {share.node} came to node {self._node}")
        try:
            shared = X25519PrivateKey.from_private_bytes(self.state.key).exchange(
                X25519PublicKey.from_public_bytes(share.key)
            )
            cipher = AESGCM(seal_key(shared, share.key, share.session, share.sender, share.node))
            plain = cipher.decrypt(bytes(12), share.sealed, None)
        except (InvalidTag, ValueError):
            raise Rejected(
                f"the share of party {share.sender} cannot be opened: altered, or not for this node"
            ) from None
        if self._holds_vector(share.sender):
            self._session.unpack(plain)
        elif len(plain) != KEY_BYTES:
            raise Rejected(f"party {share.sender} sent a seed of {len(plain)} bytes; {KEY_BYTES} were due")
        self.state.waiting[share.sender] = plain
        self.state.heard[share.sender] = True

    def _fold(self, fold: Fold) -> None:
        if len(set(fold.senders)) != len(fold.senders) or not self.state.waiting.keys() >= set(fold.senders):
            raise Rejected("the coordinator asks to count parties that this node has not heard from, or counts twice")
        for sender in fold.senders:
            plain = self.state.waiting.pop(sender)
            holds_vector = self._holds_vector(sender)
            self.state.total += self._session.unpack(plain) if holds_vector else expand(plain, self._session)
            self.state.counted[sender] = True

    def _reveal(self) -> list[Envelope]:
        check_survivors(int(self.state.counted.sum()), self._session)
        self.state.revealed = True
        fingerprint = hashlib.sha256(self.state.counted.tobytes()).digest()
        total = self._session.pack(self._session.reduce(self.state.total))
        part = Part(self._session.label(), self._node, fingerprint, total)
        return [Envelope(COORDINATOR, msgspec.msgpack.encode(part))]

    def _holds_vector(self, sender: int) -> bool:
        return sender % self._nodes == self._node


class CoordinatorState(msgspec.Struct):
    settled: np.ndarray
    total: np.ndarray
    held: dict[int, list[int]]
    parts: list[int]


class NodesCoordinator(Coordinator):
    def __init__(self, session: Session, nodes: int) -> None:
        self._session, self._nodes = session, nodes
        self.state: CoordinatorState = CoordinatorState(
            settled=np.zeros(session.parties, dtype=np.bool_),
            total=np.zeros(session.length, dtype=np.uint64),
            held={},
            parts=[],
        )

    def settle(self) -> list[Envelope]:
        self.state.held = {}
        return self._to_all(Roll(self._session.label()))

    def finish(self) -> list[Envelope]:
        check_survivors(int(self.state.settled.sum()), self._session)
        return self._to_all(Reveal(self._session.label()))

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message: ToCoordinator = decode(incoming, ToCoordinator)
        check_label(message.session, self._session)
        if not 0 <= message.node < self._nodes:
            raise Rejected(f"a message came from node {message.node}; there are {self._nodes}")
        return self._gather(message) if isinstance(message, Held) else self._add(message)

    def _gather(self, held: Held) -> list[Envelope]:
        self.state.held[held.node] = held.senders
        if len(self.state.held) < self._nodes:
            return []
        common = sorted(set.intersection(*(set(senders) for senders in self.state.held.values())))
        for sender in common:
            check_sender(sender, self._session, self.state.settled)
        self.state.settled[common] = True
        self.state.held = {}
        return self._to_all(Fold(self._session.label(), common)) if common else []

    def _add(self, part: Part) -> list[Envelope]:
        if part.node in self.state.parts:
            raise Rejected(f"node {part.node} sent its part twice")
        if part.counted != hashlib.sha256(self.state.settled.tobytes()).digest():
            raise Aborted(f"node {part.node} has counted other parties than were settled; the sum is given up")
        self.state.total += self._session.unpack(part.total)
        self.state.parts.append(part.node)
        return []

    def survivors(self) -> Flags:
        return self.state.settled

    def total(self) -> Words:
        missing = [address(node) for node in range(self._nodes) if node not in self.state.parts]
        if missing:
            raise Aborted(f"no part of the total came from {', '.join(missing)}; nothing was revealed")
        return self._session.reduce(self.state.total)

    def _to_all(self, message: Roll | Fold | Reveal) -> list[Envelope]:
        body = msgspec.msgpack.encode(message)
        return [Envelope(address(node), body) for node in range(self._nodes)]


class ComputeNodes(Protocol):
    """Additive secret sharing among compute nodes."""

    def __init__(self, session: Session, options: Options, secrets: SecretStream) -> None:
        super().__init__(session)
        self._nodes = [ComputeNode(session, node, options.nodes, secrets.key()) for node in range(options.nodes)]
        self._node_keys = [node.public_key for node in self._nodes]

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (f"at least one of the {len(self._nodes)} compute nodes keeps to itself what it receives",)

    def coordinator(self) -> NodesCoordinator:
        return NodesCoordinator(self.session, len(self._nodes))

    def helpers(self) -> dict[str, Endpoint]:
        return {address(number): node for number, node in enumerate(self._nodes)}

    def party(self, index: int, vector: Words, secrets: SecretStream) -> ComputeNodesParty:
        return ComputeNodesParty(self.session, index, vector, self._node_keys, secrets)
