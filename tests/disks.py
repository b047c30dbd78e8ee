"""Stores on disks that fail: at any operation, with part of a write done, and with all lost that was not synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unspoken.roles.file_store import Disk, FileStore
from unspoken.summation.keys import Identity

ME = Identity(bytes(range(32)))
RECORDS = [b"snapshot", b"first", b"second" * 1000, b"third"]


class Folder:
    """A journal and its witness in two folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal, self.witness = folder / "state" / "journal", folder / "keys" / "witness"
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        self.witness.parent.mkdir(exist_ok=True)

    def open(self, identity: Identity = ME, study: str = "study", role: str = "party:0", **more: Any) -> FileStore:
        return FileStore(self.journal, self.witness, identity, study, role, **more)

    def read(self) -> list[bytes]:
        store = self.open()
        try:
            return store.read()
        finally:
            store.close()

    def fill(self, records: list[bytes] = RECORDS, disk: Disk | None = None) -> None:
        """A snapshot, and records that are kept one by one."""
        store = self.open(disk=disk)
        try:
            store.replace(records[0])
            for record in records[1:]:
                store.append(record)
                store.sync()
        finally:
            store.close()


class PowerCut(BaseException):
    """Nothing runs any more."""


class FailingDisk(Disk):
    """Does so many operations, and then fails. It knows what would survive if all that was not synced were lost."""

    def __init__(self, operations: int, fail: Callable[[FailingDisk], None], torn: float = 0.0) -> None:
        self.left, self._fail, self._torn = operations, fail, torn
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, int] = {}

    def _count(self) -> bool:
        self.left -= 1
        return self.left < 0

    def write(self, file: int, content: bytes) -> None:
        if self._count():
            super().write(file, content[: int(self._torn * len(content))])
            self._fail(self)
        super().write(file, content)

    def sync(self, file: int) -> None:
        if self._count():
            self._fail(self)
        super().sync(file)
        self._contents[os.fstat(file).st_ino] = os.pread(file, 1 << 20, 0)

    def rename(self, old: Path, new: Path) -> None:
        if self._count():
            self._fail(self)
        super().rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        if self._count():
            self._fail(self)
        super().sync_folder(folder)
        self._names = {path: inode for path, inode in self._names.items() if path.parent != folder}
        self._names |= {path: path.stat().st_ino for path in folder.iterdir()}

    def survivors(self, before: Path, after: Path) -> None:
        """Make a folder of what was synced, and nothing else."""
        for path, inode in self._names.items():
            to = after / path.relative_to(before)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(self._contents.get(inode, b""))
