"""Reading a party's records from a CSV, Parquet or NPZ file, with exact error messages.

Nothing is guessed from the data: columns, categories, classes and shapes come from the study, and a value that does not
fit them is an error.
"""

from __future__ import annotations

import math
import os
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.columns import bounds_of
from unspoken.data.lines import blank_lines_at_end, csv_header, looks_like_a_record, malformed, torn, uneven
from unspoken.data.records import DataError, Records
from unspoken.data.tables import Table, check_names, check_some, label_column, names_of
from unspoken.interrupts import noticed
from unspoken.study import Study
from unspoken.types import Floats, Integers

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DataError",
    "Records",
    "check_arrays",
    "checked_path",
    "read_array",
    "read_features",
    "read_header",
    "read_records",
    "read_table",
    "rows_of_parquet",
]


def read_records(path: str | Path, study: Study) -> Records:
    """Read a data file as the study describes it."""
    path = checked_path(path, study)
    return read_table(path, study).records(study) if study.data.is_table else _from_matrix(path, study)


def read_table(path: str | Path, study: Study, more: tuple[str, ...] = ()) -> Table:
    """Read the study's columns of a CSV or Parquet file, and `more` columns that are no features."""
    path = checked_path(path, study)
    if path.suffix.lower() == ".csv":
        return Table(_read_csv(path, names_of(study), more, _may_be_empty(study)), str(path), "line", 2)
    return Table(_read_parquet(path, names_of(study), more), str(path), "row", 1)


def no_file(path: Path, expected: str) -> DataError:
    """The error of a path where no file is that could be read to its end."""
    problem = "is no regular file" if path.exists() else "there is no such file"
    return DataError(f"{path}: {problem}; name {expected}.")


def checked_path(path: str | Path, study: Study) -> Path:
    """The path of a file that can be read, and whose name ends as the study's kind of data does."""
    path = Path(path)
    expected = "a CSV or Parquet" if study.data.is_table else "an NPZ"
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name {expected} file.")
    if not path.is_file():
        raise no_file(path, f"{expected} file")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path}: may not be read; change its permissions or name another file.")
    suffix = path.suffix.lower()
    if suffix not in (_TABLES if study.data.is_table else (".npz",)):
        raise DataError(
            f"{path}: is a {suffix or 'nameless'} file, but the study's [data] describes a "
            f"{'table' if study.data.is_table else 'matrix'}; name {expected} file."
        )
    return path


_TABLES = (".csv", ".parquet", ".pq")


