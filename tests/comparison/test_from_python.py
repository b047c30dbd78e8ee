"""`unspoken.compare`: the same runs as on the command line, from arrays and data frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspoken
from compared import records, small, study
from unspoken.comparison import run_comparison

GROUPS = np.arange(300) % 5


def arguments(**changes: Any) -> dict[str, Any]:
    known = records()
    usual = {"X": known.features, "y": known.labels, "methods": ["moments", "none"], "epsilons": [1.0], "repeats": 1}
    return usual | {"X_test": known.features, "y_test": known.labels} | changes


def test_the_runs_are_those_of_the_comparison() -> None:
    agreed = study(method="moments", parties={"count": 5, "records": 30, "max_records": 60})
    found = unspoken.compare(agreed, **arguments())
    assert [(run.variant, run.asked, run.parties, run.repeat) for run in found.runs] == [
        ("moments", 1.0, 5, 0),
        ("none", 1.0, 5, 0),
    ]
    (without,) = [run for run in run_comparison(small(epsilons=(1.0,), repeats=1)) if run.variant == "none"]
    assert found.runs[1].metrics == without.metrics
    assert list(found.table["variant"]) == ["moments", "none"]
    assert found.points[1].metrics["accuracy"] == [without.metrics["accuracy"]]


def test_records_may_be_held_out_and_parties_counted_or_named() -> None:
    agreed = study(method="none", parties={"count": 5, "records": 20, "max_records": 100})
    held = arguments(methods=["none"], X_test=None, y_test=None, hold_out=0.2, repeats=2)
    assert [run.seed for run in unspoken.compare(agreed, **held).runs] == [0, 1]
    several = unspoken.compare(agreed, **arguments(methods=["none"], parties=[3, 5], split="by-class"))
    assert [run.parties for run in several.runs] == [3, 5]
    assert len(unspoken.compare(agreed, **arguments(groups=GROUPS)).runs) == 2


def test_a_plot_overwrites_nothing(tmp_path: Path) -> None:
    found = unspoken.compare(study(method="moments"), **arguments(methods=["none"]))
    found.plot(tmp_path / "side.svg")
    assert (tmp_path / "side.svg").stat().st_size > 1000
    with pytest.raises(unspoken.UnspokenError, match=r"side\.svg: exists already; .* replace=True"):
        found.plot(tmp_path / "side.svg")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": "moments"}, "methods is 'moments', but should be a list"),
        ({"methods": ["momnts"]}, 'did you mean "moments"'),
        ({"epsilons": []}, "epsilons has no number"),
        ({"epsilons": [0.0]}, "epsilon is 0.0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"hold_out": 0.2}, "one is enough"),
        ({"X_test": None}, "y_test is given without X_test"),
        ({"X_test": None, "y_test": None}, "give X_test, or hold_out"),
        ({"X_test": None, "y_test": None, "hold_out": 1.0}, "hold_out is 1"),
        ({"X_test": None, "y_test": None, "hold_out": 1e-5}, "a share of 1e-05, .* holds out none of the .* a larger"),
        ({"X_test": None, "y_test": None, "hold_out": 1 - 1e-5}, "holds out all of the .* take a smaller one"),
        ({"groups": GROUPS, "parties": [5]}, "leave parties and resplit out"),
        ({"split": "odd"}, "the split is 'odd'"),
    ],
)
def test_what_is_wrong_is_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(unspoken.UnspokenError, match=words):
        unspoken.compare(study(method="moments"), **arguments(**changes))


def test_doubts_are_told_before_the_first_run_under_the_methods_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreached(*_: Any, **__: Any) -> None:
        raise RuntimeError("a run")

    monkeypatch.setattr("unspoken.comparison.arrays.run_comparison", unreached)
    agreed = study(method="moments", parties={"count": 5, "records": 30, "max_records": 60})
    told = r"^moments at epsilon = 0\.001: the noise hides almost all"
    with pytest.raises(RuntimeError, match="a run"), pytest.warns(unspoken.DataWarning, match=told) as warned:
        unspoken.compare(agreed, **arguments(epsilons=[0.001, 50.0]))
    assert sum("the noise hides" in str(each.message) for each in warned) == 1
