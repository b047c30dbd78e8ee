"""The sections of a study file: their keys, and the values allowed."""

from __future__ import annotations

import math
import unicodedata
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from unspoken import defaults
from unspoken.study.columns import Bound, Category, Column, check_printable, check_range, check_values
from unspoken.study.explaining import StudyError, shown
from unspoken.study.section import Agreed, Section

LARGEST_COUNT = 10**9
"""The largest number of parties, and of records at a party: far below what arithmetic can hold"""
LARGEST_NORM = 1e6
LEAST_EPSILON = 1e-4
"""Below it, rounding errors in the trade-off of Gaussian noise are no longer small beside ε"""
LARGEST_EPSILON = 1000.0
MOST_ATTEMPTS = 100

Task = Literal["classification", "regression", "statistics"]
Group = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Share = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0.0, lt=1.0)]
Sha256 = Annotated[
    str | None,
    Field(pattern="^[0-9a-f]{64}$", description="the SHA-256 of the public records' file: 64 digits from 0 to f"),
]


class StudySection(Section):
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=100,  # files are named after it
        description='a name of letters (a to z), digits, dots, dashes and underscores, 100 at most, such as "heart"',
    )
    task: Task = Field(description='"classification", "regression" or "statistics"')


class GroupUnit(Section):
    group: Group


class DataSection(Section):
    """A table (columns) or a matrix (features), and its labels: classes, numbers within label_bounds, or none.

    `Study` fills in a norm and a constant if the file has none.
    """

    label: str | None = Field(None, min_length=1, description="the name of the label's column, in quotes")
    classes: list[Category] | Annotated[int, Field(ge=2)] | None = Field(
        None, description='all possible labels, such as ["no", "yes"], or for a matrix their number, 2 or more'
    )
    label_bounds: tuple[Bound, Bound] | None = Field(
        None,
        description="the smallest and the largest possible label (of a regression), publicly known, such as [0, 110]",
    )
    columns: dict[str, Column] | None = Field(
        None, description='for each column { min = …, max = … }, { categories = [ … ] } or "boolean"'
    )
    features: int | None = Field(None, ge=1, description="a matrix's number of columns, 1 or more")
    norm: float = Field(1.0, ge=1e-6, le=LARGEST_NORM, description="a number from 1e-6 to 1e6, such as 1.0")
    intercept: bool | None = Field(None, description="true or false")
    constant: float = Field(1.0, exclude=True)
    """What is appended to each record for the intercept: 1, or by the method's rule. It is not in files, as it follows
    from them."""
    public: Annotated[str | None, Agreed.NEVER] = Field(
        None, description="the file with public records, without labels: an NPZ file with X, or a table"
    )
    public_sha256: Annotated[Sha256, Agreed.IF_GIVEN] = None
    """What public records say counts, not where their file is."""

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
            check_values(classes)
            if len(classes) < 2:
                raise ValueError(f"is {shown(classes)}, but should name at least two classes")
        return classes

    @field_validator("label_bounds")
    @classmethod
    def _ascending(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None:
            check_range(*bounds, f"is {shown(bounds)}")
        return bounds

    @field_validator("columns", "label", mode="before")
    @classmethod
    def _printable(cls, named: Any) -> Any:
        check_printable(named if isinstance(named, dict) else [named])
        return named

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
        if self.public is None and self.public_sha256 is not None:
            raise ValueError("has public_sha256, but no public; name the file that has it, or remove it")
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

        A number is at most 1 in absolute value, and a category's indicators have norm 1. Where a missing value has a
        feature of its own, the column's other features are 0.
        """
        return math.sqrt(len(self.columns or {}) + self.has_intercept * self.constant**2)

    @property
    def class_names(self) -> list[Category]:
        """All labels, in the order of their numbers."""
        if self.classes is None:
            raise StudyError("[data] lacks classes: all possible labels")
        return list(range(self.classes)) if isinstance(self.classes, int) else self.classes


class PartiesSection(Section):
    count: int = Field(
        ge=1,
        le=LARGEST_COUNT,
        description="a whole number of parties, from 2 to 1000000000, or 1 with methods that need no others",
    )
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
    epsilon: float | None = Field(
        None, ge=LEAST_EPSILON, le=LARGEST_EPSILON, description="a number from 1e-4 to 1000, such as 1.0"
    )
    delta: float = Field(ge=1e-30, lt=1.0, description="a number from 1e-30 to below 1, such as 1e-5")
    unit: Literal["record", "party"] | GroupUnit = Field(
        "record", description='"record", "party" or { group = 5 } with a whole number of records, 1 or more'
    )
    colluding: Share = Field(0, description="a fraction from 0 to below 1 (as 0.5) or a whole number of parties")
    dropouts: Share = Field(0, description="a fraction from 0 to below 1 (as 0.05) or a whole number of parties")
    attempts: Annotated[int, Agreed.IF_GIVEN] = Field(
        1,
        ge=1,
        le=MOST_ATTEMPTS,
        description="a whole number from 1 to 100: how often a party may send its vector for one sum",
    )
    enclaves: Annotated[bool, Agreed.IF_GIVEN] = Field(
        False,
        description="true or false (true: trusted execution environments draw the noise, unknown even to its party)",
    )
    noise_multiplier: Annotated[float | None, Agreed.IF_GIVEN] = Field(
        None, gt=0.0, le=1e9, description="a number above 0, such as 1.0: the noise, in place of epsilon"
    )
    adjacency: Annotated[Literal["replace", "add-remove"], Agreed.IF_GIVEN] = Field(
        "replace", description='"replace" or "add-remove"'
    )

    @model_validator(mode="after")
    def _one_promise(self) -> PrivacySection:
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError("epsilon is missing; it should be a number from 1e-4 to 1000, such as 1.0")
        return self


class MethodSection(BaseModel):
    """The method's name; its further keys are checked by the method itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = Field(defaults.METHOD, description="the name of a method, in quotes")

    @property
    def own_keys(self) -> dict[str, Any]:
        """All keys but the name."""
        return dict(self.model_extra or {})


class SummationSection(BaseModel):
    """The protocol's name; its further keys are checked by the protocol itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    protocol: str = Field(defaults.PROTOCOL, description=f'the name of a protocol, such as "{defaults.PROTOCOL}"')


def _check_identity(key: str) -> str:
    """Refuse a key that is not a point of Ed25519's prime-order group: nobody can have made it."""
    from nacl.bindings import crypto_core_ed25519_is_valid_point

    if not crypto_core_ed25519_is_valid_point(bytes.fromhex(key)):
        raise ValueError(f"has {shown(key)}, which is no Ed25519 public key; ask its owner for the right one")
    return key


_DIGITS = "64 hexadecimal digits (0-9, a-f)"
PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), AfterValidator(_check_identity)]


