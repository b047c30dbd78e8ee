"""The function "auto": what `learners.default_rule` chooses for the study.

Formal guarantee, of each total if one record is replaced, for records x scaled by the study's norm, so that |x| ≤ 1:

- "scale", Σ(x, |x|²), of a regression with (y, y²): see `functions.scale`.
- "spread", Σuuᵀ, of mapped and clipped records of norm at most 1: |uuᵀ − vvᵀ|² = |u|⁴ + |v|⁴ − 2(uᵀv)² ≤ 2. The upper
  triangle, with what is off the diagonal times √2, has the same norm. So the sensitivity is √2.
- "function", Σu·rᵀ, with |u| ≤ 1 by clipping after the map, and residuals r clipped to norm C: a record adds a matrix
  of norm at most C, so the sensitivity is 2C.

A request carries the map, the weights and the scale of the labels, which come from earlier releases. The guarantee
holds whatever their values are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from unspoken.arithmetic import blocks
from unspoken.data.block import Block
from unspoken.learners.default_rule import LEAST_LABEL_SCALE, MOST_WHITENED, DefaultRule
from unspoken.learners.record_map import AlreadyMapped, MatrixMap, RecordMap
from unspoken.learners.scores import Link
from unspoken.learners.second_moments import Reshaping, Triangle
from unspoken.learners.softmax_steps import clipped_residuals
from unspoken.methods.base import Conversation, Request
from unspoken.methods.functions.base import NAME, NamedFunction, PreliminarySum
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.functions.regression import LeastSquares, exact_model
from unspoken.methods.functions.scale import SCALE, Scale, reshaping_ranges, scale_contribution, scale_sum
from unspoken.methods.parameters import LARGEST_WEIGHT, NO_PARAMETERS, Parameters, Range
from unspoken.methods.planning.budget import expected_noise
from unspoken.methods.releases import LinearModel, Release
from unspoken.methods.workloads import Asker, Query, required_parameters
from unspoken.study import Study
from unspoken.types import Floats

SPREAD = "spread"
"""The name of the second preliminary sum"""
COEFFICIENTS = 0.5
"""The guess of the model's norm for least squares under much noise; a small guess means less noise"""
_OWN_DIRECTIONS = 1.0
"""Public records are not used above this X/d^1.5: four times what whitening by own moments takes"""
LEFT_OPEN = ("steps",)
"""The keys that the rule leaves to a study"""
LARGEST_ENTRY = 1e6
"""The largest allowed entry of a map: no useful map has a larger one, and squared lengths of mapped records do not
overflow."""


def expected_signal(study: Study) -> float:
    """X: the study's records over the deviation of the noise in a total of sensitivity 1 with the whole budget.

    A plan has it, too (`directions.signal_of`), but the plan follows from this one.
    """
    return study.parties.count * study.parties.records / (study.group or 1) / expected_noise(study)


def knows_directions(study: Study) -> bool:
    """Whether noise is so small that the parties' own second moments tell directions better than public records do."""
    features = study.data.dimension
    return features <= MOST_WHITENED and expected_signal(study) >= _OWN_DIRECTIONS * float(features**1.5)


class Start(NamedTuple):
    """The findings of the turns before the steps."""

    map: RecordMap
    about_labels: Floats
    """Means of numbers about the labels"""
    deviation: float
    """The deviation of the noise on each of them"""


