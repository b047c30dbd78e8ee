"""The part of docs/helmet.md that holds the paper's figures and tables against ours; `paper.md` has its fixed text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Numbers, markdown
from benchmarks.helmet.figures import sets_of

_NAMES = {
    "digits": "scikit-learn's digits",
    "cifar-10": "CIFAR-10, features of a public ImageNet encoder (EfficientNet-Lite0, 1,280 numbers)",
    "fashion-mnist": "Fashion-MNIST, scattering features in 256 principal components of the public records",
}
_FIXED = Path(__file__).with_name("paper.md")
_HERE = "<!-- data sets -->"
_SAID = {
    "svm": ("0.082; 67x: 0.0082", "85 (−2)", "87 (−3)"),
    "softmax": ("0.0025", "42 (−49)", "88 (−4)"),
}
"""The paper's Table 2: Λ at norm 1, accuracy with one class a party, and what that loses, once and with 67 times the
parties"""


def sections(numbers: Numbers) -> Iterator[str]:
    """All of it, if there are numbers."""
    if not sets_of(numbers):
        return
    before, after = _FIXED.read_text(encoding="utf-8").split(_HERE)
    yield before.strip()
    for name in sets_of(numbers):
        yield from _data_set(numbers, name)
    yield after.strip()


def _data_set(numbers: Numbers, name: str) -> Iterator[str]:
    size = numbers[f"{name}-size"]
    smaller = "with fewer\nrecords than the paper's: the same accuracy takes a larger ε."
    quick = f" **This is a quick run**, {smaller}" if size["quick"] else ""
    few, least = (size.get(f"federated_{what}", size[what]) for what in ("runs", "rounds"))
    fewer = "" if few == size["runs"] else f" ({few} of federated learning in Figure 3)"
    shorter = "" if least == size["rounds"] else f" ({least} of federated learning)"
    yield (
        f"### {_NAMES[name]}\n\n"
        f"{size['records']:,} records of parties, {size['public']:,} public ones, {size['test']:,} to test with; "
        f"{size['runs']} runs a point{fewer}; {size['rounds']} rounds of DP-SGD{shorter}.{quick}"
    )
    makers = {
        "figure3": _figure_3,
        "figure4": _figure_4,
        "figure5": _figure_5,
        "figure8": _figure_8,
        "table2": _table_2,
    }
    for part, make in makers.items():
        if f"{name}-{part}" in numbers:
            yield make(numbers, name)
    if missing := [part for part in makers if f"{name}-{part}" not in numbers]:
        told = ", ".join(f"{part[:-1].capitalize()} {part[-1]}" for part in missing)
        yield f"Not measured yet on these records: {told}; the program below has them."


def _picture(name: str, part: str, text: str) -> str:
    return f"![{text}](images/helmet_{name.replace('-', '_')}_{part}.png)"


def _cell(row: dict[str, Any]) -> str:
    strength = "" if row["regularization"] is None else f" (Λ = {row['regularization']:g})"
    return f"{row['accuracy']:.1f}{strength}"


def _table(rows: list[dict[str, Any]], by: str, label: str, *keys: str) -> str:
    """A line for each of the keys' values, a column for each value of `by`."""
    columns = sorted({row[by] for row in rows})
    lines: dict[tuple[str, ...], dict[float, str]] = {}
    for row in rows:
        lines.setdefault(tuple(str(row[key]) for key in keys), {})[row[by]] = _cell(row)
    table = [[*key, *(cells.get(column, "–") for column in columns)] for key, cells in lines.items()]
    return markdown([*keys, *(f"{label}{column:,g}" for column in columns)], table)


def _figure_3(numbers: Numbers, name: str) -> str:
    rows = numbers[f"{name}-figure3"] + numbers.get(f"{name}-federated", [])
    plain = f" Not private: {numbers[f'{name}-plain']:.1f}." if f"{name}-plain" in numbers else ""
    return (
        "**Figure 3** (top and bottom): the same records, spread over more and more parties. `central` is DP-SGD on\n"
        f"records in one place, `local` and `fedsgd` are DP-FL.{plain} The paper, 1,000 parties: 86 at ε = 0.36.\n\n"
        f"{_picture(name, 'figure3', 'Accuracy against epsilon')}\n\n"
        f"{_table(rows, 'epsilon', 'ε = ', 'method', 'parties')}"
    )


def _figure_4(numbers: Numbers, name: str) -> str:
    rows = numbers[f"{name}-figure4"]
    return (
        f"**Figure 4**: more and more parties of 50 records, ε = {rows[0]['epsilon']:g}; beside it the naive average\n"
        "of models that are private on their own. The paper has ε = 0.5885; there, softmax passes DP-FL at about 100\n"
        "parties.\n\n"
        f"{_picture(name, 'figure4', 'Accuracy against the number of parties')}\n\n"
        f"{_table(rows, 'parties', 'parties: ', 'method')}"
    )


