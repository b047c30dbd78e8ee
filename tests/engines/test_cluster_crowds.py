"""What stands for parties and helpers on a Ray cluster, without one: fakes of Ray and of parties."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from unspoken.engines.cluster import crowd, each, tasks
from unspoken.errors import UnspokenError


class Noting:
    """A party whose state is all that it was told."""

    said = b""

    def load(self, state: bytes) -> None:
        self.said = state

    def step(self, body: bytes) -> bytes:
        self.said += body
        return self.said

    def dump(self) -> bytes:
        return self.said


def test_a_step_keeps_the_states_of_those_who_get_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "work_at", lambda place: SimpleNamespace(party=lambda index: Noting()))
    place: Any = None
    said, states = tasks.step(place, {0: b"a", 1: b"b", 2: b"c"}, [(1, b"!"), (1, b"?")])
    assert said == [(1, b"b!"), (1, b"b!?")]
    assert states == {0: b"a", 1: b"b!?", 2: b"c"}


@pytest.mark.parametrize(("error", "dismissed"), [(KeyboardInterrupt, 1), (ArithmeticError, 1), (UnspokenError, 0)])
def test_a_run_that_is_interrupted_leaves_no_task_and_waits_for_no_helper(
    error: Callable[[], BaseException], dismissed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helpers of a run that was given up are as good as before: their processes took seconds to begin."""
    cancelled, ended = list[tuple[str, bool]](), list[int]()
    task = SimpleNamespace(remote=lambda name: name)
    cluster: Any = SimpleNamespace(cpus=1, dismiss=lambda: ended.append(1), task=lambda function, results: task)
    ray = SimpleNamespace(
        wait=lambda left, num_returns: (left[:1], left[1:]),
        cancel=lambda reference, force: cancelled.append((reference, force)),
    )
    monkeypatch.setattr(crowd, "ray", lambda: ray)
    work: Any = SimpleNamespace(endpoints=SimpleNamespace(protocol=SimpleNamespace(helper_addresses=[])))
    monkeypatch.setattr(crowd.Crowd, "__init__", lambda self, work: setattr(self, "work", work))
    place: Any = None

    def interrupted() -> None:
        with crowd.ClusterCrowd(work, cluster, place) as made:
            done = made._done(crowd._Call(number, len, 1, (f"task {number}",)) for number in range(9))
            assert next(done) == (0, ["task 0"])
            raise error()

    with pytest.raises(type(error())):
        interrupted()
    assert sorted(cancelled) == [("task 1", True), ("task 2", True)]
    assert len(ended) == dismissed


def test_a_comparison_that_is_interrupted_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = list[tuple[int, bool]]()
    ray = SimpleNamespace(
        wait=lambda left, num_returns: (left[:1], left[1:]),
        cancel=lambda reference, force: cancelled.append((reference, force)),
    )
    here = SimpleNamespace(task=lambda function: SimpleNamespace(remote=function), put=lambda it: it, got=lambda it: it)
    monkeypatch.setattr(each, "ray", lambda: ray)
    monkeypatch.setattr(each, "connected", lambda address: nullcontext(here))
    results: Any = each.each(operator.add, 1, [2, 3, 4])
    assert next(results) == 3
    results.close()
    assert cancelled == [(4, True), (5, True)]
