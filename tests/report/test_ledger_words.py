"""What a party is told that a study has cost, beside what was promised and what the certificate says."""

from __future__ import annotations

from typing import Any

import pytest

from factories import make
from unspoken.methods.planning import Plan
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger, OverLimit
from unspoken.report.ledger import spent_line, summary
from unspoken.study import make_study

PRIVACY = {"epsilon": 1.0, "delta": 1e-6, "colluding": 1, "dropouts": 1, "attempts": 2}


@pytest.fixture(scope="module")
def plan() -> Plan:
    content = {
        "study": {"name": "words", "task": "classification"},
        "data": {"features": 3, "norm": 1.0, "classes": 2},
        "parties": {"count": 6, "records": 50},
        "privacy": PRIVACY,
        "method": {"name": "helmet"},
        "summation": {"protocol": "secagg+"},
    }
    return plan_for(make_study(content))


def happened(epsilon: float) -> dict[str, Any]:
    return {"happened": {"epsilon": epsilon}}


def test_a_study_that_cost_what_it_promised_needs_no_more_words(plan: Plan) -> None:
    cost = {"vectors": 2, "epsilon": 1.0, "delta": 1e-6}
    assert spent_line(cost, plan, happened(1.0)) == "epsilon = 1 at delta = 1e-06 in this study."


def test_fewer_vectors_than_the_promise_covers_are_counted(plan: Plan) -> None:
    told = spent_line({"vectors": 1, "epsilon": 0.7, "delta": 1e-6}, plan, None)
    assert told == "epsilon = 0.7 at delta = 1e-06 in this study, by 1 of the 2 vectors that the promise covers."


def test_a_certificate_that_says_less_is_explained(plan: Plan) -> None:
    told = spent_line({"vectors": 2, "epsilon": 1.0, "delta": 1e-6}, plan, happened(0.9))
    assert "; the certificate says 0.9, by the noise of all who took part; a ledger counts on no more noise" in told


def test_a_certificate_that_says_more_is_explained_by_the_vectors_that_others_have_sent(plan: Plan) -> None:
    """A party that was away for some rounds, or whose sum was tried again without it."""
    told = spent_line({"vectors": 1, "epsilon": 0.7, "delta": 1e-6}, plan, happened(0.9))
    assert told.endswith("that the promise covers; the certificate says 0.9, of parties that have sent more vectors.")


def test_another_delta_than_that_of_the_promise_is_named(plan: Plan) -> None:
    told = spent_line({"vectors": 2, "epsilon": None, "delta": 1e-9}, plan, happened(1.0))
    assert told == "epsilon = infinite at delta = 1e-09 in this study; the promise states epsilon at delta = 1e-06."


def test_what_still_fits_is_told_for_the_noise_that_it_is_computed_for() -> None:
    """Pure epsilon adds up, so that a study of as much epsilon by Laplace noise does not fit."""
    account = Ledger()
    account.set_limit(3.0, 1e-5)

    def charge(method: str, epsilon: float) -> None:
        plan = plan_for(make(method, parties={"count": 20, "records": 50}, epsilon=epsilon, delta=1e-5))
        account.charge(plan.ledger_run(method), "first", plan.costs)

    charge("helmet", 1.5)
    epsilon, _, told = summary(account).rpartition("a study of epsilon = ")[2].partition(" ")
    assert told == "by Gaussian noise still fits."
    with pytest.raises(OverLimit):
        charge("dp-fm", float(epsilon))
    charge("moments", float(epsilon))
