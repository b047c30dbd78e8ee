"""Training at the parties, whose models or updates are averaged (FedAvg)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.data.public import required_public
from unspoken.learners.coral import aligned
from unspoken.methods.base import Contribution, Conversation, PartyContext
from unspoken.methods.planning import DeclaredSum, RecordSampling
from unspoken.methods.planning.sums import contributions_apart
from unspoken.methods.training.base import Training, is_linear
from unspoken.methods.training.batches import poisson_sample
from unspoken.methods.training.optimizer import Optimizer
from unspoken.methods.training.options import FederatedOptions
from unspoken.methods.workloads import Asker, Query, required_parameters
from unspoken.noise.stream import SecretStream
from unspoken.study import Study
from unspoken.types import Floats

if TYPE_CHECKING:
    from unspoken.learners.torch_models import Passes

_LARGEST_MODEL = 1e6
"""No model's weights are expected to have a larger norm."""


class LocalTraining(Training[FederatedOptions]):
    """Every party trains the model on its own records, moved to where public ones lie if the study says so.

    What it sends is a function of its own records, and bounded afterwards, if anything is promised (`learners.coral`).
    """

    @cached_property
    def _public(self) -> Floats | None:
        """The public records that a party adapts its own to."""
        if self.options.adaptation == "none":
            return None
        if is_linear(self.study):
            raise self.study.error(
                "method.adaptation", 'is for models other than "linear", which learn in directions of public records'
            )
        return clip_rows(required_public(self.study, "to adapt to").features, self.study.data)

    def trained(self, weights: Floats, block: Block, party: int, secrets: SecretStream) -> Floats:
        """The weights after a party's own training, with its records in an order that only the party knows."""
        count = int(block.counts[party])
        order = np.random.default_rng(int(secrets.words(1)[0]))
        features, labels = block.features[party, :count], block.labels[party, :count]
        if self._public is not None:
            features = aligned(features, self._public)
        return self.model.trained(weights, features, labels, self._passes, order)

    @cached_property
    def _passes(self) -> Passes:
        from unspoken.learners.torch_models import Passes

        return Passes(self.options.epochs, self.options.batch, self.options.local_rate)


class ClippedUpdates(LocalTraining):
    """Clipped updates of sampled parties, whose sum over their expected number is a step."""

    def check_unit(self, study: Study) -> None:
        if study.group is not None:
            name = study.method.name
            raise study.error("privacy.unit", f'should be "party" with "{name}", which protects whole parties')

    def sums(self, study: Study) -> tuple[DeclaredSum, ...]:
        options, adjacency, _ = self.options, study.privacy.adjacency, self._public
        declared = DeclaredSum(
            name="update",
            dimension=self.model.size,
            bound=options.clip,
            sensitivity=contributions_apart(adjacency) * options.clip,
            count=options.rounds,
            sampling=RecordSampling(options.rate),
            adjacency=adjacency,
        )
        return (declared,)

    def contribute(self, query: Query, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        weights = required_parameters(query.parameters)
        rows = [self._update(weights, block, party, context.secrets) for party, context in enumerate(contexts)]
        return Contribution(np.stack(rows))

    def _update(self, weights: Floats, block: Block, party: int, secrets: SecretStream) -> Floats:
        """A party's clipped update; zeros if it sits this round out."""
        if not poisson_sample(1, self.options.rate, secrets)[0]:
            return np.zeros(self.model.size)
        try:
            moved = self.trained(weights, block, party, secrets) - weights
        except Exception:
            # A module may raise an error at a record: that must not be seen from outside.
            return np.zeros(self.model.size)
        norm = float(np.linalg.norm(moved))
        if not math.isfinite(norm):
            # Nor must others see that its training went beyond floating point.
            return np.zeros(self.model.size)
        clipped: Floats = moved * (self.options.clip / max(norm, self.options.clip))
        return clipped

    def conclude(self, ask: Asker) -> Conversation:
        weights, optimizer = self.model.initial(), Optimizer(self._stepping(), self.model.size)
        expected, watch = self.options.rate * self.study.parties.count, self.watch()
        for turn in range(self.options.rounds):
            weights, total = yield from self.ask_within_bounds(ask, Query("update", weights, turn))
            weights = optimizer.step(weights, -total.noisy / expected)
            if watch.is_over(turn, weights):
                break
        return self.release(weights, watch, noise_std_per_step=total.noise_std / expected)

    def _stepping(self) -> FederatedOptions:
        """The options of the step: it is the average itself, unless the study says otherwise."""
        own = self.options.learning_rate is None and self.options.optimizer == "sgd"
        return self.options.model_copy(update={"learning_rate": 1.0}) if own else self.options


class AveragedModels(LocalTraining):
    """The parties' models as they are, and their average: nothing is clipped, so nothing is promised."""

    def check_unit(self, study: Study) -> None:
        pass

    def sums(self, study: Study) -> tuple[DeclaredSum, ...]:
        size, rounds = self.model.size, self.options.rounds
        return (DeclaredSum("model", size, _LARGEST_MODEL, 2.0 * _LARGEST_MODEL, count=rounds),)

    def contribute(self, query: Query, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        weights = required_parameters(query.parameters)
        rows = [self.trained(weights, block, party, context.secrets) for party, context in enumerate(contexts)]
        if not np.isfinite(rows).all():
            raise self.study.error(
                "method.local_rate",
                f"is {self.options.local_rate:g}, with which a party's training goes beyond floating point; lower it",
            )
        return Contribution(np.stack(rows))

    def conclude(self, ask: Asker) -> Conversation:
        weights, watch = self.model.initial(), self.watch()
        for turn in range(self.options.rounds):
            _, total = yield from self.ask_within_bounds(ask, Query("model", weights, turn))
            weights = total.noisy / total.survivors
            if watch.is_over(turn, weights):
                break
        return self.release(weights, watch)
