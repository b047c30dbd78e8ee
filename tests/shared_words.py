"""Words that are shared among talliers, and a computation on them with all talliers in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pytest

from unspoken.summation.argmax import argmax
from unspoken.summation.replicated import (
    SUMS,
    Array,
    Group,
    Interactive,
    Masks,
    Operations,
    ReplicatedShares,
    SharedComputation,
    Sharing,
)
from unspoken.types import Integers, Words

SHARINGS = [Sharing(3), Sharing(5), Sharing(7)]
EACH_SHARING = pytest.mark.parametrize("sharing", SHARINGS, ids=lambda sharing: f"{sharing.talliers} talliers")


def pair_keys(sharing: Sharing, index: int) -> dict[int, bytes]:
    """Keys of pairs of talliers, in place of what they agree on."""
    return {
        peer: bytes([1, *sorted((index, peer))]).ljust(32, b"p") for peer in range(sharing.talliers) if peer != index
    }


def group_keys(sharing: Sharing, index: int) -> dict[Group, bytes]:
    return {group: bytes([2, *group]).ljust(32, b"g") for group in sharing.masked if index not in group}


def all_masks(sharing: Sharing) -> list[Masks]:
    return [
        Masks(sharing, index, pair_keys(sharing, index), group_keys(sharing, index))
        for index in range(sharing.talliers)
    ]


def dealt(sharing: Sharing, shares: Sequence[Array]) -> list[ReplicatedShares]:
    """All shares of some values as what each tallier holds of them."""
    whole = dict(zip(sharing.groups, shares, strict=True))
    return [
        ReplicatedShares(np.stack([whole[group] for group in sharing.held(index)])) for index in range(sharing.talliers)
    ]


def split(sharing: Sharing, values: Array, seed: int = 0, operations: Operations = SUMS) -> list[ReplicatedShares]:
    """Values as the shares of all talliers, modulo 2⁶⁴ or by exclusive or."""
    return dealt(sharing, random_parts(values, len(sharing.groups), seed, operations))


def random_parts(values: Array, count: int, seed: int, operations: Operations = SUMS) -> list[Array]:
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, 2**64, values.shape, dtype=np.uint64).astype(values.dtype) for _ in range(count - 1)]
    return [*parts, reduce(operations.minus, parts, values)]


class Run:
    """All talliers' computations in step. `views` is what each tallier received."""

    def __init__(
        self,
        sharing: Sharing,
        computations: Sequence[Interactive[ReplicatedShares]],
        order: Sequence[int] | None = None,
    ) -> None:
        self.sharing, talliers = sharing, range(sharing.talliers)
        order = talliers if order is None else order
        self.views: list[list[list[Array]]] = [[] for _ in talliers]
        self.results: dict[int, ReplicatedShares] = {}
        sent = {index: next(computations[index]) for index in order}
        while not self.results:
            words, sent = sent, {}
            for index in order:
                received = [words[peer] for peer in sharing.after(index)]
                self.views[index].append(received)
                try:
                    sent[index] = computations[index].send(received)
                except StopIteration as end:
                    self.results[index] = end.value
        assert len(self.results) == sharing.talliers

    def shares(self) -> dict[Group, Array]:
        """The shares of the result, the same for all their holders."""
        found: dict[Group, Array] = {}
        for index, result in self.results.items():
            for group, words in zip(self.sharing.held(index), result.words, strict=True):
                assert (found.setdefault(group, words) == words).all()
        return found

    def opened(self, operations: Operations = SUMS) -> Array:
        opened: Array = reduce(operations.plus, self.shares().values())
        return opened


def run(sharing: Sharing, what: Callable[[SharedComputation, int], Interactive[ReplicatedShares]]) -> Run:
    masks = all_masks(sharing)
    return Run(sharing, [what(SharedComputation(sharing, i, masks[i]), i) for i in range(sharing.talliers)])


def names(values: Array) -> Words:
    return np.repeat(np.arange(len(values), dtype=np.uint64)[:, np.newaxis], values.shape[1], axis=1)


def vote(computation: SharedComputation, terms: Array) -> Interactive[ReplicatedShares]:
    """What talliers do with their parts of the totals."""
    values = yield from computation.reshare(terms, SUMS)
    return (yield from argmax(computation, values, names(terms)))


def held_vote(sharing: Sharing, values: Integers, seed: int = 0) -> Run:
    terms = random_parts(values.view(np.uint64), sharing.talliers, seed)
    return run(sharing, lambda computation, i: vote(computation, terms[i]))
