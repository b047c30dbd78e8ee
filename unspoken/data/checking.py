"""Shows a data holder how its records fit a study: what is clipped, missing, unknown or refused.

The result is for the holder's eyes only: it is not protected by noise, and must not be passed on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unspoken.data.bounding import lengths_of, too_long
from unspoken.data.columns import ColumnPlace, Values, features_of, percent
from unspoken.data.files import check_arrays, read_records, read_table
from unspoken.data.records import DataError, Records
from unspoken.data.tables import Table, check_names, check_some, label_column, names_of
from unspoken.study import Column, Study, study_of
from unspoken.types import Floats

if TYPE_CHECKING:
    import pandas as pd

MANY = 0.1
"""The share of clipped values or records from which a remark is made"""
_FEW = 0.01
"""The share of clipped values or records from which `check` mentions them"""
_NARROW = 0.25
"""If values use less than this share of the bounds, these could be narrower"""
LISTED = 5
"""The most columns that a remark names"""

PRIVATE = (
    "For your eyes only: these numbers depend on the records, and no noise protects them. Nothing was written or sent. "
    "Bounds that you propose from here tell the others something about your records that no promise covers; bounds "
    "that are publicly known tell nothing."
)


@dataclass(frozen=True)
class ColumnCheck:
    """A column of a table, or the labels, in shares of the values."""

    name: str
    kind: str
    bounds: tuple[str, str] | None
    """The study's bounds; categories have none"""
    missing: float
    below: float
    """The share below the bounds, which is clipped to the lower one"""
    above: float
    unknown: float
    """The share that is no value of this column, which is refused"""
    other: float
    """The share of categories that are not listed, where the study allows that"""
    examples: list[str]
    """Some of the unknown and other values"""
    proposed: tuple[str, str] | None
    """Bounds that would fit these records better, rounded outwards"""
    problems: list[str]
    """Why the records would be refused"""
    remarks: list[str]
    """What makes a model worse"""


