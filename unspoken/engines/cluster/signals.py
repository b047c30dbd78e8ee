"""Signals and output while a Ray cluster of our own runs: it is stopped however the program ends, and Ray prints
nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FOLDER = "UNSPOKEN_CLUSTER_FOLDER"
"""The environment variable with the folder for a new cluster, for whoever removes it even if its driver is ended"""


def heard() -> list[int]:
    """Of SIGINT and SIGTERM, those that this program does not ignore."""
    return [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def ends_cleanly(package: Any) -> Iterator[None]:
    """Turn SIGTERM into an exception, so that the program cleans up as after any error, and keep Ray from printing.
    `package` is Ray.

    A handler of that signal that the program had before stays in place; Ray would replace it. Ray would also print to
    standard output, where the results go, when a worker or a machine is lost.
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