class MappedSteps(NamedFunction):
    """A linear model in a few steps on mapped records. Turns before them find the map, unless one is given."""

    link: Link | None
    scales_labels = False
    """Whether the first turn is about labels, too"""

    def __init__(self, study: Study, rule: DefaultRule, known: RecordMap | None = None) -> None:
        features = study.data.dimension
        self.rule, self.known = rule, known
        self.dimension, self.count = features * rule.outputs, rule.steps
        self.sensitivity, self.record_bound = 2.0 * rule.clip, rule.clip
        self.cautions = (rule.sentence,)
        self._study, self._norm, self._features, self._triangle = study, study.data.norm, features, Triangle(features)
        self.preliminary = self._preliminary()

    def _preliminary(self) -> tuple[PreliminarySum, ...]:
        scale, spread = self.rule.shares
        step = (1.0 - scale - spread) / self.count
        sums = (
            scale_sum(self._features, scale / step, self.scales_labels),
            PreliminarySum(SPREAD, self._triangle.size, math.sqrt(2.0), 1.0, spread / step),
        )
        return tuple(first for first in sums if first.share > 0.0)

    # --- What a party does -------------------------------------------------------------------------------------------

    def parameters(self, name: str, turn: int) -> Parameters:
        """ "spread" carries the first map; "function" carries the weights, and the map unless it is known."""
        if name == SCALE:
            return NO_PARAMETERS
        reshaping = reshaping_ranges(self._features)
        if name == SPREAD:
            return Parameters(reshaping)
        matrix = (Range(self._features**2, -LARGEST_ENTRY, LARGEST_ENTRY),)
        found = () if self.known else matrix if self.rule.whitens else reshaping
        return Parameters((*found, *self.step_ranges()))

    def step_ranges(self) -> tuple[Range, ...]:
        """The ranges of what follows the map in a step's request: weights last."""
        return (Range(self.dimension, -LARGEST_WEIGHT, LARGEST_WEIGHT),)

    def preliminary_of(self, query: Query, features: Floats, labels: Any) -> Floats:
        unit = features / self._norm
        if query.name == SCALE:
            return scale_contribution(unit, labels if self.scales_labels else None)
        first = Reshaping.from_parameters(required_parameters(query.parameters))
        second = np.zeros((self._features, self._features))
        for block in blocks(len(unit)):
            rows, _ = first.apply(unit[block])
            second += rows.T @ rows
        return self._triangle.packed(second)

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        found, rest = self._split(required_parameters(parameters))
        total = np.zeros((self._features, self.rule.outputs))
        for block in blocks(len(features)):
            rows, factors = found.apply(features[block] / self._norm)
            total += rows.T @ self.residuals(rows, factors, labels[block], rest)
        return total.ravel()

    @abstractmethod
    def residuals(self, rows: Floats, factors: Floats, labels: Any, rest: Floats) -> Floats:
        """Residuals of norm at most C, for mapped rows clipped by `factors`; `rest` follows the map in a request."""

    def _split(self, parameters: Floats) -> tuple[RecordMap, Floats]:
        """The map, and what follows it in a request."""
        if self.known is not None:
            return self.known, parameters
        if self.rule.whitens:
            numbers, rest = np.split(parameters, [self._features**2])
            return MatrixMap.from_parameters(numbers, self._features), rest
        numbers, rest = np.split(parameters, [self._features + 2])
        return Reshaping.from_parameters(numbers), rest

    # --- What the coordinator does -----------------------------------------------------------------------------------

    def conclude(self, ask: Asker) -> Conversation:
        start = yield from self._start(ask)
        numbers = np.empty(0) if self.known else start.map.to_parameters()
        rest = np.concatenate([self.first_numbers(start), np.zeros(self.dimension)])
        for step in range(self.count):
            carried, total = yield from self.ask_within_bounds(ask, Query(NAME, np.concatenate([numbers, rest]), step))
            found, rest = self._split(carried.copy())
            sizes = self.rule.step_sizes(total.noise_std, int(total.exact[0]), start.map.curvature)
            rest[-self.dimension :] += sizes[step] * total.noisy
        weights = found.undo(self.scaled_back(rest)) / self._norm
        details = {"records": int(total.exact[0]), "noise_std_per_gradient": total.noise_std}
        return LinearModel(weights.T, self.link, details)

    def exact_fit(self, records: Block) -> Release | None:
        return exact_model(self._study, records)

    def first_numbers(self, start: Start) -> Floats:
        """The numbers between the map and the weights in a step's request."""
        return np.empty(0)

    def weights(self, rest: Floats) -> Floats:
        """The weights (features, outputs) of mapped records, from what follows the map in a request."""
        return rest[-self.dimension :].reshape(self._features, -1)

    def scaled_back(self, rest: Floats) -> Floats:
        """The weights in units of the label."""
        return self.weights(rest)

    def _known(self, known: RecordMap) -> RecordMap:
        """The map that was given: with λ, if it is the method's own."""
        return known if self.directions is None else AlreadyMapped(self.directions.largest)

    def _start(self, ask: Asker) -> Generator[Request, Any, Start]:
        if self.known is not None:
            return Start(self._known(self.known), np.empty(0), 0.0)
        scale = Scale.of((yield from ask(Query(SCALE))), self._features)
        first = self.rule.first_map(scale.mean, scale.square, scale.deviation)
        if not self.rule.whitens:
            return Start(first, scale.about_labels, scale.deviation)
        carried, total = yield from self.ask_within_bounds(ask, Query(SPREAD, first.to_parameters()))
        records = max(int(total.exact[0]), 1)
        second, deviation = self._triangle.unpacked(total.noisy / records), total.noise_std / records / math.sqrt(2.0)
        white = self.rule.whitened(Reshaping.from_parameters(carried), second, deviation)
        return Start(white, scale.about_labels, scale.deviation)


class AutoSoftmax(MappedSteps):
    """Softmax regression by the rule."""

    link = "softmax"

    def residuals(self, rows: Floats, factors: Floats, labels: Any, rest: Floats) -> Floats:
        return clipped_residuals(rows @ self.weights(rest), labels, self.rule.clip)


class AutoRegression(MappedSteps):
    """Robust regression by the rule: Huber's loss of labels in units of their deviation.

    A clipped record's label is multiplied by the same factor, so that y = wᵀx still holds.
    """

    link = None
    scales_labels = True

    def step_ranges(self) -> tuple[Range, ...]:
        return Range(1, LEAST_LABEL_SCALE, 1.0), *super().step_ranges()

    def first_numbers(self, start: Start) -> Floats:
        """σ_y"""
        mean, square = start.about_labels.tolist()
        return np.array([self.rule.label_scale(mean, square, start.deviation)])

    def residuals(self, rows: Floats, factors: Floats, labels: Any, rest: Floats) -> Floats:
        targets = (labels * factors)[:, None] / rest[0]
        return np.asarray(np.clip(targets - rows @ self.weights(rest), -self.rule.clip, self.rule.clip))

    def scaled_back(self, rest: Floats) -> Floats:
        return np.asarray(rest[0] * self.weights(rest))


def automatic(study: Study, options: FunctionOptions) -> NamedFunction:
    """The function that the rule chooses."""
    classes = None if study.task == "regression" else len(study.data.class_names)
    is_mapped = study.data.public is not None and study.described.learns_directions(study)
    rule = DefaultRule(study.data.dimension, classes, expected_signal(study), is_mapped, options.steps)
    if classes is not None:
        return AutoSoftmax(study, rule, AlreadyMapped() if is_mapped else None)
    if rule.takes_steps:
        return AutoRegression(study, rule)
    if options.steps is not None:
        problem = f"is {options.steps}, but here the rule chooses one sum for least squares, without steps; remove it"
        raise study.error("method.steps", problem)
    chosen = LeastSquares(study, options.model_copy(update={"coefficients": COEFFICIENTS}))
    chosen.cautions = (rule.sentence,)
    return chosen
