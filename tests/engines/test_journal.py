"""A run that is cut off goes on: nothing is asked of parties twice, and a repeated turn says the same again."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unspoken
from unspoken.errors import UnspokenError

STUDY = """
import os, sys
import numpy as np
import unspoken
from unspoken.engines import local

method, checkpoint, crash = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = {
    "cape": {"function": "network", "steps": 5, "hidden": 2},
    "moments": {"steps": 5},
    "cross-silo": {"model": "linear", "rounds": 6, "rate": 0.5},
}[method]
study = {
    "study": {"name": "cut", "task": "classification"},
    "data": {"features": 3, "classes": 2},
    "parties": {"count": 4, "records": 10, "max_records": 10},
    "privacy": {"epsilon": 2.0, "delta": 1e-5},
    "method": {"name": method, **options},
}
turns = 0
run = local._Exchange.run

def watched(exchange, *arguments, **keywords):
    global turns
    coordinator = run(exchange, *arguments, **keywords)
    turns += 1
    print("turn", coordinator.total().tobytes().hex()[:64], flush=True)
    if turns == crash:
        os._exit(9)
    return coordinator

local._Exchange.run = watched
rng = np.random.default_rng(0)
X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
result = unspoken.simulate(study, X, y, np.arange(40) % 4, checkpoint=checkpoint)
print("epsilon", result.certificate["happened"]["epsilon"])
"""


def run(tmp_path: Path, method: str, crash: int) -> tuple[int, list[str], list[str]]:
    script = tmp_path / "run.py"
    script.write_text(STUDY)
    command = [sys.executable, str(script), method, str(tmp_path / "run.checkpoint"), str(crash)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if line.startswith("turn")], lines


@pytest.mark.parametrize("method", ["moments", "cape", "cross-silo"])
def test_a_run_that_was_killed_goes_on_and_repeats_only_the_turn_that_was_cut(method: str, tmp_path: Path) -> None:
    """Killed when a turn's total was made but not yet kept: the next process makes the same total again."""
    status, first, _ = run(tmp_path, method, 3)
    assert (status, len(first)) == (9, 3)
    status, second, lines = run(tmp_path, method, 0)
    assert status == 0
    assert second[0] == first[2]
    assert len(set(first + second)) == 6
    assert float(lines[-1].split()[1]) <= 2.0
    # All turns are over: whoever runs it again only reads.
    status, third, again = run(tmp_path, method, 0)
    assert (status, third, again[-1]) == (0, [], lines[-1])


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
