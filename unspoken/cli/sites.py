"""`unspoken keys`, `roster`, `serve`, `join` and `assist`: a study across machines."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.consent import PolicyFile, ask, policy_for
from unspoken.cli.endings import checked_by, finish, kept_evidence, lost, print_refused, proof, spent_so_far
from unspoken.cli.ledger import Dataset, LedgerFile, ledger_for
from unspoken.cli.program import AsJson, StudyFile, explained, leaving, remark
from unspoken.defaults import GRACE_SECONDS, JOIN_SECONDS, PATIENCE, STAGE_SECONDS
from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.report.live import Progress
    from unspoken.sites import CoordinatorAddress, Told, Viewers
    from unspoken.study import Study

_GOES_ON = "the same command goes on where it was"
_GIVES_UP = f"{_GOES_ON}; an attempt under way is given up, and is spent if vectors may have left"
KeyFile = Annotated[Path | None, typer.Option("--keys", help="Your .secret file, if not the one in $UNSPOKEN_HOME.")]
At = Annotated[str, typer.Option("--coordinator", metavar="HOST:PORT", help="Where the coordinator listens.")]


def _patient(seconds: float) -> float:
    if not seconds >= 0.0:
        raise typer.BadParameter(f"{seconds} is no number of seconds, such as 600; inf is for ever.")
    return seconds


Patience = Annotated[
    float, typer.Option(callback=_patient, help="Seconds to go on trying while the coordinator is not reached.")
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Without TLS: where a proxy on the same machine adds it, or for a trial.")
]


@explained
def keys(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that others will see, such as your site's.")],
    folder: Annotated[Path | None, typer.Option(help="The folder for both files, if not $UNSPOKEN_HOME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make an identity: a secret key that stays here, and a card to give to the coordinator."""
    from unspoken.engines.network.cards import home, make_keys
    from unspoken.study import fingerprint

    secret, card = ((folder or home()) / f"{name}.{kind}" for kind in ("secret", "card"))
    made = make_keys(name, secret, card)
    if as_json:
        files = {"secret": str(secret), "card": str(card)}
        print_json({"name": name, **files, "key": made.key, "fingerprint": fingerprint(made.key)})
        return
    print(f"Secret key: {secret}\n  Keep it, and keep it to yourself.")
    print(f"Card:       {card}\n  Send it to whoever makes the roster, and tell them its digits by another way:")
    print(f"  {fingerprint(made.key)}")


