"""Releases: what is saved runs no code when it is loaded, and predicts as unspoken does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from factories import make
from unspoken.data.bounding import clip_rows
from unspoken.data.files import Records, read_records
from unspoken.learners.losses import loss_of
from unspoken.methods.releases import FittedEstimator, LinearModel, NetworkModel, NoModel, Release, Statistics
from unspoken.study import Study

LEARNERS = ["softmax", "logistic", "svm"]
# Not in alphabetical order, so that a model that sorts them is found out.
CLASSES = {2: ["yes", "no"], 4: ["none", "mild", "severe", "fatal"]}
COLUMNS: dict[str, Any] = {
    "weight": {"min": 0, "max": 300},
    "sex": {"categories": ["m", "f"]},
    "stage": {"categories": [3, 1, 2]},
    "smokes": {"categories": [True, False]},
    "dose": {"min": 0, "max": 1e-15},
    "blood__pressure": {"min": -1, "max": 1},
    "remainder": {"min": -5.5, "max": 7.25},
}


def random_model(agreed: Study, rng: np.random.Generator) -> LinearModel:
    """A model as the study's learner would have it, with random weights."""
    loss = loss_of((agreed.method.model_extra or {})["learner"], len(agreed.data.class_names), 0.1)
    return LinearModel(rng.normal(size=(loss.outputs, agreed.data.dimension)), loss.link, {})


def saved_and_loaded(release: Release, agreed: Study, folder: Path) -> Any:
    path = folder / f"model.{release.suffix}"
    release.save(agreed, path)
    assert skops.io.get_untrusted_types(file=path) == []
    return skops.io.load(path, trusted=[])


def people(rng: np.random.Generator, classes: list[str], count: int = 300) -> pd.DataFrame:
    """Random records, some numbers outside the public bounds."""
    return pd.DataFrame(
        {
            "died": rng.choice(classes, size=count),
            "remainder": rng.normal(scale=8.0, size=count),
            "smokes": rng.choice([True, False], size=count),
            "stage": rng.choice([1, 2, 3], size=count),
            "dose": rng.uniform(-0.2e-15, 1.2e-15, size=count),
            "weight": rng.uniform(-20, 350, size=count),
            "sex": rng.choice(["f", "m"], size=count),
            "blood__pressure": rng.normal(size=count),
        }
    )


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_matrix_model_predicts_as_unspoken_does(tmp_path: Path, learner: str, classes: int, intercept: bool) -> None:
    rng = np.random.default_rng(classes)
    agreed = make(
        parties=10,
        method={"learner": learner},
        data={"features": 7, "classes": classes, "intercept": intercept, "norm": 0.8},
    )
    released = random_model(agreed, rng)
    model = saved_and_loaded(released, agreed, tmp_path)
    features = rng.normal(size=(500, 7))
    expected = released.predict(agreed, features)
    assert set(expected.tolist()) == set(range(classes))
    np.testing.assert_array_equal(model.predict(features), expected)
    assert list(model.classes_) == list(range(classes))
    assert model.score(features, expected) == 1.0


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_table_model_takes_data_frames_with_the_study_s_columns(
    tmp_path: Path, learner: str, classes: int, intercept: bool
) -> None:
    rng = np.random.default_rng(classes)
    data = {"label": "died", "classes": CLASSES[classes], "columns": COLUMNS, "intercept": intercept}
    agreed = make(method={"learner": learner}, data=data)
    released = random_model(agreed, rng)
    model = saved_and_loaded(released, agreed, tmp_path)
    frame = people(rng, CLASSES[classes])
    frame.to_parquet(tmp_path / "people.parquet")
    records = read_records(tmp_path / "people.parquet", agreed)
    expected = np.array(CLASSES[classes])[released.predict(agreed, records.features)]
    assert set(expected.tolist()) == set(CLASSES[classes])
    np.testing.assert_array_equal(model.predict(frame), expected)
    np.testing.assert_allclose(model[:-1].transform(frame), records.features[:, order_of(agreed)], atol=1e-9)


def order_of(agreed: Study) -> list[int]:
    """Where the features of the saved model stand in the study's vectors: categories that are numbers are sorted."""
    order: list[int] = []
    for column in (agreed.data.columns or {}).values():
        ranks = [0] if column.categories is None else np.argsort(column.categories).tolist()
        order += [len(order) + rank for rank in ranks]
    return order


@pytest.mark.parametrize("names", [["yes", "no"], [1, 0], [True, False], ["c", "a", "b"], [30, 10, 20]])
@pytest.mark.parametrize("learner", LEARNERS)
def test_predictions_are_the_study_s_own_labels(tmp_path: Path, learner: str, names: list[Any]) -> None:
    agreed = make(method={"learner": learner}, data={"features": 3, "classes": names})
    released = random_model(agreed, np.random.default_rng(0))
    model = saved_and_loaded(released, agreed, tmp_path)
    features = np.random.default_rng(1).normal(size=(100, 3))
    expected = [names[label] for label in released.predict(agreed, features).tolist()]
    assert model.predict(features).tolist() == expected


