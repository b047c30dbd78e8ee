"""Days that are written as text, such as "2019-01-31", as numbers, by scikit-learn alone.

A day's number is the sum of those of its parts: century, year, month and day. So a few hundred words tell all days,
however far apart the bounds are. What is no day of the calendar has none of these words.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

import numpy as np

_LEAP = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_MONTH, _NOT_FEBRUARY, _LONG_MONTH = "(?:0[1-9]|1[0-2])", "(?:0[13-9]|1[0-2])", "(?:0[13578]|1[02])"
_DAY = (
    rf"(?!0000)(?:\d{{4}}-(?:{_MONTH}-(?:0[1-9]|1\d|2[0-8])|{_NOT_FEBRUARY}-(?:29|30)|{_LONG_MONTH}-31)|{_LEAP}-02-29)"
    r"(?:[T ]|\s*$)"
)
"""A day of the calendar, also with a time behind it"""
_START = rf"(?a)^\s*(?={_DAY})"
_MISSING = r"^(?=\s*(?i:na|n/a|nan|nat|null|none|<na>)?\s*$)()"


class _Part(NamedTuple):
    """Words that a text may have, with the number that each adds."""

    pattern: str
    """It finds the word, as its only group."""
    numbers: dict[str, float]
    is_day: bool = False
    is_missing: bool = False


def day_numbers(name: str, missing: float | None) -> Any:
    """A fitted transformer of a data frame with one column of texts: to each day's number, and whether it is missing.

    `missing` is the number of a missing day. If it is None, such a day is refused, as is what is no day.
    """
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder

    parts = list(_parts(missing))
    # A data frame may have days and times that are no texts; as texts they begin with the day.
    finders = [
        (f"part{at}", CountVectorizer(preprocessor=str, token_pattern=part.pattern, vocabulary=list(part.numbers)), 0)
        for at, part in enumerate(parts)
    ]
    words = ColumnTransformer(finders).fit(pd.DataFrame({name: ["2000-01-01"]}, dtype=object))
    adds = [(number, part.is_missing, part.is_day) for part in parts for number in part.numbers.values()]
    # A product with a matrix is all that this one does.
    sums = TruncatedSVD(n_components=3)
    sums.components_ = np.array(adds, dtype=np.float64).T
    # Whatever is not one day is an unknown category, which is refused.
    one_day = OneHotEncoder(categories=[[1.0]], drop="first", sparse_output=False)
    checked = ColumnTransformer([("number", "passthrough", [0, 1]), ("one day", one_day, [2])])
    return Pipeline([("words", words), ("sums", sums), ("checked", checked.fit(np.array([[0.0, 0.0, 1.0]])))])


def _parts(missing: float | None) -> Iterator[_Part]:
    yield _Part(rf"{_START}(\d\d)", {f"{century:02}": float(146_097 * century // 4 - 366) for century in range(100)})
    yield _Part(rf"{_START}\d\d(\d\d)", {f"{year:02}": _days_between(date(2000 + year, 1, 1)) for year in range(100)})
    # Years were counted as if 00 were a leap year.
    yield _Part(rf"{_START}(?!{_LEAP})\d\d(00)", {"00": 1.0})
    for leap, year in (("=", 2000), ("!", 2001)):
        months = {f"{month:02}": _days_between(date(year, month, 1), date(year, 1, 1)) for month in range(1, 13)}
        yield _Part(rf"{_START}(?{leap}{_LEAP})\d{{4}}-(\d\d)", months)
    yield _Part(rf"{_START}\d{{4}}-\d\d-(\d\d)", {f"{day:02}": float(day) for day in range(1, 32)}, is_day=True)
    if missing is not None:
        yield _Part(_MISSING, {"": missing}, is_day=True, is_missing=True)


def _days_between(day: date, start: date = date(2000, 1, 1)) -> float:
    return float((day - start).days)