def _figure_5(numbers: Numbers, name: str) -> str:
    found = numbers[f"{name}-figure5"]
    rows = {(row["group"], row["parties"], row["epsilon"]): row for row in found["rows"]}
    most, least = max(row["parties"] for row in found["rows"]), min(row["epsilon"] for row in found["rows"])
    one, whole = rows[1, most, least], rows["party", most, least]
    deltas = dict(sorted((row["parties"], row["delta"]) for row in found["rows"]))
    told = ", ".join(f"{delta:g} for {parties:,}" for parties, delta in deltas.items())
    return (
        "**Figure 5**: groups of records among many parties. As in the paper, the average is that of the "
        f"{found['models']:,}\nmodels that there are, and the noise that of the crowd. δ is below one over the number "
        f"of records:\n{told} parties, for the last two as in the paper. With {most:,}\nparties and ε = {least:g}, the "
        f"least that a study may have, {one['accuracy']:.1f} % are reached for single records, and "
        f"{whole['accuracy']:.1f} % for whole\nparties. The paper names 87 % for single records at ε ≤ 5·10⁻⁵, and for "
        "whole parties at ε = 10⁻⁴. “Any k” records\nmay lie at k parties: from some k on they cost more than a whole "
        "party, whose records lie together.\n\n"
        f"{_picture(name, 'figure5', 'Accuracy by group, number of parties and epsilon')}"
    )


def _figure_8(numbers: Numbers, name: str) -> str:
    rows = [{**row, "δ": f"{row['delta']:g}"} for row in numbers[f"{name}-figure8"]]
    return (
        "**Figure 8**: all records at one party (`[parties] count = 1`). The paper at ε = 0.59, 50,000 records: SVM\n"
        "87.4, softmax 90.2, DP-SGD 93.6.\n\n"
        f"{_picture(name, 'figure8', 'Accuracy of one party')}\n\n"
        f"{_table(rows, 'epsilon', 'ε = ', 'method', 'δ')}"
    )


def _table_2(numbers: Numbers, name: str) -> str:
    rows = numbers[f"{name}-table2"]
    lines = [
        [row["method"], f"{row['regularization']:g}", *(_biased(row, times) for times in ("1x", "67x"))] for row in rows
    ]
    paper = [[f"the paper (CIFAR-10), {learner}", *said] for learner, said in _SAID.items()]
    return (
        "**Table 2**: one class a party, ε = 1.172; in brackets the difference to records that are spread at random.\n"
        "67x: with the noise of 67 times as many parties, as in the paper. The first Λ is the paper's choice for\n"
        "softmax (3 at c = 34.854), brought to records of norm 1; the paper's difference is to Λ = 1, here 0.0008.\n\n"
        + markdown(["learner", "Λ", "1x", "67x"], lines + paper)
        + "\n\n"
        + textwrap.fill(_finding(rows) + (_with_more(numbers) if name == "cifar-10" else ""), 120)
    )


def _biased(row: dict[str, Any], times: str) -> str:
    one_class, mixed = row[f"by-class, {times}"], row[f"iid, {times}"]
    return f"{one_class:.1f} ({one_class - mixed:+.1f})".replace("-", "−")


def _with_more(numbers: Numbers) -> str:
    """The same with all records, if the tables above have it."""
    found = {
        row["split"]: row
        for row in numbers.get("cifar-10", {}).get("rows", ())
        if row["by_rule"] and (row["unit"], row["learner"], row["epsilon"]) == ("record", "softmax", 1.18)
    }
    if len(found) < 2:
        return ""
    biased, mixed = found["by-class"], found["iid"]
    return (
        " With 50,000 records over 1,000 parties (the tables above) softmax with "
        f"Λ = {biased['regularization']:g} has {biased['accuracy']:.1f} % with one class a party, and "
        f"{mixed['accuracy']:.1f} % with records that are spread at random, at ε = 1.18."
    )


def _finding(rows: list[dict[str, Any]]) -> str:
    softmax = [row for row in rows if row["method"].endswith("softmax")]
    first, best = softmax[0], max(softmax, key=lambda row: float(row["by-class, 1x"]))
    return (
        "The paper suspects that the signal suffers (Appendix B): models of parties with one class each cancel in "
        f"part. With Λ = {first['regularization']:g} the average of softmax models is {_shorter(first)} than with "
        f"records spread at random, and the noise in a score is {first['noise']:.2g}. With "
        f"Λ = {best['regularization']:g} it is {_shorter(best)}, and the noise {best['noise']:.2g}: accuracy is "
        f"{best['by-class, 1x']:.1f} % in place of {first['by-class, 1x']:.1f} %."
    )


def _shorter(row: dict[str, Any]) -> str:
    """How much one class a party shortens the average."""
    found, usual = row["by-class, length"], row["iid, length"]
    return f"{usual / found:.1f} times shorter ({found:.3g} against {usual:.3g})"
