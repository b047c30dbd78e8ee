"""The page docs/voting.md and its plot: the voting tables with what they show, from the measured numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _common import markdown

PAPER = "AE-DPFL 86.1, DP-FedAvg 84.2, FedAvg 97.8 on MNIST at ε = 4.3"
STUDENTS = ("softmax of the queries alone", "softmax, labels spread", "SVC, labels spread", "SVC, totals spread")
_SHIFT_PAPER = "AE-DPFL 83.8 (with domain adaptation 92.5), DP-FedAvg 76.3, FedAvg 87.6"


def write_page(result: dict[str, Any], path: Path) -> None:
    sections = [_opening(result), *_tables(result), _sweep(result), _records(result), _multiparty(result)]
    sections += [_short(result), _AGAIN]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(section for section in sections if section) + "\n", encoding="utf-8")


# --- Rows, for the page and the terminal -----------------------------------------------------------------------------


def rows_of_table(entry: dict[str, Any]) -> list[list[str]]:
    tuned = entry["fedavg"]
    rows = [
        ["FedAvg, not private", _percent(entry["plain"]), ""],
        ["`fedavg`, tuned", _percent(tuned), _settings(tuned["options"])],
    ]
    for found in entry["votes"]:
        rows += [
            [f"`voting`, {found['label']}; student: {student}", _percent(found[student]), _asked(found[student])]
            for student in STUDENTS
        ]
    return rows


def rows_of_multiparty(table: dict[str, Any]) -> list[list[str]]:
    return [[f"{row['parties']}, {row['labels']}", *(_percent(cell) for cell in row["cells"])] for row in table["rows"]]


def _percent(found: dict[str, Any]) -> str:
    spread = found["spread"]
    return f"{100 * found['mean']:.1f}" + ("" if math.isnan(spread) else f" ± {100 * spread:.1f}")


def _settings(keys: dict[str, Any]) -> str:
    words = {"rounds": "rounds", "clip": "clip", "local_rate": "step", "epochs": "epochs", "components": "components"}
    return ", ".join(f"{words[name]} {keys[name]:g}" for name in words if name in keys)


def _asked(found: dict[str, Any]) -> str:
    return f"{found['queries']} queries, noise {found['noise']:.1f}, {100 * found['labels']:.0f} % of winners right"


# --- Sections --------------------------------------------------------------------------------------------------------


def _opening(result: dict[str, Any]) -> str:
    quick = "\n\n**A quick setting: sizes in the text are those of the full one.**" if result["quick"] else ""
    names = " and ".join(each["data"] for each in result["sets"])
    secure = result["secure"]
    ideal, tally = secure["ideal"], secure["tally"]
    best = STUDENTS[2]
    return f"""# Votes on public records, measured again

The tables of *Voting-based Approaches for Differentially Private Federated Learning* (Zhu et al. 2020) and of *Learning
Privately from Multiparty Data* (Hamm, Cao & Belkin 2016), made by `unspoken`. Written by
[`benchmarks/voting_tables.py`](../benchmarks/voting_tables.py): do not edit.{quick}

- Data: {names}, {result["parties"]} parties. Three tenths of the test images are public and come without labels, the
  others are tested with, as in the voting paper.
- All methods work in one public feature space of 50 numbers and a constant: principal components of clustered patches
  of the public images. The paper's models see pixels and are convolutional networks, so its accuracies are given beside
  ours, but not to be compared in points.
- ε is that of all that is released, for replacing all records of one party; δ = 1e-3. The paper adds or removes a party
  instead, which costs votes √2 and `fedavg` 2 times less noise for the same ε: its promise is the weaker one.
- `fedavg` is linear. Rounds, clipping norm and steps (at a smaller ε, components) are chosen from four or five
  combinations on a tenth of each party's records kept aside, after trials of a dozen; so is the number of queries, from
  three. As in the papers, that choice is not covered by ε.
