"""Writes what `benchmarks.scale.engines` has measured into docs/engines.md, between two marks."""

from __future__ import annotations

from benchmarks.common import DOCS, Numbers, markdown, read_numbers, say
from benchmarks.scale.engines import CORES, FILE, WHOLE

PAGE = DOCS / "engines.md"
BEGIN, END = "<!-- measured: python -m benchmarks.scale.table -->", "<!-- end of what was measured -->"
SETTINGS = {
    "ideal": "1,000,000 × 20 records × 64 features, `ideal`",
    "nodes": "100,000 of these, compute nodes",
    "secagg": "10,000 of these, SecAgg+",
    "long": "100,000 × 100,000 numbers, compute nodes",
}
ENGINES = {"local": "local", "ray1": "Ray, 1 worker", "ray2": "Ray, 2 workers"}


def main() -> None:
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), read_numbers(FILE)), encoding="utf-8")
    say(f"written to {PAGE}")


def written(page: str, numbers: Numbers) -> str:
    """The page with these numbers."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{measured(numbers)}\n{END}{rest.partition(END)[2]}"


def measured(numbers: Numbers) -> str:
    head = ("parties", "engine", "of these, run", "a party", "memory, all processes", "all of them")
    rows = [row for name in WHOLE for row in _rows(name, numbers[name])]
    return "\n\n".join([markdown(head, rows), "\n".join(f"- {line}" for line in _sentences(numbers))])


def _rows(name: str, part: Numbers) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for how, run in part["engines"].items():
        used, parties, whole = sum(run["processor_seconds"].values()), run["parties"], part["whole"]
        if how == "local":
            verb = "took" if parties == whole else "would take"
            all_of_them = f"{verb} {_short(used * whole / parties)} s of one core"
        else:
            all_of_them = f"would take {_short(whole / run['projected_parties_a_second'])} s on {CORES} cores"
        many = "all" if parties == whole else f"{parties:,}"
        each, memory = f"{_short(1e3 * used / parties)} ms", f"{run['peak_mb'] / 1e3:.1f} GB"
        rows.append((SETTINGS[name] if not rows else "", ENGINES[how], many, each, memory, all_of_them))
    return rows


def _sentences(numbers: Numbers) -> list[str]:
    """What stands in no table, as far as it was measured."""
    lines = []
    if task := numbers.get("task"):
        lines.append(
            f"Before it does anything, a cluster of two workers takes {task['peak_mb'] / 1e3:.1f} GB and some seconds "
            f"to start ({task['start_seconds']:.0f} s here). An empty task takes {1e3 * task['task_seconds']:.1f} ms."
        )
    if folder := numbers.get("folder"):
        each = 1e3 * sum(folder["processor_seconds"].values()) / folder["parties"]
        lines.append(f"A party of 20 records in a Parquet file of its own takes {each:.0f} ms to read and learn from.")
    if larger := numbers.get("larger"):
        each = sum(larger["processor_seconds"].values()) / larger["parties"]
        lines.append(
            f"{larger['parties']:,} parties in Parquet files, {larger['data_mb']:,.0f} MB of numbers: the process took "
            f"{larger['peak_mb']:,.0f} MB at most (some 200 MB of them for the program itself), and {each:.2f} s a "
            "party. A method that asks several times reads the files as often."
        )
    return lines


def _short(number: float) -> str:
    """Two digits, or all before the point.

    >>> _short(0.2878), _short(1.84), _short(28.4), _short(813.0)
    ('0.29', '1.8', '28', '813')
    """
    return f"{number:,.0f}" if number >= 10.0 else f"{number:.2g}"


if __name__ == "__main__":
    main()
