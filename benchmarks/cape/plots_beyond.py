"""Pictures that the paper does not have: our settings, iterations, unequal sites, sites that vanish."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cape.sweeps import SEPARATION_ACCURACY
from benchmarks.common import legend_below, pyplot

VANISHED: dict[str, dict[str, Any]] = {
    "noise-first": {"color": "#56b4e9", "marker": "v", "label": "cape, noise first"},
    "messages-first": {"color": "#0072b2", "marker": "o", "lw": 2.2, "label": "cape, messages first"},
    "conv": {"color": "#d55e00", "marker": "s", "label": "conv"},
    "moments": {"color": "#009e73", "marker": "D", "ls": "--", "label": "moments"},
}


def draw_vanished(settings: list[dict[str, Any]]) -> Any:
    """One panel for each number of sites."""
    figure, panels = pyplot().subplots(1, len(settings), figsize=(12.5, 4.4), layout="constrained")
    for panel, setting in zip(panels, settings, strict=True):
        for name, noise in setting["curves"].items():
            panel.plot(setting["vanished"], noise, **{"ms": 5, "lw": 1.6} | VANISHED[name])
        panel.axhline(setting["curator"], ls=":", color="0.5", lw=1.4, label="one curator")
        panel.set(xlabel="sites that vanish after they have begun", ylim=(0.0, None))
        panel.set_xticks(setting["vanished"])
        panel.set_title(f"S = {setting['sites']}, up to {setting['dropouts']} may vanish", fontsize=10.5)
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("noise in the total over its sensitivity")
    legend_below(figure, [panels[0]], 5)
    return figure


def draw_unequal(found: dict[str, Any]) -> Any:
    """err_w beside H(n)."""
    figure, (error, lost) = pyplot().subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    rows = found["rows"]
    shares = [row["share"] for row in rows]
    for name, style in (("cape", VANISHED["messages-first"]), ("conv", VANISHED["conv"])):
        means, doubts = (np.array([row[key] for row in rows]) for key in (name, f"{name}_se"))
        label = "capeFM" if name == "cape" else name
        error.errorbar(shares, means, doubts, **{"ms": 5, "lw": 1.6, "capsize": 3} | style | {"label": label})
    error.set(ylabel="err_w = ‖w* − w‖/D", ylim=(0.0, None))
    lost.plot(
        shares, [row["h"] for row in rows], color="#56b4e9", marker="P", label="H(n) of the paper's mean of means"
    )
    lost.axhline(1.0, color="#0072b2", lw=2.2, label="sums over records, as here")
    lost.set(yscale="log", ylabel="variance over that of equal sites")
    for panel in (error, lost):
        panel.set(xlabel="share of the records that the largest of 5 sites has")
        panel.set_xticks(shares)
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=9)
    return figure


def draw_iterations(found: dict[str, Any]) -> Any:
    """Accuracy on training and test records against the number of iterations."""
    figure, panels = pyplot().subplots(1, 2, figsize=(10.5, 4.4), sharey=True, layout="constrained")
    styles = {"CAPE": VANISHED["messages-first"], "conv": VANISHED["noise-first"], "not private": VANISHED["conv"]}
    for panel, metric, words in zip(panels, ("train", "test"), ("training", "test"), strict=True):
        for label, points in found["curves"].items():
            means = 100.0 * (1.0 - np.array([point[metric] for point in points]))
            doubts = 100.0 * np.array([point[f"{metric}_se"] for point in points])
            style = {"ms": 5, "lw": 1.6, "capsize": 3} | styles[label] | {"label": label}
            panel.errorbar(found["values"], means, doubts, **style)
        panel.axhline(100.0 * SEPARATION_ACCURACY, ls=":", color="0.5", lw=1.4, label="best possible classifier")
        panel.set(xscale="log", xlabel="iterations, which share one ε", title=f"{words} records")
        panel.set_xticks(found["values"], [str(value) for value in found["values"]])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("accuracy, %")
    legend_below(figure, [panels[0]], 4)
    return figure
