"""The map of a study's records into the directions of its public records (`learners.public_directions`).

It is a step between the bounded records and the method: a method says that it is linear
(`Description.learns_directions`), and needs no code of its own. Parties map their records before the method sees them,
and the released weights are mapped back, so that the model is used on ordinary records.

Regressions do not use the map: their second moments show the directions anyway, and under large noise it would harm
them that the map shrinks the mean.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unspoken.data.bounding import clip_rows
from unspoken.data.files import DataError
from unspoken.data.public import PublicRecords, read_public
from unspoken.learners.public_directions import LEAST_ROWS, PublicDirections, rank_for
from unspoken.methods.planning.plan import Plan
from unspoken.study import Study
from unspoken.types import Floats

_LEAST_SQUARE = 1e-150
"""The least mean square of public records: products of up to four of their numbers must not vanish"""


def directions_of(study: Study, plan: Plan) -> PublicDirections | None:
    """The map of a linear method; None if the study has no public records."""
    if study.data.public is None or (public := read_public(study)) is None:
        return None
    rows = clip_rows(public.features, study.data)
    _check(public, rows)
    length = None
    if not study.described.needs_norm(study):
        length = float(np.einsum("ij,ij->", rows, rows)) / len(rows)
    return PublicDirections.of(rows, study.data.norm, _outputs(study), signal_of(plan), length)


def _check(public: PublicRecords, rows: Floats) -> None:
    if len(rows) < LEAST_ROWS:
        raise DataError(
            f"{public.name}: has {len(rows)} public records, too few to learn directions from; name a file with "
            f"{LEAST_ROWS} or more, better with more than there are features, or remove public from the study."
        )
    if not rows.any():
        raise DataError(f"{public.name}: has zeros only; name public records that look like the parties' own.")
    if float(np.einsum("ij,ij->", rows, rows)) / len(rows) < _LEAST_SQUARE:
        raise DataError(
            f"{public.name}: has no number above {np.abs(rows).max():.1g}, too small to multiply; name public records "
            "that look like the parties' own."
        )


def signal_of(plan: Plan) -> float:
    """X, the planned number of units (records, or parties) over the deviation of the noise in a total that one of them
    moves by 1: √Σ(rate·n·sensitivity/deviation)² over all totals of the run."""
    study, squares = plan.study, 0.0
    units = plan.parties_asked if study.group is None else plan.parties_asked * study.parties.records / study.group
    for planned in plan.sums:
        rate, moved = 1.0, planned.sensitivity
        if planned.sampling is not None:
            # A replaced record takes one contribution away and brings another.
            rate, moved = planned.sampling.rate, 2.0 * planned.contribution
        deviation = planned.total_std(plan.parties_asked)
        if deviation == 0.0:
            return math.inf
        squares += planned.count * (rate * units * moved / deviation) ** 2
    return math.sqrt(squares)


def with_notes(plan: Plan, learns: bool, votes: bool) -> Plan:
    """The plan with notes on its public records. The study says enough about them: helpers need not have the file."""
    study = plan.study
    if study.data.public is None or votes:
        return plan
    if not learns:
        note = (
            f'"{plan.method}" makes no use of the public records here; they help linear classifiers under larger noise'
        )
        return replace(plan, notes=(*plan.notes, note))
    size = study.data.dimension
    used = max(1, round(rank_for(signal_of(plan), _outputs(study), size)))
    notes = (
        f"the model learns in about {used:,} of {size:,} directions that the public records vary in, as many as the "
        "noise leaves; this costs no privacy",
        f"the public records have the SHA-256 {study.data.public_sha256}, which all who have this study agree on",
    )
    return replace(plan, notes=plan.notes + notes)


def _outputs(study: Study) -> int:
    return len(study.data.class_names)
