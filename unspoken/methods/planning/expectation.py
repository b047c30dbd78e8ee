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

Up to four times these bounds, noise still hides much, and that is said, too: on the breast cancer, wine and digits data
accuracy there is 15 to 30 points below that without noise, and R² of diabetes about half of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from unspoken.learners.public_directions import rank_for
from unspoken.methods.planning.directions import signal_of
from unspoken.methods.planning.plan import Plan

_LEAST = {"classification": 2.0, "regression": 10.0}
"""The least X/√(d(K − 1)), or X/√d of a regression, at which a model may learn something"""
_MUCH = 4.0
"""The number of times as much from which on noise hides little"""
_CONSTANT = {"classification": "the most frequent class", "regression": "the mean label"}
_CLEAR = {"classification": "classes that lie far apart", "regression": "strong effects"}


def doubts(plan: Plan) -> Iterator[str]:
    """A sentence if hardly anything, or not much, can be learnt, and what would help; none if nobody knows."""
    ratio = hidden(plan)
    if ratio >= _MUCH:
        return
    study, signal, (size, outputs) = plan.study, signal_of(plan), _shape(plan)
    who = "parties" if study.group is None else "records"
    units = plan.parties_asked * (1 if study.group is None else study.parties.records)
    classes = f" of {outputs + 1} classes" if study.task == "classification" else ""
    of_them = f"the {units:,} {who} of [parties] can say: their signal-to-noise ratio is {signal:.3g}, but {size:,}"
    known = "" if study.group is None else " (if parties have them, raise records in [parties])"
    if ratio >= 1.0:
        yield (
            f"the noise hides much of what {of_them} features{classes} ask for {_MUCH * signal / ratio:.3g}, so that "
            f"only {_CLEAR[study.task]} can be learnt; have up to {times(_MUCH / ratio)} times as many {who}{known}, "
            "or as much more epsilon"
        )
        return
    few = math.floor((signal / _LEAST[study.task]) ** 2 / outputs)
    fewer = f"at most {few:,} features" if few > study.data.has_intercept else "far fewer features"
    yield (
        f"the noise hides almost all that {of_them} features{classes} need {signal / ratio:.3g}, so expect a model "
        f"that is little better than always saying {_CONSTANT[study.task]}; have at least {times(1.0 / ratio)} times "
        f"as many {who}{known}, or as much more epsilon, or {fewer}"
    )


def hidden(plan: Plan) -> float:
    """X over the bound: below 1, noise hides almost everything. It is infinite if there is no noise, or no bound."""
    study = plan.study
    if study.task not in _LEAST or not any(planned.noise_std and planned.classes is None for planned in plan.sums):
        return math.inf
    size, outputs = _shape(plan)
    return signal_of(plan) / (_LEAST[study.task] * math.sqrt(size * outputs))


def _shape(plan: Plan) -> tuple[int, int]:
    """d and K − 1 (1 for a regression)."""
    study = plan.study
    classes = len(study.data.class_names) if study.task == "classification" else 2
    size = study.data.dimension
    if study.data.public is not None and study.described.learns_directions(study):
        size = min(size, math.ceil(rank_for(signal_of(plan), classes, size)))
    return size, classes - 1


def times(factor: float) -> str:
    """A factor in a remedy, rounded up to a tenth, so that it is enough.

    >>> times(1.41), times(75573.31)
    ('1.5', '75,573.4')
    """
    return f"{math.ceil(10.0 * factor) / 10.0:,.1f}"
