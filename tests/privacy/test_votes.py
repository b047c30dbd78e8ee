"""Data-dependent privacy of votes: against the exact divergences of small votes, and an independent conversion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import stats
from scipy.special import log_ndtr, logsumexp

from unspoken.privacy import votes
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.votes import data_dependent_epsilon, log_mistake, renyi_bound

ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 16.0])


def winning(totals: np.ndarray, sigma: float) -> np.ndarray:
    """P[label i wins] = ∫ φ(x) Π_j Φ(x + (t_i − t_j)/σ) dx; the trapezoidal rule is exact for such a function."""
    x = np.linspace(-25.0, 25.0, 5001)
    found = []
    for own, total in enumerate(totals):
        leads = (total - np.delete(totals, own)) / sigma
        density = stats.norm.logpdf(x) + log_ndtr(x[:, None] + leads).sum(axis=1)
        found.append(np.exp(density).sum() * (x[1] - x[0]))
    assert sum(found) == pytest.approx(1.0, abs=1e-12)
    return np.array(found)


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(logsumexp(order * np.log(p) + (1.0 - order) * np.log(q)) / (order - 1.0))


@pytest.mark.parametrize("sigma", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("totals", [(20, 0, 0), (12, 6, 2), (9, 8, 3), (30, 10, 0), (14, 6), (10, 10)])
def test_no_neighbour_is_further_away_than_the_bound(totals: tuple[int, ...], sigma: float) -> None:
    """Every vote moved from one label to another, by the exact distributions of the winner."""
    here = np.array(totals, dtype=float)
    bounds = renyi_bound(float(log_mistake(here[None], sigma)[0]), sigma, ORDERS)
    p, largest = winning(here, sigma), np.zeros(len(ORDERS))
    for source in range(len(here)):
        for target in range(len(here)):
            if source != target and here[source] > 0:
                there = here.copy()
                there[source] -= 1
                there[target] += 1
                q = winning(there, sigma)
                largest = np.maximum(largest, [divergence(p, q, order) for order in ORDERS])
    assert (largest <= bounds + 1e-9).all()
    assert (bounds <= ORDERS / sigma**2 + 1e-12).all()


def test_a_clear_vote_costs_far_less_than_what_holds_for_all_data() -> None:
    clear, close = np.tile([95.0, 5.0, 0.0], (100, 1)), np.tile([34.0, 33.0, 33.0], (100, 1))
    whatever = epsilon_of(math.sqrt(200.0) / 12.0, 1e-5)
    move = math.sqrt(2.0)
    assert data_dependent_epsilon(clear, 12.0, move, 1e-5) < 0.5 * whatever
    assert data_dependent_epsilon(close, 12.0, move, 1e-5) == pytest.approx(whatever)
    one, two = (data_dependent_epsilon(clear[:n], 12.0, move, 1e-5) for n in (50, 100))
    assert one < two


def test_a_smaller_move_is_as_more_noise_for_the_same_mistakes() -> None:
    """k neighbours: a record moves √2/k, the votes are as uncertain as before."""
    totals = np.tile([60.0, 30.0, 10.0], (20, 1))
    log_q = float(log_mistake(totals[:1], 8.0, 2.0 / 5)[0])
    wide = 20 * renyi_bound(log_q, 5 * 8.0, votes._ORDERS)
    assert data_dependent_epsilon(totals, 8.0, math.sqrt(2.0) / 5, 1e-6) == pytest.approx(
        min(votes._epsilon_from_renyi(wide, 1e-6), epsilon_of(math.sqrt(40.0) / 40.0, 1e-6))
    )


@pytest.mark.parametrize(("honest", "known"), [(4.0, 1.0), (3.0, 3.0), (6.0, 2.0)])
@pytest.mark.parametrize("totals", [(40, 5), (60, 20), (30, 28)])
def test_no_neighbour_is_further_away_than_the_bound_for_those_who_know_a_part_of_the_noise(
    totals: tuple[int, int], honest: float, known: float
) -> None:
    """The exact expectation over the known noise, for two labels: only the difference of both noises matters."""
    here = np.array(totals, dtype=float)
    bound = votes._spent_before_colluders(here[None], honest, honest, known, nearer=2.0)
    x, step = np.linspace(-12.0, 12.0, 1201, retstep=True)
    weights = np.exp(-x * x / 2.0) * step / math.sqrt(2.0 * math.pi)
    moved = math.sqrt(2.0) * known * x
    largest = np.zeros(len(votes._ORDERS))
    for change in (2.0, -2.0):
        lead, there = here[0] - here[1] + moved, here[0] - here[1] + change + moved
        p, q = (np.stack([log_ndtr(z), log_ndtr(-z)]) for z in (v / (math.sqrt(2.0) * honest) for v in (lead, there)))
        for place in range(0, len(votes._ORDERS), 16):
            order = votes._ORDERS[place]
            for one, other in ((p, q), (q, p)):
                inner = logsumexp(order * one + (1.0 - order) * other, axis=0)
                exact = logsumexp(inner, b=weights) / (order - 1.0)
                largest[place] = max(largest[place], exact)
    low = votes._ORDERS <= 64.0  # beyond it the quadrature ends before the integrand does
    assert (largest[low] <= bound[low] * (1.0 + 1e-9) + 1e-9).all()


def test_all_rivals_and_the_whole_of_the_known_noise_count_against_those_who_know_a_part_of_it() -> None:
    """The bound by hand, at one order: either rival may be moved towards the leader, and the neighbour is nearer."""
    lead, honest, known, nearer, place = 60.0, 4.0, 3.0, 2.0, 4
    order = votes._ORDERS[place]
    whatever, found = order / honest**2, []
    for moved in lead * votes._MOVED:
        missed = 2.0 * stats.norm.sf(moved / (math.sqrt(2.0) * known))
        mistaken = 2.0 * stats.norm.sf((lead - moved - nearer) / (math.sqrt(2.0) * honest))
        clear = renyi_bound(math.log(mistaken), honest, np.array([order]))[0]
        sums = math.exp((order - 1.0) * clear) + missed * math.exp((order - 1.0) * whatever)
        found.append(math.log(sums) / (order - 1.0))
    totals = np.array([[lead, 0.0, 0.0]])
    stated = votes._spent_before_colluders(totals, honest, honest, known, nearer)[place]
    assert min(found) < 0.5 * whatever
    assert stated == pytest.approx(min(found), rel=1e-9)


@pytest.mark.parametrize("other", [0.2, 1.0, 3.0])
def test_further_releases_cost_what_they_cost_alone_beside_votes_that_cost_next_to_nothing(other: float) -> None:
    clear = np.array([[1e4, 0.0, 0.0]])
    found = data_dependent_epsilon(clear, 12.0, math.sqrt(2.0), 1e-5, others=other**2)
    assert epsilon_of(other, 1e-5) <= found <= 1.1 * epsilon_of(other, 1e-5)


def exact_epsilon(queries: int, one: float, other: float, delta: float) -> float:
    """ε of how often the leader loses, in so many votes with these chances: by halving, on the binomials themselves."""
    counts = np.arange(queries + 1)
    here, there = (stats.binom.logpmf(counts, queries, chance) for chance in (one, other))
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2.0
        exceeds = np.exp(here)[here > middle + there] - np.exp(middle + there)[here > middle + there]
        low, high = (middle, high) if exceeds.sum() > delta else (low, middle)
    return high


@pytest.mark.parametrize("queries", [1, 30, 1000])
@pytest.mark.parametrize("move", [1.0, math.sqrt(2.0)])
def test_epsilon_holds_whichever_of_two_neighbours_the_records_are(queries: int, move: float) -> None:
    """All queries with the same lead, of two labels, where the unit brings the totals together, or apart: the exact
    ε of either of them against the other. (By the chances of these records alone, ε would be exceeded here by half.)"""
    for sigma, leads in ((1.0, 6.25), (2.0, 8.0), (3.0, 6.5), (3.0, 8.25), (20.0, 3.0)):
        lead = leads * sigma
        stated = data_dependent_epsilon(np.tile([lead, 0.0], (queries, 1)), sigma, move, 1e-5)
        nearer, own = math.sqrt(2.0) * move, lead / (math.sqrt(2.0) * sigma)
        here = float(stats.norm.sf(own))
        for chance in stats.norm.sf([(lead + change) / (math.sqrt(2.0) * sigma) for change in (-nearer, nearer)]):
            for one, other in ((here, chance), (chance, here)):
                assert exact_epsilon(queries, one, other, 1e-5) <= stated * (1.0 + 1e-9)


def test_those_who_know_more_of_the_noise_are_promised_less() -> None:
    clear = np.tile([95.0, 5.0, 0.0], (8, 1))
    found = [data_dependent_epsilon(clear, 12.0, math.sqrt(2.0), 1e-5, known=known) for known in (0.0, 0.1, 4.0, 12.0)]
    assert found == sorted(found)
    assert found[2] < 0.7 * epsilon_of(math.sqrt(16.0) / 12.0, 1e-5)
    assert found[1] == pytest.approx(found[0], rel=0.1)


def test_the_chance_of_a_mistake_is_never_too_small() -> None:
    for totals in ((20, 0, 0), (12, 6, 2), (9, 8, 3), (3, 3, 3, 3)):
        here = np.array(totals, dtype=float)
        for sigma in (1.0, 3.0, 9.0):
            exact = 1.0 - winning(here, sigma)[here.argmax()]
            assert math.exp(log_mistake(here[None], sigma)[0]) >= exact - 1e-12
    assert np.isfinite(log_mistake(np.array([[1e6, 0.0]]), 1.0)).all()


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_orders_become_epsilon_as_an_independent_accountant_says(delta: float) -> None:
    spent = votes._ORDERS / 30.0
    theirs, _ = rdp_privacy_accountant.compute_epsilon(votes._ORDERS, spent, delta)
    assert votes._epsilon_from_renyi(spent, delta) == pytest.approx(theirs, rel=1e-9)
