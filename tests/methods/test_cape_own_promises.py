"""Sites of CAPE that have a promise of their own: what they are told, and what it is compared with."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest

from factories import maker
from unspoken.methods.cape import Cape
from unspoken.methods.planning import Plan
from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.ledger import after
from unspoken.report.plan_text import plan_rows
from unspoken.report.policy import refusal
from unspoken.report.promise_text import Seat, promise_rows
from unspoken.study.policy import Policy

study = maker("cape", task="statistics", data={"features": 1}, parties={"count": 5, "max_records": 1})
WANTED = [2.0, 0.5, 2.0, 2.0, 2.0]
STRICT, LAX = 1, 0


def planned(epsilon: float = 2.0, **given: object) -> Plan:
    return Cape(study(parties=5, epsilon=epsilon, **given)).plan()


def policy_of(**limits: float) -> Policy:
    return Policy.model_validate({"refuse_uncovered": False, "limits": limits})


def test_a_strict_site_s_guarantee_is_its_own_and_everyone_else_s_is_that_of_all() -> None:
    plan = planned(method={"epsilons": WANTED})
    own = plan.guarantee_for(STRICT)
    assert own.epsilon == pytest.approx(0.5, rel=0.005)
    assert own.epsilon <= 0.5 * (1.0 + 1e-9)
    assert own.attack_success < plan.guarantee.attack_success - 0.05
    assert plan.guarantee_for(LAX) == plan.guarantee_for(None) == plan.guarantee
    alike = planned()
    assert {alike.guarantee_for(site).epsilon for site in range(5)} == {alike.guarantee.epsilon}


@pytest.mark.parametrize("limits", [{"epsilon": 0.5}, {"total_epsilon": 0.5, "total_delta": 1e-6}])
def test_a_policy_counts_a_strict_site_by_its_own_promise(limits: dict[str, float]) -> None:
    plan = planned(method={"epsilons": WANTED})
    assert refusal(policy_of(**limits), plan, Ledger(), STRICT) is None
    for other in (LAX, None):
        assert refusal(policy_of(**limits), plan, Ledger(), other) is not None
    tighter = {name: 0.4 if name.endswith("epsilon") else value for name, value in limits.items()}
    assert "0.5" in (refusal(policy_of(**tighter), plan, Ledger(), STRICT) or "")


def test_the_screen_says_what_it_costs_a_strict_site() -> None:
    plan = planned(method={"epsilons": WANTED})
    rows = dict(promise_rows(plan, Seat("St Mary", STRICT, 1), Ledger()))
    assert rows["promise"] == "epsilon = 2, delta = 1e-06"
    assert rows["to you"].startswith("epsilon = 0.5, delta = 1e-06 for your own records")
    assert rows["to you"].endswith("guesses right at most 52.5 times in 100")
    assert rows["would cost"] == after(Ledger(), plan, STRICT)
    assert "at most epsilon = 0.5 at" in rows["would cost"]
    assert "together would then have epsilon = 0.5 at" in rows["would cost"]
    others = dict(promise_rows(plan, Seat("Charité", LAX, 1), Ledger()))
    assert "to you" not in others
    assert "at most epsilon = 2 at" in others["would cost"]


def test_a_secure_sum_with_the_strictest_promise_for_all_is_what_it_is_compared_with() -> None:
    """It has more noise here than correlated noise, so that "no more noise" would be wrong."""
    alike = planned(method={"order": "messages-first"}, dropouts=1)
    assert any("has no more noise in the total" in note for note in alike.notes)
    plan = planned(method={"order": "messages-first", "epsilons": WANTED}, dropouts=1)
    (note,) = (note for note in plan.notes if "messages come first" in note)
    assert "has no more noise" not in note
    content = study(parties=5, epsilon=0.5, dropouts=1).model_dump(exclude_none=True)
    content["method"] = {"name": "moments", "function": "mean"}
    moments = plan_for(type(study())(**content)).sums[0].total_std(5)
    stated = [float(text.split(",")[0]) for text in note.split("noise of ")[1].split("where this has ")]
    assert stated == pytest.approx([moments, plan.sums[0].total_std(5)], rel=0.01)
    assert stated[1] < stated[0]


def test_vanished_sites_are_compared_with_independent_noise_of_the_same_promises() -> None:
    """The strictest of five may vanish, after its ê: by far the largest is left in the total."""
    plan = planned(method={"order": "noise-first", "epsilons": WANTED}, dropouts=1)
    (note,) = (note for note in plan.notes if "between the noise and the messages" in note)
    total, sent = plan.sums[0], np.arange(5) != STRICT
    left = total.total_std_of(np.ones(5, dtype=np.bool_), sent)
    independent = math.sqrt(sum(total.noise_std_for(site) ** 2 for site in range(5) if site != STRICT))
    assert "1 party vanishes, the strictest, between" in note
    assert f"more noise ({left:.4g}) than independent noise would have ({independent:.4g})" in note


def test_the_most_noise_that_is_told_is_that_of_the_strictest_sites_that_vanish() -> None:
    """The ê of a strict site is by far the largest that can stay in the total."""
    plan = planned(method={"order": "noise-first", "epsilons": [2.0, 0.2, 2.0, 1.9, 2.0]}, dropouts=2)
    total = plan.sums[0]
    everyone, found = np.ones(5, dtype=np.bool_), []
    for gone in combinations(range(5), 2):
        sent = everyone.copy()
        sent[list(gone)] = False
        found.append(total.total_std_of(everyone, sent))
    assert total.total_std(3, 5) == pytest.approx(max(found))
    assert max(found) > 1.5 * min(found)
    told = dict(plan_rows(plan))["release “function”"]
    assert f"at most {max(found):.4g} if 2 vanish between the noise and the messages" in told
    assert total.total_std(5) == pytest.approx(total.total_std_of(everyone, everyone))
    fewer = []
    for absent, silent in permutations(range(5), 2):
        prepared = everyone.copy()
        prepared[absent] = False
        sent = prepared.copy()
        sent[silent] = False
        fewer.append(total.total_std_of(prepared, sent))
    assert total.total_std(3, 4) == pytest.approx(max(fewer))


def test_as_much_noise_as_independent_noise_is_not_called_more() -> None:
    """With the paper's settings, five sites, one colluder and one that vanishes both variances are 4σ²."""
    plan = planned(method={"published": True}, dropouts=1)
    (note,) = (note for note in plan.notes if "between the noise and the messages" in note)
    assert "the total has as much noise as independent noise would have" in note


