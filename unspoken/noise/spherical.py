"""Noise of density ∝ exp(−‖b‖/scale): the vector Laplace distribution (Chaudhuri et al. 2011).

Its direction is uniform; its length has a Gamma distribution whose shape is the dimension. It is drawn in floating
point, so a guarantee that rests on it assumes exact real numbers, and says so.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from unspoken.noise.stream import SecretStream
from unspoken.types import Floats

ASSUMPTION = "real numbers are exact, because this noise is drawn in floating point"


def spherical_laplace(dimension: int, scale: float, stream: SecretStream) -> Floats:
    """One vector with density ∝ exp(−‖b‖/scale)."""
    direction = ndtri(_uniform(dimension, stream))
    length = -np.log(_uniform(dimension, stream)).sum() * scale
    vector: Floats = direction * (length / np.linalg.norm(direction))
    return vector


def _uniform(count: int, stream: SecretStream) -> Floats:
    """Uniform numbers in (0, 1), without the ends."""
    uniform: Floats = ((stream.words(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return uniform
