"""Verifies a certificate: its form, its study, its promise, its signatures and its model.

The promise is computed again from the study in the certificate. What happened (survivors, attempts, their ε) is the
word of those who signed; it is only checked to be possible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from unspoken.engines.signing import SIGNATURES, canonical, is_signature, parsed, signers
from unspoken.errors import UnspokenError
from unspoken.methods.planning import Plan
from unspoken.methods.registry import answerable, method_for
from unspoken.methods.workloads import OWN_FUNCTION
from unspoken.report.agreement import difference, told
from unspoken.report.certificate import FORMAT, statement
from unspoken.report.happened import TOLD, cannot_be
from unspoken.report.plan_text import tried
from unspoken.study import Study, StudyError, make_study, study_of
from unspoken.study.explaining import shown
from unspoken.summation.base import COORDINATOR, Roster

_CANNOT_BE = ": this cannot have happened; ask the coordinator"
_KINDS = ("model", "statistics")


class CertificateError(UnspokenError, ValueError):
    """A certificate that is malformed, or does not fit its study, its signatures or its model."""


@dataclass
class Verified:
    """The findings about a certificate in which nothing is wrong."""

    source: str
    study: str
    study_sha256: str
    statement: str
    is_simulation: bool
    checked: list[str] = field(default_factory=list)
    """What was checked, a sentence each"""
    unchecked: list[str] = field(default_factory=list)
    """What could not be checked, and why"""
    signed: list[str] = field(default_factory=list)
    """The names of those who signed: the coordinator first"""
    unsigned: list[str] = field(default_factory=list)
    """The names of parties that did not sign"""
    guarantee: dict[str, Any] = field(default_factory=dict)
    """The promise as numbers, computed again from the study; empty if that was not possible here"""

    def to_json(self) -> dict[str, Any]:
        names = ("study", "study_sha256", "statement", "guarantee", "checked", "unchecked", "signed", "unsigned")
        return {"certificate": self.source, "simulation": self.is_simulation} | {
            name: getattr(self, name) for name in names
        }


def verify(
    certificate: str | Path | Mapping[str, Any],
    study: Study | dict[str, Any] | str | Path | None = None,
    model: str | Path | None = None,
    *,
    simulation: bool = False,
    all_signed: bool = False,
) -> Verified:
    """Check a certificate, given as a file or as its content; `CertificateError` says what is wrong with it.

    If `study` is given, the certificate must be of this study and signed by its roster. `model` is the released file,
    with the model or the statistics. Nobody signs the certificate of a simulation, so if the study has a roster it is
    refused, unless `simulation` allows it. `all_signed` refuses a certificate that fewer parties have signed than are
    in its totals, and so any of a simulation.
    """
    found = _Certificate(certificate)
    agreed = found.agreement()
    said = found.text("statement")
    done = Verified(found.source, agreed.name, agreed.digest(), said, found.flag("simulation"))
    done.checked.append("Its study is the one that its SHA-256 names.")
    if study is None:
        done.unchecked.append("Whether this is the study that you agreed to: no study is given (--study).")
    else:
        agreed = _same(found, agreed, study_of(study))
        done.checked.append(f"It is about {agreed.source}.")
    _check_promise(found, agreed, done)
    if done.is_simulation:
        _check_simulation(found, agreed, done, simulation and not all_signed)
        if all_signed:
            found.wrong("it is a simulation's, which nobody signs; leave --all-signed out if you mean it")
    else:
        _check_signatures(found, agreed, done)
        _check_signers(found, done, all_signed)
    _check_model(found, None if model is None else Path(model), done)
    return done


class _Certificate:
    """A certificate's content, and its place for messages."""

    def __init__(self, given: str | Path | Mapping[str, Any]) -> None:
        self.source = "the certificate" if isinstance(given, Mapping) else str(given)
        content = dict(given) if isinstance(given, Mapping) else self._read(Path(given))
        if not isinstance(content, dict) or content.get("certificate") != FORMAT:
            what = told(content.get("certificate")) if isinstance(content, dict) else shown(content)
            self.wrong(f'is no certificate: "certificate" is {what}, but should be "{FORMAT}"; name another file')
        try:
            canonical(content)
        except (ValueError, TypeError, RecursionError):
            self.wrong("has something in it that cannot be signed, such as half a character; get its file anew")
        self.content: dict[str, Any] = content

    def _read(self, file: Path) -> Any:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            self.wrong(f"cannot be read ({reason}); name the certificate's file")
        try:
            return parsed(text)
        except (ValueError, RecursionError) as error:
            self.wrong(f"is not JSON ({error}); get the certificate's file anew")

    def wrong(self, problem: str) -> NoReturn:
        raise CertificateError(f"{self.source}: {problem}.")

    def text(self, key: str) -> str:
        if not isinstance(value := self.content.get(key), str):
            self.wrong(f'"{key}" is {told(value)}, but should be text; get the certificate\'s file anew')
        return value

    def flag(self, key: str) -> bool:
        if not isinstance(value := self.content.get(key), bool):
            self.wrong(f'"{key}" is {told(value)}, but should be true or false; get the certificate\'s file anew')
        return value

    def engine(self) -> str:
        """The engine that it says to have run on."""
        happened = self.content.get("happened")
        return str(happened.get("engine", "")) if isinstance(happened, dict) else ""

    def agreement(self) -> Study:
        """The study that the certificate has, if its SHA-256 is the one that is stated."""
        if not isinstance(content := self.content.get("agreement"), dict):
            self.wrong('"agreement" is missing; get the certificate\'s file anew')
        try:
            study = make_study(content, source=f"{self.source}, agreement")
        except StudyError as error:
            raise CertificateError(str(error)) from None
        if (stated := self.text("study_sha256")) != study.digest():
            self.wrong(
                f'"study_sha256" is {shown(stated)}, but "agreement" has {study.digest()}: one of them was changed; '
                "get the certificate's file anew"
            )
        return study


