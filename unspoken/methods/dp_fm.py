"""The functional mechanism as published: Laplace noise on a polynomial's coefficients (Zhang et al. 2012), pooled.

A baseline: a trusted curator holds all records. Linear regression has the coefficients Σuᵢ² and 2Σuᵢuⱼ of order 2 and
−2Σ t u of order 1 (order 0 does not move the minimiser); logistic regression by its Taylor polynomial is the same for
centred indicators. The published analysis takes twice the L1 norm of a record's coefficients, ‖u‖₁² + 2‖t‖₁‖u‖₁, and
every |uᵢ| for 1, so d for ‖u‖₁: `sensitivity = "published"`. For records of norm 1, ‖u‖₁ ≤ √d, and the d² entries of
uuᵀ − u'u'ᵀ, whose Frobenius norm is at most √2, have an L1 norm of at most √2·d; so replacing a record moves the
coefficients by at most √2·d + 4‖t‖₁√d: `sensitivity = "tight"`.

As Zhang et al. do, four deviations of the noise are added to the diagonal and directions whose eigenvalue is then not
positive are left out. The noise is discrete Laplace noise on rounded coefficients, so the promise is pure ε up to the
sampler's distance. The distance that floating point adds between two sums of coefficients is counted (`arithmetic`).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from unspoken.arithmetic import MOST_POOLED, floating_point_slack
from unspoken.data.block import Block
from unspoken.learners.second_moments import SecondMoments
from unspoken.methods.base import Conversation, Pool, PooledMethod
from unspoken.methods.planning import OtherRelease, Plan
from unspoken.methods.planning.budget import epsilon_for, trust_of
from unspoken.methods.planning.making import Setting, state_plan
from unspoken.methods.planning.mechanisms import CURATOR
from unspoken.methods.releases import LinearModel
from unspoken.noise.discrete_laplace import DISTANCE, LARGEST_SCALE, sample
from unspoken.noise.stream import SecretStream
from unspoken.privacy import integer
from unspoken.privacy.events import PureLoss
from unspoken.study import Section, Study
from unspoken.types import Floats

_FINENESS = 1024.0
"""The sensitivity over the error that rounding adds to it"""
_LIFT = 4.0
"""The number of the noise's deviations that are added to the diagonal (Zhang et al., Section 6.1)"""


class Options(Section):
    """The keys of [method] for dp-fm."""

    sensitivity: Literal["tight", "published"] = Field("tight", description='"tight" or "published"')


class DpFm(PooledMethod):
    """The functional mechanism on pooled records."""

    name = "dp-fm"
    summary = "a baseline: Laplace noise on the coefficients of pooled records"
    tasks = ("classification", "regression")
    keys = Options

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        if study.group is None:
            raise study.error("privacy.unit", 'does not fit "dp-fm", which protects records')
        classes = None if study.task == "regression" else len(study.data.class_names)
        self.options = study.options("method", Options)
        self._moments = SecondMoments(study.data.dimension, study.data.norm, classes, balance=1.0)

    def sensitivity(self) -> float:
        """The sensitivity of the coefficients in L1 norm, for records of norm at most 1."""
        dimension, classes, parties = self.study.data.dimension, self._moments.classes, self.study.parties
        target = 1.0 if classes is None else 2.0 * (1.0 - 1.0 / classes)
        # The L1 norm of a record's coefficients, at most.
        longest = dimension + 2.0 * target * math.sqrt(dimension)
        if self.options.sensitivity == "published":
            moved = 2.0 * (dimension**2 + 2.0 * target * dimension)
        else:
            moved = math.sqrt(2.0) * dimension + 4.0 * target * math.sqrt(dimension)
        records = min(parties.count * parties.max_records, MOST_POOLED)
        return (self.study.group or 1) * moved + floating_point_slack(records) * records * longest

    def _scale(self) -> tuple[float, float]:
        """The number of encoding units in 1, and the scale of the Laplace noise in units."""
        units_per_one = 2.0 ** math.ceil(math.log2(_FINENESS * self._moments.dimension / self.sensitivity()))
        units = self.sensitivity() * units_per_one + self._moments.dimension
        return units_per_one, units / epsilon_for(self.study)

    def plan(self) -> Plan:
        units_per_one, laplace = self._scale()
        if laplace > LARGEST_SCALE:
            raise self.study.error("privacy.epsilon", f"is {self.study.epsilon:g}, too small to be drawn for")
        deviation = math.sqrt(2.0) * laplace / units_per_one
        event = PureLoss(epsilon_for(self.study))
        release = OtherRelease("polynomial", self._moments.dimension, "laplace", self.sensitivity(), deviation, event)
        slack = integer.cost(epsilon_for(self.study), self._moments.dimension * DISTANCE)
        if slack > self.study.privacy.delta:
            raise self.study.error(
                "privacy.delta",
                f"is {self.study.privacy.delta:g}, but the drawing of noise already costs {slack:.1g}; choose a larger "
                "delta",
            )
        setting = Setting(trust_of(self.study), CURATOR, slack)
        return state_plan(self.study, self.name, setting, others=(release,), epsilon=self.study.epsilon)

    def coordinate(self, plan: Plan) -> Conversation:
        records: Block = yield Pool()
        units_per_one, laplace = self._scale()
        coefficients, secrets = self._coefficients(records) * units_per_one, self.secrets or SecretStream()
        noisy = np.rint(coefficients).astype(np.int64) + sample(laplace, len(coefficients), secrets)
        weights = self._minimise(noisy / units_per_one, plan.others[0].noise_std)
        classes = self._moments.classes
        return LinearModel(
            (classes or 1) * weights.T / self.study.data.norm,
            None if classes is None else "softmax",
            {"records": int(records.counts[0]), "noise_std_per_coefficient": plan.others[0].noise_std},
        )

    def _coefficients(self, records: Block) -> Floats:
        """The coefficients of order 2, each mixed monomial once, then those of order 1 (with the opposite sign)."""
        total = self._moments.of(records.features[0], records.labels[0])
        triangle = len(total) - self._moments.features * self._moments.outputs
        total[:triangle] *= self._factors()
        total[triangle:] *= 2.0
        return total

    def _minimise(self, coefficients: Floats, deviation: float) -> Floats:
        total = coefficients.copy()
        triangle = len(total) - self._moments.features * self._moments.outputs
        total[:triangle] /= self._factors()
        total[triangle:] /= 2.0
        second, mixed = self._moments.split(total)
        values, vectors = np.linalg.eigh(second + _LIFT * deviation * np.eye(len(second)))
        kept = values > 0.0
        solved: Floats = vectors[:, kept] @ ((vectors[:, kept].T @ mixed) / values[kept, None])
        return solved

    def _factors(self) -> Floats:
        """The factors that turn moments with the Frobenius norm (√2 off the diagonal) into coefficients (2)."""
        rows, columns = np.triu_indices(self._moments.features)
        return np.where(rows == columns, 1.0, math.sqrt(2.0))
