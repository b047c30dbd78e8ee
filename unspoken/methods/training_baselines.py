"""What cross-silo training is compared with, on the same models and data, through the same engine.

- `central` (with a `model`): a trusted curator runs DP-SGD on all records.
- `local` (with a `model`): every party protects its own gradient, with all the noise that this needs.
- `fedavg`: DP-FedAvg (McMahan et al. 2018): parties train alone and send clipped updates; protects whole parties.
- `fedsgd`: DP-FedSGD (Truex et al. 2019): parties run noisy SGD alone and send what they have; protects records.
- `none` (with a `model`): FedAvg without privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from pydantic import Field

from unspoken.data.block import Block
from unspoken.methods.base import Collect, Contribution, Conversation, PartyContext, PartyRequest, Pool, Request, Sum
from unspoken.methods.cross_silo import (
    CrossSilo,
    Optimizer,
    Options,
    TrainingMethod,
    TrainingOptions,
    model_for,
    poisson_sample,
)
from unspoken.methods.mechanisms import CuratorNoise, IndependentNoise, NoNoise, Participation, PreNoised
from unspoken.methods.parameters import Parameters, weights_within_bounds
from unspoken.methods.plan import DeclaredSum, Plan, PlannedSum, RecordSampling
from unspoken.methods.planning import Setting, make_sampled_plan, plan_sum, trust_of, unprotected_plan
from unspoken.methods.releases import TorchWeights
from unspoken.noise.stream import SecretStream
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.study import Study
from unspoken.types import Floats


class LocalTraining(CrossSilo):
    """Local differential privacy: messages in the open, each with all of its noise."""

    name = "local"
    noise = IndependentNoise()
    samplings = ("poisson",)

    def request(self, weights: Floats, turn: int) -> Request:
        return Collect("gradient", weights, turn)


class CentralTraining(CrossSilo):
    """DP-SGD in one place."""

    name = "central"
    noise = CuratorNoise()
    samplings = ("poisson",)
    secrets: SecretStream | None = None
    """Where batches and noise come from: the operating system, unless a test sets it."""

    def coordinate(self, plan: Plan) -> Conversation:
        records: Block = yield Pool()
        secrets = self.secrets or SecretStream()
        planned = plan.planned("gradient")
        weights = self.allowed.nearest(self.model.initial())
        optimizer = Optimizer(self.options, self.model.size)
        for turn in range(self.options.rounds):
            exact = self.contribute(Sum("gradient", weights, turn), records, [PartyContext(secrets)])
            noisy = planned.privatised(exact.noisy, secrets, plan.trust.parties)
            gradient = self.projection.lift(noisy, turn)
            weights = self.allowed.nearest(optimizer.step(weights, gradient / self.expected_batch))
        noise = planned.total_std(1) / self.expected_batch
        return TorchWeights(self.model, weights, {"noise_std_per_step": noise})


class FederatedOptions(TrainingOptions):
    """The keys of [method] for training at the parties."""

    epochs: int = Field(1, ge=1, description="how often a party goes through its records in a round, 1 or more")
    batch: int = Field(20, ge=1, description="how many records a party's own batches have, 1 or more")
    local_rate: float = Field(0.1, gt=0.0, description="the step size of a party's own steps, above 0")
    local_steps: int = Field(5, ge=1, description="of fedsgd: how many noisy steps a party makes in a round")


class FedAvg(TrainingMethod):
    """Federated averaging of clipped updates, private for whole parties."""

    name = "fedavg"
    summary = "a baseline: DP-FedAvg, clipped updates of whole parties"
    keys = FederatedOptions

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        if study.group is not None:
            raise study.error("privacy.unit", 'should be "party" with "fedavg", which protects whole parties')
        self.options = study.options("method", FederatedOptions)
        self.model = model_for(study, self.options)

    def plan(self) -> Plan:
        declared = DeclaredSum(
            name="update",
            dimension=self.model.size,
            bound=self.options.clip,
            sensitivity=self.options.clip,
            count=self.options.rounds,
            sampling=RecordSampling(self.options.rate),
        )
        return make_sampled_plan(self.study, self.name, declared)

    def parameters(self, request: PartyRequest) -> Parameters:
        return weights_within_bounds(self.model.size)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        rows = [
            self._update(request.parameters, block, party, context.secrets) for party, context in enumerate(contexts)
        ]
        return Contribution(np.stack(rows), np.empty((len(block), 0), dtype=np.int64))

    def _update(self, weights: Floats | None, block: Block, party: int, secrets: SecretStream) -> Floats:
        """A party's clipped update, or nothing if it sits this round out."""
        if weights is None:
            raise ValueError("Expected the model's weights with the request.")
        if not poisson_sample(1, self.options.rate, secrets)[0]:
            return np.zeros(self.model.size)
        try:
            moved = _trained(self, weights, block, party, secrets) - weights
        except Exception:
            # A module may raise an error at a record: that must not be seen from outside.
            return np.zeros(self.model.size)
        norm = float(np.linalg.norm(moved))
        if not math.isfinite(norm):
            # Its training went beyond floating point: nor must that.
            return np.zeros(self.model.size)
        clipped: Floats = moved * (self.options.clip / max(norm, self.options.clip))
        return clipped

    def coordinate(self, plan: Plan) -> Conversation:
        allowed = weights_within_bounds(self.model.size)
        weights, optimizer = allowed.nearest(self.model.initial()), Optimizer(_averaging(self.options), self.model.size)
        expected = self.options.rate * self.study.parties.count
        for turn in range(self.options.rounds):
            total = yield Sum("update", weights, turn)
            weights = allowed.nearest(optimizer.step(weights, -total.noisy / expected))
        return TorchWeights(self.model, weights, {"noise_std_per_step": total.noise_std / expected})


