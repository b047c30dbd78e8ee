"""A function of one's own (`unspoken.compute`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, Function
from unspoken.methods.functions.observed import Observed
from unspoken.methods.parameters import NO_PARAMETERS, Parameters, Range
from unspoken.methods.releases import Statistics
from unspoken.methods.workloads import Asker, Query
from unspoken.types import Floats

_MADE_UP = 1000
"""The largest number of made-up rows that a function is tried out on"""


@dataclass(frozen=True)
class Turns:
    """Several turns of one function: each has numbers that follow from the totals before."""

    count: int
    start: Floats
    update: Callable[[Floats, Floats], Any]
    """Makes the numbers of the next turn of a noisy total and of this turn's numbers"""
    low: float
    high: float
    """All numbers are moved between these bounds"""

    @property
    def parameters(self) -> Parameters:
        return Parameters((Range(self.start.size, self.low, self.high),))

    def next(self, total: Floats, parameters: Floats) -> Floats:
        found = np.asarray(self.update(total, parameters), dtype=np.float64).ravel()
        if found.size != self.start.size:
            raise ValueError(f"Expected update to give {self.start.size} numbers, as start has, got {found.size}.")
        return self.parameters.nearest(found)


class Custom(Function):
    """Any function of a party's records, with a sensitivity that its author states.

    Where it fails (raises an error, or gives numbers that are not finite, or not as many as stated) a party contributes
    zeros. Zeros are within the bound, but only the author knows how far they are from what the function gives for other
    rows. So the stated sensitivity must hold with them.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        dimension: int,
        sensitivity: float,
        bound: float,
        turns: Turns | None = None,
    ) -> None:
        """With `turns`, the function takes the turn's numbers as well."""
        self._function, self._bound, self._turns = function, bound, turns
        self.count = 1 if turns is None else turns.count
        self.dimension, self.sensitivity, self.record_bound = dimension, sensitivity, bound
        self.observed = Observed("parties' vectors", "bound")
        self.together = 1
        """The number of parties whose rows the function gets at once: all of them if a curator has them"""
        self.cautions = (
            f"that replacing one record moves the function's total by at most {sensitivity:g} is its author's word, "
            "also where the function fails on a party's records, which then counts as zeros",
        )

    def bound(self, records: int) -> float:
        return self._bound

    def try_out(self, features: int, records: int, norm: float) -> None:
        """Raise an error if the function fails on made-up rows: such an error says nothing about a party's records."""
        rows = np.random.default_rng(0).uniform(size=(min(records, _MADE_UP), features))
        start = None if self._turns is None else self._turns.parameters.nearest(self._turns.start)
        vector = self._vector(rows / max(1.0, math.sqrt(features) / norm), start)
        if vector.shape != (self.dimension,):
            numbers = f"{self.dimension} number{'s' if self.dimension > 1 else ''}"
            raise ValueError(f"Expected the function to give {numbers}, got the shape {vector.shape}.")
        if not np.isfinite(vector).all():
            raise ValueError(f"Expected the function to give finite numbers, got {vector[~np.isfinite(vector)][0]}.")

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        """The function's numbers; zeros where it fails, since that must not be seen from outside."""
        try:
            vector = self._vector(features, parameters)
        except Exception:
            vector = np.empty(0)
        if vector.shape != (self.dimension,) or not np.isfinite(vector).all():
            self.observed.saw_failure()
            return np.zeros(self.dimension)
        with np.errstate(over="ignore"):
            self.observed.saw(float(np.linalg.norm(vector / (self._bound * self.together))))
        return vector

    def _vector(self, rows: Floats, parameters: Floats | None) -> Floats:
        # Copies: what a function changes in place would reach the next turn, the next party and the next numbers.
        given = (rows.copy(),) if parameters is None else (rows.copy(), parameters.copy())
        return np.atleast_1d(np.asarray(self._function(*given), dtype=np.float64))

    def parameters(self, name: str, turn: int) -> Parameters:
        return NO_PARAMETERS if self._turns is None else self._turns.parameters

    def conclude(self, ask: Asker) -> Conversation:
        if self._turns is not None:
            return (yield from self._in_turns(ask, self._turns))
        total = yield from ask(Query(NAME))
        details = {"records": int(total.exact[0]), "noise_std": total.noise_std}
        return Statistics({"total": total.noisy.tolist()}, details)

    def _in_turns(self, ask: Asker, turns: Turns) -> Conversation:
        """Each turn's total makes the numbers of the next one; the last ones are the result."""
        parameters, totals, details = turns.start, [], {}
        for turn in range(turns.count):
            known, total = yield from self.ask_within_bounds(ask, Query(NAME, parameters, turn))
            parameters = turns.next(total.noisy, known)
            totals.append(total.noisy.tolist())
            details = {"records": int(total.exact[0]), "noise_std": total.noise_std}
        return Statistics({"total": totals[-1], "totals": totals, "parameters": parameters.tolist()}, details)
