"""A function of all parties' records that is a sum over records.

A function says what a party contributes, how far one record can move the total, and how the release is computed from
the noisy total. Parties of unequal size count in proportion to their records.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unspoken import defaults
from unspoken.data.block import Block
from unspoken.methods.base import Contribution, PartyContext
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.planning import DeclaredSum
from unspoken.methods.planning.mechanisms import Mechanism
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
    """A sum over records, and the release that its noisy total gives."""

    dimension: int
    sensitivity: float
    """The largest change of the total if one record is replaced, in L2 norm"""
    record_bound: float
    """The largest L2 norm of one record's contribution"""
    count = 1
    """The number of times that the total is asked for"""
    cautions: tuple[str, ...] = ()
    """Notes for the plan, on conditions of the promise"""
    preliminary: tuple[PreliminarySum, ...] = ()
    """Smaller totals that are asked for before, in this order"""

    def check_unit(self, study: Study) -> None:
        if study.group is None:
            other = f', or [method] name = "{defaults.PARTY_METHOD}"' if study.task == "classification" else ""
            problem = f'is "party", but "{study.method.name}" protects records; use "record" or {{ group = … }}{other}'
            raise study.error("privacy.unit", problem)

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
        before = [
            DeclaredSum(
                name=first.name,
                dimension=first.dimension,
                bound=first.record_bound * most,
                sensitivity=group * first.sensitivity,
                exact=own.exact,
                share=first.share,
            )
            for first in self.preliminary
        ]
        return *before, own

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
            rows = [self.preliminary_of(query, features[:count], labels[:count]) for features, labels, count in parties]
        return Contribution(np.stack(rows), block.counts[:, None])

    @abstractmethod
    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        """The function of one party's records."""

    def preliminary_of(self, query: Query, features: Floats, labels: Any) -> Floats:
        """One party's contribution to a preliminary sum."""
        raise NotImplementedError


class NamedFunction(Function):
    """A function that a study can name."""

    learns_mapped: ClassVar[bool] = False
    """Whether it can be learnt on mapped records: its release is a linear model, which is then mapped back"""
    uses: ClassVar[tuple[str, ...]] = ()
    """The keys of `FunctionOptions` that it uses; a study that gives others is refused"""

    @abstractmethod
    def __init__(self, study: Study, options: FunctionOptions) -> None:
        """Raises a `StudyError` if the study does not fit."""
