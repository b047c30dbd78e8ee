"""The program, from the outside: what it prints, what it writes, and how it says that something is wrong.

One test of each kind starts the real program (`run=unspoken`); the others call it in this process.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
import pytest
import skops.io

from unspoken.cli import app
from unspoken.cli.program import print_json
from unspoken.privacy.gaussian import delta_of
from unspoken.summation.base import Aborted, SignedStatement

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
MATRIX = STUDY[: STUDY.index("[data]")] + "[data]\nfeatures = 4\nclasses = 3\n\n" + STUDY[STUDY.index("[parties]") :]

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
    """The one sentence on standard error of a command that failed, and left everything as it was."""
    before = contents(folder)
    done = run(folder, *arguments)
    assert contents(folder) == before
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("unspoken: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("\n")
    return done.stderr.removeprefix("unspoken: ").rstrip("\n")


def people(count: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(0, 110, size=count).round(1), rng.choice(["f", "m"], size=count)
    return pd.DataFrame({"age": age, "sex": sex, "died": np.where(age > 60, "yes", "no")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of a table, with data to learn from and to test on."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    people().to_csv(tmp_path / "train.csv", index=False)
    people(seed=1).to_parquet(tmp_path / "test.parquet")
    return tmp_path


def changed(folder: Path, old: str, new: str) -> None:
    path = folder / "study.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.long
def test_the_demo_learns_and_says_what_privacy_costs(tmp_path: Path) -> None:
    text = shown(tmp_path, "demo")
    private, pooled, alone = (
        float(re.search(rf"{re.escape(name)} +(\d+\.\d) %", text)[1])
        for name in ("accuracy, private", "not private, all data in one place", "of a party alone (average)")
    )
    assert alone < private < pooled
    assert "100 of 100 took part to the end" in text
    assert "Guarantee. Whoever sees the result, even a lying coordinator together with 10 of the 100 parties" in text
    written = {path.name for path in (tmp_path / "unspoken-demo").iterdir()}
    assert written == {"study.toml", "train.npz", "test.npz", "digits.model.skops", "digits.certificate.json"}
    assert "unspoken-demo/digits.certificate.json" in text.replace(" ", "").replace("\n", "")
    # What it suggests to do next works.
    suggested = text[text.rindex("unspoken simulate ") :].split()[1:]
    assert re.search(r"accuracy \d+\.\d %", shown(tmp_path, *suggested))


@pytest.mark.long
def test_the_demo_for_programs_prints_one_object(tmp_path: Path) -> None:
    result = answer(tmp_path, "demo", "--output", "here")
    assert result.keys() >= SIMULATION_FIELDS | {"comparison", "files"}
    assert result["survivors"] == 100
    # The accuracy of the demo varies by about 0.035 around 0.8; guessing would give 0.1.
    assert result["metrics"]["accuracy"] > 0.5
    for path in result["files"].values():
        assert (tmp_path / path).is_file()


@pytest.mark.parametrize("kind", [[], ["--matrix"]])
def test_a_new_study_can_be_planned_as_it_is(tmp_path: Path, kind: list[str]) -> None:
    assert "unspoken plan study.toml" in shown(tmp_path, "new", "--name", "lung-2.1", *kind)
    result = answer(tmp_path, "plan", "study.toml")
    assert result["study"] == "lung-2.1"
    assert ("features = " in (tmp_path / "study.toml").read_text(encoding="utf-8")) == bool(kind)


def test_a_new_study_overwrites_nothing_unless_told_to(folder: Path) -> None:
    sentence = "study.toml: exists already; choose another name, or overwrite it with --force."
    assert complaint(folder, "new") == sentence
    assert answer(folder, "new", "study.toml", "--force") == {"study": "study.toml"}
    assert (folder / "study.toml").read_text(encoding="utf-8") != STUDY


def test_a_new_study_needs_a_possible_name_and_place(tmp_path: Path) -> None:
    for name, written in (('a"b', r"a\"b"), ("a\nb", r"a\nb"), ("a\\b", r"a\\b"), ("", "")):
        sentence = complaint(tmp_path, "new", "--name", name)
        assert sentence.startswith(f'--name: [study] name is "{written}", but should be a name of letters, digits')
    place = complaint(tmp_path, "new", "no/where.toml")
    assert place == (
        "no/where.toml: cannot be written to (No such file or directory); nothing was left there; choose another place."
    )


def test_a_plan_has_the_documented_fields(folder: Path) -> None:
    result = answer(folder, "plan", "study.toml", run=unspoken)
    assert result.keys() >= PLAN_FIELDS
    assert (result["method"], result["rounds"]) == ("helmet", 1)
    assert isinstance(result["upload_bytes"], int)
    guarantee = result["guarantee"]
    assert guarantee.keys() >= GUARANTEE_FIELDS
    assert 2.9 < guarantee["epsilon"] <= 3.0
    assert {key: guarantee[key] for key in GUARANTEE_FIELDS - {"epsilon"}} == {
        "delta": 1e-5,
        "unit": "record",
        "adjacency": "replace",
        "colluding": 2,
        "dropouts": 2,
    }
    (release,) = result["releases"]
    assert release.keys() >= RELEASE_FIELDS
    assert (release["name"], release["count"]) == ("model", 1)
    # sensitivity / noise_std is the μ that the adversary faces.
    assert delta_of(release["sensitivity"] / release["noise_std"], guarantee["epsilon"]) == pytest.approx(1e-5)


def test_a_plan_for_people_states_the_guarantee_in_words(folder: Path) -> None:
    text = shown(folder, "plan", "study.toml")
    assert "20; 2 may collude and 2 may drop out; the noise is sized for the 16 that then remain" in text
    assert "Guarantee. Whoever sees the result, even a lying coordinator together with 2 of the 20 parties" in text
    assert "epsilon = 3, delta = 1e-05" in text


@pytest.mark.parametrize(
    ("colluding", "dropouts", "attempts", "told"),
    [
        (19, 0, 1, "20; 19 may collude and 0 may drop out; the noise is sized for the one that then remains; if any"),
        (
            0,
            2,
            1,
            "20; none collude, but each knows its own noise, and 2 may drop out; the noise is sized for the 17 that",
        ),
        (2, 2, 3, "; up to 3 times as much if attempts fail"),
    ],
)
def test_a_plan_counts_parties_and_bytes_in_words_that_add_up(
    folder: Path, colluding: int, dropouts: int, attempts: int, told: str
) -> None:
    changed(folder, "colluding = 0.1", f"colluding = {colluding}\nattempts = {attempts}")
    changed(folder, "dropouts = 2", f"dropouts = {dropouts}")
    assert told in shown(folder, "plan", "study.toml")


def test_a_table_is_learnt_and_the_model_and_the_certificate_are_written(folder: Path) -> None:
    result = answer(
        folder, "simulate", "study.toml", "--data", "train.csv", "--test", "test.parquet", "--output", "out"
    )
    assert result.keys() >= SIMULATION_FIELDS
    assert result["metrics"].keys() == {"accuracy", "balanced_accuracy"}
    assert result["survivors"] == 20
    certificate = json.loads((folder / result["files"]["certificate"]).read_text(encoding="utf-8"))
    assert certificate["guarantee"] == result["guarantee"]
    assert certificate["study_sha256"] == result["study_sha256"]
    model = skops.io.load(folder / result["files"]["model"], trusted=[])
    assert model.score(people(seed=1), people(seed=1)["died"]) == result["metrics"]["accuracy"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["heart.certificate.json", "heart.model.skops"]


def test_a_parquet_file_is_learnt_with_other_parties_another_split_and_dropouts(folder: Path) -> None:
    options = ["--parties", "10", "--split", "by-class", "--drop", "2", "--seed", "5"]
    text = shown(folder, "simulate", "study.toml", "--data", "test.parquet", *options)
    assert "8 of 10 took part to the end" in text
    assert "training accuracy" in text
    assert (folder / "heart.model.skops").is_file()


def test_a_matrix_is_learnt(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(MATRIX, encoding="utf-8")
    labels = np.arange(120) % 3
    np.savez(tmp_path / "train.npz", X=np.eye(4)[labels], y=labels)
    options = ["--data", "train.npz", "--test", "train.npz", "--split", "dirichlet:5", "--parties", "5"]
    result = answer(tmp_path, "simulate", "study.toml", *options)
    assert result["parties"] == 5
    assert 0.0 <= result["metrics"]["accuracy"] <= 1.0


def test_more_dropouts_than_allowed_end_the_run_and_nothing_is_written(folder: Path) -> None:
    message = complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--drop", "3", status=3)
    assert message.startswith("only 17 of 20 parties are left and the study asks for at least 18, so there is no total")
    assert "Vectors had left once and may have been opened in secret, so epsilon = " in message


def test_programs_are_told_what_ended_a_run_whom_it_is_blamed_on_and_what_they_signed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*arguments: Any, **options: Any) -> None:
        raise Aborted("there is no total", {"party:2": "it lied"}, (SignedStatement("party:2", b"\1", b"\2", b"\3"),))

    monkeypatch.setattr("unspoken.simulation.simulate_records", ended)
    before = contents(folder)
    done = in_process(folder, "simulate", "study.toml", "--data", "train.csv", "--json")
    assert (done.returncode, contents(folder)) == (3, before)
    assert done.stderr == "unspoken: there is no total. To blame: party 2 (it lied)\n"
    assert json.loads(done.stdout) == {
        "outcome": "aborted",
        "reason": "there is no total. To blame: party 2 (it lied)",
        "survivors": 0,
        "files": {},
        "blamed": ["party:2"],
        "evidence": [{"signer": "party:2", "statement": "01", "signature": "02", "exhibit": "03"}],
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epsilon =", "epsilom =", "study.toml, line 17: [privacy] epsilom is an unknown key; did you mean 'epsilon'?"),
        ("epsilon = 3.0", "epsilon = -3.0", "study.toml, line 17: [privacy] epsilon is -3.0, but should be a number"),
        (
            "age =",
            "weight =",
            "train.csv: lacks the column 'weight' that the study's [data] names; the file has: 'age'",
        ),
        ("count = 20", "count = 300", "200 records cannot be split over 300 parties; ask for fewer parties."),
    ],
)
def test_a_study_that_does_not_fit_is_told_in_one_sentence(folder: Path, old: str, new: str, expected: str) -> None:
    changed(folder, old, new)
    assert complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--output", "out").startswith(expected)


def test_a_value_that_does_not_fit_is_told_in_one_sentence(folder: Path) -> None:
    (folder / "wrong.csv").write_text("age,sex,died\n50,f,no\nnan,f,no\n", encoding="utf-8")
    assert complaint(folder, "simulate", "study.toml", "--data", "wrong.csv", "--json") == (
        "wrong.csv, line 3, column 'age': is 'nan', but should be a number (the study's bounds are 0 to 110); 1 of "
        '2 values is missing (50 %): give them, or let the study say what they mean: missing = "indicator", or a '
        "public value in their place."
    )


def test_a_file_that_is_not_there_is_told_in_one_sentence(folder: Path) -> None:
    sentence = "nowhere.toml: there is no such file; `unspoken new` writes a study to start from."
    assert complaint(folder, "plan", "nowhere.toml", "--json") == sentence


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--data", "nowhere.csv"], "nowhere.csv: there is no such file; name a CSV or Parquet file."),
        (["--data", "study.toml"], "study.toml: is a .toml file, but the study's [data] describes a table; name a CSV"),
        (
            ["--data", "train.csv", "--split", "fair"],
            "the split is 'fair', but should be iid, by-class, dirichlet:A",
        ),
        (
            ["--data", "train.csv", "--parties", "0"],
            "--parties is 0, but should be a whole number from 1 to 1000000000.",
        ),
        (
            ["--data", "train.csv", "--parties", "50"],
            "party 0 has 4 records, but the study's [parties] asks for at least",
        ),
        (["--data", "train.csv", "--parties", "many"], "Invalid value for '--parties': "),
        (["--data", "train.csv", "--drop", "21"], "--drop is 21, but should be from 0 to the number of parties, 20."),
        (["--data", "train.csv", "--seed", "-1"], "--seed is -1, but should be a whole number from 0 up."),
        (["--data", "train.csv", "--output", "study.toml"], "study.toml: is a file, but --output should be a folder;"),
        ([], "Missing option '--data'. (`unspoken simulate --help` says more.)"),
    ],
)
def test_an_option_that_does_not_fit_is_told_in_one_sentence(folder: Path, options: list[str], expected: str) -> None:
    assert complaint(folder, "simulate", "study.toml", *options).startswith(expected)


def test_comparing_no_methods_is_told_in_one_sentence(folder: Path) -> None:
    arguments = ["compare", "study.toml", "--data", "train.csv", "--test", "test.parquet", "--methods"]
    for none in ("", " , "):
        assert complaint(folder, *arguments, none).startswith(f"--methods is {none!r}, but should name methods")


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


def test_a_new_vote_says_where_its_public_file_is_named(tmp_path: Path) -> None:
    shown(tmp_path, "new", "vote.toml", "--method", "voting")
    line = 1 + (tmp_path / "vote.toml").read_text().splitlines().index(
        next(line for line in (tmp_path / "vote.toml").read_text().splitlines() if line.startswith("public ="))
    )
    told = complaint(tmp_path, "plan", "vote.toml")
    assert told.startswith(f'vote.toml, line {line}: [method] public is "public.csv", but there is no such file')


@pytest.mark.parametrize("protocol", ["secagg+", "compute-nodes"])
def test_a_run_that_everyone_leaves_says_how_many_were_left(folder: Path, protocol: str) -> None:
    """In secagg+ half of those who vanish do so before they send a vector, and the run ends there."""
    changed(folder, "[method]", f'[summation]\nprotocol = "{protocol}"\n\n[method]')
    told = complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--drop", "20", status=3)
    left = 10 if protocol == "secagg+" else 0
    assert told.startswith(f"only {left} of 20 parties are left and the study asks for at least 18, so there is no ")


def test_a_misspelt_command_is_told_in_one_sentence(tmp_path: Path) -> None:
    sentence = "No such command 'simlate'. Did you mean 'simulate'? (`unspoken --help` says more.)"
    assert complaint(tmp_path, "simlate", run=unspoken) == sentence


def test_help_is_quick(tmp_path: Path) -> None:
    """Seen: 0.3 processor seconds. With what computes (scipy, pandas, …) it would be several times as much."""
    seconds = []
    for _ in range(3):
        before = os.times()
        assert "simulate" in shown(tmp_path, "--help", run=unspoken)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    assert min(seconds) < 1.0


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


def test_every_protocol_and_method_learns_from_the_command_line(folder: Path) -> None:
    text = (folder / "study.toml").read_text(encoding="utf-8")
    moments = text.replace('name = "helmet"\nregularization = 0.1', 'name = "moments"')
    assert moments != text
    variants = dict.fromkeys(("secagg+", "secagg", "pairwise"), text) | {"compute-nodes": moments}
    for protocol, study in variants.items():
        (folder / "study.toml").write_text(f'{study}\n[summation]\nprotocol = "{protocol}"\n', encoding="utf-8")
        result = answer(folder, "simulate", "study.toml", "--data", "train.csv", "--json")
        assert result["summation"] == protocol
        assert result["survivors"] == result["parties"]
    assert result["method"] == "moments"


# Regressions, statistics, and every method.

KINDS = {
    "classification": 'label = "died"\nclasses = ["no", "yes"]\n',
    "regression": 'label = "pressure"\nlabel_bounds = [50, 250]\n',
    "statistics": "",
}
METHOD = '[method]\nname = "helmet"\nregularization = 0.1\n'
LABEL = KINDS["classification"]
NAMES = ("helmet", "moments", "cape", "conv", "local", "central", "dp-fm", "objective-perturbation", "none")
FITTING = [
    (method, task)
    for method in NAMES
    for task in KINDS
    if not (method == "helmet" and task != "classification")
    and not (method in ("dp-fm", "objective-perturbation") and task == "statistics")
]


def strict(text: str) -> dict[str, Any]:
    """One JSON object, without the NaN and Infinity that JSON does not have."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    content = json.loads(text, parse_constant=refuse)
    assert isinstance(content, dict)
    return content


