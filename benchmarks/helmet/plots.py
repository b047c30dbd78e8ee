"""The picture docs/images/convergence.png, from the kept numbers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.common import Numbers, make_plots, pyplot, save
from benchmarks.helmet.convergence import RESULTS


def main() -> None:
    make_plots(__doc__, RESULTS, draw_all)


def draw_all(numbers: Numbers, folder: Path) -> None:
    results, steps = numbers["situations"], numbers["steps"]
    figure, panels = pyplot().subplots(1, 2, figsize=(10.5, 4.8), sharey=True, layout="constrained")
    styles = {"spread at random": ("#1f6fb4", "o"), "one class per party": ("#d1602a", "s")}
    for result in results:
        panel = panels[0 if result["large"] else 1]
        colour, marker = styles[result["name"]]
        label = f"{result['name']}, Λ = {result['regularization']:g}"
        if result["large"]:
            label += f" (slope {result['slope']:.2f})".replace("-", "−")
        else:
            panel.axhline(result["level"], color=colour, ls=":", lw=1.5)
        panel.fill_between(steps, result["lowest"], result["highest"], color=colour, alpha=0.15, linewidth=0)
        panel.loglog(steps, result["excess"], marker=marker, ms=4.5, color=colour, label=label)
    reference = [0.35 * results[0]["excess"][0] * steps[0] / count for count in steps]
    ticks = steps[::2]
    titles = ("Large Λ: every record inside the margin", "Small Λ: it levels off above zero")
    for panel, title in zip(panels, titles, strict=True):
        panel.loglog(steps, reference, "--", color="0.35", lw=1.3, label="proportional to 1/M")
        panel.set_title(title, fontsize=11)
        panel.set_xlabel("local steps M")
        panel.set_xticks(ticks, [f"{count:,}" for count in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[1].plot([], [], ":", color="0.2", lw=1.5, label="average of the exact local SVMs (M → ∞)")
    panels[0].fill_between([], [], color="0.5", alpha=0.25, linewidth=0, label="10 to 90 % of repetitions")
    panels[0].set_ylim(bottom=reference[-1] / 30.0)
    for panel in panels:
        panel.legend(fontsize=8.5, loc="lower left", framealpha=0.95)
    panels[0].set_ylabel("excess objective on the pooled data\nJ(average of local SVMs) − min J")
    figure.suptitle("Blind averaging of hinge-loss SVMs against the SVM of the pooled data (DP-Helmet, Theorem 14)")
    save(figure, folder / "convergence.png")


if __name__ == "__main__":
    main()
