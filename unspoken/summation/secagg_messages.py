"""The messages of SecAgg and SecAgg+ between parties and the coordinator, and the statements that parties sign.

See `secagg` for the protocol.
"""

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
MARK_BYTES = 16
"""The size of a mark: the hash by which a dealer commits to a share"""


class Deal(Message, frozen=True, tag="secagg/deal"):
    """Party to coordinator: sealed shares, one for each neighbour that it chose, in the order of their indices."""

    sealed: list[bytes]
    marks: bytes
    """A hash of every share of every secret, so that shares that were dealt can be told from others"""
    commitments: list[bytes]
    """Hashes of the seeds that may be opened"""
    signature: bytes


class DealtShares(Message, frozen=True, tag="secagg/relay"):
    """Coordinator to party: the shares that others dealt to it, with their marks."""

    senders: list[int]
    sealed: list[bytes]
    marks: bytes


class Checked(Message, frozen=True, tag="secagg/checked"):
    """Party to coordinator: it has checked its shares. Those of these dealers do not fit their marks."""

    complaints: list[int]


class Begin(Message, frozen=True, tag="secagg/begin"):
    """Coordinator to party: everyone whose shares were dealt. Vectors are masked among these."""

    dealers: bytes


class Masked(Message, frozen=True, tag="secagg/masked"):
    """Party to coordinator: its masked vector, and its signature on the dealers among whom it is masked."""

    vector: memoryview
    signature: bytes


class Survivors(Message, frozen=True, tag="secagg/survivors"):
    """Coordinator to party: everyone whose vector has arrived."""

    survivors: bytes


class Agreed(Message, frozen=True, tag="secagg/agreed"):
    """Party to coordinator: its signature on dealers and survivors, the only one that it gives in an attempt."""

    signature: bytes


class Unmask(Message, frozen=True, tag="secagg/unmask"):
    """Coordinator to party: the survivors, and the signatures of those who agreed on them, by the bits of `signers`.

    Survivors that dealt to this party and did not sign are in `silent`, with their signatures on the dealers.
    """

    survivors: bytes
    signers: bytes
    signatures: bytes
    silent: list[int]
    declared: bytes


class Opened(Message, frozen=True, tag="secagg/opened"):
    """Party to coordinator: shares of the seeds of dealers in the total, and of the mask keys of the others."""

    alive: list[int]
    alive_shares: bytes
    gone: list[int]
    gone_shares: bytes


ToParty: TypeAlias = Introduce | DealtShares | Begin | Survivors | Unmask
FromParty: TypeAlias = Deal | Checked | Masked | Agreed | Opened


def sealing_key(secret: bytes, public: bytes, label: str, one: int, other: int) -> bytes:
    """The key for the two messages between a pair of neighbours, one in each direction."""
    return agree(secret, public, f"seal/{label}/{min(one, other)}/{max(one, other)}".encode())


def commitment(label: str, sender: int, seed: bytes) -> bytes:
    """The hash of a random 32-byte seed, which binds to it and reveals nothing about it."""
    return hashlib.sha256(f"seed/{label}/{sender}/".encode() + seed).digest()


def marks_of(label: str, dealer: int, receiver: int, share: bytes) -> bytes:
    """The marks of the shares that one party deals to another, one for each secret.

    A share has 279 random bits, so its hash tells nothing about it.
    """
    prefix = _marked(label, dealer, receiver)
    return b"".join(
        _mark(prefix, start // SHARE_BYTES, share[start : start + SHARE_BYTES])
        for start in range(0, len(share), SHARE_BYTES)
    )


def mark_of(label: str, dealer: int, receiver: int, number: int, share: bytes) -> bytes:
    """The mark of the share of one secret."""
    return _mark(_marked(label, dealer, receiver), number, share)


def _marked(label: str, dealer: int, receiver: int) -> bytes:
    return hashlib.sha256(f"share/{label}/{dealer}/{receiver}/".encode()).digest()


def _mark(prefix: bytes, number: int, share: bytes) -> bytes:
    return hashlib.blake2b(prefix + bytes([number]) + share, digest_size=MARK_BYTES).digest()


def dealt_statement(label: str, dealer: int, marks: bytes, commitments: list[bytes]) -> bytes:
    """The statement that a dealer signs: these are the marks of its shares, and the commitments to its seeds."""
    return f"dealt/{label}/{dealer}/".encode() + b"".join(commitments) + marks


def masked_statement(label: str, sender: int, dealers: bytes) -> bytes:
    """The statement that a party signs with its vector: it is masked among these dealers."""
    return f"masked/{label}/{sender}/".encode() + hashlib.sha256(dealers).digest()


def agreed_statement(label: str, dealers: bytes, survivors: bytes) -> bytes:
    """The statement of the quorum: vectors are masked among these dealers, and the total is over these survivors.

    It has a digest of both lists, so that it is as short for 10,000 parties as for ten, and a simulation can remember
    that a signature is valid. Both lists have one bit a party, so there is one way to divide what is digested.
    """
    return f"agreed/{label}/".encode() + hashlib.sha256(dealers + survivors).digest()
