"""The exact Gaussian trade-off, against an independent accountant, against brute force, and as an inverse of itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from unspoken.privacy.gaussian import advantage, compose, delta_of, epsilon_of, mu_for

MUS = st.floats(0.01, 10.0)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
def test_epsilon_agrees_with_the_pld_accountant(mu: float) -> None:
    # The larger the losses, the more of its steps they take, and the larger a step may be.
    step = 1e-3 if mu > 1.0 else 1e-4
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=step)
    # Under "replace one" that accountant's sensitivity is 2 for noise of deviation σ (contributions in [−1, 1]).
    accountant.compose(GaussianDpEvent(2.0 / mu))
    for delta in (1e-3, 1e-5, 1e-9):
        assert epsilon_of(mu, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)


def test_composition_agrees_with_the_pld_accountant() -> None:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(1 / 0.2), 9)).compose(GaussianDpEvent(1 / 0.8))
    mu = compose([0.2] * 9 + [0.8])
    assert mu == pytest.approx(1.0)
    assert epsilon_of(mu, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.2), (1.0, 1.0), (2.0, 5.0), (3.0, 0.0)])
def test_delta_is_the_integral_that_defines_it(mu: float, epsilon: float) -> None:
    """δ(ε) = ∫ max(0, p(x) − e^ε q(x)) dx for p = N(μ, 1) and q = N(0, 1)."""

    def excess(x: float) -> float:
        return max(0.0, norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x))

    start = epsilon / mu + mu / 2
    integral, _ = quad(excess, start, start + 20, limit=200)
    assert delta_of(mu, epsilon) == pytest.approx(integral, rel=1e-7)


@given(mu=MUS, delta=st.floats(1e-12, 0.1))
def test_calibration_keeps_the_promise_and_wastes_nothing(mu: float, delta: float) -> None:
    epsilon = epsilon_of(mu, delta)
    found = mu_for(epsilon, delta)
    assert delta_of(found, epsilon) <= delta
    if epsilon > 1e-9:
        assert found == pytest.approx(mu, rel=1e-6)


@given(mu=MUS, epsilon=st.floats(0.0, 20.0))
def test_less_noise_and_smaller_epsilon_never_need_a_smaller_delta(mu: float, epsilon: float) -> None:
    assert delta_of(mu * 1.1, epsilon) >= delta_of(mu, epsilon)
    assert delta_of(mu, epsilon + 0.1) <= delta_of(mu, epsilon)


@pytest.mark.parametrize("delta", [1e-20, 1e-30])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_the_far_tail_is_neither_lost_nor_negative(epsilon: float, delta: float) -> None:
    mu = mu_for(epsilon, delta)
    assert 0.99 * delta <= delta_of(mu, epsilon) <= delta


def test_impossible_promises_are_refused() -> None:
    for epsilon, delta in ((-1.0, 0.1), (1.0, 0.0), (1.0, 1.0), (math.nan, 0.1)):
        with pytest.raises(ValueError, match="Expected epsilon"):
            mu_for(epsilon, delta)


def test_the_best_attacker_on_real_samples_has_the_stated_advantage() -> None:
    """200,000 trials: the estimate's standard error is 0.001, five of them allowed (false alarms: 1 in 10⁶)."""
    rng = np.random.default_rng(0)
    mu, trials = 0.7, 200_000
    truth = rng.integers(0, 2, trials)
    guess = rng.normal(size=trials) + mu * truth > mu / 2
    success = (guess == truth).mean()
    assert 2 * success - 1 == pytest.approx(advantage(mu), abs=0.01)
