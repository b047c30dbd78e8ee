"""Turns the values of a table's column into numbers and then into features, as the study describes the column.

Nothing is guessed or estimated from the data: what a missing value becomes is said by the study.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.bounding import indicate, scale_column
from unspoken.data.records import DataError
from unspoken.study import Column, day_of
from unspoken.types import Flags, Floats, Integers

if TYPE_CHECKING:
    import pandas as pd

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})
"""The texts that mean that there is no value, in any case, unless the study has a category of that name"""
_COMMAS = re.compile(r"[-+]?\d[\d.]*(,\d+)+(\.\d+)?")
"""Numbers with a comma before decimals or between thousands, which nobody can tell apart"""
REPAIR = "repair or remove the record"
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
    """Numbers, and texts of numbers. Each text is read by itself: pandas reads those of a column in one of several
    ways, by what else is in it, and some of them are inexact."""
    if values.dtype.kind in "iufb":
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan).copy()
    else:
        numbers = np.fromiter(map(_number, values.tolist()), dtype=np.float64, count=len(values))
    rest = np.flatnonzero(~np.isfinite(numbers))
    missing, unfit = np.zeros(len(numbers), dtype=np.bool_), np.zeros(len(numbers), dtype=np.bool_)
    missing[rest] = [_is_missing(value) for value in values.iloc[rest]]
    unfit[rest] = ~missing[rest]
    numbers[rest] = np.nan
    return Values(numbers, missing, unfit)


def _by_distinct(values: pd.Series[Any], read: Callable[[Any], float | None]) -> Values:
    """Values, each distinct one read once: NaN is a missing value, None an unfit one."""
    import pandas as pd

    if values.dtype.kind in "iufbM":
        places, distinct = pd.factorize(values)
        found = [read(value) for value in distinct]
    else:
        places, found = _told_apart(values, read)
    # A value that pandas takes for missing has the place −1: the last one here.
    numbers = np.array([*(math.nan if number is None else number for number in found), math.nan])[places]
    unfit = np.array([*(number is None for number in found), False])[places]
    return Values(numbers, np.isnan(numbers) & ~unfit, unfit)


def _told_apart(values: pd.Series[Any], read: Callable[[Any], float | None]) -> tuple[Integers, list[float | None]]:
    """The place of each value among the distinct ones, or −1 if it is missing; and what is read of these.

    pandas takes True and 1 for the same, times of several zones, and some versions of it texts that are alike up to a
    NUL. It would read all as the first of them: so one record would change how others are read.
    """
    each = values.tolist()
    keys = [value if type(value) is str else (type(value), str(value)) for value in each]
    missing = values.isna().to_numpy()
    known = {key: value for key, value, absent in zip(keys, each, missing.tolist(), strict=True) if not absent}
    places = {key: place for place, key in enumerate(known)}
    found = np.fromiter((places.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))
    return np.where(missing, -1, found), [read(value) for value in known.values()]


def _number(value: Any) -> float:
    """The number that a value is, or that a text says in plain digits; NaN if there is none."""
    if isinstance(value, str):
        if "_" in value or not value.isascii():
            return math.nan  # Python would read them, but hardly anybody means them.
    elif not isinstance(value, Number) or isinstance(value, np.timedelta64):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


def _reader(column: Column) -> Callable[[Any], float | None]:
    """A function from a value to its number: NaN if it is missing, None if the study does not know it."""
    if column.categories is None:
        look_up = _day if column.kind == "date" else _truth
        return lambda value: math.nan if _is_missing(value) else look_up(value)
    kind = type(column.categories[0])
    positions = {_written(value, kind): float(code) for code, value in enumerate(column.categories)}
    other = float(len(positions)) if column.other else None

    def position(value: Any) -> float | None:
        if _is_inexact(value):
            return None
        found = positions.get(_written(value, kind))
        if found is not None:
            return found
        return math.nan if _is_missing(value) else other

    return position


def _is_inexact(value: Any) -> bool:
    """Whether a category comes as a float that may stand for several whole numbers.

    pandas makes floats of whole numbers if one is missing: that must not turn all long codes into other values.
    """
    return isinstance(value, float | np.floating) and abs(float(value)) >= 1 << 53


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
    whole = (
        re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", text) if kind is int or isinstance(value, float | np.floating) else None
    )
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
class ColumnPlace:
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
        for problem in self.problems(given, values, column):
            raise DataError(f"{self.source}, {problem}.")

    def problems(self, given: pd.Series[Any], values: Values, column: Column) -> Iterator[str]:
        """Sentences about values that do not fit, and about missing ones: the first place, how many, and a remedy."""
        if values.unfit.any():
            first = given[values.unfit].iloc[0]
            count = f"{_counted(values.unfit, 'unfit')}: " if values.unfit.sum() > 1 else ""
            wanted = f"{self._wanted(column, first)}; {count}{self._remedy(column, first)}"
            yield self._problem(given, values.unfit, wanted)
        if values.missing.any() and column.missing is None:
            own = 'missing = "category"' if column.kind == "category" else 'missing = "indicator"'
            remedy = f"give them, or let the study say what they mean: {own}, or a public value in their place"
            if self.key == "label":
                remedy = "give them, or remove these records"
            wanted = f"{self._wanted(column)}; {_counted(values.missing, 'missing')}: {remedy}"
            yield self._problem(given, values.missing, wanted)

    def _wanted(self, column: Column, value: Any = None) -> str:
        if column.categories is not None:
            listed = ", ".join(map(str, column.categories[:12])) + (", …" if len(column.categories) > 12 else "")
            return f"the study's {'classes' if self.key == 'label' else self.key} are: {listed}"
        if column.kind == "boolean":
            return 'should be true or false (or 1 or 0); other words are categories = ["no", "yes"]'
        number = "a finite number" if _is_infinite(value) else "a number"
        kind = "a day, as 2019-01-31" if column.kind == "date" else number
        return f"should be {kind} {bounds_of(column, 'label_bounds' if self.key == 'label' else 'bounds')}"

    def _remedy(self, column: Column, value: Any) -> str:
        known = [str(category) for category in column.categories or [] if alike(category) == alike(value)]
        if known:
            return f"write it as {known[0]!r}, letter by letter"
        if column.kind == "category" and _is_inexact(value):
            return 'give the column as text or as "Int64", as a float does not hold a number of so many digits'
        if column.kind == "number":
            is_comma = _COMMAS.fullmatch(str(value).strip()) is not None
            return "write it with a point before decimals and nothing between thousands" if is_comma else REPAIR
        other = ", or let the study have other = true" if column.kind == "category" and self.key != "label" else ""
        return f"correct the value or the study{other}"

    def _problem(self, given: pd.Series[Any], rows: Flags, problem: str) -> str:
        row = int(np.flatnonzero(rows)[0])
        value = given.iloc[row]
        text = str(value) if len(str(value)) <= 60 else str(value)[:57] + "…"
        # Letters with loose accents look like others.
        quoted = repr(text) if unicodedata.is_normalized("NFC", text) else ascii(text)
        shown = "empty" if value is None or text.strip() == "" else quoted
        return f"{self.unit} {row + self.first}, column {self.column!r}: is {shown}, but {problem}"


def _counted(rows: Flags, what: str) -> str:
    """How many values are so.

    >>> _counted(np.array([True, False, False, False]), "missing")
    '1 of 4 values is missing (25 %)'
    """
    count = int(rows.sum())
    return f"{count} of {len(rows)} values {'is' if count == 1 else 'are'} {what} ({percent(count / len(rows))})"


def percent(share: float) -> str:
    """A share in words.

    >>> percent(1.0), percent(0.1234), percent(0.00012)
    ('100 %', '12.3 %', '0.012 %')
    """
    return f"{100.0 * share:.3g} %"


def _is_infinite(value: Any) -> bool:
    """Whether a value is a number that is infinite, or too large for arithmetic."""
    try:
        return math.isinf(float(value))
    except OverflowError:
        return True
    except (TypeError, ValueError):
        return False


def alike(value: Any) -> str:
    """A text without what people overlook: case, kinds of spaces, and how accents are encoded.

    >>> alike("New\u00a0York "), alike("KO\u0308LN")
    ('new york', 'köln')
    """
    return " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())
