"""A few runs of each kind of the soak; thousands by `python -m adversaries.soak`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adversaries import soak


@pytest.mark.parametrize("kind", ["replays", "crashes", "stale"])
def test_runs_of_each_kind_end_in_the_exact_total_or_in_an_abort(kind: str, seeds: Callable[[int, int], range]) -> None:
    """Other kinds have tests of their own, with the same seeds."""
    for seed in seeds(1, 15):
        assert not (outcome := soak.one(kind, seed)[2]).startswith("WRONG"), outcome


def test_what_goes_wrong_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "honest", lambda *_: ([], 0))
    assert soak.one("stale", 7)[2] == "WRONG AssertionError: seed 7: another total"


def test_a_run_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(seed: int) -> str:
        while True:
            pass

    monkeypatch.setitem(soak.KINDS, "endless", (1, endless))
    monkeypatch.setattr(soak, "SECONDS", 1)
    assert "TimeoutError" in soak.one("endless", 0)[2]
