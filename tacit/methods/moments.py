"""Second moments: one secure sum of XᵀX and XᵀT gives the least-squares classifier of the pooled data.

However records are spread over parties, the sums are the same as if all data were in one place; nothing is averaged
and no party trains. Records u = x/c of norm at most 1 and targets t (the label's indicator minus 1/K, of squared norm
τ² = 1 − 1/K) contribute the upper triangle of uuᵀ, its off-diagonal scaled by √2 so that it has the Frobenius norm,
and β·utᵀ: one Gaussian release of both.

Formal guarantee. For two records with ρ = u·u', the squared distance of their contributions is at most
2(1 − ρ²) + 2β²τ²(1 − ρ) (same label; different labels are closer), which is largest at ρ = −β²τ²/2: replacing a
record moves the sum by at most √2 (1 + β²τ²/2) while β²τ² ≤ 2, and by 2βτ beyond.

The model is W = (Ξ + λ)⁻¹ B from the noisy sums. Ξ has the noisy matrix's eigenvectors, with the eigenvalues that
come closest to the true matrix in them: a symmetric matrix of noise of deviation s has its own eigenvalues in ±2γ, γ
= s√d, and the best guess for an observed eigenvalue v is v − 2γ² h(v), h the Hilbert transform of the observed
spectrum (Bun, Allez, Bouchaud & Potters 2016), never below 0. The ridge λ is γ. All of this uses the known
noise and the released sums alone.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from tacit.data.block import Block
from tacit.learners.losses import Softmax
from tacit.methods.base import Collect, Contribution, Conversation, Method, Release, Sum
from tacit.methods.plan import DeclaredSum, Plan, make_plan
from tacit.study import Section, Study
from tacit.types import Floats


class Options(Section):
    """The keys of [method] for moments."""

    ridge: float = Field(1.0, gt=0.0, le=100.0, description="the ridge in units of the noise's scale, such as 1.0")
    balance: float = Field(1.0, ge=0.01, le=100.0, description="how precise XᵀT is against XᵀX, such as 1.0")


class Moments(Method):
    """Least-squares classification from pooled second moments."""

    name = "moments"

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        if study.study.task != "classification":
            raise study.error("study.task", 'is "regression", but the method "moments" learns classification only')
        if study.group is None:
            raise study.error(
                "privacy.unit", 'is "party", but "moments" protects records; use "record" or { group = … }'
            )
        self.options = study.options("method", Options)
        self._classes = len(study.data.class_names)
        self._features = study.data.dimension
        self._rows, self._columns = np.triu_indices(self._features)

    def sensitivity(self) -> float:
        """How far replacing one record moves the sum."""
        spread = self.options.balance**2 * (1.0 - 1.0 / self._classes)
        return math.sqrt(2.0) * (1.0 + spread / 2.0) if spread <= 2.0 else 2.0 * math.sqrt(spread)

    def plan(self) -> Plan:
        largest = math.sqrt(1.0 + self.options.balance**2 * (1.0 - 1.0 / self._classes))
        declared = DeclaredSum(
            name="moments",
            dimension=len(self._rows) + self._features * self._classes,
            bound=largest * self.study.parties.max_records,
            sensitivity=(self.study.group or 1) * self.sensitivity(),
        )
        return make_plan(self.study, self.name, [declared])

    def contribute(self, request: Sum | Collect, block: Block) -> Contribution:
        rows = np.stack([self._moments(*party) for party in zip(block.features, block.labels, strict=True)])
        return Contribution(rows, np.empty((len(block), 0), dtype=np.int64))

    def _moments(self, features: Floats, labels: np.ndarray) -> Floats:
        """One party's vector; rows that only pad the block are zero and add nothing."""
        unit = features / self.study.data.norm
        targets = Softmax(self._classes).targets(labels) - 1.0 / self._classes
        second = (unit.T @ unit)[self._rows, self._columns]
        second[self._rows != self._columns] *= math.sqrt(2.0)
        return np.concatenate([second, self.options.balance * (unit.T @ targets).ravel()])

    def coordinate(self, plan: Plan) -> Conversation:
        total = yield Sum("moments")
        second = np.zeros((self._features, self._features))
        noisy = total.noisy[: len(self._rows)].copy()
        noisy[self._rows != self._columns] /= math.sqrt(2.0)
        second[self._rows, self._columns] = noisy
        second[self._columns, self._rows] = noisy
        targets = total.noisy[len(self._rows) :].reshape(self._features, self._classes) / self.options.balance
        deviation = total.noise_std / math.sqrt(2.0)
        weights = self._solve(second, targets, deviation)
        return Release(weights.T / self.study.data.norm, None, {"noise_std_per_moment": deviation})

    def _solve(self, second: Floats, targets: Floats, deviation: float) -> Floats:
        """(Ξ + λ)⁻¹ B; where there is next to no noise, the ridge is a ten-thousandth of the mean moment."""
        observed, vectors = np.linalg.eigh(second)
        scale = deviation * math.sqrt(self._features)
        cleaned = np.maximum(cleaned_eigenvalues(observed, scale), 0.0)
        ridge = max(self.options.ridge * scale, 1e-4 * float(cleaned.mean()), 1e-300)
        solved: Floats = vectors @ ((vectors.T @ targets) / (cleaned + ridge)[:, None])
        return solved


def cleaned_eigenvalues(observed: Floats, scale: float) -> Floats:
    """v − 2γ² h(v) for each observed eigenvalue v, h(v) the mean of 1/(v − v'), smoothed over a few spacings."""
    if scale == 0.0:
        return observed
    width = 2.0 * scale / math.sqrt(len(observed))
    apart = observed[:, None] - observed[None, :]
    transform = (apart / (apart**2 + width**2)).mean(axis=1)
    cleaned: Floats = observed - 2.0 * scale**2 * transform
    return cleaned
