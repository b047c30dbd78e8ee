"""Arithmetic on replicated secret shares: additions need no messages, and a product needs one round.

There are n = 2t + 1 talliers. A word x of 64 bits is the sum modulo 2⁶⁴ (or the bitwise exclusive or) of shares x_A,
one for each set A of t talliers, and tallier i holds those with i ∉ A. So any t + 1 talliers know x, and any t of them
lack exactly one share, that of their own set (Cramer, Damgård and Ishai 2005). Sums are computed share by share. For a
product xy, two sets A and B of t talliers never cover all 2t + 1, so each x_A·y_B can be computed by some tallier. Each
tallier i adds up the products that it is the first to hold, and these terms zᵢ add up to xy. From the terms zᵢ a new
sharing is made in one round, with Sᵢ = {i+1, …, i+t} modulo n:

    tallier i sends wᵢ = zᵢ + ζᵢ − Σ R_A to the t talliers before it, over the A of which it is the first holder;
    the new share of Sᵢ is wᵢ, and that of any other set A is R_A.

The ζᵢ add up to zero and come from keys of pairs of talliers; R_A comes from a key of all t + 1 holders of A. With
three talliers every set is an Sᵢ, there are no R, and this is the scheme of Araki et al. 2016 and of ABY3.

Security. Let a set C of t talliers and the coordinator pool all they know. They lack the pairwise keys of the t + 1
others, so to them the others' ζ are uniformly random except for their sum. If C is an Sᵢ, no one in C receives the word
wᵢ, and the t other words are uniform. Otherwise C may see all t + 1 words, but their sum contains R_C, from a key that
no one in C has, so they are uniform too. All streams are fresh in every round. So for any values the whole view of C is
uniformly random, and the view and the value determine the one share that C lacks: an opening shows the value only.
(`tests/summation/test_replicated_secrecy.py` checks this bijection for every C.) This holds for curious talliers that
follow the protocol. One that sends wrong words changes the result, and nothing here detects that (`tally` says what it
can learn by it).

A computation is a generator: it yields the words for the t talliers before this one, is sent a list of the words from
the t after it, nearest first, and returns its result. All talliers yield arrays of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from unspoken.noise.stream import SecretStream

Array: TypeAlias = NDArray[Any]
"""Unsigned words, of 64 bits or fewer"""
Group: TypeAlias = tuple[int, ...]
"""A sorted set of t talliers, which names the share that they lack"""
_T = TypeVar("_T")
Interactive: TypeAlias = Generator[Array, list[Array], _T]
"""A computation in rounds: yields what to send, is sent what was received"""


@dataclass(frozen=True)
class Sharing:
    """The shares that each of n = 2t + 1 talliers holds, sends and computes with."""

    talliers: int

    @property
    def threshold(self) -> int:
        """t, the number of talliers that together learn nothing."""
        return (self.talliers - 1) // 2

    @cached_property
    def groups(self) -> list[Group]:
        return list(combinations(range(self.talliers), self.threshold))

    def after(self, index: int) -> list[int]:
        """The talliers that a tallier receives words from."""
        return [(index + step) % self.talliers for step in range(1, self.threshold + 1)]

    def before(self, index: int) -> list[int]:
        """The talliers that a tallier sends words to."""
        return [(index - step) % self.talliers for step in range(1, self.threshold + 1)]

    def sent(self, index: int) -> Group:
        """Sᵢ, the share that a tallier sends to its other holders.

        >>> [Sharing(5).sent(index) for index in range(5)]
        [(1, 2), (2, 3), (3, 4), (0, 4), (0, 1)]
        """
        return tuple(sorted(self.after(index)))

    def held(self, index: int) -> list[Group]:
        """The shares that a tallier holds, in the order of its arrays."""
        return [group for group in self.groups if index not in group]

    def holders(self, group: Group) -> list[int]:
        return [index for index in range(self.talliers) if index not in group]

    def first_holder(self, group: Group) -> int:
        """The first holder of a share. It is one of the first t + 1 talliers, and tallier t is first for one share only
        (`lone`).

        >>> [Sharing(5).first_holder(group) for group in [(1, 2), (0, 3), (0, 1)]]
        [0, 1, 2]
        """
        return self.holders(group)[0]

    @property
    def lone(self) -> Group:
        """The share that the first t talliers lack."""
        return self.groups[0]

    @cached_property
    def masked(self) -> list[Group]:
        """The shares that nobody sends; their holders draw them from a common key."""
        sent = {self.sent(index) for index in range(self.talliers)}
        return [group for group in self.groups if group not in sent]

    def products(self, index: int) -> list[tuple[list[int], list[int]]]:
        """The products xₐyᵦ for which this tallier is the first to hold both shares, as pairs of sums.

        Each pair has the positions of some xₐ and some yᵦ among its shares. It is the first if A ∪ B contains all
        talliers below it. All A that contain the same subset D of these go with the same B, those that contain the
        rest: so there is one product for each D instead of each pair.

        >>> Sharing(3).products(0), Sharing(3).products(1)
        ([([0, 1], [0, 1])], [([1], [0]), ([0], [0, 1])])
        """
        held, below, pairs = self.held(index), set(range(index)), []
        for members in sorted({tuple(sorted(below & set(group))) for group in held}):
            left = [place for place, group in enumerate(held) if below & set(group) == set(members)]
            right = [place for place, group in enumerate(held) if below - set(members) <= set(group)]
            if right:
                pairs.append((left, right))
        return pairs


@dataclass(frozen=True)
class ReplicatedShares:
    """A tallier's shares of some values: one array a share, stacked."""

    words: Array

    def each(self, function: Callable[[Array], Array]) -> ReplicatedShares:
        return ReplicatedShares(function(self.words))

    def __len__(self) -> int:
        """The number of values along their first axis."""
        return int(self.words.shape[1])

    def __getitem__(self, where: int | slice) -> ReplicatedShares:
        return ReplicatedShares(self.words[:, where])

    def __add__(self, other: ReplicatedShares) -> ReplicatedShares:
        return ReplicatedShares(self.words + other.words)

    def __sub__(self, other: ReplicatedShares) -> ReplicatedShares:
        return ReplicatedShares(self.words - other.words)

    def __xor__(self, other: ReplicatedShares) -> ReplicatedShares:
        return ReplicatedShares(self.words ^ other.words)


