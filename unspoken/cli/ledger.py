"""`unspoken ledger`: what a data set has spent, and how much it may."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, Command, Group, explained
from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.privacy.ledger import Ledger

ledger = typer.Typer(
    cls=Group, no_args_is_help=True, help="Show what a data set has spent in all studies, and limit it."
)

LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger's file, if not ledger.sqlite in $UNSPOKEN_HOME.")
]
Dataset = Annotated[
    str | None,
    typer.Option(help="A name for the data set: give it once for each new file, and the same for every version of it."),
]
Data = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="The file of the data set, by which it is recognised; or its files."),
]
Delta = Annotated[float | None, typer.Option(help="The delta to state epsilon at, if not the limit's.")]


@ledger.command(cls=Command)
@explained
def show(
    path: LedgerFile = None, dataset: Dataset = None, data: Data = None, delta: Delta = None, as_json: AsJson = False
) -> None:
    """Show what a data set has spent: each attempt in which its numbers left, and all together."""
    chosen = _existing(path, dataset, data or [])
    if delta is not None and not 0.0 < delta < 1.0:
        raise UnspokenError(f"--delta is {delta}, but should be a number between 0 and 1, such as 1e-6.")
    from unspoken.report import ledger as report

    if as_json:
        print_json(report.facts(chosen, delta))
    else:
        report.show(chosen, delta)


@ledger.command(cls=Command)
@explained
def limit(
    epsilon: Annotated[float | None, typer.Option(help="The most that all studies together may cost.")] = None,
    delta: Annotated[float, typer.Option(help="The delta that epsilon is stated at.")] = 1e-6,
    unit: Annotated[str, typer.Option(help="The protected unit: record, party, or group:5 for any 5 records.")] = (
        "record"
    ),
    remove: Annotated[bool, typer.Option("--remove", help="Have no limit any more.")] = False,
    path: LedgerFile = None,
    dataset: Dataset = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Limit what a data set may spend in all studies: a party refuses what would exceed it."""
    if (epsilon is None) != remove:
        raise UnspokenError("--epsilon says what may be spent, and --remove takes the limit away; give one of them.")
    chosen = ledger_for(path, dataset, data or [])
    chosen.set_limit(epsilon, delta, _unit(unit))
    from unspoken.privacy.ledger import total_of
    from unspoken.report import ledger as report

    if as_json:
        facts = report.facts(chosen)
        print_json({name: facts[name] for name in ("dataset", "limit", "total")})
    else:
        account = chosen.account()
        print(f'"{chosen.dataset}". {report.limit_sentence(account.limit, total_of(account))}')


@ledger.command(cls=Command)
@explained
def export(
    path: LedgerFile = None,
    dataset: Dataset = None,
    data: Data = None,
    output: Annotated[Path | None, typer.Option(help="The file to write, if not standard output.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write all entries of a data set as JSON, with every event, for whoever wants to add them up again."""
    import json

    from unspoken.report import ledger as report

    pages = report.exported(_existing(path, dataset, data or []))
    if output is None:
        print_json(pages)
        return
    writing.write(output, json.dumps(pages, indent=2, ensure_ascii=False) + "\n", replace=force)
    if as_json:
        print_json({"file": str(output), "pages": len(pages["pages"])})
    else:
        print(f"Wrote {output}.")


def ledger_for(
    path: Path | None,
    dataset: str | None,
    data: Sequence[Path],
    otherwise: str | None = None,
    digest: str | None = None,
) -> Ledger:
    """The account of a data set, by its name, by its files, or by both: new files then get the name.

    Without a name, a new file gets that of `otherwise`; without that, it is refused. `digest` is that of the files, if
    they were read already.
    """
    from unspoken.data.digests import digest_of
    from unspoken.privacy.ledger import Ledger, datasets, recognised

    path = path or _default()
    if data:
        return recognised(path, digest or digest_of(data), dataset, ", ".join(map(str, data)), otherwise)
    if dataset is not None:
        return Ledger(path, dataset)
    have = datasets(path) if path.exists() else []
    if len(have) != 1:
        names = ", ".join(f'"{name}"' for name in have) or "none yet"
        raise UnspokenError(f"{path}: say which data set is meant with --dataset or --data (it has: {names}).")
    return Ledger(path, have[0])


def _existing(path: Path | None, dataset: str | None, data: Sequence[Path]) -> Ledger:
    """The account of a data set that the ledger has."""
    from unspoken.privacy.ledger import datasets

    file = path or _default()
    if not file.exists() or (file.is_file() and not file.stat().st_size):  # an empty one is not made into a ledger
        raise UnspokenError(f"{file}: there is no such ledger; `unspoken ledger limit` begins one.")
    have = datasets(file)
    if dataset is not None and dataset not in have:
        names = ", ".join(f'"{name}"' for name in have) or "none yet"
        raise UnspokenError(f'{file}: has no data set "{dataset}" (it has: {names}).')
    return ledger_for(path, dataset, data)


def _default() -> Path:
    """The user's own ledger. There is one for all folders, so that no spend is missed."""
    from unspoken.engines.network.cards import home

    try:
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnspokenError(f"{home()}: cannot be made ({error.strerror}); set UNSPOKEN_HOME.") from None
    return home() / "ledger.sqlite"


def _unit(text: str) -> str | dict[str, int]:
    kind, _, count = text.partition(":")
    if kind == "group" and count.isdecimal() and int(count) >= 1:
        return {"group": int(count)}
    if text not in ("record", "party"):
        raise UnspokenError(f'--unit is "{text}", but should be record, party, or group:5 for any 5 records.')
    return text
