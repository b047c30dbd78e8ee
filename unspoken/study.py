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
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from unspoken.errors import UnspokenError

LARGEST_COUNT = 10**9
"""Of parties, and of records at a party: far above what is possible, and far below what arithmetic can hold."""

LARGEST_NORM = 1e6
_UNBOUNDED = ("cross-silo", "fedavg", "fedsgd", "voting")
"""Methods that bound gradients or ballots, and so need no bound on records."""

_MESSAGES = frozenset({"source", "method_place"})
"""Fields of a study that no study file has"""

Group = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Share = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0.0, lt=1.0)]
Category = str | int | bool
Bound = Annotated[float, Field(ge=-1e100, le=1e100)]
OptionsType = TypeVar("OptionsType", bound="Section")


class StudyError(UnspokenError, ValueError):
    """Something in a study is missing, misspelt or impossible."""


class Section(BaseModel):
    """A part of a study: no unknown keys, no silent conversions. A field's description says what would be right."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StudySection(Section):
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description='a name of letters, digits, dots, dashes and underscores, such as "heart"',
    )
    task: Literal["classification", "regression", "statistics"] = Field(
        description='"classification", "regression" or "statistics"'
    )


class GroupUnit(Section):
    group: Group


class Column(Section):
    """A column of a table: a number between public bounds, or one of some public categories."""

    min: float | None = Field(
        None, ge=-1e100, le=1e100, description="a number: the smallest possible value, publicly known"
    )
    max: float | None = Field(
        None, ge=-1e100, le=1e100, description="a number: the largest possible value, publicly known"
    )
    categories: list[Category] | None = Field(
        None, min_length=1, description='a list of all possible values, as text or whole numbers, such as ["f", "m"]'
    )

    @field_validator("categories")
    @classmethod
    def _distinct(cls, categories: list[Category] | None) -> list[Category] | None:
        _check_values(categories or [])
        return categories

    @model_validator(mode="after")
    def _one_kind(self) -> Column:
        given = [key for key in ("min", "max", "categories") if getattr(self, key) is not None]
        if given not in (["min", "max"], ["categories"]):
            raise ValueError(
                f"has {' and '.join(given) or 'neither bounds nor categories'}, but should be {{ min = …, max = … }} "
                "for a number or { categories = [ … ] } for a category"
            )
        if self.min is not None and self.max is not None and not self.min < self.max:
            raise ValueError(f"has min = {self.min!r} and max = {self.max!r}, but min should be below max")
        return self

    @property
    def width(self) -> int:
        """How many features the column becomes."""
        return 1 if self.categories is None else len(self.categories)


class DataSection(Section):
    """Either a table (columns) or a matrix (features), and what is predicted of it: one of the classes, a number
    within label_bounds, or nothing. The norm and the constant that a study leaves open are put in by `Study`."""

    label: str | None = Field(None, description="the name of the label's column, in quotes")
    classes: list[Category] | Annotated[int, Field(ge=2)] | None = Field(
        None, description='all possible labels, such as ["no", "yes"], or for a matrix their number, 2 or more'
    )
    label_bounds: tuple[Bound, Bound] | None = Field(
        None,
        description="the smallest and the largest possible label (of a regression), publicly known, such as [0, 110]",
    )
    columns: dict[str, Column] | None = Field(
        None, description="for each column { min = …, max = … } or { categories = [ … ] }"
    )
    features: int | None = Field(None, ge=1, description="a matrix's number of columns, 1 or more")
    norm: float = Field(1.0, ge=1e-6, le=LARGEST_NORM, description="a number from 1e-6 to 1e6, such as 1.0")
    intercept: bool | None = Field(None, description="true or false")

    @model_validator(mode="before")
    @classmethod
    def _arrays(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("label_bounds"), list):
            values = values | {"label_bounds": tuple(values["label_bounds"])}
        return values

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[Category] | int | None) -> list[Category] | int | None:
        if isinstance(classes, list):
            _check_values(classes)
            if len(classes) < 2:
                raise ValueError(f"is {_shown(classes)}, but should name at least two classes")
        return classes

    @field_validator("label_bounds")
    @classmethod
    def _ascending(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"is {_shown(bounds)}, but should have the smallest label first, below the largest")
        return bounds

    @field_validator("columns")
    @classmethod
    def _by_name(cls, columns: dict[str, Column] | None) -> dict[str, Column] | None:
        """The order of a table's columns is that of their names, so that the order of lines in a file means nothing:
        parties whose files differ in it only have the same digest, and the same vectors."""
        return None if columns is None else dict(sorted(columns.items()))

    @model_validator(mode="after")
    def _whole(self) -> DataSection:
        if (self.columns is None) == (self.features is None):
            has = "needs" if self.columns is None else "has both [data.columns] and features, but needs"
            raise ValueError(
                f"{has} either [data.columns] with the columns' public bounds (a table) or features = … (a matrix)"
            )
        if self.columns is not None and not self.columns:
            raise ValueError("needs at least one column under [data.columns]")
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
    count: int = Field(ge=2, le=LARGEST_COUNT, description="a whole number of parties, from 2 to 1000000000")
    records: int = Field(
        1,
        ge=1,
        le=LARGEST_COUNT,
        description="a whole number from 1 to 1000000000: the fewest records that a party may have",
    )
    max_records: int = Field(
        1_000_000,
        ge=1,
        le=LARGEST_COUNT,
        description="a whole number from 1 to 1000000000: the most records that a party may have",
    )

    @model_validator(mode="after")
    def _ordered(self) -> PartiesSection:
        if self.records > self.max_records:
            raise ValueError(
                f"has records = {self.records} above max_records = {self.max_records}; raise max_records or lower "
                "records"
            )
        return self


class PrivacySection(Section):
    epsilon: float | None = Field(None, gt=0.0, le=1000.0, description="a number above 0 and at most 1000, such as 1.0")
    delta: float = Field(ge=1e-30, lt=1.0, description="a number from 1e-30 to below 1, such as 1e-5")
    unit: Literal["record", "party"] | GroupUnit = Field(
        "record", description='"record", "party" or { group = 5 } with a whole number of records, 1 or more'
    )
    colluding: Share = Field(0, description="a fraction from 0 to below 1 (as 0.5) or a whole number of parties")
    dropouts: Share = Field(0, description="a fraction from 0 to below 1 (as 0.05) or a whole number of parties")
    enclaves: bool = Field(
        False,
        description="true or false (true: noise is drawn in trusted execution environments, so nobody knows its own)",
    )
    noise_multiplier: float | None = Field(
        None, gt=0.0, le=1e9, description="a number above 0, such as 1.0: the noise, in place of epsilon"
    )
    adjacency: Literal["replace", "add-remove"] = Field("replace", description='"replace" or "add-remove"')

    @model_validator(mode="after")
    def _one_promise(self) -> PrivacySection:
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError("epsilon is missing; it should be a number above 0 and at most 1000, such as 1.0")
        if self.enclaves and self.colluding != 0:
            raise ValueError("has enclaves, which know no colluders, and colluding; remove one of them")
        return self


class MethodSection(BaseModel):
    """The method's name; its further keys are checked by the method itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = Field(description='the name of a method, such as "helmet"')


