"""Days, booleans, categories with an other, and missing values become features as the study says, and only so."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from hypothesis import given
from hypothesis import strategies as st

from factories import maker
from unspoken.data.bounding import clip_rows
from unspoken.data.columns import read_values
from unspoken.data.files import DataError, read_records
from unspoken.data.tables import Table
from unspoken.methods.releases import LinearModel
from unspoken.simulation import simulate_records
from unspoken.study import Column, Study, make_study, read_study
from unspoken.types import Floats

study = maker("moments", parties=2)


def of_columns(**columns: Any) -> Study:
    return study(data={"label": "died", "classes": ["no", "yes"], "columns": columns})


def features(column: Any, values: Any) -> list[list[float]]:
    frame = pd.DataFrame({"x": values, "died": "no"})
    return Table(frame, "frame").records(of_columns(x=column)).features.round(12).tolist()


def refusal(column: Any, values: Any) -> str:
    with pytest.raises(DataError) as caught:
        features(column, values)
    return str(caught.value)


AGE = {"min": 0, "max": 110}
DAYS = {"min": "2019-01-01", "max": datetime.date(2019, 1, 31)}
SEX = {"categories": ["f", "m"]}
NAMES_OF_NOTHING = ["", " ", "NA", "n/a", "NaN", "null", "None", "<NA>", None, np.nan, pd.NA]


MIDNIGHT = pd.Timestamp("2019-01-16 23:30", tz="UTC")
ODD: list[Any] = [True, False, 1, 0, 1.0, np.float32(1), "1", "1.0", "true", b"1", [1], {"a": 1}, 1j, 1 + 0j, 2**63, -1]
ODD += [10**400, np.inf, "abc", "", None, np.nan, pd.NA, pd.NaT, Decimal(1), Decimal("1.00"), "2019-01-16"]
ODD += ["1\0x", "\ud800", "'\\ud800'", "100000000000000049", "1e400", "1_0", "１", np.timedelta64(1, "s")]
ODD += [datetime.date(2019, 1, 16), np.datetime64("2019-01-16"), MIDNIGHT, MIDNIGHT.tz_convert("Asia/Tokyo")]


@pytest.mark.parametrize(
    "column",
    [AGE, DAYS, "boolean", *({"categories": known, "other": True} for known in (["1"], [0, 1], [True], ["'\\ud800'"]))],
)
def test_no_record_changes_how_another_one_is_read(column: Any) -> None:
    """If one did, the sum over all records would move by more than one record can."""
    described = Column.model_validate(column)

    def read(rows: list[int]) -> Floats:
        values = pd.Series([None] * len(rows), dtype=object)
        for place, row in enumerate(rows):
            values.iat[place] = ODD[row]
        found = read_values(values, described)
        return np.stack([found.numbers, found.missing, found.unfit])

    alone = np.hstack([read([row]) for row in range(len(ODD))])
    for first in range(len(ODD)):
        order = [first, *range(len(ODD))]
        np.testing.assert_array_equal(read(order), alone[:, order])
        np.testing.assert_array_equal(read([first, 2, 4]), alone[:, [first, 2, 4]])


def test_pandas_neither_reads_numbers_from_text_nor_tells_texts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its versions read long numbers otherwise if one record has a point, and take "M" and "M\0x" for one."""
    monkeypatch.setattr(pd, "to_numeric", None)
    monkeypatch.setattr(pd, "factorize", None)
    long = "100000000000000049"
    for others in ([], ["0.5"], [""], ["x"]):
        found = read_values(pd.Series([*others, long, "1e5", " 7 "]), Column.model_validate(AGE))
        assert found.numbers[len(others) :].tolist() == [float(long), 1e5, 7.0]
    codes = pd.Series(["M\0x", "M", "F", None, "M"])
    found = read_values(codes, Column.model_validate({"categories": ["M", "F"], "other": True, "missing": "category"}))
    np.testing.assert_array_equal(found.numbers, [2.0, 0.0, 1.0, np.nan, 0.0])


