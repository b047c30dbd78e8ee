"""Settings are chosen on public records: what serves best there, with the study's own noise; files are left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import unspoken
from factories import maker
from unspoken.cli import app
from unspoken.data.records import DataError
from unspoken.methods.helmet import Helmet
from unspoken.methods.helmet_rules import weight_noise
from unspoken.methods.registry import method_for
from unspoken.simulation.tuning import with_settings
from unspoken.study import StudyError, read_study

FEATURES = 6
study = maker(
    data={"features": FEATURES, "classes": 3},
    parties={"count": 50, "records": 20, "max_records": 40},
    delta=1e-5,
)
TEXT = """\
[study]
name = "tuned"
task = "classification"

[data]
features = 6
classes = 3

[parties]
count = 50
records = 20

[privacy]
epsilon = 1.0  # agreed
delta = 1e-5

[method]
name = "helmet"
regularization = 0.7  # a guess
"""


def records(count: int = 360, length: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    """Three classes that lie around a direction each."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    features = 2.0 * np.eye(FEATURES)[labels] + rng.normal(size=(count, FEATURES))
    return length * features / np.linalg.norm(features, axis=1, keepdims=True), labels


def chosen(tuned: Any) -> list[float]:
    return [choice.settings["method"]["regularization"] for choice in tuned.choices]


def test_more_noise_asks_for_more_regularisation_and_every_epsilon_has_its_choice() -> None:
    tuned = unspoken.tune(study(), *records(), epsilons=[0.02, 30.0], repeats=2)
    strong, weak = chosen(tuned)
    assert strong > weak
    assert tuned.choices[0].accuracy < tuned.choices[1].accuracy
    assert [choice.epsilon for choice in tuned.choices] == [0.02, 30.0]
    assert tuned.records == 360


def test_the_noise_is_that_of_the_study_and_not_that_of_as_few_parties_as_are_public() -> None:
    """The same public records serve a study of 50 parties badly, and one of 50,000 well."""
    few, many = (
        unspoken.tune(study(parties={"count": count}), *records(), epsilons=[0.02], repeats=2).choices[0]
        for count in (50, 50_000)
    )
    assert many.accuracy > few.accuracy + 0.1
    method: Any = method_for(study())
    planned = method.plan().sum_named("model")
    told = weight_noise(method.study, method.learner, method.by_records)
    assert told == pytest.approx(planned.total_std(50) / (50 * 20), rel=0.02)


def test_whole_parties_get_a_radius_and_long_records_a_norm() -> None:
    features, labels = records()
    features[::2] *= 0.2
    tuned = unspoken.tune(study(unit="party"), features, labels, repeats=1)
    assert tuned.choices[0].settings["method"]["radius"] > 0.0
    assert tuned.choices[0].tried > 40
    small = unspoken.tune(study(), *records(length=0.1), epsilons=[0.1], repeats=1)
    assert small.choices[0].settings["data"]["norm"] == pytest.approx(0.1)
    # The settings that are named are a study.
    content = TEXT
    for choice in (*tuned.choices, *small.choices):
        content = with_settings(content, choice.settings, "study.toml")


def test_the_same_records_and_seed_give_the_same_choice() -> None:
    one, other = (unspoken.tune(study(), *records(), repeats=1, seed=5) for _ in range(2))
    assert one.choices == other.choices