def test_what_is_no_number_is_null_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"mean": math.nan, "of": [math.inf, (1.5, -math.inf)], "in": {"deep": {"down": 2}}})
    assert strict(capsys.readouterr().out) == {"mean": None, "of": [None, [1.5, None]], "in": {"deep": {"down": 2}}}


def measured(count: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return people(count).assign(pressure=lambda frame: 100 + frame["age"] + rng.normal(scale=5, size=count))


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    """A folder with data and a study for a task and a method."""
    measured().to_csv(tmp_path / "train.csv", index=False)

    def make(task: str, method: str, more: str = "") -> Path:
        text = STUDY.replace(LABEL, KINDS[task]).replace('task = "classification"', f'task = "{task}"')
        text = text.replace(METHOD, f'[method]\nname = "{method}"\n{more}')
        assert f'name = "{method}"' in text
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return make


@pytest.mark.parametrize(("method", "task"), FITTING)
def test_every_method_plans_and_runs_every_task_that_it_fits(
    tasks: Callable[..., Path], method: str, task: str
) -> None:
    folder = tasks(task, method)
    planned = in_process(folder, "plan", "study.toml", "--json")
    assert (planned.returncode, planned.stderr) == (0, "")
    plan = strict(planned.stdout)
    assert plan.keys() >= PLAN_FIELDS
    assert plan["guarantee"].keys() >= GUARANTEE_FIELDS
    assert all(release.keys() >= RELEASE_FIELDS for release in plan["releases"])
    assert plan["method"] == method
    done = in_process(folder, "simulate", "study.toml", "--data", "train.csv", "--output", "out", "--json")
    assert (done.returncode, without_notes(done.stderr)) == (0, "")
    result = strict(done.stdout)
    assert result.keys() >= SIMULATION_FIELDS
    assert (result["guarantee"]["epsilon"] is None) == (method == "none")
    assert (
        result["metrics"].keys()
        == {
            "classification": {"training_accuracy", "training_balanced_accuracy"},
            "regression": {"training_mse", "training_r2", "training_coefficient_error"},
            "statistics": set(),
        }[task]
    )
    assert ("statistics" in result) == (task == "statistics")
    kind = "statistics" if task == "statistics" else "model"
    written = {path.name for path in (folder / "out").iterdir()}
    assert written == {"heart.certificate.json", f"heart.{kind}.{'json' if kind == 'statistics' else 'skops'}"}
    certificate = strict((folder / result["files"]["certificate"]).read_text(encoding="utf-8"))
    assert certificate["guarantee"] == result["guarantee"]
    assert certificate[f"{kind}_sha256"] == hashlib.sha256((folder / result["files"][kind]).read_bytes()).hexdigest()
    if task == "statistics":
        assert strict((folder / result["files"]["statistics"]).read_text(encoding="utf-8")) == result["statistics"]
        assert result["statistics"].keys() == {"age", "sex"}


@pytest.mark.parametrize(("method", "task"), FITTING)
@pytest.mark.long
def test_every_method_is_explained_to_people(tasks: Callable[..., Path], method: str, task: str) -> None:
    folder = tasks(task, method)
    told = shown(folder, "plan", "study.toml")
    ran = shown(folder, "simulate", "study.toml", "--data", "train.csv")
    promise = "No privacy is promised" if method == "none" else "Whoever sees the result"
    pooled = method in ("central", "dp-fm", "objective-perturbation", "none")
    for text in (told, ran):
        assert f"Guarantee. {promise}" in text
        assert ("SIMULATION: all parties ran on this machine, where all records were" in text) == (text is ran)
        assert ("needs all records in one place: it is a baseline" in text) == pooled
        # Nobody is told of a sum that does not take place.
        assert ("compute-nodes" in text) == (method in ("helmet", "moments", "cape"))
    assert ("epsilon" in ran) == (method != "none")
    assert {"local": "1 of 1"}.get(method, "20 of 20") + " took part to the end" in ran
    if task == "regression":
        assert re.search(r"training mse \d", ran)
    if task == "statistics":
        assert re.search(r"age mean -?\d+\.?\d* ", ran)
        assert re.search(r"sex f -?\d+\.\d+ % ", ran)
    assert told.count("the noise is sized for the 16 that then remain") == (method in ("helmet", "moments", "cape"))


def test_a_plan_of_cape_says_what_a_vanished_party_costs(tasks: Callable[..., Path]) -> None:
    folder = tasks("regression", "cape", 'order = "noise-first"\n')
    text = shown(folder, "plan", "study.toml")
    found = re.search(
        r"noise ([\d.]+) against the adversary \(([\d.]+) in the total if nobody drops out, "
        r"([\d.]+) if 2 vanish between the noise and the messages\)",
        text,
    )
    assert found is not None
    hidden, total, worst = map(float, found.groups())
    release = answer(folder, "plan", "study.toml")["releases"][0]
    assert (hidden, total) == pytest.approx((release["noise_std"], release["total_noise_std"]), rel=1e-3)
    assert worst > 1.2 * total
    assert "if more drop out, nothing is released" in text
    changed(folder, "dropouts = 2", "dropouts = 0")
    text = shown(folder, "plan", "study.toml")
    assert "if any drop out, nothing is released" in text
    assert "vanish" not in text


def test_a_plan_of_cape_says_what_its_noise_is_made_of(tasks: Callable[..., Path]) -> None:
    folder = tasks("regression", "cape")
    text = " ".join(shown(folder, "plan", "study.toml").split())
    assert "messages in the open, and then" in text
    assert "messages come first, then a secure sum of their noise, in each turn" in text
    release = answer(folder, "plan", "study.toml")["releases"][0]
    parts = release["noise_parts"]
    assert f"τ_g = {parts['tau_g']:.4g} stays" in text
    assert parts["gain"] * parts["over_curator"] == pytest.approx(20.0, rel=1e-9)
    assert release["total_noise_std"] == pytest.approx(math.sqrt(20.0) * parts["tau_g"], rel=1e-9)
    assert release["noise_std"] == pytest.approx(math.sqrt(parts["gain"]) * parts["tau_g"], rel=1e-9)


@pytest.mark.parametrize("options", [[], ["--drop", "2"]])
def test_a_histogram_is_shown_bin_by_bin(tasks: Callable[..., Path], options: list[str]) -> None:
    folder = tasks("statistics", "cape", 'function = "histogram"\nbins = 2\n')
    text = shown(folder, "simulate", "study.toml", "--data", "train.csv", *options)
    assert re.search(r"age 0 to 55 -?\d+\.\d ", text)
    assert re.search(r"age 55 to 110 -?\d+\.\d ", text)
    assert re.search(r"sex m -?\d+\.\d ", text)
    assert "noise (deviation)" in text


def test_a_regression_is_measured_on_a_test_file_and_split_by_its_labels(tasks: Callable[..., Path]) -> None:
    folder = tasks("regression", "none")
    measured().to_parquet(folder / "test.parquet")
    options = ["--data", "train.csv", "--test", "test.parquet", "--split", "by-class", "--parties", "5"]
    result = answer(folder, "simulate", "study.toml", *options)
    # The labels are a line in the age and noise of variance 25.
    assert result["metrics"].keys() == {"mse", "r2", "coefficient_error"}
    assert 15 < result["metrics"]["mse"] < 35
    assert result["metrics"]["coefficient_error"] < 1e-9
    model = skops.io.load(folder / result["files"]["model"], trusted=[])
    errors = model.predict(measured()) - measured()["pressure"]
    assert (errors**2).mean() == pytest.approx(result["metrics"]["mse"])
    assert complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--split", "dirichlet:1").startswith(
        "the split is 'dirichlet:1', but a regression has no classes to draw; use iid or by-class."
    )


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize("task", KINDS)
def test_a_new_study_of_any_task_can_be_planned_and_run(tmp_path: Path, task: str, matrix: bool) -> None:
    shown(tmp_path, "new", "--task", task, *(["--matrix"] if matrix else []))
    assert answer(tmp_path, "plan", "study.toml")["guarantee"]["epsilon"] <= 1.0
    rng = np.random.default_rng(0)
    if matrix:
        labels = {"classification": {"y": rng.integers(10, size=400)}, "regression": {"y": rng.uniform(0, 300, 400)}}
        np.savez(tmp_path / "train.npz", X=rng.normal(size=(400, 64)), **labels.get(task, {}))
    else:
        frame = measured(400).assign(weight=70)
        frame.to_csv(tmp_path / "train.csv", index=False)
    data = "train.npz" if matrix else "train.csv"
    result = answer(tmp_path, "simulate", "study.toml", "--data", data, "--parties", "8")
    assert (result["parties"], result["survivors"]) == (8, 8)


