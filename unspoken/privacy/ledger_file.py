"""The file of a ledger: an append-only list of pages in SQLite, which several processes may share.

A page is on disk when `transaction` has ended: one transaction each, with a rollback journal and `synchronous = EXTRA`.
The file can be read by its owner only. Every page has a digest of itself and of all pages before it, so that damage is
noticed. Pages are never taken away, so a process that has seen a page refuses a file without it: somebody has put an
old copy back, or begun the file anew. A process that begins after that does not notice it: put a copy back only if the
ledger is lost.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from unspoken import writing
from unspoken.errors import UnspokenError
from unspoken.privacy.ledger_pages import Book, Page, decoded, encoded

FORMAT = 1
_APPLICATION = int.from_bytes(b"Unsp", "big")
"""The application's file type, as SQLite calls it"""
_WAIT = 60.0
"""Seconds to wait for another process"""
_TABLE = "CREATE TABLE pages (number INTEGER PRIMARY KEY, content TEXT NOT NULL, chain BLOB NOT NULL)"
Found = TypeVar("Found")


class LedgerError(UnspokenError):
    """A ledger that cannot be used, or could not be written. Nothing was charged."""


class LedgerFile:
    """The pages of a ledger, in a file or (without a path) in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._book, self._read, self._chain = Book(), 0, b""
        self._seen = (0, b"")
        """The last page that this process has read or written: its number and its digest"""
        self._memory: sqlite3.Connection | None = None
        self._process = os.getpid()
        if path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    @property
    def path(self) -> Path | None:
        return self._path

    def leave(self) -> None:
        """Give up the ledger in this process."""
        self._process = 0

    def check_writable(self) -> None:
        """An error if the file, or its journal beside it, cannot be written."""
        if self._path is None:
            return
        if not self._path.parent.exists():
            raise LedgerError(
                f"{self._path}: cannot be used as a ledger (there is no such folder); choose another file."
            )
        if self._path.exists() and not os.access(self._path, os.W_OK):
            raise LedgerError(
                f"{self._path}: may not be written to; make it yours alone (chmod 600), or choose another."
            )
        try:
            writing.check_folder(self._path.parent, "--ledger")
        except UnspokenError as error:
            raise LedgerError(f"{self._path}: nothing could be charged: {error}") from None

    def read(self, look: Callable[[Book], Found]) -> Found:
        """What `look` makes of the book as it is now; the book does not change meanwhile.

        A file that does not exist counts as empty, and is not created.
        """
        if self._path is not None and not self._path.exists():
            if self._seen[0]:
                raise self._put_back()
            return look(Book())
        with self.transaction() as now:
            return look(now.book)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """The book as it is now, and the way to add to it. Nobody else reads or writes meanwhile.

        When the block ends, what was added is on disk. If anything fails, nothing is added.
        """
        with self._lock, self._explained(), self._connected() as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                self._prepare(base)
                self._catch_up(base)
                transaction = Transaction(self._book)
                yield transaction
                last = self._append(base, transaction.added)
                base.execute("COMMIT")
                self._seen = last
            except BaseException:
                if base.in_transaction:
                    base.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            if os.getpid() != self._process:
                raise LedgerError("A ledger in memory cannot be shared by processes; give it a file.")
            yield self._memory
            return
        # A connection for each transaction: it may be used in any thread, and after a fork.
        path = self._path or Path()
        if not path.exists():
            if self._seen[0]:
                raise self._put_back()
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(path, timeout=_WAIT, isolation_level=None)) as base:
            base.execute("PRAGMA synchronous = EXTRA")
            base.execute("PRAGMA fullfsync = ON")
            yield base

    def _prepare(self, base: sqlite3.Connection) -> None:
        """Begin an empty file; refuse one that is something else."""
        application, format_ = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in _HEADER)
        if not base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] and not (application or format_):
            base.execute(_TABLE)
            for name, value in zip(_HEADER, (_APPLICATION, FORMAT), strict=True):
                base.execute(f"PRAGMA {name} = {value}")
        elif application != _APPLICATION:
            raise LedgerError(f"{self._path}: is not a ledger; choose another file.")
        elif format_ != FORMAT:
            raise LedgerError(
                f"{self._path}: is a ledger of format {format_}, but this version of unspoken knows format {FORMAT} "
                "only; use the version that wrote it."
            )

    def _catch_up(self, base: sqlite3.Connection) -> None:
        """Read the pages that were added since."""
        number, chain = self._seen
        last = base.execute("SELECT chain FROM pages WHERE number = ?", (number,)).fetchone()
        if number and (last is None or last[0] != chain):
            self._forget()
            try:
                self._read_on(base)  # which says so if the file is damaged
            finally:
                self._forget()
            raise self._put_back()
        self._read_on(base)
        self._seen = (self._read, self._chain)

    def _forget(self) -> None:
        self._book, self._read, self._chain = Book(), 0, b""

    def _read_on(self, base: sqlite3.Connection) -> None:
        """Read the pages after those in the book."""
        rows = base.execute("SELECT number, content, chain FROM pages WHERE number > ? ORDER BY number", (self._read,))
        for number, content, chain in rows:
            if number != self._read + 1 or _chained(self._chain, content) != chain:
                raise self._damaged(f"page {self._read + 1}")
            try:
                self._book.add(decoded(content.encode()))
            except (msgspec.MsgspecError, ValueError):
                raise LedgerError(
                    f"{self._path}: page {number} has something that this version of unspoken does not know; use the "
                    "version that wrote it."
                ) from None
            self._read, self._chain = number, chain

    def _append(self, base: sqlite3.Connection, pages: list[Page]) -> tuple[int, bytes]:
        """Write pages; the number and the digest of the last one."""
        number, chain = self._read, self._chain
        for number, page in enumerate(pages, self._read + 1):
            content = encoded(page).decode()
            chain = _chained(chain, content)
            base.execute("INSERT INTO pages VALUES (?, ?, ?)", (number, content, chain))
        return number, chain

    def _put_back(self) -> LedgerError:
        return LedgerError(
            f"{self._path}: an older copy was put back, or it was begun anew, while it was in use (page "
            f"{self._seen[0]} is not what it was); put the newest copy back, or, if that is lost, start this "
            "program again."
        )

    def _damaged(self, what: str) -> LedgerError:
        return LedgerError(f"{self._path}: is damaged ({what}); put its newest copy back, or begin another ledger.")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in one sentence what is wrong with the file."""
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"{self._path}: cannot be used as a ledger ({error.strerror}); choose another file."
            ) from None
        except sqlite3.Error as error:
            raise self._explanation(error) from None

    def _explanation(self, error: sqlite3.Error) -> LedgerError:
        name = str(getattr(error, "sqlite_errorname", ""))
        if name.startswith("SQLITE_NOTADB"):
            return LedgerError(f"{self._path}: is not a ledger; choose another file.")
        if name.startswith("SQLITE_CORRUPT"):
            return self._damaged(str(error))
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return LedgerError(
                f"{self._path}: was in use by another program for {_WAIT:.0f} seconds; end that one, or try again."
            )
        if name.startswith("SQLITE_CANTOPEN"):
            return LedgerError(f"{self._path}: cannot be used as a ledger ({error}); choose another file.")
        return LedgerError(f"{self._path}: could not be written ({error}), so nothing was charged; try again.")


_HEADER = ("application_id", "user_version")


class Transaction:
    """The book while nobody else can change it, and pages to be added."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.added: list[Page] = []

    def add(self, page: Page) -> None:
        self.added.append(page)


def _chained(chain: bytes, content: object) -> bytes:
    """The digest of a page and of all before it."""
    return hashlib.sha256(chain + str(content).encode()).digest()
