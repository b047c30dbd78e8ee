"""Methods side by side: each gets the keys it knows, the same records, and its own noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from factories import maker
from unspoken.cli import app
from unspoken.comparison import Point, compare, metric_of, study_for
from unspoken.data.files import Records
from unspoken.errors import UnspokenError
from unspoken.study import Study, StudyError

study = maker(
    data={"features": 4, "classes": 2},
    parties={"count": 5, "records": 60, "max_records": 60},
    summation="ideal",
    delta=1e-5,
)
TRAINING = {"name": "cross-silo", "model": "linear", "rounds": 5, "rate": 0.5}


def records() -> Records:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4))
    return Records(features, (features[:, 0] > 0.0).astype(np.int64))


def test_a_method_gets_the_keys_it_knows_and_a_norm_of_its_own() -> None:
    agreed = study(method=TRAINING)
    assert agreed.data.norm == 1e6
    helmet = study_for(agreed, "helmet", 2.0)
    assert (helmet.method.name, helmet.method.model_extra) == ("helmet", {})
    assert (helmet.data.norm, helmet.privacy.epsilon) == (1.0, 2.0)
    assert study_for(agreed, "central", 1.0).method.model_extra == agreed.method.model_extra
    kept = study_for(study(method=TRAINING, data={"features": 4, "classes": 2, "norm": 3.0}), "helmet", 1.0)
    assert kept.data.norm == 3.0
    with pytest.raises(StudyError, match="should be one of"):
        study_for(agreed, "magic", 1.0)


def test_every_method_is_run_at_every_epsilon_and_the_one_without_a_promise_once() -> None:
    known = records()
    groups = np.arange(300) % 5
    points = compare(study(method=TRAINING), known, groups, known, ["moments", "local", "none"], [0.5, 4.0], repeats=2)
    found = [(point.method, point.epsilon and round(point.epsilon, 1)) for point in points]
    assert found == [("moments", 0.5), ("moments", 4.0), ("local", 0.5), ("local", 4.0), ("none", None)]
    assert all(len(point.metrics["accuracy"]) == 2 for point in points)
    best = {(point.method, point.epsilon is None): np.mean(point.metrics["accuracy"]) for point in points}
    assert best[("moments", False)] > 0.85


def test_from_the_command_line(tmp_path: Path) -> None:
    known = records()
    np.savez(tmp_path / "data.npz", X=known.features, y=known.labels)
    (tmp_path / "study.toml").write_text(
        "[study]\nname = 'side'\ntask = 'classification'\n[data]\nfeatures = 4\nclasses = 2\n"
        "[parties]\ncount = 5\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[method]\nname = 'moments'\n"
        "[summation]\nprotocol = 'ideal'\n"
    )
    command = ["compare", str(tmp_path / "study.toml"), "--data", str(tmp_path / "data.npz"), "--test"]
    command += [str(tmp_path / "data.npz"), "--methods", "moments,none", "--epsilons", "1,3", "--repeats", "1"]
    result = CliRunner().invoke(app, [*command, "--json", "--plot", str(tmp_path / "side.png")])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert [point["method"] for point in content["points"]] == ["moments", "moments", "none"]
    assert content["points"][2]["epsilon"] is None
    assert (tmp_path / "side.png").stat().st_size > 5000
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "moments" in shown.stdout
    for wrong, words in (
        (["--epsilons", "1,x"], "--epsilons"),
        (["--repeats", "0"], "--repeats"),
        (["--plot", str(tmp_path / "side.txt")], "cannot hold a plot"),
        (["--methods", "magic"], "should be one of"),
    ):
        refused = CliRunner().invoke(app, [*command, *wrong])
        assert refused.exit_code == 2
        assert words in refused.output


def votes(folder: Path, **sections: object) -> Study:
    np.savez(folder / "public.npz", X=records().features[:40])
    method = {"name": "voting", "public": str(folder / "public.npz"), "queries": 10, "model": "softmax"}
    return study(method=method, unit="party", summation="tally", **sections)


def test_a_method_may_have_keys_of_its_own_to_be_compared_with(tmp_path: Path) -> None:
    agreed = votes(tmp_path, compare={"fedavg": {"rounds": 3, "clip": 2.0}})
    other = study_for(agreed, "fedavg", 2.0)
    assert other.method.model_extra == {"rounds": 3, "clip": 2.0}
    # Talliers are for votes only.
    assert (other.summation.protocol, study_for(agreed, "voting", 2.0).summation.protocol) == ("compute-nodes", "tally")
    assert agreed.digest() == votes(tmp_path).digest()


@pytest.mark.parametrize(
    ("compare", "words"),
    [
        ({}, r'\[method\] model is "softmax", which is unknown.*\[compare.fedavg\] can give keys for fedavg'),
        ({"fedavg": {"rounds": 0}}, r"\[compare\] fedavg.rounds is 0, but should be the number of rounds"),
        ({"fedavg": {"runds": 3}}, r"\[compare\] fedavg.runds is an unknown key; did you mean 'rounds'"),
        ({"fedavg": {"name": "x"}}, r"\[compare\] fedavg.name is a key of \[method\] only"),
        ({"fedavg": {"model": "magic"}}, r'\[compare\] fedavg.model is "magic", which is unknown'),
        ({"fed": {}}, r"\[compare\] fed names no method; known are"),
        ({"fedavg": 3}, r"\[compare\] .* but should be"),
    ],
)
def test_what_does_not_fit_another_method_is_told_with_its_place(
    compare: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match=words):
        study_for(votes(tmp_path, compare=compare), "fedavg", 1.0)


def test_what_is_shown_is_the_first_metric_that_all_methods_have() -> None:
    points = [Point("one", 1.0, {"loss": [1.0], "mse": [2.0]}), Point("other", 1.0, {"mse": [3.0]})]
    assert metric_of(points) == "mse"
    with pytest.raises(UnspokenError, match=r'^what "one" and "moments" released has no metric in common: there is'):
        metric_of([*points[:1], Point("moments", 1.0, {})])


def test_statistics_that_nothing_measures_are_told_in_one_sentence(tmp_path: Path) -> None:
    path, data = tmp_path / "study.toml", tmp_path / "records.npz"
    path.write_text(
        '[study]\nname = "t"\ntask = "statistics"\n[data]\nfeatures = 2\n[parties]\ncount = 2\n'
        '[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[method]\nname = "moments"\n'
    )
    np.savez(data, X=np.zeros((4, 2)))
    arguments = [
        "compare",
        str(path),
        "--data",
        str(data),
        "--test",
        str(data),
        "--methods",
        "moments",
        "--repeats",
        "1",
    ]
    done = CliRunner().invoke(app, [*arguments, "--epsilons", "1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == 'unspoken: what "moments" released has no metric: there is nothing to compare.\n'