def test_a_missing_code_in_parquet_does_not_change_how_long_codes_are_read(tmp_path: Path) -> None:
    code = {"categories": [900000000000207008, 900000000000441003], "other": True, "missing": "category"}
    codes = [900000000000441003, 900000000000207008, 900000000000207009]
    for first, expected in ((codes[0], [0, 1, 0, 0]), (None, [0, 0, 0, 1])):
        frame = pd.DataFrame({"x": pd.array([first, *codes], dtype="Int64"), "died": "no"})
        frame.to_parquet(tmp_path / "codes.parquet")
        read = read_records(tmp_path / "codes.parquet", of_columns(x=code)).features.tolist()
        assert read == [expected, [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]


FAR = 300_000_000_000
"""Seconds from 1970 to the year 11476"""


@pytest.mark.parametrize(
    "kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.date32()]
)
def test_a_day_in_a_year_that_python_does_not_know_is_named(kind: pa.DataType, tmp_path: Path) -> None:
    """pandas knows such years, and fails wherever it has to show them."""
    per = {"s": 1, "ms": 1000, "us": 10**6, "D": 1 / 86_400}[getattr(kind, "unit", "D")]
    for last, fits in ((253_402_200_000, True), (FAR, False), (-FAR, False)):
        days = [None, round(1e9 * per), round(last * per)]
        whole = pa.array(days, pa.int32() if kind == pa.date32() else pa.int64())
        pq.write_table(pa.table({"x": whole.cast(kind), "died": ["no"] * 3}), tmp_path / "days.parquet")
        agreed = of_columns(x=DAYS | {"missing": "indicator"})
        if fits:
            assert read_records(tmp_path / "days.parquet", agreed).features.tolist() == [[0, 1], [-1, 0], [1, 0]]
            continue
        with pytest.raises(DataError, match=r"parquet, row 3, column 'x': is a day outside of the years 1 to 9999; re"):
            read_records(tmp_path / "days.parquet", agreed)


def test_a_time_of_a_data_frame_in_a_year_that_python_does_not_know_is_refused() -> None:
    times = pd.Series(np.array([10**9, FAR], dtype="M8[s]"))
    assert "row 1, column 'x': is '11476-08-15 05:20:00', but should be a day" in refusal(DAYS, times)


@pytest.mark.parametrize("known", [[900000000000207008], ["900000000000207008"]])
def test_long_codes_that_pandas_made_floats_are_refused_and_not_taken_for_others(known: list[Any]) -> None:
    column = {"categories": known, "other": True, "missing": "category"}
    code = 900000000000207008
    for values in ([code, None], pd.Series([code, None], dtype=float)):
        assert refusal(column, values).endswith(
            '; give the column as text or as "Int64", as a float does not hold a number of so many digits.'
        )
    assert features(column, [code, code + 1]) == [[1, 0, 0], [0, 1, 0]]
    assert features(column, pd.array([code, None], dtype="Int64")) == [[1, 0, 0], [0, 0, 1]]
    assert features(column, [str(code), None]) == [[1, 0, 0], [0, 0, 1]]
    assert "float" in refusal({"categories": [2**53], "other": True}, [2.0**53])
    assert features(column, [0.5, 2.0**52]) == [[0, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (DAYS, ["2019-01-01", " 2019-01-16", "2019-01-31T23:59:59+02:00", "9999-12-31"], [[-1], [0], [1], [1]]),
        (DAYS, pd.to_datetime(["2018-01-01 00:00", "2019-01-16 13:00"]), [[-1], [0]]),
        (DAYS, [datetime.date(2019, 1, 16), datetime.datetime(2019, 1, 31, 5)], [[0], [1]]),
        ("boolean", [True, False], [[1], [-1]]),
        ("boolean", ["TRUE", " false"], [[1], [-1]]),
        ("boolean", [1, 0], [[1], [-1]]),
        ("boolean", [1.0, 0.0], [[1], [-1]]),
        (SEX | {"other": True}, ["m", "diverse", "f"], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        ({"categories": [1, 2], "other": True}, [2, 3, 1.0], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
    ],
)
def test_a_column_of_every_kind_becomes_what_the_study_says(column: Any, values: Any, expected: Any) -> None:
    assert features(column, values) == expected


@pytest.mark.parametrize("nothing", NAMES_OF_NOTHING)
@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (AGE | {"missing": 110}, "0", [[-1], [1]]),
        (AGE | {"missing": "indicator"}, "0", [[-1, 0], [0, 1]]),
        (DAYS | {"missing": "2019-01-16"}, "2019-01-31", [[1], [0]]),
        (DAYS | {"missing": "indicator"}, "2019-01-31", [[1, 0], [0, 1]]),
        ({"boolean": True, "missing": True}, "false", [[-1], [1]]),
        ({"boolean": True, "missing": "indicator"}, "false", [[-1, 0], [0, 1]]),
        (SEX | {"missing": "m"}, "f", [[1, 0], [0, 1]]),
        (SEX | {"missing": "category"}, "f", [[1, 0, 0], [0, 0, 1]]),
        (SEX | {"missing": "category", "other": True}, "x", [[0, 0, 1, 0], [0, 0, 0, 1]]),
        ({"categories": [0, 7], "missing": 7}, "0", [[1, 0], [0, 1]]),
    ],
)
def test_a_missing_value_becomes_what_the_study_says(column: Any, value: str, expected: Any, nothing: Any) -> None:
    assert features(column, [value, nothing]) == expected


@pytest.mark.parametrize("column", [AGE, DAYS, "boolean", SEX, SEX | {"other": True}, AGE | {"missing": "refuse"}])
def test_a_missing_value_is_refused_with_its_share_unless_the_study_says_what_it_means(column: Any) -> None:
    message = refusal(column, [None, None, "2"] if column == AGE else [None, None, None])
    assert message.startswith("frame, row 0, column 'x': is ")
    assert ("2 of 3 values are missing (66.7 %)" if column == AGE else "3 of 3 values are missing (100 %)") in message
    assert message.endswith('", or a public value in their place.')


def test_a_category_may_be_called_like_nothing() -> None:
    assert features({"categories": ["None", "yes"]}, ["yes", "None"]) == [[0, 1], [1, 0]]
    assert "1 of 2 values is missing" in refusal({"categories": ["None", "yes"]}, ["yes", None])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (DAYS, "31.1.2019", "is '31.1.2019', but should be a day, as 2019-01-31 (the study's bounds are 2019-01-01 to"),
        (DAYS, "2019-02-30", "is '2019-02-30', but should be a day, as 2019-01-31"),
        (DAYS, "2019-01-011", "is '2019-01-011', but should be a day"),
        (DAYS, 7, "is '7', but should be a day"),
        ("boolean", "yes", "is 'yes', but should be true or false (or 1 or 0); other words are categories = [\"no\""),
        ("boolean", 2, "is '2', but should be true or false"),
        (SEX | {"missing": "category"}, "x", "is 'x', but the study's categories are: f, m; correct the value or"),
        (AGE | {"missing": 40}, "old", "is 'old', but should be a number (the study's bounds are 0 to 110); repair"),
    ],
)
def test_what_a_column_cannot_be_is_refused_whatever_missing_values_mean(column: Any, value: Any, message: str) -> None:
    assert refusal(column, [value]).startswith(f"frame, row 0, column 'x': {message}")


