"""Votes that talliers count in secret: the same winners, parties that vanish, and talliers as processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unspoken
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.engines.processes import HelperProcess
from unspoken.methods.registry import method_for
from unspoken.methods.voting import Voting
from unspoken.noise.stream import SecretStream
from unspoken.study import StudyError, make_study
from unspoken.summation.base import Aborted, Envelope
from unspoken.summation.tally import TallyCoordinator
from voting_studies import study


def test_talliers_open_the_winners_of_the_same_noisy_totals_as_a_sum_reveals(tmp_path: Path) -> None:
    """The same secrets through talliers and through pairwise masks: the same ballots, the same noise, one student.

    Of the winners: as the totals are known, they are what spreads.
    """
    rng = np.random.default_rng(0)
    records = Records(rng.normal(size=(48, 2)), rng.integers(0, 3, 48))
    students = []
    for protocol in ("tally", "pairwise"):
        content = study(tmp_path, {"epsilon": 5.0}, spreading=False).model_dump(exclude_none=True)
        agreed = make_study({**content, "summation": {"protocol": protocol}})
        method = Voting(agreed)
        plan = method.plan()
        federation = ArrayFederation(agreed, records, np.arange(48) % 8)
        outcome = local.run(method, plan, federation, Conditions(secrets=SecretStream(bytes(range(32)))))
        students.append(outcome.release.weights)
        assert any("noisy totals of the ballots" in note for note in plan.notes) == (protocol != "tally")
        assert ("talliers" in plan.guarantee.sentence()) == (protocol == "tally")
    assert np.array_equal(students[0], students[1])


def test_parties_may_vanish_from_a_vote_and_too_many_end_it(tmp_path: Path) -> None:
    content = study(tmp_path, {"dropouts": 2}).model_dump(exclude_none=True)
    agreed = make_study({**content, "summation": {"protocol": "tally"}})
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(48, 2)), rng.integers(0, 3, 48), np.arange(48) % 8
    assert unspoken.simulate(agreed, *arrays, drop=2).outcome.survivors == 6
    with pytest.raises(Aborted):
        unspoken.simulate(agreed, *arrays, drop=3)


def test_talliers_serve_votes_only(tmp_path: Path) -> None:
    content = study(tmp_path).model_dump(exclude_none=True)
    with pytest.raises(StudyError, match='is "tally", which only counts votes'):
        method_for(make_study({**content, "method": {"name": "helmet"}, "summation": {"protocol": "tally"}})).plan()


@pytest.mark.long
def test_talliers_may_be_processes_and_the_same_student_is_learnt(
    tmp_path: Path, runs: Callable[[int, int], int]
) -> None:
    content = study(tmp_path, {"epsilon": 5.0}).model_dump(exclude_none=True)
    agreed = make_study({**content, "summation": {"protocol": "tally", "talliers": runs(3, 5)}})
    rng, method = np.random.default_rng(0), Voting(agreed)
    federation = ArrayFederation(agreed, Records(rng.normal(size=(48, 2)), rng.integers(0, 3, 48)), np.arange(48) % 8)
    students = [
        local.run(
            method, method.plan(), federation, Conditions(secrets=SecretStream(bytes(range(32)))), processes=processes
        ).release.weights
        for processes in (False, True)
    ]
    assert np.array_equal(students[0], students[1])


@pytest.mark.long
def test_a_tallier_that_dies_ends_a_run_in_an_abort_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = study(tmp_path).model_dump(exclude_none=True)
    agreed = make_study({**content, "summation": {"protocol": "tally", "deadline": 500.0}})
    rng = np.random.default_rng(0)
    finish, start, pids = TallyCoordinator.finish, HelperProcess.start, []

    def noted(helper: HelperProcess) -> None:
        pids.append(helper.pid)
        start(helper)

    def after_a_death(coordinator: TallyCoordinator) -> list[Envelope]:
        os.kill(pids[1], signal.SIGKILL)
        return finish(coordinator)

    monkeypatch.setattr(HelperProcess, "start", noted)
    monkeypatch.setattr(TallyCoordinator, "finish", after_a_death)
    started = time.monotonic()
    with pytest.raises(Aborted, match=r"tallier:1 died \(killed by SIGKILL\)\. Vectors may have left once"):
        unspoken.simulate(agreed, rng.normal(size=(48, 2)), rng.integers(0, 3, 48), np.arange(48) % 8, processes=True)
    # At once, long before the deadline.
    assert time.monotonic() - started < 250.0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_processes_are_for_talliers_only(tmp_path: Path) -> None:
    arrays = np.zeros((48, 2)), np.arange(48) % 3, np.arange(48) % 8
    with pytest.raises(ValueError, match=r"processes are for talliers, but the study's summation is \"ideal\""):
        unspoken.simulate(study(tmp_path), *arrays, processes=True)
