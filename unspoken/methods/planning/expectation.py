"""Predicts whether a model can learn anything under the planned noise, from the study's signal and number of features
alone.

The signal X is the number of records over the deviation of the noise in a total that one record moves by 1
(`directions.signal_of`). Replacing a record by its opposite moves the total by 1, so the total of n records that all
agree has length n/2 at most. The noise is on d features for each of K classes. Only K − 1 classes count, because a
common part of all scores does not distinguish classes; so the noise has length √(d(K − 1))·n/X. Below X = 2√(d(K − 1))
it is longer than any total of these records can be.

The bound follows from public facts. (Of two such bounds, this one was chosen by results on the wine data.)
`benchmarks/moments/noise.py` measures it on digits, clouds of points and iris, which had no part in the choice: below
the bound, models are on average at most 15 points better than always predicting the most frequent class. If classes are
hard to distinguish, a useful model may take four to eight times the bound, so the absence of a warning promises
nothing.

A regression needs more; its bound is measured, not derived: on the diabetes data, R² is below 0.1 up to X = 10√d, and
with two columns up to 15√d.
"""

from __future__ import annotations

import math

from unspoken.learners.public_directions import rank_for
from unspoken.methods.planning.directions import signal_of
from unspoken.methods.planning.plan import Plan

_LEAST = {"classification": 2.0, "regression": 10.0}
"""The least X/√(d(K − 1)), or X/√d of a regression, at which a model may learn something"""
_CONSTANT = {"classification": "the most frequent class", "regression": "the mean label"}


def doubt(plan: Plan) -> str | None:
    """A sentence if hardly anything can be learnt, and what would help; None if something can, or nobody knows."""
    study = plan.study
    signal, size = signal_of(plan), study.data.dimension
    if study.task not in _LEAST or not any(planned.noise_std and planned.classes is None for planned in plan.sums):
        return None
    classes = len(study.data.class_names) if study.task == "classification" else 2
    outputs = classes - 1
    if study.data.public is not None and study.described.learns_directions(study):
        size = min(size, math.ceil(rank_for(signal, classes, size)))
    needed = _LEAST[study.task] * math.sqrt(size * outputs)
    if signal >= needed:
        return None
    who = "parties" if study.group is None else "records"
    units = plan.parties_asked * (1 if study.group is None else study.parties.records)
    few = math.floor((signal / _LEAST[study.task]) ** 2 / outputs)
    fewer = f"at most {few:,} features" if few > study.data.has_intercept else "far fewer features"
    numbers = f"{size:,} features" + (f" of {classes} classes" if study.task == "classification" else "")
    times = math.ceil(10.0 * needed / signal) / 10.0
    known = "" if study.group is None else " (if parties have them, raise records in [parties])"
    return (
        f"the noise hides almost all that the {units:,} {who} of [parties] can say: their signal-to-noise ratio is "
        f"{signal:.3g}, but {numbers} need {needed:.3g}, so expect a model that is little better than always saying "
        f"{_CONSTANT[study.task]}; have at least {times:.1f} times as many {who}{known}, or as much more epsilon, or "
        f"{fewer}"
    )
