"""The function "discriminant": linear discriminant analysis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspoken.learners.second_moments import SecondMoments, best_balance
from unspoken.learners.solving import solve
from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, NamedFunction
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.releases import LinearModel
from unspoken.methods.workloads import Asker, Query
from unspoken.study import Study
from unspoken.types import Floats


class Discriminant(NamedFunction):
    """The classes' means and shares, and the scatter that they have in common.

    Beside the second moments with plain indicators, a record adds its class to the counts, scaled by γ = β²/2. That
    costs nothing: two records are furthest apart, by √2(1 + β²/2), with the same class; with different ones their
    squared distance is at most 2 + 2β² + 2γ², which is the same. (Both hold for β² ≤ 2, and the best β² is at most
    2 whatever the guess of the model's norm.)
    """

    uses = ("coefficients", "repair")

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        if not study.data.has_intercept:
            raise study.error("data.intercept", 'is false, but the function "discriminant" needs intercept = true')
        classes = len(study.data.class_names)
        balance = best_balance(classes, 1.0, options.coefficients)
        self.moments = SecondMoments(study.data.dimension, study.data.norm, classes, balance, centred=False)
        self.weight_of_counts = balance**2 / 2.0
        self.dimension, self.sensitivity = self.moments.dimension + classes, self.moments.sensitivity
        self.record_bound = math.hypot(self.moments.record_bound, self.weight_of_counts)
        self._study, self._options = study, options

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        counts = np.bincount(labels, minlength=self.moments.outputs).astype(np.float64)
        return np.concatenate([self.moments.of(features, labels), self.weight_of_counts * counts])

    def conclude(self, ask: Asker) -> Conversation:
        total = yield from ask(Query(NAME))
        records, entry = max(int(total.exact[0]), 1), total.noise_std / math.sqrt(2.0)
        second, mixed = self.moments.split(total.noisy[: self.moments.dimension])
        counts = np.maximum(total.noisy[self.moments.dimension :] / self.weight_of_counts, 1.0)
        means = mixed / counts
        within = second - (means * counts) @ means.T
        solved = records * solve(self.moments, within, means * counts, entry, records, self._options.repair) / counts
        weights = solved.T / self._study.data.norm
        # The constant, the last feature, carries what does not depend on the record.
        weights[:, -1] += np.log(counts / counts.sum()) - np.einsum("ij,ij->j", means, solved) / 2.0
        return LinearModel(weights, "softmax", {"records": records, "noise_std_per_moment": entry})
