"""The party of each row of an array or a data frame."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from unspoken.data.records import DataError
from unspoken.data.splits import split
from unspoken.data.tables import Table
from unspoken.types import Integers, Labels


def named_groups(groups: Any, features: Any) -> npt.ArrayLike:
    """The groups, from the data frame's column if they are the name of one."""
    if groups is None:
        raise DataError("groups is missing; it should name the party of each record, or a data frame's column of them.")
    if isinstance(groups, str):
        if not hasattr(features, "columns"):
            raise DataError(f"groups is {groups!r}, but only a data frame has columns; name the party of each record.")
        return Table(features, "the training table").parties(groups)
    named: npt.ArrayLike = groups
    return named


def number_parties(groups: npt.ArrayLike, records: int) -> Integers:
    """The party of each record, numbered from 0 in the order of the names in `groups`."""
    names = np.asarray(groups)
    if names.shape != (records,):
        raise DataError(f"groups has the shape {names.shape}, but should name the party of each of {records} records.")
    if names.dtype.kind in "fO":
        missing = [row for row, name in enumerate(names.tolist()) if name is None or name != name]
        if missing:
            raise DataError(f"groups[{missing[0]}] is {names[missing[0]]}, but should name the record's party.")
    try:
        return np.unique(names, return_inverse=True)[1]
    except TypeError:
        raise DataError("groups mixes text and numbers, but should name parties by one of them.") from None


def dealt_parties(labels: Labels, parties: Any, seed: Any, default: int, fewest: int = 2) -> Integers:
    """The party of each record where nobody names one: rows are dealt out at random, by the public seed.

    There may be fewer records than `default` parties; `fewest` parties there must be.
    """
    if not isinstance(parties, Integral) or isinstance(parties, bool) or parties < fewest:
        raise ValueError(f"Expected a whole number of parties, {fewest} or more, got parties={parties!r}.")
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"Expected a whole number from 0 up as the seed, got seed={seed!r}.")
    if int(parties) > len(labels) and parties != default:
        raise ValueError(f"Expected at most as many parties as rows, {len(labels)}, got parties={parties}.")
    return split("iid", labels, min(int(parties), len(labels)), int(seed))
