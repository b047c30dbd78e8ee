"""Degrees and thresholds have the tails they claim, and graphs are what both sides take them for."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Session, Unsuitable
from unspoken.summation.degrees import degree_table
from unspoken.summation.graph import (
    ChosenGraph,
    CircleGraph,
    CompleteGraph,
    Degree,
    choose_degree,
    circle_degree,
    complete_degree,
    disconnected,
    exposure,
)
from unspoken.summation.secagg import Options, SecAggPlus, suits


def tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P(at least `least` marked among the drawn), in exact fractions."""
    ways = sum(comb(marked, k) * comb(population - marked, drawn - k) for k in range(least, min(marked, drawn) + 1))
    return Fraction(ways, comb(population, drawn))


SIZES = pytest.mark.parametrize(("parties", "corrupt", "dropouts"), [(1000, 500, 50), (1000, 200, 50), (300, 100, 15)])


@SIZES
def test_the_degree_of_a_circle_has_the_exact_tails_and_the_one_below_has_not(
    parties: int, corrupt: int, dropouts: int
) -> None:
    degree = circle_degree(parties, corrupt, dropouts)
    assert degree is not None

    def holds(neighbours: int, threshold: int) -> bool:
        exposed = parties * tail(parties - 1, corrupt, neighbours, threshold)
        stuck = parties * tail(parties - 1, dropouts, neighbours, neighbours - threshold + 1)
        return exposed <= Fraction(1, 2**40) and stuck <= Fraction(1, 2**30)

    assert holds(degree.neighbours, degree.threshold)
    assert not any(holds(degree.neighbours - 2, threshold) for threshold in range(1, degree.neighbours - 1))


@SIZES
def test_the_degree_of_a_chosen_graph_has_the_exact_tails_and_the_one_below_has_not(
    parties: int, corrupt: int, dropouts: int
) -> None:
    degree = choose_degree(parties, corrupt, dropouts)
    assert degree is not None

    def holds(neighbours: int, threshold: int, unseen: int) -> bool:
        stuck = parties * tail(parties - 1, dropouts, neighbours, neighbours - threshold + 1)
        return exposed(parties, corrupt, dropouts, Degree(neighbours, threshold, unseen)) <= Fraction(
            1, 2**40
        ) and stuck <= Fraction(1, 2**30)

    assert holds(degree.neighbours, degree.threshold, degree.unseen)
    assert not holds(degree.neighbours, degree.threshold - 1, degree.unseen)
    if degree.unseen:
        assert not holds(degree.neighbours, degree.threshold, degree.unseen - 1)


def exposed(parties: int, corrupt: int, dropouts: int, degree: Degree) -> Fraction:
    """The bound that `exposure` documents, in exact fractions; sizes that add nothing are skipped."""
    honest, k, t = parties - corrupt, degree.neighbours, degree.threshold
    total = Fraction(0)
    last = honest - dropouts - degree.unseen
    for size in [*range(1, min(4, last)), *range(max(4, last - 4), min(last + 6, honest - degree.unseen))]:
        missing = max(honest - dropouts - size, degree.unseen + 1)
        helped = comb(honest, size) * tail(parties - 1, corrupt + size - 1, k, t) ** size
        closed = comb(honest, size) * comb(honest - size, missing)
        closed *= Fraction(comb(parties - 1 - missing, k), comb(parties - 1, k)) ** size
        total += size * min(helped, closed)
    return total


@SIZES
def test_the_exposure_is_the_documented_sum(parties: int, corrupt: int, dropouts: int) -> None:
    degree = choose_degree(parties, corrupt, dropouts)
    assert degree is not None
    stated, exact = exposure(parties, corrupt, dropouts, degree), exposed(parties, corrupt, dropouts, degree)
    assert stated == pytest.approx(float(exact), rel=1e-6)


def test_the_exposure_counts_small_sums_of_survivors_of_which_more_are_there_than_need_be() -> None:
    """If nobody drops out, least noise is left: a sum of all but one more than may be unseen is too small then, too."""
    parties, corrupt, dropouts = 300, 60, 90
    degree = choose_degree(parties, corrupt, dropouts)
    assert degree is not None
    honest, k, left_out = parties - corrupt, degree.neighbours, degree.unseen + 1
    avoided = Fraction(comb(parties - 1 - left_out, k), comb(parties - 1, k))
    found = sum(
        comb(honest, size) * comb(honest - size, left_out) * avoided**size
        for size in range(honest - dropouts - left_out, honest - left_out + 1)
    )
    assert found <= Fraction(exposure(parties, corrupt, dropouts, degree))
    assert found <= Fraction(1, 2**40)


