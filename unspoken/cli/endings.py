"""What `serve`, `join` and `assist` say at the end: the result, the cost, who signed, and who is to blame."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from unspoken import writing
from unspoken.cli.answers import print_json

if TYPE_CHECKING:
    from unspoken.engines.network.client import Unreachable
    from unspoken.privacy.ledger import Ledger
    from unspoken.report.endings import Blaming
    from unspoken.sites import Joined
    from unspoken.study import Study


@contextmanager
def kept_evidence(study: Study, output: Path) -> Iterator[None]:
    """When a run is given up, write what proves whose fault it was, if there is something."""
    from unspoken.report.results import write_evidence
    from unspoken.summation.base import Aborted

    try:
        yield
    except Aborted as ended:
        if ended.evidence:
            # Without room for it, the reason is still told, and --json prints the evidence.
            with suppress(writing.NotWritten):
                ended.files = {"evidence": write_evidence(study, ended.blamed, ended.evidence, output)}
                ended.args = (str(ended).rstrip(".") + checked_by(ended.files["evidence"]) + ".",)
        raise


def checked_by(file: str | None) -> str:
    """How others check who is to blame."""
    return f"; what they signed is in {file}, for others to check (`unspoken verify --evidence`)" if file else ""


def print_refused(reason: str, as_json: bool, account: Ledger) -> None:
    from unspoken.report.ledger import facts

    if as_json:
        spent = {"total": facts(account)["total"], "limit": facts(account)["limit"]}
        print_json({"outcome": "refused", "reason": reason, "survivors": 0, "files": {}, "spent": spent})


def lost(error: Unreachable, account: Ledger, run: str, as_json: bool) -> NoReturn:
    """Say what a study has cost whose coordinator is not reached any more."""
    from unspoken.report.ledger import spent_in

    cost = spent_in(account, run)
    reason = f"{error} Of this study {_gone(cost)}."
    print(f"unspoken: {reason}", file=sys.stderr)
    if as_json:
        print_json({"outcome": "aborted", "reason": reason, "survivors": 0, "files": {}, "spent": cost})
    raise typer.Exit(error.exit_status)


def spent_so_far(account: Ledger, run: str) -> str:
    """What a study has cost whose participant is stopped, in words."""
    from unspoken.report.ledger import spent_in

    return f"of this study {_gone(spent_in(account, run))}"


def _gone(cost: dict[str, Any]) -> str:
    if not cost["vectors"]:
        return "nothing is spent"
    vectors = "1 vector has" if cost["vectors"] == 1 else f"{cost['vectors']} vectors have"
    return f"{vectors} left, at epsilon = {_number(cost['epsilon'])} and delta = {cost['delta']:g}; the ledger has it"


def finish(joined: Joined, files: dict[str, str], as_json: bool, account: Ledger | None = None) -> None:
    """How the study ended, and what it has cost, for people and for programs."""
    from unspoken.report.ledger import spent_in, spent_line, summary

    content = joined.certificate
    spent = {} if account is None else {"spent": spent_in(account, joined.run)}
    signers = joined.signers()
    if content is not None and (warning := signers.warning()):
        print(f"unspoken: warning: {warning}.", file=sys.stderr)
    if as_json:
        survivors = content["happened"]["survivors"] if content else 0
        ended = {"outcome": "released"} if content else {"outcome": "aborted", "reason": joined.reason}
        missing = {"missing": joined.missing} if joined.missing else {}
        told = {"survivors": survivors, "bytes": joined.sent, "files": files, **missing, **spent, **proof(joined)}
        told |= vars(signers) if content else {}
        print_json({**ended, **told, "certificate": content})
    else:
        if content is not None:
            print(f"The study is over. {content['statement']}")
            print(signers.line())
        for kind, file in files.items():
            print(f"{kind.capitalize()}: {file}")
        if joined.missing:
            print(f"Missing: {joined.missing}; ask the coordinator for the certificate that has them.")
        if account is not None:
            print(f"Spent: {spent_line(spent['spent'], joined.plan, content)}")
            print(f"Ledger: {summary(account)}")
    if content is None:
        print(f"unspoken: the study ended without a result: {joined.reason}", file=sys.stderr)
        raise typer.Exit(3)


def proof(ended: Blaming) -> dict[str, Any]:
    """Whom a participant blames, and what they signed, for programs; `unspoken verify --evidence` reads it."""
    from unspoken.summation import evidence

    return {"blamed": list(ended.blamed), "evidence": evidence.to_json(ended.evidence)}


def _number(epsilon: float | None) -> str:
    return "infinite" if epsilon is None else f"{epsilon:.4g}"