@explained
def roster(
    path: StudyFile,
    parties: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CARD…", help="The cards of all parties, in any order. Without any: show the roster."),
    ] = None,
    coordinator: Annotated[Path | None, typer.Option(help="The coordinator's card.")] = None,
    helper: Annotated[
        list[Path] | None, typer.Option(metavar="CARD", help="The card of a compute node or tallier; one each.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy ends TLS, with a certificate that an authority has signed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the cards of all who take part into the study, which then goes to everyone; or show who is in it."""
    from unspoken.engines.network.cards import CardError, read_card, roster_text, with_roster
    from unspoken.study import read_study

    before = read_study(path)
    if not parties and coordinator is None and not helper:
        _show_roster(before, path, as_json)
        return
    if coordinator is None:
        raise CardError("--coordinator is missing: give the coordinator's card, too.")
    cards = [read_card(file) for file in parties or []]
    if len(cards) != before.parties.count:
        given = "1 party's card is" if len(cards) == 1 else f"{len(cards)} parties' cards are"
        raise CardError(f"{path}: [parties] count is {before.parties.count}, but {given} given; make them equal.")
    if before.roster is None:
        _check_helpers(before, path, len(helper or []))
    text = roster_text(
        cards, read_card(coordinator), [read_card(file) for file in helper or []], pinned=not behind_proxy
    )
    try:
        whole = with_roster(path.read_text(encoding="utf-8"), text)
    except CardError as error:
        raise CardError(f"{path}: {error}") from None
    _show_roster(_replaced(path, whole), path, as_json)


def _show_roster(study: Study, path: Path, as_json: bool) -> None:
    """Who is in a study's roster, with the digits by which their cards are compared."""
    from unspoken.study import fingerprint

    if (found := study.roster) is None:
        raise study.error("roster", "is missing; give everyone's cards, and it is made of them")
    roles = {"coordinator": [found.coordinator], "party": found.parties, "helper": found.helpers}
    if as_json:
        people = [
            {"role": role, "name": found.name_of(key), "key": key, "fingerprint": fingerprint(key)}
            for role, keys in roles.items()
            for key in keys
        ]
        counts = {"parties": len(found.parties), "helpers": len(found.helpers)}
        print_json({"study": str(path), "digest": study.digest(), **counts, "roster": people})
        return
    print(f"{path}: the roster has {len(found.parties)} parties, the coordinator and {len(found.helpers)} helpers.")
    for role, keys in roles.items():
        for key in keys:
            print(f"  {fingerprint(key)}  {role:<11}  {found.name_of(key)}")
    print("Compare the digits with those on everyone's own card, by another way than the cards came by.")
    print(f"All need this very file. Its digest is {study.digest()[:16]}; theirs must be the same.")


def _replaced(path: Path, text: str) -> Study:
    """The study file with another text, once that is known to be a study."""
    from unspoken.study import make_study

    try:
        study = make_study(tomllib.loads(text), source=str(path))
    except tomllib.TOMLDecodeError as error:
        raise UnspokenError(f"{path}: a roster cannot be added ({error}); add [roster] by hand.") from None
    writing.write(path, text, replace=True)
    return study


def _check_helpers(study: Study, path: Path, given: int) -> None:
    """Refuse more or fewer helpers' cards than the study's protocol has helpers."""
    from unspoken.methods.registry import plan_for
    from unspoken.sites.states import check_apart

    plan = plan_for(study)
    check_apart(plan)
    if (needed := len(plan.helper_addresses)) == given:
        return
    cards = {0: "no card is", 1: "1 card is"}.get(given, f"{given} cards are")
    remedy = "give one for each" if needed else "leave it out"
    helpers = {0: "no helpers", 1: "1 helper"}.get(needed, f"{needed} helpers")
    raise UnspokenError(
        f'{path}: "{study.summation.protocol}" has {helpers} here, but {cards} given by --helper; {remedy}.'
    )


@explained
def serve(
    path: StudyFile,
    keys: KeyFile = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address and the port to listen on; port 0: any.")
    ] = "0.0.0.0:8765",
    output: Annotated[Path, typer.Option(help="The folder for the model and the certificate.")] = Path(),
    stage_seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers in a stage.")] = (
        STAGE_SECONDS
    ),
    join_seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for everyone to join.")] = (
        JOIN_SECONDS
    ),
    grace_seconds: Annotated[
        float, typer.Option(min=0.0, help="How long a stage waits for someone whose connection is gone.")
    ] = GRACE_SECONDS,
    plain: Plain = False,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="WHO",
            help="Who may look at the live page, /metrics and /healthz on the same port: here (this machine alone; "
            "unless said), anyone, or nobody (with --plain, unless said).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Coordinate a study: wait for everyone, run it, and write the model and the certificate."""
    from unspoken.report import terminal
    from unspoken.sites import Deadlines, Entrance, Events, serve
    from unspoken.study import read_study

    study = read_study(path)
    host, port = _place(listen, "--listen", least=0)
    viewers = _viewers(page)
    writing.check_folder(output)
    with _progress(study, as_json) as shown, leaving(lambda: _GIVES_UP), kept_evidence(study, output):
        served = serve(
            study,
            Entrance(host, port, encrypted=not plain, viewers=viewers),
            key=keys,
            deadlines=Deadlines(stage_seconds, join_seconds, grace_seconds),
            events=Events(shown.say, shown.show, shown.meet, lambda port: shown.say(f"listening on {host}:{port}")),
        )
    # If it was stopped after it had written them, they are there.
    found = served.find(output)
    files = found or served.save(output)
    if served.is_old:
        results = "are there" if found else "were not there, and are again"
        shown.say(f"this study has ended before; its results {results}")
    if blame := served.blame_line():
        files |= served.save_evidence(output)
        shown.say(blame + checked_by(files.get("evidence")))
    if as_json:
        happened = served.certificate["happened"]
        told = {name: happened[name] for name in ("survivors", "epsilon")}
        told |= {"bytes": served.outcome.bytes, "files": files, **proof(served), **vars(served.signers())}
        print_json({"outcome": "released", **told, "certificate": served.certificate})
    else:
        terminal.show_run(served.plan, served.outcome, {}, files)
        print(served.signers().count())


