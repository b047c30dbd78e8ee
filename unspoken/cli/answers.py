"""The answer to a program: one JSON object, and nothing else, on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import Any, TextIO

from unspoken.writing import finite

_standard_output: list[TextIO] = []
"""Where answers go while everything else that is printed goes to standard error"""


@contextmanager
def answering_alone() -> Iterator[None]:
    """Send to standard error what others print meanwhile: models, voters and functions of the user's own.

    Their processes, and libraries not written in Python, print to the file behind standard output, so that it leads to
    standard error, too.
    """
    out = sys.stdout
    with ExitStack() as at_the_end:
        if out is sys.__stdout__ and out is not None and sys.stderr is not None:
            out.flush()
            number, kept = out.fileno(), os.dup(out.fileno())
            at_the_end.callback(os.close, kept)
            os.dup2(sys.stderr.fileno(), number)
            at_the_end.callback(os.dup2, kept, number)
            at_the_end.callback(out.flush)
            out = at_the_end.enter_context(open(kept, "w", encoding=out.encoding, closefd=False))
        _standard_output.append(out)
        at_the_end.callback(_standard_output.pop)
        with redirect_stdout(sys.stderr):
            yield


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on standard output, with null for NaN and infinity."""
    out = _standard_output[-1] if _standard_output else sys.stdout
    unicode = (out.encoding or "utf-8").lower().startswith("utf")
    print(json.dumps(finite(content), indent=2, ensure_ascii=not unicode, allow_nan=False), file=out, flush=True)
