"""What every engine must do: the same totals, participation and release from the same secrets, or the same end.

A new engine joins by one line in `ENGINES`. The cluster is one for all tests here, and is there with --cluster.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import flower_nodes
import loopback
from small_studies import (
    KEY,
    PARTIES,
    Recording,
    federation_of,
    method_of,
    methods_and_tasks,
    public_file,
    shown,
    small,
)
from unspoken.data.federation import Federation
from unspoken.engines import actors, local, remembering
from unspoken.engines.attempt import Post, Said
from unspoken.engines.cluster import engine as cluster
from unspoken.engines.conditions import Conditions
from unspoken.engines.journal import Journal
from unspoken.engines.outcome import Outcome
from unspoken.engines.threads import ThreadedCrowd
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.methods.registry import METHODS
from unspoken.noise.stream import SecretStream
from unspoken.study import Study
from unspoken.summation.base import Aborted, Envelope, address_of
from unspoken.summation.registry import PROTOCOLS


class Backwards(ThreadedCrowd):
    """One party after another, the last one first, as on a cluster those who take longest come last."""

    def begin(self) -> Iterator[Said]:
        return reversed([*super().begin()])

    def step(self, envelopes: list[Envelope]) -> Iterator[Said]:
        return super().step(envelopes[::-1])

    def submit(self, post: Post) -> Iterator[int]:
        for indices in reversed([*self.work.layout(1)]):
            for index, envelopes in zip(indices.tolist(), self._messages(indices), strict=True):
                post.send(envelopes, address_of(index))
            yield len(indices)


def run_backwards(method: Method, plan: Plan, federation: Federation, conditions: Conditions) -> Outcome:
    return remembering.run(method, plan, federation, Backwards, conditions, "backwards")


@dataclass(frozen=True)
class Engine:
    run: Callable[..., Outcome]
    has_common_place: bool = False
    """Can all records be in one place, as baselines ask for?"""
    is_cluster: bool = False
    """Does it need a cluster, which takes its time to start?"""
    only: str = ""
    """The one protocol that it differs for"""


ENGINES: dict[str, Engine] = {
    "local": Engine(local.run, has_common_place=True),
    "processes": Engine(partial(local.run, processes=True), has_common_place=True, only="tally"),
    "backwards": Engine(run_backwards, has_common_place=True),
    "actors": Engine(actors.run),
    "network": Engine(loopback.run),
    "flower": Engine(flower_nodes.run),
    "ray": Engine(cluster.run, has_common_place=True, is_cluster=True),
}
ELSEWHERE = ("network", "flower")
"""Engines whose participants are elsewhere, which take more time"""


def marked(engine: str, *more: object, marks: tuple[Any, ...] = ()) -> Any:
    """A parameter of a test, which asks for a cluster if the engine does."""
    return pytest.param(engine, *more, marks=[*marks, *([pytest.mark.cluster] if ENGINES[engine].is_cluster else [])])


EACH = [marked(name) for name, engine in ENGINES.items() if not engine.only]
ALLOWED = 2
"""How many parties may drop out."""


@dataclass(frozen=True)
class Case:
    """A study to run, by keys that a test's name can have."""

    method: str
    task: str
    protocol: str = "compute-nodes"
    keys: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.method, self.task, self.protocol, *(str(value) for _, value in self.keys)])


def cases() -> Iterator[Case]:
    """Every method with every task; then every protocol with one method for each way of asking; then variants."""
    for method, task in methods_and_tasks():
        yield Case(method, task)
    for name, protocol in PROTOCOLS.items():
        for method in ("helmet", "cape", "voting"):
            if METHODS[method].accepts(protocol) and name != "compute-nodes":
                yield Case(method, "classification", name)
    yield Case("cross-silo", "regression", "ideal", (("sampling", "without-replacement"),))
    yield Case("moments", "classification", "secagg+", (("function", "network"), ("steps", 2), ("hidden", 3)))
    for method in ("local", "none"):
        yield Case(method, "regression", "compute-nodes", (("model", "linear"), ("rounds", 2)))
    yield Case("cape", "statistics", "secagg", (("order", "noise-first"),))
    turns = (("function", "network"), ("steps", 2), ("hidden", 3))
    yield Case("cape", "classification", "compute-nodes", (("order", "messages-first"), *turns))


CASES = list(cases())


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


@cache
def prepared(public: Path, case: Case) -> tuple[Study, Plan]:
    # Masks between pairs cannot be taken away again: nobody may vanish in the middle.
    dropouts = 0 if case.protocol == "pairwise" else ALLOWED
    said = {"summation": case.protocol, "colluding": 1, "dropouts": dropouts}
    study = small(public, case.method, case.task, keys=dict(case.keys), **said)
    return study, method_of(study).plan()


def run(engine: str, public: Path, case: Case, drop: int = 0) -> tuple[Outcome, tuple[Any, ...]]:
    """How a run ended, and all that it showed: what its method was told, and what the world is told."""
    study, plan = prepared(public, case)
    method = method_of(study)
    recording = Recording(method)
    outcome = ENGINES[engine].run(
        method, plan, federation_of(study), Conditions(drop=drop, seed=3, secrets=SecretStream(KEY))
    )
    return outcome, (recording.answers, *shown(study, outcome))


def able(public: Path, case: Case) -> list[str]:
    """The engines that can run the study. What has all records in one place needs an engine that has such a place."""
    _, plan = prepared(public, case)
    return [name for name, engine in ENGINES.items() if engine.has_common_place or not plan.is_pooled]


