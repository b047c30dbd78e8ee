"""Identities, key agreement and sealed messages: the cryptography that endpoints share.

Identities are Ed25519 keys in the study's roster, so a coordinator cannot invent parties. Keys for masks and for sealed
messages are X25519 keys made for one sum and signed by their owner. A sealed message is AES-256-GCM under a key for
that one message, bound by HKDF to the sum, the sender and the receiver.
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
"""The bytes that sealing adds to a message"""
NONCE_BYTES = 12
WRAPPING_BYTES = NONCE_BYTES + TAG_BYTES
"""The bytes that a channel puts before a body: a nonce and an authentication tag"""


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
    """Raise `Rejected` unless the owner of the identity signed exactly this statement."""
    if not _signed(public, statement, signature):
        raise Rejected(f"the signature of {who} does not match its identity in the roster")


@lru_cache(maxsize=1 << 14)
def _signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether the signature is valid. Cached: in a simulation every neighbour checks the same public signature."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of a secret key."""
    return _private_key(secret).public_key().public_bytes_raw()


@lru_cache(maxsize=1024)
def _private_key(secret: bytes) -> X25519PrivateKey:
    """The key as an object, cached because making it costs as much as a key agreement."""
    return X25519PrivateKey.from_private_bytes(secret)


def agree(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """The common 32-byte key of two X25519 keys, for one purpose only."""
    try:
        shared = _private_key(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Rejected("key agreement failed: the public key is not a valid point") from None
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def seal(key: bytes, number: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a message; `number` is its nonce and must differ for each message under a key."""
    return AESGCM(key).encrypt(number.to_bytes(12, "big"), plain, None)


def unseal(key: bytes, number: int, sealed: bytes | memoryview, who: str) -> bytes:
    """The plain text; `Rejected` if the message was altered or sealed for someone else."""
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), sealed, None)
    except InvalidTag:
        raise Rejected(
            f"the message of {who} cannot be decrypted: it was altered, or meant for another receiver"
        ) from None


class Channel:
    """Authenticated messages between two endpoints that know each other's X25519 keys.

    Bodies are not encrypted: what the coordinator must not read is sealed, and the transport encrypts the rest.
    """

    def __init__(self, secret: bytes, peer: bytes, label: str, me: str, other: str) -> None:
        first, second = sorted((me, other))
        common = agree(secret, peer, f"channel/{label}/{first}/{second}".encode())
        # A key for each direction, so that no message can be reflected to its sender.
        self._mine, self._theirs = (AESGCM(hmac.digest(common, name.encode(), "sha256")) for name in (me, other))
        self._other = "the coordinator" if other == COORDINATOR else other

    def wrap(self, body: bytes) -> bytes:
        """The body after a random nonce and an authentication tag."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._mine.encrypt(nonce, b"", body) + body

    def unwrap(self, wrapped: bytes | memoryview) -> memoryview:
        """The body; `Rejected` if the other side did not wrap it. It is not copied, as bodies may be large."""
        view = memoryview(wrapped)
        nonce, tag, body = view[:NONCE_BYTES], view[NONCE_BYTES:WRAPPING_BYTES], view[WRAPPING_BYTES:]
        try:
            self._theirs.decrypt(nonce, tag, body)
        except (InvalidTag, ValueError):
            raise Rejected(f"a message that claims to be from {self._other} failed authentication") from None
        return body
