"""The study: the agreement before any data is touched.

Every bound that a sensitivity rests on comes from here, never from data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from unspoken import defaults, plugins
from unspoken.study.description import Description
from unspoken.study.explaining import StudyError, checked, error_at, shown
from unspoken.study.section import Agreed, Section, agreed
from unspoken.study.sections import (
    DataSection,
    GroupUnit,
    MethodSection,
    PartiesSection,
    PrivacySection,
    RosterSection,
    StudySection,
    SummationSection,
    Task,
)

OptionsType = TypeVar("OptionsType", bound=Section)


class Study(Section):
    """A whole study. `source` names the file it came from, for messages only."""

    study: StudySection
    data: DataSection
    parties: PartiesSection
    privacy: PrivacySection
    method: MethodSection = MethodSection()
    summation: SummationSection = SummationSection()
    roster: RosterSection | None = None
    compare: Annotated[dict[str, dict[str, Any]], Agreed.NEVER] = Field(
        {}, description="sections [compare.NAME] with the keys of other methods to compare with"
    )
    source: str = Field("the study", exclude=True)
    method_place: tuple[str, ...] = Field(("method",), exclude=True)
    """The place of the method's keys, for messages only"""
    given_public: Any = Field(None, exclude=True, repr=False)
    """Public records that were given in place of their file: an object of `data.public`. Their hash is in [data]."""

    @model_validator(mode="before")
    @classmethod
    def _without_constant(cls, values: Any) -> Any:
        """Set intercept = false for statistics that do not mention it; one that asks for it is refused later."""
        match values:
            case {"study": {"task": "statistics"}, "data": dict(data)} if data.get("intercept") is None:
                return values | {"data": data | {"intercept": False}}
        return values

    @model_validator(mode="before")
    @classmethod
    def _method_for_parties(cls, values: Any) -> Any:
        """Name the method of a classification that protects whole parties and names none."""
        match values:
            case {"study": {"task": "classification"}, "privacy": {"unit": "party"}}:
                method = values.get("method", {})
                if isinstance(method, dict) and "name" not in method:
                    return values | {"method": method | {"name": defaults.PARTY_METHOD}}
        return values

    @model_validator(mode="after")
    def _task(self) -> Study:
        """Check that [data] describes labels as the task needs them, and has no key without meaning."""
        if self.task == "statistics":
            self._refuse(("label", "classes", "label_bounds", "intercept"), "which predicts nothing; remove it")
            return self
        if self.data.is_table and self.data.label is None:
            raise self.error("data", "needs label = the name of the label's column")
        if self.task == "regression":
            if self.data.label_bounds is None:
                raise self.error("data", "lacks label_bounds: the smallest and the largest possible label, as [0, 110]")
            self._refuse(("classes",), 'whose labels are numbers; remove it, or set task = "classification"')
        else:
            if self.data.classes is None:
                raise self.error("data", 'lacks classes: all possible labels, such as ["no", "yes"]')
            self._refuse(("label_bounds",), 'whose labels are classes; remove it, or set task = "regression"')
        return self

    @model_validator(mode="after")
    def _table_labels(self) -> Study:
        label = self.data.label
        if label is not None and label in (self.data.columns or {}):
            raise self.error("data", f"has the label {label!r} among its columns too; take it out of [data.columns]")
        if self.data.is_table and isinstance(self.data.classes, int):
            raise self.error("data", 'of a table needs classes = the list of its labels, such as ["no", "yes"]')
        return self

    @model_validator(mode="after")
    def _whole_roster(self) -> Study:
        if self.roster is not None and len(self.roster.parties) != self.parties.count:
            listed, count = len(self.roster.parties), self.parties.count
            raise self.error("roster.parties", f"has {listed} keys, but [parties] count is {count}; list every party")
        return self

    def _refuse(self, keys: tuple[str, ...], why: str) -> None:
        """Refuse keys of [data] that would be ignored silently."""
        for key in keys:
            value = getattr(self.data, key)
            if value is not None and value is not False:
                problem = f'is {shown(value)}, but the task is "{self.task}", {why}'
                raise self.error(f"data.{key}", problem)

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def task(self) -> Task:
        return self.study.task

    @property
    def described(self) -> type[Description]:
        """The class of the study's method, imported on demand."""
        try:
            return plugins.find(plugins.METHODS, self.method.name, Description)
        except plugins.UnknownName as unknown:
            raise self.error("method.name", unknown.problem) from None

    @property
    def protocol_class(self) -> type[Any]:
        """The class of the study's summation protocol, imported on demand."""
        try:
            return plugins.find(plugins.PROTOCOLS, self.summation.protocol)
        except plugins.UnknownName as unknown:
            raise self.error("summation.protocol", unknown.problem) from None

    @property
    def colluding(self) -> int:
        """The number of parties that may pool what they know."""
        return _as_count(self.privacy.colluding, self.parties.count)

    @property
    def dropouts(self) -> int:
        """The number of parties that may vanish before the sum is complete."""
        return _as_count(self.privacy.dropouts, self.parties.count)

    @property
    def group(self) -> int | None:
        """The number of records protected together; None: all of a party's."""
        unit = self.privacy.unit
        if isinstance(unit, GroupUnit):
            return unit.group
        return 1 if unit == "record" else None

    @property
    def leaves_out_parties(self) -> bool:
        """Whether neighbours differ by all records of a party, which are there or not."""
        return self.group is None and self.privacy.adjacency == "add-remove"

    @property
    def epsilon(self) -> float:
        """The promised ε, for methods that need one."""
        if self.privacy.epsilon is None:
            raise self.error("privacy", f'lacks epsilon, which the method "{self.method.name}" needs')
        return self.privacy.epsilon

    def digest(self) -> str:
        """The SHA-256 of the study's meaning, not of its spelling: the same for all who agreed to the same study."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        """Computed once, as nothing in a study changes."""
        meaning = _plain_numbers(agreed(self, self.model_dump(mode="json")))
        canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Study:
        """A copy that may differ; so its digest is its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_digest", None)
        return copied

    def with_parties(self, count: int) -> Study:
        """The same study for another number of parties."""
        parties = {**self.parties.model_dump(), "count": count}
        if self.roster is not None and count != self.parties.count:
            raise self.error("roster.parties", f"names {self.parties.count} parties, so there cannot be {count}")
        return self.model_copy(update={"parties": checked(PartiesSection, parties, self.source, ("parties",))})

    def options(self, section: Literal["method", "summation"], model: type[OptionsType]) -> OptionsType:
        """The section's own keys, checked by the method or protocol that defines them."""
        part: MethodSection | SummationSection = getattr(self, section)
        return checked(model, dict(part.model_extra or {}), self.source, self._place(section))

    def error(self, place: str, problem: str) -> StudyError:
        """An error about this study, ready to raise."""
        section, *keys = place.split(".")
        return error_at(self.source, (*self._place(section), *keys), problem)

    def _place(self, section: str) -> tuple[str, ...]:
        return self.method_place if section == "method" else (section,)


def _as_count(share: int | float, parties: int) -> int:
    """A share of the parties as a number, rounded up.

    A fraction is taken as written, not as the nearest binary number: 0.07 of 100 is 7, although 0.07 · 100 is more in
    floating point.

    >>> _as_count(0.05, 1000), _as_count(0.07, 100), _as_count(0.34, 10), _as_count(3, 10)
    (50, 7, 4, 3)
    """
    return share if isinstance(share, int) else math.ceil(Fraction(repr(float(share))) * parties)


def _plain_numbers(value: Any) -> Any:
    """The value with 1.0 replaced by 1, which means the same."""
    if isinstance(value, dict):
        return {key: _plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
