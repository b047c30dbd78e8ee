"""`unspoken new`: a study to start from can be planned and run as it is, and nothing is overwritten."""

from pathlib import Path

import numpy as np
import pytest

from commands import KINDS, STUDY, answer, complaint, measured, shown


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
    (tmp_path / "t.csv").write_text("a,b\n", encoding="utf-8")
    for name, written in (('a"b', r"a\"b"), ("a\nb", r"a\nb"), ("a\\b", r"a\\b"), ("", ""), ("Größe", "Größe")):
        sentence = complaint(tmp_path, "new", "--name", name)
        assert complaint(tmp_path, "new", "--name", name, "--columns-of", "t.csv", "--label", "a") == sentence
        assert sentence.startswith(
            f'--name: [study] name is "{written}", but should be a name of letters (a to z), digits'
        )
    place = complaint(tmp_path, "new", "no/where.toml")
    assert place == (
        "no/where.toml: cannot be written to (No such file or directory); nothing was left there; choose another place."
    )


def test_a_new_vote_says_where_its_public_file_is_named(tmp_path: Path) -> None:
    shown(tmp_path, "new", "vote.toml", "--method", "voting")
    line = 1 + (tmp_path / "vote.toml").read_text().splitlines().index(
        next(line for line in (tmp_path / "vote.toml").read_text().splitlines() if line.startswith("public ="))
    )
    told = complaint(tmp_path, "plan", "vote.toml")
    assert told.startswith(f'vote.toml, line {line}: [method] public is "public.csv", but there is no such file')


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


def test_a_new_study_needs_a_known_task(tmp_path: Path) -> None:
    sentence = complaint(tmp_path, "new", "--task", "guessing")
    assert "'guessing', but should be one of: classification, regression, statistics" in sentence
