"""Cross-silo private SGD: the noise of a trusted curator without a curator (Heikkilä et al.).

In each round the coordinator sends the weights; every party clips its examples' gradients on its random share of the
batch, adds its share of the noise, and takes part in a secure sum; the coordinator makes a step of the optimiser. A
party with an empty share sends noise like any other. Against the paper: noise shares are sized for the honest survivors
(ERRATA 3.2), it is integer noise after rounding (3.3), batches without replacement are accounted for as
`privacy.subsampled` says, and they take a fresh list of tokens each (see `summation.record_shuffle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from unspoken.data.block import Block
from unspoken.learners.projected_gradients import BeforeProjection, Plain, Projection, after_projection
from unspoken.methods.base import (
    Contribution,
    Conversation,
    Method,
    PartyContext,
    PartyRequest,
    Request,
    Sum,
    TokenPositions,
    Tokens,
)
from unspoken.methods.mechanisms import Mechanism, NoiseShares
from unspoken.methods.parameters import Parameters, weights_within_bounds
from unspoken.methods.plan import DeclaredSum, Plan, RecordSampling
from unspoken.methods.planning import make_sampled_plan, trust_of
from unspoken.methods.releases import TorchWeights
from unspoken.noise.stream import SecretStream
from unspoken.privacy.subsampled import effective_rate, largest_rate
from unspoken.study import Section, Study, Template
from unspoken.summation.mixnet import onion_bytes
from unspoken.types import Flags, Floats, Integers

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel


def _positive(sizes: list[int]) -> list[int]:
    if any(size < 1 for size in sizes):
        raise ValueError(f"is {sizes}, but should list sizes of 1 or more")
    return sizes


Sizes = Annotated[list[int], AfterValidator(_positive)]
"""Of hidden layers"""


class TrainingOptions(Section):
    """The keys of [method] that say what is trained, and how."""

    model: str = Field("linear", description='"linear", "mlp", "cnn" or "package.module:Class"')
    hidden: Sizes = Field([], description="the sizes of hidden layers (of mlp and cnn), such as [64]")
    rounds: int = Field(100, ge=1, le=10**6, description="the number of rounds, 1 or more")
    rate: float = Field(
        0.1, gt=0.0, le=1.0, description="the expected share of all records in a batch, above 0 and at most 1"
    )
    clip: float = Field(1.0, gt=0.0, le=1e6, description="the largest norm of an example's gradient, above 0")
    optimizer: Literal["sgd", "adam"] = Field("sgd", description='"sgd" or "adam"')
    learning_rate: float | None = Field(None, gt=0.0, description="the step size, above 0, such as 0.5")
    momentum: float = Field(0.0, ge=0.0, lt=1.0, description="of sgd, from 0 to below 1")
    seed: int = Field(0, ge=0, description="a whole number: the public seed of the first weights")

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> Self:
        if self.hidden and self.model == "linear":
            raise ValueError('has hidden layers, but model = "linear" has none; use model = "mlp", or remove hidden')
        if self.momentum > 0.0 and self.optimizer == "adam":
            raise ValueError('has momentum, which is of optimizer = "sgd"; "adam" has its own: remove it')
        return self


class Options(TrainingOptions):
    """The keys of [method] for cross-silo."""

    sampling: Literal["poisson", "without-replacement"] = Field(
        "poisson", description='"poisson" or "without-replacement"'
    )
    projection: int | None = Field(None, ge=1, description="to how many numbers gradients are projected, 1 or more")
    projection_kind: Literal["structured", "gaussian"] = Field(
        "structured", description='"structured" (clips after the projection) or "gaussian" (the paper\'s, clips before)'
    )

    @model_validator(mode="after")
    def _kind_of_something(self) -> Self:
        if self.projection is None and "projection_kind" in self.model_fields_set:
            raise ValueError("has projection_kind, but no projection; say to how many numbers, or remove it")
        return self


_SLACK = 0.01
"""Which part of δ goes into the slack of batches without replacement, and of Gaussian projections"""


def model_for(study: Study, options: TrainingOptions) -> TorchModel:
    """The study's PyTorch model."""
    from unspoken.learners.torch_models import TorchModel
    from unspoken.learners.torch_modules import ModelError

    regression = study.task == "regression"
    outputs = 1 if regression else len(study.data.class_names)
    loss: Literal["cross-entropy", "squares"] = "squares" if regression else "cross-entropy"
    try:
        return TorchModel(options.model, study.data.dimension, outputs, loss, options.hidden, options.seed)
    except ModelError as error:
        raise study.error("method.model", f'is "{options.model}", which {error.problem}') from None


