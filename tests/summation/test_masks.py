"""Masks are the key streams of their seeds: they cancel, depend on every bit of a seed, and are the cipher's own."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from masked_sums import session
from unspoken.summation import masks
from unspoken.summation.masks import add_masks

LENGTH = 100_003
"""More than one piece, and no whole number of blocks"""
SEED = bytes(range(32))


def mask(seed: bytes, positive: bool = True) -> np.ndarray:
    return add_masks(np.zeros(LENGTH, dtype=np.uint64), [(seed, positive)], session(length=LENGTH))


def test_a_mask_is_the_cipher_in_counter_mode_from_its_second_block_on() -> None:
    counter = (2).to_bytes(16, "big")
    stream = Cipher(algorithms.AES(SEED), modes.CTR(counter)).encryptor().update(bytes(8 * LENGTH))
    assert (mask(SEED) == np.frombuffer(stream, dtype="<u8")).all()


def test_a_mask_that_is_added_and_subtracted_cancels() -> None:
    assert not (mask(SEED) + mask(SEED, positive=False)).any()


@pytest.mark.parametrize("bit", range(0, 256, 5))
def test_another_bit_of_the_seed_gives_another_mask(bit: int) -> None:
    other = (int.from_bytes(SEED, "big") ^ (1 << bit)).to_bytes(32, "big")
    # Equal words among 100,003 of 64 bits: with probability below 2⁻⁴⁷.
    assert not (mask(SEED) == mask(other)).any()


def test_many_masks_by_two_threads_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = session(length=50)
    seeds = [(bytes([number]) * 32, number % 3 == 0) for number in range(9)]
    vector = np.arange(50, dtype=np.uint64)
    alone = add_masks(vector, seeds, agreed)
    monkeypatch.setattr(masks, "_MANY", 2)
    assert (add_masks(vector, seeds, agreed) == alone).all()
