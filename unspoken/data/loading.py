"""The records of several parties, with the parties that they belong to: one file for all, or one file each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unspoken.data.clipped import Holders
from unspoken.data.federation import check_count
from unspoken.data.files import read_array, read_records, read_table
from unspoken.data.records import DataError, Records
from unspoken.study import Study
from unspoken.types import Integers


@dataclass(frozen=True)
class Loaded:
    """Records, and the party of each if the files say whose they are."""

    records: Records
    parties: Integers | None
    kind: str = "iid"
    """How records are split over parties: "iid" unless someone says otherwise, or as the files say"""
    holders: Holders | None = None
    """How messages name the parties, if the files say whose the records are"""


def load(paths: Sequence[Path], study: Study, parties_by: str | None = None) -> Loaded:
    """Read one file with all records, or one file for each party.

    `parties_by` is the column of a table that names each record's party, or an NPZ file's array. It is no feature,
    unless the study has it among its columns.
    """
    if len(paths) > 1:
        return _one_each(paths, study, parties_by)
    if parties_by is None:
        return Loaded(read_records(paths[0], study), None)
    if not study.data.is_table:
        records = read_records(paths[0], study)
        names = read_array(paths[0], parties_by, len(records))
    else:
        table = read_table(paths[0], study, (parties_by,))
        records, names = table.records(study), np.array(table.parties(parties_by))
    parties = numbered(study, names, f"--parties-by {parties_by}")
    return Loaded(records, parties, f"by {parties_by}", Holders.of(parties, names))


def _one_each(paths: Sequence[Path], study: Study, parties_by: str | None) -> Loaded:
    if parties_by is not None:
        raise DataError(f"--parties-by is {parties_by!r}, but each --data is a party of its own; leave one out.")
    for path in paths:
        if list(paths).count(path) > 1:
            raise DataError(f"--data is {path} twice, but each file is a party of its own; name it once.")
        if path.is_dir():
            raise DataError(
                f"--data is {path}, a folder, beside others, but each should be one party's file; name files only "
                "(simulate takes a folder alone, with a file for each party)."
            )
    if len(paths) != study.parties.count:
        raise DataError(other_count(f"{len(paths)} files were given, one a party", len(paths), study))
    parts = [read_records(path, study) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        check_count(study, len(part), str(path))
    sizes = [len(part) for part in parts]
    parties = np.repeat(np.arange(len(parts)), sizes)
    return Loaded(joined(parts), parties, "by file", Holders(parties, [str(path) for path in paths]))


def joined(parts: Sequence[Records]) -> Records:
    """The records of several files as one."""
    names = sorted({name for part in parts for name in part.clipped})
    none = [np.zeros(len(part), dtype=np.bool_) for part in parts]
    clipped = {
        name: np.concatenate([part.clipped.get(name, other) for part, other in zip(parts, none, strict=True)])
        for name in names
    }
    features = np.concatenate([part.features for part in parts])
    return Records(features, np.concatenate([part.labels for part in parts]), clipped)


def numbered(study: Study, names: npt.ArrayLike, who: str) -> Integers:
    """The number of each record's party, in the order of their names. There must be as many as the study has."""
    found, numbers = np.unique(np.asarray(names), return_inverse=True)
    if len(found) != study.parties.count:
        raise DataError(other_count(f"{who} names {len(found)} parties", len(found), study))
    for party, count in enumerate(np.bincount(numbers).tolist()):
        check_count(study, count, f"party {str(found[party])!r}")
    return numbers


def other_count(what: str, count: int, study: Study) -> str:
    """The message of files that have another number of parties than the study."""
    return (
        f"{what}, but the study's [parties] count is {study.parties.count}; correct one of them, or run it for {count} "
        f"parties with --parties {count}."
    )