def read_header(path: str | Path) -> list[str]:
    """The column names of a CSV or Parquet file. No value is looked at."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file; name a CSV or Parquet file.")
    if path.suffix.lower() not in _TABLES or not path.is_file():
        raise DataError(f"{path}: is no CSV or Parquet file whose columns could be read; name one.")
    if path.suffix.lower() == ".csv":
        names = csv_header(path)
    else:
        import pyarrow
        from pyarrow.parquet import read_schema

        try:
            names = read_schema(path).names
        except (pyarrow.ArrowException, OSError) as error:
            raise _no_parquet(path, error) from None
    check_names(str(path), names, names)
    if not names:
        raise DataError(f"{path}: has no columns; name another file.")
    if not all(name.strip() for name in names):
        raise DataError(f"{path}: column {[name.strip() for name in names].index('') + 1} has no name; name it.")
    if path.suffix.lower() == ".csv" and (problem := looks_like_a_record(names)):
        raise DataError(f"{path}: {problem}.")
    return names


def read_features(path: str | Path, study: Study) -> Floats:
    """Read features without labels, such as public records, from a file as the study describes it."""
    section = study.study.model_copy(update={"task": "statistics"})
    data = study.data.model_copy(update={"label": None})
    features = read_records(path, study.model_copy(update={"study": section, "data": data})).features
    if len(features) == 0:
        raise DataError(f"{path}: has no records; at least one is needed.")
    return features


def check_arrays(features: Any, labels: Any, study: Study, source: str) -> Records:
    """Arrays as records of a matrix study, or `DataError`. For statistics the labels are ignored, and may be None."""
    if hasattr(features, "toarray"):
        raise DataError(f"{source}: X is sparse, but should be a plain array; give X.toarray().")
    features = _checked_features(np.asarray(features), study, source)
    if study.task == "statistics":
        return Records(features, np.zeros(len(features), dtype=np.int64))
    if labels is None:
        raise DataError(f"{source}: y is missing; each of the {len(features)} rows of X needs one label.")
    labels = np.asarray(labels)
    if labels.shape != features.shape[:1]:
        raise DataError(
            f"{source}: y has the shape {_shape(labels)}, but X has {len(features)} rows; each row needs one label."
        )
    check = _checked_numbers if study.task == "regression" else _checked_classes
    return Records(features, check(labels, study, source))


def _checked_features(features: np.ndarray[Any, Any], study: Study, source: str) -> Floats:
    dimension = study.data.raw_dimension
    if features.ndim > 2 and math.prod(features.shape[1:]) == dimension:
        # Images and the like, whose pixels are features.
        features = features.reshape(len(features), dimension)
    if features.ndim != 2 or features.shape[1] != dimension:
        raise DataError(
            f"{source}: X has the shape {_shape(features)}, but the study's [data] features = {dimension} asks for "
            f"(records, {dimension})."
        )
    if features.dtype.kind not in _REAL_KINDS:
        raise DataError(f"{source}: X holds {_kind(features)}, but should hold real numbers.")
    numbers = _as_floats(features)
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise DataError(
            f"{source}: X[{row}, {column}] is {numbers[row, column]}, but should be a finite number; repair or "
            "remove the record."
        )
    check_some(study, len(numbers), source)
    return numbers


def _checked_numbers(labels: np.ndarray[Any, Any], study: Study, source: str) -> Floats:
    """A regression's labels."""
    within = bounds_of(label_column(study), "label_bounds")
    if labels.dtype.kind not in _REAL_KINDS:
        raise DataError(f"{source}: y holds {_kind(labels)}, but should hold real numbers {within}.")
    numbers = _as_floats(labels)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(
            f"{source}: y[{row}] is {numbers[row]}, but should be a finite number {within}; repair or remove "
            "the record."
        )
    return numbers


def _checked_classes(labels: np.ndarray[Any, Any], study: Study, source: str) -> Integers:
    """A classification's labels."""
    classes = len(study.data.class_names)
    if labels.dtype.kind not in _REAL_KINDS:
        raise DataError(f"{source}: y holds {_kind(labels)}, but should hold whole numbers from 0 to {classes - 1}.")
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


def _kind(array: np.ndarray[Any, Any]) -> str:
    """What an array holds, in the words of messages."""
    return "text" if array.dtype.kind in "US" else str(array.dtype)


def _from_matrix(path: Path, study: Study) -> Records:
    names = ("X",) if study.task == "statistics" else ("X", "y")
    found = _read_npz(path, names)
    return check_arrays(found["X"], found.get("y"), study, str(path))


def read_array(path: str | Path, name: str, records: int) -> np.ndarray[Any, Any]:
    """Read an NPZ file's array that has a value for each of its records."""
    found = _read_npz(Path(path), (name,))[name]
    if found.shape != (records,):
        raise DataError(f"{path}: {name} has the shape {_shape(found)}, but should have a value for each record.")
    return found


def _read_npz(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray[Any, Any]]:
    remedy = f"save it with numpy.savez(file, {', '.join(f'{name}=…' for name in names)})"
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is not an NPZ file; {remedy}.")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            present = list(arrays)
            found = {name: arrays[name] for name in names if name in present}
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: is not an NPZ file of plain arrays ({_one_line(error)}); save arrays of numbers, not of objects, "
            "with numpy.savez."
        ) from None
    for name in names:
        if name not in found:
            raise DataError(
                f"{path}: has no array {name!r} (it has: {', '.join(map(repr, present)) or 'none'}); {remedy}."
            )
    return found


def _may_be_empty(study: Study) -> bool:
    """Whether a record may have nothing but empty values."""
    described = [*(study.data.columns or {}).values(), *([] if study.data.label is None else [label_column(study)])]
    return all(column.missing is not None or "" in map(str, column.categories or ()) for column in described)


