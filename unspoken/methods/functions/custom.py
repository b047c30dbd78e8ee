"""A function of one's own (`unspoken.compute`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, Function
from unspoken.methods.releases import Statistics
from unspoken.methods.workloads import Asker, Query
from unspoken.types import Floats

_MADE_UP = 1000
"""The largest number of made-up rows that a function is tried out on"""


class Custom(Function):
    """Any function of a party's records, with a sensitivity that its author states.

    Where it fails (raises an error, or gives numbers that are not finite, or not as many as stated) a party contributes
    zeros. Zeros are within the bound, but only the author knows how far they are from what the function gives for other
    rows. So the stated sensitivity must hold with them.
    """

    def __init__(self, function: Callable[[Floats], Any], dimension: int, sensitivity: float, bound: float) -> None:
        self._function, self._bound = function, bound
        self.dimension, self.sensitivity, self.record_bound = dimension, sensitivity, bound
        self.cautions = (
            f"that replacing one record moves the function's total by at most {sensitivity:g} is its author's word, "
            "also where the function fails on a party's records, which then counts as zeros",
        )

    def bound(self, records: int) -> float:
        return self._bound

    def try_out(self, features: int, records: int, norm: float) -> None:
        """Say what is wrong with the function on made-up rows, so that no party's records have a part in it."""
        rows = np.random.default_rng(0).uniform(size=(min(records, _MADE_UP), features))
        vector = self._vector(rows / max(1.0, math.sqrt(features) / norm))
        if vector.shape != (self.dimension,):
            raise ValueError(f"Expected the function to give {self.dimension} numbers, got the shape {vector.shape}.")
        if not np.isfinite(vector).all():
            raise ValueError(f"Expected the function to give finite numbers, got {vector[~np.isfinite(vector)][0]}.")

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        """The function's numbers; zeros where it fails, since that must not be seen from outside."""
        try:
            vector = self._vector(features)
        except Exception:
            return np.zeros(self.dimension)
        is_right = vector.shape == (self.dimension,) and np.isfinite(vector).all()
        return vector if is_right else np.zeros(self.dimension)

    def _vector(self, rows: Floats) -> Floats:
        return np.asarray(self._function(rows), dtype=np.float64)

    def conclude(self, ask: Asker) -> Conversation:
        total = yield from ask(Query(NAME))
        details = {"records": int(total.exact[0]), "noise_std": total.noise_std}
        return Statistics({"total": total.noisy.tolist()}, details)
