"""Methods side by side: each gets the keys it knows, the same records, and its own noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from compared import records, small, study
from unspoken.cli import app
from unspoken.comparison import (
    Comparison,
    Point,
    interval,
    naming_variants,
    points_of,
    run_comparison,
    study_for,
    with_variants,
)
from unspoken.comparison.points import remarks
from unspoken.errors import UnspokenError
from unspoken.study import Study, StudyError

TRAINING = {"name": "cross-silo", "model": "linear", "rounds": 5, "rate": 0.5}


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
    asked = Comparison(
        study(method=TRAINING), known, known, ("moments", "local", "none"), (0.5, 4.0), repeats=2, groups=groups
    )
    told: list[tuple[str, int, int]] = []
    points = points_of(run_comparison(asked, progress=lambda *call: told.append(call)))
    # Runs are counted, and nothing else.
    assert (told[0], told[-1]) == (("moments at epsilon 0.5", 0, 10), ("none at epsilon 0.5", 10, 10))
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
    command += ["--jobs", "1"]
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
        ({"mine": {"method": "fedavgg"}}, r'\[compare\] mine.method is "fedavgg", but should be one of'),
        ({"fedavg": {"model": "magic"}}, r'\[compare\] fedavg.model is "magic", which is unknown'),
        ({"fed": {}}, r"\[compare\] fed names no method; add method"),
        ({"fedavg": 3}, r"\[compare\] .* but should be"),
    ],
)
def test_what_does_not_fit_another_method_is_told_with_its_place(
    compare: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match=words):
        study_for(votes(tmp_path, compare=compare), "fedavg", 1.0)


STATISTICS = (
    '[study]\nname = "t"\ntask = "statistics"\n[data]\nfeatures = 2\n[parties]\ncount = 2\n'
    '[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[method]\nname = "moments"\nfunction = "{}"\n'
)


@pytest.mark.parametrize("function", ["mean", "histogram"])
def test_statistics_are_compared_by_their_error_against_those_without_noise(tmp_path: Path, function: str) -> None:
    path, data = tmp_path / "study.toml", tmp_path / "records.npz"
    path.write_text(STATISTICS.format(function))
    np.savez(data, X=np.random.default_rng(0).uniform(-0.7, 0.7, size=(4000, 2)))
    arguments = ["compare", str(path), "--data", str(data), "--methods", "moments,conv,none", "--repeats", "1"]
    done = CliRunner().invoke(app, [*arguments, "--epsilons", "1", "--jobs", "1", "--json"])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    errors = {point["variant"]: point["metrics"]["relative_error"]["mean"] for point in content["points"]}
    assert errors["none"] < 1e-15
    # A number's noise as a share of its range: this far off it is with a chance below 1e-9.
    release = json.loads(CliRunner().invoke(app, ["plan", str(path), "--json"]).stdout)["releases"][0]
    expected = release["total_noise_std"] / 4000 / (2.0 if function == "mean" else 1.0)
    assert 1e-4 * expected < errors["moments"] < 6.0 * expected
    assert {point["computes"] for point in content["points"]} == {function}


def test_models_need_records_to_be_measured_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "study.toml"]).exit_code == 0
    done = CliRunner().invoke(app, ["compare", "study.toml", "--data", "nowhere.csv", "--methods", "moments"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("unspoken: --test is missing: ")


def test_like_is_compared_with_like() -> None:
    """Whatever the study computes, the others compute too, unless a section says something else."""

    def computed(agreed: Study, *variants: str) -> list[str]:
        studies = [study_for(agreed, variant, 1.0) for variant in variants]
        return [changed.described.computes(changed) for changed in studies]

    agreed = study(method="moments", compare={"other": {"method": "central", "function": "logistic-regression"}})
    assert computed(agreed, "moments", "central", "cape", "none", "other") == [*["auto"] * 4, "logistic-regression"]
    steps = study(method={"name": "moments", "function": "softmax"})
    assert computed(steps, "moments", "central", "cape", "helmet", "none") == ["softmax"] * 5
    assert computed(study(method="helmet"), "central", "none") == ["softmax", "softmax"]
    logistic = study(method={"name": "helmet", "learner": "logistic"})
    assert computed(logistic, "central", "helmet") == ["logistic-regression", "logistic"]
    # What a method cannot compute, it does not: it computes what it does by default, which is shown.
    assert computed(study(method={"name": "helmet", "learner": "svm"}), "central") == ["logistic-regression"]
    points = [Point("a", 1.0, {"m": [1.0]}, computes="softmax"), Point("b", 1.0, {"m": [1.0]}, computes="svm")]
    assert remarks(points)[0].startswith("Not all compute the same function: softmax, svm.")
    assert remarks(points[:1]) == []


def test_a_method_has_several_variants() -> None:
    agreed = with_variants(
        study(method="helmet", compare={"weak": {"method": "helmet", "regularization": 0.01}}),
        ['strong = { method = "helmet", regularization = 1.0 }'],
    )
    strengths = [study_for(agreed, name, 1.0).method.own_keys for name in ("helmet", "weak", "strong")]
    assert strengths == [{}, {"regularization": 0.01}, {"regularization": 1.0}]
    for wrong in ("strong", "strong = 1", "= {}", ""):
        with pytest.raises(UnspokenError, match=r"but should be a name and its keys, such as strong = \{ method"):
            with_variants(agreed, [wrong])
    with pytest.raises(StudyError, match=r'is "strongg", but should be one of.*"strong"'):
        study_for(agreed, "strongg", 1.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('weak = { method = "helmet", regularization = -1 }', "weak.regularization is -1, but should be"),
        ('weak = { method = "helmt" }', 'weak.method is "helmt", but should be one of'),
        ("weak = { regularization = 1.0 }", "weak names no method"),
    ],
)
def test_a_mistake_in_a_line_of_the_command_is_not_said_to_be_in_the_study_file(text: str, problem: str) -> None:
    agreed = with_variants(study(method="helmet"), [text])
    with pytest.raises(UnspokenError) as caught, naming_variants(agreed, [text]):
        study_for(agreed, "weak", 1.0)
    assert str(caught.value).startswith(f"--variant is {text!r}, in which {problem}")
    # A section of the file's own is the file's mistake.
    with pytest.raises(StudyError, match=rf"{agreed.source}: \[compare\] weak"), naming_variants(agreed, []):
        study_for(agreed, "weak", 1.0)


def test_several_numbers_of_parties_are_compared() -> None:
    several = study(method="moments", parties={"count": 5, "records": 30})
    found = points_of(run_comparison(replace(small(parties=(5, 10), epsilons=(1.0,), repeats=1), study=several)))
    assert [(point.variant, point.parties) for point in found] == [
        ("moments", 5),
        ("moments", 10),
        ("none", 5),
        ("none", 10),
    ]


def test_each_repeat_may_have_a_split_of_its_own() -> None:
    """With a share held out, each repeat learns from other records; without noise, only that makes runs differ."""
    known, agreed = records(), study(method={"name": "none"}, parties={"count": 5, "records": 40, "max_records": 60})
    whole = Comparison(agreed, known, known, ("none",), (1.0,), repeats=3)
    assert len({run.metrics["accuracy"] for run in run_comparison(whole)}) == 1
    held = replace(whole, test=None, hold_out=0.2)
    runs = run_comparison(held)
    assert [run.seed for run in runs] == [0, 1, 2]
    splits = [held.split_for(5, held.seed_of(repeat)) for repeat in range(3)]
    for train, groups, test in splits:
        assert test is not None
        assert (len(train), len(test), len(groups)) == (240, 60, 240)
        assert test.labels.mean() == pytest.approx(known.labels.mean(), abs=0.01)
        assert not {row.tobytes() for row in train.features} & {row.tobytes() for row in test.features}
    assert len({test.features.tobytes() for _, _, test in splits if test is not None}) == 3
    (point,) = points_of(runs)
    assert interval(point.metrics["accuracy"]) is not None


def test_records_may_be_dealt_anew_and_those_of_named_parties_stay_theirs() -> None:
    known = records()
    dealt = Comparison(study(), known, known, ("moments",), (1.0,), repeats=2, resplit=True)
    one, other = (dealt.split_for(5, dealt.seed_of(repeat)) for repeat in range(2))
    assert (one.groups != other.groups).any()
    assert one.test is known
    groups = np.arange(300) % 5
    named = replace(dealt, groups=groups, resplit=False, hold_out=0.5)
    train, theirs, _ = named.split_for(5, 3)
    place = {row.tobytes(): number for number, row in enumerate(known.features)}
    assert all(groups[place[row.tobytes()]] == party for row, party in zip(train.features, theirs, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hold-out", "1.5"), "--hold-out is 1.5, but should be a share above 0 and below 1"),
        (("--hold-out", "0.2", "--test", "t.npz"), "one is enough; leave one out"),
        ((), "--test is missing: name a file with records to measure the models on, or hold some out"),
    ],
)
def test_what_models_are_measured_on_is_checked(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    (tmp_path / "s.toml").write_text(
        '[study]\nname = "a"\ntask = "classification"\n[data]\nfeatures = 4\nclasses = 2\n'
        "[parties]\ncount = 5\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\n",
        encoding="utf-8",
    )
    np.savez(tmp_path / "d.npz", X=records().features, y=records().labels)
    told = CliRunner().invoke(
        app, ["compare", str(tmp_path / "s.toml"), "--data", str(tmp_path / "d.npz"), "--methods", "moments", *options]
    )
    assert told.exit_code == 2
    assert message in told.stderr
