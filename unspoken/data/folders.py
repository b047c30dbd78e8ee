"""Parties whose records are in a folder: a Parquet file each, or a partition, which is a folder of files.

A few parties are in memory at once, so there may be more records than fit into it. Of each party, its place and its
number of records are kept, and a digest of each file that was read: a file that is read again must be the same.
Copies in other processes know what was read before they were made, and what they have read themselves.
"""

from __future__ import annotations

import hashlib
import os
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
from unspoken.types import Integers, Labels

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
        # The processes of a cluster may work elsewhere.
        self._files = _files_of(folder.absolute())
        self.parties = len(self._files)
        if self.parties != study.parties.count:
            raise DataError(other_count(f"{folder}: has {self.parties} parties", self.parties, study))
        self._rows = [[rows_of_parquet(file, study) for file in files] for files in self._files]
        self._counts = np.array([sum(rows) for rows in self._rows])
        self._read: dict[Path, bytes] = {}
        """The digests of the files that were read or fixed, from before they were read first"""
        for files, count in zip(self._files, self._counts.tolist(), strict=True):
            check_count(study, count, str(files[0] if len(files) == 1 else files[0].parent))

    def check(self) -> None:
        for party in range(self.parties):
            self._records(party)

    def fix(self) -> None:
        for files, rows in zip(self._files, self._rows, strict=True):
            for file in (file for file, count in zip(files, rows, strict=True) if count):
                self._know(file)

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
        # Programs that write partitions leave files without rows in them.
        parts = [self._part(*one) for one in zip(self._files[party], self._rows[party], strict=True) if one[1]]
        return joined(parts) if parts else _no_records(self._study)

    def _part(self, file: Path, rows: int) -> Records:
        if not file.exists():
            raise DataError(f"{file}: was there when the run began, and is gone; put it back, and run it again.")
        # Of the file before it is read for the first time, so that a change during that is seen, too.
        self._know(file)
        records = read_records(file, self._study)
        # Other records would not be those that a ledger was charged for and a checkpoint knows, under the same noise.
        if len(records) != rows or self._read[file] != _digest(file):
            raise DataError(f"{file}: has changed since the run began; run it again.")
        return records

    def _know(self, file: Path) -> None:
        if file not in self._read:
            self._read[file] = _digest(file)


def _digest(file: Path) -> bytes:
    """The SHA-256 of a file; nothing if it is gone, or may not be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()
    except OSError:
        return b""


def _no_records(study: Study) -> Records:
    labels: Labels = np.zeros(0) if study.task == "regression" else np.zeros(0, dtype=np.int64)
    return Records(np.zeros((0, study.data.raw_dimension)), labels)


def files_in(folder: Path) -> list[Path]:
    """The files of all parties of a folder, in their order; `DataError` if there are none."""
    return [file for files in _files_of(folder) for file in files]


def _files_of(folder: Path) -> list[list[Path]]:
    """The files of each party."""
    try:
        found = [files for _, files in sorted(_parties(folder))]
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: cannot be read ({error.strerror}); change its permissions or name another "
            "folder."
        ) from None
    if not found:
        raise DataError(f"{folder}: has no Parquet files; name a folder with one for each party.")
    return found


def _parties(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """The name of each party, and its files."""
    for place in folder.iterdir():
        if _is_hidden(place.name):
            continue
        if place.is_dir():
            files = sorted(file for file in _files_below(place) if _is_table(file))
            if files:
                yield place.name, files
        elif _is_table(place):
            yield place.name, [place]


def _files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those in it, links among them. `OSError` if one cannot be read, and `DataError` if
    one is met twice: no record is left out silently, nor counted twice."""

    def fail(error: OSError) -> None:
        raise error

    met: set[str] = set()
    for place, folders, files in os.walk(folder, onerror=fail, followlinks=True):
        if (real := os.path.realpath(place)) in met:
            raise DataError(f"{place}: leads to {real}, which is among this party's folders already; remove the link.")
        met.add(real)
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (Path(place, name) for name in files)


def _is_hidden(name: str) -> bool:
    """Whether a name is that of what programs keep for themselves, such as copies that they have not finished."""
    return name.startswith((".", "_"))


def _is_table(file: Path) -> bool:
    """Whether it is named like a table. If it cannot be read as one, that is an error: nobody is left out silently."""
    return file.suffix.lower() in _SUFFIXES and not _is_hidden(file.name) and not file.is_dir()
