"""Consent: the question to a party before anything is sent, who answers it, and `unspoken consents`, which lists all
answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, explained

if TYPE_CHECKING:
    from unspoken.methods.planning import Plan
    from unspoken.privacy.ledger import Ledger
    from unspoken.report.promise_text import Seat
    from unspoken.study.policy import Policy

PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", help="A policy that answers for you, if not policy.toml in $UNSPOKEN_HOME."),
]

_SHOWN = ("when", "answer", "by", "study", "study_sha256", "party", "dataset")


def policy_for(given: Path | None) -> Policy | None:
    """The policy that answers: the given one, or the one in $UNSPOKEN_HOME if there is one."""
    from unspoken.engines.network.cards import home
    from unspoken.study.policy import read_policy

    usual = home() / "policy.toml"
    if given is None and not usual.exists():
        return None
    return read_policy(given or usual)


def ask(
    plan: Plan,
    seat: Seat,
    account: Ledger,
    *,
    rules: Policy | None,
    yes: bool,
    as_json: bool,
    unasked: str | None = None,
) -> None:
    """Show what would be agreed to, have it answered, and write the answer down; `Refused` if it is no.

    If there is a policy, it answers, even if `yes` is given: `yes` only means that no person is asked. Where none can
    be, `unasked` says what would have to answer.
    """
    from unspoken.methods.parameters import Refused
    from unspoken.report import consents, policy
    from unspoken.report.promise_text import show_promise

    show_promise(plan, seat, account, error=as_json)
    by: dict[str, Any] = {"by": "--yes"}
    problem = None
    if rules is not None:
        by = {"by": "policy", "policy": rules.source, "policy_sha256": rules.sha256}
        problem = policy.refusal(rules, plan, account, seat.party, seat.run)
        if (limit := policy.total_limit(rules)) is not None:
            account.cap(limit)
    elif not yes:
        by, problem = ({"by": "person"}, _asked()) if unasked is None else ({"by": "nobody"}, unasked)
    told = {"answer": "refused" if problem else "agreed", **by, **({"reason": problem} if problem else {})}
    promise = plan.guarantee_for(seat.party).to_json()
    study = {"study": plan.study.name, "study_sha256": plan.study.digest()}
    cost = {name: promise[name] for name in ("epsilon", "delta", "unit")}
    consents.append(log_file(), {**told, **study, **cost, "party": seat.name, "dataset": account.dataset})
    if problem:
        raise Refused(f"{problem.rstrip('.')}; nothing was sent.")


def _asked() -> str | None:
    """Ask the person at the terminal; why not, or None. The question is on standard error."""
    while True:
        print("Take part? [y/N]: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        match answer.strip().lower():
            case "y" | "yes":
                return None
            case "" if not answer:
                return "nobody answered the question; give --yes or --policy where nobody is there"
            case "n" | "no" | "":
                return "the person who was asked said no"


def log_file() -> Path:
    from unspoken.engines.network.cards import home

    return home() / "consent.jsonl"


@explained
def consents(as_json: AsJson = False) -> None:
    """Show what was agreed to and refused on this machine, and check that no answer was changed since."""
    from unspoken.report import consents

    file = log_file()
    entries = consents.read(file)
    if as_json:
        print_json({"file": str(file), "answers": entries})
        return
    if not entries:
        print(f"{file}: nobody was asked yet.")
        return
    for entry in entries:
        if entry["answer"] == "torn":
            print("(a line that a crash has torn: it counts for nothing)")
            continue
        print(_line(entry))
    print("Every answer follows from the one before it: none was changed since.")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "?"


def _line(entry: dict[str, Any]) -> str:
    """An answer, for people."""
    said = {name: "?" if entry.get(name) is None else str(entry[name]) for name in _SHOWN}
    by = "a person" if said["by"] == "person" else entry.get("policy", said["by"])
    cost = f"epsilon = {_number(entry.get('epsilon'))}, delta = {_number(entry.get('delta'))}"
    lines = [
        f"{said['when']}  {said['answer']} by {by}: “{said['study']}” ({said['study_sha256'][:16]}), {cost}",
        f"{said['party']}, data set “{said['dataset']}”",
        *([str(entry["reason"])] if "reason" in entry else []),
    ]
    return "\n    ".join(lines)
