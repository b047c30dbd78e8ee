"""Identities, key agreement and sealed messages: all the cryptography that endpoints share.

Identities are Ed25519 keys that the study's roster names, so a coordinator cannot invent parties. Keys for masks and
for sealed messages are X25519 keys made for one sum and signed by their owner. A sealed message is AES-256-GCM under
a key that serves for that one message, bound by HKDF to the sum, the sender and the receiver.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.base import COORDINATOR, Rejected

PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64
TAG_BYTES = 16
"""A sealed message is this much longer than its plain text."""
NONCE_BYTES = 12
WRAPPING_BYTES = NONCE_BYTES + TAG_BYTES
"""A channel puts a nonce and an authentication tag before a body."""


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
    """`Rejected` unless the owner of the identity signed exactly this statement."""
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
        raise Rejected("no key can be agreed on with this public key: it is not a valid point") from None
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def seal(key: bytes, number: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a message. A key's messages have different numbers: each stands for one nonce."""
    return AESGCM(key).encrypt(number.to_bytes(12, "big"), plain, None)


def unseal(key: bytes, number: int, sealed: bytes | memoryview, who: str) -> bytes:
    """The plain text; `Rejected` if the message was altered or sealed for someone else."""
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), sealed, None)
    except InvalidTag:
        raise Rejected(f"the message of {who} cannot be opened: altered, or not meant for this receiver") from None


class Channel:
    """Authenticated messages between two endpoints that know each other's X25519 keys: altered ones are rejected.

    What the coordinator may read needs no encryption here (the transport has its own); what it may not is sealed.
    """

    def __init__(self, secret: bytes, peer: bytes, label: str, me: str, other: str) -> None:
        first, second = sorted((me, other))
        common = agree(secret, peer, f"channel/{label}/{first}/{second}".encode())
        # A key for each direction: a message cannot be turned back to its sender.
        self._mine, self._theirs = (AESGCM(hmac.digest(common, name.encode(), "sha256")) for name in (me, other))
        self._other = "the coordinator" if other == COORDINATOR else other

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
            raise Rejected(f"a message that claims to be from {self._other} failed authentication") from None
        return body
