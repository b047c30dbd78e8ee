"""Arithmetic on shared words computes what it says, under every sharing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shared_words import EACH_SHARING, SHARINGS, all_masks, dealt, held_vote, run, split
from unspoken.summation.argmax import as_numbers, negative, orders, rounds_of_argmax, shuffled
from unspoken.summation.replicated import (
    BITS,
    SUMS,
    Sharing,
)

WORDS = st.integers(0, 2**64 - 1)
EDGES = [0, 1, 2, 2**31, 2**32 - 1, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]


@EACH_SHARING
def test_each_share_has_its_holders_and_each_product_one_tallier(sharing: Sharing) -> None:
    talliers, threshold = sharing.talliers, sharing.threshold
    assert talliers == 2 * threshold + 1
    for group in sharing.groups:
        assert len(sharing.holders(group)) == threshold + 1
    assert len({sharing.sent(index) for index in range(talliers)}) == talliers
    for index in range(talliers):
        assert set(sharing.holders(sharing.sent(index))) == {index, *sharing.before(index)}
        assert all(index in sharing.after(peer) for peer in sharing.before(index))
    done = [
        (sharing.held(index)[a], sharing.held(index)[b])
        for index in range(talliers)
        for left, right in sharing.products(index)
        for a in left
        for b in right
    ]
    assert len(done) == len(set(done)) == len(sharing.groups) ** 2


@EACH_SHARING
@given(x=st.lists(WORDS, min_size=6, max_size=6), y=st.lists(WORDS, min_size=6, max_size=6), seed=st.integers(0, 99))
def test_products_and_conjunctions_are_those_of_the_words(
    sharing: Sharing, x: list[int], y: list[int], seed: int
) -> None:
    a, b = np.array(x, dtype=np.uint64), np.array(y, dtype=np.uint64)
    for operations in (SUMS, BITS):
        left, right = split(sharing, a, seed, operations), split(sharing, b, seed + 100, operations)
        ran = run(sharing, lambda c, i: c.multiply(left[i], right[i], operations))  # noqa: B023
        assert (ran.opened(operations) == operations.times(a, b)).all()


@EACH_SHARING
@given(x=st.lists(WORDS | st.sampled_from(EDGES), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_the_sign_of_any_word_under_any_sharing(sharing: Sharing, x: list[int], seed: int) -> None:
    words = np.array(x, dtype=np.uint64)
    shares = split(sharing, words, seed)
    assert (run(sharing, lambda c, i: negative(c, shares[i])).opened(BITS) == words >> 63).all()


@EACH_SHARING
def test_the_sign_where_the_carry_runs_through_all_bits(sharing: Sharing) -> None:
    """Shares that are themselves edges: carries that begin at any bit and run to the top, or stop just before."""
    edges = sorted({*EDGES, *((1 << k) - 1 for k in range(64)), *(1 << k for k in range(64))})
    some, few = np.array(edges, dtype=np.uint64), np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    a, b, c = (grid.ravel() for grid in np.meshgrid(some, some, few))
    chosen = np.random.default_rng(0).permutation(len(a))[: 60_000 // sharing.threshold]
    a, b, c = a[chosen], b[chosen], c[chosen]
    # The lone share, and two that go into other parts, if there are more than two.
    parts = [b, c, *[np.zeros_like(a)] * (len(sharing.groups) - 3), a]
    shares = dealt(sharing, parts)
    assert (run(sharing, lambda c, i: negative(c, shares[i])).opened(BITS) == (a + b + c) >> 63).all()


@EACH_SHARING
def test_bits_become_the_numbers_0_and_1_under_every_sharing(sharing: Sharing) -> None:
    """All sharings of a bit if there are three or five talliers, and as many of those of seven."""
    count = len(sharing.groups)
    numbers = np.arange(1024) if count <= 10 else np.random.default_rng(0).integers(0, 2**count, 1024)
    parts = [(numbers >> share & 1).astype(np.uint8) for share in range(count)]
    shares = dealt(sharing, [part[np.newaxis] for part in parts])
    assert (run(sharing, lambda c, i: as_numbers(c, shares[i])).opened() == reduce(np.bitwise_xor, parts)).all()


@EACH_SHARING
@pytest.mark.parametrize("rows", [2, 3, pytest.param(5, marks=pytest.mark.long), 12])
@pytest.mark.parametrize("largest", [1, pytest.param(5, marks=pytest.mark.long), 2**62 - 1])
def test_the_argmax_is_the_first_of_the_largest(
    sharing: Sharing, rows: int, largest: int, runs: Callable[[int, int], int]
) -> None:
    values = np.random.default_rng(rows).integers(-largest, largest, (rows, runs(500, 2000)), endpoint=True)
    values[:, ::7] = np.where(values[:, ::7] < 0, -largest, largest)
    ran = held_vote(sharing, values)
    assert (ran.opened() == values.argmax(axis=0)).all()
    assert len(ran.views[0]) == 1 + rounds_of_argmax(rows, sharing)


def test_shuffling_reverses_the_numbers_of_the_bits() -> None:
    words = np.uint64(1) << np.arange(64, dtype=np.uint64)
    places = np.log2(shuffled(words).astype(np.float64)).astype(int)
    assert places.tolist() == [int(f"{number:06b}"[::-1], 2) for number in range(64)]


@EACH_SHARING
def test_masks_cancel_and_none_is_used_twice(sharing: Sharing) -> None:
    """What all send and draw adds up to zero; no block of a cipher occurs twice."""
    masks, nothing, seen, count = all_masks(sharing), np.zeros(64, dtype=np.uint64), set[bytes](), 0
    for number in range(20):
        operations = BITS if number % 2 else SUMS
        hidden = [mask.hide(nothing, operations) for mask in masks]
        fresh = {group: words for _, drawn_by_one in hidden for group, words in drawn_by_one.items()}
        assert sorted(fresh) == sharing.masked
        words = [*(own for own, _ in hidden), *fresh.values()]
        assert not reduce(operations.plus, words).any()
        blocks = [part.tobytes()[start : start + 16] for part in words for start in range(0, part.nbytes, 16)]
        seen, count = seen | set(blocks), count + len(blocks)
    assert len(seen) == count == 20 * len(sharing.groups) * 32


def test_orders_are_uniform_and_one_for_each_column() -> None:
    """χ² over the 24 orders of four rows; false alarms 1 in 10,000."""
    order = orders(bytes(range(32)), 4, 24_000)
    assert (np.sort(order, axis=0) == np.arange(4)[:, np.newaxis]).all()
    _, counts = np.unique(4 ** np.arange(4) @ order, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(
    ("sharing", "megabytes"),
    [(SHARINGS[0], 2.1), (SHARINGS[1], 6.0), pytest.param(SHARINGS[2], 12.0, marks=pytest.mark.long)],
)
def test_3000_queries_of_10_classes_take_a_fraction_of_a_second(sharing: Sharing, megabytes: float) -> None:
    """Seen: 0.013, 0.04 and 0.13 CPU-seconds a tallier. The goal is 0.5, on a processor that is not slow."""
    values = np.random.default_rng(0).integers(-(2**30), 2**30, (10, 3000))
    started = time.process_time()
    ran = held_vote(sharing, values)
    assert (time.process_time() - started) / sharing.talliers < 1.5
    assert sum(words.nbytes for received in ran.views[0] for words in received) < megabytes * 1e6
