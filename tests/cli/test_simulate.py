"""`unspoken simulate`: what is learnt from a file, what is written, and what ends a run."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io

from commands import SIMULATION_FIELDS, STUDY, answer, changed, complaint, contents, in_process, measured, people, shown
from unspoken.summation.base import Aborted, SignedStatement

MATRIX = STUDY[: STUDY.index("[data]")] + "[data]\nfeatures = 4\nclasses = 3\n\n" + STUDY[STUDY.index("[parties]") :]


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
    assert "Vectors may have left once and been opened in secret, so epsilon = " in message


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


def test_a_run_that_can_release_nothing_is_announced(folder: Path) -> None:
    told = in_process(folder, "simulate", "study.toml", "--data", "train.csv", "--drop", "3").stderr
    assert "unspoken: note: --drop is 3, more than the study's dropouts = 2 allows, so that nothing will be" in told


@pytest.mark.parametrize("protocol", ["secagg+", "compute-nodes"])
def test_a_run_that_everyone_leaves_says_how_many_were_left(folder: Path, protocol: str) -> None:
    """In secagg+ half of those who vanish do so before they send a vector, and the run ends there."""
    changed(folder, "[method]", f'[summation]\nprotocol = "{protocol}"\n\n[method]')
    told = complaint(folder, "simulate", "study.toml", "--data", "train.csv", "--drop", "20", status=3)
    left = 10 if protocol == "secagg+" else 0
    assert told.startswith(f"only {left} of 20 parties are left and the study asks for at least 18, so there is no ")


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


def test_people_are_told_the_number_of_attempts_where_there_may_be_several(folder: Path) -> None:
    run = ("simulate", "study.toml", "--data", "train.csv")
    assert "attempts" not in shown(folder, *run).partition("Guarantee.")[0]
    changed(folder, "[privacy]", "[privacy]\nattempts = 3")
    assert "attempts 1 attempt for 1 total (epsilon counts 3)" in shown(folder, *run)


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


def test_what_is_known_before_is_said_before_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By public facts and by the records: nothing is charged or written by then."""

    def ended(*arguments: Any, **options: Any) -> None:
        raise Aborted("there is no total")

    changed(folder, "epsilon = 3.0", "epsilon = 0.001")
    changed(folder, "max = 110", "max = 5000")
    monkeypatch.setattr("unspoken.simulation.simulate_records", ended)
    lines = in_process(folder, "simulate", "study.toml", "--data", "train.csv").stderr.splitlines()
    assert lines[0].startswith("unspoken: note: the noise hides almost all that the ")
    assert lines[1].startswith("unspoken: note: column 'age': all values lie within a tenth of the study's bounds")
    assert lines[2:] == ["unspoken: there is no total"]