@explained
def join(
    path: StudyFile,
    data: Annotated[Path, typer.Option(help="Your own records: CSV, Parquet or NPZ, as the study says.")],
    coordinator: At,
    keys: KeyFile = None,
    output: Annotated[Path, typer.Option(help="The folder for the model and the certificate.")] = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Take part without being asked; a policy still decides.")] = False,
    policy: PolicyFile = None,
    patience: Patience = PATIENCE,
    plain: Plain = False,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    as_json: AsJson = False,
) -> None:
    """Take part in a study with your own records. They never leave this machine."""
    from unspoken.data.digests import read_with_digest
    from unspoken.engines.network.client import Unreachable
    from unspoken.methods.parameters import Refused
    from unspoken.report.remarks import on_records
    from unspoken.roles.charging import run_name
    from unspoken.sites import prepare
    from unspoken.study import read_study

    study = read_study(path)
    where, rules = _where(study, coordinator, plain), policy_for(policy)
    writing.check_folder(output)
    records, digest = read_with_digest(data, study)
    # All checks come before the question, so that nobody is asked about a study that cannot run.
    ready = prepare(study, records, key=keys)
    remark(on_records(study, records))
    # A new file is named after itself: if that name is taken, it counts as another version of the same data set.
    account = ledger_for(ledger, dataset, [data], otherwise=data.stem, digest=digest)
    try:
        ready = ready.charged_to(account)
        ask(ready.plan, ready.seat, account, rules=rules, yes=yes, as_json=as_json)
        run = run_name(ready.plan, ready.identity)
        with _told(study, as_json) as told, leaving(lambda: f"{_GOES_ON}; {spent_so_far(account, run)}"):
            joined = ready.join(where, told=told, patience=patience)
    except Unreachable as error:
        lost(error, account, run_name(ready.plan, ready.identity), as_json)
    except Refused as error:
        print_refused(str(error), as_json, account)
        raise
    if joined.disagrees:
        reason = f"the certificate is not signed, and nothing is written: {joined.disagrees}"
        print_refused(reason, as_json, account)
        raise Refused(reason)
    finish(joined, joined.save(output) | joined.save_evidence(output), as_json, account)


@explained
def assist(
    path: StudyFile,
    coordinator: At,
    keys: KeyFile = None,
    patience: Patience = PATIENCE,
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Be a compute node or a tallier of a study. It needs no records."""
    from unspoken.sites import assist
    from unspoken.study import read_study

    study = read_study(path)
    where = _where(study, coordinator, plain)
    with _told(study, as_json) as told, leaving(lambda: _GOES_ON):
        joined = assist(study, where, key=keys, told=told, patience=patience)
    finish(joined, {}, as_json)


def _where(study: Study, address: str, plain: bool) -> CoordinatorAddress:
    from unspoken.sites import CoordinatorAddress

    host, port = _place(address, "--coordinator", least=1)
    if study.roster is None:
        raise study.error("roster", "is missing; whoever coordinates makes it of everyone's cards (`unspoken roster`)")
    return CoordinatorAddress(host, port, study.roster.certificate, encrypted=not plain)


def _place(address: str, option: str, least: int) -> tuple[str, int]:
    from unspoken.engines.network.hosts import is_host

    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not port.isascii() or not port.isdigit() or not least <= int(port) < 1 << 16 or not is_host(host):
        raise UnspokenError(
            f"{option} is {address!r}, but should be HOST:PORT, such as hub.example.org:8765, with a port from {least} "
            "to 65535."
        )
    return host, int(port)


def _viewers(page: str | None) -> Viewers | None:
    match page:
        case None | "nobody" | "here" | "anyone":
            return page
    raise UnspokenError(f"--page is {page!r}, but should be here, anyone or nobody.")


@contextmanager
def _progress(study: Study, as_json: bool) -> Iterator[Progress]:
    """How a study is doing, for people; for programs nothing but the result is on standard output."""
    from unspoken.report.live import progress

    with progress(study, sys.stderr if as_json else sys.stdout) as shown:
        yield shown


@contextmanager
def _told(study: Study, as_json: bool) -> Iterator[Told]:
    from unspoken.sites import Told

    with _progress(study, as_json) as shown:
        yield Told(line=shown.say, news=shown.show, planned=shown.meet)
