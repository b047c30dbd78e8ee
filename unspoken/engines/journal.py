"""The journal of a simulated run, from which an interrupted run resumes without spending any budget twice.

Before a turn begins, its secret randomness is written to disk. When its total is known, the total is written and the
secret is erased. An interrupted turn is repeated from the same secret: every party draws the same batch, noise and keys
and sends the same vector, so nothing new is revealed. Finished turns are not repeated: the method gets their totals,
which are public, from the journal.

A turn's secret is derived from a root in the file and from the turn's request. So a copy of the file, whenever it was
made, leads to the same release, and not to a second one that nobody was charged for. Another version of this package
might make another one of the same secrets, so it is refused. When a turn begins, the root is
replaced by one derived from it, so the secrets of finished turns cannot be computed again.

The file (SQLite) holds the root, and the secrets of the turn under way and of common noise that is still to be used.
Only its owner can read it, and it belongs on the machine that runs the simulation.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from unspoken.errors import UnspokenError, printable
from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.roles.kept_answers import KeptAnswer


class Entry(msgspec.Struct):
    """The record of a finished turn."""

    kept: KeptAnswer
    moved: int
    """The bytes of all, and the most of a party"""
    largest: int
    failed: int
    """The number of earlier attempts that failed after vectors had left"""


Kept = TypeVar("Kept")
Text = TypeVar("Text", bytes, str)
Roots = dict[int, bytes]
"""The secret roots of common noise, for the turns that are still to come"""


class Journal:
    """The journal of one run of one study."""

    def __init__(self, path: Path, run: str) -> None:
        """`run` is a digest of study and records, a slash, and the settings. Another run's journal is refused."""
        self._path = path
        new = not path.exists()
        try:
            if new:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._base = sqlite3.connect(path, isolation_level=None)
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.execute("PRAGMA secure_delete=ON")
            self._base.execute("CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY)")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS turns (number INTEGER PRIMARY KEY, request TEXT, secret BLOB, entry BLOB)"
            )
            self._base.execute("CREATE TABLE IF NOT EXISTS noise (name TEXT PRIMARY KEY, kept BLOB)")
            self._base.execute("CREATE TABLE IF NOT EXISTS identity (only INTEGER PRIMARY KEY, name TEXT)")
            self._base.execute("CREATE TABLE IF NOT EXISTS root (only INTEGER PRIMARY KEY, secret BLOB)")
            self._base.execute("CREATE TABLE IF NOT EXISTS written (only INTEGER PRIMARY KEY, version TEXT)")
            known = [row[0] for row in self._base.execute("SELECT run FROM runs")]
            if not known:
                self._base.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", (os.urandom(16).hex(),))
                self._base.execute("INSERT OR IGNORE INTO root VALUES (1, ?)", (os.urandom(KEY_BYTES),))
                self._base.execute("INSERT OR IGNORE INTO written VALUES (1, ?)", (version("unspoken"),))
                self._base.execute("INSERT INTO runs VALUES (?)", (run,))
            written = self._base.execute("SELECT version FROM written").fetchone()
        except (OSError, sqlite3.Error) as error:
            if new:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise UnspokenError(f"{path}: cannot be used as a checkpoint ({reason}); choose another file.") from None
        if known and known != [run]:
            self.close()
            raise UnspokenError(f"{path}: {_mismatch(known[0], run)}; choose another file.")
        if written is None or written[0] != version("unspoken"):
            self.close()
            by = "an earlier version of unspoken" if written is None else f"unspoken {printable(str(written[0]), 40)}"
            raise UnspokenError(
                f"{path}: was written by {by}, and this is {version('unspoken')}, which may make another "
                "release of the same secrets; use that version, or begin anew with another file."
            )

    @property
    def identity(self) -> str:
        """A name that no other journal has, not even a new journal of the same run after this one was lost."""
        return self._whole(self._found("SELECT name FROM identity"), str, 32)

    def entry(self, number: int, request: str) -> Entry | None:
        """The record of a turn, if it is finished."""
        row = self._row(number, request)
        if row is None or row[1] is None:
            return None
        return self._decoded(row[1], Entry)

    def begin(self, number: int, request: str) -> SecretStream:
        """The turn's secret randomness: that of the interrupted turn, or else a new one, which is on disk by then."""
        # Two runs that use the file at once draw the same secrets, as one does that is interrupted and repeated.
        with self._transaction():
            row = self._row(number, request)
            if row is not None and row[0] is not None:
                return SecretStream(self._whole(row, bytes, KEY_BYTES))
            if row is not None:
                raise UnspokenError(
                    f"{self._path}: was gone on with by another run at the same time; wait for its end, and run the "
                    "same command again."
                )
            root = self._whole(self._found("SELECT secret FROM root"), bytes, KEY_BYTES)
            key, following = (hashlib.sha256(root + use.encode()).digest() for use in (f"turn/{request}", "root"))
            self._base.execute("INSERT INTO turns VALUES (?, ?, ?, NULL)", (number, request, key))
            self._base.execute("UPDATE root SET secret = ?", (following,))
        return SecretStream(key)

    def finish(self, number: int, entry: Entry, noise: tuple[str, Roots] | None = None) -> None:
        """Write the record of a turn, and erase its secret and those of the turns before it.

        `noise` are the roots of the common noise that the turn made, or those that are left after it, with its name.
        """
        encoded = msgspec.msgpack.encode(entry)
        with self._transaction():
            if noise is not None:
                kept = noise[0], msgspec.msgpack.encode(noise[1])
                self._base.execute("INSERT OR REPLACE INTO noise VALUES (?, ?)", kept)
            self._base.execute("UPDATE turns SET entry = ? WHERE number = ?", (encoded, number))
            self._base.execute("UPDATE turns SET secret = NULL WHERE number <= ?", (number,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing of what follows, while nobody else writes; one sentence if that cannot be: what is in the
        journal stays."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):
                    self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            raise UnspokenError(
                f"{self._path}: cannot be written to ({error}); make room, or wait for another run that uses it, "
                "and run the same command again: it goes on from there."
            ) from None

    def _found(self, query: str, *values: Any) -> Any:
        """The first row that a query finds; None if there is none."""
        try:
            return self._base.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _decoded(self, content: bytes, kind: type[Kept]) -> Kept:
        try:
            return msgspec.msgpack.decode(content, type=kind)
        except (msgspec.MsgspecError, TypeError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> UnspokenError:
        return UnspokenError(
            f"{self._path}: cannot be read as a checkpoint ({error}); put a whole copy of it back, or begin anew with "
            "another file."
        )

    def _whole(self, row: Any, kind: type[Text], length: int) -> Text:
        """What a row begins with. What is lost is not made up anew: that would be a second release, charged once."""
        if row is None or not isinstance(row[0], kind) or len(row[0]) != length:
            raise UnspokenError(
                f"{self._path}: is damaged (a secret or its name is gone); put a whole copy of it back, or begin anew "
                "with another file."
            )
        return row[0]

    def roots(self, name: str) -> Roots:
        """The roots of the common noise of this name, as far as they are still needed."""
        row = self._found("SELECT kept FROM noise WHERE name = ?", name)
        return {} if row is None else self._decoded(row[0], Roots)

    def is_over(self, number: int) -> bool:
        """Whether the turn is finished."""
        row = self._found("SELECT entry FROM turns WHERE number = ?", number)
        return row is not None and row[0] is not None

    def close(self) -> None:
        self._base.close()

    def _row(self, number: int, request: str) -> tuple[bytes | None, bytes | None] | None:
        row = self._found("SELECT request, secret, entry FROM turns WHERE number = ?", number)
        if row is None:
            return None
        if row[0] != request:
            raise UnspokenError(
                f"{self._path}: does not fit this run (turn {number} asked for something else); choose another file."
            )
        return row[1], row[2]


def _mismatch(found: str, run: str) -> str:
    """The difference between two runs' names, as the middle of a sentence.

    >>> _mismatch("5f/drop 1, seed 0", "5f/drop 2, seed 0")
    'is the checkpoint of a run with drop 1, seed 0, but this run has drop 2, seed 0'
    """
    (one, _, then), (other, _, now) = found.partition("/"), run.partition("/")
    if one == other:
        return f"is the checkpoint of a run with {then}, but this run has {now}"
    return "is the checkpoint of another study or other data"


def fingerprint(request: Any) -> str:
    """A text that is the same for equal requests only."""
    numbers = [getattr(request, name, None) for name in ("parameters", "indices")]
    parts = [np.ascontiguousarray(part).tobytes() for part in numbers if part is not None]
    digest = hashlib.sha256(b"".join(parts)).hexdigest() if parts else ""
    kind, name, turn = type(request).__name__, getattr(request, "name", ""), getattr(request, "turn", 0)
    return f"{kind}/{name}/{turn}/{getattr(request, 'only', None)}/{digest}"
