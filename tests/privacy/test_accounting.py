"""Events to ε: against dp-accounting, for one run and for many, and the only maker of guarantees."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

import unspoken
from unspoken.privacy import gaussian, subsampled
from unspoken.privacy.accounting import Terms, check_kept, epsilon_of, guarantee_after, guarantee_of, mu_of
from unspoken.privacy.events import Gaussian, PureLoss, Spend, SubsampledGaussian, Unprotected, together
from unspoken.privacy.guarantee import Trust

TERMS = Terms(1e-5, Trust(10, 2, 1))


def independent(*events: dp_accounting.DpEvent, replace: bool = False) -> float:
    """ε at δ = 1e-5 by dp-accounting's own accountant."""
    relation = dp_accounting.NeighboringRelation
    accountant = PLDAccountant(relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(1e-5))


def test_gaussian_events_compose_exactly() -> None:
    spend = Spend((Gaussian(0.3), Gaussian(0.2, count=4)), 1)
    assert mu_of(spend) == pytest.approx(0.5)
    assert epsilon_of(spend, 1e-5) == gaussian.epsilon_of(0.5, 1e-5)
    gaussians = [dp_accounting.GaussianDpEvent(1 / 0.3)] + 4 * [dp_accounting.GaussianDpEvent(1 / 0.2)]
    assert epsilon_of(spend, 1e-5) == pytest.approx(independent(*gaussians), rel=1e-3)


def test_sampled_events_are_those_of_the_subsampled_gaussian() -> None:
    spend = Spend((SubsampledGaussian(1.0, 0.01, "poisson", 300),), 1, "add-remove")
    assert epsilon_of(spend, 1e-5) == subsampled.epsilon_of(
        [subsampled.Rounds(1.0, 0.01, 300)], 1e-5, "add-remove", "poisson"
    )


@pytest.mark.parametrize("first", [Gaussian(0.4, 2), PureLoss(0.3)])
def test_events_of_several_kinds_cost_what_dp_accounting_says(first: Gaussian | PureLoss) -> None:
    """A run under Gaussian (or Laplace) noise, then one by sampled rounds."""
    mixed = Spend((first, SubsampledGaussian(1.2, 0.02, "poisson", 200)), 1, "add-remove")
    rounds = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.2)), 200
    )
    other: list[dp_accounting.DpEvent]
    if isinstance(first, Gaussian):
        other = 2 * [dp_accounting.GaussianDpEvent(1 / 0.4)]
    else:
        other = [dp_accounting.LaplaceDpEvent(1 / 0.3)]
    said, found = independent(*other, rounds), epsilon_of(mixed, 1e-5)
    # Laplace noise is one mechanism of loss 0.3; any such mechanism may cost a little more.
    assert said - 1e-3 <= found <= said + (1e-3 if isinstance(first, Gaussian) else 0.1)
    alone = epsilon_of(Spend(mixed.events[1:], 1, "add-remove"), 1e-5)
    assert alone < found < alone + epsilon_of(Spend(mixed.events[:1], 1, "add-remove"), 1e-5)


def test_pure_losses_add_up_and_need_no_delta() -> None:
    spend = Spend((PureLoss(0.5), PureLoss(0.25)), 1, slack=1e-9)
    assert epsilon_of(spend, 0.0) == 0.75
    stated = guarantee_of(spend, TERMS)
    assert (stated.epsilon, stated.delta, stated.mu, stated.advantage) == (0.75, 1e-9, None, None)


def test_what_is_set_aside_of_delta_costs_epsilon() -> None:
    spend = Spend((Gaussian(1.0),), 1)
    half = Spend((Gaussian(1.0),), 1, slack=5e-6)
    assert epsilon_of(half, 1e-5) == gaussian.epsilon_of(1.0, 5e-6) > epsilon_of(spend, 1e-5)
    assert epsilon_of(Spend((Gaussian(1.0),), 1, slack=1e-5), 1e-5) == math.inf


def test_an_unprotected_event_leaves_no_promise() -> None:
    stated = guarantee_of(Spend((Gaussian(1.0), Unprotected()), 1), TERMS)
    assert not stated.is_promise
    assert stated.delta == 0.0


