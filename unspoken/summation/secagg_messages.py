"""The messages of SecAgg and SecAgg+ between parties and the coordinator. See `secagg` for the protocol."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

from unspoken.summation import shamir
from unspoken.summation.base import Message
from unspoken.summation.introductions import Introduce
from unspoken.summation.keys import agree

SHARE_BYTES = 4 * shamir.SYMBOLS
"""The size of a share of one secret"""
COMMITMENT_BYTES = 32


class Deal(Message, frozen=True, tag="secagg/deal"):
    """Party to coordinator: sealed shares, one for each neighbour, in the order of their indices."""

    receivers: list[int]
    sealed: list[bytes]


class Relay(Message, frozen=True, tag="secagg/relay"):
    """Coordinator to party: the shares that its neighbours dealt to it."""

    senders: list[int]
    sealed: list[bytes]


class Masked(Message, frozen=True, tag="secagg/masked"):
    """Party to coordinator: its masked vector, and hashes of the seeds that may be opened later."""

    vector: memoryview
    commitments: list[bytes]


class Unmask(Message, frozen=True, tag="secagg/unmask"):
    """Coordinator to party: the parties whose vectors have arrived."""

    survivors: bytes


class Opened(Message, frozen=True, tag="secagg/opened"):
    """Party to coordinator: shares of the seeds of neighbours in the total, and of the mask keys of the others."""

    alive: list[int]
    alive_shares: bytes
    gone: list[int]
    gone_shares: bytes


ToParty: TypeAlias = Introduce | Relay | Unmask
FromParty: TypeAlias = Deal | Masked | Opened


def sealing_key(secret: bytes, public: bytes, label: str, one: int, other: int) -> bytes:
    """The key for the two messages between a pair of neighbours, one in each direction."""
    return agree(secret, public, f"seal/{label}/{min(one, other)}/{max(one, other)}".encode())


def commitment(label: str, sender: int, seed: bytes) -> bytes:
    """The hash of a random 32-byte seed, which binds to it and reveals nothing about it."""
    return hashlib.sha256(f"seed/{label}/{sender}/".encode() + seed).digest()