class SummationSection(BaseModel):
    """The protocol's name; its further keys are checked by the protocol itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    protocol: str = Field("compute-nodes", description='the name of a protocol, such as "compute-nodes"')


PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class RosterSection(Section):
    """Who takes part, by public keys of 32 bytes. Simulations make up their own parties and need none."""

    parties: list[PublicKey] = Field(description="the parties' Ed25519 keys, a list of 64 hexadecimal digits each")
    coordinator: PublicKey = Field(description="the coordinator's X25519 key, 64 hexadecimal digits")
    helpers: list[PublicKey] = Field([], description="the helpers' X25519 keys, a list of 64 hexadecimal digits each")

    @model_validator(mode="after")
    def _distinct(self) -> RosterSection:
        everyone = [*self.parties, self.coordinator, *self.helpers]
        if len(set(everyone)) != len(everyone):
            raise ValueError("names a key twice; everyone has a key of their own")
        return self


class Study(Section):
    """A whole study. `source` names the file it came from, for messages only."""

    study: StudySection
    data: DataSection
    parties: PartiesSection
    privacy: PrivacySection
    method: MethodSection
    summation: SummationSection = SummationSection()
    roster: RosterSection | None = None
    compare: dict[str, dict[str, Any]] = Field(
        {}, description="sections [compare.NAME], the keys of other methods that it is compared with"
    )
    source: str = Field("the study", exclude=True)
    method_place: tuple[str, ...] = Field(("method",), exclude=True)
    """Where the keys of the method stand, for messages only"""

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        """What a study may leave to its task and method: statistics have no constant, and a norm that clips nothing
        where clipping would spoil records or is not needed.

        For a table that is √(number of columns, constant included): a number is at most 1 in absolute value, and a
        category's indicators have the norm 1. A matrix has no bounds, so only methods that bound something else leave
        its records as they are."""
        match values:
            case {"study": {"task": task}, "data": dict(data), "method": dict(method)}:
                columns, unbounded = data.get("columns"), "model" in method or method.get("name") in _UNBOUNDED
                if task == "statistics" and data.get("intercept") is None:
                    data = data | {"intercept": False}
                spoils = task in ("regression", "statistics") or method.get("function") in ("network", "discriminant")
                if "norm" in data:
                    pass
                elif isinstance(columns, dict) and columns and (spoils or unbounded):
                    data = data | {"norm": math.sqrt(len(columns) + (data.get("intercept") is not False))}
                elif unbounded and columns is None:
                    data = data | {"norm": LARGEST_NORM}
                return values | {"data": data}
        return values

    @model_validator(mode="after")
    def _task(self) -> Study:
        """What is predicted is described as the task needs it, and by no key that would mean nothing."""
        if self.study.task == "statistics":
            self._refuse(("label", "classes", "label_bounds", "intercept"), "which predicts nothing; remove it")
            return self
        if self.data.is_table and self.data.label is None:
            raise self.error("data", "needs label = the name of the label's column")
        if self.study.task == "regression":
            if self.data.label_bounds is None:
                raise self.error("data", "lacks label_bounds: the smallest and the largest possible label, as [0, 110]")
            self._refuse(("classes",), 'whose labels are numbers; remove it, or set task = "classification"')
        else:
            if self.data.classes is None:
                raise self.error("data", 'lacks classes: all possible labels, such as ["no", "yes"]')
            self._refuse(("label_bounds",), 'whose labels are classes; remove it, or set task = "regression"')
        return self

    @model_validator(mode="after")
    def _one_noise(self) -> Study:
        """ε, or noise; or both, if something else is to follow from them."""
        if self.privacy.epsilon is not None and self.privacy.noise_multiplier is not None:
            votes = self.method.name == "voting"
            if not votes or "queries" in (self.method.model_extra or {}):
                remedy = (
                    "; remove one" if not votes else "; remove one, or [method] queries, to ask as many as both allow"
                )
                raise self.error(
                    "privacy", f"has both epsilon and noise_multiplier, but either follows from the other{remedy}"
                )
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
        """Keys of [data] that would be ignored in silence."""
        for key in keys:
            value = getattr(self.data, key)
            if value is not None and value is not False:
                problem = f'is {_shown(value)}, but the task is "{self.study.task}", {why}'
                raise self.error(f"data.{key}", problem)

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

    @property
    def epsilon(self) -> float:
        """The promised ε, of a method that starts from it."""
        if self.privacy.epsilon is None:
            raise self.error("privacy", f'lacks epsilon, which the method "{self.method.name}" needs')
        return self.privacy.epsilon

    def digest(self) -> str:
        """SHA-256 of the study's meaning (not of its spelling): the same for everyone who agreed to the same."""
        meaning = _plain_numbers(self.model_dump(mode="json"))
        for key, default in (("noise_multiplier", None), ("adjacency", "replace"), ("enclaves", False)):
            # Keys that came later: without them a study means what it meant before.
            if meaning["privacy"][key] == default:
                del meaning["privacy"][key]
        del meaning["compare"]
        canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def with_parties(self, count: int) -> Study:
        """The same study for another number of parties."""
        parties = {**self.parties.model_dump(), "count": count}
        if self.roster is not None and count != self.parties.count:
            raise self.error("roster.parties", f"names {self.parties.count} parties, so there cannot be {count}")
        return self.model_copy(update={"parties": _checked(PartiesSection, parties, self.source, ("parties",))})

    def options(self, section: Literal["method", "summation"], model: type[OptionsType]) -> OptionsType:
        """The section's own keys, checked by the method or protocol that defines them."""
        part = getattr(self, section)
        return _checked(model, dict(part.model_extra or {}), self.source, self._place(section))

    def error(self, place: str, problem: str) -> StudyError:
        """An error about this study, ready to raise."""
        section, *keys = place.split(".")
        return StudyError(f"{_where(self.source, (*self._place(section), *keys))} {problem}.")

    def _place(self, section: str) -> tuple[str, ...]:
        return self.method_place if section == "method" else (section,)


