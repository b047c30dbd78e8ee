"""The functional mechanism with coefficients of one's own (CAPE, Algorithm 3): of any order, in one release."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unspoken.arithmetic import blocks
from unspoken.learners.polynomials import Monomials, Polynomial
from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, Function
from unspoken.methods.functions.observed import Observed
from unspoken.methods.releases import Statistics
from unspoken.methods.workloads import Asker, Query
from unspoken.types import Floats

Coefficients = Callable[[Floats], Mapping[int, Any]]
"""Makes the coefficients of one record, by their order"""
_ROOM = 1.0 - 1e-9
"""For rounding: a record's vector is the same in neighbouring data sets, but its norm is off by up to order!·2⁻⁵³"""


class RecordPolynomials(Function):
    """The sum over records of a polynomial that each record has.

    Formal guarantee. Of a record's tensor of order j only the symmetric part counts, which is all that ⟨Λ_j, w ⊗ … ⊗ w⟩
    depends on. It is clipped to the Frobenius norm r_j and divided by r_j·√J, for J orders; so a record's contribution
    has norm at most 1, and replacing it moves the sum by at most 2. None of this depends on what the author of the
    function states: the function gets one record at a time, and a record on which it fails counts as zeros. (The
    published mechanism spends the budget once for each order; here all orders are one release.)
    """

    sensitivity, record_bound = 2.0, 1.0

    def __init__(self, coefficients: Coefficients, variables: int, norms: Mapping[int, float]) -> None:
        self._coefficients, self._norms = coefficients, dict(sorted(norms.items()))
        self._monomials = {order: Monomials(variables, order) for order in self._norms}
        self.observed = Observed("records' polynomials", "norms")
        self.dimension = sum(monomials.size for monomials in self._monomials.values())

    def scale(self, order: int) -> float:
        """The factor of a packed coefficient over a released number."""
        return self._norms[order] * math.sqrt(len(self._norms))

    def try_out(self, features: int) -> None:
        """Raise an error if the coefficients fail on a made-up record, which says nothing about a party's records."""
        self._bounded(np.random.default_rng(0).uniform(size=features) / math.sqrt(features))
        self.observed = Observed(self.observed.what, self.observed.bound)

    def _bounded(self, row: Floats) -> Floats:
        """A record's vector, within the norms; an error if its tensors are not as stated."""
        given, found, longest = self._coefficients(row.copy()), [], 0.0
        if not isinstance(given, Mapping):
            raise ValueError(
                f"Expected a dictionary of coefficients by order, such as {{1: vector, 2: matrix}}, got a "
                f"{type(given).__name__}."
            )
        if set(given) != set(self._norms):
            raise ValueError(f"Expected coefficients of the orders {[*self._norms]}, got {sorted(given)}.")
        for order, largest in self._norms.items():
            raw, monomials = np.asarray(given[order]), self._monomials[order]
            shape = (monomials.variables,) * order
            tensor = np.full(raw.shape, math.nan) if np.iscomplexobj(raw) else raw.astype(np.float64)
            if tensor.shape != shape or not np.isfinite(tensor).all():
                got = tensor.shape if tensor.shape != shape else "some that are not"
                raise ValueError(f"Expected finite coefficients of order {order} and shape {shape}, got {got}.")
            # In units of its largest entry: squares of very small numbers would be lost.
            unit = float(np.abs(tensor).max(initial=0.0))
            vector = monomials.packed(tensor / unit if unit else tensor)
            norm = float(np.linalg.norm(vector))
            length = unit * norm
            # Of the vector in these units, clipped: its norm is at most r_j, in units of r_j·√J.
            found.append(vector * (min(length, _ROOM * largest) / norm / self.scale(order) if norm else 0.0))
            longest = max(longest, length / largest)
        self.observed.saw(longest)
        return np.concatenate(found)

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        total = np.zeros(self.dimension)
        for block in blocks(len(features)):
            part = np.zeros(self.dimension)
            for row in features[block]:
                part += self._vector(row)
            total += part
        return total

    def _vector(self, row: Floats) -> Floats:
        """A record's vector; zeros where the coefficients fail, since that must not be seen from outside."""
        try:
            return self._bounded(row)
        except Exception:
            self.observed.saw_failure()
            return np.zeros(self.dimension)

    def polynomial(self, total: Floats, records: int) -> Polynomial:
        """The mean polynomial of the records, from a total."""
        places = np.cumsum([monomials.size for monomials in self._monomials.values()])[:-1]
        parts = zip(self._monomials.items(), np.split(total, places), strict=True)
        return Polynomial(
            {order: monomials.unpacked(part * self.scale(order)) / records for (order, monomials), part in parts}
        )

    def conclude(self, ask: Asker) -> Conversation:
        total = yield from ask(Query(NAME))
        records = max(int(total.exact[0]), 1)
        found = self.polynomial(total.noisy, records)
        statistics = {f"order {order}": tensor.tolist() for order, tensor in found.coefficients.items()}
        return Statistics(statistics, {"records": records, "noise_std": total.noise_std})
