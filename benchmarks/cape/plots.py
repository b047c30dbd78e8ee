"""The CAPE figures as pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cape.plots_beyond import draw_iterations, draw_unequal, draw_vanished
from benchmarks.cape.sweeps import PAPER, PAPER_NETWORK, SEPARATION_ACCURACY
from benchmarks.common import Numbers, legend_below, pyplot, save

STYLES: dict[str, dict[str, Any]] = {
    "capeFM": {"color": "#0072b2", "marker": "o", "lw": 2.2, "zorder": 5},
    PAPER: {"color": "#56b4e9", "marker": "P", "ls": "--"},
    "capeFM without reshaping": {"color": "#009e73", "marker": "^"},
    "capeFM without repair": {"color": "#cc79a7", "marker": "D", "ls": ":"},
    "CAPE": {"color": "#0072b2", "marker": "o", "lw": 2.2, "zorder": 5},
    PAPER_NETWORK: {"color": "#56b4e9", "marker": "P", "ls": "--", "zorder": 6},
    "conv": {"color": "#d55e00", "marker": "s"},
    "local": {"color": "#009e73", "marker": "^"},
    "objective perturbation": {"color": "#cc79a7", "marker": "D"},
    "dp-fm, published sensitivity": {"color": "#b8860b", "marker": "v"},
    "dp-fm, tight sensitivity": {"color": "#b8860b", "marker": "v", "ls": "--", "mfc": "white"},
    "not private": {"color": "0.2", "ls": "-.", "lw": 1.4},
}
"""Colours that colour-blind people can tell apart (Okabe & Ito), and markers besides."""
METRICS = {"loss": "loss (1/N)‖y − Xw‖²", "error": "err_w = ‖w* − w‖/D"}
AXES = {"epsilon": "ε", "records": "N, records of all sites", "delta": "δ"}


def draw_all(measured: Numbers, folder: Path) -> None:
    loss, error = partial(draw_sweeps, metric="loss"), partial(draw_sweeps, metric="error")
    pictures = (
        ("network", "network", draw_network, "Gradient descent, two-layer network (CAPE, Figure 2)"),
        ("synthetic", "synthetic_loss", loss, "Linear regression on synthetic data, S = 5 (CAPE, Figure 3)"),
        ("synthetic", "synthetic_error", error, "Error of the coefficients, synthetic data, S = 5 (CAPE, Figure 7)"),
        ("real", "real_loss", loss, "Linear regression on real data, S = 5 (CAPE, Figure 4)"),
        ("ablation", "ablation", draw_ablation, "What our settings of capeFM do, S = 5"),
        ("iterations", "iterations", draw_iterations, "Gradient descent, two-layer network, S = 4"),
        ("unequal", "unequal", draw_unequal, "Unequal sites: linear regression on synthetic data"),
        ("vanished", "vanished", draw_vanished, "Noise in the total if sites vanish"),
        ("deltas", "delta", draw_deltas, "δ of CAPE: what Theorem 1 promises and what is true (CAPE, Figures 5 and 6)"),
    )
    for part, name, draw, title in pictures:
        if part in measured:
            figure = draw(measured[part])
            figure.suptitle(title)
            save(figure, folder / f"cape_{name}.png")


def draw_sweeps(sweeps: list[dict[str, Any]], metric: str) -> Any:
    """A row for each data set, a column for each axis, one legend below."""
    label = METRICS[metric]
    sets = list(dict.fromkeys(sweep["set"] for sweep in sweeps))
    size = (12.5, 3.7 * len(sets) + 0.9)
    figure, panels = pyplot().subplots(len(sets), 3, figsize=size, sharey="row", squeeze=False, layout="constrained")
    for row, name in zip(panels, sets, strict=True):
        of_set = [sweep for sweep in sweeps if sweep["set"] == name]
        for panel, sweep in zip(row, of_set, strict=True):
            draw_panel(panel, sweep, metric)
        row[0].set_ylabel(f"{name.split(', S')[0]}\n\n{label}")
        limit(row[0], of_set, metric)
    legend_below(figure, [panels[0][0]], 4)
    return figure


def draw_ablation(sweeps: list[dict[str, Any]]) -> Any:
    """Loss and error of one sweep."""
    (sweep,) = sweeps
    figure, panels = pyplot().subplots(1, 2, figsize=(10.5, 4.8), layout="constrained")
    for panel, metric, label in zip(panels, METRICS, METRICS.values(), strict=True):
        draw_panel(panel, sweep, metric)
        panel.set_ylabel(label)
        limit(panel, sweeps, metric)
    legend_below(figure, [panels[0]], 4)
    return figure


def draw_panel(panel: Any, sweep: dict[str, Any], metric: str) -> None:
    values = np.array(sweep["values"])
    for label, points in sweep["curves"].items():
        means, errors = (np.array([point[name] for point in points]) for name in (metric, f"{metric}_se"))
        # Rare and huge errors rule the mean of dp-fm: a band says nothing.
        curve(panel, values, label, means, None if label.startswith("dp-fm") else errors)
    zero = [point[f"zero_{metric}"] for point in sweep["curves"]["capeFM"]]
    panel.plot(values, zero, ":", color="0.5", lw=1.4, label="w = 0")
    panel.set(xscale="log", yscale="log", xlabel=AXES[sweep["along"]])
    finish(panel, sweep)


def curve(panel: Any, values: Any, label: str, means: Any, errors: Any | None) -> None:
    """Means, with a band of one standard error."""
    style = {"ms": 4.5, "lw": 1.5} | STYLES[label]
    panel.plot(values, means, label=label, **style)
    if errors is not None:
        lowest = np.maximum(means - errors, means / 10)
        panel.fill_between(values, lowest, means + errors, color=style["color"], alpha=0.15, linewidth=0)


def finish(panel: Any, sweep: dict[str, Any]) -> None:
    """The values themselves as ticks, as far as there is room, and what is fixed as the title."""
    values = sweep["values"]
    if sweep["along"] == "delta":
        panel.set_xticks(values, [f"$10^{{{round(np.log10(value))}}}$" for value in values])
    else:
        panel.set_xticks(values, [short(value) for value in values], fontsize=9)
    panel.minorticks_off()
    panel.set_title(fixed_words(sweep["fixed"]), fontsize=10.5)
    panel.grid(alpha=0.25)


def limit(panel: Any, sweeps: list[dict[str, Any]], metric: str) -> None:
    """From the best curve to somewhat above w = 0: what is worse than that leaves the picture."""
    zero = max(point[f"zero_{metric}"] for sweep in sweeps for point in sweep["curves"]["capeFM"])
    least = min(point[metric] for sweep in sweeps for points in sweep["curves"].values() for point in points)
    panel.set_ylim(least / 1.3, 3.0 * zero)


def short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def fixed_words(fixed: dict[str, Any]) -> str:
    words = {"epsilon": "ε = {:g}", "delta": "δ = {:g}", "records": "N = {:,}"}
    return ", ".join(words[name].format(value) for name, value in fixed.items()).replace("e-0", "e−")


def draw_network(sweeps: list[dict[str, Any]]) -> Any:
    figure, panels = pyplot().subplots(2, 2, figsize=(10.5, 7.4), sharey=True, layout="constrained")
    for row, metric, words in zip(panels, ("train", "test"), ("training", "test"), strict=True):
        for panel, sweep in zip(row, sweeps, strict=True):
            for label, points in sweep["curves"].items():
                means = 100.0 * (1.0 - np.array([point[metric] for point in points]))
                errors = 100.0 * np.array([point[f"{metric}_se"] for point in points])
                curve(panel, np.array(sweep["values"]), label, means, errors)
            panel.axhline(100.0 * SEPARATION_ACCURACY, ls=":", color="0.5", lw=1.4, label="best possible classifier")
            total = " in all iterations together" if sweep["along"] == "epsilon" else ""
            panel.set(xscale="log", xlabel=AXES[sweep["along"]] + total)
            finish(panel, sweep)
        row[0].set_ylabel(f"accuracy on {words} records, %")
    legend_below(figure, [panels[0][0]], 4)
    return figure


def draw_deltas(settings: list[dict[str, Any]]) -> Any:
    """Figures 5 (above) and 6 (below)."""
    figure, panels = pyplot().subplots(2, len(settings), figsize=(13.5, 7.6), layout="constrained")
    for column, setting in zip(panels.T, settings, strict=True):
        words = f"S = {setting['sites']}, N = {setting['records']:,}, ε = {setting['epsilon']:g}"
        above, below = column
        delta_panel(above, setting["taus"], setting["by_tau"], "")
        above.set(xscale="log", xlabel="τ, deviation of a site's noise")
        ticks = np.geomspace(setting["taus"][0], setting["taus"][-1], 5)
        above.set_xticks(ticks, [f"{tau:.2g}" if tau < 10 else f"{tau:.0f}" for tau in ticks])
        above.minorticks_off()
        above.set_title(f"{words}, S_C = {setting['colluding']}", fontsize=10.5)
        delta_panel(below, setting["shares"], setting["by_share"], ".")
        below.set(xlabel="share of sites that collude, S_C/S")
        below.locator_params(axis="x", nbins=5)
        below.set_title(f"{words}, τ = {setting['tau']:g}", fontsize=10.5)
    for row in panels:
        row[0].set_ylabel("δ")
    legend_below(figure, [panels[0][0]], 2)
    return figure


def delta_panel(panel: Any, values: list[float], points: list[dict[str, float]], marker: str) -> None:
    paper, exact, conv = (np.array([point[name] for point in points]) for name in ("paper", "exact", "conv"))
    panel.fill_between(
        values,
        paper,
        exact,
        where=exact > paper,
        color="#d55e00",
        alpha=0.25,
        linewidth=0,
        interpolate=True,
        label="Theorem 1 promises too much here",
    )
    panel.plot(
        values, conv, ls="-.", color="0.35", lw=1.5, marker=marker, label="conv with as much noise in the total, exact"
    )
    panel.plot(values, exact, color="#0072b2", lw=2.2, marker=marker, label="CAPE, exact")
    panel.plot(values, paper, ls="--", color="#d55e00", lw=1.8, marker=marker, label="CAPE, Theorem 1 of the paper")
    panel.set(yscale="log")
    panel.minorticks_off()
    panel.set_ylim(max(1e-16, min(paper.min(), exact.min()) / 10), 3.0)
    panel.grid(alpha=0.25)
