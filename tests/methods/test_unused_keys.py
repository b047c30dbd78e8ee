"""A key of [method] that would change nothing is refused, with what would make use of it."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from factories import make
from unspoken.comparison.variants import study_for
from unspoken.methods.functions import FunctionOptions
from unspoken.methods.functions.auto import LEFT_OPEN
from unspoken.methods.functions.method import _FUNCTIONS
from unspoken.methods.registry import METHODS, method_for
from unspoken.study import StudyError

GIVEN = {"coefficients": 1.0, "reshape": False, "repair": "none", "bins": 3, "hidden": 4, "steps": 2, "clip": 0.1}
GIVEN |= {"score_noise": 0.5, "learning_rate": 2.0, "seed": 1}
TARGETS: dict[str, dict[str, Any]] = {"classification": {"classes": 2}, "regression": {"label_bounds": [0, 1]}}


def study(task: str, name: str, **keys: Any) -> Any:
    intercept = {} if task == "statistics" else {"intercept": True}
    data = {"features": 3, "norm": 1.0, **TARGETS.get(task, {}), **intercept}
    return make(name, task=task, data=data, parties={"count": 40, "records": 500}, epsilon=2.0, method=keys)


CASES = [(task, name) for task, known in _FUNCTIONS.items() for name in known]
CASES += [("classification", "auto"), ("regression", "auto")]


@pytest.mark.parametrize(("task", "name"), CASES)
def test_a_function_takes_the_keys_that_it_uses_and_refuses_all_others(task: str, name: str) -> None:
    uses = LEFT_OPEN if name == "auto" else _FUNCTIONS[task][name].uses
    assert set(GIVEN) == set(FunctionOptions.model_fields) - {"function"}
    for key, value in GIVEN.items():
        if key in uses:
            method_for(study(task, "moments", function=name, **{key: value}))
            continue
        with pytest.raises(
            StudyError, match=rf'\[method\] {key} is .*, but function = "{name}" makes no use of it; rem'
        ):
            method_for(study(task, "moments", function=name, **{key: value}))


@pytest.mark.parametrize("kind", dict.fromkeys(kind for known in _FUNCTIONS.values() for kind in known.values()))
def test_a_function_names_all_keys_that_its_code_reads(kind: Any) -> None:
    read = set(re.findall(r"options\.(\w+)", inspect.getsource(kind)))
    assert read - {"function"} == set(kind.uses)


@pytest.mark.parametrize(
    ("task", "name", "keys", "told"),
    [
        ("classification", "moments", {"function": "auto", "clip": 0.5}, "remove it, or set function = "),
        ("classification", "moments", {"reshape": False}, 'function = "softmax" makes no use of it; remove it, or set'),
        (
            "classification",
            "cape",
            {"steps": 3},
            '"logistic-regression" makes no use of it; remove it, or set function',
        ),
        ("classification", "moments", {"function": "softmax", "bins": 3}, "makes no use of it; remove it."),
        (
            "statistics",
            "central",
            {"bins": 3},
            'function = "mean" makes no use of it; remove it, or set function = "his',
        ),
        (
            "classification",
            "helmet",
            {"smoothing": 0.2},
            'learner = "softmax" makes no use of it; remove it, or set le',
        ),
        ("classification", "helmet", {"batch": 9}, 'solver = "certified" makes no use of it; remove it, or set solver'),
        ("classification", "helmet", {"epochs": 9, "learner": "svm"}, 'solver = "certified" makes no use of it'),
        ("classification", "helmet", {"seed": 1}, 'solver = "certified" makes no use of it'),
        ("classification", "multiparty", {"smoothing": 0.2, "labels": "average"}, 'or set learner = "svm"'),
    ],
)
def test_the_remedy_names_what_makes_use_of_a_key(task: str, name: str, keys: dict[str, Any], told: str) -> None:
    with pytest.raises(StudyError, match=re.escape(told)):
        method_for(study(task, name, **keys))


def test_keys_are_taken_where_they_are_used() -> None:
    method_for(study("classification", "helmet", learner="svm", smoothing=0.2))
    method_for(study("classification", "helmet", solver="sgd", batch=2, epochs=3, seed=1))
    method_for(study("classification", "moments", function="auto", clip=None))


def test_a_rule_that_takes_no_steps_refuses_their_number() -> None:
    few = make("moments", task="regression", data={"features": 3, "label_bounds": [0, 1]}, method={"function": "auto"})
    assert any("least squares" in note for note in method_for(few).plan().notes)
    told = few.model_copy(update={"method": few.method.model_copy(update={"steps": 3})})
    with pytest.raises(StudyError, match=r"\[method\] steps is 3, but here the rule chooses one sum for least squares"):
        method_for(told)


@pytest.mark.parametrize("name", ["cape", "central", "helmet", "local", "none"])
def test_what_is_compared_inherits_only_keys_that_mean_something_in_it(name: str) -> None:
    """`steps` of a study by `moments` are those of softmax, so others compute softmax, too, if they can."""
    other = study_for(study("classification", "moments", steps=3), name, 1.0)
    assert ("steps" in other.method.own_keys) == ("function" in METHODS[name].keys.model_fields)
    sgd = study("classification", "helmet", solver="sgd", epochs=2)
    assert "epochs" not in study_for(sgd, name, 1.0).method.own_keys or name == "helmet"
