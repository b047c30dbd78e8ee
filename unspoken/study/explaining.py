"""Errors in a study, explained in one sentence: file, line, place, value, and what would be right."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from unspoken.errors import UnspokenError, printable

ModelType = TypeVar("ModelType", bound=BaseModel)
Place = tuple[str, ...]
"""The path of keys to a value in a study, its section first"""


class StudyError(UnspokenError, ValueError):
    """Something in a study is missing, misspelt or impossible, at `place` if that is known."""

    def __init__(self, message: str, place: Place = ()) -> None:
        super().__init__(printable(message, len(message)))
        self.place = place


def error_at(source: str, place: Place, problem: str, *, is_key: bool = False) -> StudyError:
    """An error about a place in a study, ready to raise. A place that `is_key` is a key outside of all sections."""
    end = "" if problem.endswith("?") else "."
    return StudyError(f"{where(source, place, is_key=is_key)} {problem}{end}", place)


def checked(model: type[ModelType], content: dict[str, Any], source: str, section: Place = ()) -> ModelType:
    """The content of a section or of a whole study as a checked object."""
    try:
        return model.model_validate(plain(content))
    except ValidationError as error:
        raise _explained(error, model, source, section) from None


def plain(value: Any) -> Any:
    """The value with numpy's numbers and arrays replaced by Python's, and ranges by lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | range):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def _explained(error: ValidationError, model: type[BaseModel], source: str, section: Place) -> StudyError:
    """One sentence for the first problem; unknown keys come before problems that follow from them."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    location = tuple(str(part) for part in problem["loc"])
    place, field, siblings = _resolve(model, location)
    place = (*section, *place)
    is_key = len(place) == 1 and not _is_section(model, place[0], problem["input"])
    if problem["type"] == "extra_forbidden":
        kind = "section" if len(place) == 1 and not is_key else "key"
        return error_at(source, place, f"is an unknown {kind}; {_remedy(place[-1], siblings)}", is_key=is_key)
    if problem["type"] == "missing" and location[-1] == place[-1]:
        wanted = field or "a section of the study"
        return error_at(source, place, f"is missing; it should be {wanted}", is_key=is_key)
    if problem["type"] == "value_error":
        reason = problem["ctx"]["error"]
        return reason if isinstance(reason, StudyError) else error_at(source, place, str(reason))
    verb = "has" if any(isinstance(part, int) for part in problem["loc"]) else "is"
    wanted = field or "a section with keys of its own"
    return error_at(source, place, f"{verb} {shown(problem['input'])}, but should be {wanted}", is_key=is_key)


def _is_section(model: type[BaseModel], name: str, value: Any) -> bool:
    """Whether a name outside of all sections is a section's. Studies have nothing else there; other files have keys."""
    fields = {known: field for known, field in model.model_fields.items() if not field.exclude}
    if name in fields:
        return _holds_keys(fields[name])
    return isinstance(value, dict) or all(map(_holds_keys, fields.values()))


def _holds_keys(field: FieldInfo) -> bool:
    annotation = field.annotation
    is_dict = any(get_origin(part) is dict for part in (annotation, *get_args(annotation)))
    return is_dict or any(_section_of(field))


def _remedy(unknown: str, known: list[str]) -> str:
    if not known:
        return "remove it"
    close = difflib.get_close_matches(unknown, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def _resolve(model: type[BaseModel], location: Place) -> tuple[Place, str, list[str]]:
    """The path of a place (without pydantic's names of union members), its description, and its section's keys."""
    place: list[str] = []
    description, siblings = "", list(model.model_fields)
    current: type[BaseModel] | None = model
    inside: dict[str, type[BaseModel]] = {}
    for part in location:
        if current is not None:
            place.append(part)
            siblings = [name for name, field in current.model_fields.items() if not field.exclude]
            if part not in current.model_fields:
                break
            field = current.model_fields[part]
            description = field.description or ""
            current, inside = _section_of(field)
        elif part in inside:
            current = inside[part]
        elif _ANY in inside:
            place.append(part)
            current = inside[_ANY]
            description = getattr(current, "written", "")
    return tuple(place), description, siblings


_ANY = "*"


def _section_of(field: FieldInfo) -> tuple[type[BaseModel] | None, dict[str, type[BaseModel]]]:
    """The section that a field holds, if it is of that type (or None); else the sections that it may hold.

    These are keyed by the name that pydantic gives a member of a union, or by `_ANY` for sections of any name.
    """
    annotation = field.annotation
    is_union = get_origin(annotation) in (Union, UnionType)
    members = [member for member in get_args(annotation) if member is not type(None)] if is_union else [annotation]
    sections = {section.__name__: section for section in _models(members)}
    if len(members) == 1 and sections:
        return next(iter(sections.values())), {}
    for section in _models(get_args(member)[1] for member in members if get_origin(member) is dict):
        sections[_ANY] = section
    return None, sections


def _models(annotations: Iterable[Any]) -> list[type[BaseModel]]:
    return [kind for kind in annotations if isinstance(kind, type) and issubclass(kind, BaseModel)]


def where(source: str, place: Place, *, is_key: bool = False) -> str:
    """'file, line 7: [section] key', as far as known; a key outside of all sections has no brackets."""
    line = _line_of(source, place)
    start = f"{source}, line {line}:" if line else f"{source}:"
    if not place:
        return start
    section, *keys = (key if re.fullmatch(r"[\w-]+", key) else shown(key) for key in place)
    return f"{start} {section if is_key else f'[{section}]'}" + (f" {'.'.join(keys)}" if keys else "")


_KEY = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"


def _line_of(source: str, place: Place) -> int | None:
    """The line of a key in a study file, or else of the innermost table around it."""
    try:
        lines = read_text(Path(source)).split("\n")
    except (OSError, ValueError):
        return None
    found, depth = None, 0
    header: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        if heading := re.match(rf"\s*\[\[?\s*({_KEYS})\s*\]", line):
            header = here = _keys(heading.group(1))
        elif key := re.match(rf"\s*({_KEYS})\s*=", line):
            here = header + _keys(key.group(1))
        else:
            continue
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(here, place, strict=False)))
        if common > depth:
            found, depth = number, common
    return found


def _keys(dotted: str) -> tuple[str, ...]:
    """The parts of a dotted TOML key.

    >>> _keys('data.columns."blood.pressure"')
    ('data', 'columns', 'blood.pressure')
    """
    keys: list[str] = []
    value = tomllib.loads(f"{dotted} = 0")
    while isinstance(value, dict):
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark."""
    return path.read_text(encoding="utf-8-sig")


def shown(value: Any) -> str:
    """A value as written in a study file, on one line, shortened if long."""
    if isinstance(value, dict):
        items = ", ".join(f"{key} = {shown(item)}" for key, item in value.items())
        text = f"{{ {items} }}" if items else "{}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(shown, value))}]"
    elif isinstance(value, str | bool):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
