"""Convex losses of linear models, with the constants that privacy proofs need.

A model scores a record x by s = W x, one score per output; a loss maps the scores and the label to a
number. Its gradient with respect to W is the outer product of the *slopes* ∂loss/∂s and x, so with
‖x‖ ≤ c the loss is (slope_norm · c)-Lipschitz and (curvature · c²)-smooth in W.

Papers: DP-Helmet, Algorithms 1 and 3 and Appendices C.5, P, Q. The smoothness constants are the spectral
ones (the paper's bound the Frobenius norm and are larger than needed), and the regulariser is kept apart:
its gradient is the same for neighbouring data sets, so it adds nothing to a sensitivity. How long a minimiser can be
(`longest`) and how far one record moves it (`distance`) are sharper than the usual slope_norm · c/Λ and
2 · slope_norm · c/(NΛ). The paper adds 2R/N to the latter, R the radius that models are projected onto.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from scipy.special import expit, lambertw

from unspoken.learners.distances import mirrored, softmax_distance
from unspoken.learners.scores import Link
from unspoken.types import Floats, Labels

Learner = Literal["softmax", "logistic", "svm"]
"""The names of linear learners in a study, each for a loss"""
LEARNERS = '"softmax", "logistic" or "svm"'


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss over `classes` classes."""

    classes: int
    link: ClassVar[Link | None] = None
    """The map from scores to probabilities, if there is one"""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of scores that the model gives a record."""

    @property
    @abstractmethod
    def slope_norm(self) -> float:
        """The largest L2 norm of the slopes ∂loss/∂scores, over all scores and labels."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """The largest eigenvalue of the Hessian of the loss with respect to the scores."""

    @property
    def trace(self) -> float:
        """The trace of the loss's Hessian with respect to the scores, for scores that spread over the order of 1.

        It serves rules, not proofs. A loss with a sharp bend has a mean curvature of 1 there, as its slope goes from 0
        to 1."""
        return self.outputs * min(self.curvature, 1.0)

    @property
    @abstractmethod
    def label_effect(self) -> float:
        """The largest change of the slopes, in L2 norm, if a record gets another label and keeps its scores."""

    def pull(self, reach: float) -> float:
        """ψ(reach), an upper bound on −⟨slopes, scores⟩ over all scores of norm at most `reach`, and all labels.

        ψ(m)/m² falls. By default slope_norm · reach."""
        return self.slope_norm * reach

    def longest(self, regularization: float, norm: float) -> float:
        """R, the largest norm of a minimiser of Λ/2 ‖W‖² + mean loss of records of norm at most c: the largest r with
        Λr² ≤ ψ(cr).

        Proof. At a minimiser ΛW = −mean of slopes ⊗ x, so Λ‖W‖² = −mean⟨slopes, scores⟩, and scores have norm at most
        c‖W‖. Copies of one record, of norm c or less, attain it.

        >>> round(Logistic(classes=2).longest(0.1, 1.0), 3)
        1.669
        """
        return _longest(self, regularization, norm)

    def slope_distance(self, reach: float) -> float:
        """D for records of norm 1 whose scores have norm at most `reach`: see `learners.distances`. By default
        2 · slope_norm."""
        return 2.0 * self.slope_norm

    def distance(self, regularization: float, norm: float) -> float:
        """D: if one of N records is replaced, the minimiser moves by at most D/(NΛ). It is at most 2 · slope_norm · c.

        >>> round(Logistic(classes=2).distance(0.1, 2.0), 1)
        2.9
        """
        reach = norm * self.longest(regularization, norm)
        return norm * min(2.0 * self.slope_norm, _slope_distance(self, reach))

    @abstractmethod
    def targets(self, labels: Labels) -> Floats:
        """Labels (…, n) as targets (…, n, outputs) for `slopes` and `values`."""

    @abstractmethod
    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        """∂loss/∂scores for each record; the same shape as the scores."""

    @abstractmethod
    def values(self, scores: Floats, targets: Floats) -> Floats:
        """The loss of each record; the scores' shape without its last axis."""

    def soft_slopes(self, scores: Floats, shares: Floats) -> Floats:
        """The slopes for soft labels: each label's slopes, weighted by its share."""
        return self.slopes(scores, shares)

    def soft_values(self, scores: Floats, shares: Floats) -> Floats:
        """The loss for soft labels: each label's loss, weighted by its share."""
        return self.values(scores, shares)


