"""Cleans up after a program that was ended while its Ray cluster ran, and says so.

Ray ends the program that uses it, at once and without a word, if the cluster's raylet is lost. So a small process
waits beside the program. If the program ends without having said that it is done, that process prints one sentence,
ends the rest of the cluster and removes its folder. It runs this file alone, and imports nothing of the package.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DONE = b"done"
_LOST = (
    "unspoken: the program was ended while its Ray cluster ran, as Ray does when the cluster is lost; check that the "
    "machine has free memory, and run it again: with a checkpoint it goes on from there."
)
GOES_ON = "with --checkpoint (of compare: --table) it goes on from there"
"""What a command that has lost its cluster says of another try"""
LEAVING = 10.0
"""The seconds within which the last of a cluster's processes ends and lets go of its folder"""


class Cleaner:
    """The process that waits beside this one."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (this file, by this interpreter)
            [sys.executable, "-I", __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._before = children()

    def started(self) -> None:
        """The cluster's processes are there: they are ended as well."""
        self._say(" ".join(map(str, children() - self._before)).encode())

    def done(self) -> None:
        """This process has cleaned up by itself, or is about to."""
        self._say(_DONE)
        with suppress(OSError):
            self._process.communicate()

    def _say(self, line: bytes) -> None:
        # If somebody has ended it, there is nobody to tell.
        with suppress(OSError):
            os.write(self._process.stdin.fileno(), line + b"\n")  # type: ignore[union-attr]


@contextmanager
def cleaned_up(folder: Path) -> Iterator[Cleaner | None]:
    """Have the folder of a cluster removed even if Ray ends this process. (Elsewhere than on Linux, it stays.)"""
    cleaner = Cleaner(folder) if sys.platform == "linux" else None
    try:
        yield cleaner
    finally:
        if cleaner is not None:
            cleaner.done()


def remove(folder: Path) -> None:
    """Remove a cluster's folder, in which processes that are about to end may still write."""
    until = time.monotonic() + LEAVING
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def children() -> set[int]:
    """The processes that this one has started, or that have come to it, and that are not gone; none if the system does
    not tell (only Linux does)."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        # A thread may have ended meanwhile.
        with suppress(OSError):
            found.update(map(int, file.read_text().split()))
    return found


def end_failed(folder: Path) -> None:
    """End what a start that failed has left: this process's children whose command names the cluster's folder.

    The one to which this process may still be connected is spared; it ends with this process.
    """
    for process in children():
        with suppress(OSError):
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            if os.fsencode(folder) in command and b"gcs_server" not in command:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


def _heard(parent: int) -> list[bytes]:
    """What the program has said when it is done or has ended. Its children may keep the pipe open, and live longer."""
    said = [b""]
    while _DONE not in said and os.getppid() == parent:
        if select.select([0], [], [], 1.0)[0]:
            if not (read := os.read(0, 1 << 16)):
                break
            said = (b"\n".join(said) + read).split(b"\n")
    return said


def _end(process: int, folder: str) -> None:
    """End a process of the cluster, if it still is one: its number may be somebody else's by now."""
    with suppress(OSError):
        if folder.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)


def main(folder: str) -> None:
    said = _heard(os.getppid())
    if _DONE in said:
        return
    print(_LOST, file=sys.stderr, flush=True)
    for process in (int(word) for line in said for word in line.split()):
        _end(process, folder)
    remove(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
