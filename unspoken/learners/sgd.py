"""Projected stochastic gradient descent, with the sensitivity of its actual batches.

DP-Helmet, Algorithms 1 and 3 (after Wu et al. 2017, Lemma 8), with four repairs: the iterate is projected onto the
ball of radius R only when it lies outside; the step size uses the true smoothness for inputs of norm c; batches are as
equal as possible; and the sensitivity counts the batch sizes that occur.

Formal guarantee. If one record is replaced, the final models are at most 2L / (Λ · smallest batch · batches) apart,
after any number of epochs. Proof: a step on the common part of two neighbouring batches contracts by 1 − α_tΛ (as
α_t ≤ 1/β), and the replaced record pushes the two apart by at most 2α_tL/b in the steps whose batch, of b records,
holds it. A push at step t reaches the end with weight u_t = α_t ∏_{s>t}(1 − α_sΛ). For α_t = 1/(Λt) the product
telescopes to u_t = 1/(ΛT); for the earlier steps, capped at 1/β, it is smaller. With one push an epoch, T/B in all, the
sum is at most (T/B) · 2L/(b ΛT).
"""

from __future__ import annotations

import math

import numpy as np

from unspoken.learners.losses import Loss
from unspoken.learners.parametrization import Space
from unspoken.types import Floats, Integers


def batch_sizes(records: int, batch: int) -> list[int]:
    """Sizes of the ⌈records/batch⌉ batches of an epoch, differing by at most one.

    >>> batch_sizes(50, 20)
    [17, 17, 16]
    """
    batches = math.ceil(records / batch)
    small, larger = divmod(records, batches)
    return [small + 1] * larger + [small] * (batches - larger)


def step_sizes(steps: int, smoothness: float, strong_convexity: float) -> Floats:
    """α_t = min(1/β, 1/(Λt)) for t = 1 … steps."""
    sizes: Floats = np.minimum(1.0 / smoothness, 1.0 / (strong_convexity * np.arange(1, steps + 1)))
    return sizes


def worst_imbalance(batch: int) -> float:
    """An upper bound on N / (smallest batch · batches) for any number N of records: batch / (batch − 1).

    B > 1 batches hold N > (B − 1)·batch records, and B times the smallest is at least N − (B − 1), so the ratio is
    at most 1 + (B − 1) / ((B − 1)(batch − 1) + 1). Batches of one record, or a single batch, are always equal.

    >>> worst_imbalance(1), worst_imbalance(21)
    (1.0, 1.05)
    """
    return 1.0 if batch == 1 else batch / (batch - 1)


def descend(
    space: Space,
    loss: Loss,
    targets: Floats,
    *,
    batch: int,
    epochs: int,
    smoothness: float,
    regularization: float,
    radius: float,
    order: Integers,
) -> Floats:
    """Coefficients of every party's model after `epochs` passes over its records in the given (public) order.

    All parties have the same number of records. Models that start at 0 never leave the ball of radius L/Λ; then
    `radius = inf` skips the projection.
    """
    parties, records, outputs = targets.shape
    sizes = batch_sizes(records, batch)
    batches = np.split(order, np.cumsum(sizes)[:-1])
    coefficients = np.zeros((parties, space.dimension, outputs))
    for step, alpha in enumerate(step_sizes(epochs * len(sizes), smoothness, regularization)):
        rows = batches[step % len(sizes)]
        slopes = np.zeros_like(targets)
        slopes[:, rows] = loss.slopes(space.scores_of(coefficients, rows), targets[:, rows]) / len(rows)
        coefficients *= 1.0 - alpha * regularization
        coefficients -= alpha * space.gradient(slopes)
        if math.isfinite(radius):
            coefficients *= shrinking(space.squared_norms(coefficients), radius)[:, None, None]
    return coefficients


def shrinking(squared_norms: Floats, radius: float) -> Floats:
    """The factors that project vectors of these squared norms onto the ball of the given radius."""
    return radius / np.maximum(np.sqrt(squared_norms), radius)
