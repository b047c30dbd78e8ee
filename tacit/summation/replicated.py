"""Arithmetic on values that three talliers share, and the argmax of shared totals: pure functions of arrays.

A word x of 64 bits is x₀ + x₁ + x₂ modulo 2⁶⁴ (or, bit by bit, x₀ ⊕ x₁ ⊕ x₂), and tallier i holds xᵢ and xᵢ₊₁, indices
modulo three: any two talliers know x, and one knows nothing (Araki et al. 2016; Mohassel and Rindal 2018, "ABY3").
Sums cost nothing. A product takes one round: each tallier computes one of three terms that add up to it, adds its
part of a fresh sharing of zero, and sends the sum to the tallier before it.

A computation is written as a generator: it yields the words to send to the tallier before this one, is sent those
that came from the tallier after it, and returns its result. All three talliers yield arrays of the same shape.

What holds. Every word that tallier i receives in `reshare_*` is masked with a key stream that only the two others know,
fresh in every round, so its whole view is uniformly random whatever the values are. This is for curious talliers that
keep to the protocol: one that sends other words changes the result, and nothing here notices.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.noise.stream import SecretStream
from tacit.types import Words

TALLIERS = 3

Array: TypeAlias = NDArray[Any]
"""Unsigned words, of 64 bits or fewer"""
_T = TypeVar("_T")
Rounds: TypeAlias = Generator[Array, Array, _T]
"""A computation: yields what to send, is sent what was received"""

_SWAPS = ((31, 0x00000000AAAAAAAA), (14, 0x0000CCCC0000CCCC), (4, 0x00F000F000F000F0))
"""Shifts and masks that swap the bits of a bit's number: the first and the last, the second and the last but one, …"""


@dataclass(frozen=True)
class Shares:
    """What tallier i holds of some values: its own share and that of the tallier after it."""

    first: Array
    second: Array

    def each(self, function: Callable[[Array], Array]) -> Shares:
        return Shares(function(self.first), function(self.second))

    def __getitem__(self, where: Any) -> Shares:
        return Shares(self.first[where], self.second[where])

    def __add__(self, other: Shares) -> Shares:
        return Shares(self.first + other.first, self.second + other.second)

    def __sub__(self, other: Shares) -> Shares:
        return Shares(self.first - other.first, self.second - other.second)

    def __xor__(self, other: Shares) -> Shares:
        return Shares(self.first ^ other.first, self.second ^ other.second)


def joined(*parts: Shares) -> Shares:
    """Shares one after the other, along the first axis."""
    return Shares(np.concatenate([p.first for p in parts]), np.concatenate([p.second for p in parts]))


class ZeroShares:
    """Tallier i's parts of random sharings of zero: F(kᵢ) − F(kᵢ₊₁), or with ⊕, anew each time.

    Talliers i and i − 1 know the key kᵢ, so the parts of all three cancel, and the part of tallier i + 1 is uniformly
    random to tallier i, who lacks kᵢ₊₂. A key serves for one session; every use has a stream of its own.
    """

    def __init__(self, first: bytes, second: bytes) -> None:
        self._keys, self._round = (first, second), 0

    def add(self, terms: Array) -> Array:
        first, second = self._streams(terms)
        return terms + first - second

    def exclusive_or(self, terms: Array) -> Array:
        first, second = self._streams(terms)
        return terms ^ first ^ second

    def _streams(self, like: Array) -> list[Array]:
        number, self._round = self._round.to_bytes(8, "big"), self._round + 1
        streams = [SecretStream(hmac.digest(key, number, "sha256")) for key in self._keys]
        little = like.dtype.newbyteorder("<")
        return [np.frombuffer(s.take(like.nbytes), little).astype(like.dtype).reshape(like.shape) for s in streams]


