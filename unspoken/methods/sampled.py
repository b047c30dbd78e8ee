"""Plans for training in rounds on random parts of the records: their accounting is numerical (`privacy.subsampled`).

The noise multiplier σ is what is left of the total's noise after colluders and dropouts, over the clipping norm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from unspoken.methods.mechanisms import Shares, Turnout
from unspoken.methods.plan import (
    DeclaredSum,
    Plan,
    PlannedSum,
    cautions,
    check_kept,
    plan_sum,
    seen_of,
    setting_of,
)
from unspoken.privacy import integer
from unspoken.privacy.guarantee import Guarantee
from unspoken.privacy.subsampled import (
    Adjacency,
    Rounds,
    Sampling,
    delta_of,
    epsilon_of,
    noise_multiplier_for,
)
from unspoken.study import Study


@dataclass(frozen=True)
class Schedule:
    """How records are sampled, and what that costs in δ beside the accountant's own."""

    rate: float
    """The chance of an honest record to be in a round's batch"""
    sampling: Sampling = "poisson"
    slack: float = 0.0
    steps: int = 1
    """How many noisy sums there are in a round"""
    rate_if: Callable[[int], float] | None = None
    """The rate if so many parties collude, where it depends on them"""
    upload: int = 0
    """What a party sends in a round for the sampling itself"""


@dataclass(frozen=True)
class SampledPlan(Plan):
    """A plan whose one sum is asked for in many rounds, each on a random part of the records."""

    schedule: Schedule = Schedule(1.0)

    @property
    def rounds_sum(self) -> PlannedSum:
        return self.sums[0]

    @property
    def noise_multiplier(self) -> float:
        return self.rounds_sum.noise_std / self.rounds_sum.sensitivity

    @cached_property
    def upload_bytes(self) -> int:
        return super().upload_bytes + self.rounds_sum.count * self.schedule.upload

    def released(self, turnouts: dict[str, list[Turnout]]) -> Guarantee:
        planned = self.rounds_sum
        if not isinstance(planned.noise, Shares):
            return self.guarantee
        noises = Counter(1.0 / planned.released_mu(turnout) for turnout in turnouts[planned.name])
        rounds = [Rounds(noise, self.schedule.rate, count) for noise, count in sorted(noises.items())]
        spent = epsilon_of(rounds, self._delta, self._adjacency, self.schedule.sampling)
        check_kept(spent, self.guarantee.epsilon)
        return replace(self.guarantee, epsilon=min(self.guarantee.epsilon, spent))

    def _epsilon_if(self, hidden: Sequence[float], delta: float, known: int) -> float:
        planned, schedule = self.rounds_sum, self.schedule
        noise = math.sqrt(hidden[0]) / (planned.encoding.scale * planned.sensitivity)
        rate = schedule.rate if schedule.rate_if is None else schedule.rate_if(known)
        rounds = [Rounds(noise, rate, planned.count * schedule.steps)]
        return epsilon_of(rounds, delta, self._adjacency, schedule.sampling, fine=False)

    @property
    def _delta(self) -> float:
        return self.study.privacy.delta - self.slack

    @property
    def _adjacency(self) -> Adjacency:
        return self.study.privacy.adjacency

    def to_json(self) -> dict[str, Any]:
        content = super().to_json()
        # A replaced record takes one contribution away and brings another.
        for release in content["releases"]:
            release["sensitivity"] *= 2.0 if self._adjacency == "replace" else 1.0
        return content | {
            "noise_multiplier": self.noise_multiplier,
            "sampling": {"kind": self.schedule.sampling, "rate": self.schedule.rate},
        }


_ENCLAVED_BATCHES = ("a party does not know either which of its own records are in a batch",)


def make_sampled_plan(
    study: Study,
    method: str,
    declared: DeclaredSum,
    schedule: Schedule,
    notes: tuple[str, ...] = (),
    assumptions: tuple[str, ...] = (),
) -> SampledPlan:
    """Noise for a wanted ε, or the ε of a wanted noise. `declared.sensitivity` is a record's largest contribution."""
    adjacency, delta, rounds = study.privacy.adjacency, study.privacy.delta, declared.count * schedule.steps
    if schedule.sampling == "without-replacement" and adjacency != "replace":
        raise study.error("privacy.adjacency", 'is "add-remove", but batches of fixed size protect replaced records')
    setting = setting_of(study, [declared])
    trust, slack = setting.trust, setting.slack + schedule.slack
    if slack >= delta:
        raise study.error(
            "privacy.delta",
            f"is {delta:g}, but the summation, the drawing of noise and the sampling already cost {slack:.1g}; choose "
            "a larger delta",
        )
    noise = study.privacy.noise_multiplier
    if noise is None:
        epsilon = min(study.epsilon, integer.LARGEST_EPSILON)
        noise = noise_multiplier_for(epsilon, delta - slack, schedule.rate, rounds, adjacency, schedule.sampling)
    planned = plan_sum(study, trust, declared, 1.0 / noise, setting.opens_noise)
    spent = epsilon_of([Rounds(1.0 / planned.mu, schedule.rate, rounds)], delta - slack, adjacency, schedule.sampling)
    if study.privacy.epsilon is not None:
        check_kept(spent, study.privacy.epsilon)
    success = delta_of([Rounds(1.0 / planned.mu, schedule.rate, rounds)], 0.0, adjacency, schedule.sampling)
    hidden_batches = trust.enclaves and schedule.sampling == "without-replacement"
    guarantee = Guarantee(
        epsilon=spent if study.privacy.epsilon is None else min(spent, study.privacy.epsilon),
        delta=delta,
        group=study.group,
        trust=trust,
        mu=None,
        assumptions=setting.assumptions + (_ENCLAVED_BATCHES if hidden_batches else ()) + assumptions,
        adjacency=adjacency,
        seen=seen_of([declared]),
        advantage=success,
        slack=slack,
    )
    plan = SampledPlan(study, method, (planned,), guarantee, slack, notes, schedule=schedule)
    return replace(plan, notes=notes + setting.notes + cautions(plan))