def read_study(path: str | Path) -> Study:
    """Read and check a study file."""
    path = Path(path)
    try:
        text = _read_text(path)
    except FileNotFoundError:
        raise StudyError(f"{path}: there is no such file; `unspoken new` writes a study to start from.") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StudyError(f"{path}: cannot be read as text ({why}); a study is a TOML file in UTF-8.") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path}: is not valid TOML ({error}); correct it there or just before.") from None
    return make_study(content, source=str(path))


def make_study(
    content: dict[str, Any], source: str = "the study", method_place: tuple[str, ...] = ("method",)
) -> Study:
    """A study from the content of a study file."""
    for name in _MESSAGES & content.keys():
        raise StudyError(f"{_where(source, (name,))} is an unknown section; remove it.")
    return _checked(Study, {**content, "source": source, "method_place": method_place}, source)


def _as_count(share: int | float, parties: int) -> int:
    """A share of the parties as a number, rounded up. A fraction is what it is written as, not the nearest binary
    number: 0.07 of 100 is 7, although 0.07 · 100 is more in floating point.

    >>> _as_count(0.05, 1000), _as_count(0.07, 100), _as_count(0.34, 10), _as_count(3, 10)
    (50, 7, 4, 3)
    """
    return share if isinstance(share, int) else math.ceil(Fraction(repr(float(share))) * parties)


