"""The largest distance of two records' gradients at the same model, which bounds how far a replaced record moves a
minimiser.

Let w minimise Λ/2 ‖w‖² + mean loss over N records, and w' the same with one record z replaced by z'. At w the second
objective has the gradient (∇l(w; z') − ∇l(w; z))/N, and it is Λ-strongly convex, so

    NΛ ‖w − w'‖ ≤ D = the largest ‖∇l(w; z) − ∇l(w; z')‖ over all pairs of records and all w that can be a minimiser.

We may assume that all records have the full norm c: a shorter one gets a coordinate of its own that brings it to c and
that w ignores, which changes no score and only moves gradients further apart. With c = 1, a minimiser of norm at most M
(`Loss.longest`, times c) gives scores of norm at most M. Below, D is found for c = 1.

Margins: `mirrored`. Softmax: `softmax_distance`. Maxima are certified: `largest` never returns less than the maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from unspoken.types import Floats

Bound = Callable[[Floats, Floats], Floats]
"""An upper bound of a function on boxes, given by the arrays (n, axes) of their lower and upper corners"""

_TOLERANCE = 1e-4
"""The relative excess of a certified maximum over that of a bound at single points, at most"""
_MOST_BOXES = 1_000_000
_SHARES = 12
"""The number of ways in which `_squared_lengths` shares a norm between two records"""


def largest(bound: Bound, highest: tuple[float, ...], pieces: int) -> float:
    """The certified maximum, over 0 ≤ x ≤ highest, of a positive function, by splitting boxes that may hold it.

    >>> 1.0 <= largest(lambda low, high: np.sin(high[:, 0]) * np.cos(low[:, 0]) * 2.0, (math.pi / 2,), 8) <= 1.001
    True
    """
    axes = [np.linspace(0.0, end, pieces + 1) for end in highest]
    lows = np.stack(np.meshgrid(*(axis[:-1] for axis in axes), indexing="ij"), axis=-1).reshape(-1, len(axes))
    highs = np.stack(np.meshgrid(*(axis[1:] for axis in axes), indexing="ij"), axis=-1).reshape(-1, len(axes))
    reached = 0.0
    while True:
        middles = (lows + highs) / 2.0
        reached = max(reached, float(bound(middles, middles).max()))
        bounds = bound(lows, highs)
        open_boxes = bounds > reached * (1.0 + _TOLERANCE)
        if not open_boxes.any():
            return reached * (1.0 + _TOLERANCE)
        if open_boxes.sum() << len(axes) > _MOST_BOXES:
            return float(bounds.max())
        lows, highs, middles = lows[open_boxes], highs[open_boxes], middles[open_boxes]
        for axis in range(len(axes)):
            lower, upper = highs.copy(), lows.copy()
            lower[:, axis] = upper[:, axis] = middles[:, axis]
            lows, highs, middles = (
                np.concatenate(pair) for pair in ((lows, upper), (lower, highs), (middles, middles))
            )


def mirrored(slope: Callable[[Floats], Floats], reach: float) -> float:
    """D of a margin loss whose slope is −f(−margin): 2 · max over g in [0, π/2] of f(M sin g) cos g. It is exact.

    f grows, is concave above 0, f' falls with the distance from 0, and f(x) + f(−x) ≤ 2f(0). (If f is 1 from 0 on, as
    for an SVM with a narrow bend, D = 2 needs no proof.)

    Proof. A gradient is f(⟨w, v⟩)·v with v = −label·x. Let ⟨w, v⟩ = M sin a and ⟨w, v'⟩ = M sin b, A and B their f.
    The angle of v and v' is at most π − |a + b|, so that the squared distance is at most A² + B² + 2AB cos(a + b).
    If a + b ≤ 0, it is at most (A + B)² ≤ (f(−M sin b) + f(M sin b))² ≤ 4f(0)², the value at g = 0. Otherwise let
    a ≥ b, hold a + b = 2g, and let a grow: the derivative is 2A'(A + kB) − 2B'(B + kA), k = cos(a + b), with
    A'/B' ≤ cos a/cos b, as f' falls. It is not positive: (B + kA)/(A + kB) falls with A/B. For b ≥ 0 that is at most
    sin a/sin b, where it is sin(a + b) cos a/(sin(a + b) cos b); for b < 0 it is at least k, and as a ≥ −b,
    cos(a + b) cos b ≥ cos a. So a = b = g is the worst: two records mirrored at w, both on its wrong side.

    >>> round(mirrored(lambda x: 1 / (1 + np.exp(-x)), 1.669) / 2, 3)
    0.607
    """

    def bound(low: Floats, high: Floats) -> Floats:
        return slope(reach * np.sin(high[:, 0])) * np.cos(low[:, 0])

    return 2.0 * largest(bound, (math.pi / 2.0,), 64)


def softmax_distance(classes: int, reach: float) -> float:
    """D of softmax for K ≥ 3 classes: the root of the largest of the four bounds of `_Pair`, over all angles."""
    squared = largest(
        lambda low, high: _Pair(classes, reach, low, high).squared_distance(), (math.pi / 4.0, math.pi / 2.0), 24
    )
    return math.sqrt(squared)


class _Pair:
    """Bounds on the squared distance of the gradients of two records, on boxes of two angles.

    Records x and x' at an angle of at least 90° are x = cos g·e + sin g·e', x' = −cos g·e + sin g·e' with orthonormal
    e, e' and g in [0, π/4]. Their scores s, s' have a half sum of norm `small` = M sin g cos o and a half difference
    of norm `big` = M cos g sin o, for ‖We'‖ ≤ M cos o and ‖We‖ ≤ M sin o. So ‖s‖, ‖s'‖ ≤ `long` = M sin(g + o). If the
    angle is below 90°, take −x': half sum and half difference change places. With κ = cos 2g, probabilities p, p' and
    labels y, z, the squared distance is ‖p − e_y‖² + ‖p' − e_z‖² ± 2κ⟨p − e_y, p' − e_z⟩, and four cases follow by

    - ⟨p, p'⟩ ≤ `squared(small)`, the largest ‖p‖² at scores of that norm: as Σeˢ·Σeˢ' ≥ (Σe^((s+s')/2))² (Cauchy and
      Schwarz), ⟨p, p'⟩ is at most ‖softmax of the half sum‖²;
    - p_y + p'_y ≥ 2√(p_y p'_y) ≥ 2e^(−small·e)/Z and every probability ≥ π = e^(−long·e)/Z, where e = √((K−1)/K) is
      the largest coordinate of a centred unit vector and Z the largest Σeˢ;
    - ‖p − p'‖² ≤ 2tanh²(small/√2): log p/p' oscillates by ω ≤ 2√2·small, so the total variation is at most tanh(ω/4);
    - p_z − p_y changes by at most 2tanh(small/√2) too, or by 2·small·‖Hv‖, H = diag p − ppᵀ, v = e_z − e_y. With
      m = p_y + p_z and D = (p_z − p_y)², ‖Hv‖² ≤ ½((m − D)² + D(1−m)²) + D(1−m)², which is convex in D: so it is at
      most max(½, 2(1−m)²)·m², and with m ≤ μ (`_mass`), √2‖Hv‖ ≤ 2μ(1−μ) for μ ≤ ½, else μ.
    """

    def __init__(self, classes: int, reach: float, low: Floats, high: Floats) -> None:
        (g0, o0), (g1, o1) = low.T, high.T
        self.classes, self.corner = classes, math.sqrt((classes - 1) / classes)
        self.small = reach * np.sin(g1) * np.cos(o0)
        self.big = reach * np.cos(g0) * np.sin(o1)
        self.long = reach * np.sin(np.clip(math.pi / 2.0, g0 + o0, g1 + o1))
        self.most, self.least = np.cos(2.0 * g0), np.cos(2.0 * g1)
        self.sin_most, self.sin_least = np.sin(g1) ** 2, np.sin(g0) ** 2
        # log Σeˢ grows along a ray by ⟨p, s⟩ ≤ ‖s‖·√(‖p‖² − 1/K): most if one score is large, as with ‖p‖².
        self.log_total = np.logaddexp(
            self.long * self.corner, math.log(classes - 1) - self.long / math.sqrt(classes * (classes - 1))
        )

    def squared_distance(self) -> Floats:
        rare = np.exp(-self.long * self.corner - self.log_total)
        both_rare = 2.0 * np.exp(-self.small * self.corner - self.log_total)
        lengths, common = self._squared_lengths(), 2.0 * self.most * self.squared(self.small)
        apart = 2.0 * np.tanh(self.small / math.sqrt(2.0)) ** 2
        near = 4.0 * self.sin_most * self.squared(self.big)
        cases = (
            # At 90° or more, one label, and two.
            2.0 * (1.0 + self.most) * (1.0 - both_rare) + lengths + common,
            2.0 + lengths + common - 4.0 * (1.0 + self.least) * rare,
            # Below 90°, one label, and two.
            4.0 * self.sin_most + near + apart - 8.0 * self.sin_least * rare,
            2.0
            + 4.0 * self.most * self._change()
            + np.minimum(apart + near, 2.0 * self.squared(self.long))
            - 8.0 * self.sin_least * rare,
        )
        return np.asarray(np.max(cases, axis=0))

    def squared(self, norm: Floats) -> Floats:
        """The largest ‖p‖² for scores of this norm: r² + (1−r)²/(K−1), r = 1/(1 + (K−1)e^(−norm/e)), one score large.

        Proof. Where the norm is smallest for a given ‖p‖², log p − mean = αp + βp² with β ≥ 0 (along p^t, norm and ‖p‖²
        fall together), which has at most two solutions p: the scores have two values. With a share a of large ones and
        q = 1 − 2a, ‖p‖² = (1 + v²)/K, 1/v = (coth(n/c) − q)/c, c = √(1−q²), n = norm/√K. Its derivative in q has the
        sign of q(coth t − t/sinh² t) − 1 < 0, t = n/c. So v is largest for the smallest share, a single score.
        """
        others = self.classes - 1
        top = 1.0 / (1.0 + others * np.exp(-norm / self.corner))
        return np.asarray(top**2 + (1.0 - top) ** 2 / others)

    def _squared_lengths(self) -> Floats:
        """A bound on ‖p‖² + ‖p'‖².

        ‖p‖² ≤ r² + (1−r)·r₂ for the two largest probabilities r and r₂ (or r if r < r₂). A largest score h gives
        r ≤ 1/(1 + (K−1)e^(−hK/(K−1))), by Jensen; the second score is at most t = long·√((K−2)/2K), and so
        r₂ ≤ 1/(2 + (K−2)e^(−tK/(K−2))). The largest of s, at i, and of s', at j, are at most small·e + τ_i and
        small·e − τ_j for the half difference τ: for some angle, small·e + big·cos and small·e + big·sin (i = j: at 0).
        """
        each = self.squared(self.long)
        angles = np.linspace(0.0, math.pi / 4.0, _SHARES + 1)
        sums = [
            np.minimum(self._squared_length(np.cos(start)), each) + np.minimum(self._squared_length(np.sin(end)), each)
            for start, end in pairwise(angles)
        ]
        return np.asarray(np.max(sums, axis=0))

    def _squared_length(self, share: float) -> Floats:
        others = self.classes - 1
        highest = np.minimum(self.small * self.corner + share * self.big, self.long * self.corner)
        top = 1.0 / (1.0 + others * np.exp(-highest * self.classes / others))
        second = self.long * math.sqrt((self.classes - 2) / (2.0 * self.classes)) * self.classes / (self.classes - 2)
        after = 1.0 / (2.0 + (self.classes - 2) * np.exp(-second))
        return np.asarray(np.where(top < after, top, top**2 + (1.0 - top) * after))

    def _change(self) -> Floats:
        """A bound on half the change of p_z − p_y: min(tanh z, z·√2‖Hv‖), z = small/√2."""
        mass, step = self._mass(), self.small / math.sqrt(2.0)
        steep = np.where(mass <= 0.5, 2.0 * mass * (1.0 - mass), mass)
        return np.asarray(np.minimum(np.tanh(step), step * steep))

    def _mass(self) -> Floats:
        """The largest probability of two classes together.

        With scores h ± b, the others' mean is −2h/(K−2), so the odds are at most 2e^(hK/(K−2))·cosh b/(K−2), where
        h²·2K/(K−2) + 2b² ≤ long²: h and b share it by an angle.
        """
        rest = self.classes - 2
        angles = np.linspace(0.0, math.pi / 2.0, _SHARES + 1)
        odds = [
            self.long * math.sqrt(self.classes / (2.0 * rest)) * np.cos(start)
            + np.logaddexp(self.long * np.sin(end) / math.sqrt(2.0), -self.long * np.sin(end) / math.sqrt(2.0))
            for start, end in pairwise(angles)
        ]
        log_odds = np.max(odds, axis=0) - math.log(rest)
        return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))