def _same(found: _Certificate, agreed: Study, given: Study) -> Study:
    if given.digest() != agreed.digest():
        found.wrong(
            f'"study_sha256" is {agreed.digest()}, but {given.source} has {given.digest()}: this certificate is of '
            "another study, or of another version of it; compare the files"
        )
    return given


def _check_promise(found: _Certificate, agreed: Study, done: Verified) -> None:
    """Check that the plan and the statement are those that follow from the study."""
    if done.is_simulation and found.content.get(OWN_FUNCTION) is True:
        done.unchecked.append("The promise: it is that of somebody's own function, which is not in the certificate.")
        return
    try:
        with answerable(agreed):
            plan = method_for(agreed).agreed_plan
    except UnspokenError as error:
        done.unchecked.append(f"The promise, which cannot be computed here: {error}")
        return
    for key, wanted in plan.to_json().items():
        if (problem := difference(key, found.content.get(key), wanted)) is not None:
            found.wrong(f"{problem}{_versions(found)}")
    if done.statement != (wanted := statement(plan, done.is_simulation, found.engine())):
        place = next(
            (place for place, (one, other) in enumerate(zip(done.statement, wanted, strict=False)) if one != other),
            min(len(done.statement), len(wanted)),
        )
        said, should = (shown(text[max(0, place - 20) :]) for text in (done.statement, wanted))
        found.wrong(f'"statement" has {said}, but its study promises {should}{_versions(found)}')
    _check_told(found, plan)
    done.guarantee = plan.guarantee.to_json()
    done.checked.append("It promises what its study makes of it: epsilon, delta, noise, and the statement in words.")
    done.unchecked.append(f"Who took part, and in how many attempts: {_word(found, plan)}")


def _word(found: _Certificate, plan: Plan) -> str:
    """What those who signed say of the run."""
    happened = found.content["happened"]
    said = f"{happened['survivors']:,} of {plan.parties_asked:,} parties stayed to the end"
    if (made := happened.get("attempts")) is not None:
        said += f", in {tried(made, plan)}"
    return f"that is the word of those who signed. They say: {said}."


def _check_told(found: _Certificate, plan: Plan) -> None:
    """Check that what is said besides the plan is possible: enough parties, no more spent than promised, and nothing
    else."""
    known = {*plan.to_json(), *TOLD, "certificate", "simulation", "statement", "agreement", SIGNATURES}
    for key in sorted(found.content.keys() - known - {f"{kind}_sha256" for kind in _KINDS}):
        found.wrong(f"has {shown(key)}, which no certificate of its study has{_versions(found)}")
    if (problem := cannot_be(plan, found.content)) is not None:
        found.wrong(f"{problem}{_versions(found, _CANNOT_BE)}")


def _versions(found: _Certificate, otherwise: str = ": it was changed; get the certificate's file anew") -> str:
    """A remedy: the same version, if the certificate was made by another one."""
    versions = found.content.get("versions")
    made, here = versions.get("unspoken") if isinstance(versions, dict) else None, version("unspoken")
    if isinstance(made, str) and made != here:
        return f": it was changed, or it rests on unspoken {shown(made)}, where this is {here}; verify it with that"
    return otherwise


