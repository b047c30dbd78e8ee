"""Settings are chosen on public records: what serves best there, with the study's own noise; files are left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unspoken
from factories import maker
from unspoken.cli import app
from unspoken.data.records import DataError
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
        ({}, {"epsilons": [0.0]}, "epsilons has 0.0, but should have numbers above 0"),
        ({}, {"epsilons": []}, "there are 0 epsilons"),
        ({}, {"repeats": 0}, "repeats is 0"),
        ({}, {"split": "fair"}, "the split is 'fair'"),
    ],
)
def test_what_cannot_be_tuned_is_told(said: dict[str, Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises((StudyError, DataError, ValueError), match=message):
        unspoken.tune(study(**said), *records(), **keys)


def test_records_of_one_class_teach_nothing() -> None:
    features, _ = records(30)
    with pytest.raises(DataError, match="30 public records of 1 classes, too few to learn"):
        unspoken.tune(study(), features, np.zeros(30, dtype=int))


def invoke(folder: Path, *arguments: str) -> Any:
    (folder / "study.toml").write_text(TEXT, encoding="utf-8")
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
