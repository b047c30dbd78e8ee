"""How a study across machines has ended: as its coordinator has it, and as a party or a helper does."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspoken.engines.outcome import Outcome
from unspoken.engines.signing import SIGNATURES, Signature, signers, with_signatures
from unspoken.errors import printable
from unspoken.methods.planning import Plan
from unspoken.report import results
from unspoken.report.results import ResultFile
from unspoken.study import Study
from unspoken.summation.base import Roster, SignedStatement
from unspoken.summation.errors import spoken

_NAMED = 8
"""The most names in a line"""


@dataclass(frozen=True)
class Signers:
    """Who has signed a certificate, by names from the roster."""

    signed: list[str]
    """The coordinator first"""
    unsigned: list[str]
    misfits: list[str]
    """Those whose signature is of another certificate"""

    @classmethod
    def of(cls, study: Study, made: Collection[Signature], misfits: Iterable[str] = ()) -> Signers:
        if (section := study.roster) is None:
            return cls([], [], [])
        names = {address: section.name_of(key.hex()) for address, key in signers(Roster.of(study)).items()}
        valid = {signature.address for signature in made}
        return cls(
            [name for address, name in names.items() if address in valid],
            [name for address, name in names.items() if address not in valid],
            [names.get(address, printable(address, 40)) for address in misfits],
        )

    def line(self) -> str:
        """For people.

        >>> Signers(["hub", "St Mary"], ["Charité"], []).line()
        'Signed by hub, St Mary; not by Charité.'
        """
        return (
            f"Signed by {_some(self.signed)}{f'; not by {_some(self.unsigned)}' if self.unsigned else ', who are all'}."
        )

    def count(self) -> str:
        """For the coordinator's people, who know that it has signed.

        >>> Signers(["hub", "St Mary"], ["Charité"], []).count()
        'Signed by the coordinator and 1 of 2 parties; not by Charité.'
        """
        parties = len(self.signed) + len(self.unsigned) - 1
        missing = f"; not by {_some(self.unsigned)}" if self.unsigned else ""
        return f"Signed by the coordinator and {len(self.signed) - 1:,} of {parties:,} parties{missing}."

    def warning(self) -> str | None:
        """What to do about signatures of another certificate, if any came."""
        if not self.misfits:
            return None
        return (
            f"signatures came from {_some(self.misfits)} that are not of this certificate: they may have another "
            "model, and the coordinator may have lied; compare the SHA-256 of model and certificate with theirs"
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class Blaming:
    """A finished study, as somebody has it who may have noticed faults of others."""

    plan: Plan
    blamed: dict[str, str]
    evidence: tuple[SignedStatement, ...]

    def blame_line(self) -> str:
        """The faults, for people; empty without any."""
        return "; ".join(f"{spoken(who)} is to blame: {fault}" for who, fault in self.blamed.items())

    def save_evidence(self, folder: Path) -> dict[str, str]:
        """Write what proves the faults, if there is something. Files of earlier studies stay as they are."""
        if not self.evidence:
            return {}
        return {"evidence": results.write_evidence(self.plan.study, self.blamed, self.evidence, folder)}


@dataclass(frozen=True)
class Served(Blaming):
    """A finished study, as its coordinator has it."""

    plan: Plan
    outcome: Outcome
    file: ResultFile
    """The model, or the statistics"""
    certificate: dict[str, Any]
    signatures: list[Signature]
    is_old: bool = False
    """Whether it had ended before: nobody was asked anything"""
    blamed: dict[str, str] = field(default_factory=dict)
    """The faults that the run got over, by address, as far as this process has seen them"""
    evidence: tuple[SignedStatement, ...] = ()
    """Signed statements that prove them, where there are some (`report.convictions` checks them)"""

    def save(self, folder: Path) -> dict[str, str]:
        """Write the model (or the statistics) and the signed certificate. Files of earlier studies stay as they are."""
        return results.write(
            self.file, self.plan.study.name, with_signatures(self.certificate, self.signatures), folder
        )

    def signers(self) -> Signers:
        """Who has signed the certificate."""
        return Signers.of(self.plan.study, self.signatures)

    def find(self, folder: Path) -> dict[str, str] | None:
        """The files, if they were saved there before."""
        return results.find(self.file, self.plan.study.name, self.certificate, folder)


@dataclass(frozen=True)
class Joined(Blaming):
    """A finished study, as a party or a helper has it."""

    plan: Plan
    certificate: dict[str, Any] | None
    reason: str
    """Why there is no certificate"""
    sent: int
    """Bytes of messages"""
    file: ResultFile | None = None
    """The model, or the statistics; helpers get none"""
    signatures: list[Signature] = field(default_factory=list)
    disagrees: str = ""
    """Why this participant has not signed the certificate"""
    missing: str = ""
    """What did not come, in words"""
    misfits: tuple[str, ...] = ()
    """Addresses of others whose signatures came, and are of another certificate than this"""
    run: str = ""
    """The name of the study's run in the party's ledger"""
    blamed: dict[str, str] = field(default_factory=dict)
    """The faults that ended attempts at this participant, by address, as far as this process has seen them"""
    evidence: tuple[SignedStatement, ...] = ()
    """Signed statements that prove them, where there are some (`report.convictions` checks them)"""

    def signers(self) -> Signers:
        """Who has signed the certificate that it has."""
        return Signers.of(self.plan.study, self.signatures, self.misfits)

    def save(self, folder: Path) -> dict[str, str]:
        """Write the model (or the statistics) and the signed certificate. Files of earlier studies stay as they are.

        Nothing is written of a certificate that this participant does not agree with.
        """
        if self.certificate is None or self.disagrees:
            return {}
        return results.write(
            self.file, self.plan.study.name, with_signatures(self.certificate, self.signatures), folder
        )

    def save_signatures(self, certificate: Path) -> None:
        """Write the certificate's file again, if it lacks signatures that have come meanwhile."""
        if self.certificate is not None:
            results.write_again(certificate, with_signatures(self.certificate, self.signatures), SIGNATURES)
