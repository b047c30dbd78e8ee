"""Features and labels that estimators refuse, with their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from unspoken.data.numeric import check_labels, numeric_features, places_among

ROWS = np.arange(12.0).reshape(4, 3)


def with_value(value: Any, kind: Any = object) -> np.ndarray:
    rows = ROWS.astype(kind)
    rows[2, 1] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (with_value(np.nan, float), r"^X\[2, 1\] is NaN, but Model takes finite numbers only; fill in a public value"),
        (with_value(-np.inf, float), r"^X\[2, 1\] is -inf, .*; repair or remove the record\.$"),
        (with_value(None), r"^X\[2, 1\] is None, .*; fill in a public value"),
        (with_value("old"), r"^X\[2, 1\] is 'old', .*; repair or remove the record\.$"),
        (with_value(10**400), r"^X\[2, 1\] is 10{56}…, "),
        ([[1, 2], [3]], r"^X has rows of different lengths"),
        (ROWS[0], r"^X has the shape \(3,\), .* Reshape your data"),
        (ROWS.astype(complex), "^Complex data not supported"),
        (pd.DataFrame(ROWS, columns=["a", "b", "a"]), r"^X has the column 'a' 2 times; rename the others\.$"),
        (pd.DataFrame(with_value(np.inf), columns=["a", "b", "c"]), r"^X has inf in row 2 of the column 'b'"),
        (pd.DataFrame(with_value("old"), columns=["a", "b", "c"]), r"^X has the column 'b' with 'old'"),
    ],
)
def test_what_is_no_number_is_refused_with_its_place(rows: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        numeric_features(rows, None, "Model")


def test_numbers_pass_as_they_are() -> None:
    for rows in (ROWS, ROWS.tolist(), ROWS.astype(str), ROWS.astype(np.int64), ROWS > 3):
        assert numeric_features(rows, None, "Model") is rows


@pytest.mark.parametrize(
    ("labels", "is_numeric", "told"),
    [
        ([0.0, np.nan], False, r"^Input y contains NaN: y\[1\] is NaN, "),
        ([0.0, np.inf], True, r"^Input y contains infinity or a value too large for dtype\('float64'\): y\[1\] is inf"),
        (
            [2**53 + 1, float(2**53)],
            False,
            r"^y\[0\] is 9007199254740992.0, but Model takes labels of 2\*\*53 and more as",
        ),
        (["a", None], False, r"^y\[1\] is None, but Model takes a label for each record"),
        (["a", "b"], True, r"^y\[0\] is 'a', but Model takes numbers only; for classes"),
        (np.array(["a", 1], dtype=object), False, "^y mixes text with other labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_place(labels: Any, is_numeric: bool, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_labels(labels, "Model", is_numeric)


def test_a_label_that_is_none_of_the_classes_is_named_with_its_place() -> None:
    classes, (present, labels) = np.array(["no", "yes"]), np.unique(["no", "Yes", "no"], return_inverse=True)
    with pytest.raises(
        ValueError, match=r"^y\[1\] is 'Yes', which is not among classes=\['no', 'yes'\]; write it as 'yes'"
    ):
        places_among(classes, present, labels)
    present, labels = np.unique(["yes", "no"], return_inverse=True)
    assert places_among(classes, present, labels).tolist() == [1, 0]
