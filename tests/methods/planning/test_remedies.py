"""A study that is refused for its numbers is told which would do: following that literally works, and nothing less."""

from __future__ import annotations

import re
from typing import Any

import pytest

import unspoken
from unspoken.study.explaining import StudyError

PROTOCOLS: list[dict[str, Any]] = [
    {"protocol": "secagg"},
    {"protocol": "secagg", "coordinator": "curious"},
    {"protocol": "secagg+"},
    {"protocol": "pairwise"},
    {"protocol": "compute-nodes"},
]


def refusal(parties: int, colluding: float, dropouts: float, summation: dict[str, Any]) -> str | None:
    """What a plan says against these numbers."""
    study = {
        "study": {"name": "numbers", "task": "classification"},
        "data": {"features": 3, "norm": 1.0, "classes": 2},
        "parties": {"count": parties, "records": 50},
        "privacy": {"epsilon": 1.0, "delta": 1e-5, "colluding": colluding, "dropouts": dropouts},
        "method": {"name": "helmet", "regularization": 0.1},
        "summation": summation,
    }
    try:
        unspoken.plan(study)
    except StudyError as error:
        return str(error)
    return None


@pytest.mark.parametrize("summation", PROTOCOLS, ids=lambda summation: "-".join(summation.values()))
@pytest.mark.parametrize("parties", [2, 3, 5, 12])
def test_every_remedy_works_as_it_stands(parties: int, summation: dict[str, Any]) -> None:
    numbers = sorted({0, 1, parties // 3, parties - 2, parties - 1, parties, 3 * parties})
    for colluding in [*numbers, 0.9]:
        for dropouts in [*numbers, 0.4]:
            if (said := refusal(parties, colluding, dropouts, summation)) is not None:
                follow(said.rpartition(";")[2], parties, colluding, dropouts, summation)


def follow(said: str, parties: int, colluding: float, dropouts: float, summation: dict[str, Any]) -> None:
    found = {key: int(value) for key, value in re.findall(r"set .*?(dropouts|colluding) = (\d+)", said)}
    if both := re.search(r"set dropouts = (\d+) and colluding = (\d+)", said):
        assert refusal(parties, int(both[2]), int(both[1]), summation) is None, said
    else:
        for key, number in found.items():
            # The largest that works.
            for value, works in ((number, True), (number + 1, False)):
                changed = {"colluding": colluding, "dropouts": dropouts, key: value}
                assert (refusal(parties, **changed, summation=summation) is None) == works, (said, changed)
    more = re.search(r"have (\d+) parties \(with colluding = (\d+) and dropouts = (\d+)\)", said)
    if more:
        assert refusal(int(more[1]), int(more[2]), int(more[3]), summation) is None, said
        assert refusal(int(more[1]) - 1, int(more[2]), int(more[3]), summation) is not None, said
    if '"compute-nodes"' in said:
        assert refusal(parties, colluding, dropouts, {"protocol": "compute-nodes"}) is None, said
    if '"curious"' in said:
        assert refusal(parties, colluding, dropouts, {**summation, "coordinator": "curious"}) is None, said
    assert both or found or more, said
