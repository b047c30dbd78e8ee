"""How blind averaging chooses Λ, the radius and the constant for the intercept, if the study does not give them.

All choices follow from the study alone. The numbers in them were chosen on Fashion-MNIST, breast cancer and made-up
records.

**Λ.** A smaller Λ lets models fit closer, and brings more noise. The noise in the score of a vector of norm v is
normal, whatever the number of features; its deviation is

    σ(Λ) = v · s(Λ)/μ · √(n/h) / m,    s = D/Λ and m = n·N for records, s = 2R and m = n for whole parties,

for n parties of at least N records, h of them honest, and the μ of the promise for one attempt. v estimates the length
of the varying part of a record. It is the norm c if c ≤ 1. Longer records come from tables, whose numbers rarely fill
their bounds: for them v² is 1, or c²/10 if that is larger. Scores that separate classes are of the order of 1, where
the losses bend: while σ is well below 1, a smaller Λ helps; above it, noise dominates. If records are protected, σ ∝
1/Λ, and the rule takes the smallest Λ with σ ≤ 0.1. If parties are protected, σ grows only as R ∝ 1/√Λ, about as fast
as the models themselves, so more noise is acceptable: σ ≤ 0.5. Λ is at least 0.1v², or 0.05v² for parties: a smaller Λ
would gain a few points where all parties have similar records, but lose up to thirty where each party has a single
class, because such a party's model then mostly grows in directions that all models share. Λ is at most c²: a larger Λ
shortens models and noise alike.

**The radius**, for whole parties. A model of norm R arises only if all records are copies of one. Real models are
shorter, but mostly longer than R/2, so the rule projects them onto the ball of radius R/2: their directions stay, and
the noise is halved.

**The constant.** A constant of 1 appended to a record of norm c = 1 takes half of the squared norm of the clipped
vector: scores shrink, and the noise does not. In a table of p numbers, each within [−1, 1], the constant is one of p +
1 columns. The rule gives it the same share in a matrix: c/√(p + 1), rounded down to a power of two. So at most 1/(p +
1) of the squared norm is lost.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace

from unspoken.learners.linear import LinearLearner
from unspoken.methods.planning.budget import budget, expected_noise
from unspoken.study import Study

_RECORDS, _PARTIES = (0.1, 0.1), (0.5, 0.05)
"""The largest deviation of the noise in a score, and the least Λ/v²"""
_SHORTER = 0.5
"""The radius, as a part of R"""
_STEPS = tuple(float(f"{digit}e{power}") for power in range(-6, 13) for digit in (1, 2, 5))
"""1, 2, 5, 10 … from 1e-6: numbers that a study file can have"""


def total_sensitivity(study: Study, learner: LinearLearner, by_records: bool) -> float:
    """The sensitivity of the sum of all models to the protected unit; `by_records`: each counts N times."""
    parties, group = study.parties, study.group
    if group is None:
        return learner.party_sensitivity()
    if by_records:
        return learner.scaled_sensitivity(parties.max_records, group, parties.count)
    return learner.sensitivity(parties.records, group, parties.count)


def varying(norm: float) -> float:
    """v: how long the part of a record of this norm may be that varies.

    >>> varying(0.5), varying(2.0), round(varying(10.0), 3)
    (0.5, 1.0, 3.162)
    """
    return min(norm, max(1.0, math.sqrt(0.1) * norm))


def weight_noise(study: Study, learner: LinearLearner, by_records: bool, independent: bool = False) -> float:
    """The deviation of the noise in each weight of the average, if parties have as few records as the study allows. It
    leaves out what rounding adds, and the small part of δ that secure sums cost.

    `independent`: each party adds all the noise that it needs by itself, so the total has the noise of all parties.
    """
    noise = math.sqrt(study.parties.count) / budget(study) if independent else expected_noise(study)
    total = total_sensitivity(study, learner, by_records) * noise
    return total / (study.parties.count * (study.parties.records if by_records else 1))


def score_noise(study: Study, learner: LinearLearner, by_records: bool, independent: bool = False) -> float:
    """σ: the noise in the score of a vector of norm v."""
    return varying(learner.norm) * weight_noise(study, learner, by_records, independent)


def choose_regularization(study: Study, learner: LinearLearner, by_records: bool, independent: bool = False) -> float:
    """Λ by the rule above; the learner's own Λ does not matter."""
    allowed, smallest = _PARTIES if study.group is None else _RECORDS
    part, whole = varying(learner.norm) ** 2, learner.norm**2
    least, most = (min(bisect_left(_STEPS, bound), len(_STEPS) - 1) for bound in (smallest * part, whole))

    def is_quiet(step: int) -> bool:
        quieter = replace(learner, regularization=_STEPS[step])
        return score_noise(study, quieter, by_records, independent) <= allowed

    return _STEPS[bisect_left(range(most), True, lo=least, key=is_quiet)]


def choose_radius(learner: LinearLearner) -> float:
    """The radius by the rule above, to three digits."""
    return float(f"{_SHORTER * learner.loss.longest(learner.regularization, learner.norm):.3g}")


def choose_constant(study: Study) -> float:
    """The constant by the rule above; 1 for a table.

    >>> from unspoken.study import make_study
    >>> parts = {"study": {"name": "a", "task": "classification"}, "parties": {"count": 2}}
    >>> parts |= {"privacy": {"epsilon": 1.0, "delta": 1e-6}, "method": {"name": "helmet"}}
    >>> parts |= {"data": {"features": 20, "classes": 2, "intercept": True}}
    >>> make_study(parts).data.constant
    0.125
    """
    if study.data.is_table:
        return 1.0
    # If the study leaves the norm open, features have norm 1.
    norm = study.data.norm if "norm" in study.data.model_fields_set else 1.0
    share = norm / math.sqrt(study.data.raw_dimension + 1)
    return 2.0 ** math.floor(math.log2(share))
