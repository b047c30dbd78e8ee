"""The digest of data files, by which a ledger recognises them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from unspoken.data.files import DataError, Records, checked_path, no_file, read_records
from unspoken.data.folders import files_in
from unspoken.study import Study

Result = TypeVar("Result")


def digest_of(files: Sequence[Path]) -> str:
    """The SHA-256 of a file's bytes, or of the digests of several files in their order: 64 digits from 0 to f.

    Of a folder, these are the files of its parties.
    """
    digests = [_digest(file) for path in files for file in (files_in(path) if path.is_dir() else [path])]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_with_digest(path: Path, study: Study) -> tuple[Records, str]:
    """A party's records, and the digest of the very file that they were read from."""
    path = checked_path(path, study)
    return with_digest([path], study, lambda: read_records(path, study))


def with_digest(paths: Sequence[Path], study: Study, read: Callable[[], Result]) -> tuple[Result, str]:
    """What is read from files, and their digest; `DataError` if they changed meanwhile. Otherwise other records could
    be charged to a data set than those that leave their mark.

    Files are read once more for each digest, which takes less than a second for a gigabyte. A folder's files are read
    later, one after the other.
    """
    files = [checked_path(path, study) for path in paths if not path.is_dir()]
    before = digest_of(paths)
    found = read()
    if len(files) == len(paths) and digest_of(paths) != before:
        names = ", ".join(map(str, paths))
        raise DataError(f"{names}: was changed while it was read; wait until it is whole, and begin again.")
    return found, before


def _digest(path: Path) -> str:
    if not path.is_file():
        # A pipe would be waited for without end.
        raise no_file(path, "one that holds records")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
