"""Reading a party's records from a CSV, Parquet or NPZ file, with exact error messages.

Nothing is guessed from the data: columns, categories, classes and shapes come from the study, and a value that does not
fit them is an error.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.bounding import indicate, scale_column
from unspoken.errors import UnspokenError
from unspoken.study import Category, Column, Study
from unspoken.types import Floats, Integers, Labels

if TYPE_CHECKING:
    import pandas as pd


class DataError(UnspokenError, ValueError):
    """A data file does not fit its study."""


@dataclass(frozen=True)
class Records:
    """Records as numbers: features (n, raw dimension) before the constant and the clipping, labels (n,).

    Labels are class numbers; for a regression real numbers as in the file (unclipped, in their own units); for
    statistics, where nothing is predicted, zeros.
    """

    features: Floats
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


def read_records(path: str | Path, study: Study) -> Records:
    """Read a data file as the study describes it."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; name {_expected(study)} file.")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path}: may not be read; change its permissions or name another file.")
    suffix = path.suffix.lower()
    if study.data.is_table and suffix == ".csv":
        return _from_table(path, study, _read_csv(path, _names(study)), first_line=2)
    if study.data.is_table and suffix in (".parquet", ".pq"):
        return _from_table(path, study, _read_parquet(path, _names(study)), first_line=1)
    if not study.data.is_table and suffix == ".npz":
        return _from_matrix(path, study)
    raise DataError(
        f"{path}: is a {suffix or 'nameless'} file, but the study's [data] describes a "
        f"{'table' if study.data.is_table else 'matrix'}; name {_expected(study)} file."
    )


def read_features(path: str | Path, study: Study) -> Floats:
    """Read features without labels, such as public records, from a file as the study describes it."""
    section = study.study.model_copy(update={"task": "statistics"})
    data = study.data.model_copy(update={"label": None})
    return read_records(path, study.model_copy(update={"study": section, "data": data})).features


def check_arrays(features: Any, labels: Any, study: Study, source: str) -> Records:
    """Arrays as records of a matrix study, or `DataError`. For statistics the labels are ignored, and may be None."""
    features = _checked_features(np.asarray(features), study, source)
    if study.task == "statistics":
        return Records(features, np.zeros(len(features), dtype=np.int64))
    labels = np.asarray(labels)
    if labels.shape != features.shape[:1]:
        raise DataError(
            f"{source}: y has the shape {_shape(labels)}, but X has {len(features)} rows; each row needs one label."
        )
    check = _checked_numbers if study.task == "regression" else _checked_classes
    return Records(features, check(labels, study, source))


def _checked_features(features: np.ndarray[Any, Any], study: Study, source: str) -> Floats:
    dimension = study.data.raw_dimension
    if features.ndim != 2 or features.shape[1] != dimension:
        raise DataError(
            f"{source}: X has the shape {_shape(features)}, but the study's [data] features = {dimension} asks for "
            f"(records, {dimension})."
        )
    if features.dtype.kind not in _REAL_KINDS:
        raise DataError(f"{source}: X holds {features.dtype}, but should hold real numbers.")
    numbers = _as_floats(features)
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise DataError(
            f"{source}: X[{row}, {column}] is {numbers[row, column]}, but should be a finite number; repair or "
            "remove the record."
        )
    if len(numbers) == 0:
        raise DataError(f"{source}: has no records; at least one is needed.")
    return numbers


def _checked_numbers(labels: np.ndarray[Any, Any], study: Study, source: str) -> Floats:
    """A regression's labels."""
    if labels.dtype.kind not in _REAL_KINDS:
        raise DataError(f"{source}: y holds {labels.dtype}, but should hold real numbers {_within(study)}.")
    numbers = _as_floats(labels)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(
            f"{source}: y[{row}] is {numbers[row]}, but should be a finite number {_within(study)}; repair or remove "
            "the record."
        )
    return numbers


def _checked_classes(labels: np.ndarray[Any, Any], study: Study, source: str) -> Integers:
    """A classification's labels."""
    classes = len(study.data.class_names)
    if labels.dtype.kind not in _REAL_KINDS:
        raise DataError(f"{source}: y holds {labels.dtype}, but should hold whole numbers from 0 to {classes - 1}.")
    allowed = np.isin(labels, np.arange(classes))
    if not allowed.all():
        row = int(np.flatnonzero(~allowed)[0])
        raise DataError(
            f"{source}: y[{row}] is {labels[row]}, but the study's [data] classes asks for whole numbers from 0 to "
            f"{classes - 1}; correct the label or the study."
        )
    return labels.astype(np.int64)


def _as_floats(array: np.ndarray[Any, Any]) -> Floats:
    # A number that overflows becomes infinite; the checks that follow name it.
    with np.errstate(over="ignore"):
        return array.astype(np.float64, copy=False)


_REAL_KINDS = "biuf"
"""numpy's codes for booleans, integers and floats"""


def _from_matrix(path: Path, study: Study) -> Records:
    names = ("X",) if study.task == "statistics" else ("X", "y")
    remedy = f"save it with numpy.savez(file, {', '.join(f'{name}=…' for name in names)})"
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is not an NPZ file; {remedy}.")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] if name in names else None for name in arrays}
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: is not an NPZ file of plain arrays ({_one_line(error)}); save it with numpy.savez."
        ) from None
    for name in names:
        if name not in found:
            raise DataError(
                f"{path}: has no array {name!r} (it has: {', '.join(map(repr, found)) or 'none'}); {remedy}."
            )
    return check_arrays(found["X"], found.get("y"), study, str(path))