def test_the_study_file_may_say_all_that_in_short(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        """
        study = { name = "s", task = "statistics" }
        parties = { count = 2 }
        privacy = { epsilon = 1.0, delta = 1e-6 }
        method = { name = "moments" }
        [data.columns]
        age = { min = 0, max = 100, missing = 40 }
        visited = { min = 2019-01-01, max = 2024-12-31, missing = "indicator" }
        smoker = "boolean"
        colour = { categories = ["red", "blue"], other = true, missing = "category" }
        """,
        encoding="utf-8",
    )
    agreed = read_study(path)
    assert agreed.data.raw_dimension == 1 + 2 + 1 + 4
    again = make_study(agreed.model_dump(exclude_none=True))
    assert again.digest() == agreed.digest()
    assert again.data == agreed.data


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SEX, SEX | {"other": True}),
        (AGE, AGE | {"missing": 0}),
        (AGE | {"missing": 0}, AGE | {"missing": "indicator"}),
        ("boolean", {"boolean": True, "missing": False}),
        (DAYS, DAYS | {"max": "2019-02-01"}),
    ],
)
def test_what_a_column_means_is_in_the_study_s_digest(one: Any, other: Any) -> None:
    assert of_columns(x=one).digest() != of_columns(x=other).digest()


def test_a_study_that_says_nothing_new_keeps_its_digest() -> None:
    plain = of_columns(x=AGE, y=SEX)
    assert plain.digest() == of_columns(x=AGE | {"missing": "refuse"}, y=SEX | {"other": False}).digest()
    content = plain.model_dump(exclude_none=True)
    content["data"]["norm"] = 2.0
    assert make_study(content).digest() == "aaf7cdb05615d1aa479c7c5bb17be151c4c9b6f4d1aeb7f355b7b6c932c5b4bd"


