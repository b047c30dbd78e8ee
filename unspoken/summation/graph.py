"""The graph of parties that mask with each other: random and k-regular, with a safe degree and threshold.

Bell et al. 2020, Section 3: parties stand on a circle in random order, and each is linked to the next k/2 on either
side. Then every party's neighbours are a random k-subset of the others, and all tails below are exact hypergeometric
tails.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import hypergeom

from unspoken.types import Integers

SECURITY_BITS = 40
CORRECTNESS_BITS = 30


@dataclass(frozen=True)
class Degree:
    """The number of a party's neighbours, and of those that can recover its secrets together."""

    neighbours: int
    threshold: int


def choose_degree(
    parties: int,
    corrupt: int,
    dropouts: int,
    security: int = SECURITY_BITS,
    correctness: int = CORRECTNESS_BITS,
) -> Degree | None:
    """The smallest degree, with its threshold t, such that for all parties at once (union bound)

    - security: fewer than t neighbours are corrupt, except with probability 2^−security;
    - security: the honest survivors stay connected (no k/2 in a row are corrupt or gone), likewise;
    - correctness: at least t neighbours survive, except with probability 2^−correctness.

    None if no such degree exists; then a complete graph is used.

    >>> choose_degree(1000, 200, 50), choose_degree(1000, 500, 50)
    (Degree(neighbours=57, threshold=39), Degree(neighbours=140, threshold=113))
    """
    others = parties - 1
    for neighbours in range(2, others):
        threshold = _threshold(parties, corrupt, neighbours, security)
        if threshold > neighbours:
            continue
        too_few = hypergeom.sf(neighbours - threshold, others, dropouts, neighbours) * parties
        if too_few > 2.0**-correctness:
            continue
        if disconnected(parties, corrupt + dropouts, neighbours) > 2.0**-security:
            continue
        return Degree(neighbours, threshold)
    return None


def degree_for(parties: int, corrupt: int, dropouts: int) -> Degree:
    """The degree of a sum: the chosen one, rounded up to even, or that of the complete graph."""
    chosen = choose_degree(parties, corrupt, dropouts)
    if chosen is None or chosen.neighbours + 1 >= parties - 1:
        return complete_degree(parties, dropouts)
    neighbours = chosen.neighbours + chosen.neighbours % 2
    return Degree(neighbours, _threshold(parties, corrupt, neighbours, SECURITY_BITS))


def complete_degree(parties: int, dropouts: int) -> Degree:
    """The complete graph; the threshold is the least number of survivors beside a surviving party."""
    return Degree(parties - 1, max(1, parties - dropouts - 1))


def _threshold(parties: int, corrupt: int, neighbours: int, security: int) -> int:
    """The smallest t such that no party has t corrupt neighbours, except with probability 2^−security."""
    limit = 2.0**-security / parties
    counts = np.arange(neighbours + 1)
    unlikely = hypergeom.sf(counts - 1, parties - 1, corrupt, neighbours) <= limit
    return int(np.argmax(unlikely)) if unlikely.any() else neighbours + 1


def surrounded(parties: int, corrupt: int, degree: Degree) -> float:
    """A bound on the probability that some honest party has `threshold` corrupt neighbours, who can unmask it."""
    if degree.neighbours >= parties - 1:
        return float(corrupt >= degree.threshold)
    tail = float(hypergeom.sf(degree.threshold - 1, parties - 1, corrupt, degree.neighbours))
    return min(1.0, (parties - corrupt) * tail)


def disconnected(parties: int, missing: int, neighbours: int) -> float:
    """A bound on the probability that k/2 parties in a row are all missing: n · ∏ (missing − i) / (n − i)."""
    run = neighbours // 2
    if missing < run:
        return 0.0
    steps = np.arange(run)
    return float(parties * np.exp(np.log((missing - steps) / (parties - steps)).sum()))


def neighbours_of(party: int, parties: int, degree: int, seed: bytes) -> Integers:
    """The neighbours of one party, sorted."""
    if degree >= parties - 1:
        return np.delete(np.arange(parties), party)
    order, position = _circle(parties, seed)
    steps = np.arange(1, degree // 2 + 1)
    around = position[party] + np.concatenate([steps, -steps])
    return np.sort(order[around % parties])


@lru_cache(maxsize=8)
def _circle(parties: int, seed: bytes) -> tuple[Integers, Integers]:
    """The parties in the order of the circle, and each party's position; sorted by a hash of seed and index."""
    keys = np.array([hashlib.sha256(seed + party.to_bytes(4, "big")).digest() for party in range(parties)], dtype="S32")
    order = np.argsort(keys, kind="stable").astype(np.int64)
    position = np.empty(parties, dtype=np.int64)
    position[order] = np.arange(parties)
    return order, position


_TABLE_PARTIES = (100, 300, 1_000, 3_000, 10_000)
_TABLE_CORRUPT = (0.05, 0.2, 1 / 3, 0.5)


def degree_rows(dropout_fraction: float = 0.05) -> list[dict[str, float | int | None]]:
    """Degrees and thresholds by number of parties and corrupt fraction; None for the complete graph."""
    rows: list[dict[str, float | int | None]] = []
    for parties in _TABLE_PARTIES:
        for fraction in _TABLE_CORRUPT:
            degree = choose_degree(parties, int(fraction * parties), int(dropout_fraction * parties))
            row: dict[str, float | int | None] = {"parties": parties, "corrupt": fraction}
            row["neighbours"] = degree.neighbours if degree else None
            row["threshold"] = degree.threshold if degree else None
            rows.append(row)
    return rows


def degree_table(dropout_fraction: float = 0.05) -> str:
    """Degrees and thresholds as in Bell et al.'s Figure 2: rows are numbers of parties, columns corrupt fractions."""
    lines = ["parties  " + "  ".join(f"{fraction:>10.0%} corrupt" for fraction in _TABLE_CORRUPT)]
    rows = iter(degree_rows(dropout_fraction))
    for parties in _TABLE_PARTIES:
        found = [next(rows) for _ in _TABLE_CORRUPT]
        cells = [f"{row['neighbours']} ({row['threshold']})" if row["neighbours"] else "all" for row in found]
        lines.append(f"{parties:>7}  " + "  ".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)
