"""A study is read, or what is wrong with it is told in one sentence."""

import math
import tomllib
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make
from unspoken.errors import UnspokenError
from unspoken.methods.registry import METHODS, method_for
from unspoken.study import Study, StudyError, make_study, read_study
from unspoken.summation.keys import Identity
from unspoken.templates import study_text

EXAMPLE = """\
[study]
name = "heart"
task = "classification"            # or "regression"

[data]                             # a table (CSV, Parquet) …
label = "died"
classes = ["no", "yes"]            # regression instead: label_bounds = [0, 110]
[data.columns]
age = { min = 0, max = 110 }
sex = { categories = ["f", "m"] }

[parties]
count = 1000
records = 50                       # at least, at each party

[privacy]
epsilon = 0.59
delta = 1e-5
unit = "record"                    # or "party", or { group = 5 }
colluding = 0.5                    # a fraction below 1, or a whole number of parties
dropouts = 0.05                    # likewise

[method]
name = "helmet"
learner = "softmax"                # "svm" "logistic"
regularization = 0.1

[summation]
protocol = "compute-nodes"
"""

MATRIX = """\
[data]
features = 1280
norm = 1.0
classes = 10
intercept = false
"""


def example(key: str, value: str | None) -> str:
    """The example with another value of a key; None: without it."""
    lines = EXAMPLE.splitlines()
    at = line_of(EXAMPLE, f"{key} = ") - 1
    lines[at : at + 1] = [] if value is None else [f"{key} = {value}"]
    return "\n".join(lines) + "\n"


def with_matrix() -> str:
    table = EXAMPLE[EXAMPLE.index("[data]") : EXAMPLE.index("[parties]")]
    return EXAMPLE.replace(table, MATRIX)


