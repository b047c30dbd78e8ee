"""Checks of features and labels for the estimators, which take numbers only. An error says what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from unspoken.data.columns import REPAIR, alike, percent
from unspoken.types import Integers

_FILL = (
    "fill in a public value, none that was computed from records, or describe the table in a study, whose columns say "
    "what a missing value means"
)


def numeric_features(rows: Any, party_column: str | None, estimator: str) -> Any:
    """The rows, of a data frame without the column that names parties; or `ValueError` if they are no finite numbers.

    What scikit-learn says better (sparse rows, objects) is left to it.
    """
    if hasattr(rows, "columns"):
        rows = rows.drop(columns=[name for name in rows.columns if name == party_column])
        names = list(rows.columns)
        for place, name in enumerate(names):
            if names.count(name) > 1:
                raise ValueError(f"X has the column {name!r} {names.count(name)} times; rename the others.")
            _check_column(rows.iloc[:, place], name, estimator)
    elif not hasattr(rows, "toarray"):
        _check_array(rows, estimator)
    return rows


def _check_column(column: Any, name: Any, estimator: str) -> None:
    if (numbers := _as_numbers(column)) is None:
        found = next((value for value in column if _is_unfit(value)), column.iloc[0])
        raise ValueError(
            f"X has the column {name!r} with {str(found)!r}, but {estimator} takes numbers only; leave it "
            f"out, pass groups={name!r} if it names the parties, or describe the table in a study, where columns may "
            "be categories and days, for unspoken.simulate."
        )
    if column.isna().any():
        share = percent(float(column.isna().mean()))
        raise ValueError(f"X has NaN in {share} of the column {name!r}, but {estimator} takes numbers only; {_FILL}.")
    if (wrong := np.flatnonzero(~np.isfinite(numbers))).size:
        row = int(wrong[0])
        raise ValueError(
            f"X has {numbers[row]} in row {row} of the column {name!r}, but {estimator} takes finite numbers only; "
            f"{REPAIR}."
        )


def _as_numbers(column: Any) -> npt.NDArray[np.float64] | None:
    """A column of numbers, or of numbers written as text, with NaN for missing ones; None if it has anything else."""
    if column.dtype.kind in "mM":
        return None
    if column.dtype.kind == "c":  # scikit-learn refuses it
        return np.zeros(len(column))
    try:
        return np.asarray(column.astype(float).to_numpy(dtype=float, na_value=math.nan))
    except (TypeError, ValueError, OverflowError):
        return None


def _check_array(rows: Any, estimator: str) -> None:
    try:
        array = np.asarray(rows)
    except ValueError:
        raise ValueError(
            "X has rows of different lengths, but each needs a number for each feature; repair them."
        ) from None
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {estimator} takes real numbers; give X.real, or both parts.")
    if array.dtype.kind in "mM":
        raise ValueError(
            f"X holds times, but {estimator} takes numbers only; count days or seconds from a public day, or describe "
            "the table in a study, where columns may be days, for unspoken.simulate."
        )
    if array.ndim == 1:
        raise ValueError(
            f"X has the shape {array.shape}, but needs a row for each record. Reshape your data: X.reshape(-1, 1) if "
            "it is one feature, X.reshape(1, -1) if it is one record."
        )
    if array.ndim == 2:
        for row, column in np.argwhere(_unfit(array))[:1].tolist():
            value = array[row, column]
            remedy = _FILL if value is None or value != value else REPAIR
            raise ValueError(
                f"X[{row}, {column}] is {_shown(value)}, but {estimator} takes finite numbers only; {remedy}."
            )


def _unfit(array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values are no finite numbers. Objects other than texts and numbers are left out."""
    if array.dtype.kind in "fiub":
        return np.asarray(~np.isfinite(array))
    if array.dtype.kind in "USO":
        return np.asarray(np.vectorize(_is_unfit, otypes=[bool])(array))
    return np.zeros(array.shape, dtype=np.bool_)


def _is_unfit(value: Any) -> bool:
    if not isinstance(value, str | float | int | None):
        return False
    try:
        return value is None or not math.isfinite(float(value))
    except (ValueError, OverflowError):
        return True


def _shown(value: Any) -> str:
    """A value in a message."""
    text = "NaN" if value != value else repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def check_labels(labels: Any, estimator: str, is_numeric: bool) -> None:
    """Refuse missing labels, those that mix text and numbers, and for a regression all that are no finite numbers."""
    array = np.asarray(labels)
    if is_numeric and array.dtype.kind in "mM":
        raise ValueError(f"y holds times, but {estimator} takes numbers only; count days or seconds from a public day.")
    if array.ndim != 1 or array.dtype.kind not in "fUSO":
        return
    if is_numeric and array.dtype.kind in "USO":
        wrong, wanted = _unfit(array), "numbers only; for classes there is PrivateClassifier"
    elif array.dtype.kind == "f" and not is_numeric and (abs(array) >= 1 << 53).any() and np.isfinite(array).all():
        # One float makes floats of all labels, and of long whole numbers others.
        wrong, wanted = abs(array) >= 1 << 53, "labels of 2**53 and more as whole numbers or text only; write all so"
    elif array.dtype.kind == "f":
        wrong, wanted = ~np.isfinite(array), "finite numbers only; repair or remove the record"
    else:
        wrong = np.array([value is None or value != value for value in array.tolist()], dtype=np.bool_)
        wanted = "a label for each record; give it, or remove the record"
    for row in np.flatnonzero(wrong)[:1].tolist():
        # scikit-learn's own words come first, as others look for them.
        found = ""
        if array.dtype.kind == "f" and not np.isfinite(array[row]):
            found = "NaN" if np.isnan(array[row]) else "infinity or a value too large for dtype('float64')"
            found = f"Input y contains {found}: "
        raise ValueError(f"{found}y[{row}] is {_shown(array[row])}, but {estimator} takes {wanted}.")
    if not is_numeric and len({isinstance(value, str) for value in array.tolist()}) > 1:
        raise ValueError("y mixes text with other labels, so that they have no order; write all of them as text.")


def places_among(classes: npt.NDArray[Any], present: npt.NDArray[Any], labels: Integers) -> Integers:
    """The place of each label among the sorted classes; `present` are the labels that occur, `labels` their places."""
    try:
        places = np.searchsorted(classes, present)
    except TypeError:
        raise ValueError(f"y has labels such as {_shown(present[0])}, which none of the classes is like.") from None
    unknown = (places == len(classes)) | (classes[np.minimum(places, len(classes) - 1)] != present)
    for row in np.flatnonzero(unknown[labels])[:1].tolist():
        label = present[labels[row]]
        meant = [repr(known) for known in classes.tolist() if alike(known) == alike(label)]
        remedy = f"write it as {meant[0]}" if meant else "correct the label, or name all that are possible"
        raise ValueError(f"y[{row}] is {_shown(label)}, which is not among classes={classes.tolist()}; {remedy}.")
    return places[labels]


def sorted_classes(classes: Any) -> npt.NDArray[Any]:
    """The classes that an estimator is told, sorted; or `ValueError`."""
    found, counts = np.unique(np.asarray(classes), return_counts=True)
    if np.ndim(classes) != 1 or len(found) < 2:
        raise ValueError(f"Expected a list of at least two classes, got classes={classes!r}.")
    if counts.max() > 1:
        twice = found[counts > 1].tolist()[0]
        raise ValueError(f"Expected each class once, got {twice!r} twice in classes={classes!r}; name it once.")
    return found
