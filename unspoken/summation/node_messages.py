"""The messages of the compute-nodes sum, and the assignment of parties to nodes. See `compute_nodes`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from unspoken.summation.base import Message
from unspoken.summation.keys import agree


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


class Roll(Message, frozen=True, tag="nodes/roll"):
    """Coordinator to node: a request for the parties heard from."""


class Held(Message, frozen=True, tag="nodes/held"):
    """Node to coordinator: the parties heard from and not yet counted."""

    senders: list[int]


class Fold(Message, frozen=True, tag="nodes/fold"):
    """Coordinator to node: parties to count, which all their nodes have heard from."""

    senders: list[int]


class Reveal(Message, frozen=True, tag="nodes/reveal"):
    """Coordinator to node: all counted parties, and a request for its part of their total."""

    survivors: bytes


class PartialTotal(Message, frozen=True, tag="nodes/part"):
    """Node to coordinator: the total of its shares, and its shares of the noise seeds to open."""

    total: memoryview
    opened: bytes


ToNode: TypeAlias = Roll | Fold | Reveal
FromNode: TypeAlias = Held | PartialTotal


def address(node: int) -> str:
    return f"node:{node}"


def nodes_of(party: int, nodes: int, per_party: int) -> list[int]:
    """The nodes that a party uses; the first of them gets the vector, the others seeds.

    >>> nodes_of(4, 5, 2)
    [4, 0]
    """
    return [(party + step) % nodes for step in range(per_party)]


def statement(label: str, sender: int, key: bytes) -> bytes:
    """The statement that a party signs: its one-time key, hence everything sealed under that key."""
    return f"share/{label}/{sender}/".encode() + key


def sealing_key(secret: bytes, public: bytes, sender_key: bytes, label: str, sender: int, node: int) -> bytes:
    """The key for one party's message to one node, bound to both, the sum and the sender's one-time key."""
    return agree(secret, public, f"seal/{label}/{sender}/{address(node)}/".encode() + sender_key)


def exclusive_or(parts: list[bytes]) -> bytes:
    """The bitwise exclusive or of byte strings of the same length."""
    rows = np.stack([np.frombuffer(part, dtype=np.uint8) for part in parts])
    return bytes(np.bitwise_xor.reduce(rows, axis=0))
