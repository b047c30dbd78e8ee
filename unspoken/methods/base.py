"""The interface of a method: a plan, the party's side, and the coordinator's side as a generator of requests.

An engine drives the generator, so the same method runs unchanged in one process or over a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from unspoken.data.block import Block
from unspoken.data.records import Records
from unspoken.learners.public_directions import PublicDirections
from unspoken.methods.parameters import NO_INDICES, NO_PARAMETERS, Indices, Parameters, Refused
from unspoken.methods.planning import Plan
from unspoken.methods.planning.directions import directions_of, with_notes
from unspoken.methods.releases import Release
from unspoken.noise.stream import SecretStream
from unspoken.study import Description, Study
from unspoken.study.explaining import shown
from unspoken.types import Flags, Floats, Integers


class AnyRequest:
    """The facts that every request says of itself."""

    described: ClassVar[str]
    """The words for what is asked for"""
    name: str
    """The name of what is asked for"""

    @property
    def counted_as(self) -> str:
        """The name under which the turns of such requests are counted."""
        return self.name


@dataclass(frozen=True)
class _FromRecords(AnyRequest):
    """A request that parties answer with what they compute from their records."""

    name: str
    parameters: Floats | None = None
    """Numbers that parties need for their contribution, such as the model so far"""
    turn: int = 0
    """The number of earlier requests of this name"""
    indices: Integers | None = None
    """The places of the public records that the request is about"""


@dataclass(frozen=True)
class Sum(_FromRecords):
    """A request: the sum of every party's contribution. Only the total is revealed."""

    described = "secure sum"


@dataclass(frozen=True)
class Vote(_FromRecords):
    """A request: every party's ballots. Only the winning class of each query is revealed. The answer is a `Total` whose
    exact numbers are the winners."""

    described = "vote"


@dataclass(frozen=True)
class Tokens(AnyRequest):
    """A request: a shuffled list with a token for each record, for one round. A party knows the places of its own
    tokens and nobody else's, and keeps them; the answer is a `Total` without numbers."""

    described = "list of tokens"
    turn: int = 0
    name: str = "tokens"


@dataclass(frozen=True)
class ZeroSum(AnyRequest):
    """A request: the parties draw common noise (CAPE) for the named messages, for all turns at once, and only its sum
    becomes known. This needs no records, so it can be done long before the messages. The answer is a `Total` without
    numbers."""

    described = "sum of noise"
    name: str
    turn: int = 0

    @property
    def counted_as(self) -> str:
        return f"{self.name}/common-noise"


@dataclass(frozen=True)
class Collect(_FromRecords):
    """A request: every party's message, private on its own; the total of the messages is the answer."""

    described = "message in the open"
    only: int | None = None
    """The one party that is asked; None: all."""


@dataclass(frozen=True)
class Cancel(AnyRequest):
    """A request: all who sent a message in this turn add up its common noise, in a secure sum. The answer is the total
    of their messages minus that noise. The message of a party that is not in the sum is left out of the total."""

    described = "sum of the noise of messages"
    name: str
    turn: int = 0
    messages: Collect | None = field(default=None, compare=False)
    """The request for the messages. If the sum fails, it must be made again, because a message's noise is summed only
    once"""

    @property
    def counted_as(self) -> str:
        return f"{self.name}/noise"


@dataclass(frozen=True)
class Pool(AnyRequest):
    """A request: all records in one place. For baselines in simulations: no network engine answers it."""

    described = "list of all records"
    turn: int = 0
    name: str = "records"


PartyRequest = Sum | Vote | Collect
"""The requests that a party answers with a contribution"""
Request = PartyRequest | ZeroSum | Cancel | Tokens | Pool


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


NONE_FAILED: Mapping[str, int] = MappingProxyType({})
Answer = Total | Block
Conversation = Generator[Request, Any, Release]


@dataclass(frozen=True)
class TokenPositions:
    """A party's knowledge of a list of tokens, which tells it which of its own records are in a batch."""

    places: Integers
    """The places of its own records' tokens"""
    count: int
    """The number of all tokens"""
    seed: int
    """The seed of the batch, which nobody knew or could choose before the list was fixed"""


@dataclass(frozen=True)
class PartyContext:
    """A party's own randomness and knowledge in one turn, which nobody else has."""

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


@dataclass(frozen=True)
class Trials:
    """How settings are tried on public records."""

    epsilons: tuple[float, ...]
    split: str = "iid"
    """The split of records over parties"""
    repeats: int = 3
    """The number of random splits of the records into a training part and a test part"""
    seed: int = 0


Settings = Mapping[str, Mapping[str, float | None]]
"""Keys by the sections of a study file. None: the key is left out."""


