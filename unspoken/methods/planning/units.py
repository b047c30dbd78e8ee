"""What a plan's noise promises for another unit than the study's."""

from __future__ import annotations

from dataclasses import replace

from unspoken.methods.planning.plan import Plan
from unspoken.methods.planning.sums import PlannedSum, drawn_by
from unspoken.privacy.accounting import epsilon_of
from unspoken.privacy.events import Gaussian
from unspoken.privacy.integer import LARGEST_PLANNED_EPSILON, slack


def promised_for(plan: Plan, planned: PlannedSum, sensitivity: float, group: int | None) -> float | None:
    """The ε that a sum's noise promises for another unit, of this sensitivity; None if it is above what is proved.

    What the drawing of integers costs in δ grows with ε, and is proved up to `LARGEST_PLANNED_EPSILON`.
    """
    spent = plan.slack
    if sensitivity > planned.sensitivity:
        spent += slack(LARGEST_PLANNED_EPSILON, drawn_by(plan.trust.parties, planned.noisy_numbers))
    event = Gaussian(sensitivity / planned.noise_std, planned.releases)
    found = epsilon_of(replace(plan.spend, events=(event,), group=group, slack=spent), plan.study.privacy.delta)
    return found if found <= LARGEST_PLANNED_EPSILON * (1.0 + 1e-9) else None
