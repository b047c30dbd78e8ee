"""`unspoken demo`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, explained


@explained
def demo(
    output: Annotated[Path, typer.Option(help="The folder for the demo's files.")] = Path("unspoken-demo"),
    as_json: AsJson = False,
) -> None:
    """Learn from real data split over 100 parties, and see what privacy costs."""
    from unspoken import demo as digits
    from unspoken.report import terminal

    writing.check_folder(output)
    changed = digits.write_files(output)
    with terminal.progress_bar(quiet=as_json) as progress:
        result = digits.run(output, progress)
    files = result.simulation.save(output)
    if as_json:
        print_json({**result.simulation.to_json(), "comparison": result.comparison, "files": files})
        return
    accuracies = {"accuracy, private": result.simulation.metrics["accuracy"], **result.comparison}
    terminal.show_run(result.simulation.plan, result.simulation.outcome, accuracies, files)
    study, train, test = (shlex.quote(str(output / name)) for name in ("study.toml", "train.npz", "test.npz"))
    again = f"unspoken simulate {study} --data {train} --test {test}"
    kept = " The study was changed since it was written: it was run and left as it is." if changed else ""
    print(f"\nThe study and the data are in {output}/.{kept} Change the study and run it again:\n  {again}")
