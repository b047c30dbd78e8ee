"""`unspoken compare`: methods side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.apart import apart
from unspoken.cli.program import (
    Address,
    AsJson,
    Data,
    Engine,
    PartiesBy,
    Split,
    StudyFile,
    explained,
    load_parties,
    remark,
    stoppable,
    study_for,
)
from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.comparison import ComparedRun, Comparison
    from unspoken.comparison.plots import By
    from unspoken.study import Study


@explained
@stoppable()
@apart
def compare(
    path: StudyFile,
    data: Data,
    methods: Annotated[str, typer.Option(help="Names of methods, or of sections compare.NAME, separated by commas.")],
    test: Annotated[
        Path | None, typer.Option(help="Records to measure the models on; statistics are measured on --data.")
    ] = None,
    epsilons: Annotated[str, typer.Option(help="Numbers, separated by commas.")] = "0.5,1,2,4",
    parties: Annotated[
        str | None, typer.Option(help="Numbers of parties, separated by commas, if not the study's.")
    ] = None,
    parties_by: PartiesBy = None,
    split: Split = None,
    hold_out: Annotated[
        float | None,
        typer.Option(help="In place of --test: the share of --data that each repeat holds out, class by class."),
    ] = None,
    resplit: Annotated[
        bool, typer.Option("--resplit", help="Deal records to parties anew for each repeat; --hold-out does, too.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="The number of runs for each point, with fresh noise.")] = 3,
    seed: Annotated[int, typer.Option(help="Public seed of the split.")] = 0,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEYS",
            help="One more method, as 'NAME = { method = \"helmet\", regularization = 1.0 }'; may be repeated.",
        ),
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="A CSV or Parquet file for all runs; an interrupted comparison goes on from it.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A PNG, SVG or PDF file for a plot; needs matplotlib.")] = None,
    by: Annotated[str | None, typer.Option(help="The plot's axis: epsilon, parties or upload.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="The number of processes; by default one for each core, if it pays.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the table and the plot if they exist.")] = False,
    engine: Engine = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run several methods on the same records at the same epsilons, and show them side by side.

    The study's section compare.NAME has the keys of another method, and method if that is not NAME.
    What it leaves open is as in the study, so that like is compared with like.
    A method that cannot use the study's summation uses the default one.
    """
    study = study_for(path, None)
    wanted, counts = _epsilons(epsilons), _counts(parties)
    for option, value, least in (("--repeats", repeats, 1), ("--jobs", jobs, 1), ("--seed", seed, 0)):
        if value is not None and value < least:
            raise UnspokenError(f"{option} is {value}, but should be {least} or more.")
    if jobs is not None and engine != "local":
        raise UnspokenError(f"--jobs is {jobs}, but the engine {engine} has workers of its own; leave it out.")
    axis = _axis(by or ("parties" if len(counts) > 1 and len(wanted) == 1 else "epsilon"))
    if by is not None and plot is None:
        raise UnspokenError(f"--by is {by!r}, but it is the axis of a plot; add --plot FILE, or leave it out.")
    _check_files(plot, table, force)
    from unspoken import comparison
    from unspoken.comparison import plots
    from unspoken.data.files import read_records
    from unspoken.methods.registry import METHODS
    from unspoken.report import terminal
    from unspoken.report.remarks import on_records
    from unspoken.simulation import check_engine

    check_engine(engine, address)
    before, study = study, comparison.with_variants(study, variant or [])
    named = [name.strip() for name in methods.split(",") if name.strip()]
    added = [name for name, keys in study.compare.items() if before.compare.get(name) is not keys]
    names = tuple(dict.fromkeys([*named, *added]))
    if not named:
        known = ",".join((*study.compare, *METHODS))
        raise UnspokenError(f"--methods is {methods!r}, but should name methods, some of: {known}.")
    _check_tests(study, test, hold_out)
    loaded = load_parties(study, data, parties_by, split)
    if loaded.parties is not None and counts:
        raise UnspokenError(f"--parties is {parties!r}, but the files say whose records are whose; leave it out.")
    held_out = None if test is None else read_records(test, study)
    compared = comparison.Comparison(
        study,
        loaded.records,
        held_out,
        names,
        tuple(wanted),
        repeats,
        seed,
        kind=split or loaded.kind,
        parties=counts,
        groups=loaded.parties,
        hold_out=hold_out,
        resplit=resplit,
    )
    if resplit and loaded.parties is not None and hold_out is None:
        raise UnspokenError("--resplit deals records anew, but the files say whose records are whose; leave it out.")
    with comparison.naming_variants(study, variant or []):
        doubts = comparison.doubts_of(compared)
    remark([*doubts, *on_records(study, loaded.records, loaded.holders)])
    with terminal.progress_bar(quiet=as_json, counted="runs") as progress:
        runs = _runs(compared, table, progress, force, {"jobs": jobs, "engine": engine, "address": address})
    points = comparison.points_of(runs)
    metric = comparison.metric_of(points)
    if plot is not None:
        plots.plot(points, metric, plot, axis, replace=force)
    _show(compared, runs, metric, {"table": table, "plot": plot}, doubts, as_json)


