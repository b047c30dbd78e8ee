"""A linear map of records that favours the directions in which public records vary, given the level of the noise.

Often most of a record's length is in a few directions that do not help to distinguish classes, such as a common mean or
overall brightness. Noise is equally large in every direction, and records are clipped to a norm, so it matters how much
of this norm is spent on directions worth learning. Public records without labels show which directions these may be.

The map. Let w be the eigenvalues of the public records' mean square Σxxᵀ/m, shrunk towards their average w̄ by the rule
of Ledoit & Wolf (2004), which depends on the number m of public records; let V be their eigenvectors. A record becomes
u = Ax with A = c·V diag(f)Vᵀ,

    f² = 1 / (w + 2ℓ + ℓ⁴/w³ + w̄/10),

and is clipped to the study's norm again. Directions with w far above ℓ get equal length. Those with w near ℓ stay
shorter, because classes differ less in directions of less variance, and those below fade out. If the noise and so ℓ are
small, the term w̄/10 remains: it keeps directions far below the average, which contain mostly chance, from being
amplified. ℓ is chosen so that Σw⁴/(w⁴ + ℓ⁴) = r directions are left, as many as can be learnt under the noise: r =
(X/2.5)^¾/√K for K outputs, at least K − 1 and K/2 + 1, where X is the number of records over the deviation of the noise
in a total that one record moves by 1. The scale c makes the mean square norm of mapped public records 1.7 times the
square of the study's norm, so that after clipping most records are as long as allowed. (Where gradients are clipped
instead of records, the mean square norm stays as it was.) Weights W of mapped records are AW for records.

Correcting the model afterwards. Similar records get similar scores even from a noisy model, so averaging over public
records can remove some of its noise. Let S be the model's scores of the m mapped public records U, and P the softmax of
S after S is centred for each record and scaled to a mean square of 4. Let T be P, rescaled to the means and the spread
of S. The model W becomes

    (1 − γ)W + γ(UᵀU/m + ρI)⁻¹UᵀT/m,   γ = 1 / (4 + X/(3K√m)),

with ρ a tenth of the mean eigenvalue of UᵀU/m. P separates classes more sharply than S does, and the regression keeps
what many records agree on. γ weighs the noise of the model, which grows with K/X, against the error of m public
records. It is at most a quarter, because overlapping classes should not be separated sharply, and almost zero if the
noise is small.

The constants: see docs/public.md.

Formal guarantee. Mapped records are clipped to the study's norm, in double precision, whatever A is, so every
sensitivity that rests on that norm holds unchanged. A is computed from public records and the plan, and the correction
from public records and a released model, so neither costs privacy.

A is symmetric on purpose: this makes it a continuous function of the public records. Machines that differ in the last
digit of a sum then differ only in the last digits of A, whereas eigenvectors alone may differ completely (in sign, or
where eigenvalues are close). No threshold decides anything.
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
        # A finite number of records cannot show that a direction is empty, so no eigenvalue is 0.
        shrinkage = min(1.0, max(by_chance / apart, 1.0 / (count + 1.0))) if apart > 0.0 else 1.0
        values, vectors = np.linalg.eigh(second)
        return cls((1.0 - shrinkage) * np.maximum(values, 0.0) + shrinkage * average, vectors)

    def faded(self, rank: float) -> float:
        """ℓ, at which Σw⁴/(w⁴ + ℓ⁴) is this rank.

        >>> round(Spectrum(np.array([1.0, 1.0]), np.eye(2)).faded(1.0), 9)
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
    """The map, and the correction of a model."""

    matrix: Floats
    """A, symmetric"""
    norm: float
    """The norm that mapped records are clipped to"""
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
        faded, floor = spectrum.faded(rank_for(signal, outputs, len(values))), _FLOOR * values.mean()
        with np.errstate(over="ignore"):
            squares = 1.0 / (values * (1.0 + (faded / values) ** 4) + 2.0 * faded + floor)
        wanted = _LENGTH * norm**2 if length is None else length
        # Of the public records' own mean square, not the shrunk one.
        matrix = (spectrum.vectors * np.sqrt(squares)) @ spectrum.vectors.T
        moved = rows @ matrix
        scale = wanted / max(float(np.einsum("ij,ij->", moved, moved)) / len(rows), _TINY)
        largest = float((values * squares).max()) * scale / norm**2
        return cls(matrix * math.sqrt(scale), norm, largest, rows, signal)

    def apply(self, rows: Floats) -> tuple[Floats, Floats]:
        """Bounded rows, mapped and clipped to the norm, and the factors by which they were clipped."""
        moved = rows @ self.matrix
        norms = np.sqrt(np.einsum("ij,ij->i", moved, moved))
        factors: Floats = self.norm / np.maximum(norms, self.norm)
        return moved * factors[:, None], factors

    def undo(self, weights: Floats) -> Floats:
        """Weights (outputs, features) that score records as the given ones score mapped records, apart from
        clipping."""
        undone: Floats = weights @ self.matrix
        return undone

    def told(self, weights: Floats, bias: Floats | float = 0.0) -> Floats:
        """Weights (outputs, features) of mapped records, corrected by public records as above."""
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
