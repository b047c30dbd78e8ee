"""The digest of data files, by which a ledger recognises them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from unspoken.data.files import DataError, Records, checked_path, read_records
from unspoken.data.folders import files_in
from unspoken.study import Study


def digest_of(files: Sequence[Path]) -> str:
    """The SHA-256 of a file's bytes, or of the digests of several files in their order: 64 digits from 0 to f.

    Of a folder, these are the files of its parties.
    """
    digests = [_digest(file) for path in files for file in (files_in(path) if path.is_dir() else [path])]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_with_digest(path: Path, study: Study) -> tuple[Records, str]:
    """A party's records, and the digest of the very file that they were read from; `DataError` if it changed
    meanwhile. Otherwise other records could be charged to a data set than those that leave their mark."""
    path = checked_path(path, study)
    before = digest_of([path])
    records = read_records(path, study)
    if digest_of([path]) != before:
        raise DataError(f"{path}: was changed while it was read; wait until it is whole, and begin again.")
    return records, before


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
