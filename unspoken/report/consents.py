"""The consents: an append-only log of what a site agreed to and refused, before anything was sent.

Every line is one answer, as JSON, with the SHA-256 of the line before. So a line that was changed, removed or inserted
is noticed, unless all following lines were removed too. A line is on disk before the answer takes effect.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unspoken.errors import UnspokenError
from unspoken.writing import sync

_FIRST = "0" * 64
"""Stands for the line before the first one"""


class ConsentError(UnspokenError):
    """The log of consents cannot be written, or was changed."""


def append(file: Path, answer: dict[str, Any]) -> None:
    """Write down an answer. When this returns, it is on disk."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _opened(file) as log:
            text = Path(file).read_bytes()
            ends = b"" if not text or text.endswith(b"\n") else b"\n"  # a crash may have torn the last line
            lines = text.splitlines()
            entry = {"when": datetime.now(UTC).isoformat(timespec="seconds"), **answer, "before": _name(lines)}
            content = ends + json.dumps(entry, ensure_ascii=False).encode() + b"\n"
            while content:
                content = content[os.write(log, content) :]
            os.fsync(log)
        sync(file.parent)
    except OSError as error:
        raise ConsentError(
            f"{file}: cannot be written to ({error.strerror}), so nothing is agreed to; make room there, or set "
            "UNSPOKEN_HOME."
        ) from None


def read(file: Path) -> list[dict[str, Any]]:
    """All answers, oldest first; `ConsentError` names the first line that does not fit the one before it."""
    try:
        lines = file.read_bytes().splitlines() if file.exists() else []
    except OSError as error:
        raise ConsentError(f"{file}: cannot be read ({error.strerror}); look at its mode and its disk.") from None
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            # Torn by a crash, before the answer counted. If it was changed since, the next line does not fit it.
            entries.append({"answer": "torn"})
            continue
        if not isinstance(entry, dict) or entry.get("answer") not in ("agreed", "refused"):
            raise ConsentError(f"{file}, line {number}: is no answer; compare it with a copy.")
        if entry.get("before") != _name(lines[: number - 1]):
            raise ConsentError(
                f"{file}, line {number}: does not follow the line before it: one was changed, taken out or put in; "
                "compare it with a copy."
            )
        entries.append(entry)
    return entries


def _name(lines: list[bytes]) -> str:
    """The SHA-256 of the last line."""
    return hashlib.sha256(lines[-1]).hexdigest() if lines else _FIRST


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    """The log to append to, by one process at a time. It can be read by its owner only."""
    import fcntl

    log = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield log
    finally:
        os.close(log)