- Parties' own models are scikit-learn's `SVC` with its default settings. Queries are typical public records, in the
  middle of as many clusters (the default).
- A student is softmax regression of the queries alone, as in the paper (`spreading = false`), or of all public records,
  to which the winners' labels have spread (the default), or an `SVC` of these (`student = "sklearn.svm:SVC"`). All of
  these see the winners only, as talliers open them. "Totals spread" is for a sum, such as `secagg+`, by which the noisy
  totals become known: ε covers them, and they say more. Whatever a student does with what is known, and with public
  records, costs no privacy.
- Figures are means of {result["runs"]} runs with fresh noise ± the standard deviation of a single run.
- Accuracy is measured with the ideal sum. One vote of {secure["queries"]} queries through three talliers
  ({secure["setting"]}): planned noise {tally["noise"] / ideal["noise"]:.4f} times the ideal sum's,
  {100 * tally["labels"]:.0f} % of winners right against {100 * ideal["labels"]:.0f} %, accuracy
  {100 * tally[best]:.1f} % against {100 * ideal[best]:.1f} % ({best})."""


def _tables(result: dict[str, Any]) -> Iterable[str]:
    yield "## Whole parties protected (Table 1)"
    for each in result["sets"]:
        for entry in each["tables"]:
            shifted = "domains" in entry["setting"]
            paper = (
                f"The paper, SVHN and MNIST to USPS, ε about 3.7: {_SHIFT_PAPER}."
                if shifted
                else f"The paper: {PAPER}."
                if "six" in entry["setting"]
                else ""
            )
            yield f"""### {entry["setting"]}, ε = {entry["epsilon"]:g}

{markdown(["method", "accuracy, %", "settings"], rows_of_table(entry))}

{paper}""".rstrip()
    yield """Where domains differ, seven tenths of the parties have noisy images, the others faint ones that are moved
down and to the right; the public images and those tested with are moved to the left and have more contrast. Parties
that abstain from what they do not know then abstain from nearly everything, as nothing that is public looks like their
own; where public and private records are alike, abstaining makes winners clearer."""


def _sweep(result: dict[str, Any]) -> str:
    parts = []
    for each in result["sets"]:
        found = each["epsilons"]
        rows = [["`fedavg`, tuned", *(_percent(point) for point in found["fedavg"])]]
        for label in found:
            if label in ("epsilons", "fedavg"):
                continue
            rows += [
                [f"{label}; {student}", *(_percent(point[student]) for point in found[label])] for student in STUDENTS
            ]
        head = [f"{each['data']}, ε", *(f"{epsilon:g}" for epsilon in found["epsilons"])]
        parts.append(markdown(head, rows))
    joined = "\n\n".join(parts)
    return f"""## Against ε

![Accuracy of votes and of fedavg against ε.](images/voting_epsilon.png)

Six classes a party, an `SVC` as the student in the plot; accuracy in %. Noisy totals say more than winners, most of all
where there is much noise:

{joined}"""


def _records(result: dict[str, Any]) -> str:
    parts = []
    for each in result["sets"]:
        for entry in each["records"]:
            rows: list[list[str]] = []
            for found in entry["votes"]:
                rows += [
                    [
                        f"`voting`, {found['label']}; student: {student}",
                        _percent(found[student]),
                        _asked(found[student]),
                    ]
                    for student in STUDENTS
                ]
            title = f"{entry['setting']}, ε = {entry['epsilon']:g}, δ = {entry['delta']:g}:"
            parts.append(f"{title}\n\n{markdown(['method', 'accuracy, %', 'settings'], rows)}")
    if not parts:
        return ""
    joined = "\n\n".join(parts)
    return f"""## Single records protected (Table 2)

