"""Masks: key streams as long as a vector, added to it and taken away again, at the speed of the cipher."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.summation.base import Session
from tacit.types import Words

_SLACK = 16
"""update_into asks for a buffer that is a block larger than what it writes."""


def add_masks(vector: Words, seeds: Iterable[tuple[bytes, bool]], session: Session) -> Words:
    """The vector with the stream of every seed added (True) or subtracted (False), modulo 2^bits.

    The streams are AES-256 in counter mode, as `SecretStream` makes them; one buffer serves for all.
    """
    size = session.length * session.bits // 8
    total = vector.astype(session.wire_type)
    zeros, buffer = bytes(size), bytearray(size + _SLACK)
    stream = np.frombuffer(buffer, dtype=session.wire_type, count=session.length)
    for seed, positive in seeds:
        Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update_into(zeros, buffer)
        if positive:
            np.add(total, stream, out=total)
        else:
            np.subtract(total, stream, out=total)
    return total.astype(np.uint64)
