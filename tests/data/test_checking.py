"""A holder sees what its records look like to a study, and what would be better; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unspoken
from factories import maker
from unspoken.data.checking import PRIVATE, Check
from unspoken.data.records import DataError

study = maker("moments", parties={"count": 2, "records": 10, "max_records": 1000})
COLUMNS: dict[str, Any] = {
    "age": {"min": 0, "max": 110},
    "visited": {"min": "2010-01-01", "max": "2010-12-31", "missing": "indicator"},
    "sex": {"categories": ["f", "m"]},
    "colour": {"categories": ["red"], "other": True},
}
AGREED = study(data={"label": "died", "classes": ["no", "yes"], "columns": COLUMNS})


def table(**changed: Any) -> pd.DataFrame:
    """A hundred records that fit well."""
    ages = np.linspace(1, 109, 100)
    days = pd.date_range("2010-01-02", "2010-12-30", periods=100).strftime("%Y-%m-%d")
    fitting = {
        "age": ages,
        "visited": days,
        "sex": ["f", "m"] * 50,
        "colour": "red",
        "died": ["no"] * 50 + ["yes"] * 50,
    }
    return pd.DataFrame(fitting).assign(**changed)


def column(found: Check, name: str) -> Any:
    return next(each for each in found.columns if each.name == name)


def test_records_that_fit_well_cause_no_remark() -> None:
    found = unspoken.check(AGREED, table())
    assert (found.fits, found.remarks, found.records) == (True, [], 100)
    assert found.classes == {"no": 50, "yes": 50}
    assert (found.clipped, found.duplicates) == (0.0, 0.0)
    assert 1.0 < (found.longest or 0.0) <= found.norm


def test_values_outside_their_bounds_are_counted_and_better_bounds_are_named() -> None:
    found = unspoken.check(AGREED, table(age=np.linspace(-50, 249, 100), visited="2015-03-01"))
    age, visited = column(found, "age"), column(found, "visited")
    assert (age.below, age.above, age.bounds) == (0.17, 0.47, ("0", "110"))
    assert age.proposed == ("-60", "260")
    assert (visited.above, visited.proposed) == (1.0, ("2015-01-01", "2015-12-31"))
    assert found.fits
    assert found.remarks[:2] == [
        "column 'age': 17 % of the values lie below 0 and 47 % above 110; they are clipped to these bounds",
        "column 'age': bounds from -60 to 260 would clip hardly any; you could propose them",
    ]
    assert found.remarks[3].endswith("as all values lie on one side of the bounds, they may be in another unit")


def test_bounds_that_are_far_too_wide_could_be_narrower() -> None:
    found = unspoken.check(AGREED, table(age=np.linspace(31.2, 38.7, 100)))
    assert column(found, "age").proposed == ("31.2", "38.8")
    assert found.remarks == [
        "column 'age': bounds from 31.2 to 38.8 would do, and noise would weigh less; you could propose them"
    ]


@pytest.mark.parametrize("value", [0.0, 1e9, -3e-7, 37.123456789])
def test_bounds_that_are_proposed_for_values_that_are_all_alike_differ_as_they_are_shown(value: float) -> None:
    found = unspoken.check(AGREED, table(age=np.full(100, value)))
    low, high = map(float, column(found, "age").proposed)
    assert low <= value <= high
    assert low < high


def test_bounds_that_rounded_are_the_study_s_own_are_not_proposed() -> None:
    found = unspoken.check(AGREED, table(visited=["2010-03-01", "2010-03-09"] * 50))
    assert (column(found, "visited").proposed, found.remarks) == (None, [])


def test_what_the_study_would_refuse_is_said_all_at_once() -> None:
    wrong = table(sex=["f", "x", "y", None] * 25, died=["no", "maybe"] * 50, age=[None, 1] * 50)
    found = unspoken.check(AGREED, wrong)
    assert not found.fits
    assert found.problems == [
        "row 0, column 'age': is 'nan', but should be a number (the study's bounds are 0 to 110); 50 of 100 values are "
        'missing (50 %): give them, or let the study say what they mean: missing = "indicator", or a public value in '
        "their place",
        "row 1, column 'sex': is 'x', but the study's categories are: f, m; 50 of 100 values are unfit (50 %): correct "
        "the value or the study, or let the study have other = true",
        "row 3, column 'sex': is 'nan', but the study's categories are: f, m; 25 of 100 values are missing (25 %): "
        'give them, or let the study say what they mean: missing = "category", or a public value in their place',
        "row 1, column 'died': is 'maybe', but the study's classes are: no, yes; 50 of 100 values are unfit (50 %): "
        "correct the value or the study",
    ]
    assert (found.longest, found.clipped) == (None, None)


def test_missing_and_other_values_that_the_study_allows_are_remarked_on() -> None:
    found = unspoken.check(AGREED, table(visited=["2010-01-02", None] * 50, colour=["red", "blue"] * 50, died="no"))
    assert found.fits
    assert (column(found, "visited").missing, column(found, "colour").other) == (0.5, 0.5)
    assert "column 'colour': 50 % of the values are none of the categories, such as 'blue'" in found.remarks
    assert "there is no record of the class 'yes'" in found.remarks


@pytest.mark.parametrize(
    ("rows", "problem"), [(9, "at least 10; lower records"), (1001, "at most 1000; raise max_records")]
)
def test_too_few_and_too_many_records_are_a_problem(rows: int, problem: str) -> None:
    found = unspoken.check(AGREED, table().iloc[np.arange(rows) % 100])
    assert [each for each in found.problems if problem in each] == found.problems != []


def test_duplicates_are_remarked_on() -> None:
    found = unspoken.check(AGREED, pd.concat([table(), table()[:25]]))
    assert found.duplicates == 0.2
    assert any("20 % of the records are equal to an earlier one" in remark for remark in found.remarks)


@pytest.mark.parametrize(("few", "told"), [(5, False), (15, True)])
def test_one_in_a_hundred_is_enough_for_a_remark(few: int, told: bool) -> None:
    """Of a thousand records, the first few are too long and have labels beyond the bounds, and the last are equal."""
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, size=(1000, 2))
    rows[:few] *= 3.0 / np.linalg.norm(rows[:few], axis=1, keepdims=True)
    rows[-few:] = rows[-1]
    labels = np.linspace(0, 1, 1000)
    labels[:few], labels[-few:] = 2.0, 1.0
    found = unspoken.check(study(task="regression", data={"features": 2, "label_bounds": [0, 1]}), rows, labels)
    text = " ".join(found.remarks)
    assert ("longer than norm = 1" in text, "equal to an earlier one" in text, "propose them" in text) == (told,) * 3


def test_a_matrix_is_checked_by_its_norm_labels_and_duplicates(tmp_path: Path) -> None:
    agreed = study(task="regression", data={"features": 2, "label_bounds": [0, 1]})
    rows = np.array([[3.0, 4.0], [0.0, 0.5]] * 5)
    np.savez(tmp_path / "m.npz", X=rows, y=np.linspace(0, 2, 10))
    for found in (unspoken.check(agreed, tmp_path / "m.npz"), unspoken.check(agreed, rows, np.linspace(0, 2, 10))):
        assert (found.clipped, found.longest, found.norm, found.duplicates) == (0.5, 5.0, 1.0, 0.0)
        assert found.label is not None
        assert found.label.above == 0.5
        assert any(remark.startswith("50 % of the records are longer than norm = 1") for remark in found.remarks)


def test_a_check_is_plain_json_and_says_that_it_is_private(tmp_path: Path) -> None:
    table(age=500).to_csv(tmp_path / "t.csv", index=False)
    before = sorted(tmp_path.iterdir())
    content = unspoken.check(AGREED, tmp_path / "t.csv").to_json()
    assert sorted(tmp_path.iterdir()) == before
    assert json.loads(json.dumps(content))["private"] == PRIVATE
    assert "tell the others something about your records" in PRIVATE


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DataError, match=r"describes a table, but arrays were given; give a data frame"):
        unspoken.check(AGREED, np.zeros((3, 3)))
    with pytest.raises(DataError, match=r"^the data frame: lacks the column 'age' that the study's \[data\] names"):
        unspoken.check(AGREED, table().drop(columns="age"))
    with pytest.raises(DataError, match=r"^the data frame: has no records"):
        unspoken.check(AGREED, table()[:0])