def line_of(text: str, start: str) -> int:
    """The number of the line that starts like this."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith(start))


def complaint(folder: Path, text: str) -> str:
    """The one sentence about a study file, without its name."""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        method_for(read_study(path)).plan()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    assert message.endswith((".", "?"))
    return message.removeprefix(str(path))


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


@pytest.mark.parametrize(
    ("right", "wrong", "suggestion"),
    [
        ("epsilon = ", "epsilom = ", "[privacy] epsilom is an unknown key; did you mean 'epsilon'?"),
        ("records = ", "recods = ", "[parties] recods is an unknown key; did you mean 'records'?"),
        ("regularization = ", "regularisation = ", "[method] regularisation is an unknown key; did you mean"),
        ("delta = ", "tau = ", "[privacy] tau is an unknown key; known here: epsilon, delta, unit, colluding"),
        ("[privacy]", "[privcy]", "[privcy] is an unknown section; did you mean 'privacy'?"),
        ("[data.columns]", "[data.colums]", "[data] colums is an unknown key; did you mean 'columns'?"),
        ("protocol = ", "nods = 3\nprotocol = ", "[summation] nods is an unknown key; did you mean 'nodes'?"),
        ('unit = "record"', "unit = { grop = 5 }", "[privacy] unit.grop is an unknown key; did you mean 'group'?"),
        ("age = { min", "age = { mn", "[data] columns.age.mn is an unknown key; did you mean 'min'?"),
        ("[study]", "epsilon = 1\n[study]", "[epsilon] is an unknown section; known here: study, data, parties"),
        ("[study]", "source = 1\n[study]", "[source] is an unknown section; remove it."),
        (
            'protocol = "compute-nodes"',
            'protocol = "ideal"\nnodes = 3',
            '[summation] nodes is a key of "compute-nodes" only, but the protocol is "ideal"',
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_a_suggestion(
    tmp_path: Path, right: str, wrong: str, suggestion: str
) -> None:
    text = EXAMPLE.replace(right, wrong)
    line = line_of(text, "nodes" if "nodes" in wrong else wrong.splitlines()[0])
    assert complaint(tmp_path, text).startswith(f", line {line}: {suggestion}")


NUMBER = "a number from 1e-4 to 1000, such as 1.0"
SHARE = "a fraction from 0 to below 1 (as 0.5) or a whole number of parties"
UNIT = '"record", "party" or { group = 5 } with a whole number of records, 1 or more'
HUGE = "1" + "0" * 30


@pytest.mark.parametrize(
    ("key", "right", "values"),
    [
        ("epsilon", NUMBER, ["0", "-1", "9e-05", "inf", "-inf", "nan", "true", '"one"', "1001", "[1]", "2020-01-01"]),
        ("delta", "a number from 1e-30 to below 1", ["0", "-1.0", "1", "1.0", "nan", "inf", "1e-31", "false", '"x"']),
        ("count", "a whole number of parties, from 2 to", ["0", "-5", "2.5", "9.0", "true", '"x"', HUGE, "inf"]),
        ("records", "a whole number from 1 to", ["0", "-1", "1.5", "true", '"x"', HUGE]),
        ("colluding", SHARE, ["1.0", "-0.1", "-1", "nan", "inf", "true", '"half"']),
        ("dropouts", SHARE.replace("0.5", "0.05"), ["1.0", "-0.1", "-1", "nan", "inf", "true", '"half"']),
        ("unit", UNIT, ['"records"', "{ group = 0 }", "{ group = 1.5 }", "{ group = true }", "3", "{}", "[5]"]),
        ("task", '"classification", "regression" or "statistics"', ['"clustering"', "1"]),
        ("label", "the name of the label's column, in quotes", ["3", "true"]),
        ("classes", 'all possible labels, such as ["no", "yes"]', ['"no"', "true", "1.5"]),
        ("regularization", "a number from 1e-6 up, such as 0.1", ["0", "-1", "nan", "inf", "true", '"x"']),
        ("learner", '"softmax", "logistic" or "svm"', ['"sofmax"', "3"]),
        ("protocol", '"compute-nodes"', ['"compute_nodes"', "3"]),
    ],
)
def test_an_impossible_value_is_shown_with_its_line_and_what_would_be_right(
    tmp_path: Path, key: str, right: str, values: list[str]
) -> None:
    for value in values:
        message = complaint(tmp_path, example(key, value))
        assert message.startswith(f", line {line_of(EXAMPLE, f'{key} = ')}: [")
        assert f"] {key} is {value}, but should be " in message
        assert right in message


DIED = 'label = "died"'


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ('"helmet"', '"helmt"', 'name = "helmt"', '[method] name is "helmt", but should be one of: "cape"'),
        ('"heart"', '"a b"', "name", '[study] name is "a b", but should be a name of letters, digits'),
        ('"heart"', '"a\\nb"', "name", '[study] name is "a\\nb", but should be a name of letters, digits'),
        ('"no", "yes"', '"no"', "classes", '[data] classes is ["no"], but should name at least two classes.'),
        ('"no", "yes"', '"no", "no"', "classes", '[data] classes has "no" twice; name each once.'),
        ('"no", "yes"', '"no", " no"', "classes", '[data] classes has " no" twice; name each once.'),
        ('"no", "yes"', '"no", 1', "classes", '[data] classes is ["no", 1], which mixes text with other values; w'),
        ('"no", "yes"', '"true", true', "classes", '[data] classes is ["true", true], which mixes text with other'),
        ('"no", "yes"', '"no", 1.5', "classes", "[data] classes has 1.5, but should be all possible labels"),
        ('["no", "yes"]', "2", "[data]", "[data] of a table needs classes = the list of its labels, such as"),
        ("records = 50", "records = 2000000", "[parties]", "[parties] has records = 2000000 above max_records ="),
        (
            '"died"',
            '"age"',
            "[data]",
            "[data] has the label 'age' among its columns too; take it out of [data.columns]",
        ),
        (DIED, DIED + "\nfeatures = 3", "[data]", "[data] has both [data.columns] and features, but needs either"),
        (DIED, DIED + "\nnorm = 0", "norm", "[data] norm is 0, but should be a number from 1e-6 to 1e6, such as 1.0."),
        (DIED, DIED + "\nnorm = inf", "norm", "[data] norm is inf, but should be a number from 1e-6 to 1e6, such as"),
        (DIED, DIED + "\nintercept = 1", "intercept", "[data] intercept is 1, but should be true or false."),
        (DIED, DIED + "\nlabel_bounds = [1]", "label_bounds", "[data] label_bounds has [1], but should be the small"),
        (DIED, DIED + "\nlabel_bounds = [2, 1]", "label_bounds", "[data] label_bounds is [2.0, 1.0], but the smaller"),
        (DIED, DIED + "\nlabel_bounds = [0, 1e200]", "label_bounds", "[data] label_bounds has 1e+200, but should be t"),
        (DIED, DIED + "\nlabel_bounds = [nan, 1]", "label_bounds", "[data] label_bounds has nan, but should be the sm"),
        ("[privacy]", "[[privacy]]", "[[privacy]]", "[privacy] is [{ epsilon = 0.59, delta = 1e-05"),
        ("colluding = 0.5 ", "colluding = 950 ", "[privacy]", "[privacy] leaves no honest party: of 1000 parties, 950"),
    ],
)
def test_what_does_not_fit_is_shown_with_its_line_and_what_would_be_right(
    tmp_path: Path, old: str, new: str, line: str, expected: str
) -> None:
    assert old in EXAMPLE
    text = EXAMPLE.replace(old, new)
    assert complaint(tmp_path, text).startswith(f", line {line_of(text, line)}: {expected}")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("{ min = 5, max = 5 }", " has min = 5 and max = 5, which leaves one value only; widen the bounds."),
        ("{ min = 6, max = 5 }", " has min = 6 and max = 5, but the smaller one should come first; swap them."),
        ("{ min = 5 }", " has min, but should be { min = …, max = … } for a number or { categories = [ … ] }"),
        ("{ max = 5 }", " has max, but should be { min = …, max = … } for a number"),
        ("{ }", " has neither bounds nor categories, but should be { min = …, max = … } for a number"),
        ('{ min = 0, max = 1, categories = ["a"] }', " has min and max and categories, but should be { min = …"),
        ('{ min = 0, categories = ["a"] }', " has min and categories, but should be { min = …"),
        ("{ categories = [] }", ".categories is [], but should be a list of all possible values"),
        ('{ categories = "f" }', '.categories is "f", but should be a list of all possible values'),
        ("{ categories = [1.5] }", ".categories has 1.5, but should be a list of all possible values"),
        ('{ categories = ["a", "b", "a"] }', '.categories has "a" twice; name each once.'),
        ('{ categories = [1, "a"] }', '.categories is [1, "a"], which mixes text with other values'),
        ('{ min = "0", max = 1 }', '.min is "0", but should be a number from -1e100 to 1e100'),
        ("{ min = 0, max = nan }", ".max is nan, but should be a number from -1e100 to 1e100"),
        ("{ min = -inf, max = 0 }", ".min is -inf, but should be a number from -1e100 to 1e100"),
        ("{ min = false, max = true }", ".min is false, but should be a number from -1e100 to 1e100"),
        ("{ min = 0, max = 1e200 }", ".max is 1e+200, but should be a number from -1e100 to 1e100"),
        ("5", ' is 5, but should be { min = …, max = … }, { categories = [ … ] } or "boolean".'),
        ('"boolan"', ' is "boolan", but should be { min = …, max = … }, { categories = [ … ] } or "boolean".'),
        ('"?"', ' is "?", but should be { min = …, max = … }, { categories = [ … ] } or "boolean".'),
        ("{ min = 2020-01-01, max = 2020-01-01 }", " has min = 2020-01-01 and max = 2020-01-01, which leaves one"),
        ("{ min = 2020-01-01, max = 7 }", " has min = 2020-01-01 and max = 7.0, one a day, one a number; give two"),
        ("{ min = 0, max = 1, other = true }", " has other = true, but no categories; remove it."),
        ("{ min = 0, max = 1, boolean = true }", " has min and max and boolean, but should be { min = …"),
        ("{ min = 0, max = 9, missing = 10 }", " has missing = 10, but should have a number from 0.0 to 9.0, "),
        ("{ min = 0, max = 9, missing = true }", " has missing = true, but should have a number from 0.0 to 9.0, "),
        ('{ min = 0, max = 9, missing = "category" }', ' has missing = "category", but should have a number from'),
        ("{ min = 2020-01-01, max = 2021-01-01, missing = 5 }", " has missing = 5, but should have a date from 2020-"),
        ("{ boolean = true, missing = 1 }", ' has missing = 1, but should have true, false, "indicator" or "refuse".'),
        ('{ categories = ["a"], missing = "b" }', ' has missing = "b", but should have one of its categories, "cat'),
        ('{ categories = ["a"], missing = "indicator" }', ' has missing = "indicator", but should have one of its'),
        ('{ categories = ["category"], missing = "category" }', ' has missing = "category", which is a category, too'),
    ],
)
def test_a_bad_column_is_named_with_its_line(tmp_path: Path, column: str, expected: str) -> None:
    text = example("age", column)
    assert complaint(tmp_path, text).startswith(f", line {line_of(text, 'age')}: [data] columns.age{expected}")


@pytest.mark.parametrize("written", ["[data.columns.age]\nmin = 5", "[data]\ncolumns.age.min = 5"])
def test_a_column_may_be_written_as_a_table_or_with_dots_and_is_found_there(tmp_path: Path, written: str) -> None:
    before, after = EXAMPLE.index("[data]"), EXAMPLE.index("[parties]")
    rest = "" if written.startswith("[data]") else '[data]\nlabel = "died"\nclasses = ["no", "yes"]\n'
    text = EXAMPLE[:before] + rest + written + "\n" + EXAMPLE[after:]
    place = "[data.columns.age]" if rest else "columns.age.min"
    assert complaint(tmp_path, text).startswith(f", line {line_of(text, place)}: [data] columns.age has min, but")


def test_a_column_whose_name_has_a_dot_is_found_and_quoted(tmp_path: Path) -> None:
    text = EXAMPLE.replace("age = { min = 0, max = 110 }", '"blood.pressure" = { min = 3, max = 1 }')
    expected = f', line {line_of(text, chr(34))}: [data] columns."blood.pressure" has min = 3 and max = 1,'
    assert complaint(tmp_path, text).startswith(expected)


@pytest.mark.parametrize(
    ("missing", "section", "expected"),
    [
        ("task", "[study]", '[study] task is missing; it should be "classification", "regression" or'),
        ("count", "[parties]", "[parties] count is missing; it should be a whole number of parties"),
        ("epsilon", "[privacy]", "[privacy] epsilon is missing; it should be a number from 1e-4"),
        ("delta", "[privacy]", "[privacy] delta is missing; it should be a number from 1e-30"),
        ("label", "[data]", "[data] needs label = the name of the label's column."),
        ("classes", "[data]", '[data] lacks classes: all possible labels, such as ["no", "yes"].'),
    ],
)
def test_a_missing_key_is_named_with_its_section(tmp_path: Path, missing: str, section: str, expected: str) -> None:
    text = example(missing, None)
    assert complaint(tmp_path, text).startswith(f", line {line_of(text, section)}: {expected}")


def test_a_regression_needs_the_bounds_of_its_labels(tmp_path: Path) -> None:
    text = example("task", '"regression"')
    message = complaint(tmp_path, text)
    assert message.startswith(f", line {line_of(text, '[data]')}: [data] lacks label_bounds: the smallest and the")


def of_task(task: str, *, matrix: bool = False, **data: Any) -> dict[str, Any]:
    """The content of a study of another task, with more keys in its [data]."""
    content = tomllib.loads(with_matrix() if matrix else EXAMPLE)
    del content["data"]["classes"]
    if task == "statistics":
        content["data"].pop("label", None)
    else:
        content["data"]["label_bounds"] = [0, 300]
    content["study"]["task"] = task
    content["data"] |= data
    return content


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


@pytest.mark.parametrize(
    ("section", "value", "expected"),
    [
        ("data", 3, "[data] is 3, but should be a section"),
        ("study", 3, "[study] is 3, but should be a section"),
        ("study", {"name": "heart", "task": ["regression"]}, '[study] task is ["regression"], but should be'),
    ],
)
def test_a_section_of_another_kind_is_explained(section: str, value: Any, expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        make_study(of_task("regression") | {section: value})
    assert str(caught.value).startswith(f"the study: {expected}")


def test_defaults_leave_the_describedcontent_alone() -> None:
    content = of_task("statistics")
    make_study(content)
    assert content == of_task("statistics")


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
    with pytest.raises(UnspokenError, match="the method is 'helmut', but for"):
        study_text("study.toml", "lung", matrix=True, task=task, method="helmut")


def test_an_unknown_task_to_start_from_is_told() -> None:
    with pytest.raises(UnspokenError) as caught:
        study_text("study.toml", "lung", matrix=False, task="clustering")
    assert str(caught.value) == (
        "the task is 'clustering', but should be one of: classification, regression, statistics."
    )


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


@pytest.mark.parametrize("section", ["study", "data", "parties", "privacy"])
def test_a_missing_section_is_named(tmp_path: Path, section: str) -> None:
    start = EXAMPLE.index(f"[{section}]")
    end = EXAMPLE.find("\n\n", start)
    expected = f": [{section}] is missing; it should be a section of the study."
    assert complaint(tmp_path, EXAMPLE[:start] + EXAMPLE[end:]) == expected


def test_a_study_without_a_summation_uses_compute_nodes() -> None:
    text = EXAMPLE[: EXAMPLE.index("[summation]")]
    assert make_study(tomllib.loads(text)).digest() == make_study(tomllib.loads(EXAMPLE)).digest()


def test_a_table_needs_columns(tmp_path: Path) -> None:
    start, end = EXAMPLE.index("[data.columns]"), EXAMPLE.index("[parties]")
    for columns, expected in (("", "needs either [data.columns]"), ("[data.columns]\n", "needs at least one column")):
        text = EXAMPLE[:start] + columns + EXAMPLE[end:]
        assert complaint(tmp_path, text).startswith(f", line {line_of(text, '[data]')}: [data] {expected}")


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


def from_text(text: str) -> Study:
    return make_study(tomllib.loads(text))


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


def test_with_parties_changes_the_number_of_parties_and_nothing_else() -> None:
    study = from_text(EXAMPLE)
    fewer = study.with_parties(100)
    assert (fewer.parties.count, fewer.colluding, fewer.dropouts) == (100, 50, 5)
    assert study.parties.count == 1000
    assert fewer.digest() == from_text(EXAMPLE.replace("count = 1000", "count = 100")).digest()
    with pytest.raises(StudyError, match=r"\[parties\] count is 0, but should be a whole number of parties"):
        study.with_parties(0)
