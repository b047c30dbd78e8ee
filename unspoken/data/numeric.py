"""Features for estimators, which take numbers only: what is none is refused, with what to do about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from unspoken.data.checking import percent

_FILL = (
    "fill in a public value, none that was computed from records, or describe the table in a study, whose columns say "
    "what a missing value means"
)


def numeric_features(rows: Any, party_column: str | None, estimator: str) -> Any:
    """The rows, of a data frame without the column that names parties; or `ValueError` if there is text or NaN."""
    if hasattr(rows, "columns"):
        rows = rows.drop(columns=[name for name in rows.columns if name == party_column])
        for place, name in enumerate(rows.columns):
            _check_column(rows.iloc[:, place], name, estimator)
    elif isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and np.isnan(rows).any():
        raise ValueError(f"X has NaN, but {estimator} takes numbers only; {_FILL}.")
    return rows


def _check_column(column: Any, name: Any, estimator: str) -> None:
    if not _is_numeric(column):
        raise ValueError(
            f"X has the column {name!r} with {str(column.iloc[0])!r}, but {estimator} takes numbers only; leave it "
            f"out, pass groups={name!r} if it names the parties, or describe the table in a study, where columns may "
            "be categories and days, for unspoken.simulate."
        )
    if column.isna().any():
        share = percent(float(column.isna().mean()))
        raise ValueError(f"X has NaN in {share} of the column {name!r}, but {estimator} takes numbers only; {_FILL}.")


def _is_numeric(column: Any) -> bool:
    """Whether all values are numbers, or texts of numbers."""
    if column.dtype.kind in "biufc" or len(column) == 0:
        return True
    try:
        column.astype(float)
    except (TypeError, ValueError):
        return False
    return bool(column.dtype.kind not in "mM")