One record takes the place of one of k neighbours, so that votes of neighbours need k times less noise than for whole
parties (the paper's theorem has √k where k is right). The paper, three parties, Office-Caltech, ε about 4: kNN-DPFL
75.4 and 84.3 against DP-FedSGD 32.6 and 48.3 with AlexNet's features.

{joined}"""


def _multiparty(result: dict[str, Any]) -> str:
    table = result["multiparty"]
    head = ["parties, labels", *(f"ε = {epsilon:g}" if epsilon else "no noise" for epsilon in table["epsilons"])]
    last = table["parties"]
    bounds = {row["labels"]: row["cells"][0] for row in table["rows"] if row["parties"] == f"{last:,}"}
    rows = [
        [labels, paper, f"{bounds[labels]['sensitivity'] * bounds[labels]['regularization']:.4g}/λ"]
        for labels, paper in (("average", "2√2/(Mλ)"), ("majority", "√2/λ"), ("weighted", "√2/(Mλ)"))
    ]
    return f"""## A trusted trainer (the multiparty paper)

{table["data"]}, 20 components, parties of {table["each"]} records each, all alike, and then all records at parties with
six classes each; {table["public"]:,} public records, softmax regression, Gaussian noise for whole parties, δ = 1e-5, λ
the best of three on records kept aside. A single party's model has no noise, as nobody else sees it. Accuracy in %:

{markdown(head, rows_of_multiparty(table))}

The supplement has no accuracies; its sensitivities are these, and ours for M = {last:,}:

{markdown(["labels", "the paper", "unspoken"], rows)}

A majority may be turned by one party on every record, so its noise does not shrink with the number of parties. Weights
by shares of the votes are what makes many parties worth while."""


def _short(result: dict[str, Any]) -> str:
    lines = []
    for entry in result["claims"]:
        if not entry["holds"]:
            lines.append(f"- {entry['claim']}: {entry['measured']:.1f}, where 0 or more was the goal.")
    listed = "\n".join(lines) or "- Nowhere in these tables."
    return f"""## Where it falls short

{listed}
- The space of few, good public features is `fedavg`'s best case: noise is added to 510 numbers. A network of pixels, as
  in the paper, has many times as many, and votes do not depend on it."""


_AGAIN = """## Again

```sh
pip install -e '.[torch,benchmarks]'
OMP_NUM_THREADS=1 python benchmarks/voting_tables.py --mnist FOLDER  # this page: about three quarters of an hour
OMP_NUM_THREADS=1 python benchmarks/voting_tables.py            # Fashion-MNIST if it is installed, else digits
OMP_NUM_THREADS=1 python benchmarks/voting_tables.py --quick    # a small setting, numbers only
OMP_NUM_THREADS=1 python benchmarks/voting.py                   # speed
```"""


# --- The plot --------------------------------------------------------------------------------------------------------


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sets = result["sets"]
    figure, axes = plt.subplots(1, len(sets), figsize=(5.5 * len(sets), 4.2), layout="constrained", squeeze=False)
    for axis, each in zip(axes[0], sets, strict=True):
        found = each["epsilons"]
        curves = {"fedavg, tuned": (found["fedavg"], "C0s-")}
        for number, label in enumerate(label for label in found if label not in ("epsilons", "fedavg")):
            style = f"C{number + 1}{'^' if 'abstain' in label else 'o'}"
            curves[f"{label}: winners"] = ([point[STUDENTS[2]] for point in found[label]], f"{style}-")
            curves[f"{label}: totals"] = ([point[STUDENTS[3]] for point in found[label]], f"{style}--")
        for label, (points, style) in curves.items():
            means = [100 * point["mean"] for point in points]
            below = [100 * (point["mean"] - point["least"]) for point in points]
            above = [100 * (point["best"] - point["mean"]) for point in points]
            axis.errorbar(found["epsilons"], means, (below, above), fmt=style, capsize=2, label=label)
        axis.set_xscale("log")
        axis.set_xticks(found["epsilons"], [f"{epsilon:g}" for epsilon in found["epsilons"]])
        axis.minorticks_off()
        axis.set(xlabel="ε of a whole party", ylabel="accuracy, %", title=f"{each['data']}, six classes a party")
        axis.grid(True, alpha=0.25)
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
