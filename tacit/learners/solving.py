"""Least squares from noisy moments: the repair of a matrix that noise may have made indefinite.

Everything here uses the released moments and the known level of their noise, never the data.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from tacit.learners.second_moments import cleaned_eigenvalues
from tacit.types import Floats

Repair = Literal["filter", "ridge", "adassp", "none"]

_FAILURE = 0.05
"""AdaSSP's ρ: how often its bound on the noise may fail."""


def solve(
    second: Floats, mixed: Floats, deviation: float, repair: Repair, coefficients: float, balance: float
) -> Floats:
    """(XᵀX)⁻¹ XᵀT from noisy moments with noise of `deviation` on each entry of XᵀX off the diagonal.

    - "filter": in the noisy matrix's eigenvectors, a cleaned eigenvalue a (`cleaned_eigenvalues`) becomes the factor
      a/(a² + κγ²), γ = deviation·√d, κ = 1 + 2/(β²R²): it minimises the expected excess loss for coefficients of norm
      R that point nowhere in particular, since noise of variance v = σ²(1/β² + R²/2) an entry is worth a ridge of
      v·d/(aR²) at the eigenvalue a.
    - "ridge": cleaned eigenvalues and the ridge γ.
    - "adassp": a ridge that lifts the smallest eigenvalue to the noise's bound γ√log(2d²/ρ) (Wang 2018, with the
      smallest eigenvalue taken from the released matrix).
    - "none": the pseudo-inverse, as published.
    """
    if repair == "none":
        return np.asarray(np.linalg.pinv(second, hermitian=True) @ mixed)
    observed, vectors = np.linalg.eigh(second)
    scale = deviation * math.sqrt(len(second))
    if repair == "adassp":
        bound = scale * math.sqrt(math.log(2.0 * len(second) ** 2 / _FAILURE))
        ridge = max(0.0, bound - max(0.0, float(observed[0]) - 2.0 * scale))
        factors = 1.0 / np.maximum(np.maximum(observed, 0.0) + ridge, 1e-300)
    else:
        cleaned = cleaned_eigenvalues(observed, scale)
        least = max(1e-4 * float(cleaned.mean()), 1e-300)
        if repair == "ridge":
            factors = 1.0 / (cleaned + max(scale, least))
        else:
            kappa = 1.0 + 2.0 / (balance * coefficients) ** 2
            factors = cleaned / (cleaned**2 + max(kappa * scale**2, least * 1e-9))
    solved: Floats = vectors @ ((vectors.T @ mixed) * factors[:, None])
    return solved
