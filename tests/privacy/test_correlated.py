"""CAPE's guarantee against a brute-force view: everything that colluders see, as one joint Gaussian."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.privacy.correlated import (
    adversary_variance,
    correlated_mu,
    factors_for,
    integer_adversary_variance,
    integer_noise_for,
    noise_for,
    raised,
)
from unspoken.privacy.gaussian import delta_of
from unspoken.privacy.integer import LOST_VARIANCE


def brute_force_mu(change: float, common: float, own: float, sites: int, colluding: int) -> float:
    """μ of all that the adversary sees: every message, the sum of ê, and the colluders' ê and g.

    The noise (ê_1 … ê_S, g_1 … g_S) is mapped to the view by a matrix; a change v at site 1 moves the first message.
    """
    deviations = np.concatenate([np.full(sites, math.sqrt(common)), np.full(sites, math.sqrt(own))])
    one, zero = np.eye(sites), np.zeros((sites, sites))
    known = slice(sites - colluding, sites)
    view = np.vstack(
        [
            np.hstack([one, one]),  # messages
            np.concatenate([np.ones(sites), np.zeros(sites)])[None],  # the sum of ê
            np.hstack([one, zero])[known],
            np.hstack([zero, one])[known],
        ]
    )
    shift = np.zeros(len(view))
    shift[0] = change
    # The least noise that explains the shift: μ² = min ‖z‖² over view · D z = shift.
    least, _, _, _ = np.linalg.lstsq(view * deviations, shift, rcond=1e-13)
    return float(np.linalg.norm(least))


@given(data=st.data())
def test_the_formula_is_the_brute_force_view(data: st.DataObject) -> None:
    sites = data.draw(st.integers(2, 40))
    colluding = data.draw(st.integers(0, sites - 1))
    own = data.draw(st.floats(0.05, 20.0))
    common = own * data.draw(st.floats(0.1, 100.0))
    change = data.draw(st.floats(0.1, 10.0))
    expected = brute_force_mu(change, common, own, sites, colluding)
    assert correlated_mu(change, common, own, sites - colluding) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("sites", "colluding", "exact"), [(10, 3, 2.208), (30, 9, 2.350), (100, 0, 1.980)])
def test_the_published_variances_leak_more_than_the_paper_says(sites: int, colluding: int, exact: float) -> None:
    """In units of v²/τ²: the corrected figures, twice what the paper's Theorem 1 states for the same case."""
    squared = correlated_mu(1.0, 1.0, 1.0 / sites, sites - colluding) ** 2
    assert squared == pytest.approx(exact, abs=5e-4)
    assert squared == pytest.approx(sites / (sites + 1) * (1 + sites / (sites - colluding)), rel=1e-12)
    assert squared > 1.5 * paper_mu_squared(sites, colluding)


def paper_mu_squared(sites: int, colluding: int) -> float:
    """Theorem 1 as printed, for v = τ = 1."""
    honest = sites - colluding
    correction = 9.0 / honest * colluding**2 / (sites * (1 + sites) - 3 * colluding**2)
    return sites / (1 + sites) * ((honest + 2) / honest + correction)


def test_the_paper_s_formula_is_transcribed_rightly() -> None:
    assert paper_mu_squared(10, 3) == pytest.approx(1.296, abs=5e-4)
    assert paper_mu_squared(30, 9) == pytest.approx(1.109, abs=5e-4)
    assert paper_mu_squared(100, 0) == pytest.approx(1.010, abs=5e-4)


@given(variance=st.floats(1.0, 1e12), ratio=st.floats(1.0, 1e6), honest=st.integers(1, 1000))
def test_the_planned_noise_hides_what_was_asked_for(variance: float, ratio: float, honest: int) -> None:
    common, own = noise_for(variance, ratio, honest)
    assert adversary_variance(common, own, honest) == pytest.approx(variance, rel=1e-12)
    common, own = integer_noise_for(variance, ratio, honest)
    assert integer_adversary_variance(common, own, honest) == pytest.approx(variance, rel=1e-6)


def covariance(common: float, own: float, honest: int) -> np.ndarray:
    """That of the adversary's view: the honest sites' messages, and the sum of their ê."""
    matrix = np.empty((honest + 1, honest + 1))
    matrix[:honest, :honest] = (common + own) * np.eye(honest)
    matrix[honest, :honest] = matrix[:honest, honest] = common
    matrix[honest, honest] = honest * common
    return matrix


