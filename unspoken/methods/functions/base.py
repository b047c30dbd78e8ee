"""A function of all parties' records that is a sum over records.

A function says what a party contributes, how far one record can move the total, and what is made of the noisy total.
Parties of unequal size count by their records.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.data.block import Block
from unspoken.methods.base import Contribution, PartyContext
from unspoken.methods.mechanisms import Mechanism
from unspoken.methods.plan import DeclaredSum
from unspoken.methods.workloads import Query, Workload
from unspoken.study import Study
from unspoken.types import Floats

NAME = "function"
"""The name of a function's total in a plan"""


@dataclass(frozen=True)
class PreliminarySum:
    """A smaller total that is asked for before the function's own."""

    name: str
    dimension: int
    sensitivity: float
    record_bound: float
    share: float
    """The weight of this sum when μ² is divided; the function's own total has weight 1."""


class Function(Workload):
    """A sum over records, and what is made of its noisy total."""

    dimension: int
    sensitivity: float
    """The largest change of the total if one record is replaced, in L2 norm"""
    record_bound: float
    """The largest L2 norm of one record's contribution"""
    count = 1
    """The number of times that the total is asked for"""
    cautions: tuple[str, ...] = ()
    """Remarks for a careful reader of the promise"""
    preliminary: PreliminarySum | None = None

    def check_unit(self, study: Study) -> None:
        if study.group is None:
            raise study.error(
                "privacy.unit",
                f'is "party", but "{study.method.name}" protects records; use "record" or {{ group = … }}',
            )

    def bound(self, records: int) -> float:
        """The largest L2 norm of the contribution of a party with so many records."""
        return self.record_bound * records

    def sums(self, study: Study) -> tuple[DeclaredSum, ...]:
        most, group = study.parties.max_records, study.group or 1
        own = DeclaredSum(
            name=NAME,
            dimension=self.dimension,
            bound=self.bound(most),
            sensitivity=group * self.sensitivity,
            exact=("records",),
            count=self.count,
        )
        if (first := self.preliminary) is None:
            return (own,)
        before = DeclaredSum(
            name=first.name,
            dimension=first.dimension,
            bound=first.record_bound * most,
            sensitivity=group * first.sensitivity,
            exact=own.exact,
            share=first.share,
        )
        return before, own

    def notes(self, noise: Mechanism, senders: int | None) -> tuple[str, ...]:
        if senders == 1:
            known = "only the first party takes part, and how many records it has becomes known"
        elif noise.in_the_open:
            known = "how many records each party has becomes known"
        else:
            known = "the total number of records becomes known; how many each party has is not part of the promise"
        return known, *self.cautions

    def contribute(self, query: Query, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        parties = zip(block.features, block.labels, block.counts, strict=True)
        if query.name == NAME:
            rows = [self.of(features[:count], labels[:count], query.parameters) for features, labels, count in parties]
        else:
            rows = [self.preliminary_of(features[:count]) for features, _, count in parties]
        return Contribution(np.stack(rows), block.counts[:, None])

    @abstractmethod
    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        """The function of one party's records."""

    def preliminary_of(self, features: Floats) -> Floats:
        """One party's contribution to the preliminary sum."""
        raise NotImplementedError
