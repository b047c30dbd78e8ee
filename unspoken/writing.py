"""Writes files completely or not at all, and never overwrites a file silently, nor anything that is no file.

Everything is first written into a hidden folder on the same disk and flushed. Then each file gets its name, in one step
that fails if the name is taken. If anything fails on the way, for example on a full disk, all that was written is
removed again, with the folders that were made for it.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from unspoken import interrupts
from unspoken.errors import UnspokenError

_TRIED = 1 << 16
"""The bytes of the file that is written to try a folder, since a full disk may still have room for an empty file"""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
"""What a name may stand for that is no file, in the words of messages"""


class NotWritten(UnspokenError):
    """A place that cannot be written to."""

    def __init__(self, place: Path, error: OSError, option: str = "") -> None:
        reason = error.strerror or type(error).__name__
        super().__init__(
            f"{place}: cannot be written to ({reason}); nothing was left there; choose another {option or 'place'}."
        )


def finite(value: Any) -> Any:
    """The value with None in place of NaN and infinity, which JSON does not have.

    >>> finite({"age": [41.5, float("nan")]})
    {'age': [41.5, None]}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def special_kind(path: Path) -> str | None:
    """What is at a place, or where a link there points, if it is no regular file: "a folder", "a pipe" and so on.

    None if there is a file, or nothing.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "no regular file")


def check_file(path: Path) -> None:
    """Refuse a place where something is that must never be replaced, as it is no file."""
    try:
        kind = special_kind(path)
    except OSError as error:  # such as a link to itself
        raise NotWritten(path, error) from None
    if kind is not None:
        raise UnspokenError(f"{path}: is {kind}; choose another name.")


def check_free(path: Path, remedy: str = "choose another name, or overwrite it with --force") -> None:
    """Refuse a place that is taken: before the work whose result would go there."""
    check_file(path)
    if os.path.lexists(path):
        raise UnspokenError(f"{path}: exists already; {remedy}.")


def check_folder(folder: Path, option: str = "--output") -> None:
    """Refuse a folder that cannot be written to: before the work whose result would go there.

    A file is written there and removed, because permissions do not tell whether a disk is full or read-only.
    """
    if folder.exists() and not folder.is_dir():
        raise UnspokenError(f"{folder}: is a file, but {option} should be a folder; choose another.")
    there = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = "may not be written to" if there == folder else f"cannot be made, as {there} is no folder to write to"
        raise UnspokenError(f"{folder}: {problem}; choose another {option}.")
    made = _missing(folder)
    with staged(folder, make=True, option=option) as hidden:
        tried = hidden / "tried"
        tried.write_bytes(bytes(_TRIED))
        sync(tried)
    _remove(None, made)


@contextmanager
def staged(folder: Path, *, make: bool = False, option: str = "", named: Path | None = None) -> Iterator[Path]:
    """A hidden folder in `folder` to write files into, before `keep` gives them their names. It goes at the end.

    With `make`, `folder` is made if it is missing, and removed again if the writing fails. What the operating system
    refuses is told in one sentence that names the folder (or the file that is `named`) and asks for another `option`.
    """
    missing = _missing(folder) if make else []
    hidden: Path | None = None
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".unspoken-", suffix=".part", dir=folder))
        yield hidden
    except BaseException as error:
        _remove(hidden, missing)
        if isinstance(error, OSError):
            raise NotWritten(named or folder, error, option) from None
        raise
    _remove(hidden, [])


def staged_for(path: Path) -> AbstractContextManager[Path]:
    """A hidden folder to write one file into: on the disk of what it replaces, if its name is a link elsewhere."""
    return staged(Path(os.path.realpath(path)).parent, named=path)


def _missing(folder: Path) -> list[Path]:
    """The folders that would have to be made, the innermost first."""
    return [above for above in (folder, *folder.parents) if not above.exists()]


def _remove(hidden: Path | None, made: list[Path]) -> None:
    if hidden is not None:
        shutil.rmtree(hidden, ignore_errors=True)
    for folder in made:
        with suppress(OSError):  # somebody else may have written there meanwhile
            folder.rmdir()


def keep(files: Mapping[Path, Path], *, replace: bool = False) -> bool:
    """Give files that were written their names, all or none of them. False if a name is taken.

    With `replace`, a file that has the name, or that a link of this name points to, is replaced in one step.
    """
    interrupts.check()
    for file in files:
        sync(file)
    placed: list[Path] = []
    try:
        for file, target in files.items():
            if replace:
                check_file(target)
                os.replace(file, os.path.realpath(target))
            else:
                _link(file, target)
                placed.append(target)
        for folder in {target.parent for target in files.values()}:
            sync(folder)
    except BaseException as error:
        for target in placed:
            target.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _link(file: Path, target: Path) -> None:
    """Give a file a name that nobody has."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system has links: then the name is claimed by an empty file first.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            os.replace(file, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write(path: Path, content: str | bytes, *, replace: bool = False) -> None:
    """Write one file, whole or not at all. A name that is taken is refused, unless it is to be replaced."""
    (check_file if replace else check_free)(path)
    with staged_for(path) as hidden:
        file = hidden / path.name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if not keep({file: path}, replace=replace):
            check_free(path)
