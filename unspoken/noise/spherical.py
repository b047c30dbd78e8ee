"""Noise whose density depends on its length alone, exp(−‖b‖/scale): the vector Laplace of Chaudhuri et al. 2011.

A uniform direction, and a length of the Gamma distribution with as many degrees as there are dimensions. It is drawn
in floating point, so a promise that rests on it assumes exact real numbers; guarantees say so.
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
    """In (0, 1), never at an end."""
    uniform: Floats = ((stream.words(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return uniform
