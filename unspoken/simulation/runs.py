"""One run of a study with all parties in one place: from bounded records to a release, its metrics and certificate."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path
from typing import Any

import msgspec

from unspoken import interrupts
from unspoken.data.federation import BLOCK_PARTIES, ArrayFederation, Federation
from unspoken.data.files import DataError, Records
from unspoken.data.folders import FolderFederation
from unspoken.engines import local
from unspoken.engines.cluster import connection
from unspoken.engines.cluster import engine as cluster
from unspoken.engines.conditions import Conditions, Progress
from unspoken.engines.journal import Journal
from unspoken.engines.outcome import Outcome
from unspoken.engines.signing import canonical
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.methods.registry import answerable, method_for
from unspoken.privacy.ledger import Ledger
from unspoken.report import results
from unspoken.report.certificate import certificate, check_details
from unspoken.report.results import ResultFile
from unspoken.study import Study
from unspoken.summation.registry import protocol_of
from unspoken.types import Integers

LOCAL, RAY = "local", "ray"
"""Where a simulation can run: in this process, or on a cluster"""


@dataclass(frozen=True)
class RunSettings:
    """How a study is simulated."""

    drop: int = 0
    """The number of parties that vanish"""
    seed: int = 0
    """The public seed of who vanishes"""
    progress: Progress | None = None
    checkpoint: Path | None = None
    """A file from which an interrupted run resumes"""
    private_analysis: bool = False
    processes: bool = False
    """Each tallier of a vote in its own process"""
    ledger: Ledger | None = None
    """Charged before the run"""
    engine: str = LOCAL
    address: str | None = None
    """That of a running cluster; without one, a cluster is started for the run"""

    def check(self, study: Study) -> None:
        """Refuse what cannot be, before the run."""
        if not (isinstance(self.drop, Integral) and 0 <= self.drop <= study.parties.count):
            raise DataError(
                f"drop is {self.drop!r}, but should be from 0 to the number of parties, {study.parties.count}."
            )
        if not (isinstance(self.seed, Integral) and self.seed >= 0):
            raise DataError(f"seed is {self.seed!r}, but should be a whole number from 0 up.")
        if self.processes and "vote" not in protocol_of(study).serves:
            raise DataError(
                f'processes are for talliers, but the study\'s summation is "{study.summation.protocol}"; leave them '
                "out."
            )
        if not isinstance(self.ledger, Ledger | None):
            raise DataError(f"ledger is {self.ledger!r}, but should be an unspoken.Ledger.")
        check_engine(self.engine, self.address)
        if self.engine == RAY:
            cluster.check_study(study)
            if self.processes:
                raise DataError('processes is given, but the engine "ray" always uses processes; leave it out.')

    def connected(self) -> AbstractContextManager[object]:
        """The cluster, if there is one: who cannot reach it has spent nothing."""
        if self.engine == RAY:
            return connection.connected(self.address)
        return nullcontext()

    def engine_run(self) -> Callable[[Method, Plan, Federation, Conditions], Outcome]:
        """The engine's function to run a study."""
        if self.engine == RAY:
            return partial(cluster.run, address=self.address)
        return partial(local.run, processes=self.processes)


def check_engine(engine: str, address: str | None) -> None:
    """Refuse an engine that is not there, and an address without a use."""
    if engine not in (LOCAL, RAY):
        raise DataError(f"engine is {engine!r}, but should be one of: {LOCAL}, {RAY}.")
    if address is not None and engine != RAY:
        raise DataError(f"address is {address!r}, but the engine {engine} has none; choose the engine ray.")