@pytest.mark.parametrize("learner", ["softmax", "logistic"])
@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_agree_with_predictions(learner: str, classes: int) -> None:
    agreed = make(method={"learner": learner}, data={"features": 5, "classes": CLASSES[classes]})
    model = random_model(agreed, np.random.default_rng(0)).estimator(agreed)
    features = np.random.default_rng(1).normal(size=(100, 5))
    probabilities = model.predict_proba(features)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.array(CLASSES[classes])[probabilities.argmax(axis=1)], model.predict(features))


def test_an_unknown_category_is_refused_by_the_saved_model(tmp_path: Path) -> None:
    agreed = make(method={"learner": "softmax"}, data={"label": "died", "classes": ["no", "yes"], "columns": COLUMNS})
    model = saved_and_loaded(random_model(agreed, np.random.default_rng(0)), agreed, tmp_path)
    frame = people(np.random.default_rng(0), ["no", "yes"], count=3)
    frame["sex"] = "x"
    with pytest.raises(ValueError, match="unknown categories"):
        model.predict(frame)


def table_data(folder: Path, agreed: Study, frame: pd.DataFrame) -> np.ndarray:
    frame.to_parquet(folder / "people.parquet")
    return read_records(folder / "people.parquet", agreed).features


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("bounds", [[0, 110], [-2.5, -1.0], [0, 1e9]])
def test_a_regression_of_a_table_predicts_as_unspoken_does(
    tmp_path: Path, intercept: bool, bounds: list[float]
) -> None:
    data = {"label": "died", "label_bounds": bounds, "columns": COLUMNS, "intercept": intercept}
    agreed = make("cape", task="regression", data=data)
    rng = np.random.default_rng(0)
    released = LinearModel(rng.normal(size=(1, agreed.data.dimension)), None, {})
    model = saved_and_loaded(released, agreed, tmp_path)
    frame = people(rng, ["no", "yes"]).assign(died=0.0)
    expected = released.predict(agreed, table_data(tmp_path, agreed, frame))
    predicted = model.predict(frame)
    np.testing.assert_allclose(predicted, expected, rtol=1e-9, atol=1e-9 * (bounds[1] - bounds[0]))
    # In the label's units: about the middle of its bounds, and no narrower than a tenth of them.
    assert predicted.std() > 0.1 * (bounds[1] - bounds[0])
    assert abs(predicted.mean() - sum(bounds) / 2) < 3 * (bounds[1] - bounds[0])
    np.testing.assert_array_equal(model.predict(frame[sorted(frame)]), predicted)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_regression_of_a_matrix_predicts_as_unspoken_does(tmp_path: Path, intercept: bool) -> None:
    """Also of records beyond the norm, which are clipped for learning only."""
    data = {"features": 5, "label_bounds": [10, 30], "intercept": intercept, "norm": 0.5}
    agreed = make("cape", task="regression", data=data)
    rng = np.random.default_rng(0)
    released = LinearModel(rng.normal(size=(1, agreed.data.dimension)), None, {})
    model = saved_and_loaded(released, agreed, tmp_path)
    features = rng.normal(size=(100, 5))
    predicted = model.predict(features)
    np.testing.assert_allclose(predicted, released.predict(agreed, features))
    assert (predicted.min(), predicted.max()) == (10.0, 30.0), "predictions are clipped to the label's bounds"
    middle = np.clip(20.0 + (10.0 * released.weights[0, -1] if intercept else 0.0), 10.0, 30.0)
    assert model.predict(np.zeros((1, 5)))[0] == pytest.approx(middle)


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_network_predicts_as_unspoken_does(tmp_path: Path, table: bool, classes: int, intercept: bool) -> None:
    names = CLASSES[classes]
    data: dict[str, Any] = {"classes": names, "intercept": intercept}
    data |= {"label": "died", "columns": COLUMNS} if table else {"features": 6}
    agreed = make("cape", data=data, method={"function": "network", "hidden": 7})
    rng = np.random.default_rng(1)
    hidden = rng.normal(size=(7, agreed.data.dimension + 1))
    if table:
        inputs: Any = people(rng, names)
        features = table_data(tmp_path, agreed, inputs)
    else:
        inputs = features = rng.normal(size=(300, 6))
    output = rng.normal(size=(classes, 8))
    # No class is out of reach.
    output[:, -1] -= NetworkModel(hidden, output, {}).scores(agreed, features).mean(axis=0)
    released = NetworkModel(hidden, output, {})
    model = saved_and_loaded(released, agreed, tmp_path)
    scores = released.scores(agreed, features)
    expected = np.array(names)[released.predict(agreed, features)]
    assert set(expected.tolist()) == set(names)
    np.testing.assert_array_equal(model.predict(inputs), expected)
    np.testing.assert_allclose(model.predict_proba(inputs), softmax(scores, axis=1), atol=1e-12)
    assert list(model.classes_) == names
    assert model.score(inputs, expected) == 1.0


