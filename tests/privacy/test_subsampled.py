"""Accounting for sampled rounds: published points, exact single rounds, and what batches of fixed size really cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from scipy.integrate import quad
from scipy.stats import hypergeom

from unspoken.privacy import gaussian, subsampled
from unspoken.privacy.subsampled import (
    Rounds,
    _poisson,
    composed,
    delta_of,
    effective_rate,
    epsilon_of,
    noise_multiplier_for,
)


@pytest.mark.parametrize(("sigma", "published"), [(1.0, 2.5), (2.0, 1.07)])
def test_published_points(sigma: float, published: float) -> None:
    """Rate 0.008, 1,250 rounds, δ = 1e-5, a record replaced."""
    found = epsilon_of([Rounds(sigma, 0.008, 1250)], 1e-5, "replace", "poisson")
    assert found == pytest.approx(published, abs=0.01)


Mixture = list[tuple[float, float]]


def exact_delta(one: Mixture, other: Mixture, sigma: float, epsilon: float) -> float:
    """∫ max(0, p − e^ε q) for mixtures of Gaussians given as (weight, mean), and the same the other way round."""

    def density(mixture: Mixture, x: float) -> float:
        bells = (weight * math.exp(-(((x - mean) / sigma) ** 2) / 2.0) for weight, mean in mixture)
        return sum(bells) / (sigma * math.sqrt(2.0 * math.pi))

    def excess(p: Mixture, q: Mixture) -> float:
        def integrand(x: float) -> float:
            return max(0.0, density(p, x) - math.exp(epsilon) * density(q, x))

        return float(quad(integrand, -12 * sigma - 2, 12 * sigma + 2, limit=500, points=[-2, 0, 2])[0])

    return max(excess(one, other), excess(other, one))


@pytest.mark.parametrize("sigma", [0.7, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_a_single_round_is_the_exact_integral(sigma: float, epsilon: float) -> None:
    rate = 0.2
    rounds = [Rounds(sigma, rate, 1)]
    with_it, without = [(1 - rate, 0.0), (rate, 1.0)], [(1.0, 0.0)]
    assert delta_of(rounds, epsilon, "add-remove", "poisson") == pytest.approx(
        exact_delta(with_it, without, sigma, epsilon), rel=1e-3, abs=1e-7
    )
    replaced = [(1 - rate, 0.0), (rate, -1.0)]
    assert delta_of(rounds, epsilon, "replace", "poisson") == pytest.approx(
        exact_delta(with_it, replaced, sigma, epsilon), rel=1e-3, abs=1e-7
    )


RELATIONS = {"replace": NeighboringRelation.REPLACE_ONE, "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE}


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("rate", [1e-6, 0.1, 0.9, 1.0])
@pytest.mark.parametrize(("sigma", "step"), [(0.05, 0.1), (0.7, 0.01), (3.0, 0.001), (300.0, 0.0001)])
def test_a_round_s_losses_are_those_of_dp_accounting(sigma: float, step: float, rate: float, adjacency: str) -> None:
    """Up to rounding, which second differences of δ, divided by the step, enlarge."""
    ours = _poisson(sigma, rate, step, adjacency)  # type: ignore[arg-type]
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, value_discretization_interval=step, sampling_prob=rate, neighboring_relation=RELATIONS[adjacency]
    )
    assert ours._symmetric == theirs._symmetric
    for one, other in ((ours._pmf_remove, theirs._pmf_remove), (ours._pmf_add, theirs._pmf_add)):
        one, other = one.to_dense_pmf(), other.to_dense_pmf()
        assert one._lower_loss == other._lower_loss
        np.testing.assert_allclose(one._probs, other._probs, rtol=0.0, atol=1e-14 / step)
        assert one._infinity_mass == pytest.approx(other._infinity_mass, rel=1e-6, abs=1e-30)


def test_batches_of_fixed_size_can_cost_what_is_counted_and_more_than_poisson_batches() -> None:
    """One record +1 among records −1: in a batch of b its presence moves the sum by 2. The exact δ of that data set is
    the one that is stated, and far above that of Poisson sampling at the same rate, which the paper uses."""
    records, batch, sigma, epsilon = 10, 2, 1.0, 1.0
    rate = batch / records
    some = [(1 - rate, -float(batch)), (rate, 2.0 - batch)]
    all_the_same = [(1.0, -float(batch))]
    exact = exact_delta(some, all_the_same, sigma, epsilon)
    rounds = [Rounds(sigma, rate, 1)]
    stated = delta_of(rounds, epsilon, "replace", "without-replacement")
    assert stated == pytest.approx(exact, rel=1e-3)
    assert exact > 1.5 * delta_of(rounds, epsilon, "replace", "poisson")


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize(("epsilon", "rate", "count"), [(0.5, 0.05, 100), (3.0, 0.25, 20), (1.0, 1.0, 5)])
def test_the_noise_for_a_promise_keeps_it_with_little_room(
    adjacency: str, epsilon: float, rate: float, count: int
) -> None:
    noise = noise_multiplier_for(epsilon, 1e-5, rate, count, adjacency, "poisson")  # type: ignore[arg-type]
    spent = epsilon_of([Rounds(noise, rate, count)], 1e-5, adjacency, "poisson")  # type: ignore[arg-type]
    assert 0.98 * epsilon <= spent <= epsilon


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_rounds_on_all_records_are_those_of_the_gaussian(adjacency: str) -> None:
    """Exactly; as by the grid of losses, up to its step, and as rounds on almost all records."""
    rounds = (Rounds(3.0, 1.0, 5), Rounds(5.0, 1.0, 2), Rounds(1.0, 0.0, 9))
    exact = epsilon_of(rounds, 1e-5, adjacency, "poisson")  # type: ignore[arg-type]
    mu = (2.0 if adjacency == "replace" else 1.0) * math.sqrt(5 / 3.0**2 + 2 / 5.0**2)
    assert gaussian.delta_of(mu, exact) == pytest.approx(1e-5)
    on_a_grid = composed(rounds, adjacency, "poisson", True).get_epsilon_for_delta(1e-5)  # type: ignore[arg-type]
    assert exact < on_a_grid < exact * (1.0 + 1e-4)
    almost = [replace(part, rate=part.rate * (1.0 - 1e-6)) for part in rounds]
    assert epsilon_of(almost, 1e-5, adjacency, "poisson") == pytest.approx(exact, rel=1e-3)  # type: ignore[arg-type]


def test_rounds_with_different_noise_compose() -> None:
    apart = epsilon_of([Rounds(1.5, 0.1, 10), Rounds(3.0, 0.1, 10)], 1e-5, "add-remove", "poisson")
    more = epsilon_of([Rounds(1.5, 0.1, 20)], 1e-5, "add-remove", "poisson")
    less = epsilon_of([Rounds(3.0, 0.1, 20)], 1e-5, "add-remove", "poisson")
    assert less < apart < more


def test_the_effective_rate_holds_but_for_the_slack() -> None:
    batch, records, known, slack = 50, 1000, 300, 1e-4
    rate = effective_rate(batch, records, known, slack)
    largest = round(rate * (records - known))
    assert hypergeom.sf(largest, records, records - known, batch) <= slack
    assert hypergeom.sf(largest - 1, records, records - known, batch) > slack
    assert batch / records < rate < effective_rate(batch, records, known, 0.0) == batch / (records - known)
    drawn = np.random.default_rng(0).hypergeometric(records - known, known, batch, size=100_000)
    assert (drawn > largest).mean() <= 5 * slack


def test_batches_of_fixed_size_protect_replaced_records_only() -> None:
    for rate in (0.1, 1.0):
        with pytest.raises(ValueError, match="replace"):
            epsilon_of([Rounds(1.0, rate, 1)], 1e-5, "add-remove", "without-replacement")


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize(
    ("count", "mu"), [(1000, 1.0), pytest.param(1000, 4.0, marks=pytest.mark.long), (10_000, 1.0), (10_000, 4.0)]
)
def test_a_tiny_delta_is_not_lost_in_rounding(
    count: int, mu: float, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds on all records are Gaussian and have an exact ε. The numerical one must not be below it."""
    monkeypatch.setattr(subsampled, "_mu", lambda rounds, adjacency, sampling: None)
    for sampling, adjacency, move in (("poisson", "add-remove", 1.0), ("without-replacement", "replace", 2.0)):
        rounds = [Rounds(move * math.sqrt(count) / mu, 1.0, count)]
        for delta in (1e-14, 1e-12, 2e-11, 1e-10, 1e-8):
            stated = epsilon_of(rounds, delta, adjacency, sampling, fine)  # type: ignore[arg-type]
            assert stated >= gaussian.epsilon_of(mu, delta)
        assert stated == pytest.approx(gaussian.epsilon_of(mu, delta), rel=3e-3)
        assert delta_of(rounds, 0.0, adjacency, sampling) >= gaussian.delta_of(mu, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_rounds_with_hardly_any_noise_have_an_upper_bound_at_once(
    sampling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their losses would not fit into memory. As if batches were all records: no less than with a little more noise."""
    with_more = epsilon_of([Rounds(subsampled.LEAST_NOISE, 0.1, 3)], 1e-5, "replace", sampling, fine=False)
    monkeypatch.setattr(subsampled, "composed", None)
    for sigma in (0.99 * subsampled.LEAST_NOISE, 1e-3, 1e-9):
        rounds = [Rounds(sigma, 0.1, 3), Rounds(5.0, 0.1, 2)]
        found = epsilon_of(rounds, 1e-5, "replace", sampling)
        mu = 2.0 * math.hypot(math.sqrt(3) / sigma, math.sqrt(2) / 5.0)
        assert found == pytest.approx(gaussian.epsilon_of(mu, 1e-5), rel=1e-12)
        assert found > with_more
        assert subsampled.delta_of(rounds, 0.0, "replace", sampling) == pytest.approx(1.0)
