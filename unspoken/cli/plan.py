"""`unspoken plan`: what a study promises and costs."""

from __future__ import annotations

from typing import Annotated

import typer

from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, StudyFile, explained, remark


@explained
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
    from unspoken.methods.registry import checked_plan, method_for

    method = method_for(study)
    planned = checked_plan(method)
    if validation := study.method.own_keys.get("validation"):
        from unspoken.methods.training.validation import remarks

        remark(remarks(method, validation))
    table = planned.weakening() if weakening and planned.guarantee.is_promise and not planned.is_pooled else []
    if as_json:
        from unspoken.methods.planning.scales import scales

        told = {"computes": study.described.told(study), "scales": [scale.to_json() for scale in scales(planned)]}
        print_json({**planned.to_json(), **told, **({"weakening": table} if weakening else {})})
    else:
        from unspoken.report import terminal

        terminal.show_plan(planned)
        if weakening:
            terminal.show_weakening(table)
