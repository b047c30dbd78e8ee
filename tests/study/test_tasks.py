"""Each task (classification, regression, statistics) has the keys that it needs, and no others."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unspoken.errors import UnspokenError
from unspoken.methods.registry import METHODS, method_for
from unspoken.study import StudyError, make_study
from unspoken.summation.keys import Identity
from unspoken.templates import study_text
from written_studies import EXAMPLE, complaint, example, line_of, of_task, with_matrix


def test_a_regression_needs_the_bounds_of_its_labels(tmp_path: Path) -> None:
    text = example("task", '"regression"')
    message = complaint(tmp_path, text)
    assert message.startswith(f", line {line_of(text, '[data]')}: [data] lacks label_bounds: the smallest and the")


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("task", ["regression", "statistics"])
def test_regression_and_statistics_need_no_classes(task: str, matrix: bool) -> None:
    study = make_study(of_task(task, matrix=matrix))
    assert study.study.task == task
    assert study.data.label_bounds == ((0.0, 300.0) if task == "regression" else None)


@pytest.mark.parametrize("matrix", [False, True])
def test_statistics_have_no_constant(matrix: bool) -> None:
    content = of_task("statistics", matrix=matrix)
    content["data"].pop("intercept", None)
    study = make_study(content)
    assert (study.data.has_intercept, study.data.dimension) == (False, 1280 if matrix else 3)
    assert make_study(of_task("statistics", matrix=matrix, intercept=False)).digest() == study.digest()


PREDICTS_NOTHING = 'but the task is "statistics", which predicts nothing; remove it.'


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize(
    ("task", "key", "value", "expected"),
    [
        ("statistics", "label", "died", f'label is "died", {PREDICTS_NOTHING}'),
        ("statistics", "label", "age", f'label is "age", {PREDICTS_NOTHING}'),
        ("statistics", "classes", ["no", "yes"], f'classes is ["no", "yes"], {PREDICTS_NOTHING}'),
        ("statistics", "classes", 2, f"classes is 2, {PREDICTS_NOTHING}"),
        ("statistics", "label_bounds", [0, 1], f"label_bounds is [0.0, 1.0], {PREDICTS_NOTHING}"),
        ("statistics", "intercept", True, f"intercept is true, {PREDICTS_NOTHING}"),
        (
            "regression",
            "classes",
            ["no", "yes"],
            'classes is ["no", "yes"], but the task is "regression", whose labels are numbers; remove it, or set task '
            '= "classification".',
        ),
        (
            "regression",
            "classes",
            2,
            'classes is 2, but the task is "regression", whose labels are numbers; remove it, or set task = '
            '"classification".',
        ),
    ],
)
def test_a_key_that_would_be_ignored_is_refused(task: str, key: str, value: Any, expected: str, matrix: bool) -> None:
    with pytest.raises(StudyError) as caught:
        make_study(of_task(task, matrix=matrix, **{key: value}))
    assert str(caught.value) == f"the study: [data] {expected}"


@pytest.mark.parametrize("original", [EXAMPLE, with_matrix()])
def test_bounds_of_labels_are_refused_in_a_classification_with_their_line(tmp_path: Path, original: str) -> None:
    text = original.replace("[data] ", "[data]").replace("[data]", "[data]\nlabel_bounds = [0, 110]#")
    assert complaint(tmp_path, text) == (
        f", line {line_of(text, 'label_bounds')}: [data] label_bounds is [0.0, 110.0], but the task is "
        '"classification", whose labels are classes; remove it, or set task = "regression".'
    )


def test_a_regression_of_a_table_needs_a_label_that_is_no_column() -> None:
    content = of_task("regression", label="age")
    with pytest.raises(StudyError, match=r"has the label 'age' among its columns too; take it out of \[data.columns\]"):
        make_study(content)
    del content["data"]["label"]
    with pytest.raises(StudyError, match=r"^the study: \[data\] needs label = the name of the label's column\.$"):
        make_study(content)


@pytest.mark.parametrize("task", ["regression", "statistics"])
def test_a_roster_names_every_party_whatever_the_task(task: str) -> None:
    keys = [Identity(bytes([number]) * 32).public.hex() for number in range(3)]
    content = of_task(task) | {"roster": {"parties": keys[:2], "coordinator": keys[2]}}
    with pytest.raises(StudyError, match=r"parties has 2 keys, but \[parties\] count is 1000; list every party\.$"):
        make_study(content)


@pytest.mark.parametrize("key", ["0" * 64, "01" + "0" * 62, "ff" * 32], ids=["low order", "neutral", "not canonical"])
def test_a_key_that_nobody_can_have_made_is_refused_by_its_place(key: str) -> None:
    keys = [Identity(bytes([number]) * 32).public.hex() for number in range(2)]
    content = of_task("regression") | {"roster": {"parties": [keys[0], key], "coordinator": keys[1]}}
    with pytest.raises(StudyError, match=r"\[roster\] parties.*is no Ed25519 public key; ask its owner"):
        make_study(content)


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("task", ["classification", "regression", "statistics"])
def test_the_study_to_start_from_is_valid_for_every_task(task: str, matrix: bool) -> None:
    text = study_text("study.toml", "lung", matrix=matrix, task=task)
    study = make_study(tomllib.loads(text))
    assert (study.study.name, study.study.task, study.data.is_table) == ("lung", task, not matrix)
    assert study.method.name == "moments"
    assert all(len(line) <= 120 for line in text.splitlines())
    if task == "classification":
        assert text == study_text("study.toml", "lung", matrix=matrix)
        method_for(study).plan()
    if task == "statistics":
        assert study.method.model_extra == {"function": "mean"}
        assert '"histogram", with bins = 10' in text


@pytest.mark.parametrize("task", ["classification", "regression", "statistics"])
def test_every_method_to_start_from_plans(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("public.npz", X=np.zeros((100, 64)))
    for method in (name for name, kind in METHODS.items() if task in kind.template):
        study = make_study(tomllib.loads(study_text("study.toml", "lung", matrix=True, task=task, method=method)))
        plan = method_for(study).plan()
        assert (study.method.name, plan.method) == (method, method)
        assert plan.guarantee.epsilon <= 1.0
    text = study_text("study.toml", "lung", matrix=False, task="classification", method="cape")
    assert method_for(make_study(tomllib.loads(text))).plan().method == "cape"
    with pytest.raises(UnspokenError, match=f"the method 'helmut' has no template for {task}; name one of"):
        study_text("study.toml", "lung", matrix=True, task=task, method="helmut")


def test_an_unknown_task_to_start_from_is_told() -> None:
    with pytest.raises(UnspokenError) as caught:
        study_text("study.toml", "lung", matrix=False, task="clustering")
    assert str(caught.value) == (
        "the task is 'clustering', but should be one of: classification, regression, statistics."
    )
