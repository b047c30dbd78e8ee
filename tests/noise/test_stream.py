"""The secret stream is AES-256 in counter mode, never repeats itself, and cannot be seeded by accident."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from unspoken.noise.stream import SecretStream

KEY = bytes(range(32))


def test_it_is_the_key_stream_of_aes_256() -> None:
    block = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()  # noqa: S305 (a single block at a time)
    expected = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(8))
    stream = SecretStream(KEY)
    assert stream.take(5) + stream.words(10).tobytes() + stream.take(43) == expected


def test_two_streams_of_the_operating_system_differ() -> None:
    assert SecretStream().key() != SecretStream().key()


def test_words_are_uniform_in_every_byte() -> None:
    """χ² for each byte of a word; false alarms: 8 in 10,000."""
    octets = SecretStream(KEY).words(200_000).view(np.uint8).reshape(-1, 8)
    for column in octets.T:
        assert stats.chisquare(np.bincount(column, minlength=256)).pvalue > 1e-4


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_short_or_long_key_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SecretStream(bytes(length))
