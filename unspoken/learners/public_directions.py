"""A map of records into the directions that public records vary in, by the known noise and the public spectrum.

Most of a record's length is often in a few directions that tell classes apart no better than others do: a common mean,
overall brightness. Noise is as large in every direction of a record of norm 1, so what matters is how much of that norm
is spent on directions worth learning. Public records without labels say which ones these may be.

The map. Let w be the eigenvalues of the public records' mean square Σxxᵀ/m, shrunk towards their average w̄ as far as so
few records make it advisable (Ledoit & Wolf 2004), and V their eigenvectors. A record becomes u = Ax with A =
c·V diag(f)Vᵀ,

    f² = 1 / (w + 2ℓ + ℓ⁴/w³ + w̄/10),

and is clipped to the study's norm again. Directions with w far above ℓ become equally long. Those near it stay shorter,
as classes differ less in directions that vary less, and those below fade out. Where noise is small, and ℓ with it, the
tenth of the average w̄ is left: whitening what is far below it would only amplify what is there by chance. ℓ leaves
Σw⁴/(w⁴ + ℓ⁴) = r directions, as many as the noise lets us learn: r = (X/2.5)^¾/√K for K outputs, at least K − 1 and
K/2 + 1, where X is the number of records over the deviation of the noise in a total that one record moves by 1. The
scale c makes the mean square norm of mapped public records 1.7 times the square of the study's norm: so most records
are as long as is allowed. (Where gradients are clipped, and not records, their mean square norm stays what it was.)
Weights W of mapped records are AW for records.

What the model is told afterwards. A model that is mostly noise still gives alike records alike scores, so public
records can average some of it out. Let S be its scores of the m mapped public records U, P the softmax of S, scaled to
a mean square of 4 without each record's mean, and T scores that have the means and the spread of S, but vary as P does.
The model W becomes

    (1 − γ)W + γ(UᵀU/m + ρI)⁻¹UᵀT/m,   γ = 1 / (4 + X/(3K√m)),

with ρ a tenth of the mean eigenvalue of UᵀU/m. P tells classes apart more sharply than S does, and the regression keeps
of it what many records agree on. γ weighs the noise of a model, which grows with K/X, against that of m public records.
It is at most a quarter, as classes that overlap are not to be told apart sharply, and next to nothing where noise is
small.

The constants: see docs/public.md.

Formal guarantee. Mapped records are clipped to the study's norm, in double precision, whatever A is: so all that rests
on that norm holds unchanged. A is computed from public records and the plan, and what is done afterwards from public
records and a released model; both cost nothing.

A is symmetric on purpose: it is a continuous function of the public records, so machines that differ in the last digit
of a sum differ in the last digits of A, whereas eigenvectors may differ altogether, in sign or where eigenvalues are
close. Nothing is decided by a threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from unspoken.types import Floats

LEAST_ROWS = 10
"""Fewer public records say next to nothing."""
_FLOOR = 0.1
_DIVISOR, _POWER = 2.5, 0.75
_LARGEST_RANK = 0.98
"""ℓ leaves at most this part of all directions."""
_LENGTH = 1.7
_SCORE, _RIDGE = 2.0, 0.1
"""The root mean square of scores before their softmax, and ρ over the mean eigenvalue"""
_TINY = 1e-300
_FAR, _HALVINGS = 100.0, 100


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues, from small to large, and eigenvectors of records' mean square, shrunk towards their average."""

    values: Floats
    vectors: Floats
    shrinkage: float

    @classmethod
    def of(cls, rows: Floats) -> Spectrum:
        """The spectrum of these rows: (1 − ρ)S + ρw̄I for S = Σxxᵀ/m, ρ by Ledoit & Wolf (2004), Lemma 3.3.

        >>> Spectrum.of(np.array([[1.0, 0.0], [0.0, 1.0]] * 50)).values.tolist()
        [0.5, 0.5]
        """
        count, size = rows.shape
        second = rows.T @ rows / count
        average, square = float(np.trace(second)) / size, float(np.einsum("ij,ij->", second, second))
        apart = square / size - average**2
        fourth = float((np.einsum("ij,ij->i", rows, rows) ** 2).mean())
        by_chance = max(fourth - square, 0.0) / (size * count)
        # So many records never say for sure that a direction is empty.
        shrinkage = min(1.0, max(by_chance / apart, 1.0 / (count + 1.0))) if apart > 0.0 else 1.0
        values, vectors = np.linalg.eigh(second)
        return cls((1.0 - shrinkage) * np.maximum(values, 0.0) + shrinkage * average, vectors, shrinkage)

    def faded(self, rank: float) -> float:
        """ℓ, at which Σw⁴/(w⁴ + ℓ⁴) is this rank.

        >>> round(Spectrum(np.array([1.0, 1.0]), np.eye(2), 0.0).faded(1.0), 9)
        1.0
        """
        logarithms = 4.0 * np.log(self.values)
        low, high = logarithms.min() - _FAR, logarithms.max() + _FAR
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            left = (1.0 / (1.0 + np.exp(np.minimum(middle - logarithms, _FAR)))).sum()
            low, high = (middle, high) if left > rank else (low, middle)
        return math.exp(low / 4.0)


