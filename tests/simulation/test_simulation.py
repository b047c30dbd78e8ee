"""Any matrix study runs on arrays, and learns even when every party has seen one class only."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import unspoken
from unspoken.data.splits import split
from unspoken.errors import UnspokenError

STUDY: dict[str, Any] = {
    "study": {"name": "small", "task": "classification"},
    "data": {"features": 3, "classes": 2},
    "parties": {"count": 10, "records": 4},
    "privacy": {"epsilon": 5.0, "delta": 1e-5, "dropouts": 2},
    "method": {"name": "helmet"},
    "summation": {"protocol": "compute-nodes"},
}
TOML = """
[study]
name = "small"
task = "classification"
[data]
features = 3
classes = 2
[parties]
count = 10
records = 4
[privacy]
epsilon = 5.0
delta = 1e-5
dropouts = 2
[method]
name = "helmet"
"""
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 3))
LABELS = (FEATURES[:, 0] > 0).astype(int)
GROUPS = np.arange(60) % 10


def changed(**sections: dict[str, Any]) -> dict[str, Any]:
    study = copy.deepcopy(STUDY)
    for name, keys in sections.items():
        study[name] |= keys
    return study


def test_the_study_may_be_a_dictionary_a_path_or_a_study(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(TOML, encoding="utf-8")
    for study in (STUDY, path, str(path), unspoken.make_study(STUDY), unspoken.read_study(path)):
        simulation = unspoken.simulate(study, FEATURES, LABELS, GROUPS)
        assert simulation.plan.study.digest() == unspoken.make_study(STUDY).digest()
        assert simulation.outcome.survivors == 10
        assert simulation.metrics == {}


def test_lists_are_as_good_as_arrays_and_groups_may_be_names() -> None:
    names = [f"hospital {group}" for group in GROUPS]
    simulation = unspoken.simulate(STUDY, FEATURES.tolist(), LABELS.tolist(), names)
    assert simulation.outcome.release.weights.shape == (2, 3)


def test_the_result_has_the_documented_fields() -> None:
    simulation = unspoken.simulate(STUDY, FEATURES, LABELS, GROUPS, X_test=FEATURES, y_test=LABELS, drop=1, seed=3)
    fields = simulation.to_json()
    plan = simulation.plan.to_json()
    assert {key: fields[key] for key in plan} == plan
    assert fields.keys() - plan.keys() == {"simulation", "metrics", "survivors", "seconds", "bytes"}
    assert fields["survivors"] == 9
    assert fields["seconds"] > 0
    assert fields["bytes"] > 9 * plan["upload_bytes"] * 0.9


def test_the_accuracy_is_that_of_the_released_model() -> None:
    simulation = unspoken.simulate(STUDY, FEATURES, LABELS, GROUPS, X_test=FEATURES, y_test=LABELS)
    assert simulation.metrics["accuracy"] == simulation.model.score(FEATURES, LABELS)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Each image minus its own mean, at unit length."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    centred = pixels - pixels.mean(axis=1, keepdims=True)
    return (centred / np.linalg.norm(centred, axis=1, keepdims=True))[order], labels[order]


@pytest.mark.parametrize("kind", ["iid", "by-class"])
def test_parties_that_have_seen_one_class_only_still_learn_together(kind: str) -> None:
    study = changed(
        data={"features": 64, "classes": 10},
        parties={"count": 100, "records": 10},
        privacy={"epsilon": 30.0, "dropouts": 0},
        method={"regularization": 0.1},
        summation={"protocol": "ideal"},
    )
    features, labels = digits()
    groups = split(kind, labels[:1400], 100, seed=0)
    accuracies = [
        unspoken.simulate(
            study, features[:1400], labels[:1400], groups, X_test=features[1400:], y_test=labels[1400:]
        ).metrics["accuracy"]
        for _ in range(10)
    ]
    # Over 400 runs by-class had a mean of 0.835 and a deviation of 0.017 (iid: 0.871 and 0.008), so that the mean of
    # ten stays above 0.8 but for a chance below 1e-9. Guessing would give 0.1.
    assert np.mean(accuracies) > 0.8


def test_as_many_parties_as_agreed_may_vanish_and_no_more() -> None:
    assert unspoken.simulate(STUDY, FEATURES, LABELS, GROUPS, drop=2).outcome.survivors == 8
    with pytest.raises(UnspokenError, match="only 7 of 10 parties are left"):
        unspoken.simulate(STUDY, FEATURES, LABELS, GROUPS, drop=3)


def test_progress_is_told_until_all_parties_are_done() -> None:
    calls: list[tuple[str, int, int]] = []
    unspoken.simulate(STUDY, FEATURES, LABELS, GROUPS, progress=lambda *call: calls.append(call))
    assert calls[-1][1:] == (10, 10)


@pytest.mark.parametrize("classes", [2, np.int64(2), range(2), np.arange(2), [0, 1]])
def test_a_study_in_python_may_use_numpy_numbers_and_ranges(classes: Any) -> None:
    study = changed(
        parties={"count": np.int64(10)}, privacy={"epsilon": np.float64(5.0)}, data={"features": 3, "classes": classes}
    )
    assert unspoken.simulate(study, FEATURES, LABELS, GROUPS).plan.trust.parties == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": GROUPS % 9}, r"^groups names 9 parties, but the study's \[parties\] count is 10; make them equal"),
        ({"groups": GROUPS[:-1]}, r"^groups has the shape \(59,\), but should name the party of each of 60 records\.$"),
        ({"groups": GROUPS[:, None]}, r"^groups has the shape \(60, 1\), but should name the party"),
        ({"groups": [None, *GROUPS[1:]]}, r"^groups\[0\] is None, but should name the record's party\.$"),
        (
            {"groups": np.repeat(np.arange(10), [6] * 8 + [9, 3])},
            r"^party 9 has 3 records, but the study's \[parties\]",
        ),
        ({"X": FEATURES[:, :2]}, r"^the training arrays: X has the shape \(60, 2\), but the study's \[data\] features"),
        ({"y": LABELS + 1}, r"^the training arrays: y\[\d+\] is 2, but the study's \[data\] classes asks for"),
        ({"y_test": LABELS}, "^y_test is given without X_test; give both, or neither\\.$"),
        ({"drop": 1.5}, r"^drop is 1\.5, but should be from 0 to the number of parties"),
        ({"drop": "1"}, "^drop is '1', but should be"),
        ({"seed": -1}, "^seed is -1, but should be a whole number from 0 up"),
        ({"seed": "x"}, "^seed is 'x', but should be"),
        ({"study": None}, "^the study is None, but should be a Study, the path of a study file, or a dictionary"),
        ({"X": csr_array(FEATURES)}, r"^the training arrays: X is sparse, .* give X\.toarray\(\)"),
        ({"y": LABELS[:-1]}, r"^the training arrays: y has the shape \(59\), but X has 60 rows"),
        ({"X_test": FEATURES[:, :2], "y_test": LABELS}, r"^the test arrays: X has the shape \(60, 2\)"),
        ({"X_test": FEATURES}, r"^the test arrays: y is missing; each of the 60 rows of X needs one label\.$"),
        ({"drop": -1}, r"^drop is -1, but should be from 0 to the number of parties, 10\.$"),
        ({"drop": 11}, r"^drop is 11, but should be from 0 to the number of parties, 10\.$"),
        ({"study": changed(privacy={"epsilon": 0})}, r"^the study: \[privacy\] epsilon is 0, but should be"),
        ({"study": "nowhere.toml"}, r"^nowhere\.toml: there is no such file"),
    ],
)
def test_what_does_not_fit_is_named(arguments: dict[str, Any], message: str) -> None:
    arguments = {"study": STUDY, "X": FEATURES, "y": LABELS, "groups": GROUPS} | arguments
    with pytest.raises(UnspokenError, match=message):
        unspoken.simulate(**arguments)


def test_a_study_of_a_table_does_not_take_arrays() -> None:
    study = changed()
    study["data"] = {"label": "y", "classes": ["a", "b"], "columns": {"x": {"min": 0, "max": 1}}}
    with pytest.raises(
        UnspokenError, match=r"^the study: \[data\] describes a table, but arrays were given; give a data"
    ):
        unspoken.simulate(study, FEATURES, LABELS, GROUPS)


TABLE_STUDY = changed(privacy={"epsilon": 20.0}) | {
    "data": {"label": "died", "classes": ["no", "yes"], "columns": {"age": {"min": 0, "max": 100}}},
    "method": {"name": "moments"},
}
PEOPLE = pd.DataFrame({"age": RNG.uniform(0, 100, 200), "hospital": [f"h{row % 10}" for row in range(200)]})
PEOPLE["died"] = np.where(PEOPLE["age"] > 50, "yes", "no")


@pytest.mark.parametrize(
    "arguments",
    [
        {"X": PEOPLE, "groups": "hospital"},
        {"X": PEOPLE, "groups": PEOPLE["hospital"]},
        {"X": PEOPLE.drop(columns=["died", "hospital"]), "y": PEOPLE["died"], "groups": np.arange(200) % 10},
    ],
)
def test_a_study_of_a_table_takes_data_frames(arguments: dict[str, Any]) -> None:
    done = unspoken.simulate(TABLE_STUDY, **arguments, X_test=PEOPLE)
    assert done.metrics["accuracy"] > 0.8
    # The column that names the parties is no feature: the model has the age and a constant.
    assert done.outcome.release.weights.shape[1] == 2
    assert done.model.predict(PEOPLE[["age"]]).tolist()[:3] == done.model.predict(PEOPLE).tolist()[:3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": None}, "^groups is missing; it should name the party of each record, or a data frame's column"),
        (
            {"groups": "ward"},
            r"^the training table: lacks the column 'ward' .* correct the table or groups\.$",
        ),
        ({"X": FEATURES, "groups": "ward"}, "describes a table, but arrays were given; give a data frame"),
        ({"y": ["no"]}, r"^y has the shape \(1,\), but the data frame has 200 rows; give one each\.$"),
        (
            {"X": PEOPLE.assign(age=[*PEOPLE["age"][:7], np.nan, *PEOPLE["age"][8:]])},
            r"^the training table, row 7, column 'age': is 'nan', .* 1 of 200 values is missing \(0\.5 %\): give them",
        ),
        ({"X_test": PEOPLE.assign(died="maybe")}, "^the test table, row 0, column 'died': is 'maybe', but the study's"),
        (
            {"X": PEOPLE.assign(hospital=["", *PEOPLE["hospital"][1:]])},
            "row 0, column 'hospital': is empty, but",
        ),
    ],
)
def test_a_data_frame_that_does_not_fit_is_told(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UnspokenError, match=message):
        unspoken.simulate(**{"study": TABLE_STUDY, "X": PEOPLE, "groups": "hospital"} | arguments)


def test_arrays_have_no_column_of_parties() -> None:
    with pytest.raises(UnspokenError, match=r"^groups is 'ward', but only a data frame has columns; name the party of"):
        unspoken.simulate(STUDY, FEATURES, LABELS, "ward")


def test_a_study_of_a_matrix_takes_a_test_frame_by_the_names_of_the_other() -> None:
    """It names no columns itself: what would be another feature in each frame is put in order, or refused."""
    rng = np.random.default_rng(0)
    features = rng.normal(scale=0.3, size=(2_000, 3))
    frame = pd.DataFrame(features, columns=["a", "b", "c"])
    labels, groups = (features[:, 0] > 0).astype(int), np.arange(2_000) % 10
    agreed = changed(privacy={"epsilon": 20.0}, method={"name": "moments"})
    with_frames = {"X": frame, "y": labels, "groups": groups, "y_test": labels}
    done = unspoken.simulate(agreed, **with_frames, X_test=frame[["c", "b", "a"]])
    assert done.metrics["accuracy"] > 0.9
    for wrong in (frame.rename(columns={"a": "z"}), frame.assign(z=1.0)):
        with pytest.raises(UnspokenError, match=r"^X_test has 'z' among its columns, but X has not; give both the"):
            unspoken.simulate(agreed, **with_frames, X_test=wrong)