def test_each_party_s_promise_is_told_beside_its_number() -> None:
    (note,) = (note for note in planned(method={"epsilons": WANTED}).notes if "promise of its own" in note)
    assert f"{WANTED[STRICT]:g} for party {STRICT}" in note
    assert note.endswith("the total must hide the strictest")


def test_a_party_that_gets_more_than_it_asked_for_is_told_why() -> None:
    """Of two strict ones, one may collude: so the others had better add as much."""
    plan = planned(method={"epsilons": [2.0, 0.5, 0.5, 2.0, 2.0]})
    (note,) = (note for note in plan.notes if "promise of its own" in note)
    assert "epsilon = 0.5 for party 0" in note
    assert "less noise if those that ask for less privacy add more noise than they need" in note
    assert plan.guarantee_for(LAX).epsilon == pytest.approx(0.5, rel=0.005)
    assert "of parties that add least" in plan.sums[0].noise.explained(plan.sums[0].parts)


def test_noise_grows_until_every_promise_is_kept_and_hardly_further() -> None:
    """With so small a δ, what the secure sums take of it is felt. Whoever makes the plan again makes the same."""
    wanted = [30.0, 10.0, 30.0, 30.0, 30.0]
    given = {"delta": 1e-11, "data": {"features": 400}, "method": {"epsilons": wanted}}
    method = Cape(study(parties=5, epsilon=30.0, **given))
    plan = method.plan()
    assert method._more_noise > 1.0
    assert method.plan() == plan
    kept = [promise["epsilon"] for promise in plan.facts["promises"]]
    assert all(epsilon <= own * (1.0 + 1e-9) for epsilon, own in zip(kept, wanted, strict=True))
    assert kept[STRICT] == pytest.approx(wanted[STRICT], rel=0.003)


def test_only_parties_that_add_more_for_the_total_s_sake_are_said_to() -> None:
    """Above epsilon = 30 all get the noise of 30, which is no more than they need."""
    plan = planned(40.0, method={"epsilons": [40.0, 0.5, 40.0, 40.0, 40.0]})
    (note,) = (note for note in plan.notes if "promise of its own" in note)
    assert plan.guarantee_for(LAX).epsilon == pytest.approx(30.0)
    assert note.endswith("the total must hide the strictest")


def test_the_gain_is_over_independent_noise_and_a_curator_s_of_the_same_promises() -> None:
    plan = planned(method={"order": "noise-first", "epsilons": WANTED})
    total = plan.sums[0]
    alone, left = [total.noise_std_for(site) ** 2 for site in range(5)], total.total_std(5) ** 2
    assert total.parts["gain"] == pytest.approx(sum(alone) / left)
    assert total.parts["over_curator"] == pytest.approx(left / max(alone))
    assert total.parts["over_curator"] < 1.5, "the strictest site's noise is most of it"
    assert "of parties without a promise of their own" in total.noise.explained(total.parts)


@pytest.mark.parametrize("method", [{}, {"epsilons": WANTED}])
def test_the_stated_correlation_is_that_of_the_noise_once_the_common_noise_is_taken_away(
    method: dict[str, list[float]],
) -> None:
    """Of the least strict sites, from the covariance of what is left: of ê less its share of the sum, and of g."""
    total = planned(method={"order": "noise-first", "correlation": 3.0, **method}).sums[0]
    noise = total.noise
    assert isinstance(noise, CorrelatedNoise)
    common, own = np.array([noise.variances(site) for site in range(5)]).T
    taken = np.eye(5) - common[:, None] / common.sum()
    covariance = taken @ np.diag(common) @ taken.T + np.diag(own)
    one, other = LAX, 2
    spread = math.sqrt(covariance[one, one] * covariance[other, other])
    assert total.parts["correlation"] == pytest.approx(covariance[one, other] / spread)
    assert total.parts["tau_e"] ** 2 + total.parts["tau_g"] ** 2 == pytest.approx(
        covariance[one, one] / total.encoding.scale**2
    )
