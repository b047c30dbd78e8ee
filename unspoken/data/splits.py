"""Splits of one data set over the parties of a simulation."""

from __future__ import annotations

import re

import numpy as np

from unspoken.errors import UnspokenError
from unspoken.types import Flags, Integers, Labels


class SplitError(UnspokenError, ValueError):
    """The records cannot be split over the parties as asked."""


def split(kind: str, labels: Labels, parties: int, seed: int) -> Integers:
    """The index of the party that gets each record.

    - `iid`: at random, in parts as equal as possible.
    - `by-class`: records sorted by class and cut into equal parts, so that (almost) every party has a single class;
      a regression's records are sorted by label, so that parties see different ranges of labels.
    - `dirichlet:A`: the classes' shares of each party drawn from a Dirichlet distribution with concentration A
      (Hsu et al. 2019): small A, unlike parties. Every party gets at least one record. Not for regression.
    - `classes:K`: every party has records of K classes, chosen at random, so that all classes have about equally many
      parties. Not for regression.
    """
    rng = np.random.default_rng(seed)
    if parties > len(labels):
        raise SplitError(f"{len(labels)} records cannot be split over {parties} parties; ask for fewer parties.")
    if kind == "iid":
        return _cut(rng.permutation(len(labels)), parties)
    if kind == "by-class":
        shuffled = rng.permutation(len(labels))
        return _cut(shuffled[np.argsort(labels[shuffled], kind="stable")], parties)
    if match := re.fullmatch(r"dirichlet:([0-9.eE+-]+)", kind):
        if labels.dtype.kind == "f":
            raise SplitError(f"the split is {kind!r}, but a regression has no classes to draw; use iid or by-class.")
        try:
            concentration = float(match.group(1))
        except ValueError:
            concentration = 0.0
        if 0.0 < concentration < float("inf"):
            return _dirichlet(labels, parties, concentration, rng)
    if (match := re.fullmatch(r"classes:([0-9]+)", kind)) and labels.dtype.kind != "f":
        each, there = int(match.group(1)), len(np.unique(labels))
        if 1 <= each <= there <= parties * each:
            return _some_classes(labels, parties, each, rng)
        raise SplitError(
            f"the split is {kind!r}, but the records have {there} classes; K must be from 1 to {there}, and {parties} "
            "parties together must cover all classes."
        )
    raise SplitError(
        f"the split is {kind!r}, but should be iid, by-class, dirichlet:A with A above 0, such as dirichlet:0.5, or "
        "(unless labels are numbers) classes:K, such as classes:6."
    )


def stratified(labels: Labels, share: float, seed: int) -> Flags:
    """A flag for each record: a random part of the records, with this share of each class.

    If labels are real numbers, there are no classes, and it is a random part of all records.
    """
    rng, chosen = np.random.default_rng(seed), np.zeros(len(labels), dtype=bool)
    classes = [np.arange(len(labels))]
    if labels.dtype.kind != "f":
        classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for rows in classes:
        chosen[rng.permutation(rows)[: round(share * len(rows))]] = True
    return chosen


def _cut(order: Integers, parties: int) -> Integers:
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.arange(len(order)) * parties // len(order)
    return groups


def _some_classes(labels: Labels, parties: int, each: int, rng: np.random.Generator) -> Integers:
    classes = np.unique(labels)
    places: dict[int, list[int]] = {int(label): [] for label in classes}
    for party in rng.permutation(parties).tolist():
        # The classes with the fewest parties, ties broken at random.
        order = sorted(places, key=lambda label: (len(places[label]), rng.random()))
        for label in order[:each]:
            places[label].append(party)
    groups = np.empty(len(labels), dtype=np.int64)
    for label, holders in places.items():
        rows = rng.permutation(np.flatnonzero(labels == label))
        groups[rows] = np.array(holders)[np.arange(len(rows)) * len(holders) // len(rows)]
    return _without_empty(groups, parties)


def _dirichlet(labels: Labels, parties: int, concentration: float, rng: np.random.Generator) -> Integers:
    groups = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = np.maximum(rng.dirichlet(np.full(parties, concentration)), 1e-300)
        ends = np.round(np.cumsum(shares) / shares.sum() * len(rows)).astype(np.int64)
        groups[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right")
    return _without_empty(groups, parties)


def _without_empty(groups: Integers, parties: int) -> Integers:
    """The groups after each party without records has taken one from the largest party."""
    counts = np.bincount(groups, minlength=parties)
    for empty in np.flatnonzero(counts == 0):
        richest = int(counts.argmax())
        groups[np.flatnonzero(groups == richest)[0]] = empty
        counts[richest] -= 1
        counts[empty] += 1
    return groups