def _check_tests(study: Study, test: Path | None, hold_out: float | None) -> None:
    """Refuse a comparison without records to measure on, or with both kinds of them."""
    if hold_out is not None and not 0.0 < hold_out < 1.0:
        raise UnspokenError(f"--hold-out is {hold_out:g}, but should be a share above 0 and below 1, as 0.2.")
    if test is not None and hold_out is not None:
        raise UnspokenError(f"--test is {test} and --hold-out is {hold_out:g}, but one is enough; leave one out.")
    if test is None and hold_out is None and study.task != "statistics":
        raise UnspokenError(
            "--test is missing: name a file with records to measure the models on, or hold some out by --hold-out 0.2."
        )


def _runs(
    compared: Comparison, table: Path | None, progress: Any, force: bool, how: dict[str, Any]
) -> list[ComparedRun]:
    """All runs; with a table, those that a journal has are not done again."""
    from unspoken.comparison import run_comparison
    from unspoken.comparison.journal import ComparisonJournal, rows_of, write_table

    if table is None:
        return run_comparison(compared, progress=progress, **how)
    journal = ComparisonJournal(table, compared)
    try:
        runs = run_comparison(compared, **how, done=journal.runs, keep=journal.keep, progress=progress)
        write_table(table, rows_of(runs, _facts(compared)), replace=force)
        journal.end(runs)
    except KeyboardInterrupt as stopped:
        raise type(stopped)(f"the same command goes on from {journal.path}") from None
    except UnspokenError:
        journal.give_up()
        raise
    finally:
        journal.close()
    return runs


def _facts(compared: Comparison) -> dict[str, str]:
    """The facts that all runs have in common: digests of records, and versions."""
    from unspoken.report.certificate import versions

    return compared.digests() | {f"version_{name}": number for name, number in versions().items()}


def _show(
    compared: Comparison,
    runs: list[ComparedRun],
    metric: str,
    files: dict[str, Path | None],
    doubts: list[str],
    as_json: bool,
) -> None:
    """Print the results, and remarks on them; `doubts` were told before the runs."""
    from unspoken import comparison
    from unspoken.comparison.points import remarks
    from unspoken.report import terminal
    from unspoken.report.certificate import versions

    points = comparison.points_of(runs)
    shown = [point.to_json() for point in points]
    if as_json:
        print_json(
            {
                "simulation": True,
                "points": shown,
                "runs": [run.to_json() for run in runs],
                "remarks": remarks(points),
                **compared.digests(),
                "versions": versions(),
                **{name: None if path is None else str(path) for name, path in files.items()},
            }
        )
        return
    terminal.show_comparison(shown, metric)
    terminal.show_remarks([*remarks(points, doubts), "All runs are simulations: all parties were in one place."])
    terminal.show_files({name: str(path) for name, path in files.items() if path is not None})


def _axis(text: str) -> By:
    """The axis of a plot."""
    from unspoken.comparison.plots import AXES

    for axis in AXES:
        if text == axis:
            return axis
    raise UnspokenError(f"--by is {text!r}, but should be one of: {', '.join(AXES)}.")


def _check_files(plot: Path | None, table: Path | None, force: bool) -> None:
    """Refuse files that cannot be written: before the runs."""
    from unspoken.comparison import journal, plots

    for place, formats, what in ((plot, plots.FORMATS, "a plot"), (table, journal.FORMATS, "a table")):
        if place is None:
            continue
        if place.suffix not in formats or not place.parent.is_dir():
            listed = " or ".join((", ".join(formats[:-1]), formats[-1]))
            raise UnspokenError(f"{place}: cannot hold {what}; name a {listed} file in a folder that exists.")
        (writing.check_file if force else writing.check_free)(place)
    if plot is not None:
        plots.check_plots()


def _counts(text: str | None) -> tuple[int, ...]:
    """Numbers of parties in a text, separated by commas."""
    from unspoken.study import LARGEST_COUNT

    if text is None:
        return ()
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= number <= LARGEST_COUNT for number in numbers):
        raise UnspokenError(f"--parties is {text!r}, but should be whole numbers from 1 to {LARGEST_COUNT}, as 10,100.")
    return tuple(dict.fromkeys(numbers))


def _epsilons(text: str) -> list[float]:
    """The epsilons in a text, separated by commas."""
    from unspoken.study import LARGEST_EPSILON, LEAST_EPSILON

    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(LEAST_EPSILON <= number <= LARGEST_EPSILON for number in numbers):
        raise UnspokenError(f"--epsilons is {text!r}, but should be numbers from 1e-4 to 1000, such as 0.5,1,2.")
    return list(dict.fromkeys(numbers))
