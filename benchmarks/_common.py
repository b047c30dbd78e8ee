"""What the benchmarks share: their options, progress on standard error, tables, peak memory, and claims."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_PAGES = Path("/proc/self/statm")


def options(documentation: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has; the module's docstring is its help."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a much smaller setting, in a few seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser


def say(message: str) -> None:
    """Progress, for people."""
    print(message, file=sys.stderr, flush=True)


def claim(
    name: str, text: str, measured: float, *, at_least: float | None = None, at_most: float | None = None
) -> dict[str, Any]:
    """A claim, what was measured, and whether it holds."""
    above = at_least is None or measured >= at_least
    below = at_most is None or measured <= at_most
    return {
        "name": name,
        "claim": text,
        "measured": measured,
        "at_least": at_least,
        "at_most": at_most,
        "holds": bool(above and below),
    }


def show_claims(claims: Sequence[dict[str, Any]]) -> None:
    print()
    for entry in claims:
        bounds = [
            f"{words} {entry[key]:g}"
            for key, words in (("at_least", "at least"), ("at_most", "at most"))
            if entry[key] is not None
        ]
        verdict = "holds" if entry["holds"] else "FAILS"
        print(f"[{verdict}] {entry['claim']}: {entry['measured']:.3g} ({', '.join(bounds)})")


def show_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table with its first column to the left and the others to the right."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for number, row in enumerate(cells):
        print("  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def show_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2, ensure_ascii=False))


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, float]:
    """The shortest of some runs, in seconds by the clock and of all cores' work: other programs only ever add."""
    seconds, processor = [], []
    for _ in range(repeats):
        started, worked = time.perf_counter(), time.process_time()
        work()
        seconds.append(time.perf_counter() - started)
        processor.append(time.process_time() - worked)
    return min(seconds), min(processor)


def resident_bytes() -> int:
    """The memory that this process occupies now (where the system does not tell: the most it ever did)."""
    if _PAGES.exists():
        return int(_PAGES.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class PeakMemory:
    """Samples the resident memory while a block of code runs; `above` is how far it rose over the start."""

    def __init__(self, interval: float = 0.005) -> None:
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.start = self.peak = resident_bytes()

    @property
    def above(self) -> int:
        return self.peak - self.start

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.peak = max(self.peak, resident_bytes())


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def kept(path: Path | None, measure: Callable[[], dict[str, Any]], again: bool = False) -> dict[str, Any]:
    """The numbers in this file, or what is measured now and kept there; `again`: what is measured comes on top."""
    known: dict[str, Any] = {}
    if path is not None and path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if not again:
            return known
    result = known | measure()
    if path is not None:
        path.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result