def _check_simulation(found: _Certificate, agreed: Study, done: Verified, is_meant: bool) -> None:
    """Refuse a simulation's certificate where signatures are due: it is unsigned, and anybody can make one for any
    model."""
    if found.content.get(SIGNATURES) is not None:
        found.wrong(f'"{SIGNATURES}" are there, but it is a simulation\'s, which nobody signs; take them out')
    if agreed.roster is not None and not is_meant:
        found.wrong(
            "it is a simulation's, which nobody signs, but its study has a roster of those who would; ask the "
            "coordinator for the signed one, or give --simulation if you mean this one"
        )
    done.unchecked.append("Who says so: it is a simulation's, which nobody signs.")


def _check_signers(found: _Certificate, done: Verified, all_signed: bool) -> None:
    """If asked for, check that as many parties have signed as are in the totals. (The certificate does not name
    those.)"""
    have, happened = len(done.signed) - 1, found.content.get("happened")
    needed = happened.get("survivors") if isinstance(happened, dict) else None
    if all_signed and (not isinstance(needed, int) or have < needed):
        found.wrong(
            f"{have} parties have signed, but {told(needed)} are in it; not signed by {', '.join(done.unsigned)}; ask "
            "the coordinator for the file that all have signed"
        )


def _check_signatures(found: _Certificate, agreed: Study, done: Verified) -> None:
    """Every signature is by a member of the roster; the coordinator's is among them."""
    given = found.content.get(SIGNATURES)
    if agreed.roster is None:
        found.wrong('"agreement.roster" is missing: nobody can have signed; it should say "simulation": true')
    keys, content = signers(Roster.of(agreed)), canonical(found.content)
    names = {address: agreed.roster.name_of(key.hex()) for address, key in keys.items()}
    if not isinstance(given, list):
        found.wrong(f'"{SIGNATURES}" is {told(given)}, but should be a list; get the certificate\'s file anew')
    valid = {_signer(found, place, signature, keys, content) for place, signature in enumerate(given)}
    if COORDINATOR not in valid:
        found.wrong(f'"{SIGNATURES}" lacks that of the coordinator, {names[COORDINATOR]}; ask it for the signed file')
    done.signed = [name for address, name in names.items() if address in valid]
    done.unsigned = [name for address, name in names.items() if address not in valid]
    done.checked.append("All signatures are of this certificate, by keys of the study's roster.")


def _signer(found: _Certificate, place: int, given: Any, keys: Mapping[str, bytes], content: bytes) -> str:
    """Who has signed, if it is a member of the roster."""
    there, names = f"{SIGNATURES}[{place}]", ("address", "key", "signature")
    parts = [given.get(part) if isinstance(given, dict) else None for part in names]
    if isinstance(given, dict) and (other := sorted(given.keys() - names)):
        found.wrong(f'"{there}.{other[0]}" is signed by nobody; take it out')
    try:
        address, key, signature = str(parts[0]), *(bytes.fromhex(str(part)) for part in parts[1:])
    except ValueError:
        found.wrong(f'"{there}" is {told(given)}, but should have an address, a key and a signature; take it out')
    if key not in keys.values():
        found.wrong(f'"{there}.key" is {shown(parts[1])}, which is not in the study\'s roster; take that signature out')
    if keys.get(address) != key:
        found.wrong(f'"{there}.address" is {shown(address)}, whose key in the roster is another; take it out')
    if not is_signature(key, content, signature):
        found.wrong(
            f'"{there}" by {address} does not fit: certificate or signature was changed after it was signed, or it '
            "signs another certificate; get the file anew"
        )
    return address


def _check_model(found: _Certificate, model: Path | None, done: Verified) -> None:
    kinds = [kind for kind in _KINDS if f"{kind}_sha256" in found.content]
    if len(kinds) > 1:
        found.wrong("names both a model and statistics, where a study has one result; get the certificate's file anew")
    kind = kinds[0] if kinds else None
    if kind is None:
        if model is not None:
            found.wrong(f"names no file of a model, so that nothing is known of {model}; leave --model out")
        done.unchecked.append("The model: the certificate names no file of it.")
        return
    if model is None:
        done.unchecked.append(f"The {kind}: no file is given (--model).")
        return
    try:
        with model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CertificateError(f"{model}: cannot be read ({error.strerror}); name the {kind}'s file.") from None
    if digest != (stated := found.text(f"{kind}_sha256")):
        found.wrong(
            f'"{kind}_sha256" is {stated:.64}, but {model} has {digest}: it is another file; name the right one'
        )
    done.checked.append(f"{model} is its {kind}, byte for byte.")
