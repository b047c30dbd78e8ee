"""What a plan says of more colluders than it allows, by what a protocol then opens, and of attempts that failed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from factories import make
from unspoken.methods.planning import Plan
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.registry import method_for
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.summation.base import Openable

PARTIES, DELTA = 12, 1e-6


def planned(**said: Any) -> Plan:
    return method_for(make("helmet", parties=PARTIES, delta=DELTA, summation="compute-nodes", **said)).plan()


class Opening:
    """A protocol that opens so much against so many colluders."""

    def __init__(self, **against: Openable) -> None:
        self._against = {int(name.removeprefix("of_")): found for name, found in against.items()}

    def openable(self, colluding: int) -> Openable:
        return self._against[colluding]


def epsilon_under(plan: Plan, variance: float, delta: float) -> float:
    """ε of the plan's one total under noise of this variance, in units of the encoding."""
    (one,) = plan.sums
    return epsilon_of(one.sensitivity * one.encoding.scale / math.sqrt(variance - LOST_VARIANCE), delta)


def weakened(plan: Plan, protocol: Any, colluding: int) -> dict[str, float]:
    return plan._weakened(protocol, colluding)


def test_colluders_face_the_noise_of_the_smallest_total_that_opens_for_them() -> None:
    """Whatever opened for those that the plan allows."""
    plan = planned(colluding=2)
    share = plan.sums[0].noise.schedule.whole
    row = weakened(plan, Opening(of_2=Openable(12), of_5=Openable(8)), 5)
    assert row["epsilon"] == pytest.approx(epsilon_under(plan, 3 * share, DELTA - plan.slack), rel=1e-9)


def test_a_curious_party_knows_its_own_noise_where_nobody_colludes() -> None:
    plan = planned(colluding=0)
    rows = {row["colluding"]: row["epsilon"] for row in plan.weakening()}
    assert rows[0] == rows[1] == pytest.approx(plan.guarantee.epsilon, rel=1e-6)
    assert rows[2] > 1.01 * rows[0]


@pytest.mark.parametrize(("chance", "alone"), [(0.9, False), (1.1, True), (1.9, True)])
def test_a_party_stands_alone_once_the_protocol_fails_it_more_often_than_delta(chance: float, alone: bool) -> None:
    plan = planned(colluding=2)
    share, exposure = plan.sums[0].noise.schedule.whole, chance * DELTA / plan.setups
    row = weakened(plan, Opening(of_2=Openable(12), of_5=Openable(12, exposure)), 5)
    left, shares = (DELTA, 1) if alone else (0.1 * DELTA, 7)
    assert row["alone"] == alone
    assert row["epsilon"] == pytest.approx(epsilon_under(plan, shares * share, left - plan.slack), rel=1e-6)


def test_each_attempt_that_failed_costs_what_a_total_of_the_fewest_would() -> None:
    plan = planned(colluding=2, dropouts=1, attempts=4)
    (one,) = plan.sums
    everyone = Participation(PARTIES, PARTIES)
    for failed in (0, 1, 3):
        there = one.sensitivity / one.adversary_std(everyone)
        mu = math.hypot(there, math.sqrt(failed) * one.mu)
        found = plan.guarantee_after({"model": [everyone]}, {"model": failed})
        assert found.epsilon == pytest.approx(epsilon_of(mu, DELTA - plan.slack), rel=1e-9)
        assert found.mu == pytest.approx(mu, rel=1e-9)
