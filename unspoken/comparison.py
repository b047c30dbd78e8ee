"""Comparison of methods on the same records and parties at the same ε, in several runs each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unspoken.data.files import Records
from unspoken.errors import UnspokenError, missing_package
from unspoken.methods.base import Method
from unspoken.methods.registry import METHODS, method_for
from unspoken.plugins import UnknownName, quoted, suggestion
from unspoken.simulation import simulate_records
from unspoken.study import Study, StudyError, make_study
from unspoken.types import Integers

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Point:
    """The results of several runs of a method at one ε."""

    method: str
    epsilon: float | None
    """The promised ε; None for no promise"""
    metrics: dict[str, list[float]]
    """One number a run, by metric"""

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "epsilon": self.epsilon,
            "metrics": {
                name: {"mean": float(np.mean(runs)), "min": min(runs), "max": max(runs)}
                for name, runs in self.metrics.items()
            },
        }


def study_for(study: Study, method: str, epsilon: float) -> Study:
    """The study for another method and ε.

    The method gets the keys of [compare.NAME], or else those keys of [method] that it knows. If it cannot use the
    study's summation, it uses the default one.
    """
    if method not in METHODS:
        raise StudyError(f"the method to compare with {UnknownName(method, tuple(METHODS)).problem}.")
    _check_sections(study)
    content = _content_for(study, METHODS[method], epsilon)
    if method in study.compare:
        changed = make_study(
            {**content, "method": {"name": method, **study.compare[method]}}, study.source, ("compare", method)
        )
        method_for(changed)
        return changed
    keys = study.method.own_keys
    changed = make_study({**content, "method": {"name": method, **keys}}, study.source)
    known = METHODS[method].keys_for(changed).model_fields
    keys = {key: value for key, value in keys.items() if key in known}
    changed = make_study({**content, "method": {"name": method, **keys}}, study.source)
    try:
        method_for(changed)
    except StudyError as error:
        if method == study.method.name or error.place[:1] != ("method",):
            raise
        raise StudyError(
            f"{error} (A section [compare.{method}] can give keys for {method} alone.)", error.place
        ) from None
    return changed


def _check_sections(study: Study) -> None:
    """Refuse sections [compare.NAME] that no method could use."""
    for name, keys in study.compare.items():
        if name not in METHODS:
            known = tuple(METHODS)
            problem = f"names no method; known are: {quoted(known)}{suggestion(name, known)}"
            raise study.error(f"compare.{name}", problem)
        if "name" in keys:
            raise study.error(f"compare.{name}.name", "is a key of [method] only; remove it")


def _content_for(study: Study, kind: type[Method], epsilon: float) -> dict[str, Any]:
    """The content of the study's file for another method, without its keys."""
    content = study.model_dump(exclude_none=True, exclude={"compare"})
    if not kind.accepts(study.protocol_class):
        del content["summation"]
    content["privacy"] = {**content["privacy"], "epsilon": epsilon}
    content["privacy"].pop("noise_multiplier", None)
    # A norm that the study left to its own method is left to this one too.
    open_norm = {**content, "data": {key: value for key, value in content["data"].items() if key != "norm"}}
    return open_norm if make_study(open_norm, study.source).data.norm == study.data.norm else content


def compare(
    study: Study,
    train: Records,
    groups: Integers,
    test: Records,
    methods: Sequence[str],
    epsilons: Sequence[float],
    *,
    repeats: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Point]:
    """Run every method at every ε, with fresh noise each time. A method without a promise runs once for all ε."""
    points: list[Point] = []
    for method in methods:
        for epsilon in epsilons:
            changed = study_for(study, method, epsilon)
            runs: dict[str, list[float]] = {}
            promised: float | None = epsilon
            for repeat in range(repeats):
                if progress:
                    progress(f"{method} at epsilon {epsilon:g}", repeat, repeats)
                done = simulate_records(changed, train, groups, test, seed=seed)
                promised = done.plan.guarantee.epsilon if done.plan.guarantee.is_promise else None
                for name, value in done.metrics.items():
                    runs.setdefault(name, []).append(value)
            points.append(Point(method, promised, runs))
            if promised is None:
                break
    return points


def metric_of(points: Sequence[Point]) -> str:
    """The first metric that all methods have."""
    for metric in points[0].metrics:
        if all(metric in point.metrics for point in points):
            return metric
    methods = list(dict.fromkeys(f'"{point.method}"' for point in points))
    common = " in common" if len(methods) > 1 else ""
    raise UnspokenError(f"what {' and '.join(methods)} released has no metric{common}: there is nothing to compare.")


def plot(points: Sequence[Point], metric: str, path: Path) -> None:
    """Plot mean and range of a metric against ε, one line a method."""
    try:
        import matplotlib
    except ImportError:
        raise missing_package("a plot", "matplotlib", "plots") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 4.5), layout="constrained")
    for number, method in enumerate(dict.fromkeys(point.method for point in points)):
        color = f"C{number}"
        mine = [point for point in points if point.method == method and metric in point.metrics]
        drawn = [point for point in mine if point.epsilon is not None]
        if drawn:
            means = [float(np.mean(point.metrics[metric])) for point in drawn]
            spread = [
                [mean - min(point.metrics[metric]) for mean, point in zip(means, drawn, strict=True)],
                [max(point.metrics[metric]) - mean for mean, point in zip(means, drawn, strict=True)],
            ]
            where = [point.epsilon or 0.0 for point in drawn]
            axes.errorbar(where, means, yerr=spread, marker="o", capsize=3, color=color, label=method)
        for point in mine:
            if point.epsilon is None:
                level = float(np.mean(point.metrics[metric]))
                axes.axhline(level, linestyle="--", color=color, label=f"{method} (no promise)")
    axes.set_xscale("log")
    ticks = sorted({round(point.epsilon, 3) for point in points if point.epsilon is not None})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("epsilon")
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)
    plt.close(figure)
