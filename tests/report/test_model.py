"""The saved model is plain scikit-learn, runs no code when loaded, and predicts as unspoken does."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from scipy.special import softmax

from factories import make
from unspoken.data.bounding import clip_rows
from unspoken.data.files import read_records
from unspoken.methods.base import Release
from unspoken.report.evaluation import classify, predict, predict_numbers, scores_of, with_constant
from unspoken.report.model import save, to_sklearn
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


def release(agreed: Study, rng: np.random.Generator) -> Release:
    """A model as the study's learner would have it, with random weights."""
    classes = len(agreed.data.class_names)
    single = classes == 2 and (agreed.method.model_extra or {})["learner"] != "softmax"
    kinds = {"softmax": "softmax", "logistic": "sigmoid", "svm": None}
    weights = rng.normal(size=(1 if single else classes, agreed.data.dimension))
    return Release(weights, kinds[(agreed.method.model_extra or {})["learner"]], {})


def saved_and_loaded(model: Any, folder: Path) -> Any:
    path = folder / "model.skops"
    save(model, path)
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
    released = release(agreed, rng)
    model = saved_and_loaded(to_sklearn(agreed, released), tmp_path)
    features = rng.normal(size=(500, 7))
    expected = predict(released.weights, clip_rows(features, agreed.data))
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
    released = release(agreed, rng)
    model = saved_and_loaded(to_sklearn(agreed, released), tmp_path)
    frame = people(rng, CLASSES[classes])
    frame.to_parquet(tmp_path / "people.parquet")
    records = read_records(tmp_path / "people.parquet", agreed)
    expected = np.array(CLASSES[classes])[predict(released.weights, clip_rows(records.features, agreed.data))]
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
    released = release(agreed, np.random.default_rng(0))
    model = saved_and_loaded(to_sklearn(agreed, released), tmp_path)
    features = np.random.default_rng(1).normal(size=(100, 3))
    expected = [names[label] for label in predict(released.weights, features)]
    assert model.predict(features).tolist() == expected


@pytest.mark.parametrize("learner", ["softmax", "logistic"])
@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_agree_with_predictions(learner: str, classes: int) -> None:
    agreed = make(method={"learner": learner}, data={"features": 5, "classes": CLASSES[classes]})
    model = to_sklearn(agreed, release(agreed, np.random.default_rng(0)))
    features = np.random.default_rng(1).normal(size=(100, 5))
    probabilities = model.predict_proba(features)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.array(CLASSES[classes])[probabilities.argmax(axis=1)], model.predict(features))


def test_an_unknown_category_is_refused_by_the_saved_model(tmp_path: Path) -> None:
    agreed = make(method={"learner": "softmax"}, data={"label": "died", "classes": ["no", "yes"], "columns": COLUMNS})
    model = saved_and_loaded(to_sklearn(agreed, release(agreed, np.random.default_rng(0))), tmp_path)
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
    released = Release(rng.normal(size=(1, agreed.data.dimension)), None, {})
    model = saved_and_loaded(to_sklearn(agreed, released), tmp_path)
    frame = people(rng, ["no", "yes"]).assign(died=0.0)
    expected = predict_numbers(released, table_data(tmp_path, agreed, frame), agreed.data)
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
    released = Release(rng.normal(size=(1, agreed.data.dimension)), None, {})
    model = saved_and_loaded(to_sklearn(agreed, released), tmp_path)
    features = rng.normal(size=(100, 5))
    np.testing.assert_allclose(model.predict(features), predict_numbers(released, features, agreed.data))
    middle = 20.0 + (10.0 * released.weights[0, -1] if intercept else 0.0)
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
    bounded = with_constant(features, agreed.data)
    # No class is out of reach.
    output[:, -1] -= scores_of(Release(output, "softmax", {}, hidden=hidden), bounded).mean(axis=0)
    released = Release(output, "softmax", {}, hidden=hidden)
    model = saved_and_loaded(to_sklearn(agreed, released), tmp_path)
    scores = scores_of(released, bounded)
    expected = np.array(names)[classify(scores)]
    assert set(expected.tolist()) == set(names)
    np.testing.assert_array_equal(model.predict(inputs), expected)
    np.testing.assert_allclose(model.predict_proba(inputs), softmax(scores, axis=1), atol=1e-12)
    assert list(model.classes_) == names
    assert model.score(inputs, expected) == 1.0
