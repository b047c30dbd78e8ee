"""Remarks on values that lie outside their bounds: of which columns, and of which parties. For the holder only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspoken.data.checking import LISTED, MANY
from unspoken.data.columns import percent
from unspoken.types import Flags, Integers

_MOST = 0.5
"""The share of a party's own values above which the party is named"""


@dataclass(frozen=True)
class Holders:
    """The party of each record, and how messages name the parties."""

    parties: Integers
    names: Sequence[str]

    @classmethod
    def of(cls, parties: Integers, groups: npt.ArrayLike | None) -> Holders | None:
        """Parties by their names, in whose order they are numbered; None if nobody names them."""
        if groups is None:
            return None
        return cls(parties, [f"party {str(name)!r}" for name in np.unique(np.asarray(groups)).tolist()])

    def mostly(self, flags: Flags) -> set[int]:
        """The parties most of whose values are so."""
        sizes = np.bincount(self.parties, minlength=len(self.names))
        counts = np.bincount(self.parties[flags], minlength=len(self.names))
        return set(np.flatnonzero(counts > _MOST * sizes).tolist())


@dataclass(frozen=True)
class Clipped:
    """Which values of a column, a feature or the labels are clipped to their bounds."""

    what: str
    flags: Flags
    bounds: str


def on_clipped(found: Sequence[Clipped], holders: Holders | None, whose: str, remedy: str) -> Iterator[str]:
    """Remarks on columns of which many values are clipped, or most values of one party; of many, one remark."""
    told = []
    for each in found:
        share = float(each.flags.mean())
        culprits = set() if holders is None else holders.mostly(each.flags)
        if share >= MANY or culprits:
            told.append((each, share, culprits))
    if len(told) > LISTED:
        shares = [share for _, share, _ in told]
        culprits = set[int]().union(*(some for _, _, some in told))
        low, high = percent(min(shares)), percent(max(shares))
        yield (
            f"{', '.join(each.what for each, _, _ in told[:LISTED])} and {len(told) - LISTED:,} more: "
            f"{low if low == high else f'{low} to {high}'} of the values{_named(holders, culprits)} lie outside "
            f"{whose} and are clipped to them; {remedy}"
        )
        return
    for each, share, culprits in told:
        yield (
            f"{each.what}: {percent(share)} of the values{_named(holders, culprits)} lie outside {whose} "
            f"{each.bounds} and are clipped to them; {remedy}"
        )


def _named(holders: Holders | None, culprits: set[int]) -> str:
    """Whose values most of all are outside, unless they are everyone's."""
    if holders is None or not culprits or len(culprits) == len(holders.names):
        return ""
    first = holders.names[min(culprits)]
    if len(culprits) == 1:
        return f", and most of those of {first} (perhaps in another unit),"
    many = f"{len(culprits):,} of {len(holders.names):,} parties"
    return f", and most of those of {many}, such as {first} (perhaps in another unit),"
