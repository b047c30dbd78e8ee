"""All parties in one process, a block at a time: for simulation, for tests, and for the demo."""

from __future__ import annotations

from unspoken.data.federation import Federation
from unspoken.engines import remembering
from unspoken.engines.attempt import Crowd
from unspoken.engines.conditions import USUAL, Conditions
from unspoken.engines.outcome import Outcome
from unspoken.engines.processes import tallier_processes
from unspoken.engines.threads import ThreadedCrowd
from unspoken.engines.work import Work
from unspoken.methods.base import Method, Vote
from unspoken.methods.planning import Plan

_ENGINE = "local: all parties in one process"


def run(
    method: Method,
    plan: Plan,
    federation: Federation,
    conditions: Conditions = USUAL,
    *,
    processes: bool = False,
) -> Outcome:
    """Run a method on a federation.

    With `processes`, each tallier of a vote is a process of its own: if one dies or hangs, the run ends in `Aborted`
    within the study's deadline.
    """

    def crowd(work: Work) -> Crowd:
        return ThreadedCrowd(work, tallier_processes if processes and isinstance(work.job.request, Vote) else None)

    return remembering.run(method, plan, federation, crowd, conditions, _ENGINE)
