"""Studies from files, and from dictionaries of the same content."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

from unspoken.study.explaining import StudyError, checked, error_at, read_text
from unspoken.study.sections import DataSection
from unspoken.study.study import Study


def read_study(path: str | Path) -> Study:
    """Read and check a study file."""
    path = Path(path)
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise StudyError(f"{path}: there is no such file; `unspoken new` writes a study to start from.") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StudyError(f"{path}: cannot be read as text ({why}); a study is a TOML file in UTF-8.") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path}: is not valid TOML ({error}); correct it at that place or just before.") from None
    return make_study(content, source=str(path))


def make_study(
    content: dict[str, Any], source: str = "the study", method_place: tuple[str, ...] = ("method",)
) -> Study:
    """A study from the content of a study file."""
    for name in content.keys() & _NOT_IN_FILES:
        raise error_at(source, (name,), "is an unknown section; remove it")
    if isinstance(data := content.get("data"), dict):
        for name in data.keys() & _NOT_IN_DATA:
            raise error_at(source, ("data", name), "is an unknown key; remove it")
    study = checked(Study, {**content, "source": source, "method_place": method_place}, source)
    _check_noise(study)
    return _with_norm(_with_constant(_with_public(study)))


def study_of(given: Study | dict[str, Any] | str | Path) -> Study:
    """A study that is given as such, as the path of a study file, or as its content."""
    match given:
        case Study():
            return given
        case dict():
            return make_study(given)
        case str() | Path():
            return read_study(given)
    raise StudyError(f"the study is {given!r}, but should be a Study, the path of a study file, or a dictionary.")


_NOT_IN_FILES = frozenset(name for name, field in Study.model_fields.items() if field.exclude)
"""Fields of a study that do not appear in a file"""
_NOT_IN_DATA = frozenset(name for name, field in DataSection.model_fields.items() if field.exclude)


def _check_noise(study: Study) -> None:
    """Check that a study gives epsilon or noise_multiplier, or both if the method computes a key from them."""
    if study.privacy.epsilon is None or study.privacy.noise_multiplier is None:
        return
    free = study.described.solves_for
    if free is None or free in study.method.own_keys:
        remedy = "remove one" if free is None else f"remove one, or [method] {free}, to get the {free} that both allow"
        raise study.error(
            "privacy", f"has both epsilon and noise_multiplier, but either follows from the other; {remedy}"
        )


def _with_public(study: Study) -> Study:
    """The study, with the SHA-256 of its public records' file if it states none. As the digest covers it, whoever has
    another file has another study, and takes no part in this one."""
    if study.data.public is None or study.data.public_sha256 is not None:
        return study
    path = file_beside(study, study.data.public, "data.public")
    data = study.data.model_copy(update={"public_sha256": sha256_of(path, study, "data.public")})
    return study.model_copy(update={"data": data})


def file_beside(study: Study, name: str, place: str) -> Path:
    """A file that the study names at this place: its path is relative to the working directory or to the study."""
    path, beside = Path(name), Path(study.source).parent / name
    if not path.is_file() and beside.is_file():
        path = beside
    if not path.is_file() and not path.is_dir():  # others, such as devices, may never end
        raise study.error(
            place, f'is "{name}", but there is no such file here or beside the study; put it there, or name it'
        )
    return path


def sha256_of(path: Path, study: Study, place: str) -> str:
    """The SHA-256 of a file that the study names at this place."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise study.error(place, f'is "{path}", which cannot be read ({error.strerror}); name a file') from None


def _with_norm(study: Study) -> Study:
    """The study, with the method's default norm if it gives none."""
    if "norm" in study.data.model_fields_set:
        return study
    data = study.data.model_copy(update={"norm": study.described.default_norm(study)})
    return study.model_copy(update={"data": data})


def _with_constant(study: Study) -> Study:
    """The study, with the method's constant for the intercept if it has one."""
    if not study.data.has_intercept:
        return study
    data = study.data.model_copy(update={"constant": study.described.default_constant(study)})
    return study.model_copy(update={"data": data})