class OneVersusRest(Loss):
    """One binary loss per class (for two classes: a single one); scores are signed margins.

    All models come from the same records, so together they are one vector-valued release: the slopes of
    the binary losses, each at most 1, have a joint norm of at most √outputs. Each model is a minimiser of its own, so
    that R and D are those of one model, times √outputs.
    """

    @property
    def outputs(self) -> int:
        return 1 if self.classes == 2 else self.classes

    @property
    def slope_norm(self) -> float:
        return math.sqrt(self.outputs)

    @property
    def label_effect(self) -> float:
        """A changed label changes the sign in two of the one-per-class models."""
        return self.sign_effect * (math.sqrt(2.0) if self.outputs > 1 else 1.0)

    @property
    @abstractmethod
    def sign_effect(self) -> float:
        """The largest change of a binary loss's slope if the sign of the label changes."""

    @property
    @abstractmethod
    def hardest_margin(self) -> float:
        """The margin z at which −z·l'(z) is largest: up to there it grows."""

    @abstractmethod
    def wrongness(self, against: Floats) -> Floats:
        """f(x) = −l'(−x), the size of the slope at the margin −x: see `learners.distances.mirrored`."""

    def pull(self, reach: float) -> float:
        margin = min(reach / math.sqrt(self.outputs), self.hardest_margin)
        return self.outputs * margin * float(self.wrongness(np.array(-margin)))

    def slope_distance(self, reach: float) -> float:
        each = math.sqrt(self.outputs)
        return each * mirrored(self.wrongness, reach / each)

    def targets(self, labels: Labels) -> Floats:
        """+1 where the record is of the output's class, −1 elsewhere.

        >>> Logistic(classes=2).targets(np.array([0, 1])).ravel().tolist()
        [-1.0, 1.0]
        """
        positive = np.arange(self.classes) if self.outputs > 1 else np.array([1])
        return np.where(labels[..., None] == positive, 1.0, -1.0)

    def soft_slopes(self, scores: Floats, shares: Floats) -> Floats:
        ones = np.ones_like(scores)
        mixed: Floats = shares * self.slopes(scores, ones)
        mixed += (1.0 - shares) * self.slopes(scores, -ones)
        return mixed

    def soft_values(self, scores: Floats, shares: Floats) -> Floats:
        signs = np.ones_like(scores)
        # One output at a time: a sum over outputs would mix their shares.
        each = [
            shares[..., k] * self.values(scores[..., k : k + 1], signs[..., k : k + 1])
            + (1.0 - shares[..., k]) * self.values(scores[..., k : k + 1], -signs[..., k : k + 1])
            for k in range(self.outputs)
        ]
        return np.asarray(np.sum(each, axis=0))


@dataclass(frozen=True)
class HuberSVM(OneVersusRest):
    """The hinge loss with a rounded corner of half-width `smoothing` (Chaudhuri et al. 2011, Eq. 7).

    With margin z: 0 for z > 1+h, (1+h−z)²/4h for |1−z| ≤ h, 1−z for z < 1−h.
    """

    smoothing: float = 0.1

    @property
    def curvature(self) -> float:
        return 1.0 / (2.0 * self.smoothing)

    @property
    def sign_effect(self) -> float:
        """The slope may be 1 for one sign and −1 for the other."""
        return 2.0

    @property
    def hardest_margin(self) -> float:
        """z·(1 + h − z)/2h is largest at (1 + h)/2, unless the slope is still full there: then at 1 − h."""
        return max(1.0 - self.smoothing, (1.0 + self.smoothing) / 2.0)

    def wrongness(self, against: Floats) -> Floats:
        return np.clip((1.0 + self.smoothing + against) / (2.0 * self.smoothing), 0.0, 1.0)

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        margin = scores * targets
        margin -= 1.0 + self.smoothing
        margin /= 2.0 * self.smoothing
        np.clip(margin, -1.0, 0.0, out=margin)
        margin *= targets
        return margin

    def values(self, scores: Floats, targets: Floats) -> Floats:
        shortfall = 1.0 + self.smoothing - scores * targets
        bent = np.clip(shortfall, 0.0, 2.0 * self.smoothing)
        loss: Floats = (bent**2 / (4.0 * self.smoothing) + (shortfall - bent).clip(min=0.0)).sum(axis=-1)
        return loss


class Logistic(OneVersusRest):
    """Binary logistic regression, log(1 + e^(−z)) of the margin z."""

    link = "sigmoid"

    @property
    def curvature(self) -> float:
        return 0.25

    @property
    def sign_effect(self) -> float:
        """|l'(z) + l'(−z)| = 1 for every z."""
        return 1.0

    @property
    def hardest_margin(self) -> float:
        """z/(1 + eᶻ) is largest where (z − 1)eᶻ = 1."""
        return 1.0 + float(lambertw(1.0 / math.e).real)

    def wrongness(self, against: Floats) -> Floats:
        return np.asarray(expit(against))

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        slope: Floats = scores * targets
        np.negative(slope, out=slope)
        expit(slope, out=slope)
        slope *= targets
        return np.negative(slope, out=slope)

    def values(self, scores: Floats, targets: Floats) -> Floats:
        loss: Floats = np.logaddexp(0.0, -scores * targets).sum(axis=-1)
        return loss


