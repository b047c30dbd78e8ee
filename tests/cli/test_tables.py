"""From a table's column names to a model on the command line: new, check, and parties by a column or a file each."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import answer, complaint, in_process

COLUMNS = {"age": "{ min = 0, max = 110 }", "sex": '{ categories = ["f", "m"], missing = "category" }'}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four hospitals' files, one of all, and a study that is filled in."""
    rng = np.random.default_rng(0)
    sizes = [60, 70, 80, 90]
    frame = pd.DataFrame({"age": rng.uniform(0, 110, 300).round(1), "sex": rng.choice(["f", "m", ""], 300)})
    frame["died"] = np.where(frame["age"] > 55, "yes", "no")
    frame["hospital"] = np.repeat(["north", "south", "east", "west"], sizes)
    frame.to_csv(tmp_path / "all.csv", index=False)
    for name, rows in frame.groupby("hospital"):
        rows.drop(columns="hospital").to_csv(tmp_path / f"{name}.csv", index=False)
    answer(
        tmp_path,
        "new",
        "study.toml",
        "--columns-of",
        "north.csv",
        "--label",
        "died",
        "--classes",
        "no,yes",
        "--parties",
        "4",
    )
    text = (tmp_path / "study.toml").read_text("utf-8")
    for name, value in COLUMNS.items():
        text = text.replace(f'"{name}" = "?"', f"{name} = {value}")
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    return tmp_path


FILES = [part for name in ("north", "south", "east", "west") for part in ("--data", f"{name}.csv")]


@pytest.mark.parametrize("split", [FILES, ["--data", "all.csv", "--parties-by", "hospital"]])
def test_parties_are_those_that_the_files_have(folder: Path, split: list[str]) -> None:
    done = answer(folder, "simulate", "study.toml", *split, "--test", "all.csv", "--output", "out")
    assert (done["parties"], done["survivors"]) == (4, 4)
    compared = answer(
        folder, "compare", "study.toml", *split, "--test", "all.csv", "--methods", "none", "--epsilons", "1"
    )
    assert compared["points"][0]["metrics"]["accuracy"]["mean"] > 0.9


def test_a_split_is_for_one_file_only(folder: Path) -> None:
    simulate = ("simulate", "study.toml")
    assert complaint(folder, *simulate, *FILES, "--split", "iid").startswith(
        "--split is 'iid', but more than one --dat"
    )
    by = ("--data", "all.csv", "--parties-by", "hospital", "--split", "by-class")
    assert complaint(folder, *simulate, *by).startswith("--split is 'by-class', but --parties-by says whose records")
    assert complaint(folder, *simulate, *FILES[:6]).startswith("3 files were given, one a party, but the study's [part")
    assert complaint(folder, *simulate, "--data", "all.csv", "--parties-by", "ward").startswith(
        "all.csv: lacks the column 'ward' that is to name the parties"
    )


def test_check_is_for_the_holder_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.iterdir())
    found = answer(folder, "check", "study.toml", "--data", "north.csv")
    assert found["fits"]
    assert (found["records"], [column["name"] for column in found["columns"]]) == (60, ["age", "sex"])
    assert 0.1 < found["columns"][1]["missing"] < 0.6
    done = in_process(folder, "check", "study.toml", "--data", "north.csv")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("PRIVATE", "north.csv: 60 records", "age", "0 to 110", "classes: no ", "For your eyes only"):
        assert words in done.stdout
    assert sorted(folder.iterdir()) == before


def test_check_says_what_the_study_would_refuse(folder: Path) -> None:
    (folder / "few.csv").write_text("age,sex,died\n,f,no\n5,x,yes\n", encoding="utf-8")
    done = in_process(folder, "check", "study.toml", "--data", "few.csv", "--json")
    assert done.returncode == 2
    assert done.stderr.startswith("unspoken: few.csv: would be refused, as there are 2 records, but the study")
    assert len(json.loads(done.stdout)["problems"]) == 3
    done = in_process(folder, "check", "study.toml", "--data", "few.csv")
    assert done.stdout.count("Refused:") == 3


def test_what_hardly_fits_is_noted_on_standard_error_and_in_no_certificate(folder: Path) -> None:
    frame = pd.read_csv(folder / "all.csv", keep_default_na=False)
    frame.assign(age=frame["age"] * 1000 + 1000).to_csv(folder / "far.csv", index=False)
    arguments = ("simulate", "study.toml", "--data", "far.csv", "--parties-by", "hospital", "--output", "out", "--json")
    done = in_process(folder, *arguments)
    assert done.returncode == 0
    assert (
        done.stderr.count("unspoken: note: column 'age': 100 % of the values lie outside the study's bounds 0 to 110")
        == 1
    )
    files = json.loads(done.stdout)["files"]
    assert "note:" not in done.stdout
    certificate = (folder / files["certificate"]).read_text("utf-8")
    assert not re.search("outside|clipped to them|100 %", certificate)


