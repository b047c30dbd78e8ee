"""A study file is read: the examples of the design, what may be left out, and files that are no study."""

import math
import tomllib
from fractions import Fraction
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make
from unspoken.methods.registry import method_for
from unspoken.study import StudyError, make_study, read_study
from written_studies import EXAMPLE, example, from_text, with_matrix


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    path = tmp_path / "heart.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    study = read_study(path)
    assert (study.study.name, study.study.task, study.source) == ("heart", "classification", str(path))
    assert (study.data.class_names, study.data.dimension, study.data.norm) == (["no", "yes"], 4, math.sqrt(3))
    assert (study.parties.count, study.parties.records) == (1000, 50)
    assert (study.privacy.epsilon, study.privacy.delta, study.group) == (0.59, 1e-5, 1)
    assert (study.colluding, study.dropouts) == (500, 50)
    assert study.method.model_extra == {"learner": "softmax", "regularization": 0.1}
    assert method_for(study).plan().guarantee.epsilon <= 0.59


def test_the_matrix_of_the_design_is_read() -> None:
    data = make_study(tomllib.loads(with_matrix())).data
    assert not data.is_table
    assert (data.raw_dimension, data.dimension, data.class_names) == (1280, 1280, list(range(10)))


@pytest.mark.parametrize(("given", "dimension"), [("", 64), ("intercept = true\n", 65), ("intercept = false\n", 64)])
def test_a_matrix_has_a_constant_only_if_asked_for(given: str, dimension: int) -> None:
    text = with_matrix().replace("intercept = false\n", given).replace("1280", "64")
    assert make_study(tomllib.loads(text)).data.dimension == dimension


@pytest.mark.parametrize(("intercept", "dimension"), [(None, 4), (True, 4), (False, 3)])
def test_a_table_has_a_constant_unless_told_otherwise(intercept: bool | None, dimension: int) -> None:
    content = tomllib.loads(EXAMPLE)
    if intercept is not None:
        content["data"]["intercept"] = intercept
    assert make_study(content).data.dimension == dimension


@pytest.mark.parametrize(("unit", "group"), [('"record"', 1), ('"party"', None), ("{ group = 5 }", 5)])
def test_the_unit_says_how_many_records_are_protected_at_once(unit: str, group: int | None) -> None:
    assert make_study(tomllib.loads(example("unit", unit))).group == group


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert read_study(path).study.name == "heart"


def test_a_study_without_a_method_means_the_usual_one() -> None:
    start = EXAMPLE.index("[method]")
    silent = EXAMPLE[:start] + EXAMPLE[EXAMPLE.find("\n\n", start) :]
    unnamed, named = (
        make_study(tomllib.loads(silent)),
        make_study(tomllib.loads(silent + '\n[method]\nname = "moments"\n')),
    )
    assert unnamed.digest() == named.digest()
    assert method_for(unnamed).plan().method == "moments"


def test_a_classification_that_protects_parties_and_names_no_method_gets_one_that_can() -> None:
    """A regression has none, and says so."""
    content = make(unit="party").model_dump(exclude_none=True)
    unnamed = make_study({key: section for key, section in content.items() if key != "method"})
    assert unnamed.digest() == make(unit="party", method="helmet").digest()
    assert method_for(unnamed).plan().method == "helmet"
    remedy = r'\[privacy\] unit is "party", but "moments" protects records; use "record" or \{ group = … \}'
    with pytest.raises(StudyError, match=remedy + r', or \[method\] name = "helmet"\.'):
        method_for(make(unit="party", method="moments")).plan()
    with pytest.raises(StudyError, match=remedy + r"\."):
        method_for(make(task="regression", unit="party", method="moments")).plan()


