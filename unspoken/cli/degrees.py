"""`unspoken degrees`: the graphs of secagg+."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, explained
from unspoken.errors import UnspokenError


@explained
def degrees(
    dropouts: Annotated[float, typer.Option(help="The fraction of parties that may drop out.")] = 0.05,
    coordinator: Annotated[
        str, typer.Option(help='"lying": safe even if it lies; "curious": safe if it follows the protocol.')
    ] = "lying",
    as_json: AsJson = False,
) -> None:
    """Show how many neighbours hold a party's shares in secagg+ (and how many can open them together)."""
    from unspoken.summation.degrees import degree_rows, degree_table

    if not 0.0 <= dropouts < 1.0:
        raise UnspokenError(f"--dropouts is {dropouts}, but should be a fraction from 0 to below 1.")
    if coordinator not in ("lying", "curious"):
        raise UnspokenError(f'--coordinator is "{coordinator}", but should be "lying" or "curious".')
    assumed: Literal["lying", "curious"] = "lying" if coordinator == "lying" else "curious"
    if as_json:
        facts = {"dropouts": dropouts, "coordinator": coordinator}
        print_json({**facts, "degrees": degree_rows(dropouts, assumed)})
    else:
        print(degree_table(dropouts, assumed))
