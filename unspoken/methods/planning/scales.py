"""Expresses noise in terms that people can judge: how many records it outweighs, and its share of what all records can
contribute.

Replacing one record moves a total by at most s in norm, so replacing k of them moves no number of it by more than k·s.
Noise of deviation σ in each number hides that while k·s < 2σ: fewer than 2σ/s records cannot be told from noise that is
exceeded about once in twenty times. All n records together can move a number by n·s at most, and by 2R if the total, or
what is released of it, has norm R at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspoken.methods.planning.plan import Plan
    from unspoken.methods.planning.sums import OtherRelease, PlannedSum

_SEEN = 2.0
"""The number of deviations from which on something is seen"""


@dataclass(frozen=True)
class Scale:
    """The noise in each number of a release, against what those who are protected could move it by."""

    release: str
    noise: float
    """The deviation of the noise in one number"""
    each: float
    """The most that one record (or one party, where these are protected) moves a number by"""
    among: float
    """The number of records (or parties) in the release, at least; with sampling, as expected"""
    who: str
    limit: float = math.inf
    """The most that any number of them can move a number by"""

    @property
    def seen_from(self) -> int:
        """The number of records that must agree for a number to stand out from its noise."""
        return max(1, math.ceil(_SEEN * self.noise / self.each))

    @property
    def share(self) -> float:
        """The noise as a share of the most that all of them could move a number by."""
        return self.noise / self.most

    @property
    def most(self) -> float:
        """The most that all of them could move a number by."""
        return min(self.among * self.each, self.limit)

    @property
    def drowns(self) -> bool:
        """Whether not even all of them together can be seen."""
        return self.seen_from > self.among or _SEEN * self.noise > self.limit

    def to_json(self) -> dict[str, Any]:
        return {
            "release": self.release,
            "unit": self.who,
            "among": self.among,
            "seen_from": self.seen_from,
            "noise_share": self.share,
        }

    def sentence(self) -> str:
        """The scale in words, for a row of its own."""
        all_of_them = f"{self.among:,.0f} {plural(self.who)}" if self.among != 1 else f"1 {self.who}"
        share = f"{100 * self.share:.2g}" if self.share < 0.995 else f"{100 * self.share:,.0f}"
        told = f"noise: {share} % of what {all_of_them} can change"
        if self.drowns:
            return f"{told}; not even all of them can be seen"
        if self.seen_from == 1:
            return f"{told}; even a change in one {self.who} can be seen"
        return f"{told}; changes in fewer than {self.seen_from:,} {plural(self.who)} do not stand out"


def plural(who: str) -> str:
    """
    >>> plural("record"), plural("party")
    ('records', 'parties')
    """
    return "parties" if who == "party" else f"{who}s"


def scales(plan: Plan) -> list[Scale]:
    """A scale for each release that has noise. Ballots have none: of these the method says which lead is enough."""
    found = [_of_sum(plan, planned) for planned in plan.sums if planned.noise_std and planned.classes is None]
    return found + [_of_release(plan, other) for other in plan.others if other.noise_std and other.sensitivity]


def _of_sum(plan: Plan, planned: PlannedSum) -> Scale:
    who, among = _protected(plan)
    if planned.sampling is not None:
        among *= planned.sampling.rate
    each = planned.sensitivity / (plan.study.group or 1)
    return Scale(planned.name, planned.total_std(plan.parties_asked), each, among, who, 2.0 * planned.longest)


def _of_release(plan: Plan, other: OtherRelease) -> Scale:
    who, among = _protected(plan)
    each = other.sensitivity / (plan.study.group or 1)
    return Scale(other.name, other.noise_std, each, among, who, 2.0 * other.longest)


def _protected(plan: Plan) -> tuple[str, float]:
    """The word for who is protected, and how many of these take part at least."""
    if plan.study.group is None:
        return "party", plan.parties_asked
    return "record", plan.parties_asked * plan.study.parties.records
