"""What a plan says of a vote's noise, against votes that are drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import make
from unspoken.methods.voting import Voting

RUNS = 100_000


def note_on_leads(folder: Path, classes: int, parties: int, **said: Any) -> tuple[str, float]:
    """The plan's note, and the most noise that each total may have: over all allowed numbers of survivors."""
    np.savez(folder / "public.npz", X=np.zeros((20, 2)))
    agreed = make(
        "voting",
        data={"features": 2, "classes": classes, "norm": 5.0},
        parties={"count": parties, "records": 6, "max_records": 6},
        method={"public": str(folder / "public.npz"), "queries": 20},
        **{"summation": "ideal", **said},
    )
    plan = Voting(agreed).plan()
    (note,) = (note for note in plan.notes if "times in 100" in note)
    survivors = range(plan.trust.least_survivors, parties + 1)
    return note, max(plan.sum_named("ballots").total_std(count) for count in survivors)


def share_of_wins(lead: float, classes: int, noise: float) -> float:
    source, won = np.random.default_rng(1), 0
    for _ in range(10):
        totals = noise * source.standard_normal((RUNS // 10, classes))
        totals[:, 0] += lead
        won += int((totals.argmax(axis=1) == 0).sum())
    return won / RUNS


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_a_label_with_the_stated_lead_wins_as_often_as_stated(classes: int, tmp_path: Path) -> None:
    """The share of 100,000 votes has a deviation of 0.00044: a false alarm is below 1e-6 on either side."""
    note, noise = note_on_leads(tmp_path, classes, 1000, epsilon=1.0)
    found = re.search(r"wins at least 98 times in 100 if it leads every other by ([\d.,]+) of the 1,000 votes", note)
    assert found is not None, note
    share = share_of_wins(float(found.group(1).replace(",", "")), classes, noise)
    assert 0.98 - 0.0022 < share < 0.99


@pytest.mark.parametrize(("parties", "colluding", "dropouts"), [(100, 50, 45), (100, 10, 10)])
def test_the_stated_lead_is_enough_however_many_drop_out(
    parties: int, colluding: int, dropouts: int, tmp_path: Path
) -> None:
    """With fewer survivors each keeps more of its noise, and the total may have more of it: a false alarm as above."""
    trust = {"colluding": colluding, "dropouts": dropouts, "summation": "compute-nodes"}
    note, noise = note_on_leads(tmp_path, 10, parties, epsilon=50.0, **trust)
    found = re.search(r"wins at least 98 times in 100 if it leads every other by ([\d.,]+) of", note)
    assert found is not None, note
    assert share_of_wins(float(found.group(1).replace(",", "")), 10, noise) > 0.98 - 0.0022
    assert share_of_wins(float(found.group(1).replace(",", "")), 10, noise) < 0.99


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_votes_that_nobody_can_be_sure_to_win_are_called_so(classes: int, tmp_path: Path) -> None:
    """The chance is rounded down to whole percents; the share of 100,000 votes has a deviation of 0.0016 at most, so a
    false alarm is below 1e-6."""
    note, noise = note_on_leads(tmp_path, classes, 6, epsilon=4.0)
    found = re.search(
        r"even a label that gets all of the 6 votes wins only (\d+) times in 100; have more parties", note
    )
    assert found is not None, note
    assert int(found.group(1)) / 100 - 0.008 < share_of_wins(6.0, classes, noise) < int(found.group(1)) / 100 + 0.018
    assert "raise epsilon, or lower queries" in note
    assert "lower noise_multiplier" in note_on_leads(tmp_path, classes, 6, noise_multiplier=30.0)[0]


@pytest.mark.parametrize("parties", [3, 6, 15, 40, 200])
def test_no_lead_is_larger_than_the_number_of_votes(parties: int, tmp_path: Path) -> None:
    note, _ = note_on_leads(tmp_path, 10, parties, epsilon=4.0)
    asked = re.search(r"leads every other by ([\d.,]+) of", note)
    assert asked is None or float(asked.group(1).replace(",", "")) <= parties
