"""The numbers that a request may carry. A party refuses requests with any others.

Parameters come from the coordinator, whom no party trusts. If they could make a party's arithmetic fail for one record
and not for its neighbour, the failure itself would be a bit about records, without noise. So a method states how many
numbers a request carries and their bounds. Within these bounds a party's arithmetic cannot fail, whatever its records
are. Other requests are refused before a record is looked at, with a message that does not depend on records.

An honest coordinator moves its own numbers into the bounds before it asks (`Parameters.nearest`). They are made of
released totals, so that costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unspoken.errors import UnspokenError
from unspoken.types import Floats, Integers

LARGEST_WEIGHT = 1e9
"""The largest allowed weight: no useful model has a larger one, and products of a few such numbers do not overflow."""


class Refused(UnspokenError):
    """A request that a party does not answer, whatever its records are."""

    exit_status = 4


@dataclass(frozen=True)
class Range:
    """`size` numbers between two bounds."""

    size: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"numbers from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Parameters:
    """The numbers that a request carries, one range after the other; without ranges it carries none."""

    ranges: tuple[Range, ...] = ()

    @property
    def size(self) -> int:
        return sum(part.size for part in self.ranges)

    def nearest(self, values: Floats) -> Floats:
        """The allowed numbers that are closest to these. NaN counts as 0.

        >>> Parameters((Range(2, -1.0, 1.0), Range(1, 0.5, 1.0))).nearest(np.array([np.inf, 0.3, np.nan])).tolist()
        [1.0, 0.3, 0.5]
        """
        allowed = np.where(np.isnan(values), 0.0, values)
        for part, place in self._places():
            np.clip(allowed[place], part.low, part.high, out=allowed[place])
        return allowed

    def check(self, name: str, values: Floats | None) -> None:
        """Refuse the request of this name unless it carries as many numbers as stated, within their bounds."""
        if values is None and not self.ranges:
            return
        is_shaped = isinstance(values, np.ndarray) and values.dtype == np.float64 and values.shape == (self.size,)
        if values is None or not (self.ranges and is_shaped):
            found = "no parameters" if values is None else f"parameters of shape {np.shape(values)}"
            expected = f"{self.size:,} numbers" if self.ranges else "none"
            raise Refused(f'the request for "{name}" carries {found}, but it should carry {expected}.')
        for part, place in self._places():
            given = values[place]
            # Written so that NaN is refused, too.
            wrong = ~((given >= part.low) & (given <= part.high))
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0])
                raise Refused(
                    f'the request for "{name}" has {given[first]:g} as parameter number {place.start + first}, but '
                    f"there should be {part}."
                )

    def _places(self) -> Iterator[tuple[Range, slice]]:
        start = 0
        for part in self.ranges:
            yield part, slice(start, start + part.size)
            start += part.size


NO_PARAMETERS = Parameters()


@dataclass(frozen=True)
class Indices:
    """The places that a request names: `size` whole numbers from 0 to below `below`; with `size` 0 it names none."""

    size: int = 0
    below: int = 0

    def check(self, name: str, values: Integers | None) -> None:
        """Refuse the request of this name unless it names as many places as it may, and existing ones."""
        if values is None and not self.size:
            return
        is_shaped = isinstance(values, np.ndarray) and values.dtype == np.int64 and values.shape == (self.size,)
        if values is None or not (self.size and is_shaped):
            found = "no places" if values is None else f"places of shape {np.shape(values)}"
            raise Refused(f'the request for "{name}" names {found}, but it should name {self.size or "none"}.')
        wrong = (values < 0) | (values >= self.below)
        if wrong.any():
            first = int(values[wrong][0])
            raise Refused(f'the request for "{name}" names the place {first}, but there are {self.below:,} only.')


NO_INDICES = Indices()


def weight_parameters(size: int) -> Parameters:
    """The weights of a model, as one flat vector."""
    return Parameters((Range(size, -LARGEST_WEIGHT, LARGEST_WEIGHT),))
