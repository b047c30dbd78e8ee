"""Masks: key streams as long as a vector, added to it and taken away again, at the speed of the cipher."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.summation.base import Session
from tacit.types import Words

_SLACK = 16
"""update_into asks for a buffer that is a block larger than what it writes."""


_MANY = 256
"""From so many streams on, a second thread is worth its while: one adds while the other's cipher runs."""


def add_masks(vector: Words, seeds: Iterable[tuple[bytes, bool]], session: Session) -> Words:
    """The vector with the stream of every seed added (True) or subtracted (False), modulo 2^bits.

    The streams are AES-256 in counter mode, as `SecretStream` makes them; one buffer serves for all.
    """
    seeds = list(seeds)
    total = vector.astype(session.wire_type)
    if len(seeds) < _MANY:
        _accumulate(total, seeds)
        return total.astype(np.uint64)
    other = np.zeros_like(total)
    with ThreadPoolExecutor(1) as pool:
        half = pool.submit(_accumulate, other, seeds[::2])
        _accumulate(total, seeds[1::2])
        half.result()
    total += other
    return total.astype(np.uint64)


def _accumulate(total: NDArray[Any], seeds: list[tuple[bytes, bool]]) -> None:
    zeros, buffer = bytes(total.nbytes), bytearray(total.nbytes + _SLACK)
    stream = np.frombuffer(buffer, dtype=total.dtype, count=total.size)
    for seed, positive in seeds:
        Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update_into(zeros, buffer)
        if positive:
            np.add(total, stream, out=total)
        else:
            np.subtract(total, stream, out=total)
