"""The part of δ that drawing costs is paid everywhere: here samplers are so bad that it is a good part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import make
from unspoken.methods.planning import Plan
from unspoken.methods.planning.sums import drawn_by
from unspoken.methods.registry import method_for
from unspoken.privacy import gaussian, integer

DELTA = 1e-6
QUERIES, CLASSES, PARTIES = 20, 3, 5


@pytest.fixture
def public(tmp_path: Path) -> str:
    np.savez(tmp_path / "public.npz", X=np.zeros((500, 4)))
    return str(tmp_path / "public.npz")


def cost_of_drawing(share: float, epsilon: float, numbers: int, patch: pytest.MonkeyPatch) -> None:
    """Make samplers so bad that drawing so many numbers at this ε costs this share of δ."""
    patch.setattr(integer, "DISTANCE", share * DELTA / integer.cost(epsilon, drawn_by(PARTIES, numbers)))


def vote(public: str, **said: Any) -> Plan:
    keys = {"public": public, "asking": "first", **said.pop("method", {})}
    return method_for(
        make("voting", parties={"count": PARTIES, "records": 10}, delta=DELTA, method=keys, **said)
    ).plan()


def test_votes_are_paid_for_by_what_drawing_leaves_of_delta(public: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cost_of_drawing(0.9, 2.0, 500 * CLASSES, monkeypatch)
    plan = vote(public, epsilon=2.0, noise_multiplier=50.0)
    assert 50 < plan.facts["queries"] < 500
    assert plan.guarantee.epsilon <= 2.0


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_promise_for_another_unit_pays_for_drawing_too(
    attempts: int, public: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a larger unit at the largest ε that is planned for, since its own is not known before."""
    said: dict[str, Any] = {"attempts": attempts, "method": {"queries": QUERIES}}
    numbers = attempts * QUERIES * CLASSES
    cost_of_drawing(0.5, integer.LARGEST_PLANNED_EPSILON, numbers, monkeypatch)
    plan = vote(public, epsilon=2.0, unit={"group": 2}, **said)
    (planned,) = plan.sums
    mu = np.sqrt(attempts) * planned.mu
    # Two records may be in two parties, whose ballots both change; those of one party are half of that.
    assert plan.slack < 1e-6 * DELTA
    assert plan.facts["epsilon_by_unit"]["party"] == pytest.approx(gaussian.epsilon_of(mu / 2.0, DELTA), rel=1e-3)
    plan = vote(
        public, epsilon=2.0, **said | {"method": {"queries": QUERIES, "ballots": "neighbours", "neighbours": 3}}
    )
    (planned,) = plan.sums
    larger = 3.0 * np.sqrt(attempts) * planned.mu
    found = plan.facts["epsilon_by_unit"]["party"]
    assert found == pytest.approx(gaussian.epsilon_of(larger, 0.5 * DELTA), rel=1e-3)
    assert found > 1.005 * gaussian.epsilon_of(larger, DELTA)


def test_the_promise_for_a_smaller_unit_pays_for_drawing_as_the_study_does(
    public: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost_of_drawing(0.5, 2.0, QUERIES * CLASSES, monkeypatch)
    keys = {"queries": QUERIES, "ballots": "neighbours", "neighbours": 3}
    plan = vote(public, epsilon=2.0, unit="party", method=keys)
    (planned,) = plan.sums
    assert plan.slack == pytest.approx(0.5 * DELTA)
    found = plan.facts["epsilon_by_unit"]["record"]
    assert found == pytest.approx(gaussian.epsilon_of(planned.mu / 3.0, 0.5 * DELTA), rel=2e-3)
    assert found > 1.005 * gaussian.epsilon_of(planned.mu / 3.0, DELTA)


@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
def test_sites_with_an_epsilon_of_their_own_have_it_after_drawing_is_paid_for(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their noise is sized for all of δ at first, and made larger until their promises are kept."""
    cost_of_drawing(0.5, 2.0, 4, monkeypatch)
    wanted = [2.0, 0.5, 1.5, 2.0, 1.0]
    keys = {"order": order, "epsilons": wanted}
    plan = method_for(make("cape", task="statistics", parties=PARTIES, epsilon=2.0, delta=DELTA, method=keys)).plan()
    assert plan.slack >= 0.2 * DELTA
    for party, own in enumerate(wanted):
        assert plan.guarantee_for(party).epsilon <= own * (1.0 + 1e-9)
        assert plan.facts["promises"][party]["epsilon"] <= own * (1.0 + 1e-9)
    assert plan.facts["promises"][1]["epsilon"] > 0.99 * wanted[1]


def test_noise_of_every_local_step_is_counted() -> None:
    """In every round and attempt, for the study and for the ledger."""
    keys = {"rounds": 2, "rate": 0.5}
    one, three = (
        method_for(make("fedsgd", attempts=2, noise_multiplier=2.0, method={**keys, "local_steps": steps})).plan()
        for steps in (1, 3)
    )
    assert three.sums[0].noisy_numbers == 3 * one.sums[0].noisy_numbers
    for plan, steps in ((one, 1), (three, 3)):
        numbers = plan.sums[0].dimension * 2 * 2 * steps
        assert plan.ledger_run("run").distance == pytest.approx(integer.distance(drawn_by(5, numbers)), abs=0.0)
        assert plan.slack == pytest.approx(integer.slack(30.0, drawn_by(5, numbers)), abs=0.0)


def test_a_ledger_is_told_of_noise_that_is_in_no_sum() -> None:
    """A curator draws it for what it releases."""
    plan = method_for(make("dp-fm")).plan()
    (release,) = plan.others
    assert plan.ledger_run("run").distance == pytest.approx(integer.distance(drawn_by(5, release.dimension)), abs=0.0)
