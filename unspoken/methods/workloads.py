"""Workloads: what a method computes from the parties' records.

A workload is a function of all records (`methods.functions`) or the training of a model (`methods.training`). It
declares its totals with their sensitivities, computes what a party contributes, and makes the release of the totals. It
knows nothing of noise. A method joins a workload with a noise mechanism and with a way to ask for the totals, so that
methods can be compared on the same workload:

    method       workload      noise mechanism     asks for
    moments      a function    noise shares        Sum
    cape         a function    correlated noise    Collect
    conv         a function    independent noise   Collect
    cross-silo   training      noise shares        Sum
    fedavg       training      noise shares        Sum
    fedsgd       training      in the steps        Collect
    local        either        independent noise   Collect
    central      either        curator's noise     Pool
    none         either        none                Pool; for training Collect
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from unspoken.data.block import Block
from unspoken.learners.public_directions import PublicDirections
from unspoken.methods.base import (
    Collect,
    Contribution,
    Conversation,
    Method,
    PartyContext,
    PartyRequest,
    Request,
    Sum,
    Total,
    release_of,
)
from unspoken.methods.parameters import NO_PARAMETERS, Parameters
from unspoken.methods.planning import DeclaredSum, Plan, make_plan
from unspoken.methods.planning.mechanisms import Mechanism
from unspoken.methods.releases import Release
from unspoken.study import Study
from unspoken.types import Floats


@dataclass(frozen=True)
class Query:
    """A total that a workload asks for, with the numbers that parties need for it."""

    name: str
    parameters: Floats | None = None
    turn: int = 0
    """The number of earlier queries of this name."""


OWN_FUNCTION = "own_function"
"""The entry of a plan's JSON that says that the study does not name its workload: somebody has given it"""
Requests = Generator[Request, Any, Total]
"""Makes the requests that answer one query."""
Asker = Callable[[Query], Requests]
"""A method's way to get a total."""


def answered_by(compute: Callable[[Query], Total]) -> Asker:
    """The way to ask someone who has all records: no request is made."""

    def ask(query: Query) -> Requests:
        yield from ()
        return compute(query)

    return ask


class Workload(ABC):
    """A computation on the parties' records, without its noise."""

    needs_every_party: ClassVar[bool] = False
    """Whether a result needs all parties. A function of one party's records is a result by itself."""
    assumptions: tuple[str, ...] = ()
    """Conditions of the sensitivity, in words that follow 'assumes that'"""
    may_end_early: bool = False
    """Whether `conclude` may ask for fewer totals than declared, by what it was told before"""
    directions: PublicDirections | None = None
    """The map that records went through before, set by the method when it asks for the release"""

    @abstractmethod
    def check_unit(self, study: Study) -> None:
        """Refuse a unit of privacy that the sensitivities do not cover."""

    @abstractmethod
    def sums(self, study: Study) -> tuple[DeclaredSum, ...]:
        """The totals, in the order in which they are asked for. The method chooses their noise."""

    def notes(self, noise: Mechanism, senders: int | None) -> tuple[str, ...]:
        """Notes for the plan. `senders` is the number of parties that are asked; None: all."""
        return ()

    def parameters(self, name: str, turn: int) -> Parameters:
        """The numbers that a query carries: none, unless the workload needs some."""
        return NO_PARAMETERS

    @abstractmethod
    def contribute(self, query: Query, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        """The contribution of each party of the block to a total."""

    @abstractmethod
    def conclude(self, ask: Asker) -> Conversation:
        """Ask for the totals, and make the release of them."""

    def check_coordinator(self) -> None:  # noqa: B027 (most workloads need nothing)
        """Refuse what only the coordinator needs, before anything is spent."""

    def exact_fit(self, records: Block) -> Release | None:
        """The model that `conclude` approximates, fitted to all records without noise, if there is one."""
        return None

    def ask_within_bounds(self, ask: Asker, query: Query) -> Generator[Request, Any, tuple[Floats, Total]]:
        """Ask with the allowed parameters that are nearest to the query's. Gives these parameters and the total."""
        allowed = self.parameters(query.name, query.turn).nearest(required_parameters(query.parameters))
        total = yield from ask(replace(query, parameters=allowed))
        return allowed, total


def required_parameters(parameters: Floats | None) -> Floats:
    """The parameters of a query that carries some."""
    if parameters is None:
        raise ValueError("Expected parameters with the request.")
    return parameters


class WorkloadMethod(Method):
    """A workload and the noise that makes it private."""

    def __init__(self, study: Study, workload: Workload | None = None) -> None:
        super().__init__(study)
        self._has_own = workload is not None
        self.workload = self.make_workload() if workload is None else workload
        self.check_unit()

    @abstractmethod
    def make_workload(self) -> Workload:
        """The workload that the study asks for."""

    @property
    @abstractmethod
    def noise(self) -> Mechanism:
        """The noise mechanism, not yet sized."""

    @property
    def senders(self) -> int | None:
        """The number of parties that are asked; None: all."""
        return None

    def check_unit(self) -> None:
        """Refuse a unit of privacy that the method cannot protect."""
        self.workload.check_unit(self.study)

    def sums(self) -> list[DeclaredSum]:
        """The workload's totals with the method's noise."""
        return [replace(declared, noise=self.noise) for declared in self.workload.sums(self.study)]

    def plan(self) -> Plan:
        notes = self.workload.notes(self.noise, self.senders)
        plan = make_plan(self.study, self.name, self.sums(), notes, assumptions=self.workload.assumptions)
        facts = {**plan.facts, **({OWN_FUNCTION: True} if self._has_own else {})}
        return replace(plan, senders=self.senders, may_end_early=self.workload.may_end_early, facts=facts)

    def parameters(self, request: PartyRequest) -> Parameters:
        return self.workload.parameters(request.name, request.turn)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        return self.workload.contribute(Query(request.name, request.parameters, request.turn), block, contexts)

    def request(self, query: Query) -> PartyRequest:
        """The request that gets a total: a secure sum if the noise is made for one, else messages."""
        kind = Sum if self.noise.summed else Collect
        return kind(query.name, query.parameters, query.turn)

    def ask(self, query: Query) -> Requests:
        """Get a total from the parties."""
        total: Total = yield self.request(query)
        return total

    def check_coordinator(self) -> None:
        self.workload.check_coordinator()

    def coordinate(self, plan: Plan) -> Conversation:
        return (yield from self.concluded(self.ask))

    def exact_release(self, records: Block) -> Release:
        def total(query: Query) -> Total:
            contribution = self.workload.contribute(query, records)
            return Total(contribution.noisy[0], contribution.exact[0], 1, 0.0)

        try:
            next(self.concluded(answered_by(total)))
        except StopIteration as end:
            return release_of(self, end)
        raise TypeError(f'Expected "{self.name}" to need nothing but totals.')

    def concluded(self, ask: Asker) -> Conversation:
        """The workload's release, which comes from answers of `ask`."""
        self.workload.directions = self.directions
        return (yield from self.workload.conclude(ask))
