"""A mixnet: onions are tokens in one sealed layer for each party; the parties peel and shuffle them in turn.

A layer is a libsodium sealed box with a fresh X25519 key, so equal tokens give unrelated onions, and the receiver
notices any change. All onions with equally many layers have the same length. (Algorithm 2 of "Differentially private
cross-silo federated learning", Section 3.4.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted
from unspoken.types import Integers

TOKEN_BYTES = 16
LAYER_BYTES = 48
"""The bytes of a sealed box's own key and authentication tag"""


def onion_bytes(layers: int) -> int:
    """The length of an onion with so many layers left.

    >>> onion_bytes(0), onion_bytes(10)
    (16, 496)
    """
    return TOKEN_BYTES + layers * LAYER_BYTES


def onion_key(secret: bytes) -> bytes:
    """The X25519 public key that a layer is sealed with."""
    return bytes(PrivateKey(secret).public_key)


def is_usable(key: bytes) -> bool:
    """Whether a layer can be sealed with the key; libsodium refuses points of small order, which hide nothing."""
    try:
        SealedBox(PublicKey(key)).encrypt(b"")
    except (CryptoError, RuntimeError, ValueError):
        return False
    return True


class Undecryptable(Aborted):
    """An onion cannot be opened; `place` is its place in the list."""

    def __init__(self, place: int) -> None:
        super().__init__("an onion cannot be decrypted: it was altered on its way, or malformed by its owner")
        self.place = place


def wrap(token: bytes, keys: Sequence[bytes]) -> list[bytes]:
    """All forms of one onion, from all layers (the first key's outermost) to the bare token."""
    forms = [token]
    for party in reversed(range(len(keys))):
        forms.append(SealedBox(PublicKey(keys[party])).encrypt(forms[-1]))
    return forms[::-1]


def peel(onions: Sequence[bytes | memoryview], secret: bytes) -> list[bytes]:
    """Every onion without its outermost layer, in the same order; `Undecryptable` if one cannot be opened."""
    box, inner = SealedBox(PrivateKey(secret)), []
    for place, onion in enumerate(onions):
        try:
            inner.append(box.decrypt(bytes(onion)))
        except CryptoError:
            raise Undecryptable(place) from None
    return inner


def permutation(count: int, stream: SecretStream) -> Integers:
    """A secret uniform order: that of random 64-bit words, redrawn if two are equal."""
    while True:
        words = stream.words(count)
        order = np.argsort(words)
        if count < 2 or (np.diff(words[order]) != 0).all():
            return order.astype(np.int64, copy=False)


def split(onions: bytes | memoryview, layers: int) -> list[memoryview]:
    """The onions of a list; its length must be a multiple of theirs."""
    view, size = memoryview(onions), onion_bytes(layers)
    return [view[start : start + size] for start in range(0, len(view), size)]


def digests(onions: Sequence[bytes | memoryview]) -> list[bytes]:
    return [hashlib.sha256(onion).digest() for onion in onions]
