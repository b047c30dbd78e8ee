"""The function "mean": the means of bounded columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspoken.arithmetic import sum_of_rows
from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, NamedFunction
from unspoken.methods.functions.columns import columns_of, in_units, split
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.releases import Statistics
from unspoken.methods.workloads import Asker, Query
from unspoken.study import Column, Study
from unspoken.types import Floats


class Mean(NamedFunction):
    """The mean of each column; of a category, the share of each of its values."""

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        self._columns, self._norm = columns_of(study), study.data.norm
        self.dimension = study.data.dimension
        self._table = study.data.is_table
        # Nothing moves by more than twice the norm; in a table a number moves by at most 2, a category's indicators
        # by √2. A matrix's numbers have no bound but the norm.
        numbers = sum(column.categories is None for _, column in self._columns)
        widest = math.sqrt(4.0 * numbers + 2.0 * (len(self._columns) - numbers)) if self._table else math.inf
        self.sensitivity, self.record_bound = min(widest, 2.0 * self._norm), self._norm

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        return sum_of_rows(features)

    def conclude(self, ask: Asker) -> Conversation:
        total = yield from ask(Query(NAME))
        records = max(int(total.exact[0]), 1)
        parts = split(total.noisy / records, [column.width for _, column in self._columns])
        noise = total.noise_std / records
        statistics = {
            name: self._statistic(column, part, noise)
            for (name, column), part in zip(self._columns, parts, strict=True)
        }
        return Statistics(statistics, {"records": records})

    def _statistic(self, column: Column, means: Floats, noise: float) -> dict[str, Any]:
        """A column's mean, in its own units, or the shares of its categories.

        Where missing values have a feature of their own, the mean is over the values that are there: a noisy mean m
        over a noisy share of 1, which moves it by m times as much as its own noise does.
        """
        if column.categories is not None:
            shares = {value: float(share) for value, share in zip(column.indicators, means, strict=True)}
            return {"shares": shares, "noise_std": noise}
        half = (column.high - column.low) / 2.0 if self._table else 1.0
        middle = (column.low + column.high) / 2.0 if self._table else 0.0
        if not column.has_missing_feature:
            return {"mean": in_units(column, middle + half * means[0]), "noise_std": noise * half}
        there = min(max(1.0 - float(means[1]), noise, 1e-300), 1.0)
        mean = float(np.clip(means[0] / there, -1.0, 1.0))
        return {
            "mean": in_units(column, middle + half * mean),
            "missing": float(means[1]),
            "noise_std": noise * half * math.hypot(1.0, mean) / there,
            "missing_noise_std": noise,
        }
