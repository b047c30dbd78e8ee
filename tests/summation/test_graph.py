"""Degrees and thresholds have the tails they claim, and the graph is what both sides compute."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from unspoken.summation.graph import (
    Degree,
    choose_degree,
    complete_degree,
    degree_for,
    degree_table,
    disconnected,
    neighbours_of,
)


def tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P(at least `least` marked among the drawn), in exact fractions."""
    ways = sum(comb(marked, k) * comb(population - marked, drawn - k) for k in range(least, min(marked, drawn) + 1))
    return Fraction(ways, comb(population, drawn))


@pytest.mark.parametrize(("parties", "corrupt", "dropouts"), [(1000, 500, 50), (1000, 200, 50), (300, 100, 15)])
def test_the_chosen_degree_has_the_exact_tails_and_the_one_below_has_not(
    parties: int, corrupt: int, dropouts: int
) -> None:
    degree = choose_degree(parties, corrupt, dropouts)
    assert degree is not None

    def holds(neighbours: int, threshold: int) -> bool:
        exposed = parties * tail(parties - 1, corrupt, neighbours, threshold)
        stuck = parties * tail(parties - 1, dropouts, neighbours, neighbours - threshold + 1)
        return exposed <= Fraction(1, 2**40) and stuck <= Fraction(1, 2**30)

    assert holds(degree.neighbours, degree.threshold)
    assert not any(holds(degree.neighbours - 1, threshold) for threshold in range(1, degree.neighbours))


@pytest.mark.parametrize(
    ("parties", "corrupt", "expected"),
    [
        (1000, 200, (57, 39)),
        (1000, 333, (85, 63)),
        (1000, 500, (140, 113)),
        (10_000, 2000, (67, 45)),
        (10_000, 5000, (179, 143)),
    ],
)
def test_degrees_are_the_known_ones(parties: int, corrupt: int, expected: tuple[int, int]) -> None:
    assert choose_degree(parties, corrupt, parties // 20) == Degree(*expected)


def test_few_parties_use_the_complete_graph() -> None:
    assert choose_degree(10, 5, 1) is None
    assert degree_for(10, 5, 1) == complete_degree(10, 1) == Degree(9, 8)


@pytest.mark.parametrize(("parties", "degree"), [(50, 10), (1000, 140), (8, 7), (9, 8)])
def test_neighbours_are_mutual_distinct_and_as_many_as_agreed(parties: int, degree: int) -> None:
    graph = [set(neighbours_of(party, parties, degree, b"seed").tolist()) for party in range(parties)]
    for party, neighbours in enumerate(graph):
        assert len(neighbours) == degree
        assert party not in neighbours
        assert all(party in graph[other] for other in neighbours)


def test_another_seed_gives_another_graph() -> None:
    one, other = (neighbours_of(0, 1000, 20, seed).tolist() for seed in (b"a", b"b"))
    assert one != other


def test_the_bound_on_being_cut_off_holds_in_simulation() -> None:
    """20 parties on a circle, 10 missing, degree 6: runs of 3 missing are frequent, but within the bound."""
    rng = np.random.default_rng(0)
    cut = 0
    for _ in range(2000):
        missing = np.isin(np.arange(20), rng.permutation(20)[:10])
        cut += any(all(missing[(start + step) % 20] for step in range(3)) for start in range(20))
    assert cut / 2000 <= disconnected(20, 10, 6)
    assert disconnected(1000, 1, 10) == 0.0


def test_the_table_prints_parties_by_corrupt_fractions() -> None:
    lines = degree_table().splitlines()
    assert len(lines) == 6
    assert "140 (113)" in lines[3]
