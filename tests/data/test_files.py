"""Records are read as the study describes them, or the file, place, value and remedy are named."""

import datetime
import decimal
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from factories import maker
from unspoken.data.files import DataError, Records, check_arrays, read_features, read_records
from unspoken.study import Study

ROWS = {"age": [0, 110, 55], "sex": ["f", "m", "m"], "died": ["no", "yes", "no"]}


study = maker(parties=2)


def table_study(**columns: Any) -> Study:
    columns = columns or {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}}
    return study(data={"label": "died", "classes": ["no", "yes"], "columns": columns})


MATRIX = study(data={"features": 3, "classes": 2})
NUMBERS = study(task="regression", data={"features": 3, "label_bounds": [0, 110]})
STATISTICS = study(task="statistics", data={"features": 3})
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


def write_matrix(folder: Path, **arrays: Any) -> Path:
    path = folder / "digits.npz"
    np.savez(path, **arrays)
    return path


def complaint(path: Path, agreed: Study) -> str:
    """The one sentence about a data file, without its folder."""
    with pytest.raises(DataError) as caught:
        read_records(path, agreed)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    assert message.endswith((".", "?"))
    return message.removeprefix(f"{path.parent}/")


def assert_same(records: Records, features: list[list[float]], labels: list[Any], kind: Any = np.int64) -> None:
    np.testing.assert_array_equal(records.features, features)
    np.testing.assert_array_equal(records.labels, labels)
    assert (records.features.dtype, records.labels.dtype) == (np.float64, kind)
    assert len(records) == len(labels)


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


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", ["age", "died"])
def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path, suffix: str, name: str) -> None:
    table = {key: values for key, values in ROWS.items() if key != name} | {" weight": [1, 2, 3]}
    have = ", ".join(map(repr, table))
    assert complaint(write_table(tmp_path / f"heart{suffix}", table), table_study()) == (
        f"heart{suffix}: lacks the column '{name}' that the study's [data] names; the file has: {have}; correct the "
        "file or the study."
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
        ("age", "1,5", "'1,5'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "1_0", "'1_0'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "True", "'True'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "two\nlines", r"'two\nlines'", "should be a number (the study's bounds are 0 to 110)"),
        ("age", "x" * 99, "'" + "x" * 57 + "…'", "should be a number (the study's bounds are 0 to 110)"),
        ("sex", "x", "'x'", "the study's categories are: f, m; correct the value or the study."),
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
        ("age;sex;died\n1;f;no\n", "lacks the column 'age' that the study's [data] names; the file has: 'age;sex"),
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


@pytest.mark.parametrize("labels", [[0, 1], [0.0, 1.0], [False, True], np.array([0, 1], dtype=np.uint8)])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.bool_])
def test_a_matrix_is_taken_as_it_is(tmp_path: Path, labels: Any, kind: Any) -> None:
    path = write_matrix(tmp_path, X=np.array([[0, 1, 1], [1, 0, 1]], dtype=kind), y=np.array(labels), more=[1])
    assert_same(read_records(path, MATRIX), [[0, 1, 1], [1, 0, 1]], [0, 1])


@pytest.mark.parametrize(
    ("features", "labels", "expected"),
    [
        (
            np.zeros((2, 4)),
            [0, 1],
            "X has the shape (2, 4), but the study's [data] features = 3 asks for (records, 3).",
        ),
        (np.zeros(3), [0, 1, 0], "X has the shape (3), but the study's [data] features = 3 asks for (records, 3)."),
        (np.zeros((2, 3, 2)), [0, 1], "X has the shape (2, 3, 2), but"),
        (np.zeros((2, 3)), [0, 1, 0], "y has the shape (3), but X has 2 rows; each row needs one label."),
        (np.zeros((2, 3)), [[0], [1]], "y has the shape (2, 1), but X has 2 rows; each row needs one label."),
        (np.zeros((2, 3)), 0, "y has the shape (), but X has 2 rows; each row needs one label."),
        (np.zeros((0, 3)), np.zeros(0), "has no records; at least one is needed."),
        (np.zeros((2, 3), dtype=complex), [0, 1], "X holds complex128, but should hold real numbers."),
        (np.full((2, 3), "1"), [0, 1], "X holds text, but should hold real numbers."),
        (np.zeros((2, 3), dtype="m8[s]"), [0, 1], "X holds timedelta64[s], but should hold real numbers."),
        ([[0, 0, 0], [0, 0, np.nan]], [0, 1], "X[1, 2] is nan, but should be a finite number; repair or remove"),
        ([[0, -np.inf, 0], [0, 0, 0]], [0, 1], "X[0, 1] is -inf, but should be a finite number; repair or remove"),
        (np.zeros((2, 3)), ["no", "yes"], "y holds text, but should hold whole numbers from 0 to 1."),
        (np.zeros((2, 3)), [0j, 1j], "y holds complex128, but should hold whole numbers from 0 to 1."),
        (np.zeros((2, 3)), [0, 2], "y[1] is 2, but the study's [data] classes asks for whole numbers from 0 to 1;"),
        (np.zeros((2, 3)), [-1, 1], "y[0] is -1, but the study's [data] classes asks for whole numbers from 0 to 1;"),
        (np.zeros((2, 3)), [0.5, 1], "y[0] is 0.5, but the study's [data] classes asks for whole numbers from 0 to 1;"),
        (np.zeros((2, 3)), [0, np.nan], "y[1] is nan, but the study's [data] classes asks for whole numbers from 0"),
        (np.zeros((2, 3)), [0, np.inf], "y[1] is inf, but the study's [data] classes asks for whole numbers from 0"),
    ],
)
def test_arrays_that_do_not_fit_are_named_with_what_would(
    tmp_path: Path, features: Any, labels: Any, expected: str
) -> None:
    path = write_matrix(tmp_path, X=np.asarray(features), y=np.asarray(labels))
    assert complaint(path, MATRIX).startswith(f"digits.npz: {expected}")


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"X": np.zeros((2, 3))}, "has no array 'y' (it has: 'X'); save it with numpy.savez(file, X=…, y=…)."),
        ({"x": np.zeros((2, 3)), "y": [0, 1]}, "has no array 'X' (it has: 'x', 'y'); save it with numpy.savez"),
        ({}, "has no array 'X' (it has: none); save it with numpy.savez"),
    ],
)
def test_a_missing_array_is_named_with_those_that_are_there(
    tmp_path: Path, arrays: dict[str, Any], expected: str
) -> None:
    assert complaint(write_matrix(tmp_path, **arrays), MATRIX).startswith(f"digits.npz: {expected}")


