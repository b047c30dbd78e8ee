"""A simulation on a Ray cluster: the same totals as in one process, from the same secrets."""

from __future__ import annotations

from copy import copy
from importlib.metadata import version
from itertools import count

from unspoken.data.federation import Federation
from unspoken.engines import remembering
from unspoken.engines.attempt import Crowd
from unspoken.engines.cluster.connection import connected
from unspoken.engines.cluster.crowd import ClusterCrowd
from unspoken.engines.cluster.tasks import AttemptPlace
from unspoken.engines.conditions import USUAL, Conditions
from unspoken.engines.outcome import CLUSTER, Outcome
from unspoken.engines.work import Work
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.study import Study

_numbers = count()
"""Of the runs of this process, by which its workers know them"""


def check_study(study: Study) -> None:
    """Refuse a study of real parties: here the secrets of all travel with the tasks."""
    if study.roster is not None:
        raise study.error(
            "roster",
            "names real parties, but on a cluster the secrets of all of them are in one hand; run it with unspoken "
            "serve and join, or take the roster out of a copy of the study to simulate it",
        )


def run(
    method: Method,
    plan: Plan,
    federation: Federation,
    conditions: Conditions = USUAL,
    *,
    address: str | None = None,
    workers: int | None = None,
) -> Outcome:
    """Run a method on a federation, as `engines.local.run` does, on the cluster at an address.

    Without an address, a cluster is started on this machine, with one worker for each core unless `workers` says
    otherwise, and stopped in the end. A lost process or machine of the cluster costs the time to do its tasks again.
    With a journal, a run goes on that ended because all of the cluster was lost.
    """
    check_study(method.study)
    if conditions.progress:
        conditions.progress("connecting to the cluster", 0, federation.parties)
    with connected(address, workers) as cluster:
        # One process may read what another one reads again in the next turn, or after it was lost.
        federation.fix()
        shared, number = cluster.put((_without_secrets(method), plan, federation)), next(_numbers)

        def crowd(work: Work) -> Crowd:
            job = [cluster.put(work.job)]
            return ClusterCrowd(
                work, cluster, AttemptPlace(number, [shared], work.job.attempt, job, version("unspoken"))
            )

        return remembering.run(method, plan, federation, crowd, conditions, CLUSTER)


def _without_secrets(method: Method) -> Method:
    """The method as parties need it: without what is the coordinator's, a curator's or a trainer's own."""
    theirs = copy(method)
    for name in ("secrets", "coordinate"):
        theirs.__dict__.pop(name, None)
    return theirs