def _read_csv(path: Path, names: list[str], more: tuple[str, ...], may_be_empty: bool = False) -> pd.DataFrame:
    """The lines of a CSV file as text, without blank lines at the end.

    If records may be empty, a line of commas is one, and so is every line of a file of one column: what the last record
    is must not change how many there are.
    """
    import pandas as pd

    header = csv_header(path)
    _check_all(path, header, names, more)
    if (problem := torn(path)) is not None:
        raise problem
    try:
        # pandas takes an interrupt for a file that cannot be read.
        with noticed(), warnings.catch_warnings():
            # pandas would shift or cut lines that are longer than the line of names.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path, dtype=str, keep_default_na=False, skip_blank_lines=False, index_col=False, encoding="utf-8-sig"
            )
    except (ValueError, pd.errors.ParserWarning) as error:
        raise malformed(path, error) from None
    filled = np.flatnonzero((table != "").any(axis=1))
    # pandas fills up lines that are too short.
    if (table.iloc[filled, -1] == "").any() and (problem := uneven(path)) is not None:
        raise problem
    least = len(table) - blank_lines_at_end(path) * (len(header) > 1) if may_be_empty else 0
    return table.iloc[: max(filled[-1] + 1 if len(filled) else 0, least)]


def _read_parquet(path: Path, names: list[str], more: tuple[str, ...]) -> pd.DataFrame:
    """The named columns of a Parquet file."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            _check_all(path, file.schema_arrow.names, names, more)
            table = file.read(columns=list(dict.fromkeys([*names, *more])))
    except (pyarrow.ArrowException, OSError) as error:
        raise _no_parquet(path, error) from None
    try:
        table.validate(full=True)  # else text that is none would fail wherever it is looked at
        # Without pandas' own metadata, a former index is a column too. With a missing value, whole numbers would
        # become floats, and long ones others: one record would change how all are read.
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True, integer_object_nulls=True)
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise _no_value(path, table) or _no_parquet(path, error) from None
    # pandas takes days that Python does not know, and fails wherever they are looked at.
    if _has_other_days(table) and (problem := _no_value(path, table)) is not None:
        raise problem
    return frame


def _has_other_days(table: Any) -> bool:
    """Whether a table has days or times before the year 1 or after 9999."""
    from pyarrow import compute, int64, timestamp, types

    for column in table.columns:
        if types.is_timestamp(column.type) or types.is_date(column.type):
            found = compute.min_max(column.cast(timestamp("s"), safe=False).cast(int64())).as_py()
            if found["min"] is not None and not _SECONDS[0] <= found["min"] <= found["max"] <= _SECONDS[1]:
                return True
    return False


_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The first and the last second of the years 1 to 9999, counted from 1970"""


def rows_of_parquet(path: Path, study: Study) -> int:
    """The number of rows of a Parquet file, which must have the study's columns. No value is looked at."""
    import pyarrow
    from pyarrow.parquet import read_metadata

    checked_path(path, study)
    try:
        found = read_metadata(path)
        present = found.schema.to_arrow_schema().names
    except (pyarrow.ArrowException, OSError) as error:
        raise _no_parquet(path, error) from None
    _check_all(path, present, names_of(study), ())
    return int(found.num_rows)


def _no_parquet(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: is not a Parquet file ({_one_line(error)}); write it again.")


def _no_value(path: Path, table: Any) -> DataError | None:
    """The message about the first value of a table that Python cannot have, if there is one: a text that is not encoded
    as text is, or a day of a year that is none."""
    for name in table.column_names:
        for row, value in enumerate(table[name]):
            place = f"{path}, row {row + 1}, column {name!r}"
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                shown = f"{bytes(error.object[:60])!r}"
                return DataError(f"{place}: is {shown}, but text should be UTF-8; write the file again.")
            except (ValueError, OverflowError):
                return DataError(
                    f"{place}: is a day outside of the years 1 to 9999; repair the value, or leave it empty if the "
                    "study says what that means."
                )
    return None


def _check_all(path: Path, present: list[str], names: list[str], more: tuple[str, ...]) -> None:
    lacking = [name for name in [*names, *more] if name not in present]
    if lacking and path.suffix.lower() == ".csv" and (problem := looks_like_a_record(present)):
        raise DataError(f"{path}: lacks the column {lacking[0]!r}, as {problem}.")
    check_names(str(path), present, names)
    check_names(str(path), present, list(more), "that is to name the parties", "--parties-by")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"({', '.join(map(str, array.shape))})"
