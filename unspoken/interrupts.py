"""Interrupts from the keyboard (and SIGTERM, where it is turned into one) that must not get lost.

Python ignores exceptions in some callbacks (of weak references, in `__del__`), and libraries make other errors of
them: then a run that was to end would go on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

USUAL = "nothing is half written, and what was finished stays"
"""What is left behind by a command that has nothing more to say about that"""
INTERRUPTED = 130
"""The exit status after an interrupt from the keyboard"""

_AGAIN = 0.1
"""The seconds after which an interrupt that was ignored comes once more"""
_ignored: list[BaseException] = []


def hear() -> None:
    """For a program: end with one sentence wherever an interrupt comes, and remember one that Python ignores.

    Other exceptions are handled as before.
    """
    else_except, else_unraisable = sys.excepthook, sys.unraisablehook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            else_except(kind, error, trace)
            return
        print(f"unspoken: interrupted; {USUAL}.", file=sys.stderr)
        sys.exit(INTERRUPTED)

    def remember(found: sys.UnraisableHookArgs) -> None:
        if not issubclass(found.exc_type, KeyboardInterrupt):
            else_unraisable(found)
            return
        _ignored.append(found.exc_value or found.exc_type())
        with suppress(RuntimeError):  # Python exits already
            again = threading.Timer(_AGAIN, _come_again, [getattr(found.exc_type, "number", signal.SIGINT)])
            again.daemon = True
            again.start()

    sys.excepthook, sys.unraisablehook = end, remember


def _come_again(number: int) -> None:
    if _ignored and callable(signal.getsignal(number)):
        os.kill(os.getpid(), number)


def check() -> None:
    """Raise an interrupt that came and was ignored: before anything is charged or written."""
    if _ignored:
        error = _ignored[-1]
        forget()
        raise error.with_traceback(None)


def forget() -> None:
    """Take it that no interrupt was ignored: when a command begins, and once it ends because of one."""
    _ignored.clear()


@contextmanager
def noticed() -> Iterator[None]:
    """Raise what a handler of SIGINT or SIGTERM raises meanwhile, even if another error is made of it, or none."""
    raised: list[BaseException] = []

    def noting(handler: Any) -> Any:
        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                raised.append(error)
                raise

        return handle

    is_main = threading.current_thread() is threading.main_thread()
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    before = {number: handler for number, handler in heard.items() if callable(handler)}
    for number, handler in before.items():
        signal.signal(number, noting(handler))
    try:
        yield
    except Exception:
        if not raised:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if raised:
        raise raised[0].with_traceback(None)


@contextmanager
def unheard() -> Iterator[None]:
    """Ignore interrupts from the keyboard: processes that are started meanwhile do so for as long as they live."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
