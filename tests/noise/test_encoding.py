"""Integers modulo 2^b stand for real vectors: within half a unit, no further apart than stated, without overflow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unspoken.noise.encoding import Encoding

VECTORS = arrays(np.float64, (2, 6), elements=st.floats(-50.0, 50.0))


@pytest.mark.parametrize("bits", [32, 64])
@given(vectors=VECTORS)
def test_decoding_gives_the_vector_back_within_half_a_unit(bits: int, vectors: np.ndarray) -> None:
    encoding = Encoding(scale=2.0**10, bits=bits, bound=1e6)
    assert np.abs(encoding.decode(encoding.encode(vectors)) - vectors).max() <= 0.5 / encoding.scale


@given(vectors=VECTORS, bound=st.floats(0.1, 100.0))
def test_rounding_moves_two_vectors_apart_by_at_most_the_stated_units(vectors: np.ndarray, bound: float) -> None:
    encoding = Encoding(scale=1.0, bits=64, bound=bound)
    first, second = encoding.centered(encoding.encode(vectors))
    clipped = vectors * (bound / np.maximum(np.linalg.norm(vectors, axis=1), bound))[:, None]
    apart = np.linalg.norm(first - second)
    assert apart <= np.linalg.norm(clipped[0] - clipped[1]) + encoding.rounding(6) + 1e-9
    # Clipping is a projection: it never moves two vectors apart.
    assert np.linalg.norm(clipped[0] - clipped[1]) <= np.linalg.norm(vectors[0] - vectors[1]) * (1 + 1e-9) + 1e-9


def test_rounding_reaches_the_stated_units() -> None:
    encoding = Encoding(scale=1.0, bits=64, bound=1e6)
    low, high = encoding.centered(encoding.encode(np.array([[0.4999] * 9, [0.5001] * 9])))
    assert np.linalg.norm(high - low) == encoding.rounding(9)


@pytest.mark.parametrize("bits", [32, 64])
def test_sums_of_residues_decode_to_sums_of_numbers(bits: int) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1000, 5)) * 100
    encoding = Encoding(scale=2.0**8, bits=bits, bound=1e9)
    total = encoding.encode(vectors).sum(axis=0, dtype=np.uint64) & np.uint64(2**bits - 1)
    assert np.allclose(encoding.decode(total), vectors.sum(axis=0), atol=1000 / encoding.scale)


@pytest.mark.parametrize(
    ("kind", "number"),
    [("uint8", 16), ("int16", 256), ("int32", 2**16), ("int64", 2**32), ("float16", 300), ("float32", 1e30), ("?", 1)],
)
def test_a_row_is_clipped_whatever_its_numbers_are_made_of(kind: str, number: float) -> None:
    """In a byte the square of 16 is 0, and so on: as integers these rows seem to have no length."""
    words = Encoding(1000.0, 64, 1.0).encode(np.full((1, 4), number, dtype=kind)).view(np.int64)
    np.testing.assert_array_equal(words, [[500, 500, 500, 500]])
