"""Tables as records: the study's columns of a data frame, bounded and encoded, and nothing else of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.columns import ColumnPlace, Values, features_of, outside, read_values
from unspoken.data.records import DataError, Records
from unspoken.plugins import suggestion
from unspoken.study import Column, Study
from unspoken.types import Labels

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """A data frame, and how messages name it and its rows."""

    frame: pd.DataFrame
    source: str
    unit: str = "row"
    first: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    def records(self, study: Study) -> Records:
        """The table as the study describes it, or `DataError`."""
        check_some(study, len(self), self.source)
        check_names(self.source, list(self.frame.columns), names_of(study))
        parts, clipped = [], {}
        for name, column, values in self.columns(study):
            self.place(name).check(self.frame[name], values, column)
            parts.append(features_of(values, column))
            if (flags := outside(values, column)).any():
                clipped[name] = flags
        return Records(np.concatenate(parts, axis=1), self._labels(study), clipped)

    def columns(self, study: Study) -> Iterator[tuple[str, Column, Values]]:
        """The study's columns with their values, which may not fit."""
        for name, column in (study.data.columns or {}).items():
            yield name, column, read_values(self.frame[name], column)

    def place(self, column: str, key: str = "categories") -> ColumnPlace:
        """A column of this table, for messages; `key` is "label" for the labels."""
        return ColumnPlace(self.source, column, self.unit, self.first, key)

    def label_values(self, study: Study) -> tuple[str, Column, Values] | None:
        """The labels' column and its values, which may not fit; None: the study predicts nothing."""
        if (name := study.data.label) is None:
            return None
        column = label_column(study)
        return name, column, read_values(self.frame[name], column)

    def _labels(self, study: Study) -> Labels:
        found = self.label_values(study)
        if found is None:
            return np.zeros(len(self), dtype=np.int64)
        name, column, values = found
        self.place(name, "label").check(self.frame[name], values, column)
        return values.numbers if study.task == "regression" else values.numbers.astype(np.int64)

    def parties(self, name: str) -> list[str]:
        """The party of each record, from the column of this name; or `DataError`."""
        check_names(self.source, list(self.frame.columns), [name], "that names the parties", "groups")
        values = self.frame[name]
        names = [str(value).strip() for value in values]
        for row, (value, text) in enumerate(zip(values, names, strict=True)):
            if value is None or value != value or not text:
                raise DataError(
                    f"{self.source}, {self.unit} {row + self.first}, column {name!r}: is empty, but should name the "
                    "record's party; fill it in."
                )
        return names


def check_some(study: Study, count: int, source: str) -> None:
    """Refuse data without records, unless the promise hides whether a party has any."""
    if count == 0 and not study.leaves_out_parties:
        raise DataError(f"{source}: has no records; at least one is needed.")


def label_column(study: Study) -> Column:
    """The labels, described like a column."""
    if study.task == "regression":
        low, high = study.data.label_bounds or (0.0, 0.0)
        return Column(min=low, max=high)
    return Column(categories=study.data.class_names)


def names_of(study: Study) -> list[str]:
    """The columns that a table must have."""
    return [*(study.data.columns or {}), *([] if study.data.label is None else [study.data.label])]


def check_names(
    source: str,
    present: list[Any],
    names: list[str],
    who: str = "that the study's [data] names",
    named_in: str = "the study",
) -> None:
    """Check that every one of the names, which can be corrected in `named_in`, is present exactly once."""
    for name in names:
        if present.count(name) > 1:
            raise DataError(f"{source}: has the column {name!r} {present.count(name)} times; rename the others.")
        if name not in present:
            there = [str(other) for other in present]
            unused = [other for other in there if other not in names]
            meant = suggestion(name, unused)
            remedy = f"{meant} If not, " if meant else "; "
            raise DataError(
                f"{source}: lacks the column {name!r} {who}; the table has: {_listed(name, there)}"
                + (_other_separator(name, there) or f"{remedy}correct the table or {named_in}.")
            )


def _listed(wanted: str, names: list[str]) -> str:
    """The names of columns in the words of messages: of many, the 20 that are nearest to a wanted one."""
    if len(names) > 20:
        near = difflib.get_close_matches(wanted, names, n=20, cutoff=0.0)
        names = [*near, *(name for name in names if name not in near)]
    shown = [name if len(name) <= 60 else name[:57] + "…" for name in names[:20]]
    return (", ".join(map(repr, shown)) + (", …" if len(names) > 20 else "")) or "none"


def _other_separator(name: str, there: list[str]) -> str:
    """The end of a message about a file that lacks a column, if its values are not separated by commas."""
    for mark in ";\t|":
        parts = [part for other in there for part in other.split(mark)]
        if mark in there[0] and (len(there) == 1 or name in parts):
            return f"; it seems to separate values by {mark!r}: separate them by commas."
    return ""