@pytest.mark.parametrize(
    ("task", "method", "more", "expected"),
    [
        ("statistics", "cape", 'function = "network"\n', '[method] function is "network", but for the task'),
        ("statistics", "helmet", "", 'is "statistics", but'),
        ("regression", "helmet", "", 'is "regression", but'),
        ("statistics", "dp-fm", "", '[study] task is "statistics", but "dp-fm" is for'),
        (
            "statistics",
            "objective-perturbation",
            "",
            '"objective-perturbation" is for classification and regression only',
        ),
        ("regression", "cape", "bins = 1\n", "[method] bins is 1, but should be the number of a histogram's bins"),
        ("regression", "cape", "correlation = 0.5\n", "[method] correlation is 0.5, but should be"),
        ("regression", "dp-fm", 'sensitivity = "none"\n', '[method] sensitivity is "none", but should be "tight" or'),
        ("regression", "objective-perturbation", "radius = 0\n", "[method] radius is 0, but should be"),
        ("regression", "capes", "", '[method] name is "capes", but should be one of: "cape"'),
    ],
)
def test_a_method_that_does_not_fit_is_told_in_one_sentence(
    tasks: Callable[..., Path], task: str, method: str, more: str, expected: str
) -> None:
    folder = tasks(task, method, more)
    assert expected in complaint(folder, "plan", "study.toml")
    assert expected in complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--json")


