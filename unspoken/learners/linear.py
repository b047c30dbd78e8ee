"""Regularised linear classifiers (Huber SVM, logistic regression, softmax) and their sensitivity.

DP-Helmet, Section 3.1 and Algorithms 1 and 3. A learner minimises J(W) = Λ/2 ‖W‖² + mean of loss(W x) over a party's
records, each x of norm at most c.

Formal guarantee. Let L = slope_norm · c be the Lipschitz constant of the loss, R the largest norm of a minimiser
(`Loss.longest`) and D ≤ 2L the largest distance of two records' gradients at a minimiser (`Loss.distance`). For data
sets of N records that differ in one record, the models returned by `fit` differ by at most

    certified:  (D + 2Lτ) / (NΛ),   τ = 10⁻⁶ + 2Nρ for the solver's tolerance and for rounding errors,
                                    ρ those of a gradient (`certified.rounding`)
    sgd:        2L / (Λ · smallest batch · batches); its iterates are no minimisers

and every model has norm at most R, or the study's radius if that is smaller: `fit` projects models onto that ball,
which moves no two of them apart. An exact minimiser is in the ball of R anyway. The regulariser's gradient is common
to both data sets, so (against the paper's Lemma 2 and Theorem 11) neither Λ·R nor a convergence assumption appears,
and a party's whole model moves by at most 2R (as in the paper's Corollary 10, where R is a setting only).

Groups. Of k records at several parties, k_i at party i, each party's N_i·W_i moves by at most
min(k_i·(D + 2Lτ)/Λ, 2R·N_i), as replacing records one by one shows. So k records never do more than the parties that
they may lie at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unspoken.data.block import Block
from unspoken.learners import certified, sgd
from unspoken.learners.losses import Loss
from unspoken.learners.parametrization import space_for
from unspoken.types import Floats

SLACK = 1e-6
"""The constant part of τ: half is the solver's tolerance, half covers rounding in sums over records."""


@dataclass(frozen=True)
class LinearLearner:
    """Trains one linear model for each party of a block."""

    loss: Loss
    norm: float
    regularization: float
    radius: float | None = None
    solver: Literal["certified", "sgd"] = "certified"
    batch: int = 20
    epochs: int = 50
    seed: int = 0

    @property
    def lipschitz(self) -> float:
        """L, the Lipschitz constant of the loss part of the objective."""
        return self.loss.slope_norm * self.norm

    @property
    def smoothness(self) -> float:
        """β, the smoothness of the whole objective: curvature · c² + Λ."""
        return self.loss.curvature * self.norm**2 + self.regularization

    @property
    def model_bound(self) -> float:
        """R, an upper bound on the norm of a fitted model (all outputs stacked)."""
        longest = self.loss.longest(self.regularization, self.norm)
        return longest if self.radius is None else min(self.radius, longest)

    def sensitivity(self, records: int, group: int = 1, parties: int = 1) -> float:
        """The sensitivity of a sum of models to replacing `group` records, wherever they lie, for `parties` parties
        with at least `records` records each."""
        return min(group * self._moved(records) / records, 2.0 * self.model_bound * min(group, parties))

    def scaled_sensitivity(self, most: int, group: int = 1, parties: int = 1) -> float:
        """The sensitivity of a sum of N_i·W_i to replacing `group` records, for `parties` parties with N_i ≤ `most`."""
        return min(group * self._moved(most), 2.0 * self.model_bound * most * min(group, parties))

    def _moved(self, records: int) -> float:
        """N times the sensitivity of a model of N records: (D + 2Lτ)/Λ. It grows with N, and falls if divided by N."""
        full = 2.0 * self.lipschitz / self.regularization
        if self.solver == "sgd":
            return full * sgd.worst_imbalance(self.batch) * (1.0 + SLACK)
        slack = SLACK + 2.0 * records * certified.rounding(self._condition(self.norm))
        return self.loss.distance(self.regularization, self.norm) / self.regularization + full * slack

    def _condition(self, lengths: certified.Number) -> certified.Number:
        """κ for records of at most these lengths."""
        return self.loss.curvature * lengths**2 / self.regularization

    def party_sensitivity(self) -> float:
        """The sensitivity of a model to replacing all of the party's records."""
        return 2.0 * self.model_bound

    def fit(self, block: Block) -> Floats:
        """The models (B, outputs, d) of the block's parties."""
        weights = self._certified(block) if self.solver == "certified" else self._sgd(block)
        squared_norms = np.einsum("bij,bij->b", weights, weights)
        factors = sgd.shrinking(squared_norms, self.model_bound)
        return weights if (factors == 1.0).all() else weights * factors[:, None, None]

    def _certified(self, block: Block) -> Floats:
        parts = list(block.by_size())
        if len(parts) == 1:
            return self._certified_alike(parts[0][1])
        # Apart, since padding would change the last digits by what other parties have.
        weights = np.empty((len(block), self.loss.outputs, block.features.shape[2]))
        for positions, part in parts:
            weights[positions] = self._certified_alike(part)
        return weights

    def _certified_alike(self, block: Block) -> Floats:
        """The models of parties with equally many records."""
        space = space_for(block.features)
        # Shorter records have smaller rounding errors.
        lengths = np.minimum(space.lengths(), self.norm)
        inexact = self.loss.slope_norm * lengths * certified.rounding(self._condition(lengths))
        tolerances = SLACK / 2.0 * self.lipschitz / block.counts + inexact
        targets = self.loss.targets(block.labels)
        coefficients = certified.minimise(
            space, self.loss, targets, block.record_weights(), self.regularization, tolerances
        )
        return space.weights(coefficients)

    def _sgd(self, block: Block) -> Floats:
        weights = np.empty((len(block), self.loss.outputs, block.features.shape[2]))
        # Only a radius that the study sets is kept at every step: R is kept at the end, by `fit`.
        may_leave = self.radius is not None and self.radius < self.lipschitz / self.regularization
        for positions, part in block.by_size():
            space = space_for(part.features)
            order = np.random.default_rng(self.seed).permutation(part.features.shape[1])
            coefficients = sgd.descend(
                space,
                self.loss,
                self.loss.targets(part.labels),
                batch=self.batch,
                epochs=self.epochs,
                smoothness=self.smoothness,
                regularization=self.regularization,
                radius=self.model_bound if may_leave else math.inf,
                order=order,
            )
            weights[positions] = space.weights(coefficients)
        return weights