def _averaging(options: FederatedOptions) -> FederatedOptions:
    """FedAvg's own step is the average itself, unless the study says otherwise."""
    own = options.learning_rate is None and options.optimizer == "sgd"
    return options.model_copy(update={"learning_rate": 1.0}) if own else options


def _trained(
    method: FedAvg | PlainTraining, weights: Floats, block: Block, party: int, secrets: SecretStream
) -> Floats:
    options, count = method.options, int(block.counts[party])
    order = np.random.default_rng(int(secrets.words(1)[0]))
    features, labels = block.features[party, :count], block.labels[party, :count]
    return method.model.trained(weights, features, labels, options.epochs, options.batch, options.local_rate, order)


class FedSgd(CrossSilo):
    """Noisy SGD at each party, some steps a round; the parties' models are averaged in the open."""

    name = "fedsgd"
    summary = "a baseline: DP-FedSGD, noisy SGD at each party"
    keys = FederatedOptions
    noise = PreNoised()
    samplings = ("poisson",)

    def read_options(self) -> Options:
        federated = self.study.options("method", FederatedOptions)
        self.federated = federated
        return Options(**federated.model_dump(exclude={"epochs", "batch", "local_rate", "local_steps"}))

    def sampling(self) -> RecordSampling:
        # Every local step is a noisy sum of its own; what is sent is made of them.
        return RecordSampling(self.options.rate, steps=self.federated.local_steps)

    def _largest_total(self) -> None:
        # What is sent are models, each within its party's bound.
        return None

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        rows = [
            self._update(request.parameters, block, party, context.secrets) for party, context in enumerate(contexts)
        ]
        return Contribution(np.stack(rows), np.empty((len(block), 0), dtype=np.int64))

    def _update(self, weights: Floats | None, block: Block, party: int, secrets: SecretStream) -> Floats:
        if weights is None:
            raise ValueError("Expected the model's weights with the request.")
        alone = Block(block.features[party][None], block.labels[party][None], block.counts[party][None])
        own = weights
        for _ in range(self.federated.local_steps):
            gradient = super().contribute(Sum("gradient", own), alone, [PartyContext(secrets)]).noisy
            own = own - self.federated.local_rate * self._planned.privatised(gradient, secrets) / self._expected
        moved: Floats = (own - weights) / self._unit
        return moved

    @cached_property
    def _planned(self) -> PlannedSum:
        return self.plan().planned("gradient")

    @property
    def _deviation(self) -> float:
        """The standard deviation of the noise in a step's gradient."""
        variance = self._planned.noise.hidden(Participation(1, 1)) + LOST_VARIANCE
        return math.sqrt(variance) / self._planned.encoding.scale

    @property
    def _expected(self) -> float:
        """How many records of a party are in one of its steps"""
        return self.options.rate * self.study.parties.records

    @cached_property
    def _unit(self) -> float:
        """What an update is divided by to be sent in the gradients' encoding: its largest norm over theirs, so that
        nothing is clipped and little rounded."""
        planned = self._planned
        noise = (math.sqrt(planned.dimension) + 14.0) * self._deviation
        step = self.federated.local_rate * (planned.encoding.bound + noise) / self._expected
        return self.federated.local_steps * step / planned.encoding.bound

    def coordinate(self, plan: Plan) -> Conversation:
        weights = self.allowed.nearest(self.model.initial())
        for turn in range(self.options.rounds):
            total = yield Collect("gradient", weights, turn)
            weights = self.allowed.nearest(weights + self._unit * total.noisy / total.survivors)
        noise = self._deviation / self._expected
        return TorchWeights(self.model, weights, {"noise_std_per_step": noise})


class PlainTraining(TrainingMethod):
    """FedAvg without clipping, noise or privacy: every party's model in the open."""

    name = "none"
    keys = FederatedOptions

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", FederatedOptions)
        self.model = model_for(study, self.options)

    def plan(self) -> Plan:
        declared = DeclaredSum(
            "model", self.model.size, _LARGEST_MODEL, 1.0, count=self.options.rounds, noise=NoNoise()
        )
        planned = plan_sum(self.study, Setting(trust_of(self.study)), declared, 1.0)
        planned = replace(planned, sensitivity=2.0 * _LARGEST_MODEL, noise_std=0.0)
        return unprotected_plan(self.study, self.name, (planned,), ())

    def parameters(self, request: PartyRequest) -> Parameters:
        return weights_within_bounds(self.model.size)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        if request.parameters is None:
            raise ValueError("Expected the model's weights with the request.")
        rows = [
            _trained(self, request.parameters, block, party, context.secrets) for party, context in enumerate(contexts)
        ]
        if not np.isfinite(rows).all():
            raise self.study.error(
                "method.local_rate",
                f"is {self.options.local_rate:g}, with which a party's training goes beyond floating point; lower it",
            )
        return Contribution(np.stack(rows), np.empty((len(block), 0), dtype=np.int64))

    def coordinate(self, plan: Plan) -> Conversation:
        allowed = weights_within_bounds(self.model.size)
        weights = allowed.nearest(self.model.initial())
        for turn in range(self.options.rounds):
            total = yield Collect("model", weights, turn)
            weights = allowed.nearest(total.noisy / total.survivors)
        return TorchWeights(self.model, weights, {})


_LARGEST_MODEL = 1e6
"""No model's weights are expected to have a larger norm."""