@dataclass(frozen=True)
class Check:
    """The result of `check`."""

    study: str
    source: str
    records: int
    columns: list[ColumnCheck]
    label: ColumnCheck | None
    classes: dict[str, int] | None
    """The number of records of each class"""
    norm: float
    longest: float | None
    """The norm of the longest record; None: the records do not fit, so that it is not known"""
    clipped: float | None
    """The share of records that are longer than the study's norm"""
    duplicates: float
    """The share of records that are equal to an earlier one, in all that the study uses"""
    problems: list[str] = field(default_factory=list)
    """Why the records would be refused"""
    remarks: list[str] = field(default_factory=list)
    """What makes a model worse, and what would be better"""

    @property
    def fits(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fits": self.fits, "private": PRIVATE}


def check(
    study: Study | dict[str, Any] | str | Path,
    data: str | Path | pd.DataFrame | npt.ArrayLike,
    y: npt.ArrayLike | None = None,
) -> Check:
    """Check how one holder's records fit a study. For the holder only; nothing is written.

    `data` is a file, a data frame with the study's columns, or for a matrix study an array X with labels y.
    """
    study = study_of(study)
    if not study.data.is_table:
        records = (
            read_records(data, study) if isinstance(data, str | Path) else check_arrays(data, y, study, "the array")
        )
        source = str(data) if isinstance(data, str | Path) else "the array"
        return _check_matrix(study, records, source) if len(records) else _check_nothing(study, source)
    table = (
        read_table(data, study) if isinstance(data, str | Path) else Table(frame_of(data, y, study), "the data frame")
    )
    check_names(table.source, list(table.frame.columns), names_of(study))
    check_some(study, len(table), table.source)
    return _check_table(study, table) if len(table) else _check_nothing(study, table.source)


def _check_nothing(study: Study, source: str) -> Check:
    """Of a party whose records are left out, where a study allows that."""
    remark = "there are no records, which the study allows: this party sends empty ballots, and nobody sees that"
    return Check(study.name, source, 0, [], None, None, study.data.norm, None, None, 0.0, remarks=[remark])


def wide_bounds(names: Sequence[str], scaled: Floats, whose: str) -> str | None:
    """A remark if the values of a quarter of the columns or more, scaled to [−1, 1], use less than a tenth of their
    bounds. Columns with one value only do not count."""
    if not names:
        return None
    spans = np.ptp(scaled, axis=0) / 2.0
    narrow = [name for name, span in zip(names, spans.tolist(), strict=True) if 0.0 < span < MANY]
    if len(narrow) < _NARROW * len(names):
        return None
    more = "" if len(narrow) <= LISTED else f" and {len(narrow) - LISTED:,} more"
    return (
        f"{', '.join(narrow[:LISTED])}{more}: all values lie within a tenth of {whose} or less, so that noise "
        "hides much of what they say"
    )


def frame_of(data: Any, labels: Any, study: Study) -> pd.DataFrame:
    """A data frame of a table study, with its labels if they are apart."""
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        raise DataError(
            f"{study.source}: [data] describes a table, but arrays were given; give a data frame with the study's "
            "columns, or describe a matrix (features = …)."
        )
    if labels is None or study.data.label is None:
        return data
    if len(np.shape(labels)) != 1 or len(np.asarray(labels)) != len(data):
        raise DataError(f"y has the shape {np.shape(labels)}, but the data frame has {len(data)} rows; give one each.")
    return data.assign(**{study.data.label: np.asarray(labels)})


def _check_table(study: Study, table: Table) -> Check:
    columns, parts = [], []
    for name, column, values in table.columns(study):
        columns.append(_column_check(table.place(name), column, values, table.frame[name]))
        if not columns[-1].problems:
            parts.append(features_of(values, column))
    label, classes = None, None
    if (found := table.label_values(study)) is not None:
        name, column, values = found
        label = _column_check(table.place(name, "label"), column, values, table.frame[name])
        classes = None if column.categories is None else _counted(column, values.numbers)
    lengths = None
    if len(parts) == len(columns):
        lengths = lengths_of(np.concatenate(parts, axis=1), study.data)
    repeated = float(table.frame[names_of(study)].astype(str).duplicated().mean())
    seen = Check(study.name, table.source, len(table), columns, label, classes, study.data.norm, None, None, repeated)
    return _concluded(study, seen, lengths)


def _check_matrix(study: Study, records: Records, source: str) -> Check:
    label, classes = None, None
    if study.task != "statistics":
        nothing = np.zeros(len(records), dtype=np.bool_)
        column, values = label_column(study), Values(records.labels.astype(np.float64), nothing, nothing)
        label = _column_check(ColumnPlace(source, "y", "row", 0, "label"), column, values, np.array([]))
        classes = None if column.categories is None else _counted(column, values.numbers)
    together = np.column_stack([records.features, records.labels])
    repeated = 1.0 - len(np.unique(together, axis=0)) / len(together)
    seen = Check(study.name, source, len(records), [], label, classes, study.data.norm, None, None, repeated)
    return _concluded(study, seen, lengths_of(records.features, study.data))


def _counted(column: Column, numbers: Floats) -> dict[str, int]:
    return {str(name): int((numbers == code).sum()) for code, name in enumerate(column.categories or [])}


def _column_check(place: ColumnPlace, column: Column, values: Values, given: Any) -> ColumnCheck:
    numbers, ranged = values.numbers, column.categories is None
    unlisted = numbers == len(column.categories or []) if column.other else np.zeros(len(numbers), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        below, above = float((numbers < column.low).mean()), float((numbers > column.high).mean())
    strange = values.unfit | unlisted
    found = ColumnCheck(
        place.column,
        column.kind,
        (column.shown(column.low), column.shown(column.high)) if ranged else None,
        missing=float(values.missing.mean()),
        below=below if ranged else 0.0,
        above=above if ranged else 0.0,
        unknown=float(values.unfit.mean()),
        other=float(unlisted.mean()),
        examples=list(dict.fromkeys(str(value)[:60] for value in given[strange]))[:LISTED] if strange.any() else [],
        proposed=_proposed(column, numbers[np.isfinite(numbers)]),
        problems=list(place.problems(given, values, column)),
        remarks=[],
    )
    return replace(found, remarks=list(_remarks(found)))


def _remarks(found: ColumnCheck) -> Iterator[str]:
    sides = found.below, found.above
    where, clipped = f"column {found.name!r}", sum(sides)
    if clipped and found.bounds:
        low, high = found.bounds
        yield (
            f"{where}: {percent(found.below)} of the values lie below {low} and {percent(found.above)} above {high}; "
            "they are clipped to these bounds"
        )
    if found.proposed:
        low, high = found.proposed
        why = "would clip hardly any" if clipped else "would do, and noise would weigh less"
        unit = "; as all values lie on one side of the bounds, they may be in another unit" if 1.0 in sides else ""
        yield f"{where}: bounds from {low} to {high} {why}; you could propose them{unit}"
    if found.missing >= MANY:
        yield f"{where}: {percent(found.missing)} of the values are missing"
    if found.other >= MANY:
        listed = ", ".join(map(repr, found.examples))
        yield f"{where}: {percent(found.other)} of the values are none of the categories, such as {listed}"


def _proposed(column: Column, numbers: Floats) -> tuple[str, str] | None:
    """Bounds that hold nearly all values, if the study's hold too few or are far too wide."""
    if column.kind not in ("number", "date") or len(numbers) == 0:
        return None
    low, high = (float(bound) for bound in np.quantile(numbers, [0.005, 0.995]))
    clipped = float(((numbers < column.low) | (numbers > column.high)).mean())
    if clipped < _FEW and high - low >= _NARROW * (column.high - column.low):
        return None
    below, above = _rounded(column, low, high)
    if clipped < _FEW and above - below > 0.5 * (column.high - column.low):
        return None  # Rounded, they are hardly narrower.
    return column.shown(below), column.shown(above)


def _rounded(column: Column, low: float, high: float) -> tuple[float, float]:
    """Bounds that say less about single records: outwards to whole years, or steps of a twentieth to a fifth of the
    range or so. Values may be all alike: the two bounds then differ in what is shown of them."""
    if column.kind == "date":
        first, last = (date.fromordinal(int(bound)).year for bound in (low, high))
        return date(first, 1, 1).toordinal(), date(last, 12, 31).toordinal()
    width = max(high - low, abs(high) * 1e-4) or (column.high - column.low) * 1e-2
    step = 2.0 * 10.0 ** (math.floor(math.log10(width)) - 1)
    below, above = math.floor(low / step), math.ceil(high / step)
    return below * step, max(above, below + 1) * step


def _concluded(study: Study, seen: Check, lengths: Floats | None) -> Check:
    """The check, with all that is wrong or could be better."""
    every = [*seen.columns, *([seen.label] if seen.label else [])]
    problems = [*_size_problems(study, seen.records), *(each for column in every for each in column.problems)]
    remarks = [each for column in every for each in column.remarks]
    if lengths is not None:
        clipped = float(too_long(lengths, study.data.norm).mean())
        seen = replace(seen, longest=float(lengths.max()), clipped=clipped)
        if clipped >= _FEW:
            remarks.append(
                f"{percent(clipped)} of the records are longer than norm = {study.data.norm:.6g} and are clipped to it "
                f"(nine in ten are below {float(np.quantile(lengths, 0.9)):.2g}); scale features, or propose another"
            )
    if absent := [repr(name) for name, count in (seen.classes or {}).items() if not count]:
        remarks.append(f"there is no record of the class {', '.join(absent)}")
    if seen.duplicates >= _FEW:
        remarks.append(
            f"{percent(seen.duplicates)} of the records are equal to an earlier one; if one person can have several "
            "records, the study should protect them together: unit = { group = … }"
        )
    return replace(seen, problems=problems, remarks=remarks)


def _size_problems(study: Study, count: int) -> Iterator[str]:
    least, most = study.parties.records, study.parties.max_records
    if count < least and (count or not study.leaves_out_parties):
        remedy = "lower records in its [parties]"
        yield f"there are {count} records, but the study asks each party for at least {least}; {remedy}"
    if count > most:
        remedy = "raise max_records in its [parties]"
        yield f"there are {count} records, but the study allows a party at most {most}; {remedy}"
