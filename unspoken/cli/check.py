"""`unspoken check`: shows a data holder how its records fit a study. For the holder's eyes only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, StudyFile, explained
from unspoken.errors import UnspokenError


@explained
def check(
    path: StudyFile,
    data: Annotated[Path, typer.Option(help="One party's records: CSV, Parquet or NPZ, as the study says.")],
    as_json: AsJson = False,
) -> None:
    """Show a holder what its records look like to a study: clipped, missing, unknown. Writes nothing.

    The exit status is 2 if the study would refuse the records.
    """
    from unspoken.study import read_study

    study = read_study(path)
    from unspoken.data.checking import check as look

    found = look(study, data)
    if as_json:
        print_json(found.to_json())
    else:
        from unspoken.report import checks

        checks.show(found)
    if not found.fits:
        raise UnspokenError(f"{data}: would be refused, as {found.problems[0]}.")