def asked(public: Path, case: Case, runs: Callable[[int, int], int]) -> list[str]:
    """The engines to run a case on: those with clocks take turns, and now and then, unless there is time."""
    left_out = {name for turn, name in enumerate(ELSEWHERE) if not runs(CASES.index(case) % 12 == 6 * turn, 1)}
    engines = [name for name in able(public, case) if not ENGINES[name].is_cluster]
    return [name for name in engines if name not in left_out and ENGINES[name].only in ("", case.protocol)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_engines_agree_bit_for_bit(case: Case, public: Path, runs: Callable[[int, int], int]) -> None:
    """With and without dropouts in turn, and in every case with --soak. Engines made of crowds move the same bytes."""
    study, plan = prepared(public, case)
    drops = sorted({0, study.dropouts})
    for drop in drops if runs(0, 1) else [drops[-1 - CASES.index(case) % 2 % len(drops)]]:
        results = {name: run(name, public, case, drop) for name in asked(public, case, runs)}
        for outcome, said in results.values():
            assert said == results["local"][1]
            # `local` asks one party, which is there.
            assert outcome.survivors == (plan.senders or PARTIES - drop)
        crowds = [outcome for name, (outcome, _) in results.items() if ENGINES[name].has_common_place]
        assert len({(outcome.bytes, outcome.party_bytes) for outcome in crowds}) == 1


def is_first_of_its_method(case: Case) -> bool:
    return case.protocol == "compute-nodes" and case == next(each for each in CASES if each.method == case.method)


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_cluster_agrees_bit_for_bit(
    case: Case, public: Path, runs: Callable[[int, int], int], seeded: Callable[[], None]
) -> None:
    """And so do the bytes that are moved. Some baselines draw noise by themselves, so both begin with the same seed.

    Every method, every protocol and every variant; other tasks of a method with --soak only."""
    if case.protocol == "compute-nodes" and not case.keys and not is_first_of_its_method(case) and not runs(0, 1):
        pytest.skip("another task of the same method; runs with --soak")
    study, plan = prepared(public, case)
    drops = sorted({0, study.dropouts})
    for drop in drops if runs(0, 1) else [drops[-1 - CASES.index(case) % 2 % len(drops)]]:
        seeded()
        expected, here = run("local", public, case, drop)
        seeded()
        outcome, there = run("ray", public, case, drop)
        assert there == here
        assert (outcome.bytes, outcome.party_bytes) == (expected.bytes, expected.party_bytes)
        assert outcome.survivors == (plan.senders or PARTIES - drop)


ABORTS = [
    # An abort in a process is in test_processes.py every day.
    marked(name, case, marks=(pytest.mark.long,) if name == "processes" else ())
    for name, engine in ENGINES.items()
    for case in CASES
    if case.method in ("helmet", "cape") or case.protocol == "tally"
    if engine.only in ("", case.protocol)
]


@pytest.mark.parametrize(("engine", "case"), ABORTS, ids=str)
def test_too_many_dropouts_end_in_an_abort(
    engine: str, case: Case, public: Path, runs: Callable[[int, int], int]
) -> None:
    if engine in ELSEWHERE and not runs(case.protocol in ("secagg+", "tally"), 1):
        pytest.skip("runs with --soak")
    with pytest.raises(Aborted):
        run(engine, public, case, prepared(public, case)[0].dropouts + 1 + (case.method == "cape"))


def test_roles_have_stores_of_their_own_and_no_journal(public: Path, tmp_path: Path) -> None:
    study, plan = prepared(public, CASES[0])
    with contextlib.closing(Journal(tmp_path / "journal", "run/")) as journal, pytest.raises(TypeError, match="stores"):
        actors.run(method_of(study), plan, federation_of(study), Conditions(journal=journal))


def test_what_needs_all_records_in_one_place_is_refused_where_there_is_none(public: Path) -> None:
    refused = 0
    for case in CASES:
        for name in {name for name, engine in ENGINES.items() if not engine.is_cluster} - set(able(public, case)):
            with pytest.raises(Aborted, match="needs all records in one place"):
                run(name, public, case)
            refused += 1
    assert refused


@pytest.mark.parametrize("engine", [name for name, engine in ENGINES.items() if not (engine.only or engine.is_cluster)])
@pytest.mark.parametrize("protocol", [case.protocol for case in CASES if case.method == "helmet"])
def test_bytes_are_counted(engine: str, protocol: str, public: Path) -> None:
    """An engine may wrap messages: a few bytes for each of the handful that a party sends.

    A cluster's bytes are compared with those of the local engine, above.
    """
    case = Case("helmet", "classification", protocol)
    _, plan = prepared(public, case)
    outcome, _ = run(engine, public, case)
    assert plan.upload_bytes <= outcome.party_bytes <= plan.upload_bytes + 1024
    assert outcome.bytes >= PARTIES * 0.9 * plan.upload_bytes


@pytest.mark.parametrize("engine", EACH)
@pytest.mark.parametrize("drop", [0, ALLOWED + 1])
def test_nothing_is_left_running(engine: str, drop: int, public: Path) -> None:
    before = set(threading.enumerate()), children()
    with contextlib.suppress(Aborted):
        run(engine, public, Case("helmet", "classification"), drop)
    assert (set(threading.enumerate()), children()) == before


def children() -> set[str]:
    """The processes that this one has started and that are not gone, as far as the operating system says."""
    found = [str(child.pid) for child in multiprocessing.active_children()]
    for tasks in Path("/proc/self/task").glob("*/children"):
        found += tasks.read_text().split()
    return set(found)
