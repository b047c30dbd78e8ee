"""The cross-silo figures as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Numbers, legend_below, pyplot, save
from benchmarks.cross_silo.findings import GOAL

STYLES: dict[str, dict[str, Any]] = {
    "cross-silo, secure sums": {"color": "#0072b2", "marker": "o", "lw": 2.2, "zorder": 5},
    "central, a trusted curator": {"color": "#e69f00", "marker": "D", "ls": "--", "zorder": 6},
    "local, every party alone": {"color": "#009e73", "marker": "^"},
    "fedsgd, noise inside": {"color": "#cc79a7", "marker": "s"},
    "not private": {"color": "0.2", "ls": "-.", "lw": 1.4},
}
"""Colours that colour-blind people can tell apart (Okabe & Ito), and markers besides."""
PARTY_STYLES = ({"color": "#d55e00", "marker": "v"}, {"color": "#56b4e9", "marker": "P"})
KINDS = {"structured": {"color": "#0072b2", "marker": "o"}, "gaussian": {"color": "#d55e00", "marker": "s"}}


def draw_all(result: Numbers, folder: Path) -> None:
    draw_rates(result["rates"], folder / "cross_silo_sampling.png")
    draw_nodes(result["nodes"], folder / "cross_silo_nodes.png")
    draw_samplings(result["samplings"], "linear model", folder / "cross_silo_samplings.png")
    draw_samplings(result["network"], "two hidden layers", folder / "cross_silo_network.png")
    draw_larger(result, folder / "cross_silo_larger.png")
    draw_pairs(result["pairs"], folder / "cross_silo_pairs.png")
    draw_accuracy(result, folder / "cross_silo_accuracy.png")
    draw_projections(result, folder / "cross_silo_projection.png")


def draw_rates(rates: dict[str, Any], path: Path) -> None:
    """Figure 1."""
    figure, panel = pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
    words = ("no slack: the worst case", "slack of 1e-10 a round", "slack of 1e-6 a round")
    for (_, curve), label, color in zip(rates["curves"].items(), words, ("#d55e00", "#cc79a7", "#009e73"), strict=True):
        panel.plot(rates["malicious"], curve, color=color, lw=1.8, label=f"without replacement, {label}")
    panel.axhline(rates["poisson"], color="#0072b2", lw=2.2, label="Poisson sampling")
    panel.set(
        yscale="log",
        xlabel=f"malicious parties of {rates['parties']}",
        ylabel="rate at which honest records are sampled",
    )
    ticks = [0.008, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    panel.set_yticks([tick for tick in ticks if tick <= 1.1 * max(rates["curves"]["0"])])
    panel.yaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    panel.legend(fontsize=9, frameon=False)
    panel.set_title(
        f"Batches of {rates['batch']} out of {rates['parties']} × {rates['each']} records (cross-silo, Figure 1)",
        fontsize=11,
    )
    save(figure, path)


def draw_accuracy(result: dict[str, Any], path: Path) -> None:
    """Figure 2, and whole parties' privacy in a panel of its own."""
    sweeps = result["accuracy"]
    figure, panels = pyplot().subplots(
        1, len(sweeps) + 1, figsize=(4.7 * (len(sweeps) + 1), 4.8), sharey=True, layout="constrained"
    )
    for panel, sweep in zip(panels, sweeps, strict=False):
        for label, points in sweep["curves"].items():
            _curve(panel, sweep["epsilons"], points, label, STYLES[label])
        each = sweep["records"] // 10
        panel.set_title(f"records are protected: 10 parties × {each:,}", fontsize=10.5)
        panel.set_xlabel("ε of a record")
        _epsilons(panel, sweep["epsilons"])
    last, parties = panels[-1], result["parties"]
    for (label, points), style in zip(parties["curves"].items(), PARTY_STYLES, strict=False):
        _curve(last, parties["epsilons"], points, label, style)
    plain = 100.0 * sweeps[0]["curves"]["not private"][0]["mean"]
    last.axhline(plain, **STYLES["not private"])
    last.set_title("whole parties are protected", fontsize=10.5)
    last.set_xlabel("ε of a party: not comparable")
    _epsilons(last, parties["epsilons"])
    panels[0].set_ylabel("accuracy on test records, %")
    legend_below(figure, [panels[0], last], 4)
    figure.suptitle(f"{result['data']}, linear model, δ = 1e-5 (cross-silo, Figure 2)")
    save(figure, path)


def draw_nodes(nodes: dict[str, Any], path: Path) -> None:
    """Figure 3."""
    figure, panel = pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
    panel.plot(
        nodes["nodes"], nodes["one_process"], color="#d55e00", marker="s", lw=1.8, label="everyone's work added up"
    )
    panel.plot(
        nodes["nodes"],
        nodes["own_machines"],
        color="#0072b2",
        marker="o",
        lw=2.2,
        label="parties and nodes on machines of their own",
    )
    panel.axhline(1.0, color="0.4", ls=":", lw=1.2, label="the ideal sum")
    panel.axhline(GOAL, color="0.4", ls="--", lw=1.2, label=f"goal: {GOAL:g}")
    panel.set(xlabel="compute nodes", ylabel="time of a round over the ideal sum's", xticks=nodes["nodes"])
    panel.set_ylim(0.0, 1.08 * max(nodes["one_process"]))
    panel.grid(alpha=0.25)
    panel.legend(fontsize=9, frameon=False)
    panel.set_title(
        f"A round of {nodes['weights']:,} weights with {nodes['parties']} parties (cross-silo, Figure 3)", fontsize=11
    )
    save(figure, path)


