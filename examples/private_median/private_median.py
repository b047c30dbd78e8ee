"""The median of one column, by one secure sum.

A median is no sum, but it can be read off one. Parties count their values in bins of equal width between public bounds,
and only the noisy total of these histograms is revealed. The median is where as many records lie below as above.

Guarantee. A replaced record leaves one bin and enters another, so the total moves by at most √2 in L2 norm; k records
move it by at most k·√2. If all of a party's records are replaced, it moves by at most √2 times the most records that a
party may have, because two histograms of at most n records are at most √2·n apart. Only the noisy histogram is used:
not even the number of records is revealed.

What the noise does. Let σ be the deviation of the noise in each of the B bins. Half the difference of the counts below
and above has every bin in it, wherever the edge is, so its deviation is σ·√B/2: by so many ranks the answer is off. In
the units of the column that is σ·√B/2 over the density of records at the median; `noise_std` is an estimate of it.
Besides, records are taken to be spread evenly within a bin, which is wrong by at most the width of a bin. With more
bins that error is smaller, and the noise larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from sklearn.isotonic import isotonic_regression

from unspoken.data.block import Block
from unspoken.data.files import Records
from unspoken.methods.base import Contribution, Conversation, Method, PartyContext, PartyRequest, Sum
from unspoken.methods.plan import DeclaredSum, Plan
from unspoken.methods.planning import make_plan
from unspoken.methods.releases import Statistics
from unspoken.study import LARGEST_NORM, Section, Study, Template
from unspoken.types import Floats

Bound = Annotated[float, Field(ge=-LARGEST_NORM, le=LARGEST_NORM)]
"""A matrix's records are shortened to this norm."""


class Options(Section):
    """The keys of [method] for a median."""

    column: str = Field(description='the name of a column, such as "age", or of a matrix "x0", "x1", …')
    bounds: list[Bound] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="the column's smallest and largest possible value, publicly known, such as [0, 110] (of a matrix)",
    )
    bins: int = Field(64, ge=2, le=10_000, description="the number of bins, from 2 to 10000, such as 64")


@dataclass(frozen=True)
class Axis:
    """The column: where it stands among the features, and its public bounds in its own units and in the features'."""

    place: int
    low: float
    high: float
    scaled: tuple[float, float]

    @classmethod
    def of(cls, study: Study, options: Options) -> Axis:
        return _column_of_a_table(study, options) if study.data.is_table else _column_of_a_matrix(study, options)

    def edges(self, bins: int) -> Floats:
        """The ends of the bins, in the units of the features."""
        return np.linspace(*self.scaled, bins + 1)

    def in_own_units(self, value: float) -> float:
        return float(np.interp(value, self.scaled, (self.low, self.high)))


def _column_of_a_table(study: Study, options: Options) -> Axis:
    """A table's numbers are scaled to [−1, 1] by their bounds, and a category has a feature for each of its values."""
    columns = study.data.columns or {}
    numbers = [name for name, column in columns.items() if column.categories is None]
    if options.column not in numbers:
        listed = ", ".join(f'"{name}"' for name in numbers) or "none: the table has no column with min and max"
        raise study.error("method.column", f'is "{options.column}", but the columns that have a median are {listed}')
    if options.bounds is not None:
        raise study.error("method.bounds", "is for a matrix; a table has them in [data.columns], so remove it")
    names = list(columns)
    before = sum(columns[name].width for name in names[: names.index(options.column)])
    column = columns[options.column]
    return Axis(before, column.min or 0.0, column.max or 0.0, (-1.0, 1.0))


def _column_of_a_matrix(study: Study, options: Options) -> Axis:
    """A matrix's numbers are taken as they are."""
    names = [f"x{place}" for place in range(study.data.raw_dimension)]
    if options.column not in names:
        raise study.error("method.column", f'is "{options.column}", but should be from "x0" to "{names[-1]}"')
    if options.bounds is None:
        raise study.error("method.bounds", "is missing; a matrix needs the column's public bounds, such as [0, 110]")
    low, high = options.bounds
    if not low < high:
        raise study.error("method.bounds", f"is {options.bounds}, but should have the smallest value first")
    return Axis(names.index(options.column), low, high, (low, high))


