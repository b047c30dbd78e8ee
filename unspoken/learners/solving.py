"""Least squares from noisy moments: the repair of a matrix that noise may have made indefinite.

Everything here uses the released moments and the known level of their noise, never the data.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from unspoken.learners.second_moments import SecondMoments, cleaned_eigenvalues
from unspoken.types import Floats

Repair = Literal["ridge", "adassp", "none"]

_FAILURE = 0.05
"""AdaSSP's ρ, the failure probability of its bound on the noise"""
_ROUNDS = 4
_LEAST_EXPLAINED = 0.02
"""A floor on the explained mean square, relative to the labels' largest square"""
_ROUNDING = 1e-12
"""Eigenvalues below this part of the largest are rounding errors: the direction has no spread."""


def solve(
    moments: SecondMoments, second: Floats, mixed: Floats, deviation: float, records: int, repair: Repair
) -> Floats:
    """(UᵀU)⁻¹ UᵀT from noisy moments, with noise of `deviation` on each entry of UᵀU off the diagonal.

    - "ridge": eigenvalues are cleaned (`cleaned_eigenvalues`), then a ridge λ is added. Noise moves U'T − U'U·W by a
      variance of v = deviation²·(2k/β² + ‖W‖²) in each direction, all k targets together. If each of the d directions
      explains equally much of the labels, λ = v·d/(n·e) minimises the expected excess loss, with e the mean square that
      W explains. W and e come from the solution for the previous ridge, in a few iterations. Where an eigenvalue a is
      below the noise's scale γ = deviation·√d, its direction is lost too, and the ridge is at least 3γ²/(2(a + γ)).
    - "adassp": a ridge that lifts the smallest eigenvalue to the noise's bound γ√log(2d²/ρ), γ = deviation·√d (Wang
      2018, with the smallest eigenvalue taken from the released matrix).
    - "none": the pseudo-inverse, as published.

    Directions without spread (`_ROUNDING`) are left out, as in a pseudo-inverse: a constant would get the same weight
    for all classes, so large that their differences are lost in rounding.
    """
    if repair == "none":
        return np.asarray(np.linalg.pinv(second, hermitian=True) @ mixed)
    observed, vectors = np.linalg.eigh(second)
    scale = deviation * math.sqrt(len(second))
    turned = vectors.T @ mixed
    if repair == "adassp":
        bound = scale * math.sqrt(math.log(2.0 * len(second) ** 2 / _FAILURE))
        values = np.maximum(observed, 0.0)
        ridge = np.full(len(values), max(0.0, bound - max(0.0, float(observed[0]) - 2.0 * scale)))
    else:
        values = cleaned_eigenvalues(observed, scale)
        known = _ridge(moments, values, turned, deviation, records)
        ridge = np.maximum(known, 1.5 * scale**2 / np.maximum(values + scale, 1e-300))
    values = values + ridge
    kept = values > _ROUNDING * float(values.max(initial=0.0))
    solved: Floats = vectors[:, kept] @ (turned[kept] / values[kept, None])
    return solved


def _ridge(moments: SecondMoments, values: Floats, turned: Floats, deviation: float, records: int) -> float:
    """λ by the rule above, starting from the noise's scale."""
    size, most = len(values), moments.largest_target**2
    ridge = deviation * math.sqrt(size)
    if ridge == 0.0:
        return 0.0
    for _ in range(_ROUNDS):
        weights = turned / (values + ridge)[:, None]
        explained = float((weights * turned).sum()) / max(records, 1)
        explained = min(max(explained, _LEAST_EXPLAINED * most), most)
        variance = deviation**2 * (2.0 * moments.outputs / moments.balance**2 + float((weights**2).sum()))
        ridge = variance * size / (max(records, 1) * explained)
    return ridge
