"""Small studies of cross-silo training, their records, and what a run of them releases."""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from factories import make
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.planning import mechanisms
from unspoken.noise.stream import SecretStream
from unspoken.study import Study

KEY = bytes(range(32))


def study(
    method: dict[str, Any] | None = None,
    parties: tuple[int, int] = (3, 10),
    features: int = 4,
    classes: int = 2,
    data: dict[str, Any] | None = None,
    task: str = "classification",
    summation: str = "compute-nodes",
    **privacy: Any,
) -> Study:
    """`parties` of as many records each; without an epsilon the noise multiplier is 4."""
    count, records = parties
    labels = {"classes": classes} if task == "classification" else {"label_bounds": [-1, 1]}
    return make(
        task=task,
        data={"features": features, "norm": 10.0, **labels, **(data or {})},
        parties={"count": count, "records": records, "max_records": records},
        method={"name": "cross-silo", **(method or {})},
        summation=summation,
        **{"delta": 1e-5, **({} if "epsilon" in privacy else {"noise_multiplier": 4.0}), **privacy},
    )


def records_for(agreed: Study, seed: int = 0) -> tuple[Records, np.ndarray]:
    rng, count = np.random.default_rng(seed), agreed.parties.count * agreed.parties.records
    if agreed.study.task == "regression":
        labels: np.ndarray = rng.uniform(-1, 1, count)
    else:
        labels = rng.integers(len(agreed.data.class_names), size=count)
    groups = np.arange(count) % agreed.parties.count
    return Records(rng.normal(size=(count, agreed.data.raw_dimension)), labels), groups


def run(method: Any, plan: Any = None, seed: int = 0, **options: Any) -> local.Outcome:
    agreed = method.study
    federation = ArrayFederation(agreed, *records_for(agreed, seed))
    return local.run(method, plan or method.plan(), federation, Conditions(secrets=SecretStream(KEY), **options))


def totals_of(method: CrossSilo) -> list[np.ndarray]:
    """The totals of a run to come, as the coordinator sees them."""
    totals: list[np.ndarray] = []
    projection: Any = method.workload.projection
    lift = projection.lift
    projection.lift = lambda total, turn: (totals.append(total), lift(total, turn))[1]
    return totals


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise."""
    monkeypatch.setattr(mechanisms, "sample", lambda deviation, count, stream: np.zeros(count, dtype=np.int64))


def accountant(sigma: float, rate: float, rounds: int, adjacency: str) -> PLDAccountant:
    """dp-accounting's, on a grid that is coarser than ours by far, and so somewhat above."""
    relation = dp_accounting.NeighboringRelation
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    kind = relation.REPLACE_ONE if adjacency == "replace" else relation.ADD_OR_REMOVE_ONE
    return PLDAccountant(kind, value_discretization_interval=1e-3).compose(event, rounds)


FIXED = {"sampling": "without-replacement", "rounds": 4, "rate": 0.3}
