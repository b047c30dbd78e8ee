"""The base of all sections of a study file."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a study, without unknown keys or silent conversions. A field's description says what would be right."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    written: ClassVar[str] = ""
    """Its form in a study file, if the field has no description"""
