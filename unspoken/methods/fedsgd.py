"""DP-FedSGD (Truex et al. 2019), a baseline: parties run noisy SGD alone and send their models; protects records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from unspoken.data.block import Block
from unspoken.methods.base import Contribution, Conversation, PartyContext, PartyRequest
from unspoken.methods.planning import DeclaredSum, Plan, PlannedSum
from unspoken.methods.planning.mechanisms import Participation, PreNoised
from unspoken.methods.training.base import TrainingMethod
from unspoken.methods.training.gradients import NAME, GradientDescent
from unspoken.methods.training.options import FederatedOptions, GradientOptions, TrainingOptions
from unspoken.methods.workloads import Query, required_parameters
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.types import Floats


class FedSgd(TrainingMethod):
    """Noisy SGD at each party, some steps a round; the parties' models are averaged in the open."""

    name = "fedsgd"
    summary = "a baseline: DP-FedSGD, noisy SGD at each party"
    keys = FederatedOptions
    noise = PreNoised()
    workload: GradientDescent

    def make_workload(self) -> GradientDescent:
        self.options = self.study.options("method", FederatedOptions)
        if self.options.adaptation != "none":
            problem = "is for whole parties (fedavg): here one record would move all of its party's; remove it"
            raise self.study.error("method.adaptation", problem)
        common = self.options.model_dump(include=set(TrainingOptions.model_fields), exclude_unset=True)
        return GradientDescent(self.study, GradientOptions(**common))

    def sums(self) -> list[DeclaredSum]:
        """The gradients' sum. A round has the local steps, each a noisy sum, and ends with a message made of them."""
        (declared,) = super().sums()
        sampling = declared.sampling and replace(declared.sampling, steps=self.options.local_steps)
        return [replace(declared, sampling=sampling, most=None, exact=())]

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        weights = required_parameters(request.parameters)
        rows = [self._update(weights, block, party, context) for party, context in enumerate(contexts)]
        return Contribution(np.stack(rows))

    def _update(self, weights: Floats, block: Block, party: int, context: PartyContext) -> Floats:
        """The change of the weights by a party's noisy steps, in multiples of `_unit`."""
        alone = Block(block.features[party][None], block.labels[party][None], block.counts[party][None])
        own, expected = weights, self._expected
        if self.study.privacy.adjacency == "replace":
            # How many records a party has is the same for all neighbours.
            expected = self.options.rate * max(int(block.counts[party]), self.study.parties.records)
        for _ in range(self.options.local_steps):
            gradient = self.workload.contribute(Query(NAME, own), alone, [context]).noisy
            noisy = self._planned.privatised(gradient, context.secrets)
            own = own - self.options.local_rate * noisy / expected
        moved: Floats = (own - weights) / self._unit
        return moved

    @cached_property
    def _planned(self) -> PlannedSum:
        return self.agreed_plan.sum_named(NAME)

    @property
    def _deviation(self) -> float:
        """The standard deviation of the noise in a step's gradient."""
        variance = self._planned.noise.adversary_variance(Participation(1, 1)) + LOST_VARIANCE
        return math.sqrt(variance) / self._planned.encoding.scale

    @property
    def _expected(self) -> float:
        """The expected number of a party's records in one of its steps, if it has as few as the study allows."""
        return self.options.rate * self.study.parties.records

    @cached_property
    def _unit(self) -> float:
        """The divisor that brings an update into the gradients' encoding: the largest norm of an update over that of a
        gradient, so that nothing is clipped and little rounded."""
        planned = self._planned
        noise = (math.sqrt(planned.dimension) + 14.0) * self._deviation
        step = self.options.local_rate * (planned.encoding.bound + noise) / self._expected
        return self.options.local_steps * step / planned.encoding.bound

    def coordinate(self, plan: Plan) -> Conversation:
        weights, watch = self.workload.model.initial(), self.workload.watch()
        for turn in range(self.options.rounds):
            weights, total = yield from self.workload.ask_within_bounds(self.ask, Query(NAME, weights, turn))
            weights = weights + self._unit * total.noisy / total.survivors
            if watch.is_over(turn, weights):
                break
        return self.workload.release(weights, watch, noise_std_per_step=self._deviation / self._expected)
