"""Training by sums of clipped gradients (DP-SGD)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unspoken.data.block import Block
from unspoken.learners.projected_gradients import BeforeProjection, Plain, Projection, after_projection
from unspoken.methods.base import Contribution, Conversation, PartyContext, Tokens
from unspoken.methods.mechanisms import Mechanism
from unspoken.methods.plan import DeclaredSum
from unspoken.methods.training.base import Training
from unspoken.methods.training.batches import SLACK, Batches, FixedBatches, PoissonBatches
from unspoken.methods.training.optimizer import Optimizer
from unspoken.methods.training.options import GradientOptions
from unspoken.methods.workloads import Ask, Query, given
from unspoken.study import Study

NAME = "gradient"
"""The name of the total in a plan"""


class GradientDescent(Training[GradientOptions]):
    """Rounds in which the gradients of a batch are clipped and added up, and the coordinator makes a step.

    A party with no record in the batch contributes zeros, under noise like any other.
    """

    def __init__(self, study: Study, options: GradientOptions, by_tokens: bool = False) -> None:
        """`by_tokens`: may a list of tokens decide which records are in a batch?"""
        super().__init__(study, options)
        if options.sampling != "poisson" and not by_tokens:
            raise study.error(
                "method.sampling", f'is "{options.sampling}", but "{study.method.name}" samples by "poisson" only'
            )
        self.batches: Batches = (PoissonBatches if options.sampling == "poisson" else FixedBatches)(study, options)
        self.projection = self._make_projection()
        self.assumptions = self.model.assumptions

    def _make_projection(self) -> Projection:
        size, seed = self.options.projection, self.options.seed
        if size is None:
            return Plain(self.model, self.options.clip)
        if size > self.model.size:
            raise self.study.error("method.projection", f"is {size}, but the model has {self.model.size} weights only")
        if self.options.projection_kind == "gaussian":
            allowed = SLACK * self.study.privacy.delta / (2 * self.options.rounds)
            return BeforeProjection(self.model, self.options.clip, size, seed, allowed)
        return after_projection(self.model, self.options.clip, size, seed)

    def check_unit(self, study: Study) -> None:
        if study.group != 1:
            raise study.error(
                "privacy.unit", f'should be "record" with "{study.method.name}": sampling protects single records'
            )

    @property
    def expected_batch(self) -> float:
        """The expected size of a batch by the public number of records, which a step divides the sum by."""
        return self.options.rate * self.study.parties.count * self.study.parties.records

    def sums(self, study: Study) -> tuple[DeclaredSum, ...]:
        projection = self.projection
        declared = DeclaredSum(
            name=NAME,
            dimension=projection.size,
            bound=projection.bound * study.parties.max_records,
            sensitivity=projection.bound,
            count=self.options.rounds,
            most=projection.bound * self.batches.most,
            rows=projection.rows,
            sampling=self.batches.sampling(projection.slack * 2 * self.options.rounds),
        )
        return (declared,)

    def notes(self, noise: Mechanism, senders: int | None) -> tuple[str, ...]:
        notes, parties = [], self.study.parties
        if parties.records == 1 < parties.max_records:
            notes.append(
                "steps are sized as if every party had one record, the fewest that the study allows; set records to "
                "what parties really have, or the model may not learn"
            )
        if self.options.projection is not None and self.options.projection_kind == "gaussian":
            notes.append(
                'projection_kind = "gaussian" assumes that nobody chose records by the seed of the projection; '
                '"structured" assumes nothing'
            )
        return tuple(notes)

    def contribute(self, query: Query, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        weights = given(query.parameters)
        taken = [
            np.flatnonzero(self.batches.is_taken(int(count), context))
            for count, context in zip(block.counts, contexts, strict=True)
        ]
        features = np.concatenate([block.features[party, rows] for party, rows in enumerate(taken)])
        labels = np.concatenate([block.labels[party, rows] for party, rows in enumerate(taken)])
        counts = np.array([len(rows) for rows in taken])
        sums = self.projection.sums(weights, features, labels, counts, query.turn)
        return Contribution(sums)

    def conclude(self, ask: Ask) -> Conversation:
        weights, optimizer = self.model.initial(), Optimizer(self.options, self.model.size)
        for turn in range(self.options.rounds):
            if self.batches.by_tokens:
                yield Tokens(turn)
            weights, total = yield from self.asked(ask, Query(NAME, weights, turn))
            gradient = self.projection.lift(total.noisy, turn)
            weights = optimizer.step(weights, gradient / self.expected_batch)
        return self.release(weights, noise_std_per_step=total.noise_std / self.expected_batch)
