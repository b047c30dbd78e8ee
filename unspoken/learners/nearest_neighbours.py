"""Exact k nearest neighbours: a party's ballot on a query is the shares of the labels of its k nearest records.

Formal guarantee. The nearest k are the first k in the order of (distance, index in the data set), with exact distances,
not rounded ones. In this order the comparison of two records depends on no third one, so a replaced record takes the
place of at most one of k neighbours and moves a ballot by at most √2/k.

Three filters find them. Each drops only records that proven rounding bounds (Higham 2002, Section 3) put beyond the
k-th:
1. scores from one product of matrices in single precision, which takes most of the time;
2. distances in double precision, for the few candidates that are left;
3. distances in integers, for candidates that still tie and have different labels.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from unspoken.compiling import compiled
from unspoken.types import Floats, Integers

_QUERIES, _RECORDS = 1024, 4096
"""Queries and records in one product of matrices, which bounds memory and fits the cache"""
_MOST_FEATURES = 10**6
"""The largest number of features for which single precision helps"""
_SMALLEST, _LARGEST = 1e-140, 1e150
"""Lengths below the first count as zero in the first filter (its bound allows for it); above the second: refused"""

_Singles = npt.NDArray[np.float32]


def neighbour_shares(queries: Floats, features: Floats, labels: Integers, classes: int, neighbours: int) -> Floats:
    """The share of each class among each query's `neighbours` nearest records: (Q, K), rows add up to 1.

    Ties go to the earlier record.

    >>> neighbour_shares(np.zeros((1, 1)), np.array([[3.0], [-1.0], [1.0]]), np.array([0, 1, 2]), 3, 1)
    array([[0., 1., 0.]])
    """
    if not 1 <= neighbours <= len(features):
        raise ValueError(f"Expected 1 <= neighbours <= {len(features)}, got neighbours={neighbours}.")
    # Few array types, so that numba compiles few functions.
    queries, features = np.ascontiguousarray(queries, dtype=np.float64), np.ascontiguousarray(features)
    labels = np.ascontiguousarray(labels, dtype=np.int64)
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"Expected labels from 0 to {classes - 1}, got {labels.min()} to {labels.max()}.")
    if neighbours == len(features):
        return np.tile(np.bincount(labels, minlength=classes) / neighbours, (len(queries), 1))
    # Relative to a point amid the records, rounding errors are small even if all records are far from zero.
    centre = np.asarray(features[:: max(1, len(features) // 256)].mean(axis=0, dtype=np.float64))
    shares = np.empty((len(queries), classes))
    for start in range(0, len(queries), _QUERIES):
        asked = queries[start : start + _QUERIES]
        candidates, counts = _candidates(asked, features, centre, neighbours)
        votes, decided = _vote(asked, features, labels, candidates, counts, classes, neighbours)
        for place in np.flatnonzero(~decided):
            known = candidates[place, : counts[place]] if counts[place] >= 0 else np.arange(len(features))
            votes[place] = _exact_vote(asked[place], features, labels, known, classes, neighbours)
        shares[start : start + _QUERIES] = votes / neighbours
    return shares


def _candidates(queries: Floats, features: Floats, centre: Floats, neighbours: int) -> tuple[Integers, Integers]:
    """Indices (Q, c) of records that may be among each query's nearest, and their numbers; −1 if there are too many.

    With unit vectors a and b along q − centre and x − centre, and the lengths Q and R of these, the squared distance is
    Q² + R(R − 2Q a·b). The product of a and b in single precision is off by at most 1.25(d + 8)·2⁻²⁴, in any order of
    summation; R² by at most (d + 8)·2⁻⁵¹R².
    """
    count, dimension = len(queries), features.shape[1]
    room = 2 * neighbours + 64
    bests = np.full((count, neighbours), np.inf)
    found, bounds = np.empty((count, room), dtype=np.int64), np.empty((count, room))
    counts = np.zeros(count, dtype=np.int64)
    units, lengths = _units(queries, centre)
    for start in range(0, len(features), _RECORDS):
        others, reaches = _units(features[start : start + _RECORDS], centre)
        if dimension <= _MOST_FEATURES:
            products = units @ others.T
            off, rounding = 1.25 * (dimension + 8) * 2.0**-24, (dimension + 8) * 2.0**-51
            _keep(products, lengths, reaches, off, rounding, start, bests, found, bounds, counts)
        else:
            counts[:] = -1
    return found, counts


def _units(rows: Floats, centre: Floats) -> tuple[_Singles, Floats]:
    """Unit vectors from the centre to each row, in single precision, and the distances."""
    units, lengths = np.empty(rows.shape, dtype=np.float32), np.empty(len(rows))
    _normalise(rows, centre, units, lengths)
    if not (lengths <= _LARGEST).all():
        raise ValueError(f"Expected records and queries within {_LARGEST:g} of each other, without NaN.")
    return units, lengths


@compiled
def _normalise(rows: Floats, centre: Floats, units: _Singles, lengths: Floats) -> None:
    for i in range(len(rows)):
        squares = 0.0
        for j in range(len(centre)):
            gap = rows[i, j] - centre[j]
            squares += gap * gap
        length = math.sqrt(squares)
        lengths[i] = length
        factor = 1.0 / length if length > _SMALLEST else 0.0
        for j in range(len(centre)):
            units[i, j] = (rows[i, j] - centre[j]) * factor


@compiled
def _insert(smallest: Floats, value: float) -> None:
    """Insert a value into a sorted array and drop the largest."""
    place = len(smallest) - 1
    while place > 0 and smallest[place - 1] > value:
        smallest[place] = smallest[place - 1]
        place -= 1
    smallest[place] = value


@compiled
def _keep(
    products: _Singles,
    lengths: Floats,
    reaches: Floats,
    off: float,
    rounding: float,
    start: int,
    bests: Floats,
    found: Integers,
    bounds: Floats,
    counts: Integers,
) -> None:
    """Add to each query's candidates the records whose lower bound is within the k-th smallest upper bound.

    `bests` are each query's k smallest upper bounds, sorted; `bounds` are the candidates' lower bounds.
    """
    nearest = bests.shape[1]
    for q in range(len(products)):
        if counts[q] < 0:
            continue
        twice = 2.0 * lengths[q]
        slack = 16.0 * _SMALLEST * (lengths[q] + _SMALLEST)
        limit = bests[q, nearest - 1] + slack
        for i in range(len(reaches)):
            reach = reaches[i]
            lower = reach * (reach * (1.0 - rounding) - twice * (products[q, i] + off))
            if lower > limit:
                continue
            upper = reach * (reach * (1.0 + rounding) - twice * (products[q, i] - off)) + slack
            if upper < bests[q, nearest - 1]:
                _insert(bests[q], upper)
                limit = bests[q, nearest - 1] + slack
            if counts[q] == found.shape[1]:
                kept = 0
                for place in range(counts[q]):
                    if bounds[q, place] <= limit:
                        found[q, kept], bounds[q, kept] = found[q, place], bounds[q, place]
                        kept += 1
                counts[q] = kept
                if kept == found.shape[1]:
                    counts[q] = -1
                    break
            found[q, counts[q]], bounds[q, counts[q]] = start + i, lower
            counts[q] += 1


@compiled
def _vote(
    queries: Floats,
    features: Floats,
    labels: Integers,
    candidates: Integers,
    counts: Integers,
    classes: int,
    neighbours: int,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Counts of the neighbours' labels (Q, K), and a mask of the queries that double precision decides.

    A computed distance has a relative error of at most (d + 2)·2⁻⁵³, except for underflow. Records clearly within the
    k-th computed distance are neighbours; of those about as far, as many as there is room for.
    """
    dimension = features.shape[1]
    votes = np.zeros((len(queries), classes))
    decided = np.zeros(len(queries), dtype=np.bool_)
    distances, nearest = np.empty(len(features)), np.empty(neighbours)
    for q in range(len(queries)):
        count = counts[q] if counts[q] >= 0 else len(features)
        nearest[:] = np.inf
        for place in range(count):
            record = candidates[q, place] if counts[q] >= 0 else place
            distance = 0.0
            for j in range(dimension):
                gap = np.float64(queries[q, j]) - np.float64(features[record, j])
                distance += gap * gap
            distances[place] = distance
            if distance < nearest[neighbours - 1]:
                _insert(nearest, distance)
        border = nearest[neighbours - 1]
        width = 4.0 * (dimension + 4) * 2.0**-53 * border + 1e-300
        room, about, first, alike = neighbours, 0, -1, True
        for place in range(count):
            if distances[place] > border + width:
                continue
            label = labels[candidates[q, place] if counts[q] >= 0 else place]
            if distances[place] < border - width:
                votes[q, label] += 1.0
                room -= 1
                continue
            about += 1
            alike = alike and (first < 0 or label == first)
            first = label
        if alike:
            votes[q, first] += room
            decided[q] = True
        elif about == room:
            for place in range(count):
                if abs(distances[place] - border) <= width:
                    votes[q, labels[candidates[q, place] if counts[q] >= 0 else place]] += 1.0
            decided[q] = True
    return votes, decided


