"""Tables are read as the study describes them, or the file, place, value and remedy are named."""

import datetime
import decimal
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from factories import make
from record_files import MATRIX, assert_same, complaint, study
from unspoken.data.files import DataError, read_features, read_records
from unspoken.data.tables import check_names
from unspoken.study import Study

ROWS = {"age": [0, 110, 55], "sex": ["f", "m", "m"], "died": ["no", "yes", "no"]}


def table_study(**columns: Any) -> Study:
    columns = columns or {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}}
    return study(data={"label": "died", "classes": ["no", "yes"], "columns": columns})


AGE = study(
    task="regression", data={"label": "age", "label_bounds": [0, 110], "columns": {"sex": {"categories": ["f", "m"]}}}
)
ALL = study(task="statistics", data={"columns": {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}}})


def write_table(path: Path, table: dict[str, Any]) -> Path:
    frame = pd.DataFrame(table)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


def write_csv(folder: Path, text: str | bytes) -> Path:
    path = folder / "heart.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".parquet", ".pq"])
def test_a_table_becomes_scaled_numbers_and_indicators(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"heart{suffix}"
    source = write_table(tmp_path / f"source{suffix.lower()}", ROWS)
    source.rename(path)
    assert_same(read_records(path, table_study()), [[-1, 1, 0], [1, 0, 1], [0, 0, 1]], [0, 1, 0])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_other_columns_and_their_order_do_not_matter(tmp_path: Path, suffix: str) -> None:
    table = {"died": ROWS["died"], "note": ["", "x", "1"], "sex": ROWS["sex"], "age": ROWS["age"]}
    path = write_table(tmp_path / f"heart{suffix}", table)
    assert_same(read_records(path, table_study()), [[-1, 1, 0], [1, 0, 1], [0, 0, 1]], [0, 1, 0])


def test_the_order_of_columns_in_the_study_does_not_matter(tmp_path: Path) -> None:
    path = write_table(tmp_path / "heart.csv", ROWS)
    turned = table_study(sex={"categories": ["f", "m"]}, age={"min": 0, "max": 110})
    assert turned.digest() == table_study().digest()
    np.testing.assert_array_equal(read_records(path, turned).features, read_records(path, table_study()).features)


def test_a_csv_file_may_have_a_mark_spaces_quotes_and_blank_lines_at_its_end(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf"age",sex,died\r\n" 55 ","f", no\r\n1.1e2,m ,yes\r\n\r\n\r\n'
    assert_same(read_records(write_csv(tmp_path, text), table_study()), [[0, 1, 0], [1, 0, 1]], [0, 1])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("classes", "values"),
    [
        ([0, 1], [0, 1, 1]),
        ([1, 0], [1, 0, 0]),
        ([0, 1], [0.0, 1.0, 1.0]),
        ([False, True], [False, True, True]),
        (["0", "1"], [0, 1, 1]),
        (["-1", "+1"], ["-1", "+1", "+1"]),
    ],
)
def test_categories_and_classes_may_be_numbers_or_booleans(
    tmp_path: Path, suffix: str, classes: list[Any], values: list[Any]
) -> None:
    path = write_table(tmp_path / f"typed{suffix}", {"smokes": values, "died": values})
    agreed = study(data={"label": "died", "classes": classes, "columns": {"smokes": {"categories": classes}}})
    assert_same(read_records(path, agreed), [[1, 0], [0, 1], [0, 1]], [0, 1, 1])


def test_numbers_in_parquet_may_have_any_numeric_type(tmp_path: Path) -> None:
    for values in (
        np.array([0, 110, 55], dtype=np.uint8),
        np.array([0, 110, 55], dtype=np.float32),
        [decimal.Decimal(0), decimal.Decimal(110), decimal.Decimal(55)],
        pd.Categorical([0, 110, 55]),
        pd.array([0, 110, 55], dtype="Int32"),
    ):
        path = write_table(tmp_path / "heart.parquet", ROWS | {"age": values, "sex": pd.Categorical(ROWS["sex"])})
        assert_same(read_records(path, table_study()), [[-1, 1, 0], [1, 0, 1], [0, 0, 1]], [0, 1, 0])


def test_a_column_that_was_an_index_in_pandas_is_still_a_column(tmp_path: Path) -> None:
    path = tmp_path / "heart.parquet"
    pd.DataFrame(ROWS).set_index("age").to_parquet(path)
    assert read_records(path, table_study()).features[:, 0].tolist() == [-1.0, 1.0, 0.0]


def test_a_column_that_the_study_uses_is_not_proposed_for_another() -> None:
    with pytest.raises(DataError, match=r'lacks the column .wards. .*did you mean "words"\?'):
        check_names("t.csv", ["ward", "words"], ["ward", "wards"])
    with pytest.raises(DataError, match=r"'wards' .*; correct the table or the study\.$"):
        check_names("t.csv", ["ward", "age"], ["ward", "wards"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", ["age", "died"])
def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path, suffix: str, name: str) -> None:
    table = {key: values for key, values in ROWS.items() if key != name} | {" weight": [1, 2, 3]}
    have = ", ".join(map(repr, table))
    assert complaint(write_table(tmp_path / f"heart{suffix}", table), table_study()) == (
        f"heart{suffix}: lacks the column '{name}' that the study's [data] names; the table has: {have}; correct the "
        "table or the study."
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("column", "value", "shown", "remedy"),
    [
        ("age", "old", "'old'", "should be a number (the study's bounds are 0 to 110); repair or remove the record."),
        (
            "age",
            "",
            "empty",
            "should be a number (the study's bounds are 0 to 110); 1 of 3 values is missing (33.3 %)",
        ),
        ("age", "nan", "'nan'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "inf", "'inf'", "should be a finite number (the study's bounds are 0 to 110)"),
        ("age", "-Infinity", "'-Infinity'", "should be a finite number (the study's bounds are 0 to 110)"),
        ("age", "1e999", "'1e999'", "should be a finite number (the study's bounds are 0 to 110)"),
        (
            "age",
            "1,5",
            "'1,5'",
            "should be a number (the study's bounds are 0 to 110); write it with a point before decimals and nothing "
            "between thousands.",
        ),
        ("age", "1,5,", "'1,5,'", "should be a number (the study's bounds are 0 to 110); repair or remove the record."),
        ("age", "1_0", "'1_0'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "True", "'True'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "two\nlines", r"'two\nlines'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "x" * 99, "'" + "x" * 57 + "…'", "should be a number (the study's bounds are 0 to 110)"),
        ("sex", "x", "'x'", "the study's categories are: f, m; correct the value or the study, or let the study have"),
        ("sex", "", "empty", "the study's categories are: f, m; 1 of 3 values is missing (33.3 %): give them, or let"),
        ("sex", "F", "'F'", "the study's categories are: f, m; write it as 'f', letter by letter."),
        ("died", "maybe", "'maybe'", "the study's classes are: no, yes; correct the value or the study."),
        (
            "died",
            "NA",
            "'NA'",
            "the study's classes are: no, yes; 1 of 3 values is missing (33.3 %): give them",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_shown_with_its_place_and_a_remedy(
    tmp_path: Path, suffix: str, column: str, value: str, shown: str, remedy: str
) -> None:
    table = {key: [str(item) for item in values] for key, values in ROWS.items()}
    table[column][2] = value
    where = "line 4" if suffix == ".csv" else "row 3"
    message = complaint(write_table(tmp_path / f"heart{suffix}", table), table_study())
    assert message.startswith(f"heart{suffix}, {where}, column '{column}': is {shown}, but {remedy}")


@pytest.mark.parametrize(
    ("column", "values", "row"),
    [
        ("age", [0.0, np.nan, 1.0], 2),
        ("age", [0.0, 1.0, np.inf], 3),
        ("age", pd.array([0, 1, None], dtype="Int64"), 3),
        ("age", [datetime.datetime(2020, 1, 1)] * 3, 1),
        ("age", [datetime.timedelta(1)] * 3, 1),
        ("age", [datetime.date(2020, 1, 1)] * 3, 1),
        ("age", [[1.0], [2.0], [3.0]], 1),
        ("sex", ["f", None, "m"], 2),
        ("sex", [["f"], ["m"], ["m"]], 1),
        ("died", ["no", "yes", None], 3),
    ],
)
def test_what_is_no_number_or_missing_in_parquet_is_refused(tmp_path: Path, column: str, values: Any, row: int) -> None:
    path = write_table(tmp_path / "heart.parquet", ROWS | {column: values})
    assert complaint(path, table_study()).startswith(f"heart.parquet, row {row}, column '{column}': is ")


def test_a_missing_value_is_no_category_whatever_the_category_is_called(tmp_path: Path) -> None:
    agreed = table_study(smokes={"categories": ["None", "nan", "<NA>", "yes"]})
    path = write_table(tmp_path / "heart.parquet", {"smokes": ["yes", None, "None"], "died": ROWS["died"]})
    assert complaint(path, agreed).startswith("heart.parquet, row 2, column 'smokes': is ")


def test_a_boolean_is_not_taken_for_a_number_s_category(tmp_path: Path) -> None:
    agreed = table_study(smokes={"categories": [0, 1]})
    path = write_table(tmp_path / "heart.csv", {"smokes": [0, True], "died": ["no", "no"]})
    assert complaint(path, agreed).startswith("heart.csv, line 3, column 'smokes': is 'True', but the study's")


def test_many_categories_are_listed_in_part(tmp_path: Path) -> None:
    agreed = table_study(town={"categories": [f"t{number}" for number in range(100)]})
    path = write_table(tmp_path / "heart.csv", {"town": ["t5", "t100"], "died": ["no", "no"]})
    assert "the study's categories are: t0, t1, t2, " in complaint(path, agreed)
    assert "t11, …; correct" in complaint(path, agreed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "begins with an empty line or has none; its first line should be column names."),
        ("\n\n", "begins with an empty line or has none; its first line should be column names."),
        ("1,f,no\n2,m,no\n", "lacks the column 'age', as field 1 of its first line is a number, so it looks like"),
        ("age,sex,died\n", "has no records; at least one is needed."),
        ("age,sex,died\n\n\n", "has no records; at least one is needed."),
        ("age,sex,died\n1,f,no,9\n2,m,no,9\n", "line 2: has 4 values, but there are 3 column names; repair the line,"),
        ("age,sex,died\n1,f,no,\n2,m,no,\n", "line 2: has 4 values, but there are 3 column names; repair the line,"),
        ("age,sex,died\n1,f,no\n2,m,no,9\n", "line 3: has 4 values, but there are 3 column names; repair the line,"),
        ("age,sex,died\n1,f,no\n2\n3,f,no\n", "line 3: has 1 value, but there are 3 column names; repair the line,"),
        ("age,sex,died\n1,f\n", "heart.csv, line 2: has 2 values, but there are 3 column names; repair the line, and"),
        ("age,sex,died\n1,f,no\n\n2,f,no\n", "heart.csv, line 3, column 'age': is empty, but should be a number"),
        ("age,sex,died,age\n1,f,no,2\n", "has the column 'age' 2 times; rename the others."),
        ("age;sex;died\n1;f;no\n", "lacks the column 'age' that the study's [data] names; the table has: 'age;sex"),
        (b"age,sex,died\n\xff,f,no\n", "is not a CSV file in UTF-8, as line 2 has the byte 0xff; save it in UTF-8."),
        (b"age,s\xe9x,died\n5,f,no\n", "is not a CSV file in UTF-8, as line 1 has the byte 0xe9; save it in UTF-8."),
        ('age,sex,died\n"1,f,no\n', "line 2: has a quotation mark that no other one closes; repair the line."),
    ],
)
def test_what_is_wrong_with_a_csv_file_as_a_whole_is_said(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert expected in complaint(write_csv(tmp_path, text), table_study())


def test_a_file_that_is_not_what_its_suffix_says_is_refused(tmp_path: Path) -> None:
    table, matrix = io.BytesIO(), io.BytesIO()
    pd.DataFrame(ROWS).to_parquet(table)
    np.savez(matrix, X=np.zeros((2, 3)), y=[0, 1])
    for name, content, agreed, expected in (
        ("heart.csv", table.getvalue(), table_study(), "is not a CSV file"),
        ("heart.csv", matrix.getvalue(), table_study(), "is not a CSV file"),
        ("heart.parquet", b"age,sex,died\n1,f,no\n", table_study(), "is not a Parquet file ("),
        ("heart.parquet", b"", table_study(), "is not a Parquet file ("),
        ("heart.parquet", table.getvalue()[:-20], table_study(), "is not a Parquet file ("),
        ("digits.npz", table.getvalue(), MATRIX, "is not an NPZ file; save it with numpy.savez(file, X=…, y=…)."),
        ("digits.npz", b"", MATRIX, "is not an NPZ file; save it with"),
        ("digits.npz", b"1,2,3\n", MATRIX, "is not an NPZ file; save it with"),
        ("digits.npz", matrix.getvalue()[:-40], MATRIX, "is not an NPZ file; save it with"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert complaint(path, agreed).startswith(f"{name}: {expected}")


@pytest.mark.parametrize(
    ("name", "agreed", "expected"),
    [
        (
            "a.npz",
            table_study(),
            "a.npz: is a .npz file, but the study's [data] describes a table; name a CSV or Parquet",
        ),
        ("a.csv", MATRIX, "a.csv: is a .csv file, but the study's [data] describes a matrix; name an NPZ file."),
        ("a.parquet", MATRIX, "a.parquet: is a .parquet file, but the study's [data] describes a matrix; name an NPZ"),
        ("a.txt", table_study(), "a.txt: is a .txt file, but the study's [data] describes a table"),
        ("a", table_study(), "a: is a nameless file, but the study's [data] describes a table"),
    ],
)
def test_a_suffix_that_does_not_match_the_study_is_named(
    tmp_path: Path, name: str, agreed: Study, expected: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert complaint(tmp_path / name, agreed).startswith(expected)


@pytest.mark.parametrize(("name", "what"), [("nowhere.csv", "there is no such file"), (".", "is a folder")])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str, what: str) -> None:
    path = tmp_path / name
    with pytest.raises(DataError) as caught:
        read_records(path, table_study())
    assert str(caught.value) == f"{path}: {what}; name a CSV or Parquet file."


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_regression_s_labels_are_numbers_as_they_stand_in_the_file(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"heart{suffix}", ROWS | {"age": [-3.5, 1e6, 55]})
    assert_same(read_records(path, AGE), [[1, 0], [0, 1], [0, 1]], [-3.5, 1e6, 55.0], np.float64)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("value", "shown", "remedy"),
    [
        ("old", "'old'", "repair or remove the record."),
        ("", "empty", "1 of 3 values is missing (33.3 %): give them, or remove these records."),
        ("nan", "'nan'", "1 of 3 values is missing (33.3 %): give them, or remove these records."),
        ("-inf", "'-inf'", "repair or remove the record."),
        ("1e999", "'1e999'", "repair or remove the record."),
    ],
)
def test_a_regression_s_label_that_is_no_number_is_shown_with_its_place(
    tmp_path: Path, suffix: str, value: str, shown: str, remedy: str
) -> None:
    path = write_table(tmp_path / f"heart{suffix}", ROWS | {"age": ["0", value, "55"]})
    kind = "a finite number" if value in ("-inf", "1e999") else "a number"
    assert complaint(path, AGE) == (
        f"heart{suffix}, {'line 3' if suffix == '.csv' else 'row 2'}, column 'age': is {shown}, but should be {kind} "
        f"(the study's label_bounds are 0 to 110); {remedy}"
    )


@pytest.mark.parametrize("values", [[0.0, np.nan, 1.0], [datetime.datetime(2020, 1, 1)] * 3, [[1.0], [2.0], [3.0]]])
def test_a_regression_s_labels_are_read_with_the_care_of_other_numbers(tmp_path: Path, values: Any) -> None:
    path = write_table(tmp_path / "heart.parquet", ROWS | {"age": values})
    assert ", column 'age': is " in complaint(path, AGE)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("names", [["age", "sex"], ["age", "sex", "died"]])
def test_statistics_of_a_table_need_its_columns_only(tmp_path: Path, suffix: str, names: list[str]) -> None:
    path = write_table(tmp_path / f"heart{suffix}", {name: ROWS[name] for name in names})
    assert_same(read_records(path, ALL), [[-1, 1, 0], [1, 0, 1], [0, 0, 1]], [0, 0, 0])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_last_record_without_any_value_is_a_record_if_the_study_allows_it(tmp_path: Path, end: str) -> None:
    """The number of records is released without noise: it must not tell that the last one has no values."""
    age, sex = {"min": 0, "max": 110, "missing": "indicator"}, {"categories": ["f", "m"], "missing": "category"}
    both = study(task="statistics", data={"columns": {"age": age, "sex": sex}})
    for last in ("55,f", ",", '"",'):
        lines = ["age,sex", ",", "0,m", last, "", ""]
        assert len(read_records(write_csv(tmp_path, end.join(lines)), both)) == 3
    one = study(task="statistics", data={"columns": {"age": age}})
    for last in ("55", ""):
        assert len(read_records(write_csv(tmp_path, end.join(["age", "", "0", last, ""])), one)) == 3
    # A spreadsheet's empty rows are no records if a record has a value at least.
    assert len(read_records(write_csv(tmp_path, end.join(["age,sex", "0,m", ",", ","])), ALL)) == 1
    assert len(read_records(write_csv(tmp_path, end.join(["age,sex,died", "0,m,no", ",,"])), table_study())) == 1


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ("agee,sex,died", "'died'; did you mean \"agee\"? If not, correct the table or the study."),
        ("age;sex;died", "'age;sex;died'; it seems to separate values by ';': separate them by commas."),
        ('age;"weight, kg";died', "it seems to separate values by ';': separate them by commas."),
        ("age\tsex\tdied", r"it seems to separate values by '\t': separate them by commas."),
        ("x,sex,died", "'died'; correct the table or the study."),
    ],
)
def test_a_column_that_is_missing_is_told_with_what_seems_wrong(tmp_path: Path, names: str, remedy: str) -> None:
    path = tmp_path / "heart.csv"
    path.write_text(f"{names}\n1,f,no\n")
    assert complaint(path, table_study()).startswith("heart.csv: lacks the column 'age' that the study's [data] names")
    assert complaint(path, table_study()).endswith(remedy)


@pytest.mark.parametrize("columns", [["sex"], ["sex", "age"], ["note", "sex"]])
def test_public_records_need_no_labels_and_theirs_are_not_looked_at(tmp_path: Path, columns: list[str]) -> None:
    table = {"sex": ["m", "f"], "age": ["old", "?"], "note": [1, 2]}
    path = write_table(tmp_path / "public.csv", {name: table[name] for name in columns})
    np.testing.assert_array_equal(read_features(path, AGE), [[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(DataError, match="lacks the column 'sex'"):
        read_features(write_table(tmp_path / "other.csv", {"age": [1]}), AGE)


def test_a_value_that_pandas_writes_without_quotes_makes_no_other_records(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"note": {"categories": ["a", "b"], "other": True, "missing": "category"}}
    columns["n"] = {"min": 0, "max": 1, "missing": "indicator"}
    agreed = make("moments", task="statistics", data={"columns": columns})
    for note in ("a", "\r", "\r\r\r"):
        pd.DataFrame({"note": ["a", note, "b"], "n": [0.5] * 3}).to_csv(tmp_path / "t.csv", index=False)
        if note == "a":
            assert len(read_records(tmp_path / "t.csv", agreed)) == 3
        else:
            with pytest.raises(DataError, match="line 3: has a carriage return in a value without quotes"):
                read_records(tmp_path / "t.csv", agreed)


def test_of_many_columns_those_are_named_that_are_nearest_to_a_missing_one() -> None:
    with pytest.raises(
        DataError, match=r"the table has: 'worst area', .*, …; did you mean .worst area.\? If not, correct"
    ):
        check_names("t.csv", [*(f"mean {letter}" for letter in "abcdefghijklmnopqrstuv"), "worst area"], ["worst aera"])
