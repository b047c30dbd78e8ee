"""The functions "linear-regression" and "logistic-regression": the functional mechanism (capeFM, Sections 4.3 and H).

Linear: the minimiser of the squared loss. Logistic: the Taylor polynomial of order 2 of the softmax loss at 0 has the
gradient Σ(1/K − y)x and the Hessian XᵀX·(I/K − 11ᵀ/K²), so its minimiser is K times the least-squares solution for
centred indicators; for two classes that is the polynomial of Zhang et al.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.learners.second_moments import Reshaping, SecondMoments, best_balance
from unspoken.learners.solving import solve
from unspoken.methods.base import Conversation, Total
from unspoken.methods.functions.base import NAME, NamedFunction
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.functions.scale import SCALE, Scale, reshaping_ranges, scale_contribution, scale_sum
from unspoken.methods.parameters import NO_PARAMETERS, Parameters
from unspoken.methods.releases import LinearModel, Release
from unspoken.methods.workloads import Asker, Query
from unspoken.study import Study
from unspoken.types import Floats

_SHARE_OF_SCALE = 1.0 / 9.0
"""The share of the preliminary sum: a tenth of the whole budget"""
_REGULARIZATION = 1e-5
"""The regularisation of the softmax model without privacy"""


class LeastSquares(NamedFunction):
    """Linear and logistic regression from noisy second moments."""

    learns_mapped = True
    uses = ("coefficients", "reshape", "repair")

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        classes = None if study.task == "regression" else len(study.data.class_names)
        largest = 1.0 if classes is None else math.sqrt(1.0 - 1.0 / classes)
        balance = best_balance(classes or 1, largest, options.coefficients)
        self.moments = SecondMoments(study.data.dimension, 1.0, classes, balance)
        self.dimension, self.sensitivity = self.moments.dimension, self.moments.sensitivity
        self.record_bound = self.moments.record_bound
        if options.reshape:
            self.preliminary = (scale_sum(study.data.dimension, _SHARE_OF_SCALE),)
        self._study, self._options = study, options

    def preliminary_of(self, query: Query, features: Floats, labels: Any) -> Floats:
        return scale_contribution(features / self._study.data.norm)

    def parameters(self, name: str, turn: int) -> Parameters:
        """A `Reshaping`, if there is a sum to find it by."""
        if not self.preliminary or name != NAME:
            return NO_PARAMETERS
        return Parameters(reshaping_ranges(self.moments.features))

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        reshaping = None if parameters is None else Reshaping.from_parameters(parameters)
        return self.moments.of(features / self._study.data.norm, labels, reshaping)

    def conclude(self, ask: Asker) -> Conversation:
        if not self.preliminary:
            total = yield from ask(Query(NAME))
            return self._model(total, None)
        scale = Scale.of((yield from ask(Query(SCALE))), self.moments.features)
        found = Reshaping.of(scale.mean, scale.square, scale.deviation)
        known, total = yield from self.ask_within_bounds(ask, Query(NAME, found.to_parameters()))
        return self._model(total, Reshaping.from_parameters(known))

    def _model(self, total: Total, reshaping: Reshaping | None) -> LinearModel:
        """The model that the noisy moments have."""
        second, mixed = self.moments.split(total.noisy)
        entry = total.noise_std / math.sqrt(2.0)
        solved = solve(self.moments, second, mixed, entry, int(total.exact[0]), self._options.repair)
        if reshaping is not None:
            solved = reshaping.undo(solved)
        weights = (self.moments.classes or 1) * solved.T / self._study.data.norm
        details = {"records": int(total.exact[0]), "noise_std_per_moment": entry}
        return LinearModel(weights, None if self.moments.classes is None else "softmax", details)

    def exact_fit(self, records: Block) -> Release | None:
        """The least-squares model; of classes the softmax model, unless the study names the approximation."""
        if self.moments.classes is not None and self._options.function is not None:
            return None
        return exact_model(self._study, records)


def exact_model(study: Study, records: Block) -> LinearModel:
    """The least-squares model of all records without noise; of classes the softmax model."""
    # Where the study protects parties, their sizes are not stated, though nothing is promised.
    details = {} if study.group is None else {"records": int(records.counts[0])}
    if study.task == "regression":
        weights = np.linalg.lstsq(records.features[0], records.labels[0])[0]
        return LinearModel(weights[None], None, details)
    learner = LinearLearner(CrossEntropy(len(study.data.class_names)), study.data.norm, _REGULARIZATION)
    return LinearModel(learner.fit(records)[0], learner.loss.link, details)
