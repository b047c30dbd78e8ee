"""The argmax of shared totals: the sign of a shared number, bits as numbers, and a tournament between rows.

The values are secret-shared among n = 2t + 1 talliers as in `replicated`, where it is also shown that t of them learn
nothing. The circuits are those of Mohassel and Rindal 2018 ("ABY3").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unspoken.noise.stream import SecretStream
from unspoken.summation.replicated import (
    BITS,
    SUMS,
    Array,
    Interactive,
    ReplicatedShares,
    SharedComputation,
    Sharing,
    joined,
)
from unspoken.types import Words

_SWAPS = ((31, 0x00000000AAAAAAAA), (14, 0x0000CCCC0000CCCC), (4, 0x00F000F000F000F0))
"""Shifts and masks that reverse the bits of a bit's index: first and last, second and last but one, …"""


def argmax(computation: SharedComputation, values: ReplicatedShares, names: Words) -> Interactive[ReplicatedShares]:
    """Shares of the name of the largest value in each column (rows, columns); ties go to the first.

    A tournament between adjacent rows: the later one wins if it is strictly larger. No two values may differ by 2⁶³ or
    more.
    """
    rows = computation.public(names)
    while (count := len(values)) > 1:
        even = count - count % 2
        ahead, behind, spare = slice(0, even, 2), slice(1, even, 2), slice(even, count)
        overtaken = yield from negative(computation, values[ahead] - values[behind])
        swap = yield from as_numbers(computation, overtaken)
        moves = [rows[behind] - rows[ahead]]
        # The last round needs only the winner's name.
        if count > 2:
            moves.append(values[behind] - values[ahead])
        moved = yield from computation.multiply(joined([swap] * len(moves)), joined(moves), SUMS)
        rows = joined([rows[ahead] + moved[: even // 2], rows[spare]])
        values = joined([values[ahead] + moved[even // 2 :], values[spare]]) if count > 2 else values[:1]
    return rows[0]


def winners(
    computation: SharedComputation, sums: Words, seed: bytes, queries: int, classes: int
) -> Interactive[ReplicatedShares]:
    """Shares of the class with the largest total, for each query, from the talliers' sums of ballots (one sum each).

    The seed gives each query a random order of its classes, and a tie goes to the first, so all have equal chances.
    """
    totals = yield from computation.reshare(sums, SUMS)
    order = orders(seed, classes, queries)
    ordered = totals.each(lambda words: _in_order(words.reshape(-1, queries, classes), order))
    return (yield from argmax(computation, ordered, order.astype(np.uint64)))


def _in_order(totals: Array, order: NDArray[np.int64]) -> Array:
    """Totals (…, queries, classes) as (…, classes, queries), each query's classes in its own order."""
    return np.take_along_axis(totals.swapaxes(1, 2), order[np.newaxis], axis=1)


def rounds_of_argmax(rows: int, sharing: Sharing) -> int:
    """The number of message rounds for an argmax over so many rows.

    >>> [rounds_of_argmax(10, Sharing(talliers)) for talliers in (3, 5, 7)]
    [44, 52, 56]
    """
    sign, numbers = sharing.threshold + 7, 1 + sharing.threshold.bit_length()
    return (sign + numbers + 1) * (rows - 1).bit_length()


def negative(computation: SharedComputation, x: ReplicatedShares) -> Interactive[ReplicatedShares]:
    """The sign bits of numbers, shared by ⊕, in t + 7 rounds.

    x is the sum of t + 1 words that are shared bit by bit; carry-save adders, a + b + c = (a ⊕ b ⊕ c) + 2m with m = a ⊕
    (a ⊕ b)(a ⊕ c), leave two. The carry into the top bit of their sum is the carry out of twice the words. It comes
    from a tree of generate and propagate bits, over adjacent bits, then pairs, then fours (Kogge–Stone, reduced to what
    the last carry needs). With the bits shuffled, adjacent bits are the two halves of a word, so that words shrink by
    half from level to level.
    """
    words = yield from computation.parts(x, inside=SUMS, outside=BITS)
    while len(words) > 2:
        a, b, c, *rest = words
        majority = a ^ (yield from computation.multiply(a ^ b, a ^ c, BITS))
        words = [a ^ b ^ c, majority.each(lambda bits: bits << 1), *rest]
    left, right = (word.each(lambda bits: shuffled(bits << 1)) for word in words)
    generate, propagate = (yield from computation.multiply(left, right, BITS)), left ^ right
    width = 64
    while width > 1:
        width //= 2
        (upper_g, lower_g), (upper_p, lower_p) = _halves(generate, width), _halves(propagate, width)
        if width == 1:
            generate = upper_g ^ (yield from computation.multiply(upper_p, lower_g, BITS))
        else:
            both = yield from computation.multiply(joined([upper_p, upper_p]), joined([lower_g, lower_p]), BITS)
            generate, propagate = upper_g ^ both[: len(upper_g)], both[len(upper_g) :]
    top = (words[0] ^ words[1]).each(lambda bits: (bits >> 63).astype(np.uint8))
    return generate.each(lambda bits: bits & 1) ^ top


def as_numbers(computation: SharedComputation, bits: ReplicatedShares) -> Interactive[ReplicatedShares]:
    """The numbers 0 and 1 shared by +, from bits shared by ⊕, in 1 + ⌈log₂(t + 1)⌉ rounds.

    A bit is the exclusive or of t + 1 bits that are shared as numbers, and a ⊕ b = a + b − 2ab.
    """
    numbers = yield from computation.parts(bits.each(lambda some: some.astype(np.uint64)), inside=BITS, outside=SUMS)
    while (count := len(numbers)) > 1:
        even = count - count % 2
        left, right = joined(numbers[:even:2]), joined(numbers[1:even:2])
        product = yield from computation.multiply(left, right, SUMS)
        either, rows = left + right - product - product, len(bits)
        numbers = [either[start : start + rows] for start in range(0, len(either), rows)] + numbers[even:]
    return numbers[0]


def orders(seed: bytes, rows: int, columns: int) -> NDArray[np.int64]:
    """A uniformly random order of the rows for each column, (rows, columns), the same for all who know the seed."""
    words = np.frombuffer(SecretStream(seed).take(8 * rows * columns), "<u8").reshape(rows, columns)
    return np.argsort(words, axis=0, kind="stable")


def shuffled(words: Array) -> Array:
    """64-bit words with bit abcdef (in binary) moved to fedcba: odd bits go to the upper half, and so on.

    >>> [hex(word) for word in shuffled(np.array([0b10, 0b110000], dtype=np.uint64))]
    ['0x100000000', '0x10000000100']
    """
    for shift, mask in _SWAPS:
        differing = (words ^ words >> shift) & mask
        words = words ^ differing ^ differing << shift
    return words


def _halves(words: ReplicatedShares, width: int) -> tuple[ReplicatedShares, ReplicatedShares]:
    """The upper and the lower `width` bits, in the smallest words that hold them."""
    kind, mask = np.dtype(f"u{max(width // 8, 1)}"), (1 << width) - 1
    return (
        words.each(lambda bits: (bits >> width & mask).astype(kind)),
        words.each(lambda bits: (bits & mask).astype(kind)),
    )
