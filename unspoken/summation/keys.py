"""Identities, key agreement and sealed messages: the cryptography that all endpoints use.

Everyone has one identity in the study's roster, an Ed25519 key, so a coordinator cannot invent parties. The same
identity gives an X25519 key for agreement (by the birational map between the two curves), for channels with the
coordinator and the helpers. Keys for masks and for messages between parties are X25519 keys made for one sum and signed
by their owner. A sealed message is AES-256-GCM under a key for that one message, bound by HKDF to the sum, the sender
and the receiver.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

import nacl.bindings as sodium
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.exceptions import CryptoError

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.base import COORDINATOR, Rejected

PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64
TAG_BYTES = 16
"""The bytes that sealing adds to a message"""
NONCE_BYTES = 12
_REMEMBERED_BYTES = 2048
"""The size up to which a statement's valid signature is remembered. Longer statements are checked by one side only"""
WRAPPING_BYTES = NONCE_BYTES + TAG_BYTES
"""The bytes that a channel puts before a body: a nonce and an authentication tag"""


@dataclass(frozen=True)
class Identity:
    """The long-term key of a party, a helper or the coordinator."""

    secret: bytes
    """The 32-byte seed of the key"""

    @property
    def public(self) -> bytes:
        return self._keys[0]

    @cached_property
    def agreement_secret(self) -> bytes:
        """The X25519 secret key that belongs to this identity; `agreement_key` gives the public one."""
        return sodium.crypto_sign_ed25519_sk_to_curve25519(self._keys[1])

    def sign(self, statement: bytes) -> bytes:
        signed: bytes = sodium.crypto_sign(statement, self._keys[1])
        return signed[:SIGNATURE_BYTES]

    def name_for(self, purpose: str) -> str:
        """A name for something, always the same, that nobody else can guess or choose."""
        return hmac.digest(self.secret, b"unspoken-1/name\n" + purpose.encode(), "sha256")[:16].hex()

    @cached_property
    def _keys(self) -> tuple[bytes, bytes]:
        """The public key, and the secret one in the form that libsodium signs with."""
        return sodium.crypto_sign_seed_keypair(self.secret)


@lru_cache(maxsize=1024)
def agreement_key(identity: bytes) -> bytes:
    """The X25519 public key that belongs to a public identity; `ValueError` if it is not a valid one."""
    try:
        return sodium.crypto_sign_ed25519_pk_to_curve25519(identity)
    except (CryptoError, RuntimeError, TypeError):
        raise ValueError("Expected the public key of an identity.") from None


def verify(public: bytes, statement: bytes, signature: bytes, who: str) -> None:
    """Raise `Rejected` unless the owner of the identity signed exactly this statement."""
    if not is_signed(public, statement, signature):
        raise Rejected(f"the signature of {who} does not match its identity in the roster")


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether the signature is valid."""
    check = verified_once if len(statement) <= _REMEMBERED_BYTES else verified_once.__wrapped__
    return check(public, statement, signature)


@lru_cache(maxsize=1 << 14)
def verified_once(public: bytes, statement: bytes, signature: bytes) -> bool:
    """`is_signed`, remembered: in a simulation every neighbour checks the same public signature."""
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        sodium.crypto_sign_open(signature + statement, public)
    except CryptoError:
        return False
    return True


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of a secret key."""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"Expected a secret key of {KEY_BYTES} bytes, got {len(secret)}.")
    return sodium.crypto_scalarmult_base(secret)


def agree(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """The common 32-byte key of two X25519 keys, for one purpose only."""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"Expected a secret key of {KEY_BYTES} bytes, got {len(secret)}.")
    try:
        # libsodium itself does not look at lengths.
        shared = sodium.crypto_scalarmult(secret, public) if len(public) == PUBLIC_BYTES else None
    except CryptoError:
        shared = None
    if shared is None:
        raise Rejected("key agreement failed: the public key is not a valid point")
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def seal(key: bytes, number: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a message; `number` is its nonce and must differ for each message under a key."""
    return AESGCM(key).encrypt(number.to_bytes(12, "big"), plain, None)


def unseal(key: bytes, number: int, sealed: bytes | memoryview, who: str) -> bytes:
    """The plain text; `Rejected` if the message was altered or sealed for someone else."""
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), sealed, None)
    except InvalidTag:
        raise Rejected(_undecryptable(who)) from None


def seal_anew(key: bytes, number: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a message and its number under a random nonce, which is put before the result.

    An endpoint whose state went back may send another message with the same number. With `seal`, which uses the number
    as nonce, that would reveal both messages.
    """
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, number.to_bytes(8, "big"))


def unseal_anew(key: bytes, number: int, sealed: bytes, who: str) -> bytes:
    """The plain text of `seal_anew`; `Rejected` if it was altered, or has another number or another receiver."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], number.to_bytes(8, "big"))
    except (InvalidTag, ValueError):
        raise Rejected(_undecryptable(who)) from None


def _undecryptable(who: str) -> str:
    return f"the message of {who} cannot be decrypted: it was altered, or meant for another receiver"


def channel_key(secret: bytes, peer: bytes, label: str, me: str, other: str) -> bytes:
    """The common key of the channel between two endpoints. To agree on it is what is dear about a channel."""
    first, second = sorted((me, other))
    return agree(secret, peer, f"channel/{label}/{first}/{second}".encode())


class Channel:
    """Authenticated messages between two endpoints that know each other's X25519 keys.

    Bodies are not encrypted. What the coordinator must not read is sealed separately, and the transport encrypts the
    rest.
    """

    def __init__(self, secret: bytes, peer: bytes, label: str, me: str, other: str) -> None:
        self._begin(channel_key(secret, peer, label, me, other), me, other)

    @classmethod
    def with_key(cls, common: bytes, me: str, other: str) -> Self:
        """The channel of two endpoints that have agreed on a `channel_key` before."""
        channel = cls.__new__(cls)
        channel._begin(common, me, other)
        return channel

    def _begin(self, common: bytes, me: str, other: str) -> None:
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
