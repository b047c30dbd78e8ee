"""The sections of a study file: their keys, and the values allowed."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from unspoken.study.explaining import StudyError, shown

LARGEST_COUNT = 10**9
"""The largest number of parties, and of records at a party: far below what arithmetic can hold"""
LARGEST_NORM = 1e6
DEFAULT_PROTOCOL = "compute-nodes"
"""The summation protocol of a study that names none"""

Task = Literal["classification", "regression", "statistics"]
Group = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Share = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0.0, lt=1.0)]
Category = str | int | bool
Bound = Annotated[float, Field(ge=-1e100, le=1e100)]


class Section(BaseModel):
    """A part of a study, without unknown keys or silent conversions. A field's description says what would be right."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    written: ClassVar[str] = ""
    """Its form in a study file, if the field has no description"""


class StudySection(Section):
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description='a name of letters, digits, dots, dashes and underscores, such as "heart"',
    )
    task: Task = Field(description='"classification", "regression" or "statistics"')


class GroupUnit(Section):
    group: Group


class Column(Section):
    """A column of a table: a number between public bounds, or a public category."""

    written = "{ min = …, max = … } or { categories = [ … ] }"
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
        """The number of features that the column becomes."""
        return 1 if self.categories is None else len(self.categories)


class DataSection(Section):
    """A table (columns) or a matrix (features), and its labels: classes, numbers within label_bounds, or none.

    `Study` fills in a norm and a constant if the file has none.
    """

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
                raise ValueError(f"is {shown(classes)}, but should name at least two classes")
        return classes

    @field_validator("label_bounds")
    @classmethod
    def _ascending(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"is {shown(bounds)}, but should have the smallest label first, below the largest")
        return bounds

    @field_validator("columns")
    @classmethod
    def _by_name(cls, columns: dict[str, Column] | None) -> dict[str, Column] | None:
        """Sort columns by name: files that differ only in the order of lines have the same digest and vectors."""
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
    def largest_norm(self) -> float:
        """The largest norm of a table's record, constant included: √(number of columns).

        A number is at most 1 in absolute value, and a category's indicators have norm 1.
        """
        return math.sqrt(len(self.columns or {}) + self.has_intercept)

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
        description="true or false (true: noise is drawn in trusted execution environments, unknown to its party)",
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
            raise ValueError("sets both enclaves and colluding; enclaves already exclude colluders, so remove one")
        return self


class MethodSection(BaseModel):
    """The method's name; its further keys are checked by the method itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = Field(description="the name of a method, in quotes")

    @property
    def own_keys(self) -> dict[str, Any]:
        """All keys but the name."""
        return dict(self.model_extra or {})


class SummationSection(BaseModel):
    """The protocol's name; its further keys are checked by the protocol itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    protocol: str = Field(DEFAULT_PROTOCOL, description=f'the name of a protocol, such as "{DEFAULT_PROTOCOL}"')


PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class RosterSection(Section):
    """The public keys of all who take part, 32 bytes each. Simulations make up their own."""

    parties: list[PublicKey] = Field(description="the parties' Ed25519 keys, a list of 64 hexadecimal digits each")
    coordinator: PublicKey = Field(description="the coordinator's X25519 key, 64 hexadecimal digits")
    helpers: list[PublicKey] = Field([], description="the helpers' X25519 keys, a list of 64 hexadecimal digits each")

    @model_validator(mode="after")
    def _distinct(self) -> RosterSection:
        everyone = [*self.parties, self.coordinator, *self.helpers]
        if len(set(everyone)) != len(everyone):
            raise ValueError("names a key twice; everyone needs a key of their own")
        return self


def _check_values(values: list[Category]) -> None:
    """Check that categories or classes are distinct and of one type, like a column of data."""
    if len({type(value) for value in values}) > 1:
        raise ValueError(f"is {shown(values)}, which mixes text with other values; write all as text")
    seen: set[str] = set()
    for value in values:
        written = str(value).strip()
        if written in seen:
            raise ValueError(f"has {shown(value)} twice; name each once")
        seen.add(written)
