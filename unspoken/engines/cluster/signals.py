"""While there is a cluster: whatever ends the program, what was started is stopped, and Ray prints nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FOLDER = "UNSPOKEN_CLUSTER_FOLDER"
"""The environment variable with the folder for a new cluster, for whoever removes it even if its driver is ended"""


def heard() -> list[int]:
    """Those of an interrupt and a signal to end that this program does not ignore."""
    return [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def ends_cleanly(package: Any) -> Iterator[None]:
    """Let a signal to end (SIGTERM) leave by the way of every error, and nothing be printed. `package` is Ray.

    Whoever handles that signal already goes on to do so; Ray would handle it for them, from its start on. It would also
    print on standard output, where results are, that a worker or a machine was lost.
    """
    private = package._private
    with _without(private.worker, "print_to_stdstream"), _without(private.utils, "set_sigterm_handler"):
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, _leave if before == signal.SIG_DFL else before)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _without(module: Any, name: str) -> Iterator[None]:
    """Have a module's function do nothing, if there is such a function."""
    before = getattr(module, name, None)
    if before is None:
        yield
        return
    setattr(module, name, lambda *given, **named: None)
    try:
        yield
    finally:
        setattr(module, name, before)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def signals_later() -> Iterator[None]:
    """Keep a first interrupt or signal to end until this is done.

    Ray knows its processes, to stop them, only once all of them run; and what is being stopped should not be left
    half-way. A second signal is not kept. What a program ignores, as interrupts in the background of a script, stays
    ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def keep(number: int, _: object) -> None:
        kept.append(number)
        restore()

    before = {number: signal.signal(number, keep) for number in heard()}
    try:
        yield
    finally:
        restore()
        # Also where what was done has failed: nobody asks for it any more.
        for number in kept:
            signal.raise_signal(number)