def test_statistics_are_not_tested(tasks: Callable[..., Path]) -> None:
    folder = tasks("statistics", "cape")
    options = ["--data", "train.csv", "--test", "train.csv"]
    assert complaint(folder, "simulate", "study.toml", *options) == (
        "--test is train.csv, but statistics predict nothing that could be measured; leave it out."
    )


def test_a_folder_that_cannot_be_made_is_told_before_the_run(tasks: Callable[..., Path]) -> None:
    folder = tasks("statistics", "cape")
    sentence = complaint(folder, "simulate", "study.toml", "--data", "nowhere.csv", "--output", "study.toml/results")
    assert sentence.startswith("study.toml/results: cannot be made, as ")
    assert sentence.endswith("study.toml is no folder to write to; choose another --output.")


def test_a_new_study_needs_a_known_task(tmp_path: Path) -> None:
    sentence = complaint(tmp_path, "new", "--task", "guessing")
    assert "'guessing', but should be one of: classification, regression, statistics" in sentence


# Training in rounds.

TRAINING = """\
[study]
name = "shapes"
task = "classification"

[data]
features = 6
classes = 3
norm = 2.0

[parties]
count = 4
records = 50
max_records = 50

[privacy]
noise_multiplier = 2.0
delta = 1e-5
colluding = 1

[method]
name = "cross-silo"
model = "mlp"
hidden = [8]
rounds = 15
rate = 0.5
learning_rate = 1.0
"""
SILOS = STUDY.replace(METHOD, '[method]\nname = "cross-silo"\nrounds = 5\nrate = 0.5\n')


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """A study that trains a network on a matrix, with labels of one byte."""
    (tmp_path / "study.toml").write_text(TRAINING, encoding="utf-8")
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        labels = rng.integers(3, size=200).astype(np.uint8)
        np.savez(tmp_path / f"{name}.npz", X=np.eye(6)[labels] + 0.1 * rng.normal(size=(200, 6)), y=labels)
    return tmp_path


