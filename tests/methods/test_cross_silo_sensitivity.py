"""How far one record moves a sum of clipped gradients, also through a projection and after rounding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from silos import KEY, study
from unspoken.arithmetic import floating_point_slack
from unspoken.data.block import Block
from unspoken.learners.projected_gradients import BeforeProjection
from unspoken.learners.random_projection import projected_bound
from unspoken.methods.base import PartyContext, Sum
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.planning import DeclaredSum
from unspoken.methods.planning.budget import trust_of
from unspoken.methods.planning.making import Setting, plan_sum
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.study import make_study


class Curved(nn.Module):
    """A model that is more than linear layers."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(features)), nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(rows * self.scale)
        return scores


def contribution(
    method: CrossSilo, features: np.ndarray, labels: np.ndarray, weights: np.ndarray, turn: int = 0
) -> Any:
    """What a party with these records contributes in a round in which all take part."""
    block = Block(features[None], labels[None], np.array([len(labels)]))
    return method.contribute(Sum("gradient", weights, turn), block, [PartyContext(SecretStream(KEY))]).noisy[0]


@pytest.mark.parametrize("projection", [{}, {"projection": 7}])
@pytest.mark.parametrize(
    "model", [{"model": "linear"}, {"model": "mlp", "hidden": [5]}, {"model": f"{__name__}:Curved"}]
)
def test_replacing_a_record_moves_a_contribution_by_twice_the_clip_at_most_and_can_reach_it(
    model: dict[str, Any], projection: dict[str, Any]
) -> None:
    """Random pairs, and an attack: a label that is flipped where both are as likely turns the gradient round."""
    clip = 0.01
    method = CrossSilo(study({**model, **projection, "rate": 1.0, "rounds": 5, "clip": clip}))
    rng, weights = np.random.default_rng(0), method.workload.model.initial()
    largest = 0.0
    for turn, attack in itertools.product(range(5), (False, True)):
        features, labels = rng.normal(size=(10, 4)) * 3, rng.integers(2, size=10)
        other, flipped = features.copy(), labels.copy()
        flipped[3] = 1 - flipped[3]
        if not attack:
            other[3] = rng.normal(size=4) * 10
        # All scores equal: the last layer (its weights are the last 2·k + 2) says nothing yet.
        here = (
            weights * (np.arange(len(weights)) < len(weights) - (12 if "hidden" in model else 10))
            if attack
            else weights
        )
        one, two = contribution(method, features, labels, here, turn), contribution(method, other, flipped, here, turn)
        distance = float(np.linalg.norm(one - two))
        assert distance <= 2 * clip * (1 + 1e-5)
        largest = max(largest, distance)
    assert largest > 0.95 * 2 * clip


def test_gaussian_projections_exceed_their_bound_as_rarely_as_stated() -> None:
    """With δ' = 0.05 in 1,000 turns: 50 expected, and 80 never by chance (P < 1e-4). The plan's δ' is never seen."""
    clip, size = 0.01, 6
    agreed = study({"projection": size, "projection_kind": "gaussian", "rate": 1.0, "rounds": 50, "clip": clip})
    method = CrossSilo(agreed)
    plan, weights = method.plan(), method.workload.model.initial()
    features, labels = np.full((1, 4), 3.0), np.array([1])
    loose = BeforeProjection(method.workload.model, clip, size, 0, 0.05)
    norms = np.array([
        np.linalg.norm(loose.sums(weights, features, labels, np.array([1]), turn)) for turn in range(1000)
    ])  # fmt: skip
    assert 25 < (norms > loose.bound).sum() < 80
    assert norms.max() < plan.sums[0].contribution
    # Half of a hundredth of δ is shared among rounds, twice each for a replaced record.
    assert method.workload.projection.bound == pytest.approx(projected_bound(clip, size, 1e-5 * 0.01 / 100))
    assert plan.sums[0].sampling.slack == pytest.approx(1e-7)
    assert any("nobody chose records by the seed" in note for note in plan.notes)
    assert "nobody chose records by the seed of the projection" in plan.guarantee.assumptions
    assert (np.mean(norms**2)) == pytest.approx(clip**2, rel=0.1)


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
@pytest.mark.parametrize(("parties", "rate"), [((1_000, 1_000), 1.0), ((1_000, 100_000), 0.01), ((10, 10**6), 0.5)])
def test_the_words_of_a_total_hold_the_largest_batch(parties: tuple[int, int], rate: float, sampling: str) -> None:
    """Records that all pull the same way, in a batch that is larger than expected by eight deviations."""
    clip, everyone = 2.0, parties[0] * parties[1]
    method = {"rounds": 10, "rate": rate, "clip": clip, "sampling": sampling}
    planned = method_for(study(method, parties, noise_multiplier=3.0)).plan().sum_named("gradient")
    batch = everyone * rate + (8.0 * math.sqrt(everyone * rate * (1.0 - rate)) if sampling == "poisson" else 0.0)
    noise = 8.0 * planned.total_std(parties[0])
    assert (clip * batch + noise) * planned.encoding.scale < 2.0 ** (planned.encoding.bits - 1)


@pytest.mark.parametrize(("records", "group"), [(100, 1), (10**8, 1), (10**8, 2)])
def test_what_floating_point_adds_to_the_sensitivity_is_counted(records: int, group: int) -> None:
    """Once for each party that neighbours differ at, and in proportion to all that a party adds up."""
    content = study({"rounds": 1, "rate": 1e-3, "clip": 2.0}, (3, records)).model_dump(exclude_none=True)
    rows = 1024
    if group == 1:
        planned = method_for(make_study(content)).plan().sum_named("gradient")
    else:
        content |= {"method": {"name": "helmet"}, "privacy": {"epsilon": 1.0, "delta": 1e-5, "unit": {"group": group}}}
        agreed = make_study(content)
        declared = DeclaredSum("any", 10, 2.0 * records, 2.0, rows=rows)
        planned = plan_sum(agreed, Setting(trust_of(agreed)), declared, 1.0)
    rounding = group * planned.encoding.rounding(planned.dimension) / planned.encoding.scale
    off = group * floating_point_slack(records, rows) * 2.0 * records
    assert planned.contribution - rounding == pytest.approx(2.0 + off, rel=1e-9, abs=0.0)
    assert planned.sensitivity == planned.contribution * (2 if group == 1 else 1)
    assert (off > 1e-3) == (records == 10**8)
