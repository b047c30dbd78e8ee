"""The command line.

Heavy imports happen inside the commands, so that help is quick, and after the study is read, so that its mistakes are
reported at once.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.simulation import Simulation
    from unspoken.study import Study

_UsageError: Any = typer.BadParameter.__bases__[0]
"""Typer's error for a malformed command line; the class has no public name."""


class _OneSentence(TyperGroup):
    """Reports a mistake on the command line like any other: one sentence on standard error, exit status 2."""

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # better a question mark than nothing
        try:
            status = super().main(*args, **{**options, "standalone_mode": False})
            sys.stdout.flush()
        except OSError as error:
            if error.filename is not None:
                raise
            status = _cannot_print(error)
        except _UsageError as error:
            # Without arguments there is no message: the help has been shown.
            if message := " ".join(error.format_message().split()):
                command = error.ctx.command_path if error.ctx else "unspoken"
                print(f"unspoken: {message} (`{command} --help` says more.)", file=sys.stderr)
            status = 2
        sys.exit(status)


def _cannot_print(error: OSError) -> int:
    """Say that standard output takes nothing, and keep Python from trying once more at its end."""
    print(f"unspoken: standard output cannot be written to ({error.strerror}); send it elsewhere.", file=sys.stderr)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2


app = typer.Typer(
    name="unspoken",
    cls=_OneSentence,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Learn one model together without sharing data, under differential privacy that holds against everyone.",
)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study: a TOML file (`unspoken new` writes one).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs, and nothing else.")]