EVERY: dict[str, Any] = {
    "age": AGE | {"missing": 40},
    "dose": {"min": -1, "max": 1, "missing": "indicator"},
    "visited": {"min": "2019-01-01", "max": "2019-12-31", "missing": "indicator"},
    "born": {"min": "1950-01-01", "max": "2000-12-31", "missing": "1970-01-01"},
    "smoker": {"boolean": True, "missing": "indicator"},
    "insured": {"boolean": True, "missing": False},
    "sex": {"categories": ["m", "f"], "missing": "category"},
    "colour": {"categories": ["red", "blue"], "other": True, "missing": "blue"},
    "site": {"categories": [7, 3], "other": True, "missing": "category"},
    "ward": {"categories": [True, False], "missing": "category"},
    "bmi": {"min": 5, "max": 60},
    "left": "boolean",
    "plain": {"categories": ["b", "a"]},
    "more": {"categories": ["b", "a"], "other": True},
}


def everything(rows: int, seed: int) -> pd.DataFrame:
    """Every kind of column; of those that may be missing, a fifth is."""
    rng = np.random.default_rng(seed)
    days = [datetime.date(1940, 1, 1) + datetime.timedelta(int(day)) for day in rng.integers(0, 30_000, rows)]
    found: dict[str, list[Any]] = {
        "age": rng.uniform(-5, 120, rows).tolist(),
        "dose": rng.normal(size=rows).tolist(),
        "visited": [f"2019-{month:02}-15" for month in rng.integers(1, 13, rows)],
        "born": [day.isoformat() for day in days],
        "smoker": (rng.random(rows) < 0.5).tolist(),
        "insured": (rng.random(rows) < 0.5).tolist(),
        "sex": rng.choice(["f", "m"], rows).tolist(),
        "colour": rng.choice(["red", "blue", "green"], rows).tolist(),
        "site": rng.choice([3, 7, 8], rows).tolist(),
        "ward": (rng.random(rows) < 0.5).tolist(),
        "bmi": rng.uniform(10, 40, rows).tolist(),
        "left": (rng.random(rows) < 0.5).tolist(),
        "plain": rng.choice(["a", "b"], rows).tolist(),
        "more": rng.choice(["a", "b", "c"], rows).tolist(),
    }
    for name, column in EVERY.items():
        if isinstance(column, dict) and "missing" in column:
            found[name] = [None if rng.random() < 0.2 else value for value in found[name]]
    return pd.DataFrame(found)


