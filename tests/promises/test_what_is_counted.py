"""What a plan counts in its promise, computed again: parties that may be left out, and random choices in many
attempts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import factories
from small_studies import federation_of, public_file, small
from unspoken.engines import local
from unspoken.methods.planning import DeclaredSum, mechanisms
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.planning.making import setting_of
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.registry import method_for
from unspoken.noise.discrete_gaussian import DISTANCE
from unspoken.noise.schedule import COMPONENTS
from unspoken.noise.stream import SecretStream
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.summation.base import Openable, Session
from unspoken.summation.compute_nodes import ComputeNodes
from unspoken.summation.graph import CircleGraph, Degree
from unspoken.summation.secagg import Options, SecAggPlus


def study(parties: int, colluding: int, dropouts: int, method: str = "helmet", **summation: Any) -> Any:
    return factories.make(
        method,
        task="statistics" if method == "cape" else "classification",
        parties={"count": parties, "records": 10, "max_records": 10},
        delta=1e-5,
        colluding=colluding,
        dropouts=dropouts,
        summation=summation,
    )


@pytest.mark.parametrize(
    ("parties", "colluding", "dropouts", "nodes", "per_party", "withheld"),
    [(14, 1, 1, 3, 2, 0), (20, 3, 2, 5, 4, 0), (20, 3, 2, 3, 3, 4)],
)
def test_correlated_noise_counts_those_whom_a_coordinator_may_leave_out(
    parties: int,
    colluding: int,
    dropouts: int,
    nodes: int,
    per_party: int,
    withheld: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the sum of the common noise: nobody at compute nodes, and as many as the protocol says. The adversary sees
    the messages of the h honest parties that are left, and the sum of their common noise: μ by the inverse of that
    covariance, whose formula is written again here."""
    if withheld:
        fewest = Openable(parties - dropouts - withheld)
        monkeypatch.setattr(ComputeNodes, "openable", lambda self, colluding: fewest)
    agreed = study(parties, colluding, dropouts, "cape", protocol="compute-nodes", nodes=nodes, per_party=per_party)
    plan = method_for(agreed).plan()
    planned = plan.sums[0]
    assert isinstance(planned.noise, CorrelatedNoise)
    honest = parties - dropouts - withheld - max(colluding, 1)
    common, own = planned.noise.common - 2.0 * LOST_VARIANCE, planned.noise.own - 3.0 * LOST_VARIANCE
    covariance = common * (np.eye(honest) - 1.0 / honest) + own * np.eye(honest)
    mu = math.sqrt(np.linalg.inv(covariance)[0, 0]) * planned.sensitivity * planned.encoding.scale
    assert mu == pytest.approx(planned.mu, rel=1e-6)
    # What is stated after a run allows for it as well.
    told = plan.guarantee_after({"function": [Participation(parties - dropouts, parties - dropouts)]})
    assert told.epsilon == pytest.approx(epsilon_of(mu, 1e-5 - plan.slack), rel=1e-6)
    assert told.epsilon == pytest.approx(plan.guarantee.epsilon, rel=1e-6)


def test_a_promise_of_one_s_own_counts_those_whom_a_coordinator_may_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, where the first party asked for a fifth of everyone's ε, and has noise of its own size."""
    parties, known, dropouts, withheld = 20, 3, 2, 4
    monkeypatch.setattr(ComputeNodes, "openable", lambda self, colluding: Openable(parties - dropouts - withheld))
    agreed = factories.make(
        task="statistics",
        parties={"count": parties, "records": 10, "max_records": 10},
        delta=1e-5,
        colluding=known,
        dropouts=dropouts,
        method={"name": "cape", "epsilons": [0.2] + [1.0] * (parties - 1)},
        summation="compute-nodes",
    )
    plan = method_for(agreed).plan()
    planned, honest = plan.sums[0], parties - dropouts - withheld - known
    assert isinstance(planned.noise, CorrelatedNoise)
    variances = np.array([planned.noise.variances(party) for party in range(honest)]) - [
        2.0 * LOST_VARIANCE,
        3.0 * LOST_VARIANCE,
    ]
    common = variances[:, 0]
    covariance = np.diag(variances.sum(axis=1)) - np.outer(common, common) / common.sum()
    mu = math.sqrt(np.linalg.inv(covariance)[0, 0]) * planned.sensitivity * planned.encoding.scale
    assert plan.facts["promises"][0]["epsilon"] == pytest.approx(epsilon_of(mu, 1e-5 - plan.slack), rel=1e-6)
    assert plan.guarantee_for(0).epsilon == pytest.approx(0.2, rel=2e-3)
    assert plan.guarantee_for(0).epsilon <= 0.2 * (1.0 + 1e-9)


