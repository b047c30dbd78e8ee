"""The columns that statistics are about."""

from __future__ import annotations

import numpy as np

from unspoken.study import Column, Study
from unspoken.types import Floats


def columns_of(study: Study) -> list[tuple[str, Column]]:
    """A table's columns by name; a matrix's are numbers within the study's norm."""
    if study.data.columns is not None:
        return list(study.data.columns.items())
    reach = study.data.norm
    return [(f"x{index}", Column(min=-reach, max=reach)) for index in range(study.data.raw_dimension)]


def split(values: Floats, widths: list[int]) -> list[Floats]:
    """The last axis in parts of these widths, one a column.

    >>> [part.tolist() for part in split(np.array([1.0, 2.0, 3.0]), [1, 2])]
    [[1.0], [2.0, 3.0]]
    """
    return np.split(values, np.cumsum(widths)[:-1], axis=-1)


def in_units(column: Column, number: float) -> float | str:
    """A number of the column; of days, the day."""
    return column.shown(number) if column.kind == "date" else float(number)
