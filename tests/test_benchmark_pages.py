"""What the papers' pages say in words follows from the numbers that they are made of."""

from __future__ import annotations

import copy
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def numbers_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / name / "results.json").read_text(encoding="utf-8"))
    return found


def page_of(folder: str, numbers: dict[str, Any], module: str = "page") -> str:
    """A page's words, in one line."""
    text: str = importlib.import_module(f"benchmarks.{folder}.{module}").text(copy.deepcopy(numbers))
    return " ".join(text.split())


PAGES = {name: (name, "page") for name in ("cape", "cross_silo", "helmet", "moments", "public", "voting")}
PAGES["multiparty"] = ("voting", "page_multiparty")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_numbers_make_and_writes_an_exponent_as_studies_do(name: str) -> None:
    folder, module = PAGES[name]
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert " ".join(page.split()) == page_of(folder, numbers_of(folder), module)
    assert re.findall(r"\d+e-0\d+", page) == []


@pytest.mark.parametrize("labels", ["weighted", "majority"])
def test_votes_that_teach_less_than_a_party_alone_are_listed(labels: str) -> None:
    numbers = numbers_of("voting")
    page, table = page_of("voting", numbers, "page_multiparty"), numbers["multiparty"]
    cells = {(row["parties"], row["labels"]): row["cells"] for row in table["rows"]}
    compared = (f"{table['parties']:,}", table["rows"][-1]["parties"])
    behind = {
        (parties, epsilon): 100.0 * (ours["mean"] - alone["mean"])
        for parties in compared
        for epsilon, ours, alone in zip(
            table["epsilons"], cells[parties, labels], cells[parties, "a single party"], strict=True
        )
        if ours["mean"] < alone["mean"]
    }
    assert behind, "there is something to list"
    for (parties, epsilon), points in behind.items():
        at = "without noise" if epsilon is None else f"ε = {epsilon:g}"
        assert f"parties: {parties}, {at}: {labels} over a single party, points: {points:.1f}," in page


def test_the_page_of_votes_says_how_far_the_paper_s_own_student_is_from_fedavg() -> None:
    numbers = numbers_of("voting")
    entry = numbers["sets"][0]["tables"][0]
    entry["votes"][0]["softmax of the queries alone"]["mean"] = entry["fedavg"]["mean"] - 0.25
    assert "votes of models lead `fedavg` by −25.0, +" in page_of("voting", numbers)


def test_the_page_of_blind_averaging_claims_no_more_cancellation_than_was_measured() -> None:
    numbers = numbers_of("helmet")
    rows = [row for name in numbers if name.endswith("-table2") for row in numbers[name]]
    for row in rows:
        row["iid, length"] = 1.5 * row["by-class, length"]
    told = re.findall(r"(\S+) times shorter", page_of("helmet", numbers))
    assert told == ["1.5"] * 2 * sum(name.endswith("-table2") for name in numbers)


def test_the_page_of_cross_silo_training_tells_of_a_missed_goal_only_where_it_is_missed() -> None:
    numbers = numbers_of("cross_silo")
    assert "where 1.3 was the goal" in page_of("cross_silo", numbers)
    numbers["nodes"]["one_process"] = [1.29 for _ in numbers["nodes"]["nodes"]]
    assert "was the goal" not in page_of("cross_silo", numbers)


def test_the_page_of_cross_silo_training_says_what_fedavg_reaches_with_ten_parties() -> None:
    numbers = numbers_of("cross_silo")
    numbers["parties"]["curves"]["fedavg, 10 parties"][0]["mean"] = 0.875
    assert "`fedavg` with ten parties has at most 87.5 % accuracy" in page_of("cross_silo", numbers)


def test_every_curve_of_cape_s_network_is_explained_beside_its_picture() -> None:
    numbers = numbers_of("cape")
    (text,) = re.findall("## A network .*?##", page_of("cape", numbers))
    drawn = {label for sweep in numbers["network"] for label in sweep["curves"]} - {"CAPE", "conv", "not private"}
    assert drawn
    assert all(f'"{label}" has' in text for label in drawn)
