"""Parties whose records are in a folder: a Parquet file each, or a partition, which is a folder of files.

A few parties are in memory at once, so there may be more records than fit into it. Of each party, its place and its
number of records are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unspoken.data.block import Block
from unspoken.data.federation import (
    BLOCK_PARTIES,
    BoundedMap,
    Federation,
    bounded_rows,
    by_size,
    check_count,
    mapped_rows,
    padded,
)
from unspoken.data.files import DataError, Records, read_records, rows_of_parquet
from unspoken.data.loading import joined, other_count
from unspoken.study import Study
from unspoken.types import Integers

_SUFFIXES = (".parquet", ".pq")


class FolderFederation(Federation):
    """The parties of a folder, in the order of their names."""

    def __init__(self, study: Study, folder: Path, mapped: BoundedMap | None = None) -> None:
        if not study.data.is_table:
            raise DataError(
                f"{folder}: is a folder of tables, but the study's [data] describes a matrix; describe columns, or "
                "name an NPZ file."
            )
        self._study, self.mapped = study, mapped
        self._files = _files_of(folder)
        self.parties = len(self._files)
        if self.parties != study.parties.count:
            raise DataError(other_count(f"{folder}: has {self.parties} parties", self.parties, study))
        self._counts = np.array([sum(map(rows_of_parquet, files)) for files in self._files])
        for files, count in zip(self._files, self._counts.tolist(), strict=True):
            check_count(study, count, str(files[0] if len(files) == 1 else files[0].parent))

    def counts(self) -> Integers:
        return self._counts

    def layout(self, most: int = BLOCK_PARTIES) -> Iterator[Integers]:
        return by_size(self._counts, self._study.data.dimension, most)

    def block(self, parties: Integers) -> Block:
        records = joined([self._records(int(party)) for party in parties])
        bounded = bounded_rows(self._study, records)
        features, labels = bounded if self.mapped is None else mapped_rows(bounded, self.mapped)
        return padded(features, labels, self._counts[parties])

    def _records(self, party: int) -> Records:
        files = self._files[party]
        records = joined([read_records(file, self._study) for file in files])
        if len(records) != self._counts[party]:
            raise DataError(f"{files[0]}: has changed since the run began; run it again.")
        return records


def files_in(folder: Path) -> list[Path]:
    """The files of all parties of a folder, in their order; `DataError` if there are none."""
    return [file for files in _files_of(folder) for file in files]


def _files_of(folder: Path) -> list[list[Path]]:
    """The files of each party."""
    if not (found := [files for _, files in sorted(_parties(folder))]):
        raise DataError(f"{folder}: has no Parquet files; name a folder with one for each party.")
    return found


def _parties(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """The name of each party, and its files."""
    for place in folder.iterdir():
        if place.name.startswith((".", "_")):
            continue
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if _is_table(file))
            if files:
                yield place.name, files
        elif _is_table(place):
            yield place.name, [place]


def _is_table(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES and not file.name.startswith((".", "_")) and file.is_file()
