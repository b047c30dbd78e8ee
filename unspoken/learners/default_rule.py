"""The rule by which `moments` chooses all settings that a study leaves open. It uses public facts only, so nothing is
tuned on data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unspoken.learners.record_map import MatrixMap
from unspoken.learners.second_moments import Reshaping, cleaned_eigenvalues, parted, shrinkage_to
from unspoken.learners.softmax_steps import quiet_steps, schedule
from unspoken.types import Floats

MOST_WHITENED = 512
"""Second moments of more features are too many numbers to send."""
_LEAST_SIGNAL = 0.25
"""The X/d^1.5 from which second moments are worth a turn"""
_LEFT, _ROOM = 0.05, 0.5
"""The square of the common direction over that of the rest after the map, and the length that is stretched to 1"""
_LENGTH = 0.81
"""The mean square of whitened records"""
_TINY = 1e-9
LEAST_LABEL_SCALE = 1e-3


@dataclass(frozen=True)
class DefaultRule:
    """A linear model trained in a few steps on mapped records, with settings from public facts alone.

    Let n be the number of the study's records, d that of features, K that of classes, and σ the deviation of the noise
    in a total of sensitivity 1 that has the whole budget. All choices below follow from X = n/σ, d and K, and from
    earlier releases.

    Turn 0 asks for the mean m and the mean square q of records. The common mean of all records (|m|² without its noise)
    takes up length, and so budget, but does not distinguish classes. So its direction a is shrunk, to a twentieth of
    the square of the rest; it is not removed, because the intercept is part of it. The rest is stretched, so that after
    clipping to norm 1 almost all records are as long as allowed: A = (I − (1 − τ)aaᵀ)/(½√rest).

    Turn 1 asks for second moments Σuuᵀ of mapped records u. The noise on them has eigenvalues of about ±2σ√d, times a
    constant for the turn's share of the budget, and the eigenvalues of Σuuᵀ are n/d on average. So this turn is made if
    X exceeds a quarter of d^1.5, and if d²/2 numbers are not too many to send. Then records are whitened: a direction
    of eigenvalue w, cleaned of noise, is scaled by 1/√(w + g), with g the scale of the noise. The steps then learn all
    directions at the same pace, except those that are only noise.

    Each of the two turns has a twentieth of the budget. If there is only turn 0 and X is below 20√d, it has a tenth:
    the noise on m then has norm 2√(d/0.1)/X, which at X = 20√d is a third of the largest |m|.

    T steps have the rest. Each is a sum of gradients u·rᵀ, the residuals r clipped to norm C. Step t is η·(1 − t/T)^p
    long, p = min(½, 4/T). With noise of deviation s on every coordinate, η is chosen so that the noise of all steps
    together has deviation κ on every weight, hence at most κ on a score, for every ε. A larger ε therefore does not
    make the noise in the model smaller but the steps longer. No step is longer than 8K/(λn), with λ the largest mean
    square of mapped records in any direction: the curvature of the loss is at most λn/2, and λn/K while all classes
    have similar scores, and clipped residuals make it smaller still (where λ is not known, it is taken as 1/d; a
    regression has 1/(λn)). Beyond this length, more steps are better than
    longer ones: 16 instead of 8 if X exceeds 75√(dK), since the noise of a score grows with √(dK). Records that are
    neither whitened nor mapped by public records take twice as many steps, because directions in which they vary little
    are learnt slowly.

    In a regression a residual is the label minus the prediction, in units of the labels' deviation σ_y, which turn 0
    asks for as well. The loss is then Huber's. A σ_y that is too large would make the noise in predictions too large,
    so two deviations of its own noise are subtracted; a σ_y that is too small only clips more residuals, which does
    little harm. C grows with X from 1 to 4, because clipping skewed residuals causes a bias. The turns have a fifth and
    a tenth of the budget. If d is too large for whitening, or X too small for it or for σ_y (whose square, at most 1,
    has noise of 6.3/X), there is one sum for least squares instead.

    Weights W of mapped records are AᵀW for records. The constants are round numbers in the middle of wide flat optima.
    """

    features: int
    classes: int | None
    """K; None: a regression"""
    signal: float
    """X: the study's records over the deviation of the noise in a total of sensitivity 1 with the whole budget"""
    is_mapped: bool = False
    """Whether a map is known without asking for it, from public records; that of a regression never is"""
    given_steps: int | None = None
    """T, if the study names it"""

    @property
    def outputs(self) -> int:
        return self.classes or 1

    @property
    def least_signal(self) -> float:
        """The X from which on records are whitened."""
        least = _LEAST_SIGNAL * float(self.features**1.5)
        return least if self.classes else max(least, 50.0)

    @property
    def whitens(self) -> bool:
        """Whether second moments are asked for, to map records."""
        return not self.is_mapped and self.signal >= self.least_signal and self.features <= MOST_WHITENED

    @property
    def takes_steps(self) -> bool:
        """Whether the model comes from steps, and not from one sum of second moments."""
        return self.classes is not None or self.whitens

    @property
    def steps(self) -> int:
        """T"""
        if self.given_steps is not None:
            return self.given_steps
        if self.classes is None:
            return 8
        few = 8 if self.whitens or self.is_mapped else 16
        return 2 * few if self.signal > 75.0 * math.sqrt(self.features * self.classes) else few

    @property
    def clip(self) -> float:
        """C"""
        if self.classes is None:
            return min(max(math.sqrt(self.signal / (10.0 * self.features**1.5)), 1.0), 4.0)
        return 0.3 if self.is_mapped else 0.35 if self.whitens else 0.25

    @property
    def score_noise(self) -> float:
        """κ"""
        if self.classes is None:
            return 0.5
        return 0.85 if self.is_mapped else 1.0 if self.whitens else 0.7

    @property
    def shares(self) -> tuple[float, float]:
        """The parts of the budget for turns 0 and 1."""
        if self.is_mapped:
            return 0.0, 0.0
        if self.classes is None:
            return 0.2, 0.1
        if self.whitens:
            return 0.05, 0.05
        return (0.05 if self.signal >= 20.0 * math.sqrt(self.features) else 0.1), 0.0

    @property
    def sentence(self) -> str:
        """The choices and their reasons, for the plan."""
        if not self.takes_steps:
            return f"chosen by rule: least squares from one sum of second moments, as {self._reason}"
        if self.is_mapped:
            first = "records are mapped by what public records say"
        elif self.whitens:
            first = f"two sums find how to whiten records, as {self._reason}"
        else:
            first = f"one sum finds what records have in common, without whitening, as {self._reason}"
        kind = "softmax regression" if self.classes else "robust regression"
        return f"chosen by rule: {first}; then {self.steps} steps of {kind}, with residuals clipped to {self.clip:.3g}"

    @property
    def _reason(self) -> str:
        if self.features > MOST_WHITENED:
            return f"second moments of {self.features:,} features are too many to send"
        needed = f"whitening {self.features:,} features needs {self.least_signal:,.3g}"
        return f"the records' signal-to-noise ratio is {self.signal:,.3g} and {needed}"

    def first_map(self, mean: Floats, square: float, deviation: float) -> Reshaping:
        """A of turn 0 from the noisy mean and mean square, with noise of `deviation` on each number."""
        if self.classes is None:
            return Reshaping.of(mean, square, deviation)
        axis, common, rest = parted(mean, square, deviation)
        return Reshaping(axis, shrinkage_to(_LEFT, common, rest), _ROOM * math.sqrt(rest))

    def whitened(self, first: Reshaping, second: Floats, deviation: float) -> MatrixMap:
        """A of turn 1, after that of turn 0, from mean second moments with noise of `deviation` off the diagonal."""
        scale = math.sqrt(self.features) * deviation
        observed, vectors = np.linalg.eigh(second)
        values = cleaned_eigenvalues(observed, scale)
        factors = 1.0 / np.sqrt(values + max(scale, _TINY))
        factors *= math.sqrt(_LENGTH / max(float(values @ factors**2), _TINY))
        return MatrixMap((vectors * factors) @ first.undo(vectors).T, float((values * factors**2).max()))

    def label_scale(self, mean: float, square: float, deviation: float) -> float:
        """σ_y of a regression from labels' noisy mean and mean square, with noise of `deviation` on each."""
        least = max(min(deviation / 4.0, 0.04), LEAST_LABEL_SCALE**2)
        return math.sqrt(min(max(square - min(mean**2, 1.0) - 2.0 * deviation, least), 1.0))

    def step_sizes(self, noise: float, records: int, curvature: float | None = None) -> Floats:
        """The factor of each step, for noise of deviation `noise` on each coordinate of its sum; `curvature` is λ."""
        shape = schedule(self.steps)
        largest = (1.0 / self.features if curvature is None else max(curvature, _TINY)) * max(records, 1)
        longest = (8.0 * self.classes if self.classes else 1.0) / largest
        return quiet_steps(shape, self.score_noise, noise * float(np.linalg.norm(shape)), longest)
