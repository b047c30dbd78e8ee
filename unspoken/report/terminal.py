"""Summaries for people, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from unspoken.engines.conditions import Progress as ProgressCall
from unspoken.engines.outcome import Outcome
from unspoken.methods.planning import Plan
from unspoken.report.certificate import simulation
from unspoken.report.plan_text import plan_rows, size, tried, way
from unspoken.report.verification import Verified


def console() -> Console:
    return Console(highlight=False)


@contextmanager
def progress_bar(quiet: bool, counted: str = "parties") -> Iterator[ProgressCall | None]:
    """A progress bar on standard error, for people only. `counted` is the word for what it counts."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(counted),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def call(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield call


def show_plan(plan: Plan) -> None:
    out = console()
    table = facts_table()
    for name, text in plan_rows(plan):
        table.add_row(name, escape(text))
    out.print(table)
    _guarantee(out, plan)


def show_weakening(table: list[dict[str, float]]) -> None:
    """Show ε for more colluding parties than planned."""
    out = console()
    if not table:
        out.print("\nFor this method the number of colluding parties does not matter.")
        return
    shown = Table(box=None, padding=(0, 2, 0, 0))
    shown.add_column("colluding parties", justify="right")
    shown.add_column("epsilon", justify="right")
    for row in table:
        shown.add_row(f"{row['colluding']:,}", f"{row['epsilon']:.4g}" + (" *" if row["alone"] else ""))
    out.print()
    out.print(shown)
    if any(row["alone"] for row in table):
        out.print("* So many break the summation with a probability above delta: then a party has its own noise alone.")


def show_comparison(points: list[dict[str, Any]], metric: str) -> None:
    """Show a line for each method and ε: the mean and, of several runs, their range; of three or more an interval."""
    found = [point["metrics"][metric] for point in points]
    columns: dict[str, list[str]] = {
        "method": [escape(point["variant"]) for point in points],
        "computes": [escape(point["computes"]) for point in points],
        "epsilon": ["none" if point["epsilon"] is None else f"{point['epsilon']:.4g}" for point in points],
        "parties": [f"{point['parties']:,}" for point in points],
        metric.replace("_", " "): [_measured(each["mean"], metric) for each in found],
        "±": [_half(each["interval"], metric) for each in found],
        "lowest to highest": [_range(each, metric) for each in found],
        "upload": [size(point["upload_bytes"]) for point in points],
    }
    if len({point["parties"] for point in points}) == 1:
        del columns["parties"]
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for number, (heading, cells) in enumerate(columns.items()):
        if any(cells):
            shown.add_column(heading, justify="left" if number < 2 else "right")
    for row in zip(*filter(any, columns.values()), strict=True):
        shown.add_row(*row)
    console().print(shown)


def _half(interval: list[float] | None, metric: str) -> str:
    return "" if interval is None else _measured((interval[1] - interval[0]) / 2.0, metric)


def _range(found: dict[str, Any], metric: str) -> str:
    """The range of several runs; of one there is none."""
    if len(found["runs"]) == 1:
        return ""
    return f"{_measured(found['min'], metric).removesuffix(' %')} to {_measured(found['max'], metric)}"


def _measured(value: float, metric: str) -> str:
    """A metric's value as people read it.

    >>> _measured(0.877, "accuracy"), _measured(12.3456789, "mse")
    ('87.7 %', '12.346')
    """
    return f"{100 * value:.1f} %" if "accuracy" in metric or metric == "relative_error" else f"{value:.5g}"


def show_remarks(remarks: list[str]) -> None:
    out = console()
    out.print()
    for remark in remarks:
        out.print(escape(remark))


def show_run(plan: Plan, outcome: Outcome, metrics: dict[str, float], files: dict[str, str]) -> None:
    out = console()
    table = facts_table()
    table.add_row("study", plan.study.name)
    summed = way(plan)
    over = " over " if summed == plan.study.summation.protocol else ": "
    table.add_row("method", f"{plan.method}{over}{summed}")
    table.add_row("parties", f"{outcome.survivors:,} of {plan.parties_asked:,} took part to the end")
    if plan.attempts > 1 and not plan.is_pooled:
        table.add_row("attempts", tried(outcome.attempts, plan))
    for name, value in metrics.items():
        table.add_row(name.replace("_", " "), _measured(value, name))
    if plan.guarantee.is_promise:
        spent = plan.guarantee_after(outcome.participation, outcome.failed).epsilon
        table.add_row("epsilon", f"{spent:.4g} for what was released ({plan.guarantee.epsilon:.4g} planned)")
    if outcome.seconds > 0.0:  # Of a study that had ended before, nobody has kept it.
        table.add_row("time", f"{outcome.seconds:.2f} s")
    table.add_row("moved", f"{size(outcome.bytes)} in all, at most {size(outcome.party_bytes)} from a party")
    names = [str(cell) for cell in table.columns[0].cells]
    table.columns[0].min_width = width = max(map(len, [*names, *files]))
    out.print(table)
    show_files(files, width)
    if rows := outcome.release.rows():
        _statistics(out, rows)
    for told in simulation(plan, outcome.simulated, outcome.engine):
        out.print(f"\n[bold]{told.partition(':')[0]}[/bold]:{escape(told.partition(':')[2])}")
    _guarantee(out, plan)


def show_files(files: dict[str, str], width: int = 0) -> None:
    """Show the names of files. They are never broken, so that they can be copied: a terminal wraps by itself."""
    out, width = console(), max([width, *map(len, files)])
    for name, path in files.items():
        out.print(f"[bold]{escape(name):{width}}[/bold]  {escape(path)}", soft_wrap=True)


def show_verified(found: Verified) -> None:
    """Show what was checked of a certificate, who signed it, and what could not be checked."""
    out = console()
    out.print(f"[bold]{escape(found.source)}[/bold]: nothing is wrong with it.", soft_wrap=True)
    for heading, lines in (("Checked", found.checked), ("Not checked", found.unchecked)):
        if lines:
            out.print(f"\n[bold]{heading}[/bold]")
            for line in lines:
                out.print(f"  {escape(line)}", soft_wrap=True)
    if found.signed:
        others = f". Not by: {', '.join(found.unsigned)}" if found.unsigned else ", who are all"
        out.print(f"\n[bold]Signed by[/bold] {escape(', '.join(found.signed) + others)}.")
    out.print(f"\n[bold]It says:[/bold] {escape(found.statement)}")


def show_private_analysis(found: dict[str, float | str]) -> None:
    """Show what a vote cost on these records, clearly marked as private."""
    out = console()
    out.rule("[bold red]PRIVATE[/] · do not publish what follows", style="red")
    out.print(
        f"On these records the winners cost epsilon = {found['epsilon']:.4g}, against someone who is no party and "
        f"knows nobody's noise, and epsilon = {found['epsilon_colluding']:.4g} against the colluders that the study "
        f"allows, or one curious party; half of the queries were won by {found['median_lead']:.3g} votes or more. "
        "All of these depend on the records and no noise protects them. No certificate contains them."
    )
    out.rule(style="red")


def _statistics(out: Console, rows: list[tuple[str, str, str, str]]) -> None:
    """Print a line for each column or bin: name, statistic, released value, standard deviation of its noise."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("column", "statistic"):
        table.add_column(heading)
    for heading in ("value", "noise (deviation)"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    out.print()
    out.print(table)


def facts_table() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _guarantee(out: Console, plan: Plan) -> None:
    out.print(f"\n[bold]Guarantee.[/bold] {escape(plan.guarantee.sentence())}")
    for note in plan.notes:
        out.print(f"[bold]Note:[/bold] {escape(note)}.")