class Optimizer:
    """SGD with momentum, or Adam: steps on flat weights."""

    def __init__(self, options: TrainingOptions, size: int) -> None:
        self._options = options
        self._rate = options.learning_rate or (0.5 if options.optimizer == "sgd" else 0.01)
        self._first, self._second, self._count = np.zeros(size), np.zeros(size), 0

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        if self._options.optimizer == "sgd":
            self._first = self._options.momentum * self._first + gradient
            return weights - self._rate * self._first
        self._count += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        first = self._first / (1.0 - 0.9**self._count)
        second = self._second / (1.0 - 0.999**self._count)
        moved: Floats = weights - self._rate * first / (np.sqrt(second) + 1e-8)
        return moved


def poisson_sample(count: int, rate: float, secrets: SecretStream) -> Flags:
    """Each record with the same chance, for itself, up to 2⁻⁶³."""
    if rate >= 1.0:
        return np.ones(count, dtype=np.bool_)
    return np.asarray(secrets.words(count) >> np.uint64(1) < np.uint64(int(rate * 2.0**63)))


class TrainingMethod(Method):
    """Trains a PyTorch model in rounds. Gradients or updates are clipped, so records need no bound."""

    tasks = ("classification", "regression")
    keys: ClassVar[type[Section]] = TrainingOptions

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        return False


