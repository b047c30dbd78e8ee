"""What follows from the numbers behind the voting tables: what we claim, and rows for the page and the terminal."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

from benchmarks.common import Numbers, claim, show_table
from benchmarks.voting.votes import STUDENTS

PAPER = "AE-DPFL 86.1, DP-FedAvg 84.2, FedAvg 97.8 on MNIST at ε = 4.3"
COMPARED = (("weighted", "majority"), ("weighted", "a single party"), ("majority", "a single party"))
"""Labels of the multiparty paper, the first of which should learn more."""
BEST = ("SVC, labels spread", "SVC, totals spread")
"""The students that are held against fedavg: where winners only, or noisy totals, become known."""


def derived(measured: Numbers) -> Numbers:
    """The numbers, with what follows from them."""
    return measured | {"claims": make_claims(measured)}


def make_claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    claims = []
    for each in result["sets"]:
        for entry in each["tables"]:
            for found, student in product(entry["votes"], BEST):
                lead = 100.0 * (found[student]["mean"] - entry["fedavg"]["mean"])
                where = f"{entry['setting']}, ε = {entry['epsilon']:g}"
                text = f"{where}: {found['label']} ({student}) over fedavg, points"
                claims.append(claim("fedavg", text, lead, at_least=0.0))
    rows = {(row["parties"], row["labels"]): row["cells"] for row in result["multiparty"]["rows"]}
    compared = [f"{result['multiparty']['parties']:,}", result["multiparty"]["rows"][-1]["parties"]]
    for parties, (one, other) in product(compared, COMPARED):
        for place, epsilon in enumerate(result["multiparty"]["epsilons"]):
            lead = 100.0 * (rows[parties, one][place]["mean"] - rows[parties, other][place]["mean"])
            at = "without noise" if epsilon is None else f"ε = {epsilon:g}"
            text = f"parties: {parties}, {at}: {one} over {other}, points"
            claims.append(claim("multiparty", text, lead, at_least=0.0))
    secure = result["secure"]
    noise = secure["tally"]["noise"] / secure["ideal"]["noise"]
    claims.append(
        claim("noise", "noise with talliers over noise with the ideal sum", noise, at_least=0.999, at_most=1.001)
    )
    return claims


def epsilon_for(goal: float, epsilons: list[float], accuracies: list[float]) -> float | None:
    """The ε at which an accuracy is reached, on a straight line over log ε between those measured; None if nowhere."""
    if accuracies[0] >= goal:
        return epsilons[0]
    for (low, one), (high, other) in pairwise(zip(epsilons, accuracies, strict=True)):
        if one < goal <= other:
            return float(low * (high / low) ** ((goal - one) / (other - one)))
    return None


# --- Rows ------------------------------------------------------------------------------------------------------------


def rows_of_table(entry: dict[str, Any]) -> list[list[str]]:
    tuned = entry["fedavg"]
    rows = [
        ["FedAvg, not private", percent(entry["plain"]), ""],
        ["`fedavg`, tuned", percent(tuned), _settings(tuned["options"])],
    ]
    return rows + rows_of_votes(entry)


def rows_of_votes(entry: dict[str, Any]) -> list[list[str]]:
    return [
        [f"`voting`, {found['label']}; student: {student}", percent(found[student]), _asked(found[student])]
        for found in entry["votes"]
        for student in STUDENTS
    ]


def rows_of_equal_accuracy(each: dict[str, Any]) -> list[list[str]]:
    """What ε votes need to be as good as fedavg at the largest ε, and what share of that it is."""
    found, rows = each["epsilons"], []
    epsilons, goal = found["epsilons"], found["fedavg"][-1]["mean"]
    for label, student in product([label for label in found if label not in ("epsilons", "fedavg")], BEST):
        needed = epsilon_for(goal, epsilons, [point[student]["mean"] for point in found[label]])
        told = ["above it", ""] if needed is None else [f"{needed:.1f}", f"{100 * needed / epsilons[-1]:.0f} %"]
        rows.append([each["data"], f"{label}; {student}", *told])
    return rows


def rows_of_multiparty(table: dict[str, Any]) -> list[list[str]]:
    return [[f"{row['parties']}, {row['labels']}", *(percent(cell) for cell in row["cells"])] for row in table["rows"]]


def falls_short(result: Numbers, name: str) -> str:
    """What does not hold of the claims with this name, as a list."""
    missed = [entry for entry in result["claims"] if entry["name"] == name and not entry["holds"]]
    lines = [f"- {entry['claim']}: {entry['measured']:.1f}, where 0 or more was the goal." for entry in missed]
    return "\n".join(lines) or "- Nowhere in these tables."


def percent(found: dict[str, Any]) -> str:
    spread = found["spread"]
    return f"{100 * found['mean']:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


def _settings(keys: dict[str, Any]) -> str:
    words = {"rounds": "rounds", "clip": "clip", "local_rate": "step", "epochs": "epochs", "components": "components"}
    return ", ".join(f"{words[name]} {keys[name]:g}" for name in words if name in keys)


def _asked(found: dict[str, Any]) -> str:
    return f"{found['queries']} queries, noise {found['noise']:.1f}, {100 * found['labels']:.0f} % of winners right"


def show(result: dict[str, Any]) -> None:
    print(f"Means of {result['runs']} runs, accuracy in %; the paper: {PAPER}")
    for each in result["sets"]:
        for entry in each["tables"]:
            print(f"\n{entry['setting']}, ε = {entry['epsilon']:g} for whole parties\n")
            show_table(["method", "accuracy", "settings"], rows_of_table(entry))
    print("\nMultiparty: accuracy in %\n")
    epsilons = [f"ε = {epsilon:g}" if epsilon else "without noise" for epsilon in result["multiparty"]["epsilons"]]
    show_table(["parties, labels", *epsilons], rows_of_multiparty(result["multiparty"]))
