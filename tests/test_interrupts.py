"""An interrupt from the keyboard is answered by one sentence that says what is left behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from network.town import NAMES, Town
from unspoken import Ledger
from unspoken import interrupts as asked
from unspoken.cli import app, program
from unspoken.data.files import _read_csv
from unspoken.engines import local
from unspoken.report import results, terminal
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
    monkeypatch.setattr("unspoken.methods.registry.checked_plan", interrupts)
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


def test_after_the_run_it_says_what_was_written_and_charged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["simulate", "heart.toml", "--data", "records.npz", "--output", "results"]
    command += ["--ledger", "ledger.sqlite", "--dataset", "wards"]
    with monkeypatch.context() as early:
        early.setattr(results, "write", interrupts)
        said = CliRunner().invoke(app, command)
        assert (said.exit_code, said.stderr.splitlines()[-1]) == (
            130,
            'unspoken: interrupted; no result was written; "wards" is charged for it all the same.',
        )
    monkeypatch.setattr(terminal, "show_run", interrupts)
    said = CliRunner().invoke(app, command)
    files = "results/heart.model.skops, results/heart.certificate.json"
    assert (said.exit_code, said.stderr.splitlines()[-1]) == (
        130,
        f'unspoken: interrupted; the result was written ({files}); "wards" is charged for it.',
    )


def test_while_modules_are_imported_there_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    program = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import unspoken.cli"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    told = "unspoken: interrupted; nothing is half written, and what was finished stays.\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)


def test_while_a_table_is_read_it_is_no_mistake_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*given: Any, **named: Any) -> Any:
        """As pandas, whose parser only knows that a call to read has failed."""
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ValueError("Error tokenizing data. C error: Calling read(nbytes) on source failed.")

    (tmp_path / "records.csv").write_text("age,died\n50,yes\n")
    monkeypatch.setattr(pd, "read_csv", failing)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        _read_csv(tmp_path / "records.csv", ["age", "died"], ())
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("is_before", [True, False])
def test_one_that_python_ignores_still_ends_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    class Ending:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def then(function: Any) -> Any:
        def called(*given: Any, **named: Any) -> Any:
            Ending()
            return function(*given, **named)

        return called

    monkeypatch.setattr("unspoken.interrupts._AGAIN", 1000.0)
    for hook in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, hook, getattr(sys, hook))
    asked.hear()
    if is_before:
        monkeypatch.setattr(runs.RunSettings, "connected", then(runs.RunSettings.connected))
    else:
        monkeypatch.setattr(local, "run", then(local.run))
    said = CliRunner().invoke(
        app, ["simulate", "heart.toml", "--data", "records.npz", "--output", "out", "--ledger", "l", "--dataset", "w"]
    )
    left = "nothing was charged" if is_before else '"w" is charged for it all the same'
    assert said.exit_code == 130
    assert said.stderr.endswith(f"unspoken: interrupted; no result was written; {left}.\n")
    assert not list(folder.glob("out/*"))


def test_one_that_python_ignores_comes_again() -> None:
    program = """
import time
import unspoken.cli

class Ending:
    def __del__(self):
        raise KeyboardInterrupt

Ending()
time.sleep(30)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (130, 1)


def test_before_a_command_begins_it_is_answered_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Command, "parse_args", interrupts)
    said = CliRunner().invoke(app, ["plan", "heart.toml"])
    assert (said.exit_code, said.stderr) == (
        130,
        "unspoken: interrupted; nothing is half written, and what was finished stays.\n",
    )
