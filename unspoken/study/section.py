"""The base of all sections of a study file."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a study, without unknown keys or silent conversions. A field's description says what would be right."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    written: ClassVar[str] = ""
    """Its form in a study file, if the field has no description"""


class Agreed(Enum):
    """What a field means for the digest of a study. A field that says nothing always counts."""

    IF_GIVEN = "unless it has its default: so studies from before there was such a key keep their digest"
    NEVER = "two studies that differ in it are the same"


def agreed(section: BaseModel, content: dict[str, Any]) -> dict[str, Any]:
    """The part of a section, or of a whole study, that its digest covers. `content` is all of it, as JSON."""
    found, fields, values = {}, type(section).model_fields, dict(section)
    for name, value in content.items():
        given, field = values[name], fields.get(name)
        marks = field.metadata if field else ()
        if Agreed.NEVER in marks or (field and Agreed.IF_GIVEN in marks and given == field.default):
            continue
        if isinstance(given, dict):
            value = {key: _agreed_part(part, value[key]) for key, part in given.items()}
        found[name] = _agreed_part(given, value)
    return found


def _agreed_part(given: Any, content: Any) -> Any:
    return agreed(given, content) if isinstance(given, BaseModel) else content
