"""The norm that a study has by default, and its digest: of what it means, not of how it is spelt."""

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.study import StudyError, make_study
from written_studies import EXAMPLE, example, from_text, line_of, of_task, with_matrix

COLUMNS = st.dictionaries(
    st.text(min_size=1, max_size=3).filter(str.isprintable),
    st.sampled_from([{"min": 0, "max": 1}, {"categories": ["a", "b", "c"]}]),
    min_size=1,
    max_size=12,
)


@given(COLUMNS, st.sampled_from([None, True, False]))
def test_a_table_s_norm_is_by_default_what_no_record_exceeds(columns: dict[str, Any], intercept: bool | None) -> None:
    described = {"columns": columns} | ({} if intercept is None else {"intercept": intercept})
    label = {"label": "a label"}
    wide = make_study(of_task("regression", **described, **label)).data
    assert wide.norm == math.sqrt(len(columns) + (intercept is not False))
    if intercept is not True:
        assert make_study(of_task("statistics", **described)).data.norm == math.sqrt(len(columns))
    content = tomllib.loads(EXAMPLE)
    content["data"] |= described | label
    assert make_study(content).data.norm == wide.norm


@pytest.mark.parametrize("task", ["regression", "statistics"])
def test_a_norm_in_the_study_is_respected_and_a_matrix_has_1_by_default(task: str) -> None:
    assert make_study(of_task(task, norm=0.5)).data.norm == 0.5
    assert make_study(of_task(task, norm=1)).data.norm == 1.0
    content = of_task(task, matrix=True)
    del content["data"]["norm"]
    assert make_study(content).data.norm == 1.0


@pytest.mark.parametrize("task", ["regression", "statistics"])
def test_the_default_norm_is_part_of_the_digest(task: str) -> None:
    study = make_study(of_task(task))
    assert make_study(of_task(task, norm=study.data.norm)).digest() == study.digest()
    assert make_study(of_task(task, norm=1.0)).digest() != study.digest()
    assert make_study(study.model_dump(mode="json", exclude_none=True)).digest() == study.digest()


def test_a_copy_with_another_value_has_a_digest_of_its_own() -> None:
    """Also if it is made of a study whose digest was asked for before."""
    study = from_text(EXAMPLE)
    before, more = study.digest(), study.parties.count + 1
    copied = study.model_copy(update={"parties": study.with_parties(more).parties})
    assert copied.digest() == study.with_parties(more).digest() != before == study.digest()
    assert study == from_text(EXAMPLE)


def test_the_digests_of_classification_studies_stay_what_they_were() -> None:
    """Parties that agreed long ago still agree: these are from before the other tasks."""
    example = EXAMPLE.replace("[data]", "[data]\nnorm = 1.0", 1)
    assert from_text(example).digest() == "ea62db80b02e727d34e47734f537937032f0a3a2a2dbd7bb0204cd3a9cf55de3"
    assert from_text(with_matrix()).digest() == "8813ebdde01a020a8697867819127cf04aeddf1e0a9b98f6969d9af4c5332694"


@pytest.mark.parametrize("task", ["regression", "statistics"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"columns": 3}, "[data] columns is 3, but should be for each column"),
        ({"columns": {}}, "[data] needs at least one column under [data.columns]."),
        ({"columns": {"age": 5}}, "[data] columns.age is 5, but should be { min = …"),
        ({"columns": None}, "[data] needs either [data.columns]"),
        ({"norm": "x"}, '[data] norm is "x", but should be a number'),
        ({"intercept": 1}, "[data] intercept is 1, but should be true or false."),
        ({"features": 3}, "[data] has both [data.columns] and features"),
    ],
)
def test_defaults_leave_the_explanation_of_mistakes_alone(task: str, data: dict[str, Any], expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        make_study(of_task(task, **data))
    assert str(caught.value).startswith(f"the study: {expected}")


def test_defaults_leave_the_describedcontent_alone() -> None:
    content = of_task("statistics")
    make_study(content)
    assert content == of_task("statistics")


def test_the_digest_is_of_the_meaning_not_of_the_spelling() -> None:
    sections = EXAMPLE.split("\n\n")
    reordered = "\n\n".join(section.strip() for section in reversed(sections))
    method = EXAMPLE[EXAMPLE.index("[method]") : EXAMPLE.index("[summation]")]
    turned = EXAMPLE.replace(method, "[method]\n" + "\n".join(reversed(method.strip().splitlines()[1:])) + "\n\n")
    other_columns = EXAMPLE.replace("age = { min = 0, max = 110 }\n", "").replace(
        "[parties]", "[data.columns.age]\nmax = 110.0\nmin = 0.0\n\n[parties]"
    )
    respelled = (
        EXAMPLE.replace("delta = 1e-5", "delta = 0.00001")
        .replace("regularization = 0.1", "regularization = 1e-1")
        .replace("# likewise", "")
        .replace('unit = "record"', "")
    )
    whole = example("regularization", "1"), example("regularization", "1.0")
    original = from_text(EXAMPLE).digest()
    assert len(original) == 64
    assert from_text(reordered).digest() == original
    assert from_text(turned).digest() == original
    assert from_text(other_columns).digest() == original
    assert from_text(respelled).digest() == original
    assert from_text(whole[0]).digest() == from_text(whole[1]).digest()
    assert from_text(EXAMPLE).model_copy(update={"source": "elsewhere.toml"}).digest() == original


def test_the_same_digest_means_the_same_order_of_features() -> None:
    lines = EXAMPLE.splitlines(keepends=True)
    at = line_of(EXAMPLE, "age") - 1
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    one, other = from_text(EXAMPLE), from_text("".join(lines))
    assert one.digest() == other.digest()
    assert list(one.data.columns or {}) == list(other.data.columns or {}) == ["age", "sex"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.59", "0.6"),
        ("1e-5", "1e-6"),
        ("max = 110", "max = 111"),
        ('["f", "m"]', '["m", "f"]'),
        ('["no", "yes"]', '["yes", "no"]'),
        ("count = 1000", "count = 1001"),
        ("colluding = 0.5 ", "colluding = 1 "),
        ('"record" ', '"party" '),
        ("regularization = 0.1", "regularization = 0.2"),
        ('"softmax" ', '"svm" '),
        ('"compute-nodes"', '"ideal"'),
        ('"heart"', '"lung"'),
    ],
)
def test_the_digest_changes_with_any_value(old: str, new: str) -> None:
    assert old in EXAMPLE
    assert from_text(EXAMPLE.replace(old, new)).digest() != from_text(EXAMPLE).digest()