@pytest.mark.parametrize(
    ("said", "keys", "message"),
    [
        ({"method": "moments"}, {}, r'is "moments", which has no settings to choose'),
        ({"noise_multiplier": 2.0}, {}, "lacks epsilon"),
        ({}, {"epsilons": [0.0]}, "epsilons has 0.0, but should have numbers from 1e-4 to 1000"),
        ({}, {"epsilons": [1e-6]}, "epsilons has 1e-06, but should have numbers from 1e-4 to 1000"),
        ({}, {"epsilons": []}, "epsilons has no number"),
        ({}, {"repeats": 0}, "repeats is 0"),
        ({}, {"split": "fair"}, "the split is 'fair'"),
    ],
)
def test_what_cannot_be_tuned_is_told(said: dict[str, Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises((StudyError, DataError, ValueError), match=message):
        unspoken.tune(study(**said), *records(), **keys)


def test_labels_beside_a_file_that_has_them_are_refused(tmp_path: Path) -> None:
    rows, labels = records()
    np.savez(tmp_path / "public.npz", X=rows, y=labels)
    with pytest.raises(DataError, match="X is a file's path, which has the labels, too; leave y out"):
        unspoken.tune(study(), tmp_path / "public.npz", labels)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"seed": -1}, "seed is -1, but should be 0 or more"),
        ({"repeats": 2.5}, "repeats is 2.5, but should be a whole number"),
        ({"epsilons": 1.0}, "epsilons is 1.0, but should be a list of numbers"),
        ({"epsilons": "1,2"}, "epsilons is '1,2', but should be a list"),
        ({"epsilons": [True]}, "epsilons has True"),
    ],
)
def test_what_is_no_number_is_told_in_a_sentence(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        unspoken.tune(study(), *records(), **keys)


def test_a_table_is_read_as_its_file_is() -> None:
    """Columns are scaled by the study's bounds: raw ones would all be clipped to almost the same vector."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(20, 90, 200), "weight": rng.uniform(40, 120, 200)})
    frame["ill"] = (frame["age"] > 55).astype(int)
    columns = {"age": {"min": 0, "max": 110}, "weight": {"min": 30, "max": 200}}
    table = study(data={"label": "ill", "classes": [0, 1], "columns": columns})
    whole = unspoken.tune(table, frame, repeats=1).choices
    assert whole == unspoken.tune(table, frame[["weight", "age"]], frame["ill"], repeats=1).choices
    assert whole[0].accuracy > 0.9


def test_settings_that_were_measured_without_the_study_s_radius_leave_it_out(tmp_path: Path) -> None:
    small = study(method={"radius": 0.001})
    (choice,) = unspoken.tune(small, *records(), repeats=1).choices
    assert choice.settings["method"]["radius"] is None
    text = TEXT + "radius = 0.001  # too small\n"
    (tmp_path / "new.toml").write_text(with_settings(text, choice.settings, "study.toml"), encoding="utf-8")
    written: Any = method_for(read_study(tmp_path / "new.toml"))
    assert written.options.radius is None
    assert written.options.regularization == choice.settings["method"]["regularization"]
    kept = unspoken.tune(study(method={"radius": 0.001}, unit="party"), *records(), repeats=1).choices[0].settings
    assert kept["method"]["radius"] > 0.001  # type: ignore[operator]


def test_classes_that_no_public_record_has_are_named() -> None:
    features, labels = records()
    two = labels < 2
    with pytest.warns(unspoken.DataWarning, match="No public record has the class 2, so the settings"):
        tuned = unspoken.tune(study(), features[two], labels[two], repeats=1)
    assert tuned.to_json()["remarks"] == list(tuned.remarks)
    assert len(tuned.remarks) == 1
    assert unspoken.tune(study(), features, labels, repeats=1).remarks == ()


def test_one_split_has_no_deviation() -> None:
    one, several = (unspoken.tune(study(), *records(), repeats=repeats).choices[0] for repeats in (1, 3))
    assert one.deviation is None
    assert several.deviation is not None
    assert several.deviation > 0.0


def test_records_of_one_class_teach_nothing() -> None:
    features, _ = records(30)
    with pytest.raises(DataError, match="30 public records of 1 class, too few to learn"):
        unspoken.tune(study(), features, np.zeros(30, dtype=int))


def invoke(folder: Path, *arguments: str, text: str = TEXT) -> Any:
    (folder / "study.toml").write_text(text, encoding="utf-8")
    features, labels = records(180)
    np.savez(folder / "public.npz", X=features, y=labels)
    files = [str(folder / "study.toml"), "--public", str(folder / "public.npz")]
    return CliRunner().invoke(app, ["tune", *files, "--repeats", "1", *arguments])


def test_the_command_prints_one_object_and_writes_a_study_only_where_told(tmp_path: Path) -> None:
    found = json.loads(invoke(tmp_path, "--epsilons", "0.1,3", "--json").stdout)
    assert [choice["epsilon"] for choice in found["choices"]] == [0.1, 3.0]
    assert found["file"] is None
    assert {file.name for file in tmp_path.iterdir()} == {"study.toml", "public.npz"}
    new = tmp_path / "new.toml"
    told = invoke(tmp_path, "--epsilons", "3", "--output", str(new))
    assert "no private record was looked at" in told.stdout
    written = read_study(new)
    assert written.privacy.epsilon == 3.0
    assert written.method.own_keys["regularization"] == found["choices"][1]["settings"]["method"]["regularization"]
    assert "# agreed" in new.read_text(encoding="utf-8")
    assert (tmp_path / "study.toml").read_text(encoding="utf-8") == TEXT


def test_an_epsilon_that_is_named_takes_the_place_of_a_noise_multiplier(tmp_path: Path) -> None:
    noisy, new = TEXT.replace("epsilon = 1.0", "noise_multiplier = 2.0"), tmp_path / "new.toml"
    assert "lacks epsilon, for which settings are chosen; name values" in invoke(tmp_path, text=noisy).stderr
    assert invoke(tmp_path, "--epsilons", "0.5", "--output", str(new), text=noisy).exit_code == 0
    assert read_study(new).privacy.epsilon == 0.5
    assert read_study(new).privacy.noise_multiplier is None


def test_a_file_that_cannot_be_changed_is_told_before_anything_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Helmet, "tuned", None)
    inline = TEXT.partition("[method]")[0].replace("delta = 1e-5", 'delta = 1e-5\nunit = "party"')
    refused = invoke(tmp_path, "--output", str(tmp_path / "new.toml"), text=inline)
    assert refused.exit_code == 2
    assert "has no line [method]" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "seed is -1, but should be 0 or more"),
        (["--epsilons", "1,"], "--epsilons is '1,', but should be numbers"),
        (["--public", "nowhere.npz"], "nowhere.npz: there is no such file"),
        (["--split", "fair"], "the split is 'fair'"),
    ],
)
def test_mistakes_of_the_command_are_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = invoke(tmp_path, *arguments)
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_study_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    new = tmp_path / "new.toml"
    new.write_text("mine", encoding="utf-8")
    refused = invoke(tmp_path, "--output", str(new))
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
    assert new.read_text(encoding="utf-8") == "mine"
    assert "name one" in invoke(tmp_path, "--epsilons", "1,2", "--output", str(tmp_path / "other.toml")).stderr


def test_a_file_without_the_section_is_told() -> None:
    inline = TEXT.replace('[method]\nname = "helmet"\nregularization = 0.7  # a guess\n', "")
    with pytest.raises(StudyError, match=r"has no line \[method\] to put regularization under; set them by hand"):
        with_settings(inline, {"method": {"regularization": 1.0}}, "study.toml")
