"""The table of a comparison, a row for each run, and the journal from which an interrupted comparison goes on.

While runs are under way, the journal is a file beside the table, with a line of JSON for each finished run. A run in
the journal is not repeated as long as its study, records and split are the same, so that more ε, repeats or methods can
be added. When all runs are done, the table is written and the journal is removed, unless it has runs that are not in
the table.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from unspoken import writing
from unspoken.comparison.cells import ComparedRun, Comparison
from unspoken.errors import UnspokenError

FORMATS = (".csv", ".parquet")


class ComparisonJournal:
    """The runs that are over, on disk."""

    def __init__(self, table: Path, comparison: Comparison) -> None:
        self.path = table.with_name(table.name + ".journal")
        self._comparison = comparison
        self._found: list[ComparedRun] = []
        facts: dict[str, Any] = {"split": comparison.kind, "seed": comparison.seed, **comparison.digests()}
        # Later additions: without them a journal is as it was.
        facts |= {} if comparison.hold_out is None else {"hold_out": comparison.hold_out}
        facts |= {"resplit": True} if comparison.resplit else {}
        self._header = json.dumps({"journal": "unspoken/comparison/1", **facts}, sort_keys=True)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise writing.NotWritten(self.path, error) from None
        try:
            self.runs = self._read()
        except BaseException:
            os.close(self._file)
            raise

    def _read(self) -> list[ComparedRun]:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnspokenError(f"{self.path}: is in use by another comparison; choose another --table.") from None
        # A line that a crash has torn is not there.
        whole, ended, _ = self.path.read_bytes().rpartition(b"\n")
        os.ftruncate(self._file, len(whole + ended))
        if not whole:
            self._append(self._header)
            return []
        header, *lines = whole.split(b"\n")
        if header != self._header.encode():
            raise UnspokenError(
                f"{self.path}: is of a comparison on other records, or with another split or seed; remove it, or "
                "choose another --table."
            )
        self._found = [self._run(number, line) for number, line in enumerate(lines, 2)]
        return [run for run in self._found if self._is_same(run)]

    def _run(self, number: int, line: bytes) -> ComparedRun:
        try:
            return msgspec.convert(json.loads(line), ComparedRun)
        except (ValueError, RecursionError) as error:
            raise UnspokenError(
                f"{self.path}: line {number} is not a run as this version writes it ({error}); remove that line, and "
                "its run is made again, or choose another --table."
            ) from None

    def _is_same(self, run: ComparedRun) -> bool:
        """Whether the run is of the study that would be run now."""
        known = self._comparison.variants
        return run.variant in known and self._comparison.study_of(run.cell).digest() == run.study_sha256

    def keep(self, run: ComparedRun) -> None:
        """Bring a run to the disk."""
        self._append(json.dumps(run.to_json()))

    def _append(self, line: str) -> None:
        """Bring a whole line to the disk, or nothing of it."""
        before, content = os.fstat(self._file).st_size, (line + "\n").encode()
        try:
            while content:
                content = content[os.write(self._file, content) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            if not before:
                self.path.unlink(missing_ok=True)
                raise writing.NotWritten(self.path, error, "--table") from None
            raise UnspokenError(
                f"{self.path}: takes no more runs ({error.strerror}), but keeps those that it has; make room, and run "
                "the same command again."
            ) from None

    def close(self) -> None:
        """Let others use it."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def give_up(self) -> None:
        """Remove a journal without runs, so that a comparison that was refused leaves nothing behind."""
        if self._file >= 0 and os.fstat(self._file).st_size <= len(f"{self._header}\n".encode()):
            self.path.unlink(missing_ok=True)
        self.close()

    def end(self, runs: Sequence[ComparedRun]) -> bool:
        """Remove the journal once its runs are in the table. If it has others, it stays. Returns whether it is gone."""
        self.close()
        if gone := all(run in runs for run in self._found):
            self.path.unlink(missing_ok=True)
        return gone


def rows_of(runs: Sequence[ComparedRun], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """A flat row for each run: its facts, those that all runs have in common, and each metric in a column."""
    rows = []
    for run in runs:
        row = run.to_json()
        metrics, remarks = row.pop("metrics"), row.pop("remarks")
        rows.append({**row, **facts, **metrics, "remarks": "; ".join(remarks)})
    return rows


def write_table(path: Path, rows: Sequence[dict[str, Any]], *, replace: bool = False) -> None:
    """Write rows as CSV or Parquet, whole or not at all."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".parquet":
        import pandas as pd

        content: str | bytes = pd.DataFrame(list(rows), columns=names).to_parquet(index=False)
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue()
    writing.write(path, content, replace=replace)