def test_only_the_names_of_columns_are_read_for_a_new_study(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text('age,"a ""quoted"" [name]",died\n\xff', encoding="latin-1")
    answer(tmp_path, "new", "s.toml", "--columns-of", "names.csv", "--label", "died", "--classes", "0, 1")
    text = (tmp_path / "s.toml").read_text("utf-8")
    data = tomllib.loads(text)["data"]
    assert data["columns"] == {"age": "?", 'a "quoted" [name]': "?"}
    assert (data["label"], data["classes"]) == ("died", [0, 1])
    for command in (("plan", "s.toml"), ("check", "s.toml", "--data", "names.csv")):
        assert re.match(
            r's\.toml, line \d+: \[data\] columns\.age is "\?", but should be \{ min', complaint(tmp_path, *command)
        )


def test_a_parquet_file_and_every_task_may_give_the_names(tmp_path: Path) -> None:
    pd.DataFrame({"age": [1.0], "bmi": [2.0]}).to_parquet(tmp_path / "t.parquet")
    for task, label in (("regression", ("--label", "bmi")), ("statistics", ())):
        answer(tmp_path, "new", f"{task}.toml", "--task", task, "--columns-of", "t.parquet", *label)
        data = tomllib.loads((tmp_path / f"{task}.toml").read_text("utf-8"))["data"]
        assert (data["columns"].keys(), data.get("label")) == ({"age", "bmi"} - set(label), label[1] if label else None)


@pytest.mark.parametrize(("task", "key"), [("classification", "classes"), ("regression", "label_bounds")])
def test_what_names_do_not_say_is_left_to_be_filled_in(tmp_path: Path, task: str, key: str) -> None:
    (tmp_path / "t.csv").write_text("age,bmi\n", encoding="utf-8")
    answer(tmp_path, "new", "s.toml", "--task", task, "--columns-of", "t.csv", "--label", "bmi")
    text = (tmp_path / "s.toml").read_text("utf-8")
    study = tomllib.loads(text)
    assert (study["data"][key], study["parties"]["count"]) == ("?", "?")
    text = text.replace('"age" = "?"', '"age" = { min = 0, max = 110 }')
    for name, value in ((key, '["a", "b"]' if task == "classification" else "[0, 9]"), ("count", "50")):
        (tmp_path / "s.toml").write_text(text, encoding="utf-8")
        assert re.match(
            rf's\.toml, line \d+: \[\w+\] {name} is "\?", but should be', complaint(tmp_path, "plan", "s.toml")
        )
        text = re.sub(rf'{name} = "\?"', f"{name} = {value}", text)
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    assert answer(tmp_path, "plan", "s.toml")["parties"] == 50


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--columns-of", "no.csv", "--label", "x"), "no.csv: there is no such file"),
        (
            ("--columns-of", "t.csv", "--label", "dead"),
            "t.csv: lacks the column 'dead' that --label names; the table has: 'a', 'b'; correct the table or --label.",
        ),
        (("--columns-of", "t.csv"), "t.csv: its columns are for a study whose task is classification; give --label"),
        (("--columns-of", "t.csv", "--task", "statistics", "--label", "a"), "t.csv: its columns are for a study whose"),
        (("--label", "a"), "--label and --classes are for --columns-of FILE; give it"),
        (
            ("--columns-of", "t.csv", "--label", "a", "--classes", "x"),
            "--classes is 'x', but should be two labels or more, each once, such as no,yes.",
        ),
        (
            ("--columns-of", "t.csv", "--label", "a", "--classes", "x,y", "--task", "regression"),
            "--classes is 'x,y', but is for a classification, not for regression; leave it out.",
        ),
        (("--columns-of", "t.csv", "--label", "a", "--classes", "x,x"), "--classes is 'x,x', but should be"),
        (("--columns-of", "t.csv", "--label", "a", "--matrix"), "--columns-of is for a table, but --matrix asks"),
        (("--columns-of", "twice.csv", "--label", "a"), "twice.csv: has the column 'a' 2 times; rename the others."),
        (("--columns-of", "unnamed.csv", "--label", "a"), "unnamed.csv: column 2 has no name; name it."),
        (
            ("--columns-of", "record.csv", "--label", "1"),
            "record.csv: field 2 of its first line is a number, so it looks like a record and not like column names",
        ),
        (("--parties", "0"), "--parties is 0, but should be a whole number from 1 to"),
        (("--parties", "1"), '--parties is 1, but "moments" needs 2 or more; for so few there is --method helmet.'),
    ],
)
def test_what_no_study_can_be_made_of_is_said(tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    (tmp_path / "t.csv").write_text("a,b\n", encoding="utf-8")
    (tmp_path / "unnamed.csv").write_text("a, ,b\n", encoding="utf-8")
    (tmp_path / "twice.csv").write_text("a,a\n", encoding="utf-8")
    (tmp_path / "record.csv").write_text("Smith,63.5,yes\n", encoding="utf-8")
    assert complaint(tmp_path, "new", "s.toml", *arguments).startswith(expected)


@pytest.mark.parametrize(("parties", "colluding", "dropouts"), [(5, 1, 0), (12, 2, 0), (20, 0.5, 0.05)])
def test_few_parties_get_a_promise_that_few_can_keep(
    tmp_path: Path, parties: int, colluding: float, dropouts: float
) -> None:
    answer(tmp_path, "new", "s.toml", "--parties", str(parties))
    study = tomllib.loads((tmp_path / "s.toml").read_text("utf-8"))
    assert (study["parties"]["count"], study["privacy"]["colluding"]) == (parties, colluding)
    assert study["privacy"]["dropouts"] == dropouts
    assert answer(tmp_path, "plan", "s.toml")["parties"] == parties


def test_one_party_alone_gets_a_study_that_can_be_planned(tmp_path: Path) -> None:
    answer(tmp_path, "new", "s.toml", "--method", "helmet", "--parties", "1")
    study = tomllib.loads((tmp_path / "s.toml").read_text("utf-8"))
    assert (study["privacy"]["colluding"], study["privacy"]["dropouts"]) == (0, 0)
    assert answer(tmp_path, "plan", "s.toml")["parties"] == 1
