"""Identities, key agreement and sealed messages: everything that parties and helpers need of cryptography.

Identities are Ed25519 keys that the study's roster names, so a coordinator cannot invent parties. Keys for masks and
for sealed messages are X25519 keys made for one sum and signed by their owner. A sealed message is AES-256-GCM under
a key that serves for that one message, bound by HKDF to the sum, the sender and the receiver.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import overload

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.base import Rejected

NONCE_BYTES = 12
WRAPPING_BYTES = NONCE_BYTES + 16
"""What a channel puts before a body: a nonce and an authentication tag."""


@dataclass(frozen=True)
class Identity:
    """A party's or helper's long-term signing key."""

    secret: bytes

    @property
    def public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(statement)


def verify(public: bytes, statement: bytes, signature: bytes, who: str) -> None:
    """`Rejected` unless the owner of the identity signed exactly this."""
    if not _signed(public, statement, signature):
        raise Rejected(f"the signature of {who} does not fit its identity in the roster")


@lru_cache(maxsize=1 << 14)
def _signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Remembered, as all of it is public: in a simulation every neighbour of a party checks the same signature."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of a secret one."""
    return _private_key(secret).public_key().public_bytes_raw()


@lru_cache(maxsize=1024)
def _private_key(secret: bytes) -> X25519PrivateKey:
    """The key as an object: making one costs as much as agreeing on a key."""
    return X25519PrivateKey.from_private_bytes(secret)


def agree(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """The 32-byte key that two X25519 keys have in common, for one purpose only."""
    try:
        shared = _private_key(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Rejected("a public key is not a point that a key can be agreed on with") from None
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def seal(key: bytes, number: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a message. A key's messages have different numbers: each stands for one nonce."""
    return AESGCM(key).encrypt(number.to_bytes(12, "big"), plain, None)


def unseal(key: bytes, number: int, sealed: bytes | memoryview, who: str) -> bytes:
    """`Rejected` unless the message is just as its sender sealed it, for this receiver."""
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), sealed, None)
    except InvalidTag:
        raise Rejected(f"the message of {who} cannot be opened: altered, or not meant for this receiver") from None


class SimulatedIdentities(Sequence[bytes]):
    """The identities of all parties of a simulation, made from one secret when they are first needed.

    As a sequence it is what a roster needs: the public keys.
    """

    def __init__(self, root: bytes, parties: int) -> None:
        self._root, self._parties = root, parties
        self._public: dict[int, bytes] = {}

    def identity(self, party: int) -> Identity:
        return Identity(hashlib.sha256(self._root + party.to_bytes(8, "big")).digest())

    def __len__(self) -> int:
        return self._parties

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[party] for party in range(*index.indices(self._parties))]
        if not 0 <= index < self._parties:
            raise IndexError(index)
        if index not in self._public:
            self._public[index] = self.identity(index).public
        return self._public[index]


class Channel:
    """Authenticated messages between two endpoints that know each other's X25519 keys: altered ones are rejected.

    What the coordinator may read needs no encryption here (the transport has its own); what it may not is sealed.
    """

    def __init__(self, secret: bytes, peer: bytes, label: str, me: str, other: str) -> None:
        first, second = sorted((me, other))
        common = agree(secret, peer, f"channel/{label}/{first}/{second}".encode())
        # A key for each direction: a message cannot be turned back to its sender.
        self._mine, self._theirs = (AESGCM(hmac.digest(common, name.encode(), "sha256")) for name in (me, other))
        self._other = other

    def wrap(self, body: bytes) -> bytes:
        """The body behind a random nonce and its authentication tag."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._mine.encrypt(nonce, b"", body) + body

    def unwrap(self, wrapped: bytes | memoryview) -> memoryview:
        """The body, or `Rejected` if it is not what the other side wrapped. Nothing is copied: bodies may be large."""
        view = memoryview(wrapped)
        nonce, tag, body = view[:NONCE_BYTES], view[NONCE_BYTES:WRAPPING_BYTES], view[WRAPPING_BYTES:]
        try:
            self._theirs.decrypt(nonce, tag, body)
        except (InvalidTag, ValueError):
            raise Rejected(f"a message that {self._other} did not send as it is came") from None
        return body
