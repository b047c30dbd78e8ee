"""What follows from the numbers behind the CAPE figures: where capeFM loses, what we claim, and tables of it all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from benchmarks.cape.deltas import true_epsilon
from benchmarks.common import Numbers, claim, show_table

SWEEPS = ("network", "synthetic", "few", "real", "published")
"""The parts of the numbers that are sweeps; without the real data sets one is missing."""
PUBLISHED = {0.5: 0.0185, 1.0: 0.0089, 5.0: 0.0018}
"""err_w that the paper's code gives for capeFM, D = 20, N = 20,000, S = 5, by the ε that it states."""


def derived(measured: Numbers) -> Numbers:
    """The numbers, with what follows from them."""
    result = measured | {"sweeps": [sweep for name in SWEEPS for sweep in measured.get(name, [])]}
    result["lost"] = list(lost(result["sweeps"]))
    result["paper"] = [{"stated": each, "true": true_epsilon(each), "error": PUBLISHED[each]} for each in PUBLISHED]
    result["claims"] = make_claims(result)
    return result


def lost(sweeps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Where capeFM (or CAPE) is not better than another private method, in the mean.

    `clear`: by more than two standard errors; never if these are not known.
    """
    for sweep in sweeps:
        ours = next(iter(sweep["curves"]))
        metrics = [name for name in ("loss", "error", "test", "train") if name in sweep["curves"][ours][0]]
        others = [label for label in sweep["curves"] if not label.startswith(ours) and label != "not private"]
        for other, metric, place in product(others, metrics, range(len(sweep["values"]))):
            mine, theirs = sweep["curves"][ours][place], sweep["curves"][other][place]
            behind = mine[metric] - theirs[metric]
            doubt = math.hypot(*(point.get(f"{metric}_se", math.inf) for point in (mine, theirs)))
            if behind >= 0.0:
                yield {
                    "figure": sweep["figure"],
                    "set": sweep["set"],
                    "along": sweep["along"],
                    "value": sweep["values"][place],
                    "metric": metric,
                    "other": other,
                    "ours": mine[metric],
                    "theirs": theirs[metric],
                    "clear": bool(behind > 2.0 * doubt),
                }


def make_claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    claims = []
    for sweep in result["sweeps"]:
        if sweep["figure"] != "3" or sweep["along"] != "epsilon":
            continue
        for other in ("conv", "local", "dp-fm, tight sensitivity", "dp-fm, published sensitivity"):
            ratio = mean_ratio(sweep, other)
            text = f"{sweep['set']}: err_w of {other} over capeFM's, mean over ε"
            claims.append(claim(other.split(",")[0], text, ratio, at_least=1.0))
    secure = result["secure"]
    noise = secure["secagg"]["noise"] / secure["ideal"]["noise"]
    claims.append(
        claim("noise", "noise with SecAgg over noise with the ideal sum", noise, at_least=0.999, at_most=1.001)
    )
    return claims


def mean_ratio(sweep: dict[str, Any], other: str) -> float:
    """The geometric mean of another curve's err_w over capeFM's."""
    pairs = zip(sweep["curves"][other], sweep["curves"]["capeFM"], strict=True)
    return math.exp(float(np.mean([math.log(theirs["error"] / ours["error"]) for theirs, ours in pairs])))


# --- For the terminal ------------------------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    print(f"Means of {result['runs']} runs")
    for sweep in result["sweeps"]:
        for metric in ("test", "train", "loss", "error"):
            if metric in next(iter(sweep["curves"].values()))[0]:
                show_sweep(sweep, metric)
    print("\nFigures 5 and 6: δ by Theorem 1, exact, conv")
    for curves in result["deltas"]:
        at = f"S = {curves['sites']}, N = {curves['records']}, ε = {curves['epsilon']:g}"
        every = range(0, len(curves["taus"]), 8)
        show_deltas(f"{at}: τ", [(curves["taus"][place], curves["by_tau"][place]) for place in every])
        show_deltas(f"{at}, τ = {curves['tau']:g}: S_C/S", list(zip(curves["shares"], curves["by_share"], strict=True)))
    print("\nWhere capeFM does not beat another private method (* beyond two standard errors)\n")
    for entry in result["lost"]:
        star = "*" if entry["clear"] else " "
        where = f"{entry['set']}, {entry['along']} = {entry['value']:g}, {entry['metric']}"
        print(f"{star} {where}: {entry['other']} {entry['theirs']:.4g} against {entry['ours']:.4g}")


def show_sweep(sweep: dict[str, Any], metric: str) -> None:
    figure = "7" if metric == "error" else sweep["figure"]
    fixed = ", ".join(f"{name} = {value:g}" for name, value in sweep["fixed"].items())
    print(f"\nFigure {figure}: {sweep['set']}, {fixed}: {metric}")
    rows = [[label, *(f"{point[metric]:.3g}" for point in points)] for label, points in sweep["curves"].items()]
    show_table([sweep["along"], *(f"{value:g}" for value in sweep["values"])], rows)


def show_deltas(heading: str, points: list[tuple[float, dict[str, float]]]) -> None:
    print()
    rows = [[name, *(f"{deltas[name]:.1e}" for _, deltas in points)] for name in ("paper", "exact", "conv")]
    show_table([heading, *(f"{value:.3g}" for value, _ in points)], rows)
