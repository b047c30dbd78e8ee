"""`unspoken simulate`: a study with all parties on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.apart import apart
from unspoken.cli.ledger import Dataset, ledger_for
from unspoken.cli.program import (
    Address,
    AsJson,
    Data,
    Engine,
    Parties,
    PartiesBy,
    Split,
    StudyFile,
    explained,
    is_measured,
    leaving,
    load_parties,
    remark,
    stoppable,
    study_for,
)
from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.data.clipped import Holders
    from unspoken.data.records import Records
    from unspoken.methods.planning import Plan
    from unspoken.privacy.ledger import Ledger
    from unspoken.study import Study
    from unspoken.types import Integers

    Found = tuple[Records, Integers, Holders | None]


@explained
@stoppable()
@apart
def simulate(
    path: StudyFile,
    data: Data,
    test: Annotated[Path | None, typer.Option(help="Records to measure the model on.")] = None,
    parties: Parties = None,
    parties_by: PartiesBy = None,
    split: Split = None,
    drop: Annotated[int, typer.Option(help="The number of parties that vanish in mid-protocol.")] = 0,
    seed: Annotated[int, typer.Option(help="Public seed of the split and of who vanishes (never of the noise).")] = 0,
    output: Annotated[Path, typer.Option(help="The folder for the model and the certificate.")] = Path(),
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file to resume an interrupted run from; it holds secrets of the run.")
    ] = None,
    private_analysis: Annotated[
        bool, typer.Option("--private-analysis", help="Show what a vote cost on these records: secret.")
    ] = False,
    processes: Annotated[
        bool, typer.Option("--processes", help="Run each tallier of a vote in a process of its own.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger's file, to be charged; with a limit it may refuse the run.")
    ] = None,
    dataset: Dataset = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run a study with all parties in one place; write the model (or the statistics) and the certificate.

    --data may be a folder with a Parquet file for each party: then records need not fit into memory.
    """
    study = study_for(path, parties)
    _check_simulation(study, test, drop, seed, output)
    if dataset is not None and ledger is None:
        raise UnspokenError(f"--dataset is {dataset!r}, but it names records in a ledger; add --ledger FILE.")
    if ledger is not None and split not in (None, "iid"):
        raise UnspokenError(
            f"--split is {split!r}, but with --ledger it should be iid: where records go to parties by their labels, "
            "one replaced record moves others, and the run costs more than is charged; leave one of them out."
        )
    from unspoken.data.digests import with_digest
    from unspoken.data.files import read_records
    from unspoken.methods.registry import answerable, plan_for
    from unspoken.report import terminal
    from unspoken.report.remarks import on_predictions
    from unspoken.simulation import check_engine, simulate_folder, simulate_records

    check_engine(engine, address)
    planned = plan_for(study)
    read = partial(_found, study, data, parties_by, split, seed)
    found, digest = (read(), None) if ledger is None else with_digest(data, study, read)
    account = None if ledger is None else ledger_for(ledger, dataset, data, digest=digest)
    held_out = None if test is None else read_records(test, study)
    remark(_before(planned, found, drop))
    saved: dict[str, str] = {}
    with leaving(_left(account, checkpoint, saved)):
        with terminal.progress_bar(quiet=as_json) as progress:
            settings: dict[str, Any] = {
                "drop": drop,
                "seed": seed,
                "progress": progress,
                "checkpoint": checkpoint,
                "private_analysis": private_analysis,
                "processes": processes,
                "ledger": account,
                "engine": engine,
                "address": address,
            }
            if found is None:
                train, result = None, simulate_folder(study, data[0], held_out, **settings)
            else:
                train, result = found[0], simulate_records(study, *found[:2], held_out, **settings)
        with answerable(study):
            if held_out is None and train is not None:
                measured = result.outcome.release.metrics(study, train, train)
                result.metrics.update({f"training_{name}": value for name, value in measured.items()})
            files = result.save(output)
            saved.update(files)
            if as_json:
                print_json({**result.to_json(), "files": files})
            else:
                terminal.show_run(result.plan, result.outcome, result.metrics, files)
                if not Path(files["certificate"]).name.startswith(f"{study.name}.certificate"):
                    terminal.show_remarks(["Files of earlier runs are there too, as they were; these have a number."])
        if (scored := train if held_out is None else held_out) is not None:
            remark(on_predictions(study, result.outcome.release, scored))
        if result.private is not None and not as_json:
            terminal.show_private_analysis(result.private)


def _left(account: Ledger | None, checkpoint: Path | None, saved: dict[str, str]) -> Callable[[], str]:
    """What a command that is interrupted has written and charged: results are `saved` when the run is over."""

    def charges() -> int:
        return 0 if account is None else len(account.account().charges)

    before = charges()

    def told() -> str:
        parts = [f"the result was written ({', '.join(saved.values())})" if saved else "no result was written"]
        if account is not None:
            is_charged, despite = charges() > before, "" if saved else " all the same"
            parts.append(f'"{account.dataset}" is charged for it{despite}' if is_charged else "nothing was charged")
        if not saved and checkpoint is not None and checkpoint.exists():
            parts.append(f"the same command goes on from {checkpoint}")
        return "; ".join(parts)

    return told


def _found(study: Study, data: list[Path], parties_by: str | None, split: str | None, seed: int) -> Found | None:
    """The records and the party of each; None: they are in a folder, and stay there."""
    from unspoken.data.splits import split as spread

    if len(data) == 1 and data[0].is_dir():
        for option, value in (("--parties-by", parties_by), ("--split", split)):
            if value is not None:
                raise UnspokenError(
                    f"{option} is {value!r}, but each file of the folder {data[0]} is a party of its own; leave it out."
                )
        return None
    loaded = load_parties(study, data, parties_by, split)
    if loaded.parties is not None:
        return loaded.records, loaded.parties, loaded.holders
    return loaded.records, spread(split or loaded.kind, loaded.records.labels, study.parties.count, seed), None


def _before(plan: Plan, found: Found | None, drop: int) -> list[str]:
    """What is said before the run: on the records, and on a run that cannot release anything."""
    from unspoken.report.remarks import before_a_run, on_drops

    records, holders = (None, None) if found is None else (found[0], found[2])
    return [*before_a_run(plan, records, holders), *on_drops(plan, drop, "--drop")]


def _check_simulation(study: Study, test: Path | None, drop: int, seed: int, output: Path) -> None:
    if not 0 <= drop <= study.parties.count:
        raise UnspokenError(f"--drop is {drop}, but should be from 0 to the number of parties, {study.parties.count}.")
    if seed < 0:
        raise UnspokenError(f"--seed is {seed}, but should be a whole number from 0 up.")
    if test is not None and not is_measured(study):
        raise UnspokenError(f"--test is {test}, but statistics predict nothing that could be measured; leave it out.")
    writing.check_folder(output)