def _read_csv(path: Path, names: list[str]) -> pd.DataFrame:
    """The lines of a CSV file as text, without blank lines at the end."""
    import pandas as pd

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
        with warnings.catch_warnings():
            # pandas would shift or cut lines that are longer than the line of names.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path, dtype=str, keep_default_na=False, skip_blank_lines=False, index_col=False, encoding="utf-8-sig"
            )
    except pd.errors.ParserWarning:
        raise DataError(f"{path}: has lines with more values than column names; repair them.") from None
    except (ValueError, csv.Error) as error:
        raise DataError(
            f"{path}: is not a CSV file in UTF-8 with a line of column names ({_one_line(error)}); repair it."
        ) from None
    _check_names(path, header, names)
    filled = np.flatnonzero((table != "").any(axis=1))
    return table.iloc[: filled[-1] + 1 if len(filled) else 0]


def _read_parquet(path: Path, names: list[str]) -> pd.DataFrame:
    """The named columns of a Parquet file."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names, names)
            # Without pandas' own metadata, a former index is a column too.
            table: pd.DataFrame = file.read(columns=names).to_pandas(ignore_metadata=True)
            return table
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: is not a Parquet file ({_one_line(error)}); write it again.") from None


def _check_names(path: Path, present: list[str], names: list[str]) -> None:
    """Check that every column of the study is present exactly once."""
    for name in names:
        if present.count(name) > 1:
            raise DataError(f"{path}: has the column {name!r} {present.count(name)} times; rename the others.")
        if name not in present:
            have = ", ".join(map(repr, present[:20])) + (", …" if len(present) > 20 else "")
            raise DataError(
                f"{path}: lacks the column {name!r} that the study's [data] names; the file has: {have or 'none'}; "
                "correct the file or the study."
            )


def _from_table(path: Path, study: Study, table: pd.DataFrame, first_line: int) -> Records:
    if len(table) == 0:
        raise DataError(f"{path}: has no records; at least one is needed.")
    parts = []
    for name, column in (study.data.columns or {}).items():
        place = _Place(path, name, first_line)
        if column.categories is None:
            parts.append(scale_column(_numbers(table[name], place, _within(column)), column)[:, None])
        else:
            parts.append(indicate(_codes(table[name], column.categories, place, "categories"), column))
    return Records(np.concatenate(parts, axis=1), _labels(path, study, table, first_line))


def _labels(path: Path, study: Study, table: pd.DataFrame, first_line: int) -> Labels:
    label = study.data.label
    if label is None:  # statistics
        return np.zeros(len(table), dtype=np.int64)
    place = _Place(path, label, first_line)
    if study.task == "regression":
        return _numbers(table[label], place, _within(study))
    return _codes(table[label], study.data.class_names, place, "classes")


@dataclass(frozen=True)
class _Place:
    path: Path
    column: str
    first_line: int

    def error(self, row: int, value: Any, remedy: str) -> DataError:
        unit = "line" if self.first_line == 2 else "row"
        text = str(value) if len(str(value)) <= 60 else str(value)[:57] + "…"
        shown = "empty" if value is None or text.strip() == "" else repr(text)
        return DataError(
            f"{self.path}, {unit} {row + self.first_line}, column {self.column!r}: is {shown}, but {remedy}."
        )


def _numbers(values: pd.Series[Any], place: _Place, within: str) -> Floats:
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    if values.dtype.kind in "mM":
        # pandas would convert a time to microseconds; in a study it is no number.
        values = values.astype(str)
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise place.error(row, values.iloc[row], f"should be a number {within}; repair or remove the record")
    return numbers


def _within(described: Column | Study) -> str:
    """The public bounds of a column or of a regression's labels, in the words of messages."""
    if isinstance(described, Column):
        return f"(the study's bounds are {described.min:g} to {described.max:g})"
    low, high = described.data.label_bounds or (0.0, 0.0)
    return f"(the study's label_bounds are {low:g} to {high:g})"


def _codes(values: pd.Series[Any], allowed: list[Category], place: _Place, key: str) -> Integers:
    """The position of each value among the allowed ones, compared as text."""
    import pandas as pd

    kind = type(allowed[0])
    positions = {_written(value, kind): code for code, value in enumerate(allowed)}
    # Each distinct value is looked up once; a missing one (code −1) is never allowed.
    try:
        numbers, distinct = pd.factorize(values)
    except TypeError:  # lists, which are no categories either
        numbers, distinct = pd.factorize(values.astype(str))
    lookup = np.array([*(positions.get(_written(value, kind), -1) for value in distinct), -1], dtype=np.int64)
    codes: Integers = lookup[numbers]
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        listed = ", ".join(list(positions)[:12]) + (", …" if len(positions) > 12 else "")
        raise place.error(row, values.iloc[row], f"the study's {key} are: {listed}; correct the value or the study")
    return codes


def _written(value: Any, kind: type) -> str:
    """The text of a value in a column of this kind. In integer columns 1, 1.0 and "1.0" are equal, in boolean columns
    True and "true".

    >>> _written("True", bool), _written(1.0, str), _written(" 1.0", int), _written("01", str)
    ('true', '1', '1', '01')
    """
    text = str(value).strip()
    if kind is bool:
        return text.lower()
    whole = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", text) if kind is int or isinstance(value, float) else None
    return str(int(whole.group(1))) if whole else text


def _names(study: Study) -> list[str]:
    """The columns that a table must have."""
    return [*(study.data.columns or {}), *([] if study.data.label is None else [study.data.label])]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"({', '.join(map(str, array.shape))})"


def _expected(study: Study) -> str:
    return "a CSV or Parquet" if study.data.is_table else "an NPZ"
