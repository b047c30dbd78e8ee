"""At the same ε, a promise about records that are left out is the weaker one: a policy must say that it allows it."""

from __future__ import annotations

from typing import Any

import pytest

from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.policy import refusal
from unspoken.study import make_study
from unspoken.study.policy import Policy
from unspoken.summation.keys import Identity

KEYS = [Identity(bytes([number]) * 32).public.hex() for number in range(6)]


def policy(**limits: Any) -> Policy:
    return Policy.model_validate(
        {
            "coordinators": {"hub": KEYS[5]},
            "parties": {f"party {index}": key for index, key in enumerate(KEYS[:5])},
            "studies": {"methods": ["cross-silo"], "protocols": ["secagg"]},
            "data": {"features": 4},
            "limits": {"epsilon": 1.0, "delta": 1e-5, "total_epsilon": 9.0, "parties": 5, "unit": "record", **limits},
        }
    )


@pytest.mark.parametrize(
    ("adjacency", "limits", "is_allowed"),
    [
        ("replace", {}, True),
        ("add-remove", {}, False),
        ("add-remove", {"adjacency": "replace"}, False),
        ("add-remove", {"adjacency": "add-remove"}, True),
        ("replace", {"adjacency": "add-remove"}, True),
    ],
)
def test_a_study_about_left_out_records_needs_a_policy_that_says_so(
    adjacency: str, limits: dict[str, str], is_allowed: bool
) -> None:
    study = make_study(
        {
            "study": {"name": "wards", "task": "classification"},
            "data": {"features": 4, "classes": 2},
            "parties": {"count": 5, "records": 40},
            "privacy": {"epsilon": 1.0, "delta": 1e-5, "adjacency": adjacency},
            "method": {"name": "cross-silo", "rounds": 5, "rate": 0.1, "sampling": "poisson"},
            "summation": {"protocol": "secagg"},
            "roster": {"parties": KEYS[:5], "coordinator": KEYS[5]},
        }
    )
    found = refusal(policy(total_delta=1e-4, **limits), plan_for(study), Ledger(), 0)
    assert found is None if is_allowed else "[limits] adjacency" in (found or "")