@dataclass(frozen=True)
class ReleasedMedian(Statistics):
    """Statistics that can be measured on records, so that `unspoken compare` has something to show."""

    axis: Axis
    median: float
    """In the units of the features"""

    def metrics(self, study: Study, test: Records, train: Records | None = None) -> dict[str, float]:
        """How far from one half the share of records is that lie below; those at the very median count half."""
        values = np.clip(test.features[:, self.axis.place], *self.axis.scaled)
        below = np.mean(values < self.median) + np.mean(values == self.median) / 2.0
        return {"rank_error": float(abs(below - 0.5))}


class Median(Method):
    """A private median of one column."""

    name = "median"
    summary = "the median of one column, from a noisy histogram"
    tasks = ("statistics",)
    keys = Options
    template: ClassVar[Template] = {
        "statistics": """\
column = "age"                # of a matrix: "x0", "x1", ... and its public bounds = [0, 110]
bins = 64                     # more bins: a finer answer, under more noise
"""
    }

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        """A record counts once, however long it is."""
        return False

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", Options)
        if study.data.norm < self.default_norm(study):
            problem = "to which longer records would be shortened, and their median with them; remove it"
            raise study.error("data.norm", f"is {study.data.norm:g}, {problem}")
        self.axis = Axis.of(study, self.options)

    def plan(self) -> Plan:
        most = self.study.parties.max_records
        declared = DeclaredSum(
            name="histogram",
            dimension=self.options.bins,
            bound=float(most),
            sensitivity=math.sqrt(2.0) * (self.study.group or most),
        )
        plan = make_plan(self.study, self.name, [declared])
        return replace(plan, notes=(*plan.notes, self._note(plan)))

    def _note(self, plan: Plan) -> str:
        off = self._rank_noise(plan.planned("histogram").largest_total_std)
        records = self.study.parties.count * self.study.parties.records
        note = f"the noise moves the median by about {off:,.0f} ranks among at least {records:,} records"
        if 2.0 * off < records:
            return note
        return f"{note}, so that it says nothing; have more records or fewer bins, or raise epsilon"

    def _rank_noise(self, noise_std: float) -> float:
        """The deviation of the noise in half the difference of the counts above and below."""
        return noise_std * math.sqrt(self.options.bins) / 2.0

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        bins = self.options.bins
        # The inner edges alone: whatever lies beyond the bounds, or is no number, is in the first or the last bin.
        places = np.searchsorted(self.axis.edges(bins)[1:-1], block.features[:, :, self.axis.place], side="right")
        party, row = np.nonzero(np.arange(places.shape[1]) < block.counts[:, None])
        counts = np.bincount(party * bins + places[party, row], minlength=len(block) * bins)
        return Contribution(counts.reshape(len(block), bins).astype(np.float64))

    def coordinate(self, plan: Plan) -> Conversation:
        total = yield Sum("histogram")
        edges, off = self.axis.edges(self.options.bins), self._rank_noise(total.noise_std)
        below = np.concatenate([[0.0], np.cumsum(total.noisy)])
        # Without noise it could only grow from edge to edge.
        ranks = isotonic_regression(below - below[-1] / 2.0)
        median, *around = np.interp([0.0, -off, off], ranks, edges)
        low, high = (self.axis.in_own_units(value) for value in around)
        found = {"median": self.axis.in_own_units(median), "noise_std": (high - low) / 2.0}
        details = {"noise_std_per_bin": total.noise_std, "noise_std_of_the_rank": off}
        return ReleasedMedian({self.options.column: found}, details, self.axis, float(median))