def rank_for(signal: float, outputs: int, size: int) -> float:
    """r, the number of directions that the noise leaves of `size`.

    >>> round(rank_for(1262.0, 10, 1280)), rank_for(0.0, 10, 1280), round(rank_for(1e9, 10, 1280))
    (34, 9.0, 1254)
    """
    least = max(outputs - 1.0, outputs / 2.0 + 1.0)
    return float(min(max((signal / _DIVISOR) ** _POWER / math.sqrt(outputs), least), _LARGEST_RANK * size))


@dataclass(frozen=True, eq=False)
class PublicDirections:
    """The map, and what a plan says about it."""

    matrix: Floats
    """A, symmetric"""
    norm: float
    """The norm that mapped records are clipped to"""
    rank: float
    """r, the number of directions that are left"""
    largest: float
    """The largest mean square of a mapped record in any direction, over the square of the norm"""
    public: Floats
    """The public records, not mapped"""
    signal: float
    """X"""

    @classmethod
    def of(
        cls, rows: Floats, norm: float, outputs: int, signal: float, length: float | None = None
    ) -> PublicDirections:
        """The map from public records that are bounded as a party's are.

        `signal` is X. `length` is the mean square norm of mapped public records; None: as above.
        """
        spectrum = Spectrum.of(rows)
        values = spectrum.values
        rank = rank_for(signal, outputs, len(values))
        faded, floor = spectrum.faded(rank), _FLOOR * values.mean()
        with np.errstate(over="ignore"):
            squares = 1.0 / (values * (1.0 + (faded / values) ** 4) + 2.0 * faded + floor)
        wanted = _LENGTH * norm**2 if length is None else length
        # Of the public records' own mean square, not the shrunk one.
        matrix = (spectrum.vectors * np.sqrt(squares)) @ spectrum.vectors.T
        moved = rows @ matrix
        scale = wanted / max(float(np.einsum("ij,ij->", moved, moved)) / len(rows), _TINY)
        largest = float((values * squares).max()) * scale / norm**2
        return cls(matrix * math.sqrt(scale), norm, rank, largest, rows, signal)

    def apply(self, rows: Floats) -> tuple[Floats, Floats]:
        """Bounded rows, mapped and clipped to the norm, and the factors by which they were clipped."""
        moved = rows @ self.matrix
        norms = np.sqrt(np.einsum("ij,ij->i", moved, moved))
        factors: Floats = self.norm / np.maximum(norms, self.norm)
        return moved * factors[:, None], factors

    def undo(self, weights: Floats) -> Floats:
        """Weights (outputs, features) that score records as the given ones score mapped records, but for clipping."""
        undone: Floats = weights @ self.matrix
        return undone

    def told(self, weights: Floats, bias: Floats | float = 0.0) -> Floats:
        """Weights (outputs, features) of mapped records after public records have averaged some of their noise out."""
        rows, outputs = self.apply(self.public)[0], len(weights)
        scores = rows @ weights.T
        own = 1.0 / (4.0 + self.signal / (3.0 * max(outputs, 2) * math.sqrt(len(rows))))
        second = rows.T @ rows / len(rows)
        ridge = _RIDGE * float(np.trace(second)) / len(second)
        if own == 0.0 or ridge == 0.0:
            return weights
        wanted = rows.T @ _sharpened(scores, bias) / len(rows)
        found = np.linalg.solve(second + ridge * np.eye(len(second)), wanted).T
        told: Floats = (1.0 - own) * weights + own * found
        return told


def _sharpened(scores: Floats, bias: Floats | float) -> Floats:
    """T: scores with the means and the mean square of these, that vary as their softmax does.

    A single score is that of the second of two classes.
    """
    all_scores = scores + bias
    if scores.shape[1] == 1:
        all_scores = np.hstack([np.zeros_like(scores), all_scores])
    all_scores = all_scores - all_scores.mean(axis=1, keepdims=True)
    root = math.sqrt(float((all_scores**2).mean()))
    chances = softmax(all_scores * (_SCORE / max(root, _TINY)), axis=1)[:, -scores.shape[1] :]
    apart, chances = scores - scores.mean(axis=0), chances - chances.mean(axis=0)
    longer = math.sqrt(float((apart**2).mean()) / max(float((chances**2).mean()), _TINY))
    sharpened: Floats = scores.mean(axis=0) + longer * chances
    return sharpened