@pytest.mark.parametrize(
    ("neighbours", "threshold", "dropouts", "unseen"), [(4, 4, 0, 0), (4, 2, 0, 0), (6, 4, 1, 0), (3, 3, 1, 1)]
)
def test_no_more_sums_open_than_the_exposure_says_by_brute_force(
    neighbours: int, threshold: int, dropouts: int, unseen: int
) -> None:
    """Nine parties, two corrupt, any dropouts: every closed set that can be opened, in 400 random graphs.

    The share of graphs with a sum that misses more honest survivors than may be unseen is within the bound.
    """
    parties, corrupt, rng = 9, {0, 1}, np.random.default_rng(0)
    honest = [party for party in range(parties) if party not in corrupt]
    found = 0
    for _ in range(400):
        graph = {
            party: set(rng.choice([o for o in range(parties) if o != party], neighbours, replace=False).tolist())
            for party in honest
        }
        found += any(
            opens(graph, set(survivors), corrupt, threshold, there - unseen)
            for there in range(len(honest) - dropouts, len(honest) + 1)
            for survivors in combinations(honest, there)
        )
    stated = exposure(parties, len(corrupt), dropouts, Degree(neighbours, threshold, unseen))
    assert stated < 1.0
    assert found / 400 <= stated


def opens(graph: dict[int, set[int]], survivors: set[int], corrupt: set[int], threshold: int, planned: int) -> bool:
    """Whether a sum of fewer honest survivors than planned opens: a closed set whose members all find help."""
    return any(
        all(
            graph[party] & survivors <= set(members) and len(graph[party] & (corrupt | set(members))) >= threshold
            for party in members
        )
        for size in range(1, planned)
        for members in combinations(sorted(survivors), size)
    )


def test_a_coordinator_that_leaves_attempts_half_way_gains_no_more_than_the_exposure_says() -> None:
    """It asks one party after the other, and leaves the attempt once everyone was chosen by one of them.

    So it throws the dice more often than any party takes part, and one whom nobody chose is found more often.
    """
    parties, neighbours, attempts, runs = 30, 7, 8, 400
    rng = np.random.default_rng(0)
    found = sum(_finds_one_whom_nobody_chose(parties, neighbours, attempts, rng) for _ in range(runs)) / runs
    to_the_end = attempts * parties * (1 - neighbours / (parties - 1)) ** (parties - 1)
    # Four deviations above what complete attempts would give.
    assert found > to_the_end + 4 * np.sqrt(to_the_end / runs)
    assert found <= attempts * exposure(parties, 0, 0, Degree(neighbours, 1))


def _finds_one_whom_nobody_chose(parties: int, neighbours: int, attempts: int, rng: np.random.Generator) -> bool:
    """Whether a coordinator that every party answers in so many attempts has one in which nobody chose some party."""
    left = np.full(parties, attempts)
    while (left > 0).all():
        unchosen = np.ones(parties, dtype=bool)
        for party in np.argsort(-left, kind="stable").tolist():
            left[party] -= 1
            chosen = rng.permutation(parties - 1)[:neighbours]
            unchosen[chosen + (chosen >= party)] = False
            if not unchosen.any():
                break
        else:
            return True
    return False


