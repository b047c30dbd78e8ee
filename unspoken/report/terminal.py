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

from unspoken.engines.outcome import Outcome
from unspoken.engines.outcome import Progress as ProgressCall
from unspoken.methods.plan import Plan, PlannedSum


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
    table.add_row("study", f"{plan.study.name} (sha256 {plan.study.digest()[:16]}…)")
    table.add_row("method", plan.method)
    table.add_row("parties", _parties(plan))
    for planned in plan.sums:
        _add_sum(table, plan, planned)
    for other in plan.others:
        table.add_row(
            f"release “{other.name}”",
            f"{other.dimension:,} numbers; noise: {other.noise}"
            + (
                f", of deviation {other.noise_std:.4g}, for a sensitivity of {other.sensitivity:.4g}"
                if other.noise_std
                else ""
            ),
        )
    if plan.is_summed:
        chosen = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in plan.summation_parameters.items())
        table.add_row("summation", f"{_way(plan)} ({chosen})")
    rounds = f"in {plan.rounds} round{'s' if plan.rounds != 1 else ''}"
    table.add_row(
        "upload",
        f"at least {size(plan.upload_bytes)} per party: its records"
        if plan.is_pooled
        else f"{size(plan.upload_bytes)} per party, {rounds}",
    )
    out.print(table)
    _guarantee(out, plan)


def _add_sum(table: Table, plan: Plan, planned: PlannedSum) -> None:
    """Add the rows of one planned sum."""
    times = f", {planned.count} times" if planned.count > 1 else ""
    noise = "no noise"
    if planned.noise_std:
        noise = (
            f"{_moves(plan, planned)}, noise {planned.noise_std:.4g} against the adversary "
            f"({_noise_of_the_total(plan, planned)})"
        )
    table.add_row(
        f"{'message' if plan.others else 'release'} “{planned.name}”", f"{planned.dimension:,} numbers{times}; {noise}"
    )
    if planned.sampling is not None:
        kind, who = planned.sampling.kind.replace("-", " "), "party" if plan.study.group is None else "record"
        table.add_row(
            "sampling",
            f"{kind}, each {who} with a chance of {planned.sampling.rate:.4g} in a round; the noise that the "
            f"adversary faces is {1.0 / planned.mu:.4g} times the largest contribution of a {who}",
        )


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
    """Show a line for each method and ε: mean, minimum and maximum of the runs."""
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for heading, side in (
        ("method", "left"),
        ("epsilon", "right"),
        (metric.replace("_", " "), "right"),
        ("runs", "left"),
    ):
        shown.add_column(heading, justify="right" if side == "right" else "left")
    for point in points:
        found = point["metrics"][metric]
        numbers = [
            f"{100 * found[key]:.1f} %" if "accuracy" in metric else f"{found[key]:.5g}"
            for key in ("mean", "min", "max")
        ]
        epsilon = "none" if point["epsilon"] is None else f"{point['epsilon']:.4g}"
        shown.add_row(point["method"], epsilon, numbers[0], f"{numbers[1]} to {numbers[2]}")
    console().print(shown)


def show_run(plan: Plan, outcome: Outcome, metrics: dict[str, float], files: dict[str, str]) -> None:
    out = console()
    table = _facts()
    table.add_row("study", plan.study.name)
    way = _way(plan)
    over = " over " if way == plan.study.summation.protocol else ": "
    table.add_row("method", f"{plan.method}{over}{way}")
    table.add_row("parties", f"{outcome.survivors:,} of {plan.asked:,} took part to the end")
    for name, value in metrics.items():
        table.add_row(name.replace("_", " "), f"{100 * value:.1f} %" if "accuracy" in name else f"{value:.6g}")
    if plan.guarantee.is_promise:
        spent = plan.released(outcome.participation).epsilon
        table.add_row("epsilon", f"{spent:.4g} for what was released ({plan.guarantee.epsilon:.4g} planned)")
    table.add_row("time", f"{outcome.seconds:.2f} s")
    table.add_row("moved", f"{size(outcome.bytes)} in all, at most {size(outcome.party_bytes)} from a party")
    for name, path in files.items():
        table.add_row(name, escape(path))
    out.print(table)
    if rows := outcome.release.rows():
        _statistics(out, rows)
    _guarantee(out, plan)


def show_private_analysis(found: dict[str, float | str]) -> None:
    """Show what a vote cost on these records, clearly marked as private."""
    out = console()
    out.rule("[bold red]PRIVATE[/] · do not publish what follows", style="red")
    out.print(
        f"On these records the winners cost epsilon = {found['epsilon']:.4g}, against someone who is no party and "
        f"knows nobody's noise; half of the queries were won by more than {found['median_lead']:.3g} votes. Both "
        "numbers depend on the records and no noise protects them. No certificate contains them."
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


def size(count: int) -> str:
    """A number of bytes in readable units.

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
    if plan.is_pooled:
        return f"{trust.parties:,}, whose records are all in one place"
    if plan.asked == 1:
        return f"{trust.parties:,}, of which only the first takes part"
    more = f"if {'more' if trust.dropouts else 'any'} do, nothing is released"
    if not plan.is_summed:
        return f"{trust.parties:,}, each for itself; {trust.dropouts:,} may drop out; {more}"
    lost = f"{trust.colluding:,} may collude and {trust.dropouts:,} may drop out"
    if trust.withheld:
        lost += f", and a lying coordinator could leave out {trust.withheld:,} more"
    return (
        f"{trust.parties:,}; {lost}; the noise is sized for the {trust.honest_survivors:,} that then remain; "
        f"{more.replace('do,', 'drop out,')}"
    )


def _way(plan: Plan) -> str:
    """The way in which contributions are combined."""
    if plan.is_pooled:
        return "all records in one place"
    return plan.sums[0].noise.way(plan.study.summation.protocol)


def _moves(plan: Plan, planned: PlannedSum) -> str:
    """The sensitivity of the total to the protected unit; with sampling, the norm of one contribution."""
    if planned.sampling is not None:
        who = "party" if plan.study.group is None else "record"
        return f"a {who} adds at most {planned.sensitivity:.4g} in norm"
    return f"sensitivity {planned.sensitivity:.4g}"


def _noise_of_the_total(plan: Plan, planned: PlannedSum) -> str:
    """The noise in the released total."""
    parties = plan.asked
    dropouts = 0 if plan.is_pooled or parties == 1 else plan.trust.dropouts
    return planned.noise.amount(planned.total_std(parties), planned.total_std(parties - dropouts, parties), dropouts)


def _guarantee(out: Console, plan: Plan) -> None:
    out.print(f"\n[bold]Guarantee.[/bold] {plan.guarantee.sentence()}")
    for note in plan.notes:
        out.print(f"[bold]Note:[/bold] {escape(note)}.")
