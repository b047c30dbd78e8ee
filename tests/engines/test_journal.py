"""A run that is cut off goes on: nothing is asked of parties twice, and a repeated turn says the same again."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import unspoken
from unspoken.engines.exchange import Exchange
from unspoken.errors import UnspokenError

OPTIONS: dict[str, dict[str, object]] = {
    "cape": {"function": "network", "steps": 5, "hidden": 2},
    "moments": {"steps": 5},
    "cross-silo": {"model": "linear", "rounds": 6, "rate": 0.5},
}


def watched_run(method: str, checkpoint: str, crash: int = 0) -> tuple[list[str], float]:
    """What each turn's total was, and the epsilon; the process dies when it has made total number `crash`."""
    study = {
        "study": {"name": "cut", "task": "classification"},
        "data": {"features": 3, "classes": 2},
        "parties": {"count": 4, "records": 10, "max_records": 10},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "method": {"name": method, **OPTIONS[method]},
    }
    turns: list[str] = []
    run = Exchange.run

    def watched(exchange: Any, *arguments: Any, **keywords: Any) -> Any:
        coordinator = run(exchange, *arguments, **keywords)
        turns.append(coordinator.total().tobytes().hex()[:64])
        if len(turns) == crash:
            print(*turns, flush=True)
            os._exit(9)
        return coordinator

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    with mock.patch.object(Exchange, "run", watched):
        result = unspoken.simulate(study, features, labels, np.arange(40) % 4, checkpoint=checkpoint)
    return turns, result.certificate["happened"]["epsilon"]


@pytest.mark.parametrize("method", OPTIONS)
def test_a_run_that_was_killed_goes_on_and_repeats_only_the_turn_that_was_cut(method: str, tmp_path: Path) -> None:
    """Killed when a turn's total was made but not yet kept: the next process makes the same total again."""
    path = str(tmp_path / "run.checkpoint")
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {Path(__file__).stem} as tests; "
    command = [sys.executable, "-c", f"{program} tests.watched_run({method!r}, {path!r}, 3)"]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert killed.returncode == 9, killed.stderr
    first = killed.stdout.split()
    assert len(first) == 3
    second, epsilon = watched_run(method, path)
    assert second[0] == first[2]
    assert len(set(first + second)) == 6
    assert epsilon <= 2.0
    # All turns are over: whoever runs it again only reads.
    assert watched_run(method, path) == ([], epsilon)


def small(**changes: object) -> dict[str, object]:
    return {
        "study": {"name": "kept", "task": "classification"},
        "data": {"features": 2, "classes": 2},
        "parties": {"count": 3},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "method": {"name": "moments", "steps": 2},
        **changes,
    }


def test_secrets_of_finished_turns_are_gone_and_the_file_is_the_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "kept.checkpoint"
    features, labels, groups = np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3)
    unspoken.simulate(small(), features, labels, groups, checkpoint=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with sqlite3.connect(path) as base:
        rows = base.execute("SELECT secret, entry FROM turns").fetchall()
    assert len(rows) == 3
    assert all(secret is None and entry is not None for secret, entry in rows)


def test_a_checkpoint_serves_its_own_run_only(tmp_path: Path) -> None:
    path = tmp_path / "kept.checkpoint"
    features, labels, groups = np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3)
    unspoken.simulate(small(), features, labels, groups, checkpoint=path)
    with pytest.raises(UnspokenError, match="another study or other data"):
        unspoken.simulate(small(), features[[1, 0, 1]], labels, groups, checkpoint=path)
    with pytest.raises(UnspokenError, match="another study or other data"):
        unspoken.simulate(small(privacy={"epsilon": 1.0, "delta": 1e-5}), features, labels, groups, checkpoint=path)
    path.write_bytes(b"no database")
    with pytest.raises(UnspokenError, match="cannot be used as a checkpoint"):
        unspoken.simulate(small(), features, labels, groups, checkpoint=path)
    assert path.read_bytes() == b"no database"