@given(variance=st.floats(64.0, 1e4), ratio=st.floats(1.0, 100.0), honest=st.integers(1, 60))
def test_what_is_given_up_for_integers_covers_the_rounding_of_the_whole_view(
    variance: float, ratio: float, honest: int
) -> None:
    """Integer noise minus the continuous one that it stands for is at least r²I: enough to round every coordinate."""
    whole = covariance(*integer_noise_for(variance, ratio, honest), honest)
    lost = whole - covariance(*noise_for(variance, ratio, honest), honest)
    assert np.linalg.eigvalsh(lost).min() >= LOST_VARIANCE * (1 - 1e-6)


@given(common=st.floats(64.0, 1e4), own=st.floats(64.0, 1e4), honest=st.integers(1, 60))
def test_integer_noise_is_not_taken_for_more_than_is_left_of_it_after_rounding(
    common: float, own: float, honest: int
) -> None:
    left = covariance(common, own, honest) - LOST_VARIANCE * np.eye(honest + 1)
    assert integer_adversary_variance(common, own, honest) <= (1 + 1e-9) / np.linalg.inv(left)[0, 0]


def test_no_honest_site_is_refused() -> None:
    with pytest.raises(ValueError, match="honest"):
        adversary_variance(1.0, 1.0, 0)


def brute_force_mu_after(
    changes: np.ndarray, common: float, own: float, added: list[list[int]], rng: np.random.Generator
) -> float:
    """μ of the honest sites' messages and of sums of ê over the given sets of them, for a change at each site."""
    honest = len(changes)
    deviations = np.concatenate([np.full(honest, math.sqrt(common)), np.full(honest, math.sqrt(own))])
    one = np.eye(honest)
    sums = np.zeros((len(added), 2 * honest))
    for row, sites in zip(sums, added, strict=True):
        row[sites] = 1.0
    view = np.vstack([np.hstack([one, one]), sums])
    shift = np.concatenate([changes, np.zeros(len(added))])
    order = rng.permutation(len(view))  # nothing depends on the order in which they come
    least, _, _, _ = np.linalg.lstsq((view * deviations)[order], shift[order], rcond=1e-13)
    return float(np.linalg.norm(least))


@given(data=st.data())
def test_messages_first_costs_no_more_than_the_smallest_sum_that_may_be_made(data: st.DataObject) -> None:
    """Whichever sites are in a sum, in however many sums without a site in common, and wherever the changes are, as
    long as their sizes add up to one. The worst is reached: all of it at one site of the smallest sum."""
    honest = data.draw(st.integers(1, 12))
    least = data.draw(st.integers(1, honest))
    own = data.draw(st.floats(0.05, 20.0))
    common = own * data.draw(st.floats(0.9, 1000.0))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    sites, added = rng.permutation(honest).tolist(), []
    while len(sites) >= least:
        size = int(rng.integers(least, len(sites) + 1))
        added.append(sites[:size])
        sites = sites[size:]
    changes = rng.dirichlet(np.ones(honest)) * rng.choice([-1.0, 1.0], honest)
    promised = correlated_mu(1.0, common, own, least)
    assert brute_force_mu_after(changes, common, own, added, rng) <= promised * (1.0 + 1e-9)
    alone = np.eye(honest)[0]
    worst = brute_force_mu_after(alone, common, own, [list(range(least))], rng)
    assert worst == pytest.approx(promised, rel=1e-9)


@given(own=st.floats(82.0, 1e6), ratio=st.floats(1.0, 1e6), honest=st.integers(1, 1000))
def test_the_two_steps_with_integer_noise_cost_no_more_than_the_formula(own: float, ratio: float, honest: int) -> None:
    """Messages, then the sum given the messages, each with the variance that rounding loses: see the module."""
    common = ratio * (own - 3.0 * LOST_VARIANCE) + 2.0 * LOST_VARIANCE
    given_messages = common * own / (common + own)
    moved = common / (common + own)
    squared = 1.0 / (common + own - LOST_VARIANCE) + moved**2 / (honest * given_messages - LOST_VARIANCE)
    assert squared <= 1.0 / integer_adversary_variance(common, own, honest)
    assert given_messages >= 30.0


def attacked_after(choose: str, rng: np.random.Generator, trials: int = 400_000) -> tuple[np.ndarray, float]:
    """log(P₁/P₀) of what an adversary sees under P₁ (a change of 1 at site 0), who picks one companion of site 0 by the
    messages; and the promised μ. `choose` "twice": two sums over different sites, which no party allows."""
    honest, common, own = 4, 3.0, 1.5
    hidden = rng.normal(0.0, math.sqrt(common), (trials, honest))
    messages = hidden + rng.normal(0.0, math.sqrt(own), (trials, honest))
    messages[:, 0] += 1.0
    of_messages = (messages[:, 0] - 0.5) / (common + own)
    moved, variance = common / (common + own), common * own / (common + own)
    # The companion whose message is most extreme, or by that of site 0 the smallest or the largest one.
    others = messages[:, 1:]
    far, signs = np.abs(others).argmax(axis=1) + 1, np.sign(messages[:, :1])
    companion = far if choose == "far" else (signs * others).argmax(axis=1) + 1
    rows = np.arange(trials)
    total = hidden[:, 0] + hidden[rows, companion]
    # Under P₀ the sum given the messages has the mean moved·(m₀ + m_j), under P₁ it is less by `moved`.
    left = total - moved * (messages[:, 0] + messages[rows, companion])
    of_sum = -(2.0 * left * moved + moved**2) / (2.0 * 2.0 * variance)
    if choose == "twice":
        alone = hidden[:, 0] - moved * messages[:, 0]
        of_sum = -(2.0 * alone * moved + moved**2) / (2.0 * variance)
    return of_messages + of_sum, correlated_mu(1.0, common, own, 2)


