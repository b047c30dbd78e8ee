"""Processes are killed, frozen and cut off, and disks fill up, at every stage: nothing is missed, and nothing hangs.

Which run does what follows from its seed. `UNSPOKEN_FAULT_RUNS=500` plays so many with --soak, and
`UNSPOKEN_FAULT_SEED=17` those from 17 on: a failure names its seed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from network.fault_checks import check, outcome_of
from network.faults import Fault, Nursery, Run, World

pytestmark = pytest.mark.long
"""Every day the same is played within one process: test_results.py, test_coming_back.py, test_restraint.py and
tests/roles/test_coordinator_log.py."""

PARTS = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nursery = Nursery()
    try:
        yield World(tmp_path_factory.mktemp("faults"), nursery)
    finally:
        nursery.close()


def played(world: World, fault: Fault) -> Run:
    run = Run(world, 0, fault)
    run.play()
    check(run)
    assert run.struck, run.told("nothing happened")
    return run


@pytest.mark.parametrize(
    ("scene", "vectors"), [("secagg+", 1), ("nodes", 2), ("votes", 1), ("messages", 2), ("silo", 20)]
)
def test_every_kind_of_study_runs_across_processes(scene: str, vectors: int, world: World) -> None:
    """SecAgg+, compute nodes, talliers, messages with common noise, and twenty rounds; nothing breaks."""
    run = Run(world, 0, Fault(scene, 1, "coordinator", "kill", "CoordinatorLog.end", 99, False, None))
    run.play()
    check(run)
    assert (run.struck, outcome_of(run)) == (False, "released"), run.told("it broke")
    parties = [json.loads(run.programs[f"party {index}"].out.content) for index in range(World.parties(scene))]
    assert {each["survivors"] for each in parties} == {len(parties)}
    assert {each["spent"]["vectors"] for each in parties} == {vectors}


def test_a_coordinator_that_is_killed_when_vectors_leave_goes_on_with_another_attempt(world: World) -> None:
    """Two attempts are planned. Its second record says that vectors may leave."""
    run = played(world, Fault("secagg+", 2, "coordinator", "kill", "FileStore.sync", 2, False, 0.1))
    said = json.loads(run.programs["coordinator"].out.content)
    content = json.loads(Path(said["files"]["certificate"]).read_text(encoding="utf-8"))
    assert (said["outcome"], content["happened"]["attempts"]) == ("released", 2)


def test_without_another_attempt_everyone_is_told_why(world: World) -> None:
    run = played(world, Fault("secagg+", 1, "coordinator", "kill", "FileStore.sync", 2, False, 0.1))
    for program in run.programs.values():
        assert "the coordinator was stopped in mid-attempt" in json.loads(program.out.content)["reason"]


def test_a_coordinator_that_is_killed_after_the_release_makes_the_same_again(world: World) -> None:
    run = played(world, Fault("secagg+", 1, "coordinator", "kill", "CoordinatorLog.end", 1, False, 0.1))
    assert outcome_of(run) == "released"
    first, again = (program.out.content for program in (run.programs["coordinator"], run.again("coordinator")))
    assert json.loads(first)["files"] == json.loads(again)["files"]
    for said in (json.loads(first), json.loads(again)):
        assert len(said["signed"]) == 1 + World.parties("secagg+"), "the coordinator's result says who has signed"
        assert said["unsigned"] == []
        assert said["epsilon"] == said["certificate"]["happened"]["epsilon"]
    assert b"this study has ended before; its results are there" in run.programs["coordinator"].err.content


def test_a_party_whose_ledger_is_used_up_leaves_at_once(world: World) -> None:
    """In the setup, so that its vector is not charged; the others are enough."""
    run = played(world, Fault("secagg+", 1, "party 1", "limit", "Party.receive", 2, True, None))
    assert run.programs["party 1"].status == 4
    assert b"party 1 leaves: its ledger does not allow more" in run.programs["coordinator"].err.content
    assert json.loads(run.programs["party 0"].out.content)["survivors"] == 4


def test_a_party_whose_disk_is_full_leaves_and_may_come_back(world: World) -> None:
    run = played(world, Fault("secagg+", 1, "party 1", "disk", "Party.receive", 2, True, None))
    assert run.programs["party 1"].status == 2
    assert b"party 1 leaves: it could not keep its state" in run.programs["coordinator"].err.content
    assert outcome_of(run) == "released"


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_breaks_the_study_ends_by_name_and_no_spend_is_missed(
    part: int, world: World, runs: Callable[[int, int], int]
) -> None:
    first = int(os.environ.get("UNSPOKEN_FAULT_SEED", "0"))
    count = int(os.environ.get("UNSPOKEN_FAULT_RUNS", runs(6, 30)))
    ends = Counter[str]()
    for seed in range(first + part, first + count, PARTS):
        run = Run(world, seed)
        run.play()
        check(run)
        ends[f"{run.fault.does}{'' if run.struck else ' (not struck)'}: {outcome_of(run)}"] += 1
    print(dict(ends))