@dataclass(frozen=True, repr=False)
class Simulation:
    """The result of a simulated study."""

    plan: Plan
    outcome: Outcome
    metrics: dict[str, float]
    """The model's quality on the test records; not covered by the guarantee, so for your own eyes"""
    private: dict[str, float | str] | None = None
    """The cost of a vote on these records, if asked for; secret, and in no certificate"""

    def __repr__(self) -> str:
        """One line: plan and outcome have hundreds."""
        shown = "".join(f", {name}={value:.4g}" for name, value in self.metrics.items())
        study, survivors = self.plan.study, self.outcome.survivors
        return f"Simulation({study.name!r}, method={study.method.name!r}{shown}, survivors={survivors})"

    @property
    def model(self) -> Any:
        """The released model as a fitted scikit-learn estimator or a torch.nn.Module."""
        return self.outcome.release.estimator(self.plan.study)

    @cached_property
    def file(self) -> ResultFile:
        """The file with the model (or the statistics), as `save` writes it."""
        return ResultFile.of(self.outcome.release, self.plan.study)

    @property
    def certificate(self) -> dict[str, Any]:
        """The promise and what happened, with the SHA-256 of the `file`."""
        return certificate(self.plan, self.outcome, self.file)

    def save(self, folder: str | Path = ".") -> dict[str, str]:
        """Write the model (or the statistics) and the certificate into a folder. Returns the files' names.

        Files of earlier runs stay as they are.
        """
        return results.write(self.file, self.plan.study.name, self.certificate, Path(folder))

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "simulation": self.outcome.simulated,
            "metrics": self.metrics,
            **self.outcome.release.to_json(),
            "survivors": self.outcome.survivors,
            "seconds": self.outcome.seconds,
            "bytes": self.outcome.bytes,
            **({"private_analysis": self.private} if self.private else {}),
        }


def simulate_records(
    study: Study,
    train: Records,
    groups: Integers,
    test: Records | None = None,
    *,
    method: Method | None = None,
    **settings: Any,
) -> Simulation:
    """Run a study on records that already fit it, with its own method unless one is given, and with `RunSettings`."""
    chosen = RunSettings(**settings)
    chosen.check(study)
    method = method or method_for(study)
    return _simulated(method, ArrayFederation(study, train, groups, method.directions), chosen, test, train)


def simulate_folder(study: Study, folder: Path, test: Records | None = None, **settings: Any) -> Simulation:
    """Run a study on a folder with a Parquet file for each party. Only a few of them are in memory at once."""
    chosen = RunSettings(**settings)
    chosen.check(study)
    method = method_for(study)
    return _simulated(method, FolderFederation(study, folder, method.directions), chosen, test)


def _simulated(
    method: Method, federation: Federation, chosen: RunSettings, test: Records | None, train: Records | None = None
) -> Simulation:
    study = method.study
    if chosen.private_analysis:
        method.check_analysis()
    with answerable(study), ExitStack() as stack:
        plan = method.agreed_plan
        method.check_coordinator()
        journal = None
        if chosen.checkpoint is not None:
            name = _run_name(plan, federation, chosen)
            journal = stack.enter_context(closing(Journal(chosen.checkpoint, name)))
        elif chosen.ledger is not None:
            federation.check()
        stack.enter_context(chosen.connected())
        interrupts.check()
        if chosen.ledger is not None:
            _charge(chosen.ledger, plan, journal)
        conditions = Conditions(chosen.drop, chosen.seed, chosen.progress, journal=journal)
        outcome = chosen.engine_run()(method, plan, federation, conditions)
        if not outcome.participation:
            raise TypeError(f'Expected coordinate of "{method.name}" to ask for something before it returns.')
        check_details(plan, outcome.release)
        private = None
        if chosen.private_analysis:
            private = method.analysis(plan, federation.blocks(BLOCK_PARTIES), outcome.counted, outcome.failed)
        metrics = {} if test is None else outcome.release.metrics(study, test, train)
    return Simulation(plan, outcome, metrics, private)


def _run_name(plan: Plan, federation: Federation, chosen: RunSettings) -> str:
    """The name of a run in its checkpoint: a digest of study, plan, records and parties, then the settings.

    The plan has the digests of files that the study only names. With other public records, parties would make other
    vectors under the same noise.
    """
    digest = hashlib.sha256(plan.study.digest().encode())
    digest.update(canonical(plan.compared()))
    federation.digest(digest)
    return f"{digest.hexdigest()}/drop {chosen.drop}, seed {chosen.seed}"


CHOSEN_BLINDLY = "the rows of each run, and their parties, were chosen without regard to records and labels, none twice"
"""The assumption for a total over runs whose rows were chosen by somebody else, since a ledger cannot know how"""


def _charge(ledger: Ledger, plan: Plan, journal: Journal | None) -> None:
    """Charge a whole run, as planned. One that is resumed from its journal is not charged again, unless a curator or a
    trainer draws noise: that is not in the journal, and is drawn anew."""
    is_new = journal is None or plan.is_pooled or bool(plan.others)
    name = os.urandom(16).hex() if journal is None or is_new else journal.identity
    run = plan.ledger_run(name)
    run = msgspec.structs.replace(run, assumptions=(*run.assumptions, CHOSEN_BLINDLY))
    ledger.charge(run, "simulated", plan.costs)