@pytest.mark.parametrize(
    ("parties", "corrupt", "expected"),
    [
        (1000, 200, (56, 38)),
        (1000, 333, (85, 63)),
        (1000, 500, (139, 112)),
        (10_000, 2000, (67, 45)),
        (10_000, 3333, (102, 75)),
        (10_000, 5000, (178, 142)),
    ],
)
def test_degrees_against_a_lying_coordinator_are_the_known_ones(
    parties: int, corrupt: int, expected: tuple[int, int]
) -> None:
    degree = choose_degree(parties, corrupt, parties // 20)
    assert degree is not None
    assert (degree.neighbours, degree.threshold) == expected
    assert degree.unseen <= (parties - corrupt) // 100


def test_few_parties_use_the_complete_graph() -> None:
    assert choose_degree(10, 5, 1) is None
    assert circle_degree(10, 5, 1) is None
    assert complete_degree(10, 5, 1) == Degree(9, 7)


@pytest.mark.parametrize("parties", [2, 3, 5, 10, 100])
def test_the_threshold_of_a_complete_graph_is_above_the_colluders_and_below_the_survivors(parties: int) -> None:
    for corrupt in range(parties - 1):
        for dropouts in range(parties - 1 - corrupt):
            threshold = complete_degree(parties, corrupt, dropouts).threshold
            assert threshold <= max(1, parties - dropouts - 1)
            assert threshold > corrupt or corrupt >= parties - dropouts - 1


@pytest.mark.parametrize("graph", [CircleGraph(50, Degree(10, 5)), CompleteGraph(9, Degree(8, 7))])
def test_neighbours_in_a_public_graph_are_mutual_distinct_and_as_many_as_agreed(
    graph: CircleGraph | CompleteGraph,
) -> None:
    neighbours = [set(graph.draw(party, "label", SecretStream())) for party in range(graph.parties)]
    for party, found in enumerate(neighbours):
        assert len(found) == graph.degree.neighbours
        assert party not in found
        assert all(party in neighbours[other] for other in found)
        assert graph.read(party, "label", b"") == sorted(found)
        assert graph.read(party, "label", b"1234") is None


def test_another_label_gives_another_circle() -> None:
    graph = CircleGraph(1000, Degree(20, 10))
    assert graph.neighbours(0, "a") != graph.neighbours(0, "b")


def test_a_chosen_graph_is_uniform_and_its_own_secret() -> None:
    """Each other is drawn equally often (χ², false alarm 1 in 10,000)."""
    graph, secrets = ChosenGraph(21, Degree(5, 3)), SecretStream(bytes(32))
    counts = np.zeros(21)
    for _ in range(4000):
        counts[graph.draw(4, "label", secrets)] += 1
    assert counts[4] == 0
    assert counts.sum() == 20_000
    assert stats.chisquare(np.delete(counts, 4)).pvalue > 1e-4


def test_an_announced_choice_is_read_only_if_it_is_allowed() -> None:
    graph = ChosenGraph(10, Degree(3, 2))
    for allowed in ([1, 2, 3], [0, 8, 9]):
        assert graph.read(5, "label", graph.announce(allowed)) == allowed
    for wrong in ([1, 2], [1, 2, 3, 4], [1, 1, 2], [2, 1, 3], [1, 2, 5], [1, 2, 10], [1, 2, 2**32 - 1]):
        assert graph.read(5, "label", graph.announce(wrong)) is None
    assert graph.read(5, "label", b"") is None


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
    assert len(lines) == 9, "five rows under a heading, and a legend below"
    assert "139 (112)" in lines[3]
    assert lines[-2:] == [
        "178 (142): 178 neighbours hold shares of a party's secrets; any 142 can open them.",
        "99 (58) of 100 parties: all others are its neighbours.",
    ]
    assert "140 (113)" in degree_table(coordinator="curious").splitlines()[3]


def test_the_table_says_where_a_study_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspoken.summation.degrees._PARTIES", (100,))
    assert degree_table(0.3).splitlines()[1].split()[-1] == "refused", "76 must agree, and 70 stay"
    assert "refused" not in degree_table(0.2).splitlines()[1]
    assert degree_table(0.6, "curious").splitlines()[1].split()[-1] == "refused", "50 collude, and 40 stay"
    said = "refused: too many may collude or drop out."
    assert degree_table(0.999).splitlines()[-1] == f"{said} Fewer than half of those who do not collude may drop out."
    curious = degree_table(0.999, "curious").splitlines()[-1]
    assert curious == f"{said} All but two of those who do not collude may drop out."


@pytest.mark.parametrize("parties", [2, 3, 10, 25])
def test_what_the_table_says_of_refusals_is_the_rule(parties: int) -> None:
    for colluding in range(parties):
        for dropouts in range(parties):
            left = parties - colluding - dropouts
            assert suits(parties, colluding, dropouts, lying=False) == (left >= 2)
            half = 2 * dropouts < parties - colluding
            assert suits(parties, colluding, dropouts, lying=True) == (left >= 2 and half)


def test_a_table_has_the_complete_graph_where_no_sparse_one_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspoken.summation.degrees._PARTIES", (100,))
    assert "99 (" in degree_table(0.2).splitlines()[1], "the complete graph, as no sparse one is safe"


def test_a_study_beyond_the_quorum_is_refused_before_a_degree_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*facts: int) -> None:
        raise AssertionError(f"a degree was searched for {facts}")

    monkeypatch.setattr("unspoken.summation.secagg.choose_degree", search)
    session = Session("digest", "sum", 10_000, 5_000, 4_000, 1, 64)
    with pytest.raises(Unsuitable, match="; set dropouts = 2499 or have 17001 parties"):
        SecAggPlus(session, Options(coordinator="lying"))


def test_too_many_colluders_are_refused_before_a_degree_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspoken.summation.secagg.circle_degree", lambda *facts: pytest.fail(f"searched for {facts}"))
    session = Session("digest", "sum", 10_000, 5_000, 4_000, 1, 64)
    with pytest.raises(Unsuitable, match="if 6000 may drop out, any 3999 can unmask another"):
        SecAggPlus(session, Options(coordinator="curious"))
