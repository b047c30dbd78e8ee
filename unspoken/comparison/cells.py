"""The runs of a comparison: which there are, and what one of them gives."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unspoken.comparison.statistics import pooled, relative_error
from unspoken.comparison.variants import method_of, study_for
from unspoken.data.files import DataError, Records
from unspoken.data.splits import split, stratified
from unspoken.errors import UnspokenError
from unspoken.methods.planning import Plan
from unspoken.methods.registry import method_for, plan_for
from unspoken.report.remarks import on_predictions
from unspoken.simulation import simulate_records
from unspoken.study import Study
from unspoken.types import Integers


class Cell(NamedTuple):
    """One run of a comparison."""

    variant: str
    epsilon: float
    """The ε that is asked for"""
    parties: int
    repeat: int


class Split(NamedTuple):
    """The records of a run."""

    train: Records
    groups: Integers
    test: Records | None


@dataclass(frozen=True)
class Comparison:
    """Methods to compare, and the records to compare them on."""

    study: Study
    train: Records
    test: Records | None
    variants: tuple[str, ...]
    epsilons: tuple[float, ...]
    repeats: int = 3
    seed: int = 0
    """The public seed of the split, which is the same for all runs of so many parties, unless they are split anew"""
    kind: str = "iid"
    """The kind of split"""
    parties: tuple[int, ...] = ()
    """Numbers of parties; none: the study's"""
    groups: Integers | None = None
    """The party of each record, for the study's number of parties, instead of a split"""
    hold_out: float | None = None
    """The share of the records that each repeat holds out for tests, class by class, instead of `test`"""
    resplit: bool = False
    """Whether each repeat deals the records to parties anew"""

    def __post_init__(self) -> None:
        """Refuse a share that leaves nothing to measure on, or nothing to learn from. How many records it holds out is
        the same for all seeds."""
        if self.hold_out is None:
            return
        held, records = int(stratified(self.train.labels, self.hold_out, self.seed).sum()), len(self.train)
        if held in (0, records):
            raise DataError(
                f"a share of {self.hold_out:g}, rounded class by class, holds out {'none' if held == 0 else 'all'} of "
                f"the {records:,} records; take a {'larger' if held == 0 else 'smaller'} one."
            )

    def study_of(self, cell: Cell) -> Study:
        return study_for(self.study.with_parties(cell.parties), cell.variant, cell.epsilon)

    def seed_of(self, repeat: int) -> int:
        """The public seed of a repeat's splits."""
        return self.seed + repeat if self.resplit or self.hold_out is not None else self.seed

    def split_for(self, parties: int, seed: int) -> Split:
        """The records to learn from, with their parties, and those to measure on."""
        train, test, groups = self.train, self.test, self.groups
        if self.hold_out is not None:
            held = stratified(train.labels, self.hold_out, seed)
            groups = None if groups is None else groups[~held]
            train, test = (train.of_rows(rows) for rows in (~held, held))
        if groups is None or parties != self.study.parties.count:
            groups = split(self.kind, train.labels, parties, seed)
        return Split(train, groups, test)

    def digests(self) -> dict[str, str]:
        """The SHA-256 of the records, as they were read, and of whose they are, if that is given."""
        found = {"train_sha256": self.train, **({} if self.test is None else {"test_sha256": self.test})}
        digests = {name: _digest(records.features, records.labels) for name, records in found.items()}
        return digests if self.groups is None else {**digests, "groups_sha256": _digest(self.groups)}


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class ComparedRun:
    """The result of one run."""

    variant: str
    method: str
    computes: str
    asked: float
    epsilon: float | None
    """The promised ε; None for no promise"""
    delta: float
    unit: str
    parties: int
    repeat: int
    seed: int
    split: str
    study_sha256: str
    survivors: int
    upload_bytes: int
    bytes: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """Remarks on this run's noise and model, for whoever holds the records"""

    @property
    def cell(self) -> Cell:
        return Cell(self.variant, self.asked, self.parties, self.repeat)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def cells_of(comparison: Comparison) -> list[Cell]:
    """All runs, in the order of variants, parties and ε. All are planned first: an impossible one is told at once."""
    return [cell._replace(repeat=repeat) for cell in _planned(comparison) for repeat in range(comparison.repeats)]