class RosterSection(Section):
    """The public keys of all who take part, 32 bytes each. Simulations make up their own."""

    parties: list[PublicKey] = Field(description=f"the parties' Ed25519 keys, a list of {_DIGITS} each")
    coordinator: PublicKey = Field(description=f"the coordinator's Ed25519 key, {_DIGITS}")
    helpers: list[PublicKey] = Field([], description=f"the helpers' Ed25519 keys, a list of {_DIGITS} each")
    certificate: Annotated[str | None, Agreed.IF_GIVEN] = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description=f"the digest of the coordinator's TLS certificate, {_DIGITS}, from its card",
    )
    names: Annotated[dict[str, str], Agreed.IF_GIVEN] = Field(
        {}, description='names for people, each with its key: { "St Mary" = "ab12…" }'
    )

    @field_validator("names", mode="before")
    @classmethod
    def _printable(cls, names: Any) -> Any:
        given = names if isinstance(names, dict) else ()
        check_printable(given)
        if (odd := next((name for name in given if not is_plain(str(name))), None)) is not None:
            raise ValueError(f"has names.{shown(odd)}, but a name should have {PLAIN}; shorten or change it")
        return names

    @model_validator(mode="after")
    def _distinct(self) -> RosterSection:
        everyone = [*self.parties, self.coordinator, *self.helpers]
        seen: set[str] = set()
        for key in everyone:
            if key in seen:
                raise ValueError(f"has the key {key[:8]}… twice; everyone needs a key of their own")
            seen.add(key)
        if strangers := [name for name, key in self.names.items() if key not in everyone]:
            raise ValueError(f"has names.{strangers[0]!r} for a key that nobody in the roster has; remove it")
        return self

    def name_of(self, key: str) -> str:
        """The name of a key's owner, for people."""
        return next((name for name, known in self.names.items() if known == key), f"{key[:8]}…")

    def shown(self, key: str) -> str:
        """The name of a key's owner, and the key as it is compared."""
        return f"{self.name_of(key)} ({fingerprint(key)})"


PLAIN = "1 to 60 characters, no brackets, no two spaces in a row, and no space at its ends"


def is_plain(name: str) -> bool:
    """Whether a participant's name looks like nothing but a name where it is shown beside its key's digits.

    Whoever writes a study chooses the names in it. A longer one, or one with brackets, could show the digits of
    somebody who does not take part, on a line of their own.

    >>> is_plain("St Mary, Boston"), is_plain("St Mary (6998 edcf 1133 84af 0c55), Registry"), is_plain("St  Mary")
    (True, False, False)
    """
    brackets = any(unicodedata.category(character) in ("Ps", "Pe") for character in name)
    return 0 < len(name) <= 60 and " ".join(name.split()) == name and not brackets


def fingerprint(key: str) -> str:
    """The beginning of a public key, as people read it to each other: 80 bits, which nobody finds another key for.

    >>> fingerprint("6998edcf113384af0c5500112233445566778899aabbccddeeff001122334455")
    '6998 edcf 1133 84af 0c55'
    """
    return " ".join(key[place : place + 4] for place in range(0, 20, 4))