def _exact_vote(
    query: Floats, features: Floats, labels: Integers, candidates: Integers, classes: int, neighbours: int
) -> Floats:
    """Counts of the neighbours' labels (K,), by integer distances; equal rows are computed once."""
    distinct, which = np.unique(features[candidates], axis=0, return_inverse=True)
    rows = _whole_numbers(np.concatenate([distinct, query[None]]).astype(np.float64))
    distances = ((rows[:-1] - rows[-1]) ** 2).sum(axis=1)
    nearest = sorted(
        (distances[row], place) for row, place in zip(which.ravel().tolist(), candidates.tolist(), strict=True)
    )
    chosen = [place for _, place in nearest[:neighbours]]
    return np.bincount(labels[chosen], minlength=classes).astype(np.float64)


def _whole_numbers(values: Floats) -> npt.NDArray[np.object_]:
    """The values times a power of two, as Python integers.

    >>> _whole_numbers(np.array([0.75, -1.5])) // 2**51
    array([3, -6], dtype=object)
    """
    mantissas, exponents = np.frexp(values)
    exponents = np.where(mantissas == 0.0, exponents.max(initial=0), exponents)
    scaled = (mantissas * 2.0**53).astype(np.int64).astype(object)
    return np.asarray(scaled << (exponents - exponents.min()).astype(object), dtype=object)
