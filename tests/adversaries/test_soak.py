"""A few runs of each kind of the soak; thousands by `python -m adversaries.soak`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from adversaries import soak
from adversaries.said import Said
from unspoken.roles.messages import Carried
from unspoken.summation.base import Envelope


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


def test_two_different_messages_of_a_kind_are_noticed_and_a_repeated_one_is_not() -> None:
    said = Said()
    attempts = [bytes([number]) * 16 for number in range(2)]
    for attempt, content in [(0, "same"), (0, "same"), (1, "other")]:
        clear = msgspec.msgpack.encode(("ideal/clear", content))
        body = msgspec.msgpack.encode(Carried(attempts[attempt], memoryview(clear)))
        said.note("party:0", [Envelope("coordinator", body)])
    assert not said.twice
    second = msgspec.msgpack.encode(("ideal/clear", "another"))
    said.note("party:0", [Envelope("coordinator", msgspec.msgpack.encode(Carried(attempts[1], memoryview(second))))])
    assert [(each.attempt, each.kind) for each in said.twice] == [(attempts[1], "ideal/clear")]