Data = Annotated[Path, typer.Option(help="Records to learn from: CSV, Parquet or NPZ, as the study says.")]
Parties = Annotated[int | None, typer.Option(help="The number of parties, if not the study's.")]
Split = Annotated[str, typer.Option(help="The split of records: iid, by-class, dirichlet:A, or classes:K.")]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _explained(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Report errors in one sentence on standard error.

    The exit status is 2 for a mistake of the caller, 3 for an aborted run that revealed nothing.
    """

    @wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except UnspokenError as error:
            print(f"unspoken: {error}", file=sys.stderr)
            # By name, so that `--help` need not import the class.
            raise typer.Exit(3 if type(error).__name__ == "Aborted" else 2) from None
        except BrokenPipeError:
            raise typer.Exit(1) from None

    return wrapped


@app.command()
@_explained
def demo(
    output: Annotated[Path, typer.Option(help="The folder for the demo's files.")] = Path("unspoken-demo"),
    as_json: AsJson = False,
) -> None:
    """Learn from real data split over 100 parties, and see what privacy costs."""
    from unspoken import demo as digits
    from unspoken.report import terminal

    _make_folder(output)
    try:
        digits.write_files(output)
    except OSError as error:
        raise UnspokenError(f"{output}: cannot be written to ({error.strerror}); choose another --output.") from None
    with terminal.progress_bar(quiet=as_json) as progress:
        result = digits.run(output, progress)
    files = _write_results(result.simulation, output)
    if as_json:
        _print_json({**result.simulation.to_json(), "comparison": result.comparison, "files": files})
        return
    accuracies = {"accuracy, private": result.simulation.metrics["accuracy"], **result.comparison}
    terminal.show_run(result.simulation.plan, result.simulation.outcome, accuracies, files)
    study, train, test = (shlex.quote(str(output / name)) for name in ("study.toml", "train.npz", "test.npz"))
    again = f"unspoken simulate {study} --data {train} --test {test}"
    print(f"\nThe study and the data are in {output}/. Change the study and run it again:\n  {again}")


@app.command()
@_explained
def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("study.toml"),
    name: Annotated[str, typer.Option(help="The study's name.")] = "heart",
    task: Annotated[str, typer.Option(help="classification, regression or statistics.")] = "classification",
    method: Annotated[
        str | None, typer.Option(help="The method's name; by default the usual one for the task.")
    ] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="For a feature matrix (NPZ) instead of a table.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented study file to start from."""
    import tomllib

    from unspoken.study import make_study
    from unspoken.templates import study_text

    if path.exists() and not force:
        raise UnspokenError(f"{path}: exists already; choose another name, or overwrite it with --force.")
    # A string escaped for JSON means the same in TOML.
    text = study_text(json.dumps(str(path))[1:-1], json.dumps(name)[1:-1], matrix=matrix, task=task, method=method)
    make_study(tomllib.loads(text), source="--name")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnspokenError(f"{path}: cannot be written ({error.strerror}); choose another place.") from None
    if as_json:
        _print_json({"study": str(path)})
    else:
        print(f"Wrote {path}. Edit it, then see what it promises and costs:\n  unspoken plan {shlex.quote(str(path))}")


@app.command()
@_explained
def plan(
    path: StudyFile,
    weakening: Annotated[
        bool, typer.Option("--weakening", help="Also show the promise if more parties collude.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a study promises and costs, before any data is read."""
    from unspoken.study import read_study

    study = read_study(path)
    from unspoken.methods.registry import method_for

    planned = method_for(study).plan()
    table = planned.weakening() if weakening and planned.guarantee.is_promise and not planned.is_pooled else []
    if as_json:
        _print_json({**planned.to_json(), **({"weakening": table} if weakening else {})})
    else:
        from unspoken.report import terminal

        terminal.show_plan(planned)
        if weakening:
            terminal.show_weakening(table)


@app.command()
@_explained
def simulate(
    path: StudyFile,
    data: Data,
    test: Annotated[Path | None, typer.Option(help="Records to measure the model on.")] = None,
    parties: Parties = None,
    split: Split = "iid",
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
    as_json: AsJson = False,
) -> None:
    """Run a study with all parties on this machine; write the model (or the statistics) and the certificate."""
    study = _study_for(path, parties)
    _check_simulation(study, test, drop, seed, output)
    from unspoken.data.files import read_records
    from unspoken.data.splits import split as spread
    from unspoken.methods.registry import method_for
    from unspoken.report import terminal
    from unspoken.simulation import simulate_records

    method_for(study).plan()
    train = read_records(data, study)
    held_out = None if test is None else read_records(test, study)
    groups = spread(split, train.labels, study.parties.count, seed)
    with terminal.progress_bar(quiet=as_json) as progress:
        result = simulate_records(
            study,
            train,
            groups,
            held_out,
            drop=drop,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
            private_analysis=private_analysis,
            processes=processes,
        )
    if held_out is None:
        measured = result.outcome.release.metrics(study, train, train)
        result.metrics.update({f"training_{name}": value for name, value in measured.items()})
    _make_folder(output)
    files = _write_results(result, output)
    if as_json:
        _print_json({**result.to_json(), "files": files})
    else:
        terminal.show_run(result.plan, result.outcome, result.metrics, files)
        if result.private is not None:
            terminal.show_private_analysis(result.private)


def _study_for(path: Path, parties: int | None) -> Study:
    """The study, for another number of parties if one is given."""
    from unspoken.study import LARGEST_COUNT, read_study

    study = read_study(path)
    if parties is None:
        return study
    if not 2 <= parties <= LARGEST_COUNT:
        raise UnspokenError(f"--parties is {parties}, but should be a whole number from 2 to {LARGEST_COUNT}.")
    return study.with_parties(parties)


def _check_simulation(study: Study, test: Path | None, drop: int, seed: int, output: Path) -> None:
    if not 0 <= drop <= study.parties.count:
        raise UnspokenError(f"--drop is {drop}, but should be from 0 to the number of parties, {study.parties.count}.")
    if seed < 0:
        raise UnspokenError(f"--seed is {seed}, but should be a whole number from 0 up.")
    if test is not None and study.task == "statistics":
        raise UnspokenError(f"--test is {test}, but statistics predict nothing that could be measured; leave it out.")
    if output.exists() and not output.is_dir():
        raise UnspokenError(f"{output}: is a file, but --output should be a folder; choose another.")


@app.command()
@_explained
def compare(
    path: StudyFile,
    data: Data,
    test: Annotated[Path, typer.Option(help="Records to measure the models on.")],
    methods: Annotated[str, typer.Option(help="Names of methods, separated by commas.")],
    epsilons: Annotated[str, typer.Option(help="Numbers, separated by commas.")] = "0.5,1,2,4",
    parties: Parties = None,
    split: Split = "iid",
    repeats: Annotated[int, typer.Option(help="The number of runs for each point, with fresh noise.")] = 3,
    seed: Annotated[int, typer.Option(help="Public seed of the split.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="A PNG, SVG or PDF file for a plot; needs matplotlib.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run several methods on the same records at the same epsilons, and show them side by side.

    The study's section compare.NAME has the keys of another method. A method that cannot use the study's summation uses
    the default one.
    """
    study = _study_for(path, parties)
    wanted = _numbers(epsilons, "--epsilons")
    if repeats < 1 or seed < 0:
        raise UnspokenError(f"--repeats is {repeats} and --seed {seed}, but should be at least 1 and at least 0.")
    if plot is not None and (plot.suffix not in (".png", ".svg", ".pdf") or not plot.parent.is_dir()):
        raise UnspokenError(f"{plot}: cannot hold a plot; name a .png, .svg or .pdf file in a folder that exists.")
    from unspoken import comparison
    from unspoken.data.files import read_records
    from unspoken.data.splits import split as spread
    from unspoken.report import terminal

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise UnspokenError(f"--methods is {methods!r}, but should name methods, such as moments,central.")
    for name in names:
        comparison.study_for(study, name, wanted[0])
    train, held_out = read_records(data, study), read_records(test, study)
    groups = spread(split, train.labels, study.parties.count, seed)
    with terminal.progress_bar(quiet=as_json) as progress:
        points = comparison.compare(
            study, train, groups, held_out, names, wanted, repeats=repeats, seed=seed, progress=progress
        )
    metric = comparison.metric_of(points)
    if plot is not None:
        comparison.plot(points, metric, plot)
    if as_json:
        _print_json({"points": [point.to_json() for point in points], "plot": None if plot is None else str(plot)})
    else:
        terminal.show_comparison([point.to_json() for point in points], metric)
        if plot is not None:
            print(f"\nPlotted in {plot}.")


def _numbers(text: str, option: str) -> list[float]:
    """The numbers above 0 in a text, separated by commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0.0 < number <= 1000.0 for number in numbers):
        raise UnspokenError(f"{option} is {text!r}, but should be numbers above 0 and at most 1000, such as 0.5,1,2.")
    return numbers


@app.command()
@_explained
def degrees(
    dropouts: Annotated[float, typer.Option(help="The fraction of parties that may drop out.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Show the number of neighbours of a party in secagg+, by the number of parties and the corrupt fraction."""
    from unspoken.summation.graph import degree_rows, degree_table

    if not 0.0 <= dropouts < 1.0:
        raise UnspokenError(f"--dropouts is {dropouts}, but should be a fraction from 0 to below 1.")
    if as_json:
        _print_json({"dropouts": dropouts, "degrees": degree_rows(dropouts)})
    else:
        print(degree_table(dropouts))


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        import unspoken

        print(unspoken.__version__)
        raise typer.Exit


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnspokenError(f"{folder}: cannot be created ({error.strerror}); choose another --output.") from None


def _write_results(simulation: Simulation, folder: Path) -> dict[str, str]:
    """Write the model (or the statistics), and the certificate with its hash."""
    import hashlib

    study, release = simulation.plan.study, simulation.outcome.release
    result_path = folder / f"{study.name}.{release.kind}.{release.suffix}"
    certificate_path = folder / f"{study.name}.certificate.json"
    try:
        release.save(study, result_path)
        digest = hashlib.sha256(result_path.read_bytes()).hexdigest()
        content = {**simulation.certificate, f"{release.kind}_sha256": digest}
        certificate_path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UnspokenError(f"{folder}: cannot be written to ({error.strerror}); choose another --output.") from None
    return {release.kind: str(result_path), "certificate": str(certificate_path)}


def _print_json(content: dict[str, Any]) -> None:
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    print(json.dumps(content, indent=2, ensure_ascii=not unicode))