def test_the_saved_model_bounds_and_encodes_as_the_parties_do(tmp_path: Path) -> None:
    agreed = of_columns(**EVERY)
    rng = np.random.default_rng(0)
    release = LinearModel(rng.normal(size=(2, agreed.data.dimension)), "softmax", {})
    release.save(agreed, tmp_path / "model.skops")
    model = skops.io.load(tmp_path / "model.skops", trusted=[])
    whole = everything(300, 1)
    for frame in (whole, whole.dropna().reset_index(drop=True)):
        frame.assign(died="no").to_csv(tmp_path / "test.csv", index=False)
        read = read_records(tmp_path / "test.csv", agreed)
        assert "born" in read.outside
        # Days are text, also missing ones.
        found = pd.read_csv(tmp_path / "test.csv").fillna({"visited": "", "born": ""})
        np.testing.assert_allclose(model.predict_proba(found), release.probabilities(agreed, read.features), rtol=1e-9)
        np.testing.assert_array_equal(Table(frame.assign(died="no"), "frame").records(agreed).features, read.features)


@given(st.lists(st.integers(0, 199), min_size=1, max_size=6))
def test_no_record_is_longer_than_the_largest_norm_nor_encoded_by_others(rows: list[int]) -> None:
    agreed = of_columns(**EVERY)
    frame = WHOLE.iloc[rows]
    together = Table(frame, "frame").records(agreed).features
    alone = [Table(frame.iloc[[at]], "frame").records(agreed).features for at in range(len(rows))]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    np.testing.assert_array_equal(clip_rows(together, agreed.data)[:, :-1], together)


WHOLE = everything(200, 2).assign(died="yes")


def statistics(function: str, frame: pd.DataFrame, **columns: Any) -> dict[str, Any]:
    method = {"name": "none", "function": function, **({"bins": 2} if function == "histogram" else {})}
    agreed = study(task="statistics", data={"columns": columns}, method=method)
    records = Table(frame, "frame").records(agreed)
    found: Floats | Any = simulate_records(agreed, records, np.arange(len(frame)) % 2).outcome.release
    assert len(found.rows()) >= len(columns)
    return dict(found.statistics)


def test_means_are_over_the_values_that_are_there() -> None:
    whole = WHOLE.assign(visited=WHOLE["visited"].where(WHOLE["visited"].notna(), None))
    names = ("dose", "visited", "smoker", "colour", "sex")
    found = statistics("mean", whole, **{name: EVERY[name] for name in names})
    assert found["dose"]["mean"] == pytest.approx(whole["dose"].clip(-1, 1).mean())
    assert found["dose"]["missing"] == pytest.approx(whole["dose"].isna().mean())
    assert found["visited"]["mean"] == str(pd.to_datetime(whole["visited"]).mean().round("D").date())
    assert found["smoker"]["mean"] == pytest.approx(whole["smoker"].dropna().astype(float).mean())
    assert found["sex"]["shares"]["(missing)"] == pytest.approx(whole["sex"].isna().mean())
    assert found["colour"]["shares"]["(other)"] == pytest.approx((whole["colour"] == "green").mean())


def test_histograms_count_missing_values_apart() -> None:
    found = statistics("histogram", WHOLE, **{name: EVERY[name] for name in ("dose", "visited", "smoker", "site")})
    dose = WHOLE["dose"]
    assert found["dose"]["counts"] == [(dose < 0).sum(), (dose >= 0).sum()]
    assert found["dose"]["missing"] == dose.isna().sum()
    assert found["visited"]["edges"] == ["2019-01-01", "2019-07-02", "2019-12-31"]
    smokers = WHOLE["smoker"]
    assert found["smoker"]["counts"] == {"false": (smokers == False).sum(), "true": (smokers == True).sum()}  # noqa: E712
    assert found["site"]["counts"] == {
        "7": (WHOLE["site"] == 7).sum(),
        "3": (WHOLE["site"] == 3).sum(),
        "(other)": (WHOLE["site"] == 8).sum(),
        "(missing)": WHOLE["site"].isna().sum(),
    }
