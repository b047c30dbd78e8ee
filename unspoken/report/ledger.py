"""A ledger, for people and for programs."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from rich.table import Table

from unspoken.methods.planning import Plan
from unspoken.privacy.events import Event
from unspoken.privacy.guarantee import unit_in_words
from unspoken.privacy.ledger import Ledger, Limit, Run, total_of
from unspoken.privacy.ledger_pages import Account, Named
from unspoken.privacy.ledger_totals import LedgerTotal
from unspoken.report.terminal import console


def facts(ledger: Ledger, delta: float | None = None) -> dict[str, Any]:
    """The spending of a data set, each attempt alone and all together: ε at this δ, or the limit's, or the studies'."""
    account = ledger.account()
    total = total_of(account)
    delta = _delta(account, total, delta)
    return {
        "dataset": ledger.dataset,
        "entries": _entries(account, delta),
        "total": {**_epsilon(total.epsilon(delta), delta), "unit": unit_of(total.spend.group)}
        | {"adjacency": total.spend.adjacency, "studies": len(total.runs)},
        "limit": _limit(account.limit, total),
        "rests_on": _trusts(total),
    }


def exported(ledger: Ledger) -> dict[str, Any]:
    """All that is written down about what a data set has spent, in order.

    Digests of its files are left out: whoever knows all records but one could find that one by trying.
    """
    pages = [msgspec.to_builtins(page) for page in ledger.account().pages if not isinstance(page, Named)]
    return {"ledger": "unspoken/1", "dataset": ledger.dataset, "pages": pages}


def show(ledger: Ledger, delta: float | None = None) -> None:
    """Show a line for each run, and the total."""
    account, out = ledger.account(), console()
    total = total_of(account)
    delta = _delta(account, total, delta)
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for heading, side in (("study", "left"), ("method", "left"), ("begun", "left"), ("vectors", "right")):
        shown.add_column(heading, justify="right" if side == "right" else "left")
    shown.add_column("unit")
    shown.add_column("epsilon", justify="right")
    for run in total.runs:
        charges = [charge for charge in account.charges.values() if charge.run == run.identifier]
        alone = total_of(Account(), *((run, charge.events) for charge in charges)).epsilon(delta)
        unit = unit_in_words(run.group)
        shown.add_row(run.study, run.method, charges[0].when, f"{len(charges):,}", unit, f"{alone:.4g}")
    if total.runs:
        out.print(shown)
        out.print(f"\nTogether: {total.guarantee(delta).sentence()}")
    else:
        out.print(f"Nothing was charged to “{ledger.dataset}” yet.")
    out.print(limit_sentence(account.limit, total))


def summary(ledger: Ledger) -> str:
    """The spending of a data set, and what is left, in one line."""
    account = ledger.account()
    total = total_of(account)
    delta = _delta(account, total, None)
    spent = "nothing yet"
    if total.runs:
        studies = f"{len(total.runs):,} {'study' if len(total.runs) == 1 else 'studies'}"
        spent = f"epsilon = {total.epsilon(delta):.4g} at delta = {delta:g}, in {studies}"
    return f"“{ledger.dataset}” has spent {spent}. {limit_sentence(account.limit, total)}"


def after(ledger: Ledger, plan: Plan, party: int, run: str = "") -> str:
    """The largest cost of a study to one of its parties, and of all together then, in one line. `run` is the name of
    the party's run in its ledger."""
    account = ledger.account()
    cost = plan.guarantee_for(party)
    if not cost.is_promise:
        return "no limit to what it costs: nothing is promised"
    told = f"at most epsilon = {cost.epsilon:.4g} at delta = {cost.delta:g}, with every attempt that it may make"
    if run in account.runs:
        return f"{told}; it was begun before, and a part of that is spent"
    together = total_of(account, (plan.ledger_run("after"), plan.costs_of(party)))
    delta = _delta(account, together, None)
    return f"{told}; all studies together would then have epsilon = {together.epsilon(delta):.4g} at delta = {delta:g}"


