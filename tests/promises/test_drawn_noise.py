"""The noise that is really drawn, measured in what is released: for records that are all zero there is nothing else.

A total of 4,000 numbers shows its deviation to 1.1 %. Five standard errors are allowed: by chance one of these tests
fails less than once in 10⁴ suites, and the secrets are fixed, so it fails always or never.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cases import SUMS

import factories
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream

FEATURES, RECORDS, PARTIES, COLLUDING, DROPOUTS = 4000, 2, 14, 3, 3
ROOM = 5.0 / math.sqrt(2.0 * FEATURES)
KEY = bytes(range(32))
SUMMATIONS: dict[str, dict[str, Any]] = {
    **{name: {"protocol": name} for name in SUMS},
    "some nodes": {"protocol": "compute-nodes", "nodes": 3, "per_party": 2},
}
DROPPED = [(name, drop) for name in SUMMATIONS for drop in ((0,) if name == "pairwise" else (0, 1, DROPOUTS))]
"""Pairwise masks cannot be taken away without those who are gone."""


def measured(name: str, summation: dict[str, Any], drop: int, **method: Any) -> tuple[Any, float]:
    """The plan, and the deviation of the released total."""
    agreed = factories.make(
        name,
        method=method,
        task="statistics",
        data={"features": FEATURES},
        parties={"count": PARTIES, "records": RECORDS, "max_records": RECORDS},
        colluding=COLLUDING,
        dropouts=DROPOUTS,
        summation=summation,
    )
    made = method_for(agreed)
    plan, count = made.plan(), PARTIES * RECORDS
    records = Records(np.zeros((count, FEATURES)), np.zeros(count, dtype=np.int64))
    federation = ArrayFederation(agreed, records, np.arange(count) % PARTIES)
    release = local.run(made, plan, federation, Conditions(drop=drop, secrets=SecretStream(KEY))).release
    means = np.array([column["mean"] for column in release.statistics.values()])
    assert abs(means.mean()) <= 5.0 * means.std() / math.sqrt(FEATURES)
    return plan, float(means.std()) * (PARTIES - drop) * RECORDS


@pytest.mark.parametrize(("summation", "drop"), DROPPED)
def test_a_total_has_the_noise_that_is_stated_and_hides_what_is_planned(summation: str, drop: int) -> None:
    plan, seen = measured("moments", SUMMATIONS[summation], drop)
    planned, sent = plan.sums[0], PARTIES - drop
    assert seen == pytest.approx(planned.total_std(sent), rel=ROOM)
    assert plan.to_json()["releases"][0]["total_noise_std"] == planned.total_std(PARTIES)
    assert seen <= planned.largest_total_std * (1.0 + ROOM)
    # The adversary knows the colluders' shares, and some parties may have been left out unseen.
    honest = (sent - plan.trust.withheld - COLLUDING) / sent
    assert seen * math.sqrt(honest) >= planned.noise_std * (1.0 - ROOM)


@pytest.mark.parametrize("summation", ["secagg+", "compute-nodes", "some nodes"])
def test_noise_in_common_goes_but_for_that_of_parties_which_vanish(summation: str) -> None:
    for drop in (0, 1):
        plan, seen = measured("cape", SUMMATIONS[summation], drop, order="noise-first")
        assert seen == pytest.approx(plan.sums[0].total_std(PARTIES - drop, PARTIES), rel=ROOM)


@pytest.mark.parametrize("summation", ["secagg+", "compute-nodes", "some nodes"])
def test_noise_in_common_goes_whoever_vanishes_if_it_is_added_up_after_the_messages(summation: str) -> None:
    for drop in (0, DROPOUTS):
        plan, seen = measured("cape", SUMMATIONS[summation], drop)
        assert seen == pytest.approx(math.sqrt((PARTIES - drop) / PARTIES) * plan.sums[0].total_std(PARTIES), rel=ROOM)
        assert seen <= plan.sums[0].largest_total_std * (1.0 + ROOM)
