"""What cross-silo training promises: its noise, the ε of dp-accounting, colluders and dropouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import unspoken
from silos import FIXED, accountant, records_for, run, study, totals_of
from unspoken.methods.cross_silo import CrossSilo
from unspoken.summation.base import Aborted


@pytest.mark.parametrize(
    ("privacy", "drop"),
    [
        ({"colluding": 2, "dropouts": 1}, 0),
        ({"colluding": 2, "dropouts": 1}, 1),
        ({}, 0),
        ({"dropouts": 2}, 2),
        ({"enclaves": True}, 0),
        ({"enclaves": True, "dropouts": 1}, 1),
    ],
)
def test_a_round_s_noise_has_the_stated_deviation_and_enough_of_it_is_unknown(
    privacy: dict[str, Any], drop: int
) -> None:
    """All batches are empty, so that 10 totals of 2,010 numbers are noise alone: deviations are known to 0.5 %."""
    parties, sigma, clip = 6, 1.5, 0.5
    agreed = study({"rounds": 10, "rate": 1e-9, "clip": clip}, (parties, 5), 200, 10, noise_multiplier=sigma, **privacy)
    method = CrossSilo(agreed)
    plan, totals = method.plan(), totals_of(method)
    outcome = run(method, plan, drop=drop)
    sent, known = parties - drop, 0 if agreed.privacy.enclaves else max(agreed.colluding, 1)
    assert {there.sent for there in outcome.participation["gradient"]} == {sent}
    measured = np.concatenate(totals).std()
    planned = plan.sums[0]
    assert measured == pytest.approx(planned.total_std(sent), rel=0.02)
    assert outcome.release.details["noise_std_per_step"] == pytest.approx(measured / (1e-9 * 5 * sent), rel=0.02)
    # What colluders (or one curious party) cannot subtract: σ·clip, with rounding and the last component as room.
    left = measured * math.sqrt((sent - known) / sent)
    assert 0.98 * sigma * clip < left < 1.03 * sigma * clip
    assert abs(np.concatenate(totals).mean()) < 5 * measured / math.sqrt(20_100)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_how_often_an_attacker_is_right_is_what_dp_accounting_says(adjacency: str) -> None:
    agreed = study({"rounds": 30, "rate": 0.05}, adjacency=adjacency, noise_multiplier=1.2)
    expected = (1.0 + accountant(1.2, 0.05, 30, adjacency).get_delta(0.0)) / 2.0
    assert CrossSilo(agreed).plan().guarantee.attack_success == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("promise", [{"noise_multiplier": 1.2}, {"epsilon": 2.0}])
def test_the_plan_says_what_dp_accounting_says(adjacency: str, promise: dict[str, float]) -> None:
    agreed = study({"rounds": 30, "rate": 0.05, "clip": 0.7}, adjacency=adjacency, colluding=1, **promise)
    plan = CrossSilo(agreed).plan().to_json()
    (release,) = plan["releases"]
    factor = 2.0 if adjacency == "replace" else 1.0
    # Rounding adds at most 1/128 to the sensitivity, and noise as much.
    assert release["sensitivity"] == pytest.approx(factor * 0.7, rel=0.01)
    assert release["sensitivity"] >= factor * 0.7
    assert release["noise_std"] / (release["sensitivity"] / factor) == pytest.approx(plan["noise_multiplier"])
    assert release["noise_std"] / 0.7 == pytest.approx(plan["noise_multiplier"], rel=0.01)
    epsilon = plan["guarantee"]["epsilon"]
    expected = accountant(plan["noise_multiplier"], 0.05, 30, adjacency).get_epsilon(1e-5)
    assert epsilon == pytest.approx(expected, rel=5e-3)
    assert plan["guarantee"]["adjacency"] == adjacency
    if "epsilon" in promise:
        assert 1.95 < epsilon <= 2.0
    else:
        assert plan["noise_multiplier"] == pytest.approx(1.2)
    assert (release["count"], plan["rounds"]) == (30, 30)
    assert plan["sampling"] == {"kind": "poisson", "rate": 0.05}


def test_the_noise_of_a_promise_and_the_promise_of_a_noise_agree() -> None:
    options = {"rounds": 30, "rate": 0.05}
    promised = CrossSilo(study(options, epsilon=2.0)).plan()
    noisy = CrossSilo(study(options, noise_multiplier=promised.sums[0].noise_multiplier)).plan()
    assert noisy.guarantee.epsilon == pytest.approx(promised.guarantee.epsilon, rel=1e-3)


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_the_promise_weakens_without_a_break_as_more_collude(sampling: str) -> None:
    plan = CrossSilo(study({**FIXED, "sampling": sampling}, (10, 20), colluding=2, dropouts=1)).plan()
    table = plan.weakening()
    assert [row["colluding"] for row in table] == [2, 3, 4, 5, 6, 7, 8]
    found = [row["epsilon"] for row in table]
    assert found == sorted(found)
    assert found[0] == pytest.approx(plan.guarantee.epsilon, rel=0.02)
    assert found[0] >= plan.guarantee.epsilon * (1 - 1e-6)
    # Against the last honest party the noise is that of one share of the seven.
    assert found[-1] > 2 * found[0]


def test_dropouts_within_the_allowance_cost_no_more_than_planned_and_more_end_the_run() -> None:
    agreed = study({"rounds": 5, "rate": 0.2}, (6, 10), dropouts=2, colluding=1)
    records, groups = records_for(agreed)
    for drop in (0, 1, 2):
        result = unspoken.simulate(agreed, records.features, records.labels, groups, drop=drop)
        happened = result.certificate["happened"]
        assert 0.9 * result.plan.guarantee.epsilon < happened["epsilon"] <= result.plan.guarantee.epsilon
        assert (happened["survivors"], happened["dropped"]) == (6 - drop, drop)
    with pytest.raises(Aborted, match="only 3 of 6 parties"):
        unspoken.simulate(agreed, records.features, records.labels, groups, drop=3)


def test_enclaves_need_no_share_for_the_curious() -> None:
    with_them, without = (CrossSilo(study(parties=(4, 10), **more)).plan() for more in ({"enclaves": True}, {}))
    ratio = with_them.sums[0].total_std(4) / without.sums[0].total_std(4)
    assert ratio == pytest.approx(math.sqrt(3 / 4), rel=1e-3)
    assert with_them.guarantee.epsilon == pytest.approx(without.guarantee.epsilon, rel=1e-3)
    assert "trusted execution environments" in with_them.guarantee.sentence()


def test_shares_from_enclaves_that_were_broken_into_count_as_known() -> None:
    """Two of six enclaves: four shares must do, where without enclaves as many would if two parties colluded."""
    broken, colluding = (
        CrossSilo(study(parties=(6, 10), colluding=2, **more)).plan() for more in ({"enclaves": True}, {})
    )
    assert broken.trust.known == 2
    assert broken.sums[0].total_std(6) == pytest.approx(colluding.sums[0].total_std(6), rel=1e-6)
    whole = CrossSilo(study(parties=(6, 10), enclaves=True)).plan()
    assert broken.sums[0].total_std(6) == pytest.approx(math.sqrt(6 / 4) * whole.sums[0].total_std(6), rel=0.02)
    assert "of which none but 2 are broken into" in broken.guarantee.sentence()
    assert "together with 2 of the 6 parties" in broken.guarantee.sentence()
