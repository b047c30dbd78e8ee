"""Whole studies on this machine: from records and a split to a model, its metrics and its certificate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspoken.data.federation import BLOCK_PARTIES, ArrayFederation
from unspoken.data.files import DataError, Records, check_arrays
from unspoken.engines import local
from unspoken.engines.journal import Journal
from unspoken.engines.outcome import Outcome, Progress
from unspoken.methods.base import Method
from unspoken.methods.functions import Custom, FunctionMethod
from unspoken.methods.plan import Plan
from unspoken.methods.registry import METHODS, method_for
from unspoken.plugins import quoted, suggestion
from unspoken.privacy.guarantee import Guarantee
from unspoken.report.certificate import certificate
from unspoken.study import DEFAULT_PROTOCOL, LARGEST_COUNT, Study, make_study, read_study
from unspoken.summation.registry import protocol_of
from unspoken.types import Floats, Integers


@dataclass(frozen=True)
class Simulation:
    """The result of a simulated study."""

    plan: Plan
    outcome: Outcome
    metrics: dict[str, float]
    """The model's quality on the test records; not covered by the guarantee, so for your own eyes"""
    private: dict[str, float | str] | None = None
    """The cost of a vote on these records, if asked for; secret, and in no certificate"""

    @property
    def model(self) -> Any:
        """The released model as a fitted scikit-learn estimator or a torch.nn.Module."""
        return self.outcome.release.estimator(self.plan.study)

    @property
    def certificate(self) -> dict[str, Any]:
        return certificate(self.plan, self.outcome)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "metrics": self.metrics,
            **self.outcome.release.to_json(),
            "survivors": self.outcome.survivors,
            "seconds": self.outcome.seconds,
            "bytes": self.outcome.bytes,
            **({"private_analysis": self.private} if self.private else {}),
        }


def simulate(
    study: Study | dict[str, Any] | str | Path,
    X: npt.ArrayLike,  # noqa: N803 (the name that everyone expects)
    y: npt.ArrayLike | None,
    groups: npt.ArrayLike,
    *,
    X_test: npt.ArrayLike | None = None,  # noqa: N803
    y_test: npt.ArrayLike | None = None,
    drop: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    private_analysis: bool = False,
    processes: bool = False,
) -> Simulation:
    """Run any matrix study on arrays: row i of X belongs to the party groups[i]. Statistics need no y.

    The study is a `Study`, a study file's path, or its content as a dictionary. Its number of parties must equal the
    number of distinct groups. Metrics are measured on the test arrays, if given. With a `checkpoint` file, an
    interrupted run resumes where it stopped, and no budget is spent twice. A `private_analysis` computes what a vote
    cost on these records, which is secret. With `processes`, each tallier of a vote runs in its own process.
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
    kept = None if checkpoint is None else Path(checkpoint)
    return simulate_records(
        study,
        records,
        parties,
        test,
        drop=drop,
        seed=seed,
        progress=progress,
        checkpoint=kept,
        private_analysis=private_analysis,
        processes=processes,
    )


@dataclass(frozen=True)
class Computation:
    """The result of `compute`: the function's noisy total over all parties."""

    total: Floats
    noise_std: float
    """The standard deviation of the noise in each number of the total"""
    simulation: Simulation

    @property
    def guarantee(self) -> Guarantee:
        return self.simulation.plan.guarantee

    @property
    def certificate(self) -> dict[str, Any]:
        return self.simulation.certificate


