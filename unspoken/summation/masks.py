"""Masks: key streams as long as a vector, added and subtracted at the speed of the cipher."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, Cipher, algorithms, modes

from unspoken.summation.base import Session
from unspoken.types import Residues, Words

_SLACK = 16
"""The extra block that `update_into` needs in its buffer"""
_CHUNK_BYTES = 1 << 18
"""The size of the pieces in which a vector is worked on, so that a piece stays in the processor's cache"""
_NONCE = bytes(12)
"""The same for all: a seed is used once"""
_ZEROS = memoryview(bytes(_CHUNK_BYTES))
_MANY = 256
"""The number of streams from which a second thread pays off: one thread adds while the other encrypts"""


def add_masks(vector: Words | Residues, seeds: Iterable[tuple[bytes, bool]], session: Session) -> Residues:
    """The vector with the stream of every seed added (True) or subtracted (False), modulo 2^bits.

    The streams are AES-256 in counter mode; one buffer serves all of them.
    """
    seeds = list(seeds)
    total = vector.astype(session.wire_type)
    if len(seeds) < _MANY:
        add_streams(total, seeds)
        return total
    other = np.zeros_like(total)
    with ThreadPoolExecutor(1) as pool:
        half = pool.submit(add_streams, other, seeds[::2])
        add_streams(total, seeds[1::2])
        half.result()
    total += other
    return total


def add_streams(total: Residues, seeds: Iterable[tuple[bytes, bool]]) -> None:
    """Add (True) or subtract (False) the stream of every seed, in place."""
    streams = [(_encryptor(seed), np.add if positive else np.subtract) for seed, positive in seeds]
    buffer = bytearray(min(total.nbytes, _CHUNK_BYTES) + _SLACK)
    length = _CHUNK_BYTES // total.itemsize
    for start in range(0, total.size, length):
        part = total[start : start + length]
        stream = np.frombuffer(buffer, dtype=total.dtype, count=part.size)
        for cipher, combine in streams:
            cipher.update_into(_ZEROS[: part.nbytes], buffer)
            combine(part, stream, out=part)


def _encryptor(seed: bytes) -> AEADEncryptionContext:
    """The stream of a seed: GCM encrypts in counter mode, from block 2 on. Nobody asks for its tag.

    OpenSSL's GCM uses wider registers than its plain counter mode: 1.5 times as fast, where the processor has them. A
    stream ends after 64 GB, with an error.
    """
    return Cipher(algorithms.AES(seed), modes.GCM(_NONCE)).encryptor()
