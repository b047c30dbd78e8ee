"""`unspoken new`: a study file to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, explained
from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.templates import StudyNumbers, TableColumns


@explained
def new(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("study.toml"),
    name: Annotated[str, typer.Option(help="The study's name.")] = "heart",
    task: Annotated[str, typer.Option(help="classification, regression or statistics.")] = "classification",
    method: Annotated[
        str | None, typer.Option(help="The method's name; by default the usual one for the task.")
    ] = None,
    columns_of: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A CSV or Parquet file whose column names (never its values) are taken."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="With --columns-of: the column to predict.")] = None,
    classes: Annotated[str | None, typer.Option(help="With --label: its possible values, separated by commas.")] = None,
    parties: Annotated[int | None, typer.Option(help="The number of parties.")] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="For a feature matrix (NPZ) instead of a table.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented study file to start from."""
    from unspoken.templates import study_text, toml_text

    if not force:
        writing.check_free(path)
    _check_name(name)
    columns = _columns(columns_of, label, classes, task, matrix)
    text = study_text(
        toml_text(str(path))[1:-1],
        toml_text(name)[1:-1],
        matrix=matrix,
        task=task,
        method=method,
        numbers=_numbers(parties),
        columns=columns,
    )
    writing.write(path, text, replace=force)
    if as_json:
        print_json({"study": str(path)})
    else:
        edit = "Edit it" if columns is None else "Fill in what is publicly known of its columns"
        print(f"Wrote {path}. {edit}, then see what it promises and costs:\n  unspoken plan {shlex.quote(str(path))}")


def _check_name(name: str) -> None:
    from unspoken.study.explaining import checked
    from unspoken.study.sections import StudySection

    checked(StudySection, {"name": name, "task": "statistics"}, "--name", ("study",))


def _columns(file: Path | None, label: str | None, classes: str | None, task: str, matrix: bool) -> TableColumns | None:
    """The columns of a file, by their names alone."""
    if file is None:
        if label is not None or classes is not None:
            raise UnspokenError("--label and --classes are for --columns-of FILE; give it, or edit the study instead.")
        return None
    if matrix:
        raise UnspokenError("--columns-of is for a table, but --matrix asks for a study without one; leave one out.")
    from unspoken.data.files import read_header
    from unspoken.data.tables import check_names
    from unspoken.templates import TableColumns

    names = read_header(file)
    if (label is None) != (task == "statistics"):
        remedy = "leave --label out" if label else "give --label with the name of the column to predict"
        raise UnspokenError(f"{file}: its columns are for a study whose task is {task}; {remedy}.")
    if label is not None:
        check_names(str(file), names, [label], "that --label names", "--label")
    listed = None if classes is None else [part.strip() for part in classes.split(",")]
    if listed is not None and task != "classification":
        raise UnspokenError(f"--classes is {classes!r}, but is for a classification, not for {task}; leave it out.")
    if listed is not None and (len(set(listed)) < max(2, len(listed)) or not all(listed)):
        raise UnspokenError(f"--classes is {classes!r}, but should be two labels or more, each once, such as no,yes.")
    return TableColumns(names, label, listed)


def _numbers(parties: int | None) -> StudyNumbers:
    """The agreement of so many parties; of few, hardly any may collude or vanish."""
    from unspoken.study import LARGEST_COUNT
    from unspoken.templates import StudyNumbers

    if parties is None:
        return StudyNumbers()
    if not 1 <= parties <= LARGEST_COUNT:
        raise UnspokenError(f"--parties is {parties}, but should be a whole number from 1 to {LARGEST_COUNT}.")
    if parties >= 20:
        return StudyNumbers(parties)
    if parties == 1:
        return StudyNumbers(parties, colluding=0, dropouts=0)
    return StudyNumbers(parties, colluding=max(1, parties // 5), dropouts=0)
