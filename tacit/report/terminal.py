"""Summaries for people, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tacit.engines.local import Outcome
from tacit.engines.local import Progress as ProgressCall
from tacit.methods.plan import Plan


def console() -> Console:
    return Console(highlight=False)


@contextmanager
def progress_bar(quiet: bool) -> Iterator[ProgressCall | None]:
    """A progress bar on standard error, for people only."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("parties"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def call(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield call


def show_plan(plan: Plan) -> None:
    out = console()
    table = _facts()
    table.add_row("study", f"{plan.study.study.name} (sha256 {plan.study.digest()[:16]}…)")
    table.add_row("method", plan.method)
    table.add_row("parties", _parties(plan))
    for planned in plan.sums:
        table.add_row(
            f"release “{planned.name}”",
            f"{planned.dimension:,} numbers; sensitivity {planned.sensitivity:.4g}, noise {planned.noise_std:.4g} "
            f"against the adversary ({planned.total_std(plan.trust.parties):.4g} if nobody drops out)",
        )
    chosen = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in plan.summation_parameters.items())
    table.add_row("summation", f"{plan.study.summation.protocol} ({chosen})")
    table.add_row(
        "upload", f"{size(plan.upload_bytes)} per party, in {plan.rounds} round{'s' if plan.rounds != 1 else ''}"
    )
    out.print(table)
    _guarantee(out, plan)


def show_run(plan: Plan, outcome: Outcome, accuracies: dict[str, float], files: dict[str, str]) -> None:
    out = console()
    table = _facts()
    table.add_row("study", plan.study.study.name)
    table.add_row("method", f"{plan.method} over {plan.study.summation.protocol}")
    table.add_row("parties", f"{outcome.survivors:,} of {plan.trust.parties:,} took part to the end")
    for name, value in accuracies.items():
        table.add_row(name.replace("_", " "), f"{100 * value:.1f} %")
    spent = plan.released(outcome.sums).epsilon
    table.add_row("epsilon", f"{spent:.4g} for what was released ({plan.guarantee.epsilon:.4g} planned)")
    table.add_row("time", f"{outcome.seconds:.2f} s")
    table.add_row("moved", f"{size(outcome.bytes)} in all, at most {size(outcome.party_bytes)} from a party")
    for name, path in files.items():
        table.add_row(name, escape(path))
    out.print(table)
    _guarantee(out, plan)


def size(count: int) -> str:
    """A number of bytes for people.

    >>> size(512), size(5_775), size(3_000_000)
    ('512 bytes', '5.8 kB', '3.0 MB')
    """
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def _facts() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _parties(plan: Plan) -> str:
    trust = plan.trust
    return (
        f"{trust.parties:,}; {trust.colluding:,} may collude and {trust.dropouts:,} may drop out; the noise is sized "
        f"for the {trust.honest_survivors:,} that then remain"
    )


def _guarantee(out: Console, plan: Plan) -> None:
    out.print(f"\n[bold]Guarantee.[/bold] {plan.guarantee.sentence()}")
    for note in plan.notes:
        out.print(f"[bold]Note:[/bold] {note}.")
