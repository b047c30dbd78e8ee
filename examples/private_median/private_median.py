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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from sklearn.isotonic import isotonic_regression

from unspoken.data.block import Block
from unspoken.data.files import Records
from unspoken.methods.base import Contribution, Conversation, Method, PartyContext, PartyRequest, Sum
from unspoken.methods.functions.columns import columns_of
from unspoken.methods.planning import DeclaredSum, Plan, make_plan
from unspoken.methods.releases import Statistics
from unspoken.study import LARGEST_NORM, Section, Study, Template
from unspoken.types import Floats

Bound = Annotated[float, Field(ge=-LARGEST_NORM, le=LARGEST_NORM)]
"""A matrix's records are shortened to this norm."""
_BOUNDS = (-1.0, 1.0)
"""Of a matrix whose study says nothing: where usual ones are, as their records have norm 1 at most"""


VARIANTS: list[dict[str, Any]] = [{}, {"bins": 3}, {"column": "x1", "bounds": [-0.5, 0.5]}]
"""Keys of [method] with which the promise suite attacks the method"""


class Options(Section):
    """The keys of [method] for a median."""

    column: str | None = Field(
        None, description='the name of a column of numbers, such as "age", or of a matrix "x0", "x1", …'
    )
    bounds: list[Bound] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="the column's smallest and largest possible value, publicly known, such as [0, 110] (of a matrix; "
        "left out: [-1, 1])",
    )
    bins: int = Field(64, ge=2, le=10_000, description="the number of bins, from 2 to 10000, such as 64")


@dataclass(frozen=True)
class Axis:
    """The column: where it stands among the features, and its public bounds in its own units and in the features'."""

    name: str
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
    """A table's numbers are scaled to [−1, 1] by their bounds.

    Days and truth values have no median here. Neither have numbers with `missing = "indicator"`: a value that is not
    there stands in the middle of the bounds, and would count as if it were there.
    """
    if options.bounds is not None:
        raise study.error("method.bounds", "is for a matrix; a table has them in [data.columns], so remove it")
    axes, place = [], 0
    for name, column in columns_of(study):
        if column.kind == "number" and not column.has_missing_feature:
            axes.append(Axis(name, place, column.low, column.high, (-1.0, 1.0)))
        place += column.width
    return _chosen(study, options, axes)


def _column_of_a_matrix(study: Study, options: Options) -> Axis:
    """A matrix's numbers are taken as they are."""
    low, high = options.bounds or _BOUNDS
    if not low < high:
        raise study.error("method.bounds", f"is {options.bounds}, but should have the smallest value first")
    names = [name for name, _ in columns_of(study)]
    return _chosen(study, options, [Axis(name, place, low, high, (low, high)) for place, name in enumerate(names)])


def _chosen(study: Study, options: Options, axes: list[Axis]) -> Axis:
    """The column that the study names, or else the first that has a median."""
    if not axes:
        problem = 'has no column with a median: a number with min and max, without missing = "indicator"'
        raise study.error("data.columns", problem)
    for axis in axes:
        if options.column in (axis.name, None):
            return axis
    names = [f'"{axis.name}"' for axis in axes]
    listed = ", ".join(names if len(names) < 9 else [*names[:4], "…", names[-1]])
    problem = f'is "{options.column}", but should be a number without missing = "indicator"; there are: {listed}'
    raise study.error("method.column", problem)


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
    details = frozenset({"noise_std_per_bin", "noise_std_of_the_rank"})
    summary = "the median of one column, from a noisy histogram"
    tasks = ("statistics",)
    keys = Options
    measures_statistics = True
    template: ClassVar[Template] = {
        "statistics": """\
column = "age"                # a number; left out: the first one
bins = 64                     # more bins: a finer answer, under more noise
"""
    }
    matrix_template: ClassVar[Template] = {
        "statistics": """\
column = "x0"                 # or "x1", ...; left out: the first one
bounds = [0, 110]             # public knowledge: its smallest and largest possible value
bins = 64                     # more bins: a finer answer, under more noise
"""
    }

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        """A record counts once, however long it is."""
        return False

    @classmethod
    def columns_read(cls, study: Study) -> tuple[str, ...]:
        """The one column, of a table that may have others."""
        return (Axis.of(study, study.options("method", Options)).name,)

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
        return replace(plan, notes=(*plan.notes, *self._choices(), self._note(plan)))

    def _choices(self) -> Iterator[str]:
        """What the study leaves open, in words."""
        if self.options.column is None:
            yield f'the median is that of "{self.axis.name}", the first column that has one, as the study names none'
        if self.options.bounds is None and not self.study.data.is_table:
            yield f"values beyond {_BOUNDS[0]:g} and {_BOUNDS[1]:g} count as these, as the study gives no bounds"

    def _note(self, plan: Plan) -> str:
        off = self._rank_noise(plan.sum_named("histogram").largest_total_std)
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
        return ReleasedMedian({self.axis.name: found}, details, self.axis, float(median))
