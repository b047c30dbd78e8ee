"""A whole study on this machine: from records and a split to a model, its metrics and its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.bounding import clip_rows
from tacit.data.federation import ArrayFederation
from tacit.data.files import DataError, Records, check_arrays
from tacit.engines import local
from tacit.methods.baselines import accuracy
from tacit.methods.plan import Plan
from tacit.methods.registry import method_for
from tacit.report.certificate import certificate
from tacit.report.model import to_sklearn
from tacit.study import Study, make_study, read_study
from tacit.types import Integers


@dataclass(frozen=True)
class Simulation:
    """What a simulated study gave."""

    plan: Plan
    outcome: local.Outcome
    metrics: dict[str, float]
    """How good the model is on the test records: not covered by the guarantee, so for your own eyes."""

    @property
    def model(self) -> Any:
        """The released model as a fitted scikit-learn classifier."""
        return to_sklearn(self.plan.study, self.outcome.release)

    @property
    def certificate(self) -> dict[str, Any]:
        return certificate(self.plan, self.outcome)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "metrics": self.metrics,
            "survivors": self.outcome.survivors,
            "seconds": self.outcome.seconds,
            "bytes": self.outcome.bytes,
        }


def simulate(
    study: Study | dict[str, Any] | str | Path,
    X: npt.ArrayLike,  # noqa: N803 (the name that everyone expects)
    y: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    X_test: npt.ArrayLike | None = None,  # noqa: N803
    y_test: npt.ArrayLike | None = None,
    drop: int = 0,
    seed: int = 0,
    progress: local.Progress | None = None,
) -> Simulation:
    """Run any matrix study on arrays: row i of X belongs to the party groups[i].

    The study is a `Study`, a study file's path, or its content as a dictionary. Its number of parties must be that of
    the distinct groups. Metrics are measured on the test arrays, if given.
    """
    if isinstance(study, dict):
        study = make_study(study)
    elif not isinstance(study, Study):
        study = read_study(study)
    if study.data.is_table:
        raise DataError(
            f"{study.source}: [data] describes a table, but arrays were given; describe a matrix (features = …)."
        )
    records = check_arrays(X, y, study, "the training arrays")
    test = None if X_test is None else check_arrays(X_test, y_test, study, "the test arrays")
    parties = number_parties(groups, len(records))
    count = int(parties.max()) + 1
    if count != study.parties.count:
        raise DataError(
            f"groups names {count} parties, but the study's [parties] count is {study.parties.count}; make them equal, "
            "for example with study.with_parties."
        )
    return simulate_records(study, records, parties, test, drop=drop, seed=seed, progress=progress)


def number_parties(groups: npt.ArrayLike, records: int) -> Integers:
    """The parties that groups names for each record, numbered from 0 in the order of their names."""
    names = np.asarray(groups)
    if names.shape != (records,):
        raise DataError(f"groups has the shape {names.shape}, but should name the party of each of {records} records.")
    if names.dtype.kind in "fO":
        missing = [row for row, name in enumerate(names.tolist()) if name is None or name != name]
        if missing:
            raise DataError(f"groups[{missing[0]}] is {names[missing[0]]}, but should name the record's party.")
    try:
        return np.unique(names, return_inverse=True)[1]
    except TypeError:
        raise DataError("groups mixes text and numbers, but should name parties by one of them.") from None


def simulate_records(
    study: Study,
    train: Records,
    groups: Integers,
    test: Records | None = None,
    *,
    drop: int = 0,
    seed: int = 0,
    progress: local.Progress | None = None,
) -> Simulation:
    """Run a study on records that already fit it."""
    if not 0 <= drop <= study.parties.count:
        raise DataError(f"drop is {drop}, but should be from 0 to the number of parties, {study.parties.count}.")
    method = method_for(study)
    plan = method.plan()
    federation = ArrayFederation(study, train, groups)
    outcome = local.run(method, plan, federation, drop=drop, seed=seed, progress=progress)
    metrics = {} if test is None else evaluate(study, outcome, test)
    return Simulation(plan, outcome, metrics)


def evaluate(study: Study, outcome: local.Outcome, test: Records) -> dict[str, float]:
    """How good the released model is on these records."""
    features = clip_rows(test.features, study.data)
    return {"accuracy": accuracy(outcome.release.weights, features, test.labels)}
