"""Neighbouring records that are built to be far apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases import FEATURES, PARTIES, Case

from unspoken.data.files import Records
from unspoken.methods.planning import Plan


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one unit; row i belongs to groups[i]. Where records are left out, the other one has
    fewer rows, of the parties `fewer`."""

    groups: Any
    one: Records
    other: Records
    fewer: Any = None


def _base(case: Case) -> tuple[Any, Any]:
    """Which party each row belongs to, and which rows a neighbour may replace: the protected unit's, and party 0's."""
    least, most = case.sizes
    # Where records are left out, no party has fewer than the least afterwards.
    spare = (1 if case.unit == "record" else case.unit["group"]) if case.unit != "party" else 0
    spare = 0 if case.adjacency == "replace" else spare
    counts = [min(most, least + spare + (party % (most - least + 1))) for party in range(PARTIES)]
    groups = np.repeat(np.arange(PARTIES), counts)
    first = np.flatnonzero(groups == 0)
    if case.unit == "party":
        return groups, [first]
    size = 1 if case.unit == "record" else int(case.unit["group"])
    # As many as there are: at one party first, and one at each party first.
    by_round = sorted(range(len(groups)), key=lambda row: (row - int(np.flatnonzero(groups == groups[row])[0]), row))
    together, spread = np.arange(len(groups))[:size], np.array(by_round)[:size]
    return groups, [together] if size == 1 else [together, spread]


ROUNDED = "opposite, rounded away"
_UNIT = np.eye(FEATURES)
_TILT = math.sqrt(1.0 - 0.5**2)
_EVEN = np.full(FEATURES, 1.0 / math.sqrt(FEATURES))
_REPLACED: list[tuple[str, Any, Any, Any]] = [
    # All other records (direction, label; None: half of each party's have 0, half 1), what is replaced, and by what.
    ("opposite", (_UNIT[3] * 1e-3, 0), (_UNIT[0], 0), (-_UNIT[0], 0)),
    ("relabelled", (_UNIT[0], 0), (_UNIT[0], 0), (_UNIT[0], 1)),
    ("turned, far out of bounds", (_UNIT[3] * 1e-3, 0), (_UNIT[0] * 100.0, 0), (_UNIT[1] * 100.0, 1)),
    ("mirrored", (_UNIT[0], 1), (-0.5 * _UNIT[0] + _TILT * _UNIT[1], 1), (-0.5 * _UNIT[0] - _TILT * _UNIT[1], 1)),
    ("the scales tipped", (_UNIT[0], None), (_UNIT[0], 0), (_UNIT[0], 1)),
    (ROUNDED, (np.zeros(FEATURES), 0), (_EVEN, 0), (-_EVEN, 0)),
]


PAIRS = 2 * len(_REPLACED)
"""Each kind of neighbours at one party first, and at each party first (which is the same for a record, or a party)."""


def neighbours(case: Case, plan: Plan, chosen: Iterable[int] | None = None) -> Iterator[tuple[str, Neighbours]]:
    """Pairs of data sets that are built to be as far apart as a method can be driven: all, or some of `PAIRS`."""
    groups, places = _base(case)
    everything = [(kind, place) for kind in range(len(_REPLACED)) for place in range(len(places))]
    some = everything if chosen is None else [(number // 2, number % len(places)) for number in chosen]
    for kind, place in some:
        name, (others, label), (before, one), (after, other) = _REPLACED[kind]
        rows = places[place]
        features = np.tile(others, (len(groups), 1)).astype(float)
        labels = _halves(groups) if label is None else np.full(len(groups), label)
        pair = []
        for record, number in ((before, one), (after, other)):
            moved, named = features.copy(), labels.copy()
            moved[rows], named[rows] = _off_the_grid(record, plan) if name == ROUNDED else record, number
            pair.append(Records(moved, _labels(case, named)))
        pair_of = Neighbours(groups, pair[0], pair[1])
        if case.adjacency == "add-remove":
            stay = np.delete(np.arange(len(groups)), rows)
            fewer = Records(pair[1].features[stay], pair[1].labels[stay])
            pair_of = Neighbours(groups, pair[1], fewer, groups[stay])
        yield f"{name}, rows {rows[:3].tolist()}…", pair_of


def _off_the_grid(record: Any, plan: Plan) -> Any:
    """A record as long as allowed whose numbers lie half a unit off the grid, where a total is of the records: so all
    of them are rounded away from zero, and those of its opposite the other way."""
    scale = plan.sums[-1].encoding.scale
    units = np.full(FEATURES, max(math.floor(scale / math.sqrt(FEATURES) - 0.5), 0) + 0.5 + 1e-6)
    for place in range(FEATURES):
        longer = units.copy()
        longer[place] += 1.0
        if np.linalg.norm(longer) <= scale:
            units = longer
    return np.sign(record) * units / scale


def _halves(groups: Any) -> Any:
    """At each party as many records of class 0 as of class 1, or one more: one record tips the scales."""
    labels = np.zeros(len(groups), dtype=int)
    for party in range(PARTIES):
        rows = np.flatnonzero(groups == party)
        labels[rows[(len(rows) + 1) // 2 :]] = 1
    return labels


def _labels(case: Case, numbers: Any) -> Any:
    match case.task:
        case "classification":
            return numbers.astype(np.int64)
        case "regression":
            return 1.0 - 2.0 * (numbers == 1)
        case _:
            return np.zeros(len(numbers))