@pytest.mark.parametrize(("method", "protocol"), [("helmet", "secagg"), ("cross-silo", "secagg"), ("conv", "ideal")])
def test_every_number_that_any_party_draws_is_counted(
    method: str, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In δ, and in what a ledger is told: the noise of all parties, sums and turns, with all its components.

    Noise that is opened is drawn again, by the coordinator: that is the same noise."""
    drawn, draw = 0, mechanisms.sample

    def counted(sigma: float, count: int, stream: SecretStream) -> Any:
        nonlocal drawn
        drawn += count
        return draw(sigma, count, stream)

    monkeypatch.setattr(mechanisms, "sample", counted)
    monkeypatch.setattr(mechanisms.NoiseShares, "opened", lambda self, dimension, *_: np.zeros(dimension, np.uint64))
    # So many may drop out that a share has all the components that a schedule can have.
    agreed = small(public_file(tmp_path), method, "classification", summation=protocol, dropouts=1, colluding=1)
    plan = method_for(agreed).plan()
    components = {len(planned.noise.schedule.components) if planned.noise.schedule else 0 for planned in plan.sums}
    assert components == ({COMPONENTS} if protocol == "secagg" else {0})
    local.run(method_for(agreed), plan, federation_of(agreed))
    # Of noise that is not made of components as much is counted as if it were.
    samples = drawn if protocol == "secagg" else (1 + COMPONENTS) * drawn
    assert plan.ledger_run("run").distance == pytest.approx(samples * DISTANCE, rel=1e-6, abs=0.0)
    assert plan.slack == pytest.approx((1.0 + math.exp(2.0)) * samples * DISTANCE, rel=1e-6, abs=0.0)


def test_every_secure_sum_throws_the_dice_of_its_graph_again() -> None:
    """A thousand sums cost a thousand times the chance that one of them opens too much."""
    once, often = (
        setting_of(study(1000, 500, 50, protocol="secagg+"), [DeclaredSum("model", 1, 1.0, 1.0, count=count)])
        for count in (1, 1000)
    )
    session = Session("digest", "model", 1000, 500, 950, 1, 64)
    exposure = SecAggPlus(session, Options()).openable(500).exposure
    assert exposure > 0.0
    assert once.slack >= exposure
    assert often.slack - once.slack >= 999 * exposure * (1.0 - 1e-9)
    assert often.slack <= 1000 * once.slack * (1.0 + 1e-9)


def test_honest_survivors_are_cut_off_from_each_other_no_more_often_than_is_counted() -> None:
    """Five colluders can unmask nobody where seven shares are needed. But with 15 dropouts more, the masks of the rest
    may fall apart: in 2,000 random graphs. Five standard deviations of room (false alarm below 1e-6)."""
    parties, missing, degree = 60, 20, Degree(8, 7)
    session = Session("digest", "model", parties, 5, parties - 15, 1, 64)
    protocol = SecAggPlus(session, Options(coordinator="curious"))
    protocol.graph = graph = CircleGraph(parties, degree)
    stated, rng = protocol.openable(5).exposure, np.random.default_rng(0)
    falls = [
        _falls_apart(rng.permutation(parties)[missing:].tolist(), graph, f"attempt {number}") for number in range(2000)
    ]
    seen = float(np.mean(falls))
    room = 5.0 * math.sqrt(seen * (1.0 - seen) / len(falls))
    assert 0.0 < seen - room <= stated < 1.0


def _falls_apart(there: list[int], graph: CircleGraph, label: str) -> bool:
    left, reached = set(there), [there[0]]
    left.remove(there[0])
    while reached:
        around = left & set(graph.neighbours(reached.pop(), label))
        left -= around
        reached += around
    return bool(left)


def test_more_colluders_than_planned_cost_delta_before_they_cost_everything() -> None:
    """Where the graph's dice fail them more often, but still less often than δ, what is left of δ has a larger ε."""
    plan = method_for(study(1000, 500, 50, protocol="secagg+", coordinator="curious")).plan()
    planned, protocol = plan.sums[0], plan.protocol(plan.sums[0])
    # The dice are thrown in each of the attempts that may be begun.
    chances = {count: (1 + FREE_ATTEMPTS) * protocol.openable(count).exposure for count in range(500, 700)}
    colluding, chance = next((count, chance) for count, chance in chances.items() if chance > 0.2 * 1e-5)
    assert chance < 0.9 * 1e-5
    # The survivors' noise without the colluders'.
    variance = planned.noise.schedule.kept(950) * (950 - colluding) - LOST_VARIANCE
    mu = planned.sensitivity * planned.encoding.scale / math.sqrt(variance)
    drawing = plan.slack - chances[500]
    row = plan._weakened(protocol, colluding)
    assert not row["alone"]
    assert row["epsilon"] == pytest.approx(epsilon_of(mu, 1e-5 - drawing - chance), rel=1e-9)
    assert row["epsilon"] > 1.001 * epsilon_of(mu, 1e-5 - plan.slack)
