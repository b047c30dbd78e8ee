"""Study files to start from say about records what their method takes them for. (`study/test_tasks` plans them all.)"""

from __future__ import annotations

import re
import tomllib

import pytest

from unspoken.methods.moments import Moments
from unspoken.methods.registry import METHODS, method_for
from unspoken.study import Study, make_study
from unspoken.templates import StudyNumbers, study_text, toml_text

EVERY = [(name, task) for name, kind in METHODS.items() for task in kind.template]


def made(text: str) -> Study:
    return make_study(tomllib.loads(text))


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize(("method", "task"), EVERY)
def test_the_norm_is_the_one_that_the_method_takes_by_itself(method: str, task: str, matrix: bool) -> None:
    text = study_text("study.toml", "lung", matrix=matrix, task=task, method=method)
    without = "\n".join(line for line in text.splitlines() if not re.match(r"(# )?norm = ", line))
    assert text.count("norm = ") == without.count("norm = ") + 1
    assert made(text).data.norm == made(without).data.norm


def test_a_method_that_clips_no_records_gets_no_norm() -> None:
    texts = [study_text("study.toml", "lung", matrix=matrix, method="voting") for matrix in (True, False)]
    assert all("\n# norm = 1.0 " in text and "\nnorm" not in text for text in texts)
    assert "\nnorm = 1.0 " in study_text("study.toml", "lung", matrix=True, method="moments")


def test_a_matrix_may_have_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moments, "template", {"classification": "steps = 4\n", "regression": ""})
    monkeypatch.setattr(Moments, "matrix_template", {"classification": "steps = 9\n"})
    steps = {matrix: made(study_text("s", "lung", matrix=matrix, method="moments")) for matrix in (True, False)}
    assert [steps[matrix].method.own_keys for matrix in (True, False)] == [{"steps": 9}, {"steps": 4}]
    study_text("s", "lung", matrix=True, task="regression", method="moments")


def test_a_study_of_one_party_has_no_lines_on_sums_and_whole_parties() -> None:
    alone, several = (
        study_text("s", "lung", matrix=True, method="helmet", numbers=StudyNumbers(count, colluding=0, dropouts=0))
        for count in (1, 2)
    )
    assert method_for(made(alone)).plan().guarantee.epsilon == pytest.approx(1.0, rel=1e-3)
    for line in ("[summation]", 'all of a "party"'):
        assert line not in alone
        assert line in several


def test_names_are_written_as_they_are_in_any_language() -> None:
    for name in ("größe", 'a "quoted" name', "tab\tand \x7f", "naïve ❤"):
        assert tomllib.loads(f"{toml_text(name)} = 1") == {name: 1}
    assert toml_text("größe") == '"größe"'