class Computation:
    """One tallier's side of computations on shared values."""

    def __init__(self, index: int, zeros: ZeroShares) -> None:
        self._index, self._zeros = index, zeros

    def known(self, values: Shares, owner: int = 0) -> Shares:
        """Shares of the values that are one of the three shares alone, the others being zero."""
        zero = np.zeros_like(values.first)
        return Shares(
            values.first if self._index == owner else zero,
            values.second if (self._index + 1) % TALLIERS == owner else zero,
        )

    def public(self, values: Array) -> Shares:
        return self.known(Shares(values, values))

    def reshare_sum(self, terms: Array) -> Rounds[Shares]:
        """Shares of the sum of the three talliers' terms."""
        own = self._zeros.add(terms)
        return Shares(own, (yield own))

    def reshare_bits(self, terms: Array) -> Rounds[Shares]:
        """Shares of the exclusive or of the three talliers' terms."""
        own = self._zeros.exclusive_or(terms)
        return Shares(own, (yield own))

    def product(self, x: Shares, y: Shares) -> Rounds[Shares]:
        """xy = Σᵢ xᵢyᵢ + xᵢyᵢ₊₁ + xᵢ₊₁yᵢ."""
        return self.reshare_sum(x.first * (y.first + y.second) + x.second * y.first)

    def conjunction(self, x: Shares, y: Shares) -> Rounds[Shares]:
        """x ∧ y, bit by bit."""
        return self.reshare_bits(x.first & (y.first ^ y.second) ^ x.second & y.first)

    def negative(self, x: Shares) -> Rounds[Shares]:
        """The top bit of words, as bits shared by ⊕: is the number below zero? Eight rounds, 35 bytes a word.

        A carry-save adder turns the three shares, each of them known to two talliers, into x = s + 2c with
        s = x₀ ⊕ x₁ ⊕ x₂ and c = x₀x₁ ⊕ x₁x₂ ⊕ x₂x₀. The carry into the top bit of that sum is the carry out of
        2s + 4c: a tree of generate and propagate bits, over neighbouring bits, then pairs, then fours (Kogge–Stone, but
        only what the last carry needs). With the bits shuffled, neighbours are the two halves of a word, so that words
        shrink by half from level to level.
        """
        carries = yield from self.reshare_bits(x.first & x.second)
        left, right = x.each(lambda bits: shuffled(bits << 1)), carries.each(lambda bits: shuffled(bits << 2))
        generate, propagate = (yield from self.conjunction(left, right)), left ^ right
        width = 64
        while width > 1:
            width //= 2
            (upper_g, lower_g), (upper_p, lower_p) = _halves(generate, width), _halves(propagate, width)
            if width == 1:
                generate = upper_g ^ (yield from self.conjunction(upper_p, lower_g))
            else:
                both = yield from self.conjunction(joined(upper_p, upper_p), joined(lower_g, lower_p))
                middle = len(upper_g.first)
                generate, propagate = upper_g ^ both[:middle], both[middle:]
        top = x ^ carries.each(lambda bits: bits << 1)
        return generate.each(lambda bits: bits & 1) ^ top.each(lambda bits: (bits >> 63).astype(np.uint8))

    def as_numbers(self, bits: Shares) -> Rounds[Shares]:
        """Bits shared by ⊕ as the numbers 0 and 1 shared by +. Two rounds.

        Tallier 0 knows d = b₀ ⊕ b₁ and shares it anew; then b = d + b₂ − 2db₂, where b₂ is a share alone.
        """
        words = bits.each(lambda some: some.astype(np.uint64))
        inner = words.first ^ words.second
        inner_shares = yield from self.reshare_sum(inner if self._index == 0 else np.zeros_like(inner))
        last = self.known(words, owner=2)
        product = yield from self.product(inner_shares, last)
        return inner_shares + last - product - product

    def argmax(self, values: Shares, names: Words) -> Rounds[Shares]:
        """Shares of the name of the largest value in each column (rows, columns), of equal ones the first.

        A tournament between neighbouring rows: the later one wins if it is strictly larger. No two values may differ by
        2⁶³ or more. Eleven rounds a level, ⌈log₂ rows⌉ levels.
        """
        rows = self.public(names)
        while (count := len(values.first)) > 1:
            even = count - count % 2
            ahead, behind, spare = slice(0, even, 2), slice(1, even, 2), slice(even, count)
            overtaken = yield from self.negative(values[ahead] - values[behind])
            swap = yield from self.as_numbers(overtaken)
            moves = [rows[behind] - rows[ahead]]
            # Of the last winner only the name is wanted.
            if count > 2:
                moves.append(values[behind] - values[ahead])
            moved = yield from self.product(joined(*[swap] * len(moves)), joined(*moves))
            rows = joined(rows[ahead] + moved[: even // 2], rows[spare])
            values = joined(values[ahead] + moved[even // 2 :], values[spare]) if count > 2 else values[:1]
        return rows[0]


def rounds_of_argmax(rows: int) -> int:
    """How often the talliers exchange words for an argmax over so many rows.

    >>> rounds_of_argmax(10)
    44
    """
    return 11 * (rows - 1).bit_length()


def orders(seed: bytes, rows: int, columns: int) -> NDArray[np.int64]:
    """For each column an order of the rows, uniformly random: (rows, columns), the same for all who know the seed."""
    words = np.frombuffer(SecretStream(seed).take(8 * rows * columns), "<u8").reshape(rows, columns)
    return np.argsort(words, axis=0, kind="stable")


def shuffled(words: Array) -> Array:
    """64-bit words with bit number abcdef (in binary) moved to fedcba: odd bits are in the upper half, and so on.

    >>> [hex(word) for word in shuffled(np.array([0b10, 0b110000], dtype=np.uint64))]
    ['0x100000000', '0x10000000100']
    """
    for shift, mask in _SWAPS:
        differing = (words ^ words >> shift) & mask
        words = words ^ differing ^ differing << shift
    return words


def _halves(words: Shares, width: int) -> tuple[Shares, Shares]:
    """The upper and the lower `width` bits, in words no larger than needed."""
    kind, mask = np.dtype(f"u{max(width // 8, 1)}"), (1 << width) - 1
    return (
        words.each(lambda bits: (bits >> width & mask).astype(kind)),
        words.each(lambda bits: (bits & mask).astype(kind)),
    )
