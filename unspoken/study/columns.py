"""The columns of a table: which values are possible, and what a missing one means. All of it is public knowledge."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from unspoken.study.explaining import shown
from unspoken.study.section import Agreed, Section

LARGEST_BOUND = 1e100
"""The largest absolute value of a bound; differences and squares of such bounds do not overflow"""
SMALLEST_RANGE = 1e-100
"""The least distance of two bounds: values are divided by it"""

Category = str | int | bool
Bound = Annotated[float, Field(ge=-LARGEST_BOUND, le=LARGEST_BOUND)]
Kind = Literal["number", "date", "boolean", "category"]

BOOLEAN = "boolean"
REFUSE, INDICATOR, OWN_CATEGORY = "refuse", "indicator", "category"
"""The words that `missing` may have besides a value"""
_FORMS = '{ min = …, max = … } for a number or { categories = [ … ] } for a category (a date: two days; or "boolean")'


class Column(Section):
    """A column of a table: a number or a day between public bounds, a public category, or true and false.

    A missing value is refused, unless `missing` says what it means: a public value that takes its place, or a feature
    of its own.
    """

    written = '{ min = …, max = … }, { categories = [ … ] } or "boolean"'
    min: Bound | date | None = Field(
        None,
        description="a number from -1e100 to 1e100, the smallest possible value, public (or a day, as 2019-01-31)",
    )
    max: Bound | date | None = Field(
        None,
        description="a number from -1e100 to 1e100, the largest possible value, public (or a day, as 2024-12-31)",
    )
    categories: list[Category] | None = Field(
        None, min_length=1, description='a list of all possible values, as text or whole numbers, such as ["f", "m"]'
    )
    other: Annotated[bool, Agreed.IF_GIVEN] = Field(
        False, description="true or false (true: all values that categories does not list are one)"
    )
    boolean: Annotated[bool, Agreed.IF_GIVEN] = Field(False, description="true: the values are true and false")
    missing: Annotated[Category | float | date | None, Agreed.IF_GIVEN] = Field(
        None, description='"refuse", "indicator" (of categories: "category"), or a value that takes its place'
    )

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, values: Any) -> Any:
        if values == BOOLEAN:
            return {"boolean": True}
        if isinstance(values, dict) and values.get("missing") == REFUSE and REFUSE not in _texts(values):
            return {key: value for key, value in values.items() if key != "missing"}
        return values

    @field_validator("min", "max", mode="before")
    @classmethod
    def _day(cls, bound: Any) -> Any:
        """A day may stand in quotes."""
        return (day_of(bound) or bound) if isinstance(bound, str) else bound

    @field_validator("categories")
    @classmethod
    def _distinct(cls, categories: list[Category] | None) -> list[Category] | None:
        check_values(categories or [])
        return categories

    @model_validator(mode="after")
    def _one_kind(self) -> Column:
        given = [key for key in ("min", "max", "categories") if getattr(self, key) is not None]
        given += ["boolean"] if self.boolean else []
        if given not in (["min", "max"], ["categories"], ["boolean"]):
            raise ValueError(f"has {' and '.join(given) or 'neither bounds nor categories'}, but should be {_FORMS}")
        if self.other and self.categories is None:
            raise ValueError("has other = true, but no categories; remove it")
        if self.min is not None and self.max is not None:
            if isinstance(self.min, date) != isinstance(self.max, date):
                raise ValueError(
                    f"has min = {shown(self.min)} and max = {shown(self.max)}, one a day, one a number; give two days "
                    "or two numbers"
                )
            check_range(self.low, self.high, f"has min = {self._bound(self.min)} and max = {self._bound(self.max)}")
        return self

    @model_validator(mode="after")
    def _known_missing(self) -> Column:
        """Check that `missing` is one of the words or a possible value."""
        if self.missing is None or self.has_missing_feature:
            if self.missing is not None and self.missing in (self.categories or []):
                raise ValueError(f"has missing = {shown(self.missing)}, which is a category, too; rename the category")
            return self
        possible, wanted = True, ""
        match self.kind:
            case "category":
                possible = str(self.missing).strip() in _texts({"categories": self.categories})
                wanted = f'one of its categories, "{OWN_CATEGORY}" (one of its own) or "{REFUSE}"'
            case "boolean":
                possible = isinstance(self.missing, bool)
                wanted = f'true, false, "{INDICATOR}" or "{REFUSE}"'
            case kind:
                value = self.fill
                possible = value is not None and self.low <= value <= self.high
                wanted = f'a {kind} from {self.min!s} to {self.max!s}, "{INDICATOR}" or "{REFUSE}"'
        if not possible:
            raise ValueError(f"has missing = {shown(self.missing)}, but should have {wanted}")
        return self

    @staticmethod
    def _bound(bound: float | date) -> str:
        return str(bound) if isinstance(bound, date) else f"{bound:.15g}"

    @property
    def kind(self) -> Kind:
        if self.categories is not None:
            return "category"
        if self.boolean:
            return "boolean"
        return "date" if isinstance(self.min, date) else "number"

    @property
    def low(self) -> float:
        """The smallest possible number; of days, their number since the first of January of year 1; false is 0."""
        return _number(self.min or 0.0)

    @property
    def high(self) -> float:
        return 1.0 if self.boolean else _number(self.max or 0.0)

    @property
    def has_missing_feature(self) -> bool:
        """Whether missing values have a feature of their own."""
        return self.missing == (INDICATOR if self.categories is None else OWN_CATEGORY)

    @property
    def fill(self) -> float | None:
        """The number that takes the place of a missing value (of a category, its position), if the study has one."""
        if self.missing is None or self.has_missing_feature:
            return None
        if self.categories is not None:
            return float(_texts({"categories": self.categories}).index(str(self.missing).strip()))
        given = day_of(self.missing) if self.kind == "date" else self.missing
        is_number = isinstance(given, date | int | float) and isinstance(given, bool) == self.boolean
        return _number(given) if is_number else None

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return 1 + self.has_missing_feature if self.categories is None else len(self.indicators)

    @property
    def indicators(self) -> list[str]:
        """The names of a category's features."""
        own = (["(other)"] if self.other else []) + (["(missing)"] if self.has_missing_feature else [])
        return [*map(str, self.categories or []), *own]

    def shown(self, number: float) -> str:
        """A number of the column as people write it.

        >>> Column(min=0, max=110).shown(0.5), Column(min=date(2019, 1, 1), max=date(2020, 1, 1)).shown(737060.0)
        ('0.5', '2019-01-01')
        """
        if self.kind == "date":
            return date.fromordinal(min(max(round(number), 1), date.max.toordinal())).isoformat()
        return f"{number:.6g}"


