"""A holder's records as a study sees them, on the holder's terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from unspoken.data.checking import PRIVATE, Check, ColumnCheck
from unspoken.data.columns import percent
from unspoken.report.terminal import console


def show(found: Check) -> None:
    """Print a table of columns, then what would be refused, then what could be better."""
    out = console()
    out.rule("[bold red]PRIVATE[/] · do not publish what follows", style="red")
    out.print(escape(f"{found.source}: {found.records:,} records, for the study {found.study!r}"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("column", "kind", "bounds"):
        table.add_column(heading)
    for heading in ("missing", "below", "above", "unknown"):
        table.add_column(heading, justify="right")
    for column in found.columns:
        table.add_row(*map(escape, _row(column)))
    if found.columns:
        out.print(table)
    if found.classes is not None:
        counts = ", ".join(f"{name} {count:,}" for name, count in found.classes.items())
        out.print(escape(f"classes: {counts}"))
    if found.longest is not None and found.clipped is not None:
        clipped = f"{percent(found.clipped)} are clipped to norm = {found.norm:.6g}"
        out.print(
            f"records: {clipped}, the longest has {found.longest:.3g}; {percent(found.duplicates)} are duplicates"
        )
    for problem in found.problems:
        out.print(f"[bold red]Refused:[/] {escape(problem)}.")
    for remark in found.remarks:
        out.print(f"[bold]Note:[/] {escape(remark)}.")
    if found.fits and not found.remarks:
        out.print("The records fit the study well.")
    out.print(PRIVATE)
    out.rule(style="red")


def _row(column: ColumnCheck) -> tuple[str, ...]:
    bounds = "" if column.bounds is None else " to ".join(column.bounds)
    shares = (column.missing, column.below, column.above, column.unknown + column.other)
    return (column.name, column.kind, bounds, *(percent(share) if share else "" for share in shares))