class Trap:
    """Unpickling it would leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    features = np.empty((1, 3), dtype=object)
    features[:] = Trap(sprung)
    path = write_matrix(tmp_path, X=features, y=np.array([0]))
    assert complaint(path, MATRIX).startswith("digits.npz: is not an NPZ file of plain arrays (Object arrays cannot be")
    path.write_bytes(pickle.dumps(Trap(sprung)))
    assert complaint(path, MATRIX).startswith("digits.npz: is not an NPZ file; save it with numpy.savez")
    assert not sprung.exists()


def test_an_npy_file_called_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 3)))
    assert complaint(path, MATRIX).startswith("digits.npz: is not an NPZ file; save it with numpy.savez")


def test_a_damaged_npz_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=(50, 3)), y=np.zeros(50, dtype=int))
    whole = path.read_bytes()
    for position in range(60, 400, 20):
        path.write_bytes(
            whole[:position] + bytes(byte ^ 0xFF for byte in whole[position : position + 20]) + whole[position + 20 :]
        )
        assert "is not an NPZ file" in complaint(path, MATRIX)


def test_a_zip_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", b"not an array")
        archive.writestr("y.npy", b"not an array either")
    assert complaint(path, MATRIX).startswith("digits.npz: X has the shape (), but the study's [data] features = 3")


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


@pytest.mark.parametrize("values", [[-3.5, 1e6], [1, 0], [True, False], np.array([0.5, 2.0], dtype=np.float32)])
def test_a_regression_s_matrix_has_real_numbers_as_labels(tmp_path: Path, values: Any) -> None:
    features = [[0, 1, 1], [1, 0, 1]]
    path = write_matrix(tmp_path, X=features, y=values)
    assert_same(read_records(path, NUMBERS), features, list(map(float, values)), np.float64)
    assert_same(check_arrays(features, values, NUMBERS, "here"), features, list(map(float, values)), np.float64)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            [0.0, np.nan],
            "y[1] is nan, but should be a finite number (the study's label_bounds are 0 to 110); repair or",
        ),
        (
            [-np.inf, 1],
            "y[0] is -inf, but should be a finite number (the study's label_bounds are 0 to 110); repair or",
        ),
        (["a", "b"], "y holds text, but should hold real numbers (the study's label_bounds are 0 to 110)."),
        ([0j, 1j], "y holds complex128, but should hold real numbers (the study's label_bounds are 0 to 110)."),
        ([0.0], "y has the shape (1), but X has 2 rows; each row needs one label."),
        ([[0.0], [1.0]], "y has the shape (2, 1), but X has 2 rows; each row needs one label."),
        (np.longdouble("1e400") * np.ones(2), "y[0] is inf, but should be a finite number"),
    ],
)
def test_a_regression_s_labels_that_do_not_fit_are_named(tmp_path: Path, values: Any, expected: str) -> None:
    path = write_matrix(tmp_path, X=np.zeros((2, 3)), y=np.asarray(values))
    assert complaint(path, NUMBERS).startswith(f"digits.npz: {expected}")


def test_a_regression_s_arrays_need_labels() -> None:
    with pytest.raises(DataError, match=r"^here: y is missing; each of the 2 rows of X needs one label\.$"):
        check_arrays(np.zeros((2, 3)), None, NUMBERS, "here")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("names", [["age", "sex"], ["age", "sex", "died"]])
def test_statistics_of_a_table_need_its_columns_only(tmp_path: Path, suffix: str, names: list[str]) -> None:
    path = write_table(tmp_path / f"heart{suffix}", {name: ROWS[name] for name in names})
    assert_same(read_records(path, ALL), [[-1, 1, 0], [1, 0, 1], [0, 0, 1]], [0, 0, 0])


@pytest.mark.parametrize("more", [{}, {"y": [5.5, np.nan]}, {"y": ["a"]}, {"y": np.array([None, {}], dtype=object)}])
def test_statistics_of_a_matrix_need_no_labels_and_ignore_them(tmp_path: Path, more: dict[str, Any]) -> None:
    features = [[0, 1, 1], [1, 0, 1]]
    assert_same(read_records(write_matrix(tmp_path, X=features, **more), STATISTICS), features, [0, 0])
    assert_same(check_arrays(features, more.get("y"), STATISTICS, "here"), features, [0, 0])


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ("agee,sex,died", "'died'; did you mean \"agee\"?"),
        ("age;sex;died", "'age;sex;died'; it seems to separate values by ';': separate them by commas."),
        ("age\tsex\tdied", r"it seems to separate values by '\t': separate them by commas."),
        ("x,sex,died", "'died'; correct the file or the study."),
    ],
)
def test_a_column_that_is_missing_is_told_with_what_seems_wrong(tmp_path: Path, names: str, remedy: str) -> None:
    path = tmp_path / "heart.csv"
    path.write_text(f"{names}\n1,f,no\n")
    assert complaint(path, table_study()).startswith("heart.csv: lacks the column 'age' that the study's [data] names")
    assert complaint(path, table_study()).endswith(remedy)


def test_statistics_are_told_what_their_matrix_lacks(tmp_path: Path) -> None:
    path = write_matrix(tmp_path, y=[0, 1])
    remedy = "save it with numpy.savez(file, X=…)."
    assert complaint(path, STATISTICS) == f"digits.npz: has no array 'X' (it has: 'y'); {remedy}"
    path.write_bytes(b"")
    assert complaint(path, STATISTICS) == f"digits.npz: is not an NPZ file; {remedy}"
    for features, expected in (
        (np.zeros((0, 3)), "has no records; at least one is needed."),
        (np.full((2, 3), np.nan), "X[0, 0] is nan, but should be a finite number; repair or remove the record."),
    ):
        assert complaint(write_matrix(tmp_path, X=features), STATISTICS) == f"digits.npz: {expected}"


@pytest.mark.parametrize("columns", [["sex"], ["sex", "age"], ["note", "sex"]])
def test_public_records_need_no_labels_and_theirs_are_not_looked_at(tmp_path: Path, columns: list[str]) -> None:
    table = {"sex": ["m", "f"], "age": ["old", "?"], "note": [1, 2]}
    path = write_table(tmp_path / "public.csv", {name: table[name] for name in columns})
    np.testing.assert_array_equal(read_features(path, AGE), [[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(DataError, match="lacks the column 'sex'"):
        read_features(write_table(tmp_path / "other.csv", {"age": [1]}), AGE)
