"""Public records, which everyone may see: linear methods learn directions from them, and parties vote on them.

Everyone needs the same public records. A study names their file in [data], and the study's digest covers the file's
SHA-256, so with another file it is another study. (`voting` and `multiparty` may name the file in [method], too.)
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unspoken.data.checking import frame_of
from unspoken.data.files import DataError, check_arrays, read_features
from unspoken.data.tables import Table
from unspoken.study import Study, file_beside, sha256_of
from unspoken.types import Floats

_GIVEN = "the public records"


@dataclass(frozen=True, eq=False)
class PublicRecords:
    features: Floats
    """(n, raw dimension), before the constant and the clipping"""
    name: str
    note: str
    """A note for the plan that identifies the file"""


def read_public(study: Study) -> PublicRecords | None:
    """The public records that the study names; None if it names none."""
    place, name, sha256 = _named(study)
    if name is None:
        return None
    if study.given_public is not None:
        given: PublicRecords = study.given_public
        return given
    path = file_beside(study, name, f"{place}.public")
    features = read_features(path, study)
    if place == "data" and (label := "y" if study.data.columns is None else study.data.label) in _names(path):
        raise DataError(f"{path}: has the labels {label!r}, but public records have none; save it without them.")
    found = sha256_of(path, study, f"{place}.public")
    if sha256 not in (None, found):
        raise study.error(
            f"{place}.public_sha256",
            f'is "{sha256}", but {path} has the SHA-256 {found}; use the file that the study means, or correct this',
        )
    advice = "" if sha256 else "; as public_sha256 in the study's [method], it makes sure that all use this file"
    return PublicRecords(features, name, f"the public records' file has the SHA-256 {found}{advice}")


def required_public(study: Study, purpose: str) -> PublicRecords:
    """The public records that a method cannot do without; `purpose` says for what, as in "to vote on"."""
    if (found := read_public(study)) is None:
        problem = f"lacks public: a file with public records, without labels, {purpose} (in Python also public=…)"
        raise study.error("data", problem)
    return found


def check_public(study: Study) -> None:
    """Check the public records of a study that makes no use of them, if their file is there: another study may."""
    name = study.data.public
    if name is not None and any(path.is_file() for path in (Path(name), Path(study.source).parent / name)):
        read_public(study)


def _named(study: Study) -> tuple[Literal["data", "method"], str | None, str | None]:
    """The section that names public records, their file, and its SHA-256."""
    own = study.method.own_keys
    if study.data.public is None:
        return "method", own.get("public"), own.get("public_sha256")
    if "public" in own:
        raise study.error("method.public", "is given, but [data] names public records too; remove this one")
    return "data", study.data.public, study.data.public_sha256


def _names(path: Path) -> list[str]:
    """The names of a file's arrays or columns."""
    match path.suffix.lower():
        case ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return list(arrays)
        case ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                return next(csv.reader(file), [])
        case _:
            from pyarrow.parquet import read_schema

            return list(read_schema(path).names)


def with_public(study: Study, rows: Any, scaled: Callable[[Floats], Floats] | None = None) -> Study:
    """The study with public records that are given as an array, or a data frame of a table; scaled, if it says how."""
    if study.data.public is not None or "public" in study.method.own_keys:
        raise DataError(f"{study.source}: names a file of public records, but public is given too; leave out one.")
    features = unlabelled(rows, study, _GIVEN)
    if scaled is not None:
        features = scaled(features)
    found = hashlib.sha256(str(features.shape).encode() + np.ascontiguousarray(features).tobytes()).hexdigest()
    records = PublicRecords(features, _GIVEN, f"the public records have the SHA-256 {found}")
    data = study.data.model_copy(update={"public": _GIVEN, "public_sha256": found})
    return study.model_copy(update={"data": data, "given_public": records})


def as_named(rows: Any, names: Sequence[str] | None, party_column: str | None) -> Any:
    """Public rows of a data frame with the features of these names, in their order; other rows as they are."""
    if names is None or not hasattr(rows, "columns"):
        return rows
    found = [name for name in rows.columns if name != party_column]
    for name in sorted({*found, *names} - ({*found} & {*names}), key=str):
        problem = "has the column {!r}, which X lacks" if name in found else "lacks the column {!r} of X"
        raise DataError(f"{_GIVEN}: {problem.format(name)}; give the features of X, without labels.")
    return rows[list(names)]


def unlabelled(rows: Any, study: Study, source: str) -> Floats:
    """The features of an array, or of a table's data frame, that has no labels."""
    task, data = study.study.model_copy(update={"task": "statistics"}), study.data.model_copy(update={"label": None})
    described = study.model_copy(update={"study": task, "data": data})
    if isinstance(rows, str | Path):
        raise DataError(f"{source}: is the path {str(rows)!r}, but should be rows; read the file first.")
    if study.data.is_table:
        features = Table(frame_of(rows, None, described), source).records(described).features
    else:
        features = check_arrays(rows, None, described, source).features
    if len(features) == 0:
        raise DataError(f"{source}: has no records; at least one is needed.")
    return features
