"""The table of a comparison says what its columns are."""

from __future__ import annotations

from typing import Any

import pytest

from unspoken.report import terminal


def point(interval: list[float] | None, runs: int = 1) -> dict[str, Any]:
    found = {"mean": 0.8, "interval": interval, "min": 0.7, "max": 0.9, "runs": [0.7, 0.9, 0.8][:runs]}
    return {
        "variant": "helmet",
        "computes": "",
        "epsilon": 1.0,
        "parties": 3,
        "upload_bytes": 10,
        "metrics": {"accuracy": found},
    }


def test_the_range_of_the_runs_is_named_and_one_run_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_comparison([point([0.75, 0.85], runs=3)], "accuracy")
    several = capsys.readouterr().out
    assert "lowest to highest" in " ".join(several.split())
    assert "70.0 to 90.0 %" in several
    terminal.show_comparison([point(None)], "accuracy")
    assert " to 90.0" not in capsys.readouterr().out


def test_two_runs_have_a_range_and_no_column_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_comparison([point(None, runs=2)], "accuracy")
    two = capsys.readouterr().out
    assert "70.0 to 90.0 %" in two
    assert "±" not in two
    terminal.show_comparison([point(None)], "accuracy")
    one = capsys.readouterr().out.split("helmet")[0]
    assert one.split() == ["method", "epsilon", "accuracy", "upload"]
