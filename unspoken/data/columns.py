"""The values of a table's column as numbers, and as features, by what the study says about the column.

Nothing is guessed from the data, and nothing is estimated from it: a missing value becomes what the study says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.bounding import indicate, scale_column
from unspoken.data.records import DataError
from unspoken.study import Column, day_of
from unspoken.types import Flags, Floats

if TYPE_CHECKING:
    import pandas as pd

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})
"""The texts that mean that there is no value, in any case, unless the study has a category of that name"""
_TRUTH = {"true": 1.0, "1": 1.0, "1.0": 1.0, "false": 0.0, "0": 0.0, "0.0": 0.0}


@dataclass(frozen=True)
class Values:
    """A column's values as numbers: numbers and days as they are, truth as 0 and 1, categories by their positions."""

    numbers: Floats
    """NaN where a value is missing or unfit"""
    missing: Flags
    unfit: Flags
    """There is a value, but none that the study knows"""


def read_values(values: pd.Series[Any], column: Column) -> Values:
    """Read a column's values as the study describes them."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    if column.kind == "number":
        return _numbers(values)
    return _by_distinct(values, _reader(column))


def _numbers(values: pd.Series[Any]) -> Values:
    import pandas as pd

    if values.dtype.kind in "mM":
        # pandas would convert a time to microseconds; it is no number.
        values = values.astype(str)
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan).copy()
    rest = np.flatnonzero(~np.isfinite(numbers))
    missing, unfit = np.zeros(len(numbers), dtype=np.bool_), np.zeros(len(numbers), dtype=np.bool_)
    missing[rest] = [_is_missing(value) for value in values.iloc[rest]]
    unfit[rest] = ~missing[rest]
    numbers[rest] = np.nan
    return Values(numbers, missing, unfit)


def _by_distinct(values: pd.Series[Any], read: Callable[[Any], float | None]) -> Values:
    """Values of which each distinct one is read once: NaN is a missing value, None an unfit one."""
    import pandas as pd

    try:
        places, distinct = pd.factorize(values)
    except TypeError:  # lists, which are no values of a table either
        places, distinct = pd.factorize(values.astype(str))
    found = [read(value) for value in distinct]
    # A value that pandas takes for missing has the place −1: the last one here.
    numbers = np.array([*(math.nan if number is None else number for number in found), math.nan])[places]
    unfit = np.array([*(number is None for number in found), False])[places]
    return Values(numbers, np.isnan(numbers) & ~unfit, unfit)


def _reader(column: Column) -> Callable[[Any], float | None]:
    """A function from a value to its number: NaN if it is missing, None if the study does not know it."""
    if column.categories is None:
        look_up = _day if column.kind == "date" else _truth
        return lambda value: math.nan if _is_missing(value) else look_up(value)
    kind = type(column.categories[0])
    positions = {_written(value, kind): float(code) for code, value in enumerate(column.categories)}
    other = float(len(positions)) if column.other else None

    def position(value: Any) -> float | None:
        found = positions.get(_written(value, kind))
        if found is not None:
            return found
        return math.nan if _is_missing(value) else other

    return position


def _day(value: Any) -> float | None:
    day = day_of(value)
    return None if day is None else float(day.toordinal())


def _truth(value: Any) -> float | None:
    return _TRUTH.get(str(value).strip().lower())


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return str(value).strip().lower() in _MISSING or type(value).__name__ in ("NAType", "NaTType")


def _written(value: Any, kind: type) -> str:
    """The text of a value in a column of this kind. In integer columns 1, 1.0 and "1.0" are equal, in boolean columns
    True and "true".

    >>> _written("True", bool), _written(1.0, str), _written(" 1.0", int), _written("01", str)
    ('true', '1', '1', '01')
    """
    text = str(value).strip()
    if kind is bool:
        return text.lower()
    whole = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", text) if kind is int or isinstance(value, float) else None
    return str(int(whole.group(1))) if whole else text


def outside(values: Values, column: Column) -> Flags:
    """Which values are clipped to the column's bounds."""
    if column.categories is not None:
        return np.zeros(len(values.numbers), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        return np.asarray((values.numbers < column.low) | (values.numbers > column.high))


def features_of(values: Values, column: Column) -> Floats:
    """The column's features, a row a record. Values must fit, and be missing only if the study says what that means."""
    numbers = values.numbers
    if column.fill is not None:
        numbers = np.where(values.missing, column.fill, numbers)
    if column.categories is not None:
        return indicate(np.where(values.missing & column.has_missing_feature, column.width - 1, numbers), column)
    if not column.has_missing_feature:
        return scale_column(numbers, column)[:, None]
    # The middle of the bounds, so that a row is no longer than 1.
    scaled = np.where(values.missing, 0.0, scale_column(np.where(values.missing, column.low, numbers), column))
    return np.stack([scaled, values.missing.astype(np.float64)], axis=1)


def bounds_of(column: Column, key: str = "bounds") -> str:
    """A column's public bounds, in the words of messages."""
    return f"(the study's {key} are {column.shown(column.low)} to {column.shown(column.high)})"


@dataclass(frozen=True)
class Place:
    """A column of a file or a data frame, for messages."""

    source: str
    column: str
    unit: str
    """The word for the place of a record, such as "line" """
    first: int
    """The number of the first record's place"""
    key: str = "categories"
    """The study's word for all possible values"""

    def check(self, given: pd.Series[Any], values: Values, column: Column) -> None:
        """Refuse values that do not fit, and missing ones if the study does not say what they mean."""
        if values.unfit.any():
            remedy = "repair or remove the record" if column.kind == "number" else "correct the value or the study"
            raise self._error(given, values.unfit, f"{self._wanted(column)}; {remedy}")
        if values.missing.any() and column.missing is None:
            count, of = int(values.missing.sum()), len(values.missing)
            share = f"{count} of {of} values {'is' if count == 1 else 'are'} missing ({100 * count / of:.3g} %)"
            own = 'missing = "category"' if column.kind == "category" else 'missing = "indicator"'
            remedy = f"give them, or let the study say what they mean: {own}, or a public value in their place"
            if self.key == "label":
                remedy = "give them, or remove these records"
            raise self._error(given, values.missing, f"{self._wanted(column)}; {share}: {remedy}")

    def _wanted(self, column: Column) -> str:
        if column.categories is not None:
            listed = ", ".join(map(str, column.categories[:12])) + (", …" if len(column.categories) > 12 else "")
            return f"the study's {'classes' if self.key == 'label' else self.key} are: {listed}"
        if column.kind == "boolean":
            return 'should be true or false (or 1 or 0); other words are categories = ["no", "yes"]'
        kind = "a day, as 2019-01-31" if column.kind == "date" else "a number"
        return f"should be {kind} {bounds_of(column, 'label_bounds' if self.key == 'label' else 'bounds')}"

    def _error(self, given: pd.Series[Any], rows: Flags, problem: str) -> DataError:
        row = int(np.flatnonzero(rows)[0])
        value = given.iloc[row]
        text = str(value) if len(str(value)) <= 60 else str(value)[:57] + "…"
        shown = "empty" if value is None or text.strip() == "" else repr(text)
        place = f"{self.source}, {self.unit} {row + self.first}, column {self.column!r}"
        return DataError(f"{place}: is {shown}, but {problem}.")
