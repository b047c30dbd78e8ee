"""The voting tables as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import Numbers, pyplot, save
from benchmarks.voting.findings import BEST


def draw_all(result: Numbers, folder: Path) -> None:
    """Accuracy against ε, a panel for each data set."""
    sets = result["sets"]
    size = (5.5 * len(sets), 4.2)
    figure, axes = pyplot().subplots(1, len(sets), figsize=size, layout="constrained", squeeze=False)
    for axis, each in zip(axes[0], sets, strict=True):
        found = each["epsilons"]
        for label, (points, style) in curves_of(found).items():
            means, spreads = ([100 * (point[name] or 0.0) for point in points] for name in ("mean", "spread"))
            axis.errorbar(found["epsilons"], means, spreads, fmt=style, capsize=2, label=label)
        axis.set_xscale("log")
        axis.set_xticks(found["epsilons"], [f"{epsilon:g}" for epsilon in found["epsilons"]])
        axis.minorticks_off()
        axis.set(xlabel="ε of a whole party", ylabel="accuracy, %", title=f"{each['data']}, six classes a party")
        axis.grid(True, alpha=0.25)
        axis.legend(fontsize=8, handlelength=3.5)
    save(figure, folder / "voting_epsilon.png")


def curves_of(found: dict[str, Any]) -> dict[str, tuple[list[dict[str, Any]], str]]:
    """Points and style of each curve: `fedavg`, and votes by their winners (a line) and their totals (dashed)."""
    curves = {"fedavg, tuned": (found["fedavg"], "C0s-")}
    for number, label in enumerate(label for label in found if label not in ("epsilons", "fedavg")):
        marker = f"C{number + 1}{'^' if 'abstain' in label else 'o'}"
        for student, what, line in zip(BEST, ("winners", "totals"), ("-", "--"), strict=True):
            curves[f"{label}: {what}"] = ([point[student] for point in found[label]], f"{marker}{line}")
    return curves