def test_a_plan_of_training_in_rounds_says_how_records_are_sampled(shapes: Path) -> None:
    plan = answer(shapes, "plan", "study.toml", "--weakening")
    assert plan.keys() >= PLAN_FIELDS
    assert plan["sampling"] == {"kind": "poisson", "rate": 0.5}
    assert plan["noise_multiplier"] == pytest.approx(2.0)
    assert plan["rounds"] == plan["releases"][0]["count"] == 15
    assert plan["releases"][0]["dimension"] == 6 * 8 + 8 + 8 * 3 + 3
    assert [row["colluding"] for row in plan["weakening"]] == [1, 2, 3]
    found = [row["epsilon"] for row in plan["weakening"]]
    assert found == sorted(found)
    assert found[0] == pytest.approx(plan["guarantee"]["epsilon"], rel=0.02)
    text = shown(shapes, "plan", "study.toml", "--weakening")
    assert "83 numbers, 15 times" in text
    assert f"epsilon = {plan['guarantee']['epsilon']:.4g}, delta = 1e-05" in text
    assert re.search(r"colluding parties epsilon 1 [\d.]+ 2 [\d.]+ 3 [\d.]+$", text)


def test_a_network_is_trained_and_its_weights_load_anywhere(shapes: Path) -> None:
    import torch

    from unspoken.learners.torch_modules import make_module

    options = ["--data", "train.npz", "--test", "test.npz", "--output", "out"]
    result = answer(shapes, "simulate", "study.toml", *options)
    assert result.keys() >= SIMULATION_FIELDS
    assert sorted(path.name for path in (shapes / "out").iterdir()) == ["shapes.certificate.json", "shapes.model.npz"]
    path = shapes / result["files"]["model"]
    certificate = strict((shapes / result["files"]["certificate"]).read_text(encoding="utf-8"))
    assert certificate["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert certificate["happened"]["epsilon"] <= certificate["guarantee"]["epsilon"]
    with np.load(path, allow_pickle=False) as weights:
        state = {name: torch.from_numpy(weights[name]) for name in weights if name != "unspoken"}
    module = make_module("mlp", 6, 3, [8])
    module.load_state_dict(state)
    with np.load(shapes / "test.npz") as test:
        rows, labels = test["X"], test["y"]
    rows *= np.minimum(1.0, 2.0 / np.linalg.norm(rows, axis=1))[:, None]
    guesses = module(torch.from_numpy(rows).float()).argmax(1).numpy()
    assert result["metrics"]["accuracy"] == pytest.approx((guesses == labels).mean())
    assert result["metrics"]["accuracy"] > 0.6


def test_a_run_with_a_checkpoint_is_not_done_twice(shapes: Path) -> None:
    options = ["--data", "train.npz", "--test", "test.npz", "--checkpoint", "run.checkpoint"]
    first, again = (answer(shapes, "simulate", "study.toml", *options) for _ in range(2))
    assert first["metrics"] == again["metrics"]
    assert first["bytes"] == again["bytes"]
    assert complaint(shapes, "simulate", "study.toml", *options, "--drop", "1") == (
        "run.checkpoint: is the checkpoint of a run with drop 0, seed 0, but this run has drop 1, seed 0; "
        "choose another file."
    )
    changed(shapes, "rate = 0.5", "rate = 0.4")
    assert complaint(shapes, "simulate", "study.toml", *options) == (
        "run.checkpoint: is the checkpoint of another study or other data; choose another file."
    )


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_a_table_is_trained_on(folder: Path, sampling: str) -> None:
    (folder / "study.toml").write_text(f'{SILOS}sampling = "{sampling}"\n', encoding="utf-8")
    options = ["--data", "train.csv", "--test", "test.parquet", "--parties", "5", "--drop", "1"]
    result = answer(folder, "simulate", "study.toml", *options)
    assert (result["survivors"], result["sampling"]["kind"]) == (4, sampling)
    assert result["guarantee"]["epsilon"] <= 3.0
    if sampling == "poisson":
        text = shown(folder, "simulate", "study.toml", *options)
        assert "cross-silo over compute-nodes" in text
        assert "4 of 5 took part to the end" in text
        assert "heart-2.model.npz" in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "noise_multiplier = 2.0",
            "noise_multiplier = 2.0\nepsilon = 1.0",
            "has both epsilon and noise_multiplier, but",
        ),
        ("noise_multiplier = 2.0\n", "", "[privacy] epsilon is missing; it should be a number from 1e-4"),
        ('"mlp"', '"mpl"', 'line 22: [method] model is "mpl", which is unknown; use "linear", "mlp", "cnn" or'),
        (
            '"mlp"',
            '"no_such:Net"',
            'line 22: [method] model is "no_such:Net", which cannot be imported here (No module',
        ),
        ('"mlp"', '"cnn"', "takes square images of one or three channels, but records have 6 features"),
        ("delta = 1e-5", 'delta = 1e-5\nunit = "party"', '[privacy] unit should be "record" with "cross-silo"'),
        ("rate = 0.5", "rate = 2", "[method] rate is 2, but should be the expected share of all records in a batch"),
        ('"cross-silo"', '"fedavg"', '[privacy] unit should be "party" with "fedavg"'),
        ('"cross-silo"', '"helmet"', "[method] model is an unknown key; known here: "),
    ],
)
def test_a_study_that_cannot_be_trained_is_told_in_one_sentence(
    shapes: Path, old: str, new: str, expected: str
) -> None:
    changed(shapes, old, new)
    assert expected in complaint(shapes, "plan", "study.toml")
    assert expected in complaint(shapes, "simulate", "study.toml", "--data", "train.npz")


WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from unspoken.cli import app
app(sys.argv[1:], prog_name="unspoken")
"""


def test_without_torch_the_extra_is_named(shapes: Path) -> None:
    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)

    assert complaint(shapes, "simulate", "study.toml", "--data", "train.npz", run=run) == (
        "training a PyTorch model needs PyTorch, which is not installed; in a clone, install it with pip install "
        "'.[torch]' (or, once it is published, with pip install 'unspoken[torch]')."
    )
