"""What is wrong with a study is told in one sentence: the line, the value, and what would be right."""

from pathlib import Path
from typing import Any

import pytest

from unspoken.study import StudyError, make_study
from written_studies import EXAMPLE, complaint, example, line_of, of_task


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
        ('"heart"', '"a b"', "name", '[study] name is "a b", but should be a name of letters (a to z), digits'),
        ('"heart"', f'"{"a" * 101}"', "name", '[study] name is "aaaa'),
        ('"heart"', '"a\\nb"', "name", '[study] name is "a\\nb", but should be a name of letters (a to z), digits'),
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
        ('"died"', '""', "label", '[data] label is "", but should be the name of the label\'s column, in quotes.'),
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


@pytest.mark.parametrize("section", ["study", "data", "parties", "privacy"])
def test_a_missing_section_is_named(tmp_path: Path, section: str) -> None:
    start = EXAMPLE.index(f"[{section}]")
    end = EXAMPLE.find("\n\n", start)
    expected = f": [{section}] is missing; it should be a section of the study."
    assert complaint(tmp_path, EXAMPLE[:start] + EXAMPLE[end:]) == expected


def test_a_table_needs_columns(tmp_path: Path) -> None:
    start, end = EXAMPLE.index("[data.columns]"), EXAMPLE.index("[parties]")
    for columns, expected in (("", "needs either [data.columns]"), ("[data.columns]\n", "needs at least one column")):
        text = EXAMPLE[:start] + columns + EXAMPLE[end:]
        assert complaint(tmp_path, text).startswith(f", line {line_of(text, '[data]')}: [data] {expected}")
