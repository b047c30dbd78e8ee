"""The interface of a method: a plan, the party's side, and the coordinator's side as a generator of requests.

An engine drives the generator, so the same method runs unchanged in one process or over a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unspoken.data.block import Block
from unspoken.methods.parameters import NO_INDICES, NO_PARAMETERS, Indices, Parameters, Refused
from unspoken.methods.plan import Plan
from unspoken.methods.releases import Release
from unspoken.noise.stream import SecretStream
from unspoken.study import Description, Study
from unspoken.types import Flags, Floats, Integers


@dataclass(frozen=True)
class Sum:
    """A request: every party's contribution to the named sum, of which only the total is revealed."""

    name: str
    parameters: Floats | None = None
    """Numbers that parties need for their contribution, such as the model so far"""
    turn: int = 0
    """The number of earlier requests of this name"""
    indices: Integers | None = None
    """The places of the public records that the request is about"""


@dataclass(frozen=True)
class Vote:
    """A request: every party's ballots, of which only the winning class of each query is revealed. The answer is a
    `Total` whose exact numbers are the winners."""

    name: str
    parameters: Floats | None = None
    turn: int = 0
    indices: Integers | None = None


@dataclass(frozen=True)
class Tokens:
    """A request: a list with a token for each record, in which a party knows its own and nobody else's, for one round.
    Parties keep what they were dealt; the answer is a `Total` without numbers."""

    turn: int = 0


@dataclass(frozen=True)
class ZeroSum:
    """A request: noise for the named messages, for all their turns, of which parties learn the sum. It needs no data,
    so it can be made long before them. The answer is a `Total` without numbers."""

    name: str


@dataclass(frozen=True)
class Collect:
    """A request: every party's message, private on its own; the total of the messages is the answer."""

    name: str
    parameters: Floats | None = None
    turn: int = 0
    indices: Integers | None = None
    only: int | None = None
    """The one party that is asked; None: all."""


@dataclass(frozen=True)
class Pool:
    """A request: all records in one place. For baselines in simulations: no network engine answers it."""


PartyRequest = Sum | Vote | Collect
"""The requests that a party answers with a contribution"""
Request = PartyRequest | ZeroSum | Tokens | Pool


@dataclass(frozen=True)
class Total:
    """The answer to a request."""

    noisy: Floats
    """The total under noise"""
    exact: Integers
    """The total of the coordinates without noise"""
    survivors: int
    """The number of parties in the total"""
    noise_std: float
    """The standard deviation of all the noise in the total"""


Answer = Total | Block
Conversation = Generator[Request, Any, Release]


@dataclass(frozen=True)
class TokenPositions:
    """A party's knowledge of a list of tokens, from which it finds out which of its own records are in a batch."""

    places: Integers
    """The places of its own records' tokens"""
    count: int
    """The number of all tokens"""
    seed: int
    """The seed of the batch, which nobody knew or could choose before the list was fixed"""


@dataclass(frozen=True)
class PartyContext:
    """The private means of a party in one turn."""

    secrets: SecretStream
    """The party's own randomness, for sampling"""
    positions: TokenPositions | None = None
    """The party's places in the round's list of tokens, if there is one"""


@dataclass(frozen=True)
class Contribution:
    """The vectors that the parties of a block put into a sum, one row each."""

    noisy: Floats
    """(B, dimension): numbers that will be rounded, noised and masked"""
    exact: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """(B, number of exact coordinates): whole numbers that will be masked only (or sent in the open, in a message).
    Left out if the sum has none."""

    def __post_init__(self) -> None:
        if not self.exact.size:
            object.__setattr__(self, "exact", np.empty((len(self.noisy), 0), dtype=np.int64))


class Method(Description, ABC):
    """One of the published systems, set up for a study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        if study.task not in self.tasks:
            able = " and ".join(self.tasks)
            raise study.error("study.task", f'is "{study.task}", but "{self.name}" is for {able} only')

    @abstractmethod
    def plan(self) -> Plan:
        """The plan, made without data: all that will be released, and what it promises."""

    def parameters(self, request: PartyRequest) -> Parameters:
        """The numbers that this request may carry. By default none."""
        return NO_PARAMETERS

    def indices(self, request: PartyRequest) -> Indices:
        """The places that this request may name. By default none."""
        return NO_INDICES

    def check(self, request: PartyRequest, turn: int) -> None:
        """Refuse a request that the method would not make: the party's first step, before it looks at its records.

        `turn` is the number of earlier requests of this name, by the party's own count.
        """
        if request.turn != turn:
            raise Refused(f'the request for "{request.name}" says that it is turn {request.turn}, but it is {turn}.')
        self.parameters(request).check(request.name, request.parameters)
        self.indices(request).check(request.name, request.indices)

    @abstractmethod
    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        """The party's side, for each party of the block, once the request was checked.

        It never fails because of what is in the records, and gives finite numbers for all of them.
        """

    @abstractmethod
    def coordinate(self, plan: Plan) -> Conversation:
        """The coordinator's side: yields requests, goes on with the answers, and returns the release."""

    def check_analysis(self) -> None:
        """Refuse a private analysis before a run, if there can be none after it."""
        raise self.study.error("method.name", f'is "{self.name}", which has no private analysis; leave it out')

    def analysis(
        self, plan: Plan, blocks: Iterable[tuple[Integers, Block]], counted: Mapping[str, Flags]
    ) -> dict[str, float | str]:
        """The price of a release on these very records, which is a secret. `counted` says, for each sum, whose
        contributions are in it."""
        raise NotImplementedError


def release_of(method: Method, ended: StopIteration) -> Release:
    """The release that the coordinator's side of a method returned."""
    release = ended.value
    if not isinstance(release, Release):
        raise TypeError(f'Expected coordinate of "{method.name}" to return a Release, got {release!r}.')
    return release


class PooledMethod(Method):
    """A baseline that has all records in one place: it asks for `Pool`, and parties contribute nothing else."""

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        raise NotImplementedError("nothing is summed: all records are in one place")
