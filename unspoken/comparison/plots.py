"""Plots of a comparison: a metric against ε, the number of parties, or what a party sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from unspoken import writing
from unspoken.comparison.points import Point, interval
from unspoken.errors import missing_package
from unspoken.report.plan_text import size

By = Literal["epsilon", "parties", "upload"]
AXES: tuple[By, ...] = get_args(By)
FORMATS = (".png", ".svg", ".pdf")
_LABELS = {"epsilon": "epsilon", "parties": "parties", "upload": "bytes that a party sends"}
_NEAR = 1.25
"""Places that are nearer than this, as a ratio, share one label"""
_MARKERS = "osD^vP*X"
_ASIDE = 0.012
"""The distance of points at one place, as a share of the axis"""


def check_plots() -> None:
    """Say how to install matplotlib if it is missing: before the runs, not after them."""
    try:
        import matplotlib
    except ImportError:
        raise missing_package("a plot", "matplotlib", "plots") from None
    matplotlib.use("Agg")


def plot(points: Sequence[Point], metric: str, path: Path, by: By = "epsilon", *, replace: bool = False) -> None:
    """Draw the mean of a metric with its 95 % interval, and every run as a dot; one line a method."""
    check_plots()
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9.0, 4.5), layout="constrained")
    shown = [point for point in points if metric in point.metrics]
    lines = _lines(shown, by)
    for number, (name, line) in enumerate(lines.items()):
        style = {"color": f"C{number % 10}", "marker": _MARKERS[number // 10 % len(_MARKERS)], "label": name}
        _draw(axes, line, metric, _places(lines, number, by), style, by)
    _dress(axes, shown, metric, by)
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend([drawn[name] for name in lines], list(lines), loc="outside right upper", frameon=False)
    with writing.staged_for(path) as hidden:
        figure.savefig(hidden / path.name, dpi=150)
        if not writing.keep({hidden / path.name: path}, replace=replace):
            writing.check_free(path)
    plt.close(figure)


def _lines(points: Sequence[Point], by: By) -> dict[str, list[Point]]:
    """The points of each line, by its name in the legend. The name has whatever differs and is not on the axis."""
    several_parties = len({point.parties for point in points}) > 1
    several_epsilons = len({point.asked for point in points if point.asked is not None}) > 1
    lines: dict[str, list[Point]] = {}
    for point in points:
        name = point.variant + (f" ({point.computes})" if point.computes else "")
        if point.epsilon is None:
            name += ", no promise"
        elif by == "parties" and several_epsilons:
            name += f", epsilon {point.asked:g}"
        if by != "parties" and several_parties:
            name += f", {point.parties:,} parties"
        lines.setdefault(name, []).append(point)
    return lines


def _places(lines: dict[str, list[Point]], number: int, by: By) -> list[float]:
    """The places of a line's points, a little aside of each other so that their intervals can be told apart."""
    there = [place for line in lines.values() for point in line if (place := _place(by)(point))]
    step = max(max(there, default=1.0) / min(there, default=1.0), 2.0) ** _ASIDE
    line = list(lines.values())[number]
    if by == "upload":
        return [_place(by)(point) * step ** (place - (len(line) - 1) / 2.0) for place, point in enumerate(line)]
    return [_place(by)(point) * step ** (number - (len(lines) - 1) / 2.0) for point in line]


def _draw(axes: Any, line: list[Point], metric: str, where: list[float], style: dict[str, str], by: By) -> None:
    means = [float(np.mean(point.metrics[metric])) for point in line]
    if by == "epsilon" and line[0].epsilon is None:
        axes.axhline(means[0], linestyle="--", color=style["color"], label=style["label"])
        return
    ends = [interval(point.metrics[metric]) or [mean, mean] for point, mean in zip(line, means, strict=True)]
    least, most = _limits(metric)
    ends = [[max(low, least), min(high, most)] for low, high in ends]
    around = [[mean - end[0] for mean, end in zip(means, ends, strict=True)]]
    around += [[end[1] - mean for mean, end in zip(means, ends, strict=True)]]
    dash = "--" if line[0].epsilon is None else "-"
    axes.errorbar(where, means, yerr=around, linestyle=dash, linewidth=1.2, markersize=5, capsize=3, **style)
    for place, point in zip(where, line, strict=True):
        runs = point.metrics[metric]
        axes.plot([place] * len(runs), runs, ".", color=style["color"], alpha=0.4, markersize=5)
    if by == "upload":
        for place, mean, point in zip(where, means, line, strict=True):
            if point.asked is not None:
                axes.annotate(f"{point.asked:g}", (place, mean), (5, 4), textcoords="offset points", fontsize=8)


def _limits(metric: str) -> tuple[float, float]:
    """What a metric can be at all: intervals are drawn no further. Errors are not below 0, nor R² above 1."""
    is_share = "accuracy" in metric
    return -math.inf if metric == "r2" else 0.0, 1.0 if is_share or metric == "r2" else math.inf


def _place(by: By) -> Callable[[Point], float]:
    if by == "epsilon":
        return lambda point: point.epsilon or 0.0
    return (lambda point: float(point.parties)) if by == "parties" else (lambda point: float(point.upload_bytes))


def _dress(axes: Any, points: Sequence[Point], metric: str, by: By) -> None:
    """Scales and labels."""
    axes.set_xscale("log")
    promised = [point for point in points if by != "epsilon" or point.epsilon is not None]
    places = sorted({round(_place(by)(point), 3) for point in promised})
    ticks = [place for place, before in zip(places, [0.0, *places], strict=False) if place > before * _NEAR]
    axes.set_xticks(ticks, [size(round(tick)) if by == "upload" else f"{tick:,g}" for tick in ticks], fontsize=9)
    axes.minorticks_off()
    label = _LABELS[by] + ("; epsilon beside each point" if by == "upload" else "")
    axes.set_xlabel(label)
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.3)
