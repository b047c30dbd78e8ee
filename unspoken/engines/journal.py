"""A run's journal: with it a run that was cut off goes on, with no budget spent twice and none forgotten.

Before a turn begins, its secret randomness is on disk; when its total is known, that is, and the secret is erased. A
turn that was cut off is repeated from the same secret: every party draws the same batch, noise and keys, and what it
sends is the same, so nothing more is revealed than the first time. Turns that are over are not repeated at all: the
method is told their totals, which are public, and goes on from there.

The file (SQLite) holds secrets of a turn under way, and of common noise that is still to be used: it is readable by its
owner only, and belongs on the machine that runs the simulation.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unspoken.errors import UnspokenError
from unspoken.noise.stream import SecretStream


class Entry(msgspec.Struct):
    """What is kept of a turn that is over."""

    noisy: bytes
    exact: bytes
    survivors: int
    noise_std: float
    prepared: int
    moved: int
    largest: int
    common: tuple[bytes, bytes, bytes] | None = None
    """Of common noise: the secret that it is drawn from, who takes part, and its sum"""
    counted: bytes = b""
    """Which parties are in a sum or a vote: a private analysis is of their ballots"""


class Journal:
    """The journal of one run of one study."""

    def __init__(self, path: Path, run: str) -> None:
        """`run` names the run: a digest of what is run, a slash, and its settings. Another run's journal is refused."""
        self._path = path
        try:
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._base = sqlite3.connect(path, isolation_level=None)
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.execute("PRAGMA secure_delete=ON")
            self._base.execute("CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY)")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS turns (number INTEGER PRIMARY KEY, request TEXT, secret BLOB, entry BLOB)"
            )
            known = [row[0] for row in self._base.execute("SELECT run FROM runs")]
            if not known:
                self._base.execute("INSERT INTO runs VALUES (?)", (run,))
        except (OSError, sqlite3.Error) as error:
            raise UnspokenError(f"{path}: cannot be used as a checkpoint ({error}); choose another file.") from None
        if known and known != [run]:
            raise UnspokenError(f"{path}: {_mismatch(known[0], run)}; choose another file.")

    def entry(self, number: int, request: str) -> Entry | None:
        """What a turn gave, if it is over."""
        row = self._row(number, request)
        return None if row is None or row[1] is None else msgspec.msgpack.decode(row[1], type=Entry)

    def begin(self, number: int, request: str, secrets: SecretStream) -> SecretStream:
        """The turn's secret randomness: what it was when the turn was cut off, or new, and on disk."""
        row = self._row(number, request)
        if row is not None and row[0] is not None:
            return SecretStream(row[0])
        key = secrets.key()
        self._base.execute("INSERT OR REPLACE INTO turns VALUES (?, ?, ?, NULL)", (number, request, key))
        return SecretStream(key)

    def finish(self, number: int, entry: Entry) -> None:
        """Keep what the turn gave, and forget its secret, and those of turns that only led to it."""
        encoded = msgspec.msgpack.encode(entry)
        self._base.execute("UPDATE turns SET entry = ? WHERE number = ?", (encoded, number))
        self._base.execute("UPDATE turns SET secret = NULL WHERE number <= ?", (number,))

    def is_over(self, number: int) -> bool:
        """Is what a turn gave known?"""
        row = self._base.execute("SELECT entry FROM turns WHERE number = ?", (number,)).fetchone()
        return row is not None and row[0] is not None

    def close(self) -> None:
        self._base.close()

    def _row(self, number: int, request: str) -> tuple[bytes | None, bytes | None] | None:
        row = self._base.execute("SELECT request, secret, entry FROM turns WHERE number = ?", (number,)).fetchone()
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
    """A request as far as its answer depends on it."""
    numbers = [getattr(request, name, None) for name in ("parameters", "indices")]
    parts = [np.ascontiguousarray(part).tobytes() for part in numbers if part is not None]
    digest = hashlib.sha256(b"".join(parts)).hexdigest() if parts else ""
    kind, name, turn = type(request).__name__, getattr(request, "name", ""), getattr(request, "turn", 0)
    return f"{kind}/{name}/{turn}/{getattr(request, 'only', None)}/{digest}"
