"""Objective perturbation (Chaudhuri, Monteleoni & Sarwate 2011, Algorithm 2; Kifer, Smith & Thakurta 2012), pooled.

A baseline: a trusted curator minimises the regularised loss of all records plus a random linear term,

    (1/n) Σ loss(w; x, y) + (Λ + Δ)/2 ‖w‖² + bᵀw/n,   b with density ∝ exp(−ε'‖b‖/2ζ),

where a record's gradient has norm at most ζ and its Hessian is of rank one with eigenvalue at most c. Replacing a
record moves the b that belongs to a minimiser by at most 2ζ, which costs ε'. The rest of ε pays for the volume element
det H, which changes by a factor of at most 1 + c/(n(Λ + Δ)).

Proof. With A = the other records' Hessians + n(Λ + Δ)I, det(A + h·xxᵀ) = det A · (1 + a), a = h·xᵀA⁻¹x in
[0, c/(n(Λ + Δ))]. The two determinants have A in common, so their ratio is (1 + a)/(1 + a'). (The papers count the
square: as if either record were compared with none.)

Classification: logistic loss (ζ = 1, c = 1/4), for more than two classes one against the rest with ε/K each.
Regression: squared loss ½(y − wᵀx)² over ‖w‖ ≤ R (ζ = 1 + R, c = 1), since without a bound on w its gradient has none.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field
from scipy.optimize import brentq
from scipy.special import expit

from unspoken.data.block import Block
from unspoken.methods.base import Conversation, Pool, PooledMethod
from unspoken.methods.planning import OtherRelease, Plan
from unspoken.methods.planning.budget import trust_of
from unspoken.methods.planning.making import Setting, state_plan
from unspoken.methods.planning.mechanisms import CURATOR
from unspoken.methods.releases import LinearModel
from unspoken.noise.spherical import ASSUMPTION, spherical_laplace
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import PureLoss
from unspoken.study import Section, Study
from unspoken.types import Floats

_ACCURACY = 1e-12
"""The norm of the gradient at which a minimiser counts as exact"""


class Options(Section):
    """The keys of [method] for objective-perturbation."""

    regularization: float = Field(1e-3, ge=1e-9, description="a number from 1e-9 up, such as 0.001")
    radius: float = Field(
        2.0, gt=0.0, description="a number above 0: the largest norm of a regression's model for records of norm 1"
    )


class ObjectivePerturbation(PooledMethod):
    """A random linear term in the objective, on pooled records."""

    name = "objective-perturbation"
    summary = "a baseline: a random linear term in the objective of pooled records"
    tasks = ("classification", "regression")
    keys = Options

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        if study.group != 1:
            raise study.error("privacy.unit", 'does not fit "objective-perturbation", which protects a single record')
        self.options = study.options("method", Options)
        self._regression = study.task == "regression"
        classes = 0 if self._regression else len(study.data.class_names)
        self._models = classes if classes > 2 else 1
        self._slope = 1.0 + self.options.radius if self._regression else 1.0
        self._bend = 1.0 if self._regression else 0.25

    def budget(self, records: int) -> tuple[float, float]:
        """ε' and Λ + Δ for one model.

        ε' = ε − log(1 + c/(n(Λ + Δ))), with Δ = 0 if that leaves at least ε/2, else with Λ + Δ = c/(n(e^(ε/2) − 1)),
        which leaves ε/2. (The papers take Δ = 0 as long as anything at all is left.)
        """
        epsilon = self.study.epsilon / self._models
        ridge = max(self.options.regularization, self._bend / (records * math.expm1(epsilon / 2.0)))
        return epsilon - math.log1p(self._bend / (records * ridge)), ridge

    def plan(self) -> Plan:
        fewest = self.study.parties.count * self.study.parties.records
        dimension = self.study.data.dimension
        left, _ = self.budget(fewest)
        length = 2.0 * self._slope / left
        release = OtherRelease(
            "objective",
            self._models * dimension,
            "spherical laplace",
            2.0 * self._slope,
            length * math.sqrt(dimension + 1),
            PureLoss(self.study.epsilon),
        )
        setting = Setting(trust_of(self.study), (*CURATOR, ASSUMPTION, "the minimiser is exact"))
        return state_plan(self.study, self.name, setting, others=(release,), epsilon=self.study.epsilon)

    def coordinate(self, plan: Plan) -> Conversation:
        records: Block = yield Pool()
        features, labels = records.features[0] / self.study.data.norm, records.labels[0]
        left, ridge = self.budget(len(labels))
        secrets = self.secrets or SecretStream()
        weights = []
        for model in range(self._models):
            noise = spherical_laplace(features.shape[1], 2.0 * self._slope / left, secrets)
            if self._regression:
                weights.append(
                    _least_squares(features, np.asarray(labels, dtype=float), noise, ridge, self.options.radius)
                )
            else:
                positive = model if self._models > 1 else 1
                weights.append(_logistic(features, np.where(labels == positive, 1.0, -1.0), noise, ridge))
        weights_of_records = np.stack(weights) / self.study.data.norm
        return LinearModel(weights_of_records, None if self._regression else "sigmoid", {"records": len(labels)})


def _least_squares(features: Floats, labels: Floats, noise: Floats, ridge: float, radius: float) -> Floats:
    """The minimiser over the ball: by the eigenvalues of the Hessian, and the multiplier that brings it to the edge."""
    count = len(labels)
    values, vectors = np.linalg.eigh(features.T @ features / count + ridge * np.eye(features.shape[1]))
    pull = vectors.T @ (features.T @ labels - noise) / count

    def excess(multiplier: float) -> float:
        return float(np.linalg.norm(pull / (values + multiplier))) - radius

    multiplier = 0.0
    if excess(0.0) > 0.0:
        multiplier = float(brentq(excess, 0.0, float(np.linalg.norm(pull)) / radius, xtol=1e-15))
    solved: Floats = vectors @ (pull / (values + multiplier))
    return solved


def _logistic(features: Floats, signs: Floats, noise: Floats, ridge: float) -> Floats:
    """Newton's method with halved steps where they would not descend."""
    count, weights = len(signs), np.zeros(features.shape[1])

    def objective(weights: Floats) -> float:
        losses = np.logaddexp(0.0, -signs * (features @ weights))
        return float(losses.mean() + ridge / 2.0 * weights @ weights + noise @ weights / count)

    for _ in range(100):
        wrong = expit(-signs * (features @ weights))
        gradient = -(features.T @ (signs * wrong)) / count + ridge * weights + noise / count
        if np.linalg.norm(gradient) <= _ACCURACY:
            break
        curved = features * (wrong * (1.0 - wrong) / count)[:, None]
        step = np.linalg.solve(features.T @ curved + ridge * np.eye(len(weights)), gradient)
        size, here = 1.0, objective(weights)
        while size > 1e-8 and objective(weights - size * step) > here:
            size /= 2.0
        weights = weights - size * step
    return weights
