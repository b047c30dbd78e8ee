"""What somebody got wrong (study, value, option, file, method) is told in one sentence, and nothing is written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commands import changed, complaint, unspoken


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epsilon =", "epsilom =", "study.toml, line 17: [privacy] epsilom is an unknown key; did you mean 'epsilon'?"),
        ("epsilon = 3.0", "epsilon = -3.0", "study.toml, line 17: [privacy] epsilon is -3.0, but should be a number"),
        (
            "age =",
            "weight =",
            "train.csv: lacks the column 'weight' that the study's [data] names; the table has: 'age'",
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


def test_a_value_that_is_no_number_is_shown(folder: Path) -> None:
    assert "'many'" in complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--parties", "many")


def test_comparing_no_methods_is_told_in_one_sentence(folder: Path) -> None:
    arguments = ["compare", "study.toml", "--data", "train.csv", "--test", "test.parquet", "--methods"]
    for none in ("", " , "):
        assert complaint(folder, *arguments, none).startswith(f"--methods is {none!r}, but should name methods")


def test_a_misspelt_command_is_told_in_one_sentence(tmp_path: Path) -> None:
    sentence = "No such command 'simlate'. Did you mean 'simulate'? (`unspoken --help` says more.)"
    assert complaint(tmp_path, "simlate", run=unspoken) == sentence


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
