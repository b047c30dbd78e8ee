"""What the benchmarks share: options, progress on standard error, tables, claims, kept numbers, pages, peak memory."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

DOCS = Path(__file__).resolve().parent.parent / "docs"
Numbers = dict[str, Any]
_PAGES = Path("/proc/self/statm")


def options(documentation: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has; the module's docstring is its help."""
    parser = _parser(documentation)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a much smaller setting, in a minute or less")
    size.add_argument("--full", action="store_true", help="the published setting, as without --quick")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser


def _parser(documentation: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)


def run_options(documentation: str | None, file: Path, runs: tuple[int, int] | None = None) -> argparse.ArgumentParser:
    """The same, for what measures the numbers behind a page; `runs`: how many there are of each, and with --quick."""
    parser = options(documentation)
    if runs is not None:
        usual = f"default {runs[0]}, and {runs[1]} with --quick"
        parser.add_argument("--runs", type=int, help=f"runs for each point ({usual})")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep every single run there, and go on from those that it has"
    )
    parser.add_argument("--only", nargs="+", metavar="PART", default=[], help="measure these parts, keep the others")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help=f"where numbers are kept (default {file.name} beside the program)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="measure N parts at a time (default 1); times get rougher"
    )
    parser.add_argument("--part", nargs=2, metavar=("PART", "FILE"), help=argparse.SUPPRESS)
    parser.set_defaults(file=file, default_runs=runs)
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


def standard_error(values: np.ndarray | Sequence[float]) -> float:
    """That of the mean; 0 if there is only one value."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), standard_error(values)


def with_error(mean: float, error: float) -> str:
    """A mean and its standard error, if that is known."""
    return f"{mean:.1f} ± {error:.1f}" if error else f"{mean:.1f}"


def show_json(result: Numbers) -> None:
    print(json.dumps(result, indent=2, ensure_ascii=False))


def conclude(arguments: argparse.Namespace, result: Numbers, show: Callable[[Numbers], None]) -> None:
    """Print what was found: for programs, or for people with the claims at the end."""
    if arguments.json:
        show_json(result)
        return
    show(result)
    show_claims(result["claims"])


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


class Sampling:
    """Looks at something again and again while a block of code runs, and once more in the end."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def sample(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.sample()
        self.sample()


class PeakMemory(Sampling):
    """Samples the resident memory while a block of code runs; `above` is how far it rose over the start."""

    def __init__(self, interval: float = 0.005) -> None:
        super().__init__(interval)
        self.start = self.peak = resident_bytes()

    @property
    def above(self) -> int:
        return self.peak - self.start

    def sample(self) -> None:
        self.peak = max(self.peak, resident_bytes())


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# --- Numbers and pages -----------------------------------------------------------------------------------------------


def runs_of(arguments: argparse.Namespace) -> int:
    """How many runs there are of each point."""
    full, quick = arguments.default_runs
    return int(arguments.runs or (quick if arguments.quick else full))


def measure_parts(arguments: argparse.Namespace, heading: Numbers, parts: dict[str, Callable[[], Any]]) -> Numbers:
    """Measure all parts, or those of --only, and keep each as soon as it is there (with --quick only if asked to).

    With --only, the parts that are not measured stay as they are in the file. With --jobs, each part is measured by a
    process of its own, which is this program with --part.
    """
    if arguments.part:
        name, into = arguments.part
        Path(into).write_text(json.dumps(parts[name]()), encoding="utf-8")
        raise SystemExit
    if unknown := set(arguments.only) - set(parts):
        raise SystemExit(f"--only names {', '.join(sorted(unknown))}, but the parts are: {', '.join(parts)}.")
    file = arguments.results or (None if arguments.quick else arguments.file)
    result = read_numbers(file) if arguments.only and file is not None and file.exists() else {}
    result |= heading
    names = list(arguments.only or parts)
    found = ((name, parts[name]()) for name in names) if arguments.jobs == 1 else _beside(names, arguments.jobs)
    for name, value in found:
        result[name] = value
        if file is not None:
            file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def _beside(names: Sequence[str], jobs: int) -> Iterator[tuple[str, Any]]:
    """Parts and what was measured, as soon as each is there; so many processes work on them at a time."""
    share = str(max(1, (os.cpu_count() or 1) // jobs))
    threads = {f"{library}_NUM_THREADS": share for library in ("OMP", "OPENBLAS", "MKL")}
    command = [sys.executable, "-m", sys.modules["__main__"].__spec__.name, *sys.argv[1:], "--part"]

    def measured(name: str) -> Any:
        file = Path(folder) / name
        asked = [*command, name, str(file)]
        subprocess.run(asked, env={**os.environ, **threads}, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
        return json.loads(file.read_text(encoding="utf-8"))

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(measured, name): name for name in names}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
                say(f"{waiting[done]}: done")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Kept:
    """Single runs in a file of JSON lines, so that a measurement that was interrupted goes on where it stopped."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._found = file, dict[str, float]()
        if file is not None and file.exists():
            lines = file.read_text(encoding="utf-8").splitlines()
            self._found = dict(map(json.loads, lines))

    def measured(self, key: Sequence[object], work: Callable[[], float]) -> float:
        """What this run gave before, or else gives now."""
        name = "/".join(map(str, key))
        if name not in self._found:
            self._found[name] = work()
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, self._found[name]], ensure_ascii=False) + "\n")
        return self._found[name]


def read_numbers(file: Path) -> Numbers:
    numbers: Numbers = json.loads(file.read_text(encoding="utf-8"))
    return numbers


def make_page(
    documentation: str | None,
    file: Path,
    name: str,
    text: Callable[[Numbers], str],
    draw: Callable[[Numbers, Path], None],
) -> None:
    """Write a page and its pictures from kept numbers."""

    def draw_and_write(numbers: Numbers, images: Path) -> None:
        draw(numbers, images)
        (images.parent / name).write_text(text(numbers), encoding="utf-8")

    make_plots(documentation, file, draw_and_write)


def make_plots(documentation: str | None, file: Path, draw: Callable[[Numbers, Path], None]) -> None:
    """Draw pictures from kept numbers."""
    parser = _parser(documentation)
    parser.add_argument("--results", type=Path, metavar="FILE", default=file, help="the numbers (default: committed)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", default=DOCS, help="where all goes (default docs)")
    arguments = parser.parse_args()
    draw(read_numbers(arguments.results), arguments.output / "images")
    say(f"written to {arguments.output}")


def quick_note(result: Numbers) -> str:
    """What a page must say of numbers from a quick setting before anything else."""
    return "\n\n**A quick setting: sizes in the text are those of the full one.**" if result["quick"] else ""


def joined(sections: Iterable[str]) -> str:
    """The sections as a page, on which every exponent is as people write it: 1e-5, not 1e-05."""
    page = "\n\n".join(section for section in sections if section) + "\n"
    return re.sub(r"(?<=\de-)0(?=\d)", "", page)


def pyplot() -> Any:
    """Matplotlib for files, not for screens; imported only where something is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Write a picture and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot().close(figure)


def legend_below(figure: Any, panels: Sequence[Any], columns: int) -> None:
    """One legend below a figure for what these panels show."""
    found = {label: handle for p in panels for handle, label in zip(*p.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
