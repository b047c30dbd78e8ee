"""The function "histogram": the number of records in each bin of each column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, NamedFunction
from unspoken.methods.functions.columns import columns_of, in_units, split
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.releases import Statistics
from unspoken.methods.workloads import Asker, Query
from unspoken.study import Column, Study
from unspoken.types import Floats

_EDGE = 1e-9
"""A number that is this close below an edge, in bins, counts as at the edge: scaling may have moved it."""


class Histogram(NamedFunction):
    """Equal bins between a number's bounds, or one bin for each category.

    A number at the edge of two bins is in the upper one, and the largest number in the last.
    """

    uses = ("bins",)

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        self._columns, self._bins = columns_of(study), options.bins
        self._reach = 1.0 if study.data.is_table else study.data.norm
        self._widths = [self._width(column) for _, column in self._columns]
        self.dimension = sum(self._widths)
        # A record leaves one bin of each column for another.
        self.sensitivity = math.sqrt(2.0 * len(self._columns))
        self.record_bound = math.sqrt(len(self._columns))

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        parts = split(features, [column.width for _, column in self._columns])
        counts = [self._counts(column, part) for (_, column), part in zip(self._columns, parts, strict=True)]
        return np.concatenate(counts).astype(np.float64)

    def _bins_of(self, column: Column) -> int:
        """The bins between a column's bounds."""
        return 2 if column.kind == "boolean" else self._bins

    def _width(self, column: Column) -> int:
        """The bins of a column; the last one is for missing values, if they have a feature of their own."""
        return column.width if column.categories is not None else self._bins_of(column) + column.has_missing_feature

    def _counts(self, column: Column, part: Floats) -> Any:
        """The counts of one column, whose values are rows of `part`."""
        if column.categories is not None:
            return part.sum(axis=0)
        count = self._bins_of(column)
        places = (part[:, 0] + self._reach) / (2.0 * self._reach) * count
        bins = np.clip(np.floor(places + _EDGE), 0, count - 1).astype(np.int64)
        if column.has_missing_feature:
            bins = np.where(part[:, 1] > 0.0, count, bins)
        return np.bincount(bins, minlength=self._width(column))

    def conclude(self, ask: Asker) -> Conversation:
        total = yield from ask(Query(NAME))
        parts = split(total.noisy, self._widths)
        statistics = {
            name: {**self._statistic(column, part.tolist()), "noise_std": total.noise_std}
            for (name, column), part in zip(self._columns, parts, strict=True)
        }
        return Statistics(statistics, {"records": int(total.exact[0])})

    def _statistic(self, column: Column, counts: list[float]) -> dict[str, Any]:
        """A column's counts by category, or between the edges of its bins."""
        if column.categories is not None:
            return {"counts": dict(zip(column.indicators, counts, strict=True))}
        missing = {"missing": counts.pop()} if column.has_missing_feature else {}
        if column.kind == "boolean":
            return {"counts": dict(zip(("false", "true"), counts, strict=True)), **missing}
        edges = [in_units(column, edge) for edge in np.linspace(column.low, column.high, self._bins + 1).tolist()]
        return {"edges": edges, "counts": counts, **missing}