def _check_values(values: list[Category]) -> None:
    """Categories or classes: all of one type, as a column of data is, and each once."""
    if len({type(value) for value in values}) > 1:
        raise ValueError(f"is {_shown(values)}, which mixes text with other values; write all of them as text")
    seen: set[str] = set()
    for value in values:
        written = str(value).strip()
        if written in seen:
            raise ValueError(f"has {_shown(value)} twice; name each once")
        seen.add(written)


def _plain(value: Any) -> Any:
    """Numpy's numbers as Python's, for studies that are written in Python: as a study file would have them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 else value


def _plain_numbers(value: Any) -> Any:
    """Whole numbers written as 1.0 and as 1 are the same."""
    if isinstance(value, dict):
        return {key: _plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


ModelType = TypeVar("ModelType", bound=BaseModel)


def _checked(model: type[ModelType], content: dict[str, Any], source: str, section: tuple[str, ...] = ()) -> ModelType:
    try:
        return model.model_validate(_plain(content))
    except ValidationError as error:
        raise StudyError(_explain(error, model, source, section)) from None


def _explain(error: ValidationError, model: type[BaseModel], source: str, section: tuple[str, ...]) -> str:
    """One sentence for the first (and most telling) problem: unknown keys before anything that follows from them."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    location = tuple(str(part) for part in problem["loc"])
    place, field, siblings = _resolve(model, location)
    place = (*section, *place)
    where = _where(source, place)
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(place[-1], siblings, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(siblings)}."
        kind = "section" if len(place) == 1 else "key"
        return f"{where} is an unknown {kind}; {remedy if siblings else 'remove it.'}"
    if problem["type"] == "missing" and location[-1] == place[-1]:
        return f"{where} is missing; it should be {field or 'a section of the study'}."
    if problem["type"] == "value_error":
        reason = problem["ctx"]["error"]
        return str(reason) if isinstance(reason, StudyError) else f"{where} {reason}."
    verb = "has" if any(isinstance(part, int) for part in problem["loc"]) else "is"
    return f"{where} {verb} {_shown(problem['input'])}, but should be {field or 'a section with keys of its own'}."


def _resolve(model: type[BaseModel], location: tuple[str, ...]) -> tuple[tuple[str, ...], str, list[str]]:
    """The keys of a place (without pydantic's names of union members), what it should be, and its section's keys."""
    place: list[str] = []
    description, siblings = "", list(model.model_fields)
    current: type[BaseModel] | None = model
    for part in location:
        if current is not None:
            place.append(part)
            siblings = [name for name in current.model_fields if name not in _MESSAGES]
            if part not in current.model_fields:
                break
            field = current.model_fields[part]
            description = field.description or ""
            current = _model_of(field.annotation)
        elif place[-1] == "columns":
            place.append(part)
            description = "{ min = …, max = … } or { categories = [ … ] }"
            current = Column
        elif part == "GroupUnit":
            current = GroupUnit
    return tuple(place), description, siblings


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, if it holds one (or nothing)."""
    members = [member for member in get_args(annotation) if member is not type(None)] or [annotation]
    only = members[0] if len(members) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _where(source: str, place: tuple[str, ...]) -> str:
    """'file, line 7: [section] key', as far as they are known."""
    line = _line_of(source, place)
    start = f"{source}, line {line}:" if line else f"{source}:"
    if not place:
        return start
    section, *keys = (key if re.fullmatch(r"[\w-]+", key) else _shown(key) for key in place)
    return f"{start} [{section}]" + (f" {'.'.join(keys)}" if keys else "")


_KEY = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"


def _line_of(source: str, place: tuple[str, ...]) -> int | None:
    """The line of a study file on which a key stands, or else the innermost table around it."""
    try:
        lines = _read_text(Path(source)).split("\n")
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
    """The keys that a dotted key of TOML is made of.

    >>> _keys('data.columns."blood.pressure"')
    ('data', 'columns', 'blood.pressure')
    """
    keys: list[str] = []
    value = tomllib.loads(f"{dotted} = 0")
    while isinstance(value, dict):
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)


def _read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without the mark that some editors put at its start."""
    return path.read_text(encoding="utf-8-sig")


def _shown(value: Any) -> str:
    """A value as a study file has it, on one line, and shortened if it is long."""
    if isinstance(value, dict):
        items = ", ".join(f"{key} = {_shown(item)}" for key, item in value.items())
        text = f"{{ {items} }}" if items else "{}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(_shown, value))}]"
    elif isinstance(value, str | bool):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