class CrossEntropy(Loss):
    """Multinomial logistic regression: cross-entropy of the softmax of the scores.

    The slopes are p − e_y, so their norm is below √2 (DP-Helmet, Theorem 27), and the Hessian
    diag(p) − ppᵀ has eigenvalues of at most 1/2 (Gershgorin: 2·p(1−p)).
    """

    link = "softmax"

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def slope_norm(self) -> float:
        return math.sqrt(2.0)

    @property
    def curvature(self) -> float:
        return 0.5

    @property
    def trace(self) -> float:
        """1 − Σp², at most 1 − 1/K."""
        return 1.0 - 1.0 / self.classes

    @property
    def label_effect(self) -> float:
        """‖e_y − e_y'‖ = √2."""
        return math.sqrt(2.0)

    def pull(self, reach: float) -> float:
        """(K−1)g/(eᵍ + K−1) with the gap g = min(reach·√(K/(K−1)), 1 + W((K−1)/e)), W Lambert's function.

        Proof. −⟨p − e_y, s⟩ = entropy(p) + log p_y. With p_y given, it is largest if all wrong classes have the same
        score: then it is the formula, g the gap to that score, and grows up to where (g−1)eᵍ = K−1. By Jensen p_y is
        at most what such scores give for the mean gap, which is at most reach·√(K/(K−1)).
        """
        others = self.classes - 1
        hardest = 1.0 + float(lambertw(others / math.e).real)
        gap = min(reach * math.sqrt(self.classes / others), hardest)
        return others * gap / (math.exp(gap) + others)

    def slope_distance(self, reach: float) -> float:
        """Two classes are one margin: ‖W‖ is that of v = √2·w₂, the margin is √2⟨v, x⟩, and slopes count √2 times."""
        if self.classes == 2:
            return math.sqrt(2.0) * mirrored(expit, math.sqrt(2.0) * reach)
        return softmax_distance(self.classes, reach)

    def targets(self, labels: Labels) -> Floats:
        return np.asarray(labels[..., None] == np.arange(self.classes), dtype=np.float64)

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        probabilities: Floats = scores - scores.max(axis=-1, keepdims=True)
        np.exp(probabilities, out=probabilities)
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        probabilities -= targets
        return probabilities

    def values(self, scores: Floats, targets: Floats) -> Floats:
        peak = scores.max(axis=-1)
        loss: Floats = peak + np.log(np.exp(scores - peak[..., None]).sum(axis=-1))
        loss -= (scores * targets).sum(axis=-1)
        return loss


@dataclass(frozen=True)
class SoftLabelLoss(Loss):
    """A loss for soft labels: each label's loss, weighted by its share of the votes."""

    loss: Loss

    @property
    def outputs(self) -> int:
        return self.loss.outputs

    @property
    def slope_norm(self) -> float:
        return self.loss.slope_norm

    @property
    def curvature(self) -> float:
        return self.loss.curvature

    @property
    def label_effect(self) -> float:
        return self.loss.label_effect

    def targets(self, labels: Labels) -> Floats:
        """Hard labels as soft ones: a share of 1 for the label's class."""
        positive = np.arange(self.classes) if self.outputs > 1 else np.array([1])
        return np.asarray(labels[..., None] == positive, dtype=np.float64)

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        return self.loss.soft_slopes(scores, targets)

    def values(self, scores: Floats, targets: Floats) -> Floats:
        return self.loss.soft_values(scores, targets)


@lru_cache(maxsize=1024)
def _longest(loss: Loss, regularization: float, norm: float) -> float:
    """By bisection: ψ(cr)/r² falls, so the upper end is kept."""
    low, high = 0.0, loss.slope_norm * norm / regularization
    while low < (middle := (low + high) / 2.0) < high:
        if regularization * middle**2 <= loss.pull(norm * middle):
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=1024)
def _slope_distance(loss: Loss, reach: float) -> float:
    return loss.slope_distance(reach)


def loss_of(learner: Learner, classes: int, smoothing: float) -> Loss:
    """The loss of the learner that a study names."""
    match learner:
        case "svm":
            return HuberSVM(classes, smoothing)
        case "logistic":
            return Logistic(classes)
        case "softmax":
            return CrossEntropy(classes)
