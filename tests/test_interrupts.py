"""An interrupt from the keyboard is answered by one sentence that says what is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from network.town import NAMES, Town
from unspoken import Ledger
from unspoken.cli import app
from unspoken.engines import local
from unspoken.simulation import runs
from unspoken.sites import joining, serving

STUDY = """
study = { name = "heart", task = "classification" }
data = { features = 3, norm = 1.0, classes = 2 }
parties = { count = 4, records = 5 }
privacy = { epsilon = 10.0, delta = 1e-5 }
method = { name = "helmet" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 3))
    np.savez("records.npz", X=features / np.linalg.norm(features, axis=1, keepdims=True), y=rng.integers(2, size=20))
    Path("heart.toml").write_text(STUDY)
    return tmp_path


def interrupts(*given: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


def simulate(*more: str) -> Result:
    command = ["simulate", "heart.toml", "--data", "records.npz", "--output", "results", *more]
    said = CliRunner().invoke(app, command)
    assert (said.exit_code, said.stdout, Path("results").exists()) == (130, "", False)
    assert said.stderr.count("\n") == 1
    return said


def test_a_simulation_has_written_nothing_and_says_what_it_charged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run", interrupts)
    assert simulate().stderr == "unspoken: interrupted; no result was written.\n"
    charged = simulate("--ledger", "ledger.sqlite", "--dataset", "wards", "--json").stderr
    assert charged == 'unspoken: interrupted; no result was written; "wards" is charged for it all the same.\n'
    assert len(Ledger(folder / "ledger.sqlite", "wards").account().charges) == 1
    monkeypatch.setattr(runs, "_charge", interrupts)
    early = simulate("--ledger", "ledger.sqlite", "--dataset", "wards").stderr
    assert early == "unspoken: interrupted; no result was written; nothing was charged.\n"


def test_with_a_checkpoint_it_says_how_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "run", interrupts)
    assert "; the same command goes on from run.checkpoint." in simulate("--checkpoint", "run.checkpoint").stderr


def test_other_commands_say_so_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspoken.methods.registry.plan_for", interrupts)
    said = CliRunner().invoke(app, ["plan", "heart.toml"])
    assert (said.exit_code, said.stderr) == (
        130,
        "unspoken: interrupted; nothing is half written, and what was finished stays.\n",
    )


@pytest.mark.parametrize("command", ["serve", "join"])
def test_a_study_across_machines_says_how_to_go_on(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(tmp_path)
    town.stop()
    monkeypatch.chdir(tmp_path)
    name = "hub" if command == "serve" else NAMES[0]
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / name))
    monkeypatch.setattr(joining, "warm_up", interrupts)
    monkeypatch.setattr(serving, "Server", interrupts)
    given = {
        "serve": ["serve", "study.toml", "--listen", "127.0.0.1:0"],
        "join": ["join", "study.toml", "--data", f"{name}.npz", "--coordinator", "127.0.0.1:9", "--yes"],
    }
    said = CliRunner().invoke(app, given[command])
    assert said.exit_code == 130
    told = "unspoken: interrupted; the same command goes on where it was; "
    kept = {
        "serve": "an attempt under way is given up, and is spent if vectors may have left.",
        "join": "of this study nothing is spent.",
    }
    assert told + kept[command] in said.stderr