def test_many_runs_cost_less_than_the_sum_of_their_epsilons_and_more_than_each() -> None:
    runs = [Spend((Gaussian(0.2),), 1, slack=1e-8) for _ in range(9)]
    whole = together(runs)
    assert whole.slack == pytest.approx(9e-8)
    assert mu_of(whole) == pytest.approx(0.6)
    one = epsilon_of(runs[0], 1e-5)
    assert one < epsilon_of(whole, 1e-5) < 9 * one


@pytest.mark.parametrize("other", [Spend((Gaussian(1.0),), None), Spend((Gaussian(1.0),), 1, "add-remove")])
def test_runs_that_protect_different_things_cannot_be_added_up(other: Spend) -> None:
    with pytest.raises(ValueError, match="protect the same unit in the same sense"):
        together([Spend((Gaussian(1.0),), 1), other])


def test_no_more_than_the_promise_is_stated_and_noise_that_keeps_less_is_an_error() -> None:
    spend = Spend((Gaussian(1.0),), 1)
    spent = epsilon_of(spend, 1e-5)
    promise = guarantee_of(spend, TERMS, promised=spent)
    assert promise.epsilon == spent
    with pytest.raises(RuntimeError, match="was promised"):
        guarantee_of(spend, TERMS, promised=0.99 * spent)
    with pytest.raises(RuntimeError, match="was promised"):
        guarantee_after(promise, Spend((Gaussian(1.01),), 1))
    assert guarantee_after(promise, Spend((Gaussian(0.9),), 1)).epsilon < spent
    check_kept(spent, spent)


def test_the_advantage_of_sampled_rounds_is_their_delta_at_zero() -> None:
    spend = Spend((SubsampledGaussian(5.0, 0.5, "poisson", 2),), 1)
    rounds = [subsampled.Rounds(5.0, 0.5, 2)]
    assert guarantee_of(spend, TERMS).advantage == subsampled.delta_of(rounds, 0.0, "replace", "poisson")


def test_only_this_module_makes_guarantees() -> None:
    package = Path(unspoken.__file__).parent
    makers = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Guarantee"
    ]
    assert makers == ["privacy/accounting.py"]


def test_a_tiny_delta_is_not_lost_in_the_rounding_of_several_kinds() -> None:
    """Rounds on all records are Gaussian too, so that there is an exact ε to compare with. Below what the rounding of
    15,000 releases leaves open there is none."""
    mixed = Spend((Gaussian(0.01, 5000), SubsampledGaussian(100.0, 1.0, "poisson", 10_000)), 1, "add-remove")
    exact = math.hypot(1.0, 0.01 * math.sqrt(5000))
    for delta in (2e-11, 1e-9):
        assert gaussian.epsilon_of(exact, delta) <= epsilon_of(mixed, delta) < math.inf
    assert epsilon_of(mixed, 1e-11) == math.inf
    assert guarantee_of(mixed, TERMS).advantage >= gaussian.delta_of(exact, 0.0)


@pytest.mark.parametrize("other", [SubsampledGaussian(1e-3, 0.1, "poisson", 4), Gaussian(1e3, 4)])
def test_events_of_several_kinds_have_a_bound_where_one_hardly_protects(
    other: Gaussian | SubsampledGaussian, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The losses of such a run would not fit into memory, and so lock its ledger."""
    monkeypatch.setattr(subsampled, "composed", None)
    spend = Spend((other, SubsampledGaussian(1.0, 0.1, "without-replacement", 9), PureLoss(2.0), Gaussian(1.0)), 1)
    mu = 2e3 * math.sqrt(4.0) if isinstance(other, SubsampledGaussian) else 2e3
    expected = gaussian.epsilon_of(math.hypot(mu, 2.0 * 3.0, 1.0), 1e-5) + 2.0
    assert epsilon_of(spend, 1e-5) == pytest.approx(expected, rel=1e-12)
    assert guarantee_of(spend, TERMS).attack_success == 1.0