def draw_projections(result: dict[str, Any], path: Path) -> None:
    """Figure 4."""
    found = result["projections"]
    figure, panel = pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
    for kind, points in found["curves"].items():
        words = {"structured": "structured, clipped after it", "gaussian": "Gaussian, clipped before it (the paper's)"}
        _curve(panel, [point["size"] for point in points], points, words[kind], KINDS[kind])
    none = found["none"]
    panel.axhline(100.0 * none["mean"], color="0.2", ls="-.", lw=1.4, label=f"no projection: {found['full']:,} numbers")
    panel.axhspan(100.0 * none["least"], 100.0 * none["best"], color="0.2", alpha=0.12, linewidth=0)
    sizes = sorted({point["size"] for points in found["curves"].values() for point in points})
    panel.set(xscale="log", xlabel="k, numbers that a gradient is projected to", ylabel="accuracy on test records, %")
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    panel.legend(fontsize=9, frameon=False, loc="lower right")
    panel.set_title(f"{result['data']}, ε = {found['epsilon']:g} (cross-silo, Figure 4)", fontsize=11)
    save(figure, path)


def draw_samplings(found: dict[str, Any], model: str, path: Path) -> None:
    """Figure 2 with both samplings."""
    figure, panel = pyplot().subplots(figsize=(7.2, 4.6), layout="constrained")
    colors = {"secure sums": "#0072b2", "a trusted curator": "#e69f00", "every party alone": "#009e73"}
    for label, points in found["curves"].items():
        style = {"marker": "o"} if "Poisson" in label else {"marker": "s", "ls": "--"}
        _curve(panel, found["epsilons"], points, label, {"color": colors[label.partition(",")[0]], **style})
    panel.set(xlabel="ε of a record", ylabel="accuracy on test records, %")
    _epsilons(panel, found["epsilons"])
    panel.legend(fontsize=9, frameon=False, loc="lower right")
    each = f"10 parties × {found['records'] // 10:,}"
    panel.set_title(f"{found['data']},\n{model}, {each} (cross-silo, Figure 2)", fontsize=11)
    save(figure, path)


def draw_larger(result: dict[str, Any], path: Path) -> None:
    """Figure 4 for larger networks: accuracy, and the time of a round."""
    found = result["larger"]
    figure, panels = pyplot().subplots(1, 2, figsize=(10.4, 4.4), layout="constrained")
    for network, color, marker in zip(found["networks"], ("#0072b2", "#d55e00"), ("o", "s"), strict=False):
        points, label = network["points"], f"{network['weights']:,} weights"
        sizes = [point["size"] for point in points]
        _curve(panels[0], sizes, points, label, {"color": color, "marker": marker})
        for name, line in (("compute-nodes", "-"), ("ideal", ":")):
            seconds = [point["seconds"][name] for point in points]
            panels[1].plot(sizes, seconds, color=color, marker=marker, ms=4.5, ls=line, label=f"{label}, {name}")
    panels[0].set(ylabel="accuracy on test records, %")
    panels[1].set(ylabel="processor seconds of a round")
    panels[1].set_ylim(bottom=0.0)
    for panel in panels:
        panel.set(xscale="log", xlabel="k, numbers that a gradient is projected to (right end: all)")
        panel.grid(alpha=0.25)
        panel.legend(fontsize=9, frameon=False)
    figure.suptitle(f"{found['data']}, ε = {found['epsilon']:g} (cross-silo, Figure 4)", fontsize=11)
    save(figure, path)


def draw_pairs(found: dict[str, Any], path: Path) -> None:
    """Figure 5."""
    figure, panel = pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
    styles = (("#0072b2", "o", "-"), ("#009e73", "^", "-"), ("#d55e00", "s", "--"))
    for (name, folds), (color, marker, line) in zip(found["folds"].items(), styles, strict=True):
        panel.plot(found["parties"], folds, color=color, marker=marker, ls=line, lw=1.8, label=name)
    for count, fold in list(zip(found["parties"], found["folds"]["pairwise"], strict=True))[:-1]:
        panel.plot([count, found["parties"][-1]], [fold, fold], color="#0072b2", ls=":", lw=1)
        panel.annotate(f"groups of {count}", (found["parties"][-1], fold), fontsize=8, ha="right", va="bottom")
    panel.axhline(1.0, color="0.4", ls=":", lw=1.2, label="the ideal sum")
    panel.set(xlabel="parties", ylabel="time of a round over the ideal sum's", xticks=found["parties"])
    panel.set_ylim(bottom=0.0)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=9, frameon=False, loc="upper left")
    panel.set_title(f"A round of {found['weights']:,} weights (cross-silo, Figure 5)", fontsize=11)
    save(figure, path)


def _curve(panel: Any, values: list[float], points: list[dict[str, Any]], label: str, style: dict[str, Any]) -> None:
    """Means, with bars from the least to the best if these are known."""
    means = 100.0 * np.array([point["mean"] for point in points])
    style = {"ms": 4.5, "lw": 1.5} | style
    panel.plot(values, means, label=label, **style)
    if label != "not private" and "least" in points[0]:
        least, best = (100.0 * np.array([point[name] for point in points]) for name in ("least", "best"))
        panel.errorbar(
            values,
            means,
            yerr=[means - least, best - means],
            fmt="none",
            ecolor=style["color"],
            elinewidth=1,
            capsize=2.5,
        )


def _epsilons(panel: Any, epsilons: list[float]) -> None:
    panel.set_xscale("log")
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()
    panel.grid(alpha=0.25)
