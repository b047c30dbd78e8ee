"""Checks evidence about a failed run, for somebody who has the study, took no part in the run, and trusts nobody.

Whom a run blames (`blamed`) and what they signed (`evidence`) is in a file beside its results. The findings
follow from the study, its roster and the signatures alone; the claims of whoever shows the evidence do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspoken.engines.signing import parsed
from unspoken.errors import UnspokenError
from unspoken.methods.registry import plan_for
from unspoken.roles.evidence import convicted
from unspoken.study import Study, study_of
from unspoken.summation import evidence as statements
from unspoken.summation.addresses import names_by_address
from unspoken.summation.base import COORDINATOR, Rejected, Roster
from unspoken.summation.errors import spoken


class EvidenceError(UnspokenError, ValueError):
    """Evidence that is malformed, not genuine, or about another study."""


@dataclass(frozen=True)
class Convictions:
    """The findings in genuine evidence about a study."""

    source: str
    study: str
    study_sha256: str
    statements: int
    """The number of signed statements; all signatures are genuine"""
    convicted: dict[str, str]
    """The fault of everyone whom the statements convict, by address"""
    names: dict[str, str]
    """The names of all who take part, by address"""
    unproven: tuple[str, ...] = ()
    """The addresses of those whom the run blames, and whom no statement convicts"""

    def to_json(self) -> dict[str, Any]:
        found = [{"address": who, "name": self.names[who], "fault": fault} for who, fault in self.convicted.items()]
        facts = {name: getattr(self, name) for name in ("study", "study_sha256", "statements")}
        return {"evidence": self.source, **facts, "convicted": found, "unproven": list(self.unproven)}

    def lines(self) -> list[str]:
        """The same for people."""
        count = "1 signed statement is" if self.statements == 1 else f"{self.statements} signed statements are"
        lines = [f"{count} genuine, and about {self.study}."]
        lines += [f"Convicted: {self._named(who)}: {fault}." for who, fault in self.convicted.items()]
        if not self.convicted:
            lines.append("Nobody is convicted by them.")
        if self.unproven:
            named = ", ".join(map(self._named, self.unproven))
            lines.append(f"Blamed, without a statement that proves it: {named}.")
        return lines

    def _named(self, who: str) -> str:
        return f"{self.names[who]} ({spoken(who)})" if who in self.names else spoken(who)


def verify_evidence(
    evidence: str | Path | Mapping[str, Any] | Sequence[Any], study: Study | dict[str, Any] | str | Path
) -> Convictions:
    """Find whom evidence convicts, given as a file or as its content; `EvidenceError` says what is wrong with it.

    The file is NAME.evidence.json of `unspoken serve`, or what it has printed with --json. The content is that, the
    list under its key `evidence`, or the statements of an `Aborted` or a `Served` from Python.
    """
    source = str(evidence) if isinstance(evidence, str | Path) else "the evidence"
    content = _read(Path(evidence)) if isinstance(evidence, str | Path) else evidence
    blamed: Any = None
    if isinstance(content, Mapping):
        if "evidence" not in content:
            what = "give the evidence.json of a run, or what it has printed with --json"
            raise EvidenceError(f'{source}: has no "evidence"; {what}.')
        content, blamed = content["evidence"], content.get("blamed")
    agreed = study_of(study)
    if agreed.roster is None:
        raise agreed.error("roster", "is missing, and evidence is checked by its keys; give the study that was run")
    plan = plan_for(agreed)
    try:
        shown = statements.from_json(content)
        found = convicted(plan, Roster.of(agreed), shown)
    except Rejected as error:
        raise EvidenceError(f"{source}: {error}; it proves nothing.") from None
    except UnspokenError as error:
        raise EvidenceError(f"{source}: {error}") from None
    names = names_by_address(agreed.roster, plan.helper_addresses)
    names[COORDINATOR] = agreed.roster.name_of(agreed.roster.coordinator)
    unproven = tuple(who for who in _addresses(blamed, names, source) if who not in found)
    return Convictions(source, agreed.name, agreed.digest(), len(shown), found, names, unproven)


def _addresses(blamed: Any, known: Mapping[str, str], source: str) -> list[str]:
    """Whom the run blames. Only addresses of the study are repeated to people: other text could pass for a finding."""
    if blamed is None:
        return []
    if not isinstance(blamed, list) or not all(isinstance(who, str) and who in known for who in blamed):
        raise EvidenceError(f'{source}: "blamed" is no list of addresses in this study; give the file as it was.')
    return blamed


def _read(file: Path) -> Any:
    try:
        return parsed(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EvidenceError(f"{file}: cannot be read ({error.strerror}); name the file with the evidence.") from None
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{file}: is not JSON ({error}); get the file with the evidence anew.") from None
