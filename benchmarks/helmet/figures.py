"""The figures of DP-Helmet as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Numbers, legend_below, pyplot, save

COLOURS = {
    "helmet, softmax": "#0072b2",
    "helmet, svm": "#009e73",
    "independent-models, softmax": "#cc79a7",
    "local": "#d55e00",
    "fedsgd": "#e69f00",
    "central": "#56b4e9",
}
"""Colours that colour-blind people can tell apart (Okabe & Ito)"""
MARKERS = ("o", "s", "^", "D", "v")


def sets_of(numbers: Numbers) -> list[str]:
    """The data sets that have numbers for the paper's figures."""
    return [name.removesuffix("-size") for name in numbers if name.endswith("-size")]


def draw_all(numbers: Numbers, folder: Path) -> None:
    for name in sets_of(numbers):
        label = name.replace("-", "_")
        drawn = {
            "figure3": (draw_spread, f"{name}: the same records over more and more parties (DP-Helmet, Figure 3)"),
            "figure4": (draw_growing, f"{name}: more and more parties of 50 records (DP-Helmet, Figure 4)"),
            "figure5": (draw_crowds, f"{name}: groups of records among many parties (DP-Helmet, Figure 5)"),
            "figure8": (draw_alone, f"{name}: all records at one party (DP-Helmet, Figure 8)"),
        }
        for part, (draw, title) in drawn.items():
            if f"{name}-{part}" in numbers:
                figure = draw(numbers, name)
                figure.suptitle(title)
                save(figure, folder / f"helmet_{label}_{part}.png")


def _line(panel: Any, rows: list[dict[str, Any]], by: str, label: str, **style: Any) -> None:
    rows = sorted(rows, key=lambda row: row[by])
    style = {"color": COLOURS[rows[0]["method"]], "ms": 5, **style}
    panel.errorbar(
        [row[by] for row in rows],
        [row["accuracy"] for row in rows],
        [row["deviation"] or 0.0 for row in rows],
        capsize=2,
        label=label,
        **style,
    )


def _axes(panel: Any, label: str, values: list[float]) -> None:
    panel.set_xscale("log")
    panel.set_xlabel(label)
    ticks = sorted(set(values))
    panel.set_xticks(ticks, [f"{value:,g}" for value in ticks])
    panel.minorticks_off()
    panel.grid(alpha=0.25)


def _not_private(panel: Any, numbers: Numbers, name: str) -> None:
    if f"{name}-plain" in numbers:
        panel.axhline(numbers[f"{name}-plain"], color="0.2", ls="-.", lw=1.3, label="not private")


def draw_spread(numbers: Numbers, name: str) -> Any:
    """A panel for each learner, with federated learning and DP-SGD in both."""
    found, others = numbers[f"{name}-figure3"], numbers.get(f"{name}-federated", [])
    learners = list(dict.fromkeys(row["method"] for row in found))
    figure, panels = pyplot().subplots(1, len(learners), figsize=(11.0, 5.4), sharey=True, layout="constrained")
    for panel, learner in zip(panels, learners, strict=True):
        rows = [row for row in found if row["method"] == learner] + others
        counts = sorted({row["parties"] for row in rows})
        for method, parties in dict.fromkeys((row["method"], row["parties"]) for row in rows):
            part = [row for row in rows if (row["method"], row["parties"]) == (method, parties)]
            many = "1 party" if parties == 1 else f"{parties:,} parties"
            told = method if method.startswith("helmet") else {"central": "DP-SGD"}.get(method, f"DP-FL ({method})")
            dash = "-" if method.startswith("helmet") else "--"
            _line(panel, part, "epsilon", f"{told}, {many}", marker=MARKERS[counts.index(parties) % 5], ls=dash)
        _not_private(panel, numbers, name)
        panel.set_title(learner, fontsize=11)
        _axes(panel, "ε", [row["epsilon"] for row in rows])
    panels[0].set_ylabel("accuracy, %")
    legend_below(figure, list(panels), 4)
    return figure


def draw_growing(numbers: Numbers, name: str) -> Any:
    rows = numbers[f"{name}-figure4"]
    figure, panel = pyplot().subplots(figsize=(8.0, 5.4), layout="constrained")
    for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        part = [row for row in rows if row["method"] == method]
        label = {"local": "DP-FL (local)", "independent-models, softmax": "naive average, softmax"}.get(method, method)
        _line(panel, part, "parties", label, marker=MARKERS[number])
    _axes(panel, f"parties of 50 records, ε = {rows[0]['epsilon']:g}", [row["parties"] for row in rows])
    panel.set_ylabel("accuracy, %")
    legend_below(figure, [panel], 2)
    return figure


def draw_crowds(numbers: Numbers, name: str) -> Any:
    """A panel over numbers of parties at the largest ε, and one over ε for each number that has several, as the paper
    has them."""
    found = numbers[f"{name}-figure5"]
    rows = found["rows"]
    largest = max(row["epsilon"] for row in rows)
    panels = [([row for row in rows if row["epsilon"] == largest], "parties", f"parties; ε = {largest:g}")]
    for crowd in sorted({row["parties"] for row in rows if row["epsilon"] != largest}):
        part = [row for row in rows if row["parties"] == crowd]
        panels.append((part, "epsilon", f"ε; {crowd:,} parties, δ = {part[0]['delta']:g}"))
    figure, axes = pyplot().subplots(1, len(panels), figsize=(14.0, 4.8), sharey=True, layout="constrained")
    for panel, (part, by, label) in zip(axes, panels, strict=True):
        shown = _heat(panel, part, by)
        panel.set_xlabel(label)
    axes[0].set_ylabel("records protected together")
    figure.colorbar(shown, ax=axes, label=f"accuracy, %; softmax, Λ = {found['regularization']:g}")
    return figure


def _heat(panel: Any, rows: list[dict[str, Any]], by: str) -> Any:
    groups, columns = list(dict.fromkeys(row["group"] for row in rows)), sorted({row[by] for row in rows})
    table = np.zeros((len(groups), len(columns)))
    for row in rows:
        table[groups.index(row["group"]), columns.index(row[by])] = row["accuracy"]
    shown = panel.imshow(table, aspect="auto", cmap="viridis", vmin=0.0, vmax=100.0)
    for (i, j), value in np.ndenumerate(table):
        panel.text(j, i, f"{value:.0f}", ha="center", va="center", color="black" if value > 60.0 else "white")
    panel.set_xticks(range(len(columns)), [f"{column:,g}" if by == "epsilon" else f"{column:,}" for column in columns])
    panel.set_yticks(range(len(groups)), ["a whole party" if g == "party" else f"any {g}" for g in groups])
    return shown


def draw_alone(numbers: Numbers, name: str) -> Any:
    rows = numbers[f"{name}-figure8"]
    deltas = list(dict.fromkeys(row["delta"] for row in rows))
    figure, panels = pyplot().subplots(1, len(deltas), figsize=(10.5, 4.8), sharey=True, layout="constrained")
    for panel, delta in zip(panels, deltas, strict=True):
        part = [row for row in rows if row["delta"] == delta]
        for number, method in enumerate(dict.fromkeys(row["method"] for row in part)):
            label = "DP-SGD (central)" if method == "central" else method
            _line(panel, [row for row in part if row["method"] == method], "epsilon", label, marker=MARKERS[number])
        _not_private(panel, numbers, name)
        panel.set_title(f"δ = {delta:g}", fontsize=11)
        _axes(panel, "ε", [row["epsilon"] for row in part])
    panels[0].set_ylabel("accuracy, %")
    legend_below(figure, [panels[0]], 4)
    return figure
