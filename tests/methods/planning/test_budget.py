"""What rules expect of the noise is what plans then have."""

from __future__ import annotations

import math
from typing import Any

import pytest

from factories import make
from unspoken.methods.functions.auto import expected_signal
from unspoken.methods.helmet_rules import score_noise
from unspoken.methods.planning.budget import budget, epsilon_for, expected_noise
from unspoken.methods.planning.directions import signal_of
from unspoken.methods.registry import method_for

PARTIES, EACH = 40, 50


def study(name: str, **said: Any) -> Any:
    data = {"features": 3, "classes": 2, "norm": 1.0}
    return make(name, data=data, parties={"count": PARTIES, "records": EACH}, **{"epsilon": 0.5, **said})


@pytest.mark.parametrize("attempts", [1, 4, 100])
@pytest.mark.parametrize("colluding", [0, 20])
def test_the_expected_noise_is_that_of_the_plan(attempts: int, colluding: int) -> None:
    said = {"attempts": attempts, "colluding": colluding}
    for method in ("helmet", "moments"):
        plan = method_for(study(method, **said)).plan()
        # μ² of all sums together, over what one of sensitivity 1 would have.
        own = math.hypot(*(math.sqrt(one.count) * one.sensitivity / one.total_std(PARTIES) for one in plan.sums))
        assert own == pytest.approx(1.0 / expected_noise(plan.study), rel=0.02)
        assert signal_of(plan) == pytest.approx(expected_signal(plan.study), rel=0.02)


def test_a_score_s_noise_counts_every_attempt() -> None:
    noise = {}
    for attempts in (1, 100):
        method: Any = method_for(study("helmet", attempts=attempts, method={"regularization": 1.0}))
        noise[attempts] = score_noise(method.study, method.learner, method.by_records)
    assert noise[100] == pytest.approx(10.0 * noise[1])


def test_the_budget_is_that_of_the_largest_epsilon_that_noise_is_drawn_for() -> None:
    assert epsilon_for(study("helmet", epsilon=100.0)) == 30.0
    assert budget(study("helmet", epsilon=100.0)) == budget(study("helmet", epsilon=30.0))
    assert budget(study("helmet", attempts=4), attempts=1) == 2.0 * budget(study("helmet", attempts=4))
