"""Secret randomness: a keyed cryptographic stream (AES-256 in counter mode) whose key comes from the operating system.

Public randomness (splits, orders of records) comes from numpy generators with public seeds; the two never mix.
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from unspoken.types import Words

KEY_BYTES = 32


class SecretStream:
    """An endless stream of secret random bytes.

    `SecretStream()` takes its key from the operating system, always so in production. `SecretStream(key)` expands a
    32-byte key that is itself secret (for a mask that two sides share), or a test's.
    """

    def __init__(self, key: bytes | None = None) -> None:
        key = os.urandom(KEY_BYTES) if key is None else key
        if len(key) != KEY_BYTES:
            raise ValueError(f"Expected a key of {KEY_BYTES} bytes, got {len(key)}.")
        # Each key serves one stream only, so a fixed first counter repeats nothing.
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def take(self, count: int) -> bytes:
        return self._encryptor.update(bytes(count))

    def words(self, count: int) -> Words:
        """Uniform 64-bit words."""
        return np.frombuffer(self.take(8 * count), dtype=np.uint64)

    def key(self) -> bytes:
        """A fresh key for another stream."""
        return self.take(KEY_BYTES)
