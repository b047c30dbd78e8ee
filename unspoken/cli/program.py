"""The program: how every command reports mistakes, what it prints for programs, and the options that several share."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from unspoken import interrupts
from unspoken.cli.answers import answering_alone, print_json
from unspoken.errors import UnspokenError
from unspoken.interrupts import INTERRUPTED, USUAL

if TYPE_CHECKING:
    from unspoken.data.loading import Loaded
    from unspoken.study import Study

_UsageError: Any = typer.BadParameter.__bases__[0]
"""Typer's error for a malformed command line; the class has no public name."""


_answered: list[KeyboardInterrupt] = []
"""The interrupt that a command has answered, with what it leaves behind"""


def has_answered(stopped: KeyboardInterrupt) -> None:
    """Note that an interrupt is answered, so that nobody answers it once more."""
    _answered.append(stopped)


class Command(TyperCommand):
    """A command whose help shows no type after a flag: a flag takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Commands under one name, with help as a command's."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class _OneSentence(Group):
    """Reports a mistake on the command line like any other: one sentence on standard error, exit status 2."""

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # better a question mark than nothing
        _answered.clear()
        try:
            status = super().main(*args, **{**options, "standalone_mode": False})
            sys.stdout.flush()
            if status == INTERRUPTED and not _answered:  # Typer ends so without a word.
                raise KeyboardInterrupt
        except OSError as error:
            if error.filename is not None:
                raise
            status = _cannot_print(error)
        except _UsageError as error:
            # Without arguments there is no message: the help has been shown.
            if message := _told(error):
                command = error.ctx.command_path if error.ctx else "unspoken"
                print(f"unspoken: {message} (`{command} --help` says more.)", file=sys.stderr)
            status = 2
        except (KeyboardInterrupt, typer.Abort):  # before a command could answer it, or after
            print(f"unspoken: interrupted; {USUAL}.", file=sys.stderr)
            status = INTERRUPTED
        sys.exit(status)


def _told(error: Any) -> str:
    """The message about a malformed command line, with the value that is wrong if the message leaves it out."""
    message = " ".join(error.format_message().split())
    # Typer takes messages about numbers from pydantic, whose error has the value.
    problems: list[Any] = getattr(error.__cause__, "errors", list)()
    return f"{message}; it is {problems[0]['input']!r}." if problems else message


def _cannot_print(error: OSError) -> int:
    """Report that standard output cannot be written to, and keep Python from trying again when it exits."""
    print(f"unspoken: standard output cannot be written to ({error.strerror}); send it elsewhere.", file=sys.stderr)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2


app = typer.Typer(
    name="unspoken",
    cls=_OneSentence,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Learn one model together without sharing data, under differential privacy that holds against everyone.",
)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study: a TOML file (`unspoken new` writes one).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs, and nothing else.")]

Data = Annotated[
    list[Path],
    typer.Option(
        metavar="FILE", help="Records to learn from: CSV, Parquet or NPZ. Given several times: a file a party."
    ),
]
Engine = Annotated[str, typer.Option(help="Where parties run: local (this process), or ray (a cluster).")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="With --engine ray: a cluster that runs already, or auto. Without: one is started."
    ),
]
PartiesBy = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column (or array of an NPZ file) that names the parties.")
]
Parties = Annotated[int | None, typer.Option(help="The number of parties, if not the study's.")]
Split = Annotated[
    str | None, typer.Option(help="The split of one file: iid (unless said), by-class, dirichlet:A, or classes:K.")
]

STOPPED = 143
"""The exit status after a signal to end"""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Stopped(KeyboardInterrupt):
    """A signal to end came (SIGTERM). It is answered as an interrupt from the keyboard is."""

    number = signal.SIGTERM


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM into an exception, for a command that starts processes and should end them.

    A handler of that signal that is already there stays.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as stopped:
        # Ray makes one of its own of whatever a handler raises.
        raise Stopped(*stopped.args) if came else stopped from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def explained(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Report errors in one sentence on standard error; of an aborted run, also whom to blame, for programs.

    The exit status is the error's.
    """

    @wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        interrupts.forget()
        try:
            with answering_alone() if kwargs.get("as_json") else nullcontext():
                return command(*args, **kwargs)
        except UnspokenError as error:
            print(f"unspoken: {error}", file=sys.stderr)
            if kwargs.get("as_json"):
                _print_blame(error)
            raise typer.Exit(error.exit_status) from None
        except KeyboardInterrupt as stopped:
            interrupts.forget()
            has_answered(stopped)
            left = stopped.args[0] if stopped.args else USUAL
            is_stopped = isinstance(stopped, Stopped)
            print(f"unspoken: {'stopped' if is_stopped else 'interrupted'}; {left}.", file=sys.stderr)
            raise typer.Exit(STOPPED if is_stopped else INTERRUPTED) from None
        except BrokenPipeError:
            raise typer.Exit(1) from None

    return wrapped


@contextmanager
def leaving(told: Callable[[], str]) -> Iterator[None]:
    """Add to the message of an interrupt or SIGTERM what the command leaves behind, as `told` says."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        with interrupts.unheard():
            left = told()
        raise type(stopped)(left) from None


def _print_blame(error: UnspokenError) -> None:
    """The end of a run that was begun, for programs: the reason, the blamed, and what they signed."""
    if error.exit_status != 3:
        return
    from unspoken.summation import evidence
    from unspoken.summation.base import Aborted

    blame: dict[str, Any] = {"files": {}}
    if isinstance(error, Aborted):
        shown = evidence.to_json(error.evidence)
        blame = {"files": error.files, "blamed": list(error.blamed), "evidence": shown}
    # There is no total, so no party is in one.
    print_json({"outcome": "aborted", "reason": str(error), "survivors": 0, **blame})


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        import unspoken

        print(unspoken.__version__)
        raise typer.Exit


def study_for(path: Path, parties: int | None) -> Study:
    """The study, for another number of parties if one is given."""
    from unspoken.study import LARGEST_COUNT, read_study

    study = read_study(path)
    if parties is None:
        return study
    if not 1 <= parties <= LARGEST_COUNT:
        raise UnspokenError(f"--parties is {parties}, but should be a whole number from 1 to {LARGEST_COUNT}.")
    return study.with_parties(parties)


def load_parties(study: Study, data: list[Path], parties_by: str | None, split: str | None) -> Loaded:
    """The records of all parties, and whose each is, if the files say so."""
    from unspoken.data.loading import load

    loaded = load(data, study, parties_by)
    if loaded.parties is not None and split is not None:
        said = "--parties-by" if parties_by is not None else "more than one --data"
        raise UnspokenError(f"--split is {split!r}, but {said} says whose records are whose; leave one out.")
    return loaded


def remark(texts: Iterable[str]) -> None:
    """Print remarks for the holder of the records on standard error. They are never in a certificate."""
    for text in texts:
        print(f"unspoken: note: {text}.", file=sys.stderr)


def is_measured(study: Study) -> bool:
    """Whether a model or statistics of this study have a quality that can be measured."""
    return study.task != "statistics" or study.described.measures_statistics
