"""Studies from files, and from dictionaries of the same content."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from unspoken.study.explaining import StudyError, checked, error_at, read_text
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
    study = checked(Study, {**content, "source": source, "method_place": method_place}, source)
    _check_noise(study)
    return _with_norm(study)


_NOT_IN_FILES = frozenset(name for name, field in Study.model_fields.items() if field.exclude)
"""Fields of a study that do not appear in a file"""


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


def _with_norm(study: Study) -> Study:
    """The study, with the method's default norm if it gives none."""
    if "norm" in study.data.model_fields_set:
        return study
    data = study.data.model_copy(update={"norm": study.described.default_norm(study)})
    return study.model_copy(update={"data": data})
