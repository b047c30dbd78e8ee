"""All parties in one process, a block at a time: for simulation, for tests, and for the demo."""

from __future__ import annotations

from unspoken.data.federation import Federation
from unspoken.engines import answering
from unspoken.engines.answering import Answering
from unspoken.engines.exchange import Crowd
from unspoken.engines.journal import Journal
from unspoken.engines.outcome import Outcome, Progress, vanishing_parties
from unspoken.engines.processes import tallier_processes
from unspoken.engines.remembering import Remembered
from unspoken.engines.threads import ThreadedCrowd
from unspoken.engines.work import Work
from unspoken.methods.base import Method, Vote
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream

_ENGINE = "local: all parties in one process"


def run(
    method: Method,
    plan: Plan,
    federation: Federation,
    *,
    drop: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    secrets: SecretStream | None = None,
    journal: Journal | None = None,
    processes: bool = False,
) -> Outcome:
    """Run a method on a federation. `drop` parties, chosen by the public seed, vanish while they send.

    `secrets` is the source of all secret randomness: the operating system, unless a test injects a stream. With a
    `journal`, which has a source of its own, an interrupted run resumes where it stopped. With `processes`, each
    tallier of a vote is a process of its own: if one dies or hangs, the run ends in `Aborted` within the study's
    deadline.
    """

    def crowd(work: Work) -> Crowd:
        return ThreadedCrowd(work, tallier_processes if processes and isinstance(work.job.request, Vote) else None)

    vanishing = vanishing_parties(federation.parties, drop, seed)
    running = Answering(method, plan, federation, crowd, vanishing, progress)
    return answering.run(running, Remembered(running, journal, secrets or SecretStream()).answer, _ENGINE)
