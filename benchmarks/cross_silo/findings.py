"""What follows from the numbers behind the cross-silo figures: what we claim, and tables of it all."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, show_table

GOAL = 1.3
"""The most times the ideal round's work that a secure round should take"""


def derived(measured: Numbers) -> Numbers:
    """The numbers, with what follows from them."""
    result = measured | {"claims": make_claims(measured)}
    for sweep in result["accuracy"]:
        sweep["behind"], sweep["ahead"] = points_apart(sweep)
    return result


def accuracy_rows(sweep: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A table's head and rows: mean accuracy in % of each curve for each ε."""
    head = ["ε", *(f"{epsilon:g}" for epsilon in sweep["epsilons"])]
    curves = sweep["curves"].items()
    return head, [[label, *(f"{100 * point['mean']:.1f}" for point in points)] for label, points in curves]


def make_claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    claims = []
    for sweep in result["accuracy"]:
        behind, ahead = points_apart(sweep)
        at = f"{sweep['records']:,} records"
        claims.append(
            claim("central", f"{at}: points behind a trusted curator, mean over ε", float(np.mean(behind)), at_most=3.0)
        )
        claims.append(
            claim("local", f"{at}, ε = {sweep['epsilons'][0]:g}: points ahead of local privacy", ahead[0], at_least=3.0)
        )
    secure_noise = result["secure"]["secagg"]["noise"] / result["secure"]["ideal"]["noise"]
    claims.append(claim("noise", "noise with SecAgg over the ideal sum's", secure_noise, at_least=0.999, at_most=1.001))
    return claims


def points_apart(sweep: dict[str, Any]) -> tuple[list[float], list[float]]:
    """How far secure sums are behind a trusted curator and ahead of local privacy, for each ε."""
    labels = ("cross-silo, secure sums", "central, a trusted curator", "local, every party alone")
    secure, central, alone = ([100.0 * point["mean"] for point in sweep["curves"][label]] for label in labels)
    behind = [theirs - ours for ours, theirs in zip(secure, central, strict=True)]
    return behind, [ours - theirs for ours, theirs in zip(secure, alone, strict=True)]


def show(result: dict[str, Any]) -> None:
    print(f"{result['data']}: means of {result['runs']} runs")
    for sweep in [*result["accuracy"], result["parties"]]:
        print(f"\nFigure 2: accuracy, %, {sweep.get('records', 'whole parties')}")
        show_table(*accuracy_rows(sweep))
    nodes = result["nodes"]
    print(f"\nFigure 3: times the ideal sum's {nodes['ideal']:.2f} s (on own machines {nodes['ideal_apart']:.2f} s)")
    show_table(
        ["nodes", *map(str, nodes["nodes"])],
        [[name, *(f"{fold:.2f}" for fold in nodes[name])] for name in ("one_process", "own_machines")],
    )
    print(f"\nFigure 4: accuracy, %, none {100 * result['projections']['none']['mean']:.1f}")
    for kind, points in result["projections"]["curves"].items():
        show_table(
            [kind, *(str(point["size"]) for point in points)],
            [["accuracy", *(f"{100 * point['mean']:.1f}" for point in points)]],
        )
    print("\nWithout replacement")
    show_table(
        ["σ", "add-remove", "poisson", "without replacement"],
        [[f"{row['noise']:g}", *(f"{row[key]:.2f}" for key in list(row)[1:])] for row in result["sampling"]],
    )
