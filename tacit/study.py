"""The study: what everyone agreed on before any data is touched. A TOML file, read, checked, and explained.

Every bound that a sensitivity rests on comes from here, never from data. What is wrong with a study is told in one
sentence with the file, the place, the value and what would be right.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tacit.errors import TacitError

Group = Annotated[int, Field(ge=1, description="a whole number of records, 1 or more")]
Share = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0.0, lt=1.0)]
Category = str | int | bool
OptionsType = TypeVar("OptionsType", bound="Section")


class StudyError(TacitError, ValueError):
    """Something in a study is missing, misspelt or impossible."""


class Section(BaseModel):
    """A part of a study: no unknown keys, no silent conversions. A field's description says what would be right."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StudySection(Section):
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description='a name of letters, digits, dots, dashes and underscores, such as "heart"',
    )
    task: Literal["classification", "regression"] = Field(description='"classification" or "regression"')


class GroupUnit(Section):
    group: Group


class Column(Section):
    """A column of a table: a number between public bounds, or one of some public categories."""

    min: float | None = Field(None, description="the smallest possible value, publicly known")
    max: float | None = Field(None, description="the largest possible value, publicly known")
    categories: list[Category] | None = Field(
        None, min_length=1, description='a list of all possible values, such as ["f", "m"]'
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Column:
        numeric = self.min is not None and self.max is not None
        if numeric == (self.categories is not None) or (self.min is None) != (self.max is None):
            raise ValueError("should be { min = …, max = … } for a number or { categories = [ … ] } for a category")
        if self.min is not None and self.max is not None and not self.min < self.max:
            raise ValueError(f"needs min below max, not min = {self.min:g} and max = {self.max:g}")
        if self.categories is not None:
            _check_distinct("categories", self.categories)
        return self

    @property
    def width(self) -> int:
        """How many features the column becomes."""
        return 1 if self.categories is None else len(self.categories)


class DataSection(Section):
    """Either a table (label, classes, columns) or a matrix (features, classes)."""

    label: str | None = Field(None, description="the name of the label's column, in quotes")
    classes: list[Category] | Annotated[int, Field(ge=2)] | None = Field(
        None, description='all possible labels, such as ["no", "yes"], or for a matrix their number, 2 or more'
    )
    label_bounds: tuple[float, float] | None = Field(
        None, description="for regression: the smallest and the largest possible label, such as [0, 110]"
    )
    columns: dict[str, Column] | None = Field(
        None, description="for each column { min = …, max = … } or { categories = [ … ] }"
    )
    features: int | None = Field(None, ge=1, description="a matrix's number of columns, 1 or more")
    norm: float = Field(1.0, gt=0.0, description="a number above 0, such as 1.0")
    intercept: bool | None = Field(None, description="true or false")

    @model_validator(mode="before")
    @classmethod
    def _arrays(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("label_bounds"), list):
            values = values | {"label_bounds": tuple(values["label_bounds"])}
        return values

    @model_validator(mode="after")
    def _whole(self) -> DataSection:
        if (self.columns is None) == (self.features is None):
            raise ValueError(
                "needs either [data.columns] with the columns' public bounds (a table) or features = … (a matrix)"
            )
        if self.columns is not None:
            if not self.columns:
                raise ValueError("needs at least one column under [data.columns]")
            if self.label is None:
                raise ValueError("needs label = the name of the label's column")
            if self.label in self.columns:
                raise ValueError(f"has the label {self.label!r} among its columns too; take it out of [data.columns]")
            if isinstance(self.classes, int):
                raise ValueError('of a table needs classes = the list of its labels, such as ["no", "yes"]')
        if isinstance(self.classes, list):
            _check_distinct("classes", self.classes)
            if len(self.classes) < 2:
                raise ValueError("needs at least two classes")
        if self.label_bounds is not None and not self.label_bounds[0] < self.label_bounds[1]:
            raise ValueError("needs label_bounds = [smallest, largest], the smallest first")
        return self

    @property
    def is_table(self) -> bool:
        return self.columns is not None

    @property
    def has_intercept(self) -> bool:
        return self.is_table if self.intercept is None else self.intercept

    @property
    def raw_dimension(self) -> int:
        """The number of features after encoding, without the constant."""
        if self.columns is None:
            return self.features or 0
        return sum(column.width for column in self.columns.values())

    @property
    def dimension(self) -> int:
        """The length of the vector that a learner sees."""
        return self.raw_dimension + self.has_intercept

    @property
    def class_names(self) -> list[Category]:
        """All labels, in the order of their numbers."""
        if self.classes is None:
            raise StudyError("[data] lacks classes: all possible labels")
        return list(range(self.classes)) if isinstance(self.classes, int) else self.classes


class PartiesSection(Section):
    count: int = Field(ge=2, description="a whole number of parties, 2 or more")
    records: int = Field(1, ge=1, description="the smallest number of records that a party may have, 1 or more")
    max_records: int = Field(
        1_000_000, ge=1, description="the largest number of records that a party may have, such as 1000000"
    )

    @model_validator(mode="after")
    def _ordered(self) -> PartiesSection:
        if self.records > self.max_records:
            raise ValueError(f"has records = {self.records} above max_records = {self.max_records}")
        return self


class PrivacySection(Section):
    epsilon: float = Field(gt=0.0, le=1000.0, description="a number above 0 and at most 1000, such as 1.0")
    delta: float = Field(ge=1e-30, lt=1.0, description="a number from 1e-30 to below 1, such as 1e-5")
    unit: Literal["record", "party"] | GroupUnit = Field(
        "record", description='"record", "party" or { group = 5 } with a whole number of records, 1 or more'
    )
    colluding: Share = Field(0, description="a fraction from 0 to below 1 (as 0.5) or a whole number of parties")
    dropouts: Share = Field(0, description="a fraction from 0 to below 1 (as 0.05) or a whole number of parties")


class MethodSection(BaseModel):
    """The method's name; its further keys are checked by the method itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = Field(description='the name of a method, such as "helmet"')


class SummationSection(BaseModel):
    """The protocol's name; its further keys are checked by the protocol itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    protocol: str = Field("compute-nodes", description='the name of a protocol, such as "compute-nodes"')


class Study(Section):
    """A whole study. `source` names the file it came from, for messages only."""

    study: StudySection
    data: DataSection
    parties: PartiesSection
    privacy: PrivacySection
    method: MethodSection
    summation: SummationSection = SummationSection()
    source: str = Field("study", exclude=True)

    @model_validator(mode="after")
    def _task(self) -> Study:
        if self.study.task == "classification" and self.data.classes is None:
            raise ValueError("[data] lacks classes: all possible labels of a classification study")
        if self.study.task == "regression" and self.data.label_bounds is None:
            raise ValueError("[data] lacks label_bounds: the smallest and the largest possible label of a regression")
        return self

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
        """How many records the promise covers at once; None: all of a party's."""
        unit = self.privacy.unit
        if isinstance(unit, GroupUnit):
            return unit.group
        return 1 if unit == "record" else None

    def digest(self) -> str:
        """SHA-256 of the study's meaning (not of its spelling): the same for everyone who agreed to the same."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def with_parties(self, count: int) -> Study:
        """The same study for another number of parties."""
        parties = {**self.parties.model_dump(), "count": count}
        return self.model_copy(update={"parties": _checked(PartiesSection, parties, self.source, "parties")})

    def options(self, section: Literal["method", "summation"], model: type[OptionsType]) -> OptionsType:
        """The section's own keys, checked by the method or protocol that defines them."""
        part = getattr(self, section)
        return _checked(model, dict(part.model_extra or {}), self.source, section)

    def error(self, place: str, problem: str) -> StudyError:
        """An error about this study, ready to raise."""
        return StudyError(f"{_where(self.source, tuple(place.split('.')))} {problem}.")


def read_study(path: str | Path) -> Study:
    """Read and check a study file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StudyError(f"{path}: there is no such file; `tacit new` writes a study to start from.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: cannot be read as text ({error}); a study is a TOML file in UTF-8.") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path}: is not valid TOML: {error}.") from None
    return make_study(content, source=str(path))


def make_study(content: dict[str, Any], source: str = "study") -> Study:
    """A study from the content of a study file."""
    if "source" in content:
        raise StudyError(f"{source}: has no section 'source'; remove it.")
    return _checked(Study, {**content, "source": source}, source)


def _as_count(share: int | float, parties: int) -> int:
    """A share of the parties as a number, rounded up (away from rounding errors such as 0.07 · 100).

    >>> _as_count(0.05, 1000), _as_count(0.34, 10), _as_count(3, 10)
    (50, 4, 3)
    """
    return share if isinstance(share, int) else math.ceil(round(share * parties, 9))


def _check_distinct(name: str, values: list[Category]) -> None:
    seen: set[str] = set()
    for value in values:
        if str(value) in seen:
            raise ValueError(f"{name} has {value!r} twice; name each once")
        seen.add(str(value))


ModelType = TypeVar("ModelType", bound=BaseModel)


def _checked(model: type[ModelType], content: dict[str, Any], source: str, section: str | None = None) -> ModelType:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise StudyError(_explain(error, model, source, section)) from None


def _explain(error: ValidationError, model: type[BaseModel], source: str, section: str | None) -> str:
    """One sentence for the first (and most telling) problem: unknown keys before anything that follows from them."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    location = tuple(str(part) for part in problem["loc"])
    place, field, siblings = _resolve(model, location)
    place = (section, *place) if section else place
    where = _where(source, place)
    if problem["type"] == "extra_forbidden":
        known = ", ".join(siblings)
        close = difflib.get_close_matches(place[-1], siblings, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"known here: {known}."
        kind = "section" if len(place) == 1 else "key"
        return f"{where} is an unknown {kind}; {remedy}"
    if problem["type"] == "missing":
        return f"{where} is missing; it should be {field or 'a section of the study'}."
    if problem["type"] == "value_error":
        return f"{where} {problem['ctx']['error']}."
    return f"{where} is {_shown(problem['input'])}, but should be {field or problem['msg']}."


def _resolve(model: type[BaseModel], location: tuple[str, ...]) -> tuple[tuple[str, ...], str, list[str]]:
    """The keys of a place (without pydantic's names of union members), what it should be, and its section's keys."""
    place: list[str] = []
    description, siblings = "", list(model.model_fields)
    current: type[BaseModel] | None = model
    for part in location:
        if current is not None:
            place.append(part)
            siblings = [name for name in current.model_fields if name != "source"]
            if part not in current.model_fields:
                break
            field = current.model_fields[part]
            description = field.description or ""
            annotation = field.annotation
            current = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
        elif place[-1] == "columns":
            place.append(part)
            description = "{ min = …, max = … } or { categories = [ … ] }"
            current = Column
        elif part == "GroupUnit":
            current = GroupUnit
    return tuple(place), description, siblings


def _where(source: str, place: tuple[str, ...]) -> str:
    """'file, line 7: [section] key', as far as they are known."""
    line = _line_of(source, place)
    start = f"{source}, line {line}:" if line else f"{source}:"
    if not place:
        return start
    section, keys = place[0], place[1:]
    return f"{start} [{section}]" + (f" {'.'.join(keys)}" if keys else "")


def _line_of(source: str, place: tuple[str, ...]) -> int | None:
    """The line of a study file on which a key (or else its section) stands."""
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError):
        return None
    found, header = None, ""
    for number, line in enumerate(lines, 1):
        if heading := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            header = heading.group(1)
            if header == ".".join(place) or (found is None and place and header == place[0]):
                found = number
        elif key := re.match(r"\s*(\"[^\"]*\"|'[^']*'|[^\s=#]+)\s*=", line):
            name = key.group(1).strip("\"'")
            full = f"{header}.{name}" if header else name
            if len(place) > 1 and full == ".".join(place[: full.count(".") + 1]) and full.count(".") >= 1:
                found = number
    return found


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
