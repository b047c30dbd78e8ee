"""Runs a command that uses a Ray cluster in a child process.

When its cluster is lost, Ray kills the process that uses it, which then can neither report nor clean up. So such a
command runs in a child. The parent waits for it, says what happened if the child could not, and ends and removes what
is left of the cluster.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from unspoken.cli.program import Parameters, Result, Stopped, has_answered
from unspoken.engines.cluster.cleaner import GOES_ON, LEAVING, children, remove
from unspoken.engines.cluster.signals import FOLDER, heard
from unspoken.errors import UnspokenError

_PARENT_ENDS, _ADOPTS = 1, 36
"""Numbers of the operating system: the signal that comes when the parent ends; whether orphans come to this process"""


class ClusterEnded(UnspokenError):
    """The child was ended by the loss of its cluster."""

    exit_status = 3


def apart(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a command in a child process if it uses a cluster."""

    @wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if kwargs.get("engine") == "ray" and _is_possible():
            _go_apart()
        return command(*args, **kwargs)

    return wrapped


def _go_apart() -> None:
    """Go on in a child. In the parent, this ends as the child does."""
    parent, others = os.getpid(), children()
    folder = Path(tempfile.mkdtemp(prefix="unspoken-"))
    ends, end = os.pipe()
    _tell_system(_ADOPTS)
    sys.stdout.flush()
    sys.stderr.flush()
    forward = _Forward()
    with forward.handling():
        if not (child := os.fork()):
            os.environ[FOLDER] = str(folder)
            _begin(end, parent)
            return
        os.close(end)
        status = forward.status_of(child)
    _clean(folder, others)
    if os.read(ends, 1):
        has_answered(KeyboardInterrupt())  # if there was one: the child has said all there is to say
        raise typer.Exit(status)
    if forward.signals:
        raise Stopped if forward.signals[0] == signal.SIGTERM else KeyboardInterrupt
    raise ClusterEnded(
        "the cluster was lost, and the run with it; check that the machine has free memory, and run the command again: "
        f"{GOES_ON}."
    )


def _is_possible() -> bool:
    """Whether this process is our own program, on Linux, and not embedded in another program."""
    is_alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    return sys.platform == "linux" and is_alone and sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__


class _Forward:
    """Gives the signals that come here to a child, once there is one, and remembers them."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._child = 0

    @contextmanager
    def handling(self) -> Iterator[None]:
        """For as long as this lasts; in the child, which leaves it at once, signals are handled as before."""
        before = {number: signal.signal(number, self._take) for number in heard()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def status_of(self, child: int) -> int:
        """The exit status of a child, which gets all signals until then."""
        self._child = child
        for number in self.signals:
            os.kill(child, number)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _take(self, number: int, _: object) -> None:
        self.signals.append(number)
        if self._child:
            os.kill(self._child, number)


def _begin(end: int, parent: int) -> None:
    """Set up the child: it ends with its parent, tells the parent when it ends by itself, and discards what Ray prints.

    It is a process group of its own, so that every signal reaches it once, through the parent.
    """
    os.setpgid(0, 0)
    _tell_system(_PARENT_ENDS, signal.SIGTERM)
    if os.getppid() != parent:
        raise Stopped  # It has ended before its end could be told.
    atexit.register(os.write, end, b"e")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        buffering = 1 if stream.line_buffering else -1
        kept = open(os.dup(number), "w", buffering, encoding=stream.encoding, errors=stream.errors)  # noqa: SIM115
        os.dup2(nowhere, number)
        setattr(sys, name, kept)
    os.close(nowhere)


def _tell_system(option: int, argument: int = 1) -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _clean(folder: Path, others: set[int]) -> None:
    """End the processes that the child has left, which have come to this one, and remove the cluster's folder.

    Processes that were this one's own before are `others`, as a shell leaves them to the program that replaces it.
    """
    until = time.monotonic() + LEAVING
    # Those that a process has started come here when it is ended.
    while (left := children() - others) and time.monotonic() < until:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
    remove(folder)