def spent_in(ledger: Ledger, run: str) -> dict[str, Any]:
    """The cost of one run by a data set's ledger, and of all runs together."""
    account = ledger.account()
    total = total_of(account)
    delta = _delta(account, total, None)
    charges = [charge for charge in account.charges.values() if charge.run == run]
    alone = 0.0
    if charges:
        alone = total_of(Account(), *((account.runs[run], charge.events) for charge in charges)).epsilon(delta)
    all_runs = total.epsilon(delta) if total.runs else 0.0
    here = {"dataset": ledger.dataset, "vectors": len(charges), **_epsilon(alone, delta)}
    return here | {"total": _epsilon(all_runs, delta), "limit": _limit(account.limit, total)}


def spent_line(cost: dict[str, Any], plan: Plan, certificate: dict[str, Any] | None) -> str:
    """What a study has cost by the ledger (`spent_in`), in words, and why promise and certificate say something else,
    if they do."""
    epsilon, delta, promise = cost["epsilon"], cost["delta"], plan.guarantee
    told = f"epsilon = {'infinite' if epsilon is None else f'{epsilon:.4g}'} at delta = {delta:g} in this study"
    if cost["vectors"] < plan.attempts_in_all:
        told += f", by {cost['vectors']:,} of the {plan.attempts_in_all:,} vectors that the promise covers"
    if delta != promise.delta:
        return f"{told}; the promise states epsilon at delta = {promise.delta:g}."
    happened = certificate["happened"].get("epsilon") if certificate else None
    if epsilon and happened and f"{happened:.4g}" != f"{epsilon:.4g}":
        why = "of parties that have sent more vectors"
        if happened < epsilon:
            why = "by the noise of all who took part; a ledger counts on no more noise than the promise does"
        told += f"; the certificate says {happened:.4g}, {why}"
    return f"{told}."


def limit_sentence(limit: Limit | None, total: LedgerTotal) -> str:
    """The limit and what is left of it, in words."""
    if limit is None:
        return "There is no limit."
    left = _left(total, limit)
    rest = f"a study of epsilon = {left:.4g} by Gaussian noise still fits" if left else "nothing is left"
    return f"Limit: epsilon = {limit.epsilon:g} at delta = {limit.delta:g} for {unit_in_words(limit.group)}; {rest}."


def unit_of(group: int | None) -> str | dict[str, int]:
    """The unit as a study writes it."""
    return "party" if group is None else "record" if group == 1 else {"group": group}


def _delta(account: Account, total: LedgerTotal, delta: float | None) -> float:
    if delta is not None:
        return delta
    return total.usual_delta if account.limit is None else account.limit.delta


def _epsilon(epsilon: float, delta: float) -> dict[str, float | None]:
    return {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta}


def _entries(account: Account, delta: float) -> list[dict[str, Any]]:
    known: dict[tuple[Run, tuple[Event, ...]], float] = {}
    entries = []
    for charge in account.charges.values():
        run = account.runs[charge.run]
        key = run, charge.events
        if key not in known:
            known[key] = total_of(Account(), key).epsilon(delta)
        names = {"study": run.study, "study_sha256": run.study_sha256, "method": run.method, "run": charge.run}
        cost = {**_epsilon(known[key], delta), "unit": unit_of(run.group), "when": charge.when}
        entries.append({**names, "attempt": charge.attempt, **cost})
    return entries


def _limit(limit: Limit | None, total: LedgerTotal) -> dict[str, Any] | None:
    if limit is None:
        return None
    stated = {"epsilon": limit.epsilon, "delta": limit.delta, "unit": unit_of(limit.group)}
    return {**stated, "left": _left(total, limit)}


def _left(total: LedgerTotal, limit: Limit) -> float:
    """ε of a study that still fits: a little below what is left, since it takes its own part of δ, too."""
    return 0.99 * total.left(limit)


def _trusts(total: LedgerTotal) -> list[dict[str, Any]]:
    """The conditions under which the total holds, all of them: those of each study, equal ones once."""
    found: dict[str, dict[str, Any]] = {}
    for run in total.runs:
        trust = run.trust
        stated = {"study": run.study, "parties": trust.parties, "colluding": trust.colluding}
        stated |= {"dropouts": trust.dropouts, "coordinator": "lying" if trust.lying else "curious"}
        stated |= {"assumptions": list(run.assumptions)}
        found.setdefault(str(stated), stated)
    return list(found.values())
