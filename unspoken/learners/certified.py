"""Any fast solver, made private by a certificate.

The exact minimiser of a Λ-strongly convex objective has a sensitivity whatever found it, and a point whose gradient
has norm at most γ lies within γ/Λ of the minimiser. So the only thing that must be proven of a solver is the gradient
norm at the point it returns. Reference: ERM output perturbation (Chaudhuri et al. 2011), with the optimiser's proof
replaced by this check; it also repairs DP-Helmet's DP_SVM_SMO, private there only "if converged".
"""

from __future__ import annotations

import numpy as np

from unspoken.errors import UnspokenError
from unspoken.learners.losses import Loss
from unspoken.learners.spaces import Space
from unspoken.types import Floats

MAXIMUM_STEPS = 100_000


class NotCertified(UnspokenError):
    """A local model's gradient stayed above the tolerance that its sensitivity assumes."""


def minimise(
    space: Space, loss: Loss, targets: Floats, record_weights: Floats, regularization: float, tolerances: Floats
) -> Floats:
    """Coefficients of every party's model with ‖∇J‖ at most its tolerance, for J(W) = Λ/2‖W‖² + Σ weight·loss.

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
    raise NotCertified(
        f"a local model did not reach the gradient norm that its guarantee assumes within {MAXIMUM_STEPS} steps; "
        "use a larger regularization (or, for an svm, more smoothing)."
    )


def _preconditioner(space: Space, curvatures: Floats, regularization: float) -> Floats:
    """M⁻¹ in coefficients: (curvature·Q + Λ I)⁻¹, one matrix a party."""
    moment = space.second_moment() * curvatures[:, None, None]
    diagonal = np.arange(moment.shape[1])
    moment[:, diagonal, diagonal] += regularization
    inverse: Floats = np.linalg.inv(moment).astype(np.float64, copy=False)
    return inverse
