"""The program as a whole: help, version and degrees, how fast it starts, and output that cannot be shown or written."""

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import answer, changed, complaint, in_process, people, shown, strict, unspoken
from unspoken.cli import app
from unspoken.cli.answers import print_json


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_output_that_cannot_be_written_is_told_in_one_sentence(folder: Path) -> None:
    told = "unspoken: standard output cannot be written to (No space left on device); send it elsewhere.\n"
    for options in ([], ["--json"]):
        with Path("/dev/full").open("w") as full:
            done = in_process(folder, "plan", "study.toml", *options, out=full)
        assert (done.returncode, done.stderr) == (2, told)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "unspoken", "--help"]
        program = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=500, check=False)
    assert (program.returncode, program.stderr) == (2, told)


def test_what_a_terminal_cannot_show_is_replaced_and_json_stays_whole(folder: Path) -> None:
    changed(folder, '"f", "m"', '"é", "m"')
    for options in ([], ["--json"]):
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        done = in_process(folder, "plan", "study.toml", *options, out=out)
        assert (done.returncode, done.stderr) == (0, "")
        printed = out.buffer.getvalue()
        assert b"release ?model?" in printed or options
    assert json.loads(printed)["study"] == "heart"


def test_help_is_quick(tmp_path: Path) -> None:
    """Seen: 0.3 processor seconds. With what computes (scipy, pandas, …) it would be several times as much."""
    seconds = []
    for _ in range(3):
        before = os.times()
        assert "simulate" in shown(tmp_path, "--help", run=unspoken)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    assert min(seconds) < 1.0


@pytest.mark.parametrize("command", [[], ["plan"], ["compare"], ["roster"], ["ledger"], ["ledger", "show"]])
def test_help_shows_flags_without_a_value_and_no_types_of_the_language(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "-h"], env={"COLUMNS": "120", "NO_COLOR": "1"})
    assert done.exit_code == 0
    assert "--help" in done.stdout
    assert not re.search(r"bool|--\S+ +<list", done.stdout, re.IGNORECASE)


def test_importing_unspoken_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"numpy", "scipy", "sklearn", "pandas", "numba"}
    code = f"import sys, unspoken, unspoken.cli; print(*{heavy} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=True
    )
    assert done.stdout.split() == []


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", shown(tmp_path, "--version", run=unspoken))


def test_the_degrees_of_secagg_plus_are_shown(tmp_path: Path) -> None:
    assert "139 (112)" in shown(tmp_path, "degrees")
    assert "140 (113)" in shown(tmp_path, "degrees", "--coordinator", "curious")
    rows = answer(tmp_path, "degrees", "--json")["degrees"]
    assert {"parties": 1000, "colluding": 0.5, "neighbours": 139, "threshold": 112, "unseen": 3} in rows
    assert '--coordinator is "kind"' in complaint(tmp_path, "degrees", "--coordinator", "kind")
    assert "--dropouts is 1.5" in complaint(tmp_path, "degrees", "--dropouts", "1.5")


def test_what_is_no_number_is_null_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"mean": math.nan, "of": [math.inf, (1.5, -math.inf)], "in": {"deep": {"down": 2}}})
    assert strict(capsys.readouterr().out) == {"mean": None, "of": [None, [1.5, None]], "in": {"deep": {"down": 2}}}


LOUD = """\
import subprocess

import numpy as np


class Voter:
    def fit(self, X, y):
        print("trains in Python")
        subprocess.run(["echo", "trains in a process"])
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)
"""


def test_what_a_voter_prints_is_no_part_of_the_answer_to_a_program(tasks: Callable[..., Path]) -> None:
    folder = tasks("classification", "voting", 'model = "loud:Voter"\nqueries = 5\n')
    (folder / "loud.py").write_text(LOUD, encoding="utf-8")
    people().drop(columns="died").to_csv(folder / "public.csv", index=False)
    changed(folder, "[data]\n", '[data]\npublic = "public.csv"\n')
    told = unspoken(folder, "plan", "study.toml", "--json")
    assert told.returncode == 0, told.stderr
    assert strict(told.stdout)["method"] == "voting"
    assert {"trains in Python", "trains in a process"} <= set(told.stderr.splitlines())
