"""Results of the command line can be kept: nothing is overwritten, and names can be copied; and help is never far."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from unspoken.cli import app

STUDY = """\
study = { name = "side", task = "classification" }
data = { features = 4, classes = 2 }
parties = { count = 5, records = 60, max_records = 60 }
privacy = { epsilon = 1.0, delta = 1e-5 }
method = { name = "moments" }
summation = { protocol = "ideal" }
[compare.strong]
method = "helmet"
regularization = 1.0
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study and records, in which commands run."""
    features = np.random.default_rng(0).normal(size=(300, 4))
    np.savez(tmp_path / "data.npz", X=features, y=(features[:, 0] > 0.0).astype(np.int64))
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, status: int = 0) -> Result:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == status, done.output
    return done


COMPARE = ("compare", "study.toml", "--data", "data.npz", "--test", "data.npz", "--jobs", "1", "--methods")


def test_a_second_run_leaves_the_first_as_it_is(here: Path) -> None:
    simulate = ("simulate", "study.toml", "--data", "data.npz")
    assert "earlier runs" not in run(*simulate).stdout
    first = {path: path.read_bytes() for path in here.glob("side*")}
    assert {path.name for path in first} == {"side.model.skops", "side.certificate.json"}
    again = run(*simulate).stdout
    assert "side-2.model.skops" in again
    assert "Files of earlier runs are there too, as they were; these have a number." in again
    assert json.loads(run(*simulate, "--json").stdout)["files"]["certificate"] == "side-3.certificate.json"
    assert {path: path.read_bytes() for path in first} == first


def test_a_long_path_is_not_broken(here: Path) -> None:
    folder = "/".join(["a-folder-with-a-name-of-some-length"] * 4)
    shown = run("simulate", "study.toml", "--data", "data.npz", "--output", folder).stdout
    assert f"{folder}/side.model.skops\n" in shown
    assert f"{folder}/side.certificate.json\n" in shown


def test_a_folder_that_takes_no_file_is_left_as_it_was(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("simulate", "study.toml", "--data", "data.npz", "--output", "out", status=2)
    told = "unspoken: out: cannot be written to (No space left on device); nothing was left there; choose another "
    assert done.stderr == f"{told}--output.\n"
    assert {path.name for path in here.iterdir()} == {"study.toml", "data.npz"}


def test_a_comparison_keeps_every_run_and_overwrites_nothing(here: Path) -> None:
    options = ("moments,strong,none", "--epsilons", "1", "--repeats", "2", "--table", "runs.csv", "--plot", "runs.svg")
    found = json.loads(run(*COMPARE, *options, "--seed", "3", "--json").stdout)
    assert [(point["variant"], point["method"], point["computes"]) for point in found["points"]] == [
        ("moments", "moments", "softmax, by rule"),
        ("strong", "helmet", "softmax"),
        ("none", "none", "softmax, by rule"),
    ]
    table = pd.read_csv("runs.csv")
    assert [run["metrics"]["accuracy"] for run in found["runs"]] == table["accuracy"].tolist()
    assert [run["study_sha256"] for run in found["runs"]] == table["study_sha256"].tolist()
    assert found["train_sha256"] == found["test_sha256"] == table["train_sha256"][0]
    assert found["versions"]["unspoken"] == table["version_unspoken"][0]
    assert {run["seed"] for run in found["runs"]} == {3}
    assert (found["simulation"], found["table"], found["plot"]) == (True, "runs.csv", "runs.svg")
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    assert before.keys() == {"study.toml", "data.npz", "runs.csv", "runs.svg"}
    for given in (("--table", "runs.csv"), ("--plot", "runs.svg")):
        told = run(*COMPARE, "moments", *given, status=2).stderr
        assert told == f"unspoken: {given[1]}: exists already; choose another name, or overwrite it with --force.\n"
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before
    assert "simulations: all parties were in one place" in run(*COMPARE, *options, "--force").stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("moments", "--by", "luck"), "--by is 'luck', but should be one of: epsilon, parties, upload."),
        (("moments", "--parties", "5,x"), "--parties is '5,x', but should be whole numbers from 1 to"),
        (("moments", "--table", "runs.txt"), "runs.txt: cannot hold a table; name a .csv or .parquet file in a folder"),
        (("moments", "--plot", "no/runs.png"), "no/runs.png: cannot hold a plot; name a .png, .svg or .pdf file in a"),
        (("moments", "--variant", "x"), "--variant is 'x', but should be a name and its keys, such as strong ="),
        (
            ("moments", "--variant", "odd = { regularization = 1.0 }"),
            "--variant is 'odd = { regularization = 1.0 }', in which odd names no method",
        ),
        (("moments", "--by", "upload"), "--by is 'upload', but it is the axis of a plot; add --plot FILE, or leave it"),
        (("moments", "--jobs", "0"), "--jobs is 0, but should be 1 or more."),
        (("srong",), 'the method to compare with is "srong", but should be one of'),
        (("",), "--methods is '', but should name methods, some of: strong,"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_sentence(here: Path, options: tuple[str, ...], words: str) -> None:
    done = run(*COMPARE, *options, status=2)
    assert done.stderr.startswith(f"unspoken: {words}")
    assert done.stderr.count("\n") == 1
    assert not done.stderr.endswith("?.\n")
    assert done.stdout == ""


def test_a_comparison_that_is_refused_leaves_nothing_behind(here: Path) -> None:
    before = {path.name for path in here.iterdir()}
    given = (
        "compare",
        "study.toml",
        "--data",
        "data.npz",
        "--jobs",
        "1",
        "--methods",
        "moments",
        "--table",
        "runs.csv",
    )
    told = run(*given, "--hold-out", "0.9", "--repeats", "1", status=2).stderr
    assert "but the study's [parties] asks for at least" in told
    assert {path.name for path in here.iterdir()} == before


def test_a_comparison_runs_variants_and_says_where_nothing_is_learnt(here: Path) -> None:
    given = ("moments", "--variant", 'weak = { method = "helmet", regularization = 0.2 }', "--epsilons", "0.001,50")
    found = json.loads(run(*COMPARE, *given, "--repeats", "1", "--json").stdout)
    assert [point["variant"] for point in found["points"]] == ["moments"] * 2 + ["weak"] * 2
    said = [text for text in found["remarks"] if "the noise hides almost all" in text]
    assert [text.partition(": ")[0] for text in said] == ["moments at epsilon = 0.001", "weak at epsilon = 0.001"]


def test_a_comparison_tells_before_its_runs_where_noise_hides_everything(here: Path) -> None:
    done = run(*COMPARE, "moments", "--epsilons", "0.001,50", "--repeats", "1")
    told = done.stderr.splitlines()[0]
    assert told.startswith("unspoken: note: moments at epsilon = 0.001: the noise hides almost all that the ")
    assert done.stderr.count("the noise hides") == 1
    assert "the noise hides" not in done.stdout


def test_a_data_set_is_named_with_a_ledger_only(here: Path) -> None:
    told = run("simulate", "study.toml", "--data", "data.npz", "--dataset", "x", status=2).stderr
    assert told == "unspoken: --dataset is 'x', but it names records in a ledger; add --ledger FILE.\n"


@pytest.mark.parametrize("command", ["demo", "new", "plan", "simulate", "compare", "degrees"])
def test_help_is_one_letter_away(command: str) -> None:
    assert run(command, "-h").stdout == run(command, "--help").stdout
    assert "Usage:" in run("-h").stdout


@pytest.mark.parametrize(
    ("asked", "answered"), [({"_UNSPOKEN_COMPLETE": "source_bash"}, "complete -o default -F"), ({}, "simulate")]
)
def test_a_shell_completes_commands(asked: dict[str, str], answered: str) -> None:
    words = {"_UNSPOKEN_COMPLETE": "complete_bash", "COMP_WORDS": "unspoken si", "COMP_CWORD": "1", **asked}
    command = [sys.executable, "-m", "unspoken"]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, timeout=500, check=True)
    assert answered in done.stdout


def test_a_plan_for_programs_has_its_scale(here: Path) -> None:
    plan = json.loads(run("plan", "study.toml", "--json").stdout)
    assert plan["computes"] == "softmax, by rule"
    assert [scale["release"] for scale in plan["scales"]] == ["scale", "spread", "function"]
    scale = plan["scales"][-1]
    assert (scale["release"], scale["unit"], scale["among"]) == ("function", "record", 300)
    assert scale["seen_from"] > 1
    assert 0.0 < scale["noise_share"] < 1.0
