"""The messages and signed statements of the compute-nodes sum, and which nodes a party uses. See `compute_nodes`."""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from unspoken.summation.base import Message, Rejected, SignedStatement, address_of
from unspoken.summation.keys import PUBLIC_BYTES, SIGNATURE_BYTES, agree
from unspoken.types import Flags

Bytes: TypeAlias = NDArray[np.uint8]
DIGEST_BYTES = 32
SIGNED_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES
"""The bytes of a one-time key and its signature"""
_ANY_SECRET = bytes([1]) * 32

Key: TypeAlias = Annotated[bytes, Meta(min_length=PUBLIC_BYTES, max_length=PUBLIC_BYTES)]
Signature: TypeAlias = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Share(Message, frozen=True, tag="nodes/share"):
    """Party to node: its share (a seed or the vector) and shares of its noise seeds, sealed to the node's key."""

    session: str
    sender: int
    node: int
    key: bytes
    signature: bytes
    sealed: memoryview


class Framed(Message, frozen=True, tag="nodes/framed"):
    """Any message between a node and the coordinator: an authenticated body."""

    session: str
    node: int
    body: memoryview


class SignedKey(Message, frozen=True, tag="nodes/key"):
    """A party's one-time key, signed by the party. The key stands for one splitting of one vector."""

    sender: int
    key: Key
    signature: Signature

    def evidence(self, label: str) -> SignedStatement:
        """The same as a statement that anyone with the roster can check."""
        return SignedStatement(address_of(self.sender), key_statement(label, self.sender, self.key), self.signature)


class KeyTable:
    """The signed keys of the counted parties, in a flat array that an endpoint has in its state."""

    def __init__(self, content: Bytes) -> None:
        self._rows = content.reshape(-1, SIGNED_BYTES)

    @staticmethod
    def empty(parties: int) -> Bytes:
        return np.zeros(parties * SIGNED_BYTES, dtype=np.uint8)

    def put(self, signed: SignedKey) -> None:
        self._rows[signed.sender] = np.frombuffer(signed.key + signed.signature, dtype=np.uint8)

    def of(self, sender: int) -> SignedKey:
        row = self._rows[sender].tobytes()
        return SignedKey(sender, row[:PUBLIC_BYTES], row[PUBLIC_BYTES:])

    def digest(self, survivors: Flags, number: int, nodes: int) -> bytes:
        """The digest of the keys of a class's survivors, in the order of the parties."""
        return hashlib.sha256(self._rows[number::nodes, :PUBLIC_BYTES][survivors[number::nodes]].tobytes()).digest()


class Roll(Message, frozen=True, tag="nodes/roll"):
    """Coordinator to node: a request for the parties heard from."""


class Held(Message, frozen=True, tag="nodes/held"):
    """Node to coordinator: the parties heard from and not yet counted."""

    keys: list[SignedKey]
    """The keys of the shares that the node holds, one for each party"""
    faults: list[SignedKey]
    """Other keys that these parties signed, and keys that nothing can be sealed with"""


class Fold(Message, frozen=True, tag="nodes/fold"):
    """Coordinator to node: parties to count, each under the key that all its nodes hold."""

    keys: list[SignedKey]


class Folded(Message, frozen=True, tag="nodes/folded"):
    """Node to coordinator: these parties are counted."""

    senders: list[int]


class Propose(Message, frozen=True, tag="nodes/propose"):
    """Coordinator to node: the parties in the total, and digests of their one-time keys, one for each class."""

    survivors: bytes
    digests: bytes


class Agreed(Message, frozen=True, tag="nodes/agreed"):
    """Node to coordinator: its signature of what was proposed."""

    signature: Signature


class Reveal(Message, frozen=True, tag="nodes/reveal"):
    """Coordinator to node: all nodes' signatures of what was proposed, and a request for its part of the total."""

    signatures: list[Signature]


class PartialTotal(Message, frozen=True, tag="nodes/part"):
    """Node to coordinator: the total of its shares, and its shares of the noise seeds to open."""

    total: memoryview
    opened: bytes


ToNode: TypeAlias = Roll | Fold | Propose | Reveal
FromNode: TypeAlias = Held | Folded | Agreed | PartialTotal


def address(node: int) -> str:
    return f"node:{node}"


def nodes_of(party: int, nodes: int, per_party: int) -> list[int]:
    """The nodes that a party uses; the first of them gets the vector, the others seeds.

    Parties whose numbers are equal modulo `nodes` use the same nodes: they are a class.

    >>> nodes_of(4, 5, 2)
    [4, 0]
    """
    return [(party + step) % nodes for step in range(per_party)]


def users_of(node: int, parties: int, nodes: int, per_party: int) -> Flags:
    """A flag for each party: whether it uses this node.

    >>> users_of(0, 6, 5, 2).tolist()
    [True, False, False, False, True, True]
    """
    return (node - np.arange(parties)) % nodes < per_party


def key_statement(label: str, sender: int, key: bytes) -> bytes:
    """The statement that a party signs: its one-time key, hence everything sealed under that key."""
    return f"share/{label}/{sender}/".encode() + key


def survivors_statement(label: str, survivors: bytes, digests: bytes) -> bytes:
    """The statement that a node signs, one in an attempt: the parties in the total and all their one-time keys."""
    return f"nodes/survivors/{label}/".encode() + survivors + hashlib.sha256(digests).digest()


def sealing_key(secret: bytes, public: bytes, sender_key: bytes, label: str, sender: int, node: int) -> bytes:
    """The key for one party's message to one node, bound to both, the sum and the sender's one-time key."""
    return agree(secret, public, f"seal/{label}/{sender}/{address(node)}/".encode() + sender_key)


def is_weak(key: bytes) -> bool:
    """Whether a one-time key is a point of low order, with which anyone's key has the same common secret."""
    try:
        agree(_ANY_SECRET, key, b"")
    except Rejected:
        return True
    return False


def exclusive_or(parts: list[bytes]) -> bytes:
    """The bitwise exclusive or of byte strings of the same length."""
    rows = np.stack([np.frombuffer(part, dtype=np.uint8) for part in parts])
    return bytes(np.bitwise_xor.reduce(rows, axis=0))
