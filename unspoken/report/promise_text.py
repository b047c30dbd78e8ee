"""The promise that a party would agree to, in plain words: rows of a name and a text, for the person who is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from unspoken.methods.planning import Plan
from unspoken.privacy.ledger import Ledger
from unspoken.report import ledger as ledgers
from unspoken.report.plan_text import Row, data_used, plan_rows
from unspoken.report.terminal import facts_table

_TAKEN = ("study", "method", "data", "protects", "upload")
"""The rows of a plan that a party is shown; `unspoken plan` has all"""

_MOST_KEYS = 20
"""The most parties that are shown with their keys"""


class Seat(NamedTuple):
    """A party's place in a study."""

    name: str
    party: int
    """Its index among the parties"""
    records: int
    run: str = ""
    """The name of its run of the study in its ledger"""


def promise_rows(plan: Plan, seat: Seat, account: Ledger) -> Iterator[Row]:
    """The people, the columns, the cost, and the assumptions of the promise."""
    shown = dict(plan_rows(plan)) | {"data": data_used(plan.study)}
    for name in _TAKEN:
        if name in shown:
            yield {"method": "learns", "data": "from"}.get(name, name), shown[name]
    promise, own = plan.guarantee, plan.guarantee_for(seat.party)
    yield "promise", f"epsilon = {promise.epsilon:.4g}, delta = {promise.delta:g}"
    if own != promise:
        told = (
            f"epsilon = {own.epsilon:.4g}, delta = {own.delta:g} for your own records, as you add more noise: whoever"
        )
        yield "to you", f"{told} attacks one guesses right at most {own.guesses} times in 100"
    yield from _people(plan)
    yield "you are", f"{seat.name}, with {seat.records:,} records, which stay here"
    yield "your ledger", ledgers.summary(account)
    yield "would cost", ledgers.after(account, plan, seat.party, seat.run)


def _people(plan: Plan) -> Iterator[Row]:
    roster, trust = plan.study.roster, plan.trust
    if roster is None:
        return
    yield "coordinator", roster.shown(roster.coordinator)
    if roster.helpers:
        yield "helpers", ",\n".join(map(roster.shown, roster.helpers))
    yield "parties", ",\n".join(map(roster.shown, roster.parties[:_MOST_KEYS])) + _more(len(roster.parties))
    yield "compare", "the digits with those that each of them reads from its own card, by telephone for example"
    if plan.is_summed and plan.guarantee.is_promise:
        rest = "lies" if trust.lying else "looks at all that it gets, but keeps to the protocol"
        told = f"any {trust.known + 1:,} of the {trust.parties:,} parties"
        told += f"; {trust.known:,} may, even with a coordinator that {rest}" if trust.known else ""
        yield "must not collude", "; ".join([told, *(f"assumed: {said}" for said in plan.guarantee.assumptions)])


def _more(parties: int) -> str:
    return f" and {parties - _MOST_KEYS:,} more (`unspoken roster STUDY` shows all)" if parties > _MOST_KEYS else ""


def show_promise(plan: Plan, seat: Seat, account: Ledger, *, error: bool) -> None:
    """Show the promise, on standard error if standard output is for programs."""
    out = Console(highlight=False, stderr=error)
    table = facts_table()
    for name, text in promise_rows(plan, seat, account):
        table.add_row(name, escape(text))
    out.print(table)
    out.print(f"\n[bold]Guarantee.[/bold] {escape(plan.guarantee.sentence())}")
    for note in plan.notes:
        out.print(f"[bold]Note:[/bold] {escape(note)}.")
    out.print()