def joined(parts: Iterable[ReplicatedShares]) -> ReplicatedShares:
    """Shares of values concatenated along their first axis."""
    return ReplicatedShares(np.concatenate([part.words for part in parts], axis=1))


@dataclass(frozen=True)
class Operations:
    """The operations that add and subtract shares and multiply values."""

    plus: np.ufunc
    minus: np.ufunc
    times: np.ufunc


SUMS = Operations(np.add, np.subtract, np.multiply)
BITS = Operations(np.bitwise_xor, np.bitwise_xor, np.bitwise_and)


class Masks:
    """A tallier's ζ and R, fresh for each call.

    A key serves one session. All its holders take the same words from its stream, round by round, and none twice.
    """

    def __init__(self, sharing: Sharing, index: int, pairs: Mapping[int, bytes], groups: Mapping[Group, bytes]) -> None:
        self._sharing, self._index = sharing, index
        self._pairs = {peer: SecretStream(key) for peer, key in pairs.items()}
        self._groups = {group: SecretStream(key) for group, key in groups.items()}

    def hide(self, terms: Array, operations: Operations) -> tuple[Array, dict[Group, Array]]:
        """The word w to send, and the shares R."""
        hidden = terms.copy()
        for peer, stream in self._pairs.items():
            combine = operations.plus if peer > self._index else operations.minus
            combine(hidden, drawn(stream, terms), out=hidden)
        fresh = {group: drawn(stream, terms) for group, stream in self._groups.items()}
        for group, words in fresh.items():
            if self._sharing.first_holder(group) == self._index:
                operations.minus(hidden, words, out=hidden)
        return hidden, fresh


class SharedComputation:
    """One tallier's side of computations on shared values."""

    def __init__(self, sharing: Sharing, index: int, masks: Masks) -> None:
        self.sharing, self._index, self._masks = sharing, index, masks
        self._held, self._products = sharing.held(index), sharing.products(index)
        self._sent = [sharing.sent(tallier) for tallier in (index, *sharing.after(index))]

    def public(self, values: Array) -> ReplicatedShares:
        """Shares of public values: the lone share is the value, and the others are zero."""
        return self._lone(ReplicatedShares(np.broadcast_to(values, (len(self._held), *values.shape))))

    def reshare(self, terms: Array, operations: Operations) -> Interactive[ReplicatedShares]:
        """Shares of the sum (or the exclusive or) of all talliers' terms."""
        own, shares = self._masks.hide(terms, operations)
        received = yield own
        shares |= dict(zip(self._sent, (own, *received), strict=True))
        return ReplicatedShares(np.stack([shares[group] for group in self._held]))

    def multiply(
        self, x: ReplicatedShares, y: ReplicatedShares, operations: Operations
    ) -> Interactive[ReplicatedShares]:
        """Shares of xy, or of x ∧ y bit by bit."""
        plus, times = operations.plus, operations.times
        products = [times(_total(x.words, left, plus), _total(y.words, right, plus)) for left, right in self._products]
        return self.reshare(reduce(plus, products), operations)

    def parts(
        self, x: ReplicatedShares, inside: Operations, outside: Operations
    ) -> Interactive[list[ReplicatedShares]]:
        """Values that combine to x by `inside`, t + 1 of them, each shared anew by `outside`, in one round.

        Tallier j knows the sum of the shares that it is the first to hold. For the first t talliers it is a term of
        their own; for the next one it is the lone share, which stays as it is.
        """
        threshold = self.sharing.threshold
        terms = np.zeros((threshold, *x.words.shape[1:]), dtype=x.words.dtype)
        if self._index < threshold:
            first = [place for place, group in enumerate(self._held) if self.sharing.first_holder(group) == self._index]
            terms[self._index] = _total(x.words, first, inside.plus)
        shares = yield from self.reshare(terms, outside)
        return [*(shares[number] for number in range(threshold)), self._lone(x)]

    def _lone(self, x: ReplicatedShares) -> ReplicatedShares:
        """Shares of the lone share as a value."""
        words = np.zeros(x.words.shape, dtype=x.words.dtype)
        if self.sharing.lone in self._held:
            place = self._held.index(self.sharing.lone)
            words[place] = x.words[place]
        return ReplicatedShares(words)


def drawn(stream: SecretStream, like: Array) -> Array:
    """The next words of a stream, in the shape of an array."""
    words = np.frombuffer(stream.take(like.nbytes), like.dtype.newbyteorder("<"))
    return words.astype(like.dtype, copy=False).reshape(like.shape)


def _total(words: Array, places: list[int], plus: np.ufunc) -> Array:
    total: Array = reduce(plus, [words[place] for place in places])
    return total