def doubts_of(comparison: Comparison) -> list[str]:
    """What is known of the runs before any is made: where noise will hide what records say. Plans them all, too."""
    several = len(comparison.parties) > 1
    return [
        f"{place_of(cell.variant, cell.epsilon, cell.parties if several else None)}: {text}"
        for cell, plan in _planned(comparison).items()
        for text in plan.doubts
    ]


def place_of(variant: str, asked: float | None, parties: int | None) -> str:
    """The runs that a remark is on: of a method, at an ε if it has one, with so many parties if that differs.

    >>> place_of("moments", 0.5, None), place_of("helmet", None, 1)
    ('moments at epsilon = 0.5', 'helmet with 1 party')
    """
    at = "" if asked is None else f" at epsilon = {asked:g}"
    many = "" if parties is None else f" with {parties:,} {'party' if parties == 1 else 'parties'}"
    return variant + at + many


def _planned(comparison: Comparison) -> dict[Cell, Plan]:
    """The plans, by the first run of each. A method without a promise runs at no ε in particular."""
    plans = {}
    for variant in comparison.variants:
        for parties in comparison.parties or (comparison.study.parties.count,):
            for epsilon in comparison.epsilons:
                cell = Cell(variant, epsilon, parties, 0)
                plans[cell] = _checked_plan(comparison, cell)
                if not plans[cell].guarantee.is_promise:
                    break
    return plans


def _checked_plan(comparison: Comparison, cell: Cell) -> Plan:
    study = comparison.study_of(cell)
    plan = plan_for(study)
    if study.task == "statistics" and not (study.described.measures_statistics or study.described.knows_exact):
        raise UnspokenError(f"--methods has {cell.variant}, but nothing measures its statistics; leave it out.")
    return plan


class Worker:
    """Does runs of a comparison, one after another."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        # The last few: each may hold a copy of all records.
        self._split = lru_cache(maxsize=2)(comparison.split_for)

    def run(self, cell: Cell) -> ComparedRun:
        compared, study = self._comparison, self._comparison.study_of(cell)
        seed = compared.seed_of(cell.repeat)
        train, groups, test = self._split(cell.parties, seed)
        if study.task == "statistics" and not study.described.measures_statistics:
            test = None
        done = simulate_records(study, train, groups, test, seed=seed)
        metrics = done.metrics or self._error(study, done.outcome.release, train)
        guarantee = done.plan.guarantee
        return ComparedRun(
            variant=cell.variant,
            method=method_of(compared.study, cell.variant),
            computes=study.described.told(study),
            asked=cell.epsilon,
            epsilon=guarantee.epsilon if guarantee.is_promise else None,
            delta=guarantee.delta,
            unit=str(guarantee.unit),
            parties=cell.parties,
            repeat=cell.repeat,
            seed=seed,
            split="given" if compared.groups is not None else compared.kind,
            study_sha256=study.digest(),
            survivors=done.outcome.survivors,
            upload_bytes=done.plan.upload_bytes,
            bytes=done.outcome.bytes,
            seconds=done.outcome.seconds,
            metrics=metrics,
            remarks=[*done.plan.doubts, *on_predictions(study, done.outcome.release, test or train)],
        )

    def _error(self, study: Study, released: Any, train: Records) -> dict[str, float]:
        """The error of statistics whose true values are known."""
        method = method_for(study)
        if study.task != "statistics" or not method.knows_exact:
            return {}
        exact = method.exact_release(pooled(study, train))
        return {"relative_error": relative_error(study, released, exact, len(train))}
