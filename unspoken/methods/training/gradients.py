"""Training by sums of clipped gradients (DP-SGD)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unspoken.data.block import Block
from unspoken.learners.projected_gradients import BeforeProjection, Plain, Projection, after_projection
from unspoken.methods.base import Contribution, Conversation, PartyContext, Tokens, Total
from unspoken.methods.planning import DeclaredSum
from unspoken.methods.planning.mechanisms import Mechanism
from unspoken.methods.planning.sums import contributions_apart
from unspoken.methods.training.base import Training, is_linear
from unspoken.methods.training.batches import SLACK, Batches, OwnBatches, PoissonBatches, PooledBatches
from unspoken.methods.training.optimizer import Optimizer, StepByNoise
from unspoken.methods.training.options import GradientOptions
from unspoken.methods.workloads import Asker, Query, required_parameters
from unspoken.study import Study

NAME = "gradient"
"""The name of the total in a plan"""


class GradientDescent(Training[GradientOptions]):
    """Rounds in which the gradients of a batch are clipped and added up, and the coordinator makes a step.

    A party with no record in the batch contributes zeros, under noise like any other.
    """

    def __init__(self, study: Study, options: GradientOptions, fixed: type[Batches] = OwnBatches) -> None:
        """`fixed` is the kind of batches without replacement that whoever draws them can make."""
        super().__init__(study, options)
        # Where all records are in one place, there are no parties to draw within.
        kinds = {"poisson": PoissonBatches, "within-parties": fixed if fixed is PooledBatches else OwnBatches}
        self.batches: Batches = kinds.get(options.sampling, fixed)(study, options)
        self.projection = self._make_projection()
        self.assumptions = self.model.assumptions + self.projection.assumptions

    def _make_projection(self) -> Projection:
        size, seed = self.options.projection, self.options.seed
        if size is None:
            return Plain(self.model, self.options.clip)
        if size > self.model.size:
            raise self.study.error("method.projection", f"is {size}, but the model has {self.model.size} weights only")
        if self.options.projection_kind == "gaussian":
            allowed = SLACK * self.study.privacy.delta / (2 * self._releases)
            return BeforeProjection(self.model, self.options.clip, size, seed, allowed)
        return after_projection(self.model, self.options.clip, size, seed)

    @property
    def _releases(self) -> int:
        """The number of sums that an adversary may see."""
        return self.options.rounds * self.study.privacy.attempts

    def check_unit(self, study: Study) -> None:
        if study.group != 1:
            raise study.error(
                "privacy.unit", f'should be "record" with "{study.method.name}": sampling protects single records'
            )

    @property
    def _counts(self) -> bool:
        """Whether numbers of records are public, so that sums carry them without noise: they are the same for all
        neighbours if records are replaced."""
        return self.study.privacy.adjacency == "replace"

    def _expected_batch(self, total: Total) -> float:
        """The number of records in a batch, or the expected one, which a step divides the sum by: of the records that
        the total is made of, where their number is public; else of the fewest that the study allows.

        A party may lie about its number, so it is held within what the study allows.
        """
        batches = self.batches
        if not self._counts:
            return batches.expected(batches.least_count(self.study.parties.count))
        counted = max(int(total.exact[0]), batches.least_count(total.survivors))
        return batches.expected(min(counted, batches.largest_count))

    def sums(self, study: Study) -> tuple[DeclaredSum, ...]:
        projection, adjacency = self.projection, study.privacy.adjacency
        declared = DeclaredSum(
            name=NAME,
            dimension=projection.size,
            bound=projection.bound * study.parties.max_records,
            sensitivity=contributions_apart(adjacency) * projection.bound,
            exact=(self.batches.counted,) if self._counts else (),
            count=self.options.rounds,
            most=projection.bound * self.batches.most,
            rows=projection.rows,
            sampling=self.batches.sampling(projection.slack * 2 * self._releases),
            adjacency=adjacency,
        )
        return (declared,)

    def notes(self, noise: Mechanism, senders: int | None) -> tuple[str, ...]:
        notes, parties = [*super().notes(noise, senders), *self.batches.notes], self.study.parties
        if self._steps_by_noise:
            notes.append("chosen by rule: the size of steps, from the noise of a round; set learning_rate to choose it")
        if parties.records == 1 < parties.max_records and not self._counts:
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
        weights = required_parameters(query.parameters)
        taken = [
            np.flatnonzero(self.batches.is_taken(int(count), context))
            for count, context in zip(block.counts, contexts, strict=True)
        ]
        features = np.concatenate([block.features[party, rows] for party, rows in enumerate(taken)])
        labels = np.concatenate([block.labels[party, rows] for party, rows in enumerate(taken)])
        counts = np.array([len(rows) for rows in taken])
        sums = self.projection.sums(weights, features, labels, counts, query.turn)
        if not self._counts:
            return Contribution(sums)
        return Contribution(sums, np.array([[self.batches.count(int(count))] for count in block.counts]))

    @property
    def _steps_by_noise(self) -> bool:
        """Whether steps are sized by their noise: if the study leaves that open, of linear classifiers by SGD. There is
        no rule for other models, nor for projected gradients."""
        options = self.options
        is_open = options.learning_rate is None and options.projection is None
        return is_open and options.optimizer == "sgd" and is_linear(self.study)

    def _step_rule(self) -> Callable[[float], float | None]:
        """The step size by the noise of a step; none where there is no rule."""
        if not self._steps_by_noise:
            return lambda noise: None
        return StepByNoise(self.options, len(self.study.data.class_names))

    def conclude(self, ask: Asker) -> Conversation:
        weights, optimizer, watch = self.model.initial(), Optimizer(self.options, self.model.size), self.watch()
        step_size = self._step_rule()
        for turn in range(self.options.rounds):
            if self.batches.by_tokens:
                yield Tokens(turn)
            weights, total = yield from self.ask_within_bounds(ask, Query(NAME, weights, turn))
            gradient, expected = self.projection.lift(total.noisy, turn), self._expected_batch(total)
            weights = optimizer.step(weights, gradient / expected, step_size(total.noise_std / expected))
            if watch.is_over(turn, weights):
                break
        return self.release(weights, watch, noise_std_per_step=total.noise_std / expected)