def test_a_linear_model_scores_records_as_they_are(tmp_path: Path) -> None:
    """Clipping would change no class, but it would change probabilities, and `coef_` would not explain the scores."""
    agreed = make(method={"learner": "softmax"}, data={"features": 3, "classes": 3, "intercept": True, "norm": 0.5})
    released = random_model(agreed, np.random.default_rng(0))
    features = np.random.default_rng(1).normal(scale=3.0, size=(50, 3))
    shown = released.attributes(agreed)
    np.testing.assert_allclose(released.scores(agreed, features), features @ shown["coef_"].T + shown["intercept_"])
    clipped = clip_rows(features, agreed.data) @ released.weights.T
    np.testing.assert_array_equal(released.predict(agreed, features), clipped.argmax(axis=1))


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, SVC, RidgeClassifier, LinearDiscriminantAnalysis])
@pytest.mark.parametrize("taught", [[2, 0, 3, 1], [2, 0, 3], [2, 0]])
def test_an_estimator_s_own_numbers_are_in_the_study_s_order(kind: Any, taught: list[int]) -> None:
    """Classes that scikit-learn sorts by name, some of which it was never taught."""
    names = CLASSES[4]
    agreed = make(data={"features": 3, "classes": names})
    features = np.random.default_rng(0).normal(size=(200, 3))
    model = kind().fit(features, np.array(names)[taught][np.arange(200) % len(taught)])
    released = FittedEstimator(model, {})
    np.testing.assert_array_equal(np.array(names)[released.predict(agreed, features)], model.predict(features))
    assert released.scores(agreed, features).shape == (200, 4)
    order = [names.index(name) for name in model.classes_]
    if released.has_probabilities:
        np.testing.assert_array_equal(released.probabilities(agreed, features)[:, order], model.predict_proba(features))
    if kind in (RidgeClassifier, LinearDiscriminantAnalysis):
        scores = released.scores(agreed, features)
        np.testing.assert_array_equal(scores.argmax(axis=1), released.predict(agreed, features))


def test_an_estimator_that_only_predicts_scores_the_class_that_it_predicts() -> None:
    class Constant:
        classes_ = np.array(["b", "c"])

        def predict(self, features: np.ndarray) -> np.ndarray:
            return np.repeat("c", len(features))

    released = FittedEstimator(Constant(), {})
    assert not released.has_probabilities
    agreed = make(data={"features": 3, "classes": ["c", "a", "b"]})
    assert released.scores(agreed, np.zeros((2, 3))).tolist() == [[1.0, 0.0, 0.0]] * 2


def test_a_model_without_probabilities_says_so() -> None:
    agreed = make(method={"learner": "svm"}, data={"features": 3, "classes": 3})
    released = random_model(agreed, np.random.default_rng(0))
    assert not released.has_probabilities
    with pytest.raises(ValueError, match="has scores only"):
        released.probabilities(agreed, np.zeros((1, 3)))


def test_statistics_are_saved_as_json_and_are_no_model(tmp_path: Path) -> None:
    agreed = make("moments", task="statistics")
    found = {"größe": {"mean": 1.25, "noise_std": 0.5}}
    released = Statistics(found, {"records": 3})
    assert (released.kind, released.suffix, released.has_probabilities) == ("statistics", "json", False)
    released.save(agreed, tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == found
    assert "größe" in text
    assert released.to_json() == {"statistics": found}
    records = Records(np.zeros((2, 4)), np.zeros(2))
    assert released.metrics(agreed, records, records) == released.attributes(agreed) == {}
    for ask in (released.scores, released.predict):
        with pytest.raises(NoModel, match="no model: nothing can be predicted"):
            ask(agreed, records.features)
    with pytest.raises(NoModel):
        released.estimator(agreed)


def test_statistics_have_a_row_a_number() -> None:
    found = {
        "age": {"mean": 54.123456, "noise_std": 0.1234},
        "dose": {"edges": [0.0, 0.5, 1.0], "counts": [3.0, 4.04], "noise_std": 1.5},
        "sex": {"shares": {"f": 0.5, "m": 0.25}, "noise_std": 0.01},
        "stage": {"counts": {"1": 7.0}, "noise_std": 1.5},
    }
    assert Statistics(found, {}).rows() == [
        ("age", "mean", "54.1235", "0.123"),
        ("dose", "0 to 0.5", "3.0", "1.5"),
        ("dose", "0.5 to 1", "4.0", "1.5"),
        ("sex", "f", "50.00 %", "1 %"),
        ("sex", "m", "25.00 %", "1 %"),
        ("stage", "1", "7.0", "1.5"),
    ]
    model = LinearModel(np.zeros((1, 3)), None, {})
    assert (model.rows(), model.to_json()) == ([], {})


def test_statistics_of_another_package_have_a_row_a_number_with_or_without_noise() -> None:
    found = {"age": {"median": 41.25, "spread": 3.0, "noise_std": 0.5}, "sex": {"entropy": 0.69}}
    assert Statistics(found, {}).rows() == [
        ("age", "median", "41.25", "0.5"),
        ("age", "spread", "3", "0.5"),
        ("sex", "entropy", "0.69", ""),
    ]


def test_releases_load_neither_scikit_learn_nor_torch_nor_skops() -> None:
    code = (
        "import sys; import unspoken.methods.releases; "
        "print([name for name in ('sklearn', 'torch', 'skops') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
