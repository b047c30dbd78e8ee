"""Commands run in a folder, what they print and write, and small studies and records for them.

One test of each kind starts the real program (`run=unspoken`); the others call it in this process.
"""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
import pytest

from unspoken.cli import app

STUDY = """\
[study]
name = "heart"
task = "classification"

[data]
label = "died"
classes = ["no", "yes"]
[data.columns]
age = { min = 0, max = 110 }
sex = { categories = ["f", "m"] }

[parties]
count = 20
records = 5

[privacy]
epsilon = 3.0
delta = 1e-5
colluding = 0.1
dropouts = 2

[method]
name = "helmet"
regularization = 0.1
"""

PLAN_FIELDS = {"method", "guarantee", "releases", "rounds", "upload_bytes"}
GUARANTEE_FIELDS = {"epsilon", "delta", "unit", "adjacency", "colluding", "dropouts"}
RELEASE_FIELDS = {"name", "sensitivity", "noise_std", "count"}
SIMULATION_FIELDS = PLAN_FIELDS | {"metrics", "survivors", "seconds", "bytes"}


Run = Callable[..., subprocess.CompletedProcess[str]]


def unspoken(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a folder."""
    command = [sys.executable, "-m", "unspoken", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)


def in_process(folder: Path, *arguments: str, out: TextIO | None = None) -> subprocess.CompletedProcess[str]:
    """The same without starting a program, which takes seconds. What it prints is in the result, or goes `out`."""
    captured, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(captured if out is None else out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        app(arguments, prog_name="unspoken")
    return subprocess.CompletedProcess(arguments, int(end.value.code or 0), captured.getvalue(), err.getvalue())


def without_notes(err: str) -> str:
    """Standard error without notes on records: small random ones fit hardly any study."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("unspoken: note: "))


def answer(folder: Path, *arguments: str, run: Run = in_process) -> dict[str, Any]:
    """The one JSON object that a command prints, and nothing else."""
    done = run(folder, *arguments, "--json")
    assert (done.returncode, without_notes(done.stderr)) == (0, "")
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


def shown(folder: Path, *arguments: str, run: Run = in_process) -> str:
    """What a command prints for people, as one line."""
    done = run(folder, *arguments)
    assert (done.returncode, without_notes(done.stderr)) == (0, "")
    return " ".join(done.stdout.split())


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def complaint(folder: Path, *arguments: str, run: Run = in_process, status: int = 2) -> str:
    """The one sentence on standard error of a command that failed, and left everything as it was; without notes."""
    before = contents(folder)
    done = run(folder, *arguments)
    assert contents(folder) == before
    assert (done.returncode, done.stdout) == (status, "")
    told = without_notes(done.stderr)
    assert told.startswith("unspoken: ")
    assert told.count("\n") == 1
    assert told.endswith("\n")
    return told.removeprefix("unspoken: ").rstrip("\n")


def people(count: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(0, 110, size=count).round(1), rng.choice(["f", "m"], size=count)
    return pd.DataFrame({"age": age, "sex": sex, "died": np.where(age > 60, "yes", "no")})


def changed(folder: Path, old: str, new: str) -> None:
    path = folder / "study.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


KINDS = {
    "classification": 'label = "died"\nclasses = ["no", "yes"]\n',
    "regression": 'label = "pressure"\nlabel_bounds = [50, 250]\n',
    "statistics": "",
}
METHOD = '[method]\nname = "helmet"\nregularization = 0.1\n'


def strict(text: str) -> dict[str, Any]:
    """One JSON object, without the NaN and Infinity that JSON does not have."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    content = json.loads(text, parse_constant=refuse)
    assert isinstance(content, dict)
    return content


def measured(count: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return people(count).assign(pressure=lambda frame: 100 + frame["age"] + rng.normal(scale=5, size=count))