def day_of(value: Any) -> date | None:
    """The day of a date, of a time, or of a text that begins with one; None for anything else.

    >>> day_of("2019-01-31"), day_of("2019-01-31 12:00"), day_of("31.1.2019"), day_of(7)
    (datetime.date(2019, 1, 31), datetime.date(2019, 1, 31), None, None)
    """
    if isinstance(value, datetime):
        # pandas has times in years that Python has not.
        return value.date() if date.min.year <= value.year <= date.max.year else None
    if isinstance(value, date):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text[10:11] not in ("", "T", " ") or text[4:5] != "-" or len(text) < len("2019-01-31"):
        return None
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def check_range(low: float, high: float, given: str) -> None:
    """Check that two bounds are in order, and so far apart that values can be scaled by their distance."""
    if low > high:
        raise ValueError(f"{given}, but the smaller one should come first; swap them")
    if low == high:
        raise ValueError(f"{given}, which leaves one value only; widen the bounds")
    if high - low < SMALLEST_RANGE:
        raise ValueError(f"{given}, which are less than {SMALLEST_RANGE:g} apart; use a smaller unit")


def check_printable(names: Iterable[Any]) -> None:
    """Check that names and values can be shown to those who are asked to take part, and show nothing else."""
    for name in names:
        if isinstance(name, str) and not name.isprintable():
            raise ValueError(f"has {ascii(name)[:60]}, which cannot be shown as it is; write printable characters only")


def check_values(values: list[Category]) -> None:
    """Check that categories or classes are printable, distinct and of one type, like a column of data."""
    check_printable(values)
    if len({type(value) for value in values}) > 1:
        raise ValueError(f"is {shown(values)}, which mixes text with other values; write all as text")
    seen: set[str] = set()
    for value in values:
        written = str(value).strip()
        if written in seen:
            raise ValueError(f"has {shown(value)} twice; name each once")
        seen.add(written)


def _texts(values: dict[str, Any]) -> list[str]:
    """A column's categories as text."""
    categories = values.get("categories")
    return [str(value).strip() for value in categories] if isinstance(categories, list) else []


def _number(value: Any) -> float:
    return float(value.toordinal() if isinstance(value, date) else value)