def test_a_study_without_a_summation_uses_compute_nodes() -> None:
    text = EXAMPLE[: EXAMPLE.index("[summation]")]
    assert make_study(tomllib.loads(text)).digest() == make_study(tomllib.loads(EXAMPLE)).digest()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'[study]\nname = "a', "is not valid TOML ("),
        (b"[study]\nname =\n", "(at line 2, column 7)"),
        (b'[study]\nname = "a"\nname = "b"\n', "(at line 3, column 11)"),
        (b"\xff\xfe", "cannot be read as text ('utf-8' codec can't decode byte 0xff in position 0"),
        (b"", "[study] is missing; it should be a section of the study."),
    ],
)
def test_a_file_that_is_no_toml_is_told_where(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"study\.toml: .*\.$") as caught:
        read_study(path)
    assert expected in str(caught.value)


def test_a_missing_file_is_named_with_where_to_get_one(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.toml"
    with pytest.raises(StudyError) as caught:
        read_study(path)
    assert str(caught.value) == f"{path}: there is no such file; `unspoken new` writes a study to start from."


def test_a_folder_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"cannot be read as text .*; a study is a TOML file in UTF-8"):
        read_study(tmp_path)


def test_a_study_from_python_is_complained_about_without_a_line() -> None:
    content = tomllib.loads(example("epsilon", "0"))
    with pytest.raises(StudyError, match=r"^the study: \[privacy\] epsilon is 0, but should be"):
        make_study(content)


def test_numpy_numbers_are_as_good_as_python_s() -> None:
    content = tomllib.loads(EXAMPLE)
    content["parties"]["count"] = np.int64(1000)
    content["privacy"] |= {"epsilon": np.float64(0.59), "colluding": np.float64(0.5)}
    content["data"]["classes"] = [np.str_("no"), np.str_("yes")]
    study = make_study(content)
    assert study.digest() == make_study(tomllib.loads(EXAMPLE)).digest()
    assert study.colluding == 500


@pytest.mark.parametrize(
    ("share", "parties", "count"),
    [
        ("0.07", 100, 7),
        ("0.29", 100, 29),
        ("0.57", 100, 57),
        ("0.1", 10, 1),
        ("0.05", 1000, 50),
        ("0.34", 10, 4),
        ("0.0", 100, 0),
        ("1e-12", 100, 1),
        ("0.999", 10, 10),
        ("0", 100, 0),
        ("1", 100, 1),
        ("7", 100, 7),
    ],
)
def test_a_share_of_the_parties_is_rounded_up(share: str, parties: int, count: int) -> None:
    text = example("colluding", share).replace("dropouts = 0.05", f"dropouts = {share}")
    study = make_study(tomllib.loads(text.replace("count = 1000", f"count = {parties}")))
    assert (study.colluding, study.dropouts) == (count, count)


@given(st.integers(0, 9999), st.integers(2, 10**9))
def test_a_decimal_fraction_is_taken_exactly(numerator: int, parties: int) -> None:
    content = tomllib.loads(EXAMPLE)
    content["parties"]["count"] = parties
    content["privacy"]["colluding"] = float(f"0.{numerator:04d}")
    assert make_study(content).colluding == ceil(Fraction(numerator, 10**4) * parties)


def test_with_parties_changes_the_number_of_parties_and_nothing_else() -> None:
    study = from_text(EXAMPLE)
    fewer = study.with_parties(100)
    assert (fewer.parties.count, fewer.colluding, fewer.dropouts) == (100, 50, 5)
    assert study.parties.count == 1000
    assert fewer.digest() == from_text(EXAMPLE.replace("count = 1000", "count = 100")).digest()
    with pytest.raises(StudyError, match=r"\[parties\] count is 0, but should be a whole number of parties"):
        study.with_parties(0)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no such device")
def test_a_study_that_names_a_file_without_end_is_refused() -> None:
    with pytest.raises(StudyError, match=r'\[data\] public is "/dev/zero", but there is no such file'):
        make_study(tomllib.loads(with_matrix().replace("[parties]", 'public = "/dev/zero"\n[parties]')))