@pytest.mark.parametrize("choose", ["far", "by the victim", "twice"])
def test_choosing_who_is_in_the_sum_by_the_messages_gains_nothing(choose: str) -> None:
    """δ(ε) of the attack, measured: the Gaussian one of the promised μ, within five standard errors. If the noise of a
    message could be added up twice, it would be far above."""
    ratios, mu = attacked_after(choose, np.random.default_rng(5))
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        found = np.maximum(0.0, 1.0 - np.exp(epsilon - ratios))
        error = 5.0 * found.std() / math.sqrt(len(found))
        promised = delta_of(mu, epsilon)
        if choose == "twice":
            assert found.mean() > promised + error
        else:
            assert found.mean() == pytest.approx(promised, abs=error)


def variance_left(factors: np.ndarray, ratio: float, site: int) -> float:
    """What a site's adversary faces, by the inverse of the covariance of the honest messages given the sum of their
    ê."""
    common, own = ratio * factors, factors
    covariance = np.diag(common + own) - np.outer(common, common) / common.sum()
    return float(1.0 / np.linalg.inv(covariance)[site, site])


@given(data=st.data())
def test_a_site_with_a_promise_of_its_own_has_it_and_the_others_lose_nothing(data: st.DataObject) -> None:
    """Whoever is honest: of all sets of so many sites, also those in which only the least noise is left."""
    sites = data.draw(st.integers(1, 6))
    honest = data.draw(st.integers(1, sites))
    ratio = data.draw(st.floats(1.0, 1000.0))
    few = data.draw(st.lists(st.floats(1.0, 50.0), min_size=1, max_size=3))
    stronger = tuple(data.draw(st.sampled_from([1.0, *few])) for _ in range(sites))
    base = adversary_variance(ratio, 1.0, honest)
    for wishes in (stronger, raised(stronger, ratio, honest)):
        assert all(mine >= asked for mine, asked in zip(wishes, stronger, strict=True))
        found = factors_for(wishes, ratio, honest)
        factors = np.array([found[wish].own for wish in wishes])
        assert factors.min() >= 1.0
        worst = {
            site: min(
                variance_left(factors[list(there)], ratio, there.index(site))
                for there in combinations(range(sites), honest)
                if site in there
            )
            for site in range(sites)
        }
        for site, least in worst.items():
            assert least >= wishes[site] * base * (1.0 - 1e-6)
            stated = adversary_variance(ratio, 1.0, honest, *found[wishes[site]])
            assert wishes[site] * base * (1.0 - 1e-9) <= stated <= least * (1.0 + 1e-6)


def test_wishes_are_raised_only_where_that_leaves_less_noise() -> None:
    """One strict site hides the total best alone; of two, one may collude."""
    ratio, honest = 1000.0, 4
    assert raised((1.0, 1.0, 9.0, 1.0, 1.0), ratio, honest) == (1.0, 1.0, 9.0, 1.0, 1.0)
    wishes = (1.0, 9.0, 9.0, 1.0, 1.0)
    assert raised(wishes, ratio, honest) == (9.0,) * 5

    def total(wishes: tuple[float, ...]) -> float:
        return sum(factors_for(wishes, ratio, honest)[wish].own for wish in wishes)

    assert total((9.0,) * 5) == pytest.approx(45.0)
    assert total(wishes) > 60.0


@given(wish=st.floats(1.0, 1e6), ratio=st.floats(1.0, 1e6), sites=st.integers(1, 50), data=st.data())
def test_sites_that_all_want_the_same_get_it_as_if_the_study_said_so(
    wish: float, ratio: float, sites: int, data: st.DataObject
) -> None:
    honest = data.draw(st.integers(1, sites))
    factor = factors_for((wish,) * sites, ratio, honest)[wish]
    assert factor.own == pytest.approx(wish, rel=1e-9)
    assert factor.partners == pytest.approx((honest - 1) * wish, rel=1e-9)