class CrossSilo(TrainingMethod):
    """DP-SGD over parties, by secure sums."""

    name = "cross-silo"
    summary = 'private SGD of any PyTorch model, by secure sums (needs the extra "torch")'
    keys: ClassVar[type[Section]] = Options
    template: ClassVar[Template] = dict.fromkeys(
        ("classification", "regression"),
        """\
model = "linear"              # or "mlp" (with hidden = [64]), "cnn", or a torch module as "package.module:Class"
rounds = 100                  # more rounds: more steps, each under more noise
rate = 0.1                    # the expected share of all records in a round's batch
clip = 1.0                    # the largest norm of an example's gradient
optimizer = "sgd"             # or "adam"
learning_rate = 0.5
""",
    )
    noise: Mechanism = NoiseShares()
    samplings: tuple[str, ...] = ("poisson", "without-replacement")

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        if study.group != 1:
            raise study.error(
                "privacy.unit", f'should be "record" with "{self.name}": sampling protects single records'
            )
        self.options = self.read_options()
        if self.options.sampling not in self.samplings:
            raise study.error(
                "method.sampling", f'is "{self.options.sampling}", but "{self.name}" samples by "poisson" only'
            )
        self.model = model_for(study, self.options)
        self.projection = self._make_projection()

    def read_options(self) -> Options:
        return self.study.options("method", Options)

    def _make_projection(self) -> Projection:
        size, seed = self.options.projection, self.options.seed
        if size is None:
            return Plain(self.model, self.options.clip)
        if size > self.model.size:
            raise self.study.error("method.projection", f"is {size}, but the model has {self.model.size} weights only")
        if self.options.projection_kind == "gaussian":
            allowed = _SLACK * self.study.privacy.delta / (2 * self.options.rounds)
            return BeforeProjection(self.model, self.options.clip, size, seed, allowed)
        return after_projection(self.model, self.options.clip, size, seed)

    @property
    def expected_batch(self) -> float:
        """By the public number of records: what a step divides the sum of gradients by."""
        return self.options.rate * self.study.parties.count * self.study.parties.records

    def sampling(self) -> RecordSampling:
        """How records get into a round's batch."""
        rounds, slack = self.options.rounds, self.projection.slack * 2 * self.options.rounds
        if self.options.sampling == "poisson":
            return RecordSampling(self.options.rate, slack=slack)
        parties, known = self.study.parties, trust_of(self.study).known
        everyone = parties.count * parties.records
        lists = onion_bytes(parties.count) * parties.records + onion_bytes(parties.count - 1) * everyone
        slack += rounds * self._allowed
        rate = self._honest_rate(known)
        return RecordSampling(rate, "without-replacement", slack, upload=lists, rate_if=self._honest_rate)

    @property
    def _allowed(self) -> float:
        """How likely a batch may have more of the honest records than `_honest_rate` says."""
        return _SLACK * self.study.privacy.delta / self.options.rounds

    def _honest_rate(self, known: int) -> float:
        """At which rate the honest records are in a batch for someone who knows the records of `known` parties."""
        parties = self.study.parties
        honest, theirs = (parties.count - known) * parties.records, known * parties.max_records
        if parties.records == parties.max_records:
            return effective_rate(self._batch_size(honest + theirs), honest + theirs, theirs, self._allowed)
        return largest_rate(max(self.options.rate, 1.0 / honest), honest, self._allowed if known else 1.0)

    def plan(self) -> Plan:
        declared = DeclaredSum(
            name="gradient",
            dimension=self.projection.size,
            bound=self.projection.bound * self.study.parties.max_records,
            sensitivity=self.projection.bound,
            count=self.options.rounds,
            noise=self.noise,
            most=self._largest_total(),
            rows=self.projection.rows,
            sampling=self.sampling(),
        )
        return make_sampled_plan(self.study, self.name, declared, tuple(self._notes()), self.model.assumptions)

    def _notes(self) -> Iterator[str]:
        parties = self.study.parties
        if parties.records == 1 < parties.max_records:
            yield (
                "steps are sized as if every party had one record, the fewest that the study allows; set records to "
                "what parties really have, or the model may not learn"
            )
        if self.options.projection is not None and self.options.projection_kind == "gaussian":
            yield (
                'projection_kind = "gaussian" assumes that nobody chose records by the seed of the projection; '
                '"structured" assumes nothing'
            )

    def parameters(self, request: PartyRequest) -> Parameters:
        return self.allowed

    @property
    def allowed(self) -> Parameters:
        """The weights that a party takes."""
        return weights_within_bounds(self.model.size)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        if request.parameters is None or request.parameters.shape != (self.model.size,):
            raise ValueError("Expected the model's weights with the request.")
        taken = [
            np.flatnonzero(self._is_taken(int(count), context))
            for count, context in zip(block.counts, contexts, strict=True)
        ]
        features = np.concatenate([block.features[party, rows] for party, rows in enumerate(taken)])
        labels = np.concatenate([block.labels[party, rows] for party, rows in enumerate(taken)])
        counts = np.array([len(rows) for rows in taken])
        sums = self.projection.sums(request.parameters, features, labels, counts, request.turn)
        return Contribution(sums, np.empty((len(block), 0), dtype=np.int64))

    def _is_taken(self, count: int, context: PartyContext) -> Flags:
        """Which of a party's records are in the round's batch: for the party alone to find out."""
        if self.options.sampling == "poisson":
            return poisson_sample(count, self.options.rate, context.secrets)
        if context.positions is None:
            raise ValueError("Expected a list of tokens before a batch of them.")
        return np.isin(context.positions.places, self._batch(context.positions))

    def coordinate(self, plan: Plan) -> Conversation:
        weights = self.allowed.nearest(self.model.initial())
        optimizer, fixed = Optimizer(self.options, self.model.size), self.options.sampling == "without-replacement"
        for turn in range(self.options.rounds):
            if fixed:
                yield Tokens(turn)
            total = yield self.request(weights, turn)
            gradient = self.projection.lift(total.noisy, turn)
            weights = self.allowed.nearest(optimizer.step(weights, gradient / self.expected_batch))
        noise = total.noise_std / self.expected_batch
        return TorchWeights(self.model, weights, {"noise_std_per_step": noise})

    def request(self, weights: Floats, turn: int) -> Request:
        return Sum("gradient", weights, turn)

    def _batch(self, positions: TokenPositions) -> Integers:
        """Places of the list, by the seed that came with it: whose they are, nobody knows."""
        return np.random.default_rng(positions.seed).permutation(positions.count)[: self._batch_size(positions.count)]

    def _largest_total(self) -> float | None:
        """A bound on the norm of a batch's total: so many records are in a batch at most, but for a chance of 2⁻⁶⁰."""
        everyone = self.study.parties.count * self.study.parties.max_records
        if self.options.sampling != "poisson":
            return self.projection.bound * self._batch_size(everyone)
        return self.projection.bound * everyone * largest_rate(self.options.rate, everyone, 2.0**-60)

    def _batch_size(self, records: int) -> int:
        return max(1, math.floor(self.options.rate * records))
