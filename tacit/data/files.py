"""Reading a party's records from a CSV, Parquet or NPZ file, and saying exactly what is wrong with it.

Nothing is guessed from the data: columns, categories, classes and shapes are the study's, and a value that does not
fit stops the reading.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.bounding import indicate, scale_column
from tacit.errors import TacitError
from tacit.study import Category, Column, Study
from tacit.types import Floats, Integers

if TYPE_CHECKING:
    import pandas as pd


class DataError(TacitError, ValueError):
    """A data file does not fit its study."""


@dataclass(frozen=True)
class Records:
    """Records as numbers: features (n, raw dimension) before the constant and the clipping, labels (n,)."""

    features: Floats
    labels: Integers

    def __len__(self) -> int:
        return len(self.labels)


def read_records(path: str | Path, study: Study) -> Records:
    """Read a data file as the study describes it."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; name a {_expected(study)} file.")
    suffix = path.suffix.lower()
    if study.data.is_table and suffix == ".csv":
        return _from_table(path, study, _read_csv(path), first_line=2)
    if study.data.is_table and suffix in (".parquet", ".pq"):
        return _from_table(path, study, _read_parquet(path), first_line=1)
    if not study.data.is_table and suffix == ".npz":
        return _from_matrix(path, study)
    raise DataError(
        f"{path}: is a {suffix or 'nameless'} file, but the study's [data] describes a "
        f"{'table' if study.data.is_table else 'matrix'}; name a {_expected(study)} file."
    )


def check_arrays(features: Any, labels: Any, study: Study, source: str) -> Records:
    """Arrays as records of a matrix study, or `DataError`."""
    features, labels = np.asarray(features), np.asarray(labels)
    dimension, classes = study.data.raw_dimension, len(study.data.class_names)
    if features.ndim != 2 or features.shape[1] != dimension:
        raise DataError(
            f"{source}: X has the shape {_shape(features)}, but the study's [data] features = {dimension} asks for "
            f"(records, {dimension})."
        )
    if not (np.issubdtype(features.dtype, np.number) or features.dtype == bool) or np.iscomplexobj(features):
        raise DataError(f"{source}: X holds {features.dtype}, but should hold real numbers.")
    if labels.shape != features.shape[:1]:
        raise DataError(
            f"{source}: y has the shape {_shape(labels)}, but X has {len(features)} rows; each row needs one label."
        )
    features = features.astype(np.float64, copy=False)
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise DataError(
            f"{source}: X[{row}, {column}] is {features[row, column]}, but should be a finite number; repair or "
            "remove the record."
        )
    whole = labels.astype(np.int64) if np.issubdtype(labels.dtype, np.number) or labels.dtype == bool else None
    if whole is None or not np.array_equal(whole, labels):
        raise DataError(
            f"{source}: y holds {labels.dtype} values, but should hold whole numbers from 0 to {classes - 1}."
        )
    if ((whole < 0) | (whole >= classes)).any():
        row = int(np.flatnonzero((whole < 0) | (whole >= classes))[0])
        raise DataError(
            f"{source}: y[{row}] is {whole[row]}, but the study's [data] classes allows 0 to {classes - 1}; correct "
            "the label or the study."
        )
    if len(whole) == 0:
        raise DataError(f"{source}: has no records.")
    return Records(features, whole)


def _from_matrix(path: Path, study: Study) -> Records:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in ("X", "y") if name not in arrays]
            if missing:
                raise DataError(
                    f"{path}: has no array {missing[0]!r} (it has: {', '.join(arrays) or 'none'}); save it with "
                    "numpy.savez(file, X=…, y=…)."
                )
            features, labels = arrays["X"], arrays["y"]
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path}: is not an NPZ file of plain arrays ({error}); save it with numpy.savez.") from None
    return check_arrays(features, labels, study, str(path))


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False, skip_blank_lines=False, encoding="utf-8")
    except (ValueError, UnicodeDecodeError, pd.errors.ParserError) as error:
        raise DataError(f"{path}: is not a CSV file with a line of column names ({str(error).strip()}).") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: is not a Parquet file ({str(error).strip()}).") from None


def _from_table(path: Path, study: Study, table: pd.DataFrame, first_line: int) -> Records:
    columns = study.data.columns or {}
    label = study.data.label or ""
    for name in (*columns, label):
        if name not in table.columns:
            have = ", ".join(map(str, table.columns[:20]))
            kind = "label" if name == label else "column"
            raise DataError(
                f"{path}: lacks the {kind} {name!r} that the study's [data] names; the file has: {have}. Correct the "
                "file or the study."
            )
    if len(table) == 0:
        raise DataError(f"{path}: has no records.")
    parts = []
    for name, column in columns.items():
        place = _Place(path, name, first_line)
        if column.categories is None:
            parts.append(scale_column(_numbers(table[name], column, place), column)[:, None])
        else:
            parts.append(indicate(_codes(table[name], column.categories, place, "categories"), column))
    labels = _codes(table[label], study.data.class_names, _Place(path, label, first_line), "classes")
    return Records(np.concatenate(parts, axis=1), labels)


@dataclass(frozen=True)
class _Place:
    path: Path
    column: str
    first_line: int

    def error(self, row: int, value: Any, remedy: str) -> DataError:
        unit = "line" if self.first_line == 2 else "row"
        shown = "empty" if value is None or str(value).strip() == "" else repr(str(value))
        return DataError(
            f"{self.path}, {unit} {row + self.first_line}, column {self.column!r}: is {shown}, but {remedy}."
        )


def _numbers(values: pd.Series[Any], column: Column, place: _Place) -> Floats:
    import pandas as pd

    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        remedy = (
            f"should be a number (the study's bounds are {column.min:g} to {column.max:g}); repair or remove the record"
        )
        raise place.error(row, values.iloc[row], remedy)
    return numbers


def _codes(values: pd.Series[Any], allowed: list[Category], place: _Place, key: str) -> Integers:
    """The position of each value among the allowed ones, compared as they are written."""
    positions = {_written(value): code for code, value in enumerate(allowed)}
    codes = values.map(_written).map(positions).to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isnan(codes).any():
        row = int(np.flatnonzero(np.isnan(codes))[0])
        listed = ", ".join(map(str, allowed[:12])) + (", …" if len(allowed) > 12 else "")
        raise place.error(row, values.iloc[row], f"the study's {key} are: {listed}; correct the value or the study")
    return codes.astype(np.int64)


def _written(value: Any) -> str:
    """How a value is written in a CSV file: 1.0 and "1" are the same, and so are True and "true"."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    if isinstance(value, bool | np.bool_):
        value = str(value).lower()
    return str(value).strip()


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"({', '.join(map(str, array.shape))})"


def _expected(study: Study) -> str:
    return "CSV or Parquet" if study.data.is_table else "NPZ"
