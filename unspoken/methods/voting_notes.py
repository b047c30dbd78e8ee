"""Notes for the plan of a vote."""

from __future__ import annotations

import math

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
