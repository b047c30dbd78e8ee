"""`unspoken verify`: checks a certificate, or finds whom the evidence of a failed run convicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, explained
from unspoken.errors import UnspokenError


@explained
def verify(
    certificate: Annotated[
        Path | None, typer.Argument(metavar="CERTIFICATE", help="The certificate: a JSON file.", show_default=False)
    ] = None,
    study: Annotated[Path | None, typer.Option(help="The study that you agreed to.")] = None,
    model: Annotated[Path | None, typer.Option(help="The file with the model, or with the statistics.")] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(help="Instead of a certificate: NAME.evidence.json of a run, or what it has printed with --json."),
    ] = None,
    all_signed: Annotated[
        bool, typer.Option("--all-signed", help="Refuse it unless as many parties have signed as are in the result.")
    ] = False,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="It may be a simulation's of a study with a roster: nobody signs one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a certificate: its promise, who signed it, and whether study and model are the ones that it is about.

    Or check the evidence of a run that was given up: whom it convicts, by the study's roster.
    """
    from unspoken.report import terminal

    if evidence is not None:
        _verify_evidence(evidence, study, certificate or model, as_json)
        return
    if certificate is None:
        raise UnspokenError("there is nothing to verify: name a certificate, or evidence (--evidence FILE).")
    from unspoken.report.verification import verify

    found = verify(certificate, study, model, simulation=simulation, all_signed=all_signed)
    if as_json:
        print_json(found.to_json())
    else:
        terminal.show_verified(found)


def _verify_evidence(evidence: Path, study: Path | None, other: Path | None, as_json: bool) -> None:
    from unspoken.report.convictions import verify_evidence

    if other is not None:
        raise UnspokenError(f"{other} does not go with --evidence, which is checked by the study alone; leave it out.")
    if study is None:
        raise UnspokenError(f"{evidence}: evidence is checked by the keys of its study; name the study with --study.")
    found = verify_evidence(evidence, study)
    if as_json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
