"""What does not fit cross-silo training is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from silos import study
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.registry import method_for
from unspoken.study import StudyError, make_study


def test_an_epsilon_or_a_noise_is_needed_and_not_both() -> None:
    with pytest.raises(StudyError, match=r"\[privacy\] has both epsilon and noise_multiplier.*remove one\.$"):
        study(epsilon=1.0, noise_multiplier=1.0)
    content = study().model_dump(exclude_none=True)
    del content["privacy"]["noise_multiplier"]
    with pytest.raises(StudyError, match=r"\[privacy\] epsilon is missing; it should be a number from 1e-4"):
        make_study(content)


UNSAMPLED = ("helmet", "moments", "cape", "conv", "local", "central", "dp-fm", "objective-perturbation")


@pytest.mark.parametrize("name", ["dp-fm", "objective-perturbation"])
def test_pure_promises_refuse_a_noise_multiplier_in_one_sentence(name: str) -> None:
    content = study().model_dump(exclude_none=True)
    content["method"] = {"name": name}
    with pytest.raises(StudyError) as raised:
        method_for(make_study(content)).plan()
    assert str(raised.value) == f'the study: [privacy] lacks epsilon, which the method "{name}" needs.'


@pytest.mark.parametrize("name", UNSAMPLED)
def test_other_methods_refuse_add_remove_in_one_sentence(name: str) -> None:
    content = study(epsilon=1.0, adjacency="add-remove").model_dump(exclude_none=True)
    content["method"] = {"name": name}
    with pytest.raises(StudyError, match=r"\[privacy\] adjacency is \"add-remove\", but .*use \"replace\"\.$"):
        method_for(make_study(content)).plan()


def test_a_projection_must_fit_the_model() -> None:
    with pytest.raises(StudyError, match=r"\[method\] projection is 11, but the model has 10 weights only"):
        CrossSilo(study({"projection": 11}))
    plan = CrossSilo(study({"projection": 6, "rounds": 2}, classes=3)).plan()
    assert plan.sums[0].dimension <= 6


@pytest.mark.parametrize(
    ("method", "privacy", "words"),
    [
        ({}, {"unit": "party"}, r"\[privacy\] unit should be \"record\" with \"cross-silo\""),
        ({}, {"unit": {"group": 2}}, "sampling protects single records"),
        ({}, {"colluding": 2, "dropouts": 1}, "leaves no honest party: of 3 parties, 2 may know their own noise"),
        ({"model": "mpl"}, {}, r"\[method\] model is \"mpl\", which is unknown; use \"linear\", \"mlp\", \"cnn\" or"),
        ({"model": "cnn"}, {}, r"\[method\] model is \"cnn\", which takes square images of one or three channels"),
        ({"rate": 0.0}, {}, r"\[method\] rate is 0\.0, but should be the expected share of all records in a batch"),
        ({"hidden": [3, 0]}, {}, r"\[method\] hidden is \[3, 0\], but should list sizes of 1 or more"),
        ({"hidden": [3]}, {}, r"\[method\] has hidden layers, but model = \"linear\" has none"),
        (
            {"hidden": [3], "model": "a:B"},
            {},
            r"\[method\] has hidden layers, but model = \"a:B\" is a class of your own",
        ),
        ({"momentum": 0.9, "optimizer": "adam"}, {}, r"\[method\] has momentum, which is for optimizer = \"sgd\""),
        ({"projection_kind": "gaussian"}, {}, r"\[method\] has projection_kind, but no projection"),
        ({"rouns": 3}, {}, r"\[method\] rouns is an unknown key; did you mean 'rounds'\?"),
        ({}, {"delta": 1e-30}, r"\[privacy\] delta is 1e-30, but the summation, the drawing of noise and the sampling"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    method: dict[str, Any], privacy: dict[str, Any], words: str
) -> None:
    with pytest.raises(StudyError, match=words):
        CrossSilo(study(method, **privacy)).plan()


def test_statistics_are_not_trained() -> None:
    content = study().model_dump(exclude_none=True)
    content["study"]["task"], content["data"] = "statistics", {"features": 2}
    with pytest.raises(
        StudyError, match=r"\[study\] task is \"statistics\", but \"cross-silo\" is for classification and regression"
    ):
        CrossSilo(make_study(content))


def test_who_leaves_the_number_of_records_open_is_told_what_steps_are_sized_for() -> None:
    """Only where their true number is hidden."""
    content = study().model_dump(exclude_none=True)
    content["parties"] = {"count": 3}
    content["privacy"]["adjacency"] = "add-remove"
    assert any("set records" in note for note in CrossSilo(make_study(content)).plan().notes)
    content["privacy"]["adjacency"] = "replace"
    assert not any("set records" in note for note in CrossSilo(make_study(content)).plan().notes)