def compute(
    function: Callable[[Floats], npt.ArrayLike],
    X: npt.ArrayLike,  # noqa: N803
    groups: npt.ArrayLike,
    *,
    dimension: int,
    sensitivity: float,
    bound: float,
    epsilon: float,
    delta: float,
    method: str = "cape",
    unit: str | dict[str, int] = "record",
    colluding: float = 0,
    dropouts: float = 0,
    norm: float | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    drop: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Computation:
    """The noisy total over parties of any function of their records.

    `method` is "moments" (a secure sum), "cape", "conv", "local" or "central". `function` takes the rows of one party
    and returns `dimension` numbers. It is tried on made-up rows between 0 and 1; a party at which it fails later
    contributes zeros. You state in `sensitivity` that replacing one row moves the numbers by at most that much in L2
    norm, also to and from the zeros of a failure: the guarantee rests on it, so a function that can fail on some rows
    must handle that itself. A party's numbers are clipped to the L2 norm `bound`, and rows to `norm` if given. With
    "central" the function takes the rows of all parties at once, so methods are comparable if it is a sum over rows.

    >>> rows = np.random.default_rng(0).uniform(size=(1000, 1))
    >>> above = compute(lambda rows: [(rows > 0.5).sum()], rows, np.arange(1000) % 10, dimension=1, sensitivity=1,
    ...                 bound=1000, epsilon=1, delta=1e-6)
    >>> bool(abs(above.total[0] - 500) < 100)
    True
    """
    _check_stated(dimension, sensitivity, bound)
    features = np.asarray(X)
    if features.ndim != 2:
        raise DataError(f"X has the shape {features.shape}, but should have one row a record.")
    parties = number_parties(groups, len(features))
    study = make_study(
        {
            "study": {"name": "compute", "task": "statistics"},
            "data": {"features": features.shape[1], "norm": _UNCLIPPED if norm is None else norm},
            "parties": sizes_of(parties, unit),
            "privacy": {
                "epsilon": epsilon,
                "delta": delta,
                "unit": unit,
                "colluding": colluding,
                "dropouts": dropouts,
            },
            "method": {"name": method},
            "summation": {"protocol": protocol},
        },
        source="compute",
    )
    kind = _function_method(study)
    custom = Custom(function, int(dimension), float(sensitivity), float(bound))
    custom.try_out(features.shape[1], study.parties.records, study.data.norm)
    records = check_arrays(features, None, study, "X")
    if norm is None and (longest := float(np.linalg.norm(records.features, axis=1).max())) > _UNCLIPPED:
        raise DataError(f"X has a row of norm {longest:g}, above {_UNCLIPPED:g}; scale X, or give the norm to clip to.")
    simulation = simulate_records(
        study, records, parties, drop=drop, seed=seed, progress=progress, method=kind(study, custom)
    )
    release = simulation.outcome.release
    total = np.array(release.to_json()["statistics"]["total"])
    return Computation(total, float(release.details["noise_std"]), simulation)


_UNCLIPPED = 1e6
"""The largest norm that a study may have: shorter rows are not clipped, longer ones refused"""


def _check_stated(dimension: int, sensitivity: float, bound: float) -> None:
    """Check what the caller of `compute` states about the function."""
    if not (isinstance(dimension, Integral) and dimension >= 1):
        raise DataError(f"dimension is {dimension}, but should be how many numbers the function returns, 1 or more.")
    for name, value in (("sensitivity", sensitivity), ("bound", bound)):
        if not (math.isfinite(value) and value > 0.0):
            raise DataError(f"{name} is {value}, but should be a number above 0.")


def _function_method(study: Study) -> type[FunctionMethod]:
    """The class of the study's method, if it can compute functions."""
    name = study.method.name
    kind = METHODS.get(name)
    if kind is None or not issubclass(kind, FunctionMethod):
        able = [known for known, other in METHODS.usable() if issubclass(other, FunctionMethod)]
        problem = f'is "{name}", but to compute a function it should be one of: {quoted(able)}'
        raise study.error("method.name", problem + suggestion(name, able))
    return kind


def sizes_of(parties: Integers, unit: str | dict[str, int]) -> dict[str, int]:
    """A study's [parties] for the parties of each record: their number and sizes.

    Where whole parties are protected, so are their sizes, and they are not stated.
    """
    sizes = np.bincount(parties)
    if unit == "party":
        return {"count": len(sizes), "records": 1, "max_records": LARGEST_COUNT}
    return {"count": len(sizes), "records": int(sizes.min()), "max_records": int(sizes.max())}


def number_parties(groups: npt.ArrayLike, records: int) -> Integers:
    """The party of each record, numbered from 0 in the order of the names in `groups`."""
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


def _run_name(study: Study, train: Records, groups: Integers, drop: int, seed: int) -> str:
    """The name of a run in its checkpoint: a digest of study, records and parties, then the settings."""
    digest = hashlib.sha256(study.digest().encode())
    for array in (train.features, train.labels, groups):
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"{digest.hexdigest()}/drop {drop}, seed {seed}"


def simulate_records(
    study: Study,
    train: Records,
    groups: Integers,
    test: Records | None = None,
    *,
    drop: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    method: Method | None = None,
    checkpoint: Path | None = None,
    private_analysis: bool = False,
    processes: bool = False,
) -> Simulation:
    """Run a study on records that already fit it, with its own method unless one is given.

    With a `checkpoint` file, an interrupted run resumes where it stopped.
    """
    _check_settings(study, drop, processes)
    method = method or method_for(study)
    plan = method.plan()
    federation = ArrayFederation(study, train, groups)
    if private_analysis:
        method.check_analysis()
    with ExitStack() as stack:
        journal = None
        if checkpoint is not None:
            journal = stack.enter_context(closing(Journal(checkpoint, _run_name(study, train, groups, drop, seed))))
        outcome = local.run(
            method, plan, federation, drop=drop, seed=seed, progress=progress, journal=journal, processes=processes
        )
    private = None
    if private_analysis:
        private = method.analysis(plan, federation.blocks(BLOCK_PARTIES), outcome.counted)
    metrics = {} if test is None else outcome.release.metrics(study, test, train)
    return Simulation(plan, outcome, metrics, private)


def _check_settings(study: Study, drop: int, processes: bool) -> None:
    if not 0 <= drop <= study.parties.count:
        raise DataError(f"drop is {drop}, but should be from 0 to the number of parties, {study.parties.count}.")
    if processes and "vote" not in protocol_of(study).serves:
        raise DataError(
            f'processes are for talliers, but the study\'s summation is "{study.summation.protocol}"; leave them out.'
        )
