"""The privacy budget of a study: what its promise leaves for noise, before there is a plan."""

from __future__ import annotations

import math

from unspoken.privacy.gaussian import mu_for
from unspoken.privacy.guarantee import Trust
from unspoken.privacy.integer import LARGEST_PLANNED_EPSILON
from unspoken.study import Study

FREE_ATTEMPTS = 15
"""The number of attempts at a sum that may end before vectors leave, on top of those that the study counts. They cost
no ε. But an adversary may give up an attempt until it likes the protocol's random choices, so δ counts all of them."""


def setups_for(secure_sums: int, attempts: int) -> int:
    """The number of times that so many secure sums may be begun, if vectors may leave in so many attempts at each. Each
    time the protocol makes its random choices."""
    return secure_sums * (attempts + FREE_ATTEMPTS)


def trust_of(study: Study) -> Trust:
    """The adversaries that the study's promise holds against."""
    return Trust(study.parties.count, study.colluding, study.dropouts, study.privacy.enclaves)


def epsilon_for(study: Study) -> float:
    """The ε that noise is drawn for. It is bounded, because the sampler's distance is multiplied by e^ε."""
    return min(study.epsilon, LARGEST_PLANNED_EPSILON)


def budget(study: Study, delta: float | None = None, attempts: int | None = None) -> float:
    """The μ of all that is released in one attempt at each sum: μ(ε, δ)/√attempts, or that of the study's noise.

    `delta` is the part of δ that is left for noise; None takes all of it, which slightly overstates μ. `attempts` is
    the study's by default; it is 1 for something that is released only once. A noise multiplier applies to each single
    attempt.
    """
    if study.privacy.epsilon is None and study.privacy.noise_multiplier is not None:
        return 1.0 / study.privacy.noise_multiplier
    left = study.privacy.delta if delta is None else delta
    return mu_for(epsilon_for(study), left) / math.sqrt(study.privacy.attempts if attempts is None else attempts)


def expected_noise(study: Study) -> float:
    """The deviation of the noise in a total of sensitivity 1 that has the whole budget: √(parties/honest)/μ.

    It leaves out what rounding adds, and the small part of δ that secure sums cost.
    """
    trust = trust_of(study)
    return math.sqrt(trust.parties / max(trust.honest_survivors, 1)) / budget(study)
