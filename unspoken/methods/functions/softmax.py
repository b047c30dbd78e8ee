"""The function "softmax": softmax regression in a few steps (`learners.softmax_steps`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from unspoken.learners.softmax_steps import SoftmaxSteps, chosen_steps
from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, NamedFunction
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.parameters import LARGEST_WEIGHT, NO_PARAMETERS, Parameters, Range
from unspoken.methods.planning.budget import budget
from unspoken.methods.releases import LinearModel
from unspoken.methods.workloads import Asker, Query
from unspoken.study import Study
from unspoken.types import Floats

_CLIP = 0.25


class SoftmaxRegression(NamedFunction):
    """The first moment, then sums of clipped gradients.

    The turns have equal shares of the budget. The study fixes the number of steps; else it follows from the promise and
    from the smallest number of records.
    """

    learns_mapped = True
    uses = ("steps", "clip", "score_noise")

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        clip = options.clip or _CLIP
        classes = len(study.data.class_names)
        records = study.parties.count * study.parties.records
        steps = options.steps or chosen_steps(study.data.dimension, classes, records, budget(study))
        self.model = SoftmaxSteps(study.data.dimension, classes, steps, clip, options.score_noise)
        self.dimension, self.count = self.model.size, steps + 1
        self.sensitivity, self.record_bound = 2.0 * clip, clip

    def parameters(self, name: str, turn: int) -> Parameters:
        """After the first turn √ω·a, of norm at most 1, and the weights."""
        if turn == 0:
            return NO_PARAMETERS
        axis, weights = self.model.features, self.model.size
        return Parameters((Range(axis, -1.0, 1.0), Range(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)))

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        if parameters is None:
            return self.model.mean(features)
        axis, weights = parameters[: self.model.features], parameters[self.model.features :]
        return self.model.gradient(axis, weights.reshape(self.model.features, -1), features, labels)

    def conclude(self, ask: Asker) -> Conversation:
        total = yield from ask(Query(NAME))
        axis = self.model.axis(total.noisy[: self.model.features], total.noise_std, int(total.exact[0]))
        flat = np.zeros(self.model.size)
        for step in range(self.model.steps):
            known, total = yield from self.ask_within_bounds(ask, Query(NAME, np.concatenate([axis, flat]), step + 1))
            axis, flat = np.split(known, [self.model.features])
            flat = flat + self.model.step_sizes(total.noise_std, int(total.exact[0]))[step] * total.noisy
        weights = flat.reshape(self.model.features, -1)
        weights -= np.outer(axis, axis @ weights)
        details = {"records": int(total.exact[0]), "noise_std_per_gradient": total.noise_std}
        return LinearModel(weights.T, "softmax", details)