@dataclass(frozen=True)
class Choice:
    """The settings of a method that served best for one ε, on public records."""

    epsilon: float
    settings: Settings
    accuracy: float
    """With the study's noise: mean over splits and draws"""
    deviation: float | None
    """Of the splits' accuracies; None if there is one split"""
    tried: int
    """The number of candidates"""

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "settings": {section: dict(keys) for section, keys in self.settings.items()},
            "public_accuracy": self.accuracy,
            "deviation": self.deviation,
            "tried": self.tried,
        }


def check_parties(study: Study, kind: Description) -> None:
    """Refuse fewer parties than the method needs, and what has no meaning where there is only one."""
    if study.parties.count < kind.fewest_parties:
        needs = f'"{kind.name}" needs {kind.fewest_parties} or more'
        raise study.error("parties.count", f"is {study.parties.count}, but {needs}; have more parties")
    if study.parties.count > 1:
        return
    for key, nobody in (
        ("colluding", "collude with"),
        ("dropouts", "go on without it"),
        ("enclaves", "hide noise from"),
    ):
        if getattr(study.privacy, key):
            problem = (
                f"is {shown(getattr(study.privacy, key))}, but with one party there is nobody to {nobody}; remove it"
            )
            raise study.error(f"privacy.{key}", problem)
    if study.group is None:
        raise study.error(
            "privacy.unit",
            'is "party", but the only party has all records, and a result that hides all of them says nothing; use '
            '"record" or { group = … }',
        )


class Method(Description, ABC):
    """One of the published systems, set up for a study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        if study.task not in self.tasks:
            able = " and ".join(self.tasks)
            raise study.error("study.task", f'is "{study.task}", but "{self.name}" is for {able} only')
        check_parties(study, self)

    @abstractmethod
    def plan(self) -> Plan:
        """Make the plan, without data: all that will be released, and what it promises. Others use `agreed_plan`."""

    @cached_property
    def directions(self) -> PublicDirections | None:
        """The map that bounded records go through before the method sees them; the release is mapped back. There is
        none unless the model is linear and the study has public records."""
        if self.study.data.public is None or not self.learns_directions(self.study):
            return None
        return directions_of(self.study, self.agreed_plan)

    @cached_property
    def agreed_plan(self) -> Plan:
        """The plan that everybody uses: `plan`, made once, with notes on the study's public records."""
        plan = self.plan()
        if not isinstance(plan, Plan):
            raise TypeError(f'Expected plan of "{self.name}" to return a Plan, got {plan!r}.')
        return with_notes(plan, self.learns_directions(self.study), self.votes_on_public)

    def exact_release(self, records: Block) -> Release:
        """What it would release of these records, all in one place and without noise, if it `knows_exact`."""
        raise TypeError(f'Expected "{self.name}" to say what it would release without noise.')

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

    @classmethod
    def tuned(cls, study: Study, public: Records, trials: Trials) -> list[Choice]:
        """The settings that serve best for each ε, chosen on public labelled records alone."""
        raise study.error(
            "method.name", f'is "{cls.name}", which has no settings to choose on public records; use it as it is'
        )

    def check_coordinator(self) -> None:
        """Refuse what only the coordinator needs, such as a file that is missing, before anything is spent. Parties
        plan without it."""

    def check_analysis(self) -> None:
        """Refuse a private analysis before a run, if there can be none after it."""
        raise self.study.error("method.name", f'is "{self.name}", which has no private analysis; ask for none')

    def analysis(
        self,
        plan: Plan,
        blocks: Iterable[tuple[Integers, Block]],
        counted: Mapping[str, Flags],
        failed: Mapping[str, int] = NONE_FAILED,
    ) -> dict[str, float | str]:
        """The privacy cost of a release on these very records, which is itself secret.

        `counted` has, for each sum, a flag for each party: whether its contribution is in it. `failed` has the number
        of attempts at each sum that gave no total after vectors had left.
        """
        raise NotImplementedError


def release_of(method: Method, ended: StopIteration) -> Release:
    """The release that the coordinator's side of a method returned, for records as they were before any map."""
    release = ended.value
    if not isinstance(release, Release):
        raise TypeError(f'Expected coordinate of "{method.name}" to return a Release, got {release!r}.')
    return release if method.directions is None else release.mapped_back(method.directions)


class PooledMethod(Method):
    """A baseline that has all records in one place: it asks for `Pool`, and parties contribute nothing else."""

    fewest_parties = 1
    secrets: SecretStream | None = None
    """The randomness of its noise: the system's, unless a test sets it"""

    @classmethod
    def computes(cls, study: Study) -> str:
        return "logistic-regression" if study.task == "classification" else "linear-regression"

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        raise NotImplementedError("nothing is summed: all records are in one place")
