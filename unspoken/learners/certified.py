"""A fast solver whose result is certified by its gradient norm.

The exact minimiser of a Λ-strongly convex objective has a known sensitivity, and a point whose gradient has norm at
most γ lies within γ/Λ of the minimiser. So it is enough to check the gradient norm at the point that a solver returns.
Reference: ERM output perturbation (Chaudhuri et al. 2011), with the optimiser's proof replaced by this check; it also
repairs DP-Helmet's DP_SVM_SMO, which is private in the paper only "if converged".

A party cannot report that it missed the tolerance: the report would reveal something about its records, without noise.
So the tolerance must always be reached. It is above the rounding errors of a gradient (`rounding`), and accelerated
descent reaches it within the steps allowed.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from unspoken.learners.losses import Loss
from unspoken.learners.parametrization import Space
from unspoken.types import Floats

Number = TypeVar("Number", float, Floats)

MAXIMUM_STEPS = 1_000_000
"""Far more steps than needed: the worst case is about √κ·log(1/tolerance), 10⁶ for κ = 10⁹ (with the tolerance that
`rounding` requires); records built to be hard take 2·10⁴."""
_ROUNDING = 64.0 * 2.0**-53
"""Room for the rounding errors of an inner product, which grow as the square root of its length"""
_LEAST_RIDGE = 1e-13
"""The smallest ridge, relative to the trace, with which a matrix can be inverted in double precision"""


def rounding(condition: Number) -> Number:
    """The error of a gradient in double precision, divided by the loss's Lipschitz constant L: 64·2⁻⁵³·κ.

    A model may have norm L/Λ, so scores of records of norm c are off by some 2⁻⁵³·c·L/Λ, and gradients by `curvature`·c
    times as much; κ = curvature·c²/Λ.

    >>> rounding(5e5) < 1e-8
    True
    """
    return _ROUNDING * condition


def minimise(
    space: Space, loss: Loss, targets: Floats, record_weights: Floats, regularization: float, tolerances: Floats
) -> Floats:
    """Coefficients of every party's model with ‖∇J‖ at most its tolerance, for J(W) = Λ/2‖W‖² + Σ weight·loss.

    If a tolerance is not reached, the last point is returned, uncertified; `rounding` and `MAXIMUM_STEPS` are chosen so
    that this does not happen.

    Accelerated descent (FISTA with restarts, O'Donoghue & Candès 2015), preconditioned by the curvature bound
    H ⪯ M = curvature·Xᵀ diag(weight) X + Λ (Böhning 1992), so that the number of steps hardly depends on Λ.
    Weights are equal over a party's records, and 0 for rows that only pad the block.

    A party's result is its first point within the tolerance, however many steps others in the block need: it depends
    on the party's own records alone.
    """
    parties, _, outputs = targets.shape
    preconditioner = _preconditioner(space, loss.curvature * record_weights.max(axis=1), regularization)
    weights = record_weights[:, :, None]
    current = np.zeros((parties, space.dimension, outputs))
    current_scores = np.zeros_like(targets)
    point, scores = current, current_scores
    momentum = np.ones(parties)
    found, is_left = np.empty_like(current), np.ones(parties, dtype=np.bool_)
    for _ in range(MAXIMUM_STEPS):
        gradient = space.gradient(loss.slopes(scores, targets) * weights)
        gradient += regularization * point
        if (reached := is_left & (space.norm_bounds(gradient) <= tolerances)).any():
            found[reached], is_left = point[reached], is_left & ~reached
            if not is_left.any():
                return found
        following = point - preconditioner @ gradient
        following_scores = space.scores(following)
        # Restart where the step and the momentum disagree (their inner product is positive).
        advance = following - current
        advance_scores = following_scores - current_scores
        uphill = space.inner(gradient, advance, advance_scores) > 0.0
        momentum[uphill] = 1.0
        next_momentum = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        push = ((momentum - 1.0) / next_momentum)[:, None, None]
        point = following + push * advance
        scores = following_scores + push * advance_scores
        current, current_scores, momentum = following, following_scores, next_momentum
    found[is_left] = point[is_left]
    return found


def _preconditioner(space: Space, curvatures: Floats, regularization: float) -> Floats:
    """M⁻¹ in coefficients: (curvature·Q + Λ I)⁻¹, one matrix a party.

    Where Λ would be lost in rounding, a larger ridge replaces it: M stays an upper bound, and steps are shorter.
    """
    moment = space.second_moment() * curvatures[:, None, None]
    diagonal = np.arange(moment.shape[1])
    ridges = np.maximum(regularization, _LEAST_RIDGE * np.einsum("bii->b", moment))
    moment[:, diagonal, diagonal] += ridges[:, None]
    inverse: Floats = np.linalg.inv(moment).astype(np.float64, copy=False)
    return inverse
