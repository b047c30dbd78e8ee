"""Arrays in .npz files are taken as they are, or what does not fit is named; no pickle is ever loaded."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from record_files import MATRIX, assert_same, complaint, study
from unspoken.data.files import DataError, check_arrays, read_records

NUMBERS = study(task="regression", data={"features": 3, "label_bounds": [0, 110]})
STATISTICS = study(task="statistics", data={"features": 3})


def write_matrix(folder: Path, **arrays: Any) -> Path:
    path = folder / "digits.npz"
    np.savez(path, **arrays)
    return path


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


@pytest.mark.parametrize("more", [{}, {"y": [5.5, np.nan]}, {"y": ["a"]}, {"y": np.array([None, {}], dtype=object)}])
def test_statistics_of_a_matrix_need_no_labels_and_ignore_them(tmp_path: Path, more: dict[str, Any]) -> None:
    features = [[0, 1, 1], [1, 0, 1]]
    assert_same(read_records(write_matrix(tmp_path, X=features, **more), STATISTICS), features, [0, 0])
    assert_same(check_arrays(features, more.get("y"), STATISTICS, "here"), features, [0, 0])


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
