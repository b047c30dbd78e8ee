"""Summaries of runs: the mean result of a method at one ε and number of parties, and its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from unspoken.comparison.cells import ComparedRun, place_of
from unspoken.errors import UnspokenError
from unspoken.study.description import BY_RULE

_LEVEL = 0.95


@dataclass(frozen=True)
class Point:
    """The results of several runs of a method at one ε."""

    variant: str
    epsilon: float | None
    """The promised ε; None for no promise"""
    metrics: dict[str, list[float]]
    """One number a run, by each metric that all runs have"""
    method: str = ""
    computes: str = ""
    asked: float | None = None
    """The ε that was asked for"""
    parties: int = 0
    upload_bytes: int = 0
    remarks: tuple[str, ...] = ()
    """The remarks on its runs, each once"""
    splits: int = 1
    """The number of different splits of the records that its runs had"""

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method or self.variant,
            "variant": self.variant,
            "computes": self.computes,
            "epsilon": self.epsilon,
            "epsilon_asked": self.asked,
            "parties": self.parties,
            "upload_bytes": self.upload_bytes,
            "metrics": {
                name: {
                    "mean": float(np.mean(runs)),
                    "min": min(runs),
                    "max": max(runs),
                    "interval": interval(runs),
                    "runs": runs,
                }
                for name, runs in self.metrics.items()
            },
        }


def interval(runs: Sequence[float]) -> list[float] | None:
    """The 95 % confidence interval of the mean, by Student's t; None for fewer than three runs, which say too little.

    >>> [round(end, 3) for end in interval([0.8, 0.82, 0.84])]
    [0.77, 0.87]
    """
    if len(runs) < 3:
        return None
    mean, error = float(np.mean(runs)), float(np.std(runs, ddof=1)) / math.sqrt(len(runs))
    half = float(student.ppf((1.0 + _LEVEL) / 2.0, len(runs) - 1)) * error
    return [mean - half, mean + half]


def points_of(runs: Sequence[ComparedRun]) -> list[Point]:
    """A point for all runs that differ in their noise and split only, in the order of the runs."""
    groups: dict[tuple[str, float, int], list[ComparedRun]] = {}
    for run in runs:
        groups.setdefault((run.variant, run.asked, run.parties), []).append(run)
    return [_point(group) for group in groups.values()]


def _point(group: list[ComparedRun]) -> Point:
    first = group[0]
    # Labels that are all alike have no R², so that a run on such records is without it.
    shared = [name for name in first.metrics if all(name in run.metrics for run in group)]
    metrics = {name: [run.metrics[name] for run in group] for name in shared}
    facts = first.method, first.computes, None if first.epsilon is None else first.asked
    sizes, splits = (first.parties, first.upload_bytes), len({run.seed for run in group})
    return Point(first.variant, first.epsilon, metrics, *facts, *sizes, _remarks_on(group), splits)


def _remarks_on(group: list[ComparedRun]) -> tuple[str, ...]:
    """The remarks on runs, each once, with the number of runs that it is true of."""
    found: dict[str, list[str]] = {}
    for run in group:
        for text in run.remarks:
            found.setdefault(text.partition(":")[0], []).append(text)
    of = len(group)
    return tuple(
        texts[0] if len(texts) == of else f"in {len(texts)} of {of} runs {texts[0]}" for texts in found.values()
    )


def metric_of(points: Sequence[Point]) -> str:
    """The first metric that all methods have."""
    for metric in points[0].metrics:
        if all(metric in point.metrics for point in points):
            return metric
    names = list(dict.fromkeys(f'"{point.variant}"' for point in points))
    common = " in common" if len(names) > 1 else ""
    raise UnspokenError(f"what {' and '.join(names)} released has no metric{common}: there is nothing to compare.")


def remarks(points: Sequence[Point], known: Collection[str] = ()) -> list[str]:
    """Notes for a reader of the comparison, in sentences, without those that are known already."""
    said, several = [], len({point.parties for point in points}) > 1
    functions = dict.fromkeys(point.computes.removesuffix(BY_RULE) for point in points if point.computes)
    if len(functions) > 1:
        said.append(
            f"Not all compute the same function: {', '.join(functions)}. A section [compare.NAME] can say which."
        )
    lowered: dict[tuple[float, float], list[str]] = {}
    for point in points:
        if point.epsilon is not None and point.asked is not None and point.epsilon < 0.99 * point.asked:
            lowered.setdefault((point.asked, point.epsilon), []).append(point.variant)
    for (asked, ran), names in lowered.items():
        said.append(
            f"Asked for epsilon = {asked:g}, {', '.join(dict.fromkeys(names))} ran at {ran:.4g}: for more, the cost of "
            "drawing whole numbers is not proven, and nothing is shown."
        )
    for point in points:
        place = place_of(point.variant, point.asked, point.parties if several else None)
        said += [f"{place}: {text}." for text in point.remarks if f"{place}: {text}" not in known]
    runs = {len(numbers) for point in points for numbers in point.metrics.values()}
    if max(runs, default=0) > 2:
        split = "each on a split of its own" if any(point.splits > 1 for point in points) else "all on the same split"
        said.append(f"± is the 95 % confidence interval of the mean over runs with fresh noise, {split}.")
    return said
