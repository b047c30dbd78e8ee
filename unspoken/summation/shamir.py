"""Shamir's secret sharing: any `threshold` shares of a secret recover it, and fewer reveal nothing.

Arithmetic is modulo the prime p = 2³¹ − 1: products fit 64 bits and reduce by shifts, without tables or branches on
secrets. A secret of 32 bytes is nine numbers of at most 30 bits, each shared by its own polynomial.
"""

from __future__ import annotations

import numpy as np

from unspoken.compiling import compiled
from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.types import Words

PRIME = 2**31 - 1
SECRET_BYTES = 32
SYMBOLS = 9
_SYMBOL_BITS = 30


def split(secrets: list[bytes], points: Words, threshold: int, stream: SecretStream) -> Words:
    """Shares (points, secrets, symbols) of some 32-byte secrets at distinct points from 1 to p − 1."""
    if not 1 <= threshold <= len(points):
        raise ValueError(f"Expected 1 <= threshold <= {len(points)}, got threshold={threshold}.")
    if not ((points > 0) & (points < PRIME)).all() or len(np.unique(points)) != len(points):
        raise ValueError(f"Expected distinct points from 1 to {PRIME - 1}.")
    constants = np.concatenate([_symbols(secret) for secret in secrets])
    noise = _uniform((threshold - 1) * len(constants), stream).reshape(threshold - 1, len(constants))
    shares = np.empty((len(points), len(constants)), dtype=np.uint64)
    _evaluate(np.concatenate([constants[None], noise]), points, shares)
    return shares.reshape(len(points), len(secrets), SYMBOLS)


def combine(shares: Words, points: Words) -> bytes:
    """The secret from `threshold` shares (threshold, symbols); another value if any share is wrong."""
    weights = weights_at_zero(points)
    prime = np.uint64(PRIME)
    symbols = (shares * weights[:, None] % prime).sum(axis=0) % prime
    value = sum(int(symbol) << (_SYMBOL_BITS * position) for position, symbol in enumerate(symbols.tolist()))
    return (value & (1 << 8 * SECRET_BYTES) - 1).to_bytes(SECRET_BYTES, "little")


def weights_at_zero(points: Words) -> Words:
    """Lagrange's weights for the value at 0: ∏_{j≠i} x_j / (x_j − x_i) modulo p."""
    weights = np.empty(len(points), dtype=np.uint64)
    _weights(points, weights)
    return weights


def warm_up() -> None:
    """Have the compiled code ready: the first calls take a while."""
    points = np.array([1, 2], dtype=np.uint64)
    shares = split([bytes(SECRET_BYTES)], points, 2, SecretStream(bytes(KEY_BYTES)))
    combine(shares[:, 0], points)


def _symbols(secret: bytes) -> Words:
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"Expected a secret of {SECRET_BYTES} bytes, got {len(secret)}.")
    value = int.from_bytes(secret, "little")
    mask = 2**_SYMBOL_BITS - 1
    return np.array([(value >> (_SYMBOL_BITS * position)) & mask for position in range(SYMBOLS)], dtype=np.uint64)


def _uniform(count: int, stream: SecretStream) -> Words:
    """Uniform numbers from 0 to p − 1; a 31-bit draw that equals p is repeated."""
    drawn = np.frombuffer(stream.take(4 * count), dtype="<u4").astype(np.uint64) & np.uint64(PRIME)
    while (again := np.flatnonzero(drawn == PRIME)).size:
        drawn[again] = np.frombuffer(stream.take(4 * again.size), dtype="<u4").astype(np.uint64) & np.uint64(PRIME)
    return drawn


@compiled
def _reduced(value: np.uint64) -> np.uint64:
    """A number below 2³² congruent to a number below 2⁶², modulo 2³¹ − 1 (not canonical)."""
    return (value & np.uint64(0x7FFFFFFF)) + (value >> np.uint64(31))


@compiled
def _evaluate(coefficients: Words, points: Words, shares: Words) -> None:
    """Evaluate polynomials by Horner's rule at every point, one a column; the first row has the constants."""
    degree, columns = coefficients.shape[0] - 1, coefficients.shape[1]
    value = np.empty(columns, dtype=np.uint64)
    for index in range(points.size):
        point = points[index]
        value[:] = coefficients[degree]
        for power in range(degree - 1, -1, -1):
            for column in range(columns):
                # value < 2³², point < 2³¹: the sum stays below 2⁶⁴, and two reductions bring it below 2³².
                product = value[column] * point + coefficients[power, column]
                value[column] = _reduced(_reduced(product))
        for column in range(columns):
            shares[index, column] = value[column] % np.uint64(0x7FFFFFFF)


@compiled
def _power(base: np.uint64, exponent: np.uint64) -> np.uint64:
    result = np.uint64(1)
    while exponent > np.uint64(0):
        if exponent & np.uint64(1):
            result = result * base % np.uint64(0x7FFFFFFF)
        base = base * base % np.uint64(0x7FFFFFFF)
        exponent >>= np.uint64(1)
    return result


@compiled
def _weights(points: Words, weights: Words) -> None:
    prime = np.uint64(0x7FFFFFFF)
    for i in range(points.size):
        above, below = np.uint64(1), np.uint64(1)
        for j in range(points.size):
            if j != i:
                above = above * points[j] % prime
                below = below * ((points[j] + prime - points[i]) % prime) % prime
        # Fermat: the inverse is the (p − 2)-th power.
        weights[i] = above * _power(below, prime - np.uint64(2)) % prime
