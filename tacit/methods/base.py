"""How a method is written: a plan, the party's side, and the coordinator's side as a generator of requests.

An engine drives the generator, so the same method runs unchanged in one process or over a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal

from tacit.data.block import Block
from tacit.methods.plan import Plan
from tacit.study import Study
from tacit.types import Floats, Integers


@dataclass(frozen=True)
class Sum:
    """A request: every party's contribution to the named sum, of which only the total is revealed."""

    name: str


@dataclass(frozen=True)
class Total:
    """The answer: the noisy total, the exact totals, and how many parties are in them."""

    noisy: Floats
    exact: Integers
    survivors: int


@dataclass(frozen=True)
class Contribution:
    """What the parties of a block put into a sum: one row each."""

    noisy: Floats
    """(B, dimension): will be rounded, noised and masked."""
    exact: Integers
    """(B, number of exact coordinates): will be masked only."""


@dataclass(frozen=True)
class Release:
    """What becomes public: a linear model, one row of weights an output (see `report.model`)."""

    weights: Floats
    probabilities: Literal["softmax", "sigmoid"] | None
    """How scores become probabilities, if they do: together, or each for itself"""
    details: dict[str, Any]


class Method(ABC):
    """One of the published systems, set up for a study."""

    name: str

    def __init__(self, study: Study) -> None:
        self.study = study

    @abstractmethod
    def plan(self) -> Plan:
        """What will happen, and what it promises: no data needed."""

    @abstractmethod
    def contribute(self, request: Sum, block: Block) -> Contribution:
        """The party's side, for each party of the block."""

    @abstractmethod
    def coordinate(self, plan: Plan) -> Generator[Sum, Total, Release]:
        """The coordinator's side: asks, and goes on with the answer."""
