"""Any fast solver, made private by a certificate.

The exact minimiser of a Λ-strongly convex objective has a sensitivity whatever found it, and a point whose gradient
has norm at most γ lies within γ/Λ of the minimiser. So the only thing that must be proven of a solver is the gradient
norm at the point it returns. Reference: ERM output perturbation (Chaudhuri et al. 2011), with the optimiser's proof
replaced by this check; it also repairs DP-Helmet's DP_SVM_SMO, private there only "if converged".

If a party reported that it missed the tolerance, that report would depend on its records, without noise. So a tolerance
must be one that is always reached: above the rounding errors of a gradient (`rounding`), and within the steps that
accelerated descent needs for it at worst.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from unspoken.learners.losses import Loss
from unspoken.learners.parametrization import Space
from unspoken.types import Floats

Number = TypeVar("Number", float, Floats)

MAXIMUM_STEPS = 1_000_000
"""Far more than it takes. At worst there are about √κ·log(1/tolerance) of them, 10⁶ where the tolerance that `rounding`
asks for makes it most (κ = 10⁹); records built to be hard take 2·10⁴."""
_ROUNDING = 64.0 * 2.0**-53
"""Room for the rounding errors of a product of thousands of numbers, which grow as the square root of their number"""
_LEAST_RIDGE = 1e-13
"""Of the trace: with less a matrix cannot be inverted in double precision."""


def rounding(condition: Number) -> Number:
    """How far a gradient in double precision may be off, in units of the loss's Lipschitz constant L: 64·2⁻⁵³·κ.

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

    Where a tolerance is too small to be reached at all, the point of the last step. Such a model is not certified;
    `rounding` and `MAXIMUM_STEPS` are chosen so that this does not happen.

    Accelerated descent (FISTA with restarts, O'Donoghue & Candès 2015), preconditioned by the curvature bound
    H ⪯ M = curvature·Xᵀ diag(weight) X + Λ (Böhning 1992), so that the number of steps hardly depends on Λ.
    Weights are equal over a party's records, and 0 for rows that only pad the block.
    """
    parties, _, outputs = targets.shape
    preconditioner = _preconditioner(space, loss.curvature * record_weights.max(axis=1), regularization)
    weights = record_weights[:, :, None]
    current = np.zeros((parties, space.dimension, outputs))
    current_scores = np.zeros_like(targets)
    point, scores = current, current_scores
    momentum = np.ones(parties)
    for _ in range(MAXIMUM_STEPS):
        gradient = space.gradient(loss.slopes(scores, targets) * weights)
        gradient += regularization * point
        if (space.norm_bounds(gradient) <= tolerances).all():
            return point
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
    return point


def _preconditioner(space: Space, curvatures: Floats, regularization: float) -> Floats:
    """M⁻¹ in coefficients: (curvature·Q + Λ I)⁻¹, one matrix a party.

    Where Λ is lost in rounding a larger ridge takes its place: M is then still a bound, and steps are shorter.
    """
    moment = space.second_moment() * curvatures[:, None, None]
    diagonal = np.arange(moment.shape[1])
    ridges = np.maximum(regularization, _LEAST_RIDGE * np.einsum("bii->b", moment))
    moment[:, diagonal, diagonal] += ridges[:, None]
    inverse: Floats = np.linalg.inv(moment).astype(np.float64, copy=False)
    return inverse
