"""The hinge-loss SVM by subgradient descent with weighted averaging, for the convergence experiment.

DP-Helmet, Theorem 14 (after Lacoste-Julien et al. 2012): if Λ is so large that every record lies inside the margin,
the average of the parties' SVMs approaches the SVM of the pooled data, with an error of O(1/M) after M local steps.
The hinge loss is not smooth, so this learner has no sensitivity and no place in a private method.
"""

from __future__ import annotations

import numpy as np

from unspoken.learners.sgd import shrinking
from unspoken.types import Floats, Integers


def hinge_objective(weights: Floats, features: Floats, signs: Floats, regularization: float) -> float:
    """J(w) = Λ/2‖w‖² + mean of max(0, 1 − sign·wᵀx)."""
    losses = np.maximum(0.0, 1.0 - signs * (features @ weights))
    return float(regularization / 2.0 * (weights @ weights) + losses.mean())


def weighted_average_descent(
    features: Floats,
    signs: Floats,
    regularization: float,
    steps: int,
    radius: float,
    order: Integers,
) -> Floats:
    """The weighted average of the iterates of projected subgradient descent: step t has size 2/(Λ(t+1)) and weight t.

    `order` holds the index of the record that each step uses.
    """
    weights = np.zeros(features.shape[1])
    average = np.zeros_like(weights)
    for step in range(1, steps + 1):
        record = order[step - 1]
        subgradient = regularization * weights
        if signs[record] * (features[record] @ weights) < 1.0:
            subgradient = subgradient - signs[record] * features[record]
        weights = weights - 2.0 / (regularization * (step + 1)) * subgradient
        weights = weights * shrinking(weights @ weights, radius)
        average += 2.0 * step / (steps * (steps + 1)) * weights
    return average
