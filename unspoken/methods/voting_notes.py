"""Notes for the plan of a vote."""

from __future__ import annotations

import math
from collections.abc import Iterator

from unspoken.methods.planning import Plan
from unspoken.privacy.integer import LARGEST_PLANNED_EPSILON
from unspoken.privacy.votes import sure_lead, winning_chance


def note_on_leads(parties: int, classes: int, noise: float, given: bool) -> str:
    """The lead with which a label wins almost surely, whoever drops out; or the remark that no lead is enough.

    `noise` is the largest deviation of the noise in a total, and `given` whether the study gives it in place of ε.
    """
    lead = sure_lead(classes, noise, 0.02)
    if lead <= parties:
        return (
            f"a label wins at least 98 times in 100 if it leads every other by {math.ceil(10.0 * lead) / 10.0:,} "
            f"of the {parties:,} votes"
        )
    times = math.floor(100.0 * winning_chance(parties, classes, noise))
    return (
        f"even a label that gets all of the {parties:,} votes wins only {times} times in 100; have more parties, "
        f"or {'lower noise_multiplier' if given else 'raise epsilon, or lower queries'}"
    )


def notes_on_units(plan: Plan) -> Iterator[str]:
    """What the noise promises for the other unit than the study's, and for replaced parties where they are left out."""
    units = plan.facts["epsilon_by_unit"]
    if plan.study.group is None:
        yield f"for one record the same noise promises {_worth_of(units['record'])}"
    else:
        yield f"for all records of one party the same noise promises {_worth_of(units['party'])}"
    if "epsilon_if_replaced" in plan.facts:
        yield (
            "epsilon is for all records of a party that are left out or put in (add-remove); for such as are "
            f"replaced by others the same noise promises {_worth_of(plan.facts['epsilon_if_replaced'])}"
        )


def _worth_of(epsilon: float | None) -> str:
    """What a promise of this ε is, in words that follow "promises"; None: it is above what is proved."""
    if epsilon is None:
        return f"next to nothing: its epsilon is above {LARGEST_PLANNED_EPSILON:g}"
    return f"epsilon = {epsilon:.4g}"
