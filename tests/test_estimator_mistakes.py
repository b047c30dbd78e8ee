"""A wrong parameter, group or label of an estimator is named, with what would be right."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import unspoken
from easy_data import blobs, classifier, line, regressor
from unspoken.errors import DataWarning
from unspoken.privacy.ledger import OverLimit


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0}, r"^PrivateClassifier: \[privacy\] epsilon is 0, but should be a number from 1e-4"),
        ({"epsilon": "small"}, r"\[privacy\] epsilon is \"small\", but should be a number from 1e-4"),
        ({"epsilon": float("nan")}, r"\[privacy\] epsilon is nan, but should be a number from 1e-4"),
        ({"delta": 1.0}, r"\[privacy\] delta is 1.0, but should be a number from 1e-30 to below 1"),
        ({"unit": "records"}, r"\[privacy\] unit is \"records\", but should be \"record\", \"party\" or"),
        ({"unit": {"group": 0}}, r"\[privacy\] unit is { group = 0 }, but should be"),
        ({"colluding": 1.0}, r"\[privacy\] colluding is 1.0, but should be a fraction"),
        ({"colluding": 20}, r"\[privacy\] leaves no honest party: of 20 parties, 20 may know"),
        ({"method": "magic"}, r"\[method\] name is \"magic\", but should be one of: \"cape\""),
        ({"learner": "tree"}, r"\[method\] learner is \"tree\", but should be \"softmax\", \"logistic\" or \"svm\""),
        (
            {"method": "helmet", "regularization": 0},
            r"\[method\] regularization is 0, but should be a number from 1e-6 up",
        ),
        (
            {"method": "helmet", "solver": "exact"},
            r"\[method\] solver is \"exact\", but should be \"certified\" or \"sgd\"",
        ),
        ({"protocol": "hope"}, r"\[summation\] protocol is \"hope\", but should be one of"),
        ({"norm": -1}, r"\[data\] norm is -1, but should be a number from 1e-6"),
        ({"regularization": 0.2}, r"^regularization=0.2 is for other methods than 'moments'"),
        ({"method": "cape", "learner": "svm"}, r"^learner='svm' is for other methods than 'cape'"),
        ({"method": None}, r"\[method\] name is None, but should be the name of a method"),
        ({"options": ["steps"]}, r"^Expected a dictionary, such as .*, got options=\['steps'\]\.$"),
        ({"classes": [0]}, r"^Expected a list of at least two classes, got classes=\[0\]\.$"),
        ({"classes": 3}, r"^Expected a list of at least two classes, got classes=3\.$"),
        ({"classes": [0, 1]}, r"^y\[\d+\] is 2, which is not among classes=\[0, 1\]; correct the label, or "),
        ({"classes": ["a", "b"]}, r"^y\[0\] is \d, which is not among classes=\['a', 'b'\]; correct the "),
    ],
)
def test_a_wrong_parameter_is_named_with_what_would_be_right(parameters: dict[str, Any], message: str) -> None:
    features, labels, groups = blobs()
    with pytest.raises(ValueError, match=message):
        classifier(**parameters).fit(features, labels, groups)


@pytest.mark.parametrize("seed", [-1, 1.5, "one"])
def test_a_wrong_seed_of_the_split_is_named(seed: Any) -> None:
    features, labels, _ = blobs()
    with pytest.raises(ValueError, match=r"^Expected a whole number from 0 up as the seed, got seed="):
        classifier(seed=seed).fit(features, labels)


@pytest.mark.parametrize("parties", [1, 0, -3, 2.0, "two"])
def test_a_wrong_number_of_parties_is_named(parties: Any) -> None:
    features, labels, _ = blobs()
    with pytest.raises(ValueError, match=f"^Expected a whole number of parties, 2 or more, got parties={parties!r}"):
        classifier(parties=parties).fit(features, labels)


def test_a_method_for_one_party_needs_no_second_one() -> None:
    features, labels, _ = blobs()
    for keys in ({"parties": 1}, {"groups": np.zeros(600)}):
        groups = keys.pop("groups", None)
        model = classifier(learner="softmax", **keys).fit(features, labels, groups)
        assert "except the only party itself" in model.guarantee_.sentence()
        assert model.score(features, labels) > 0.9
    with pytest.raises(ValueError, match=r"^Expected a whole number of parties, 1 or more, got parties=0"):
        classifier(learner="softmax", parties=0).fit(features, labels)
    with pytest.raises(ValueError, match=r"^Expected a whole number of parties, 1 or more, got parties=True"):
        classifier(learner="softmax", parties=True).fit(features, labels)
    with pytest.raises(ValueError, match="colluding is 1, but with one party there is nobody"):
        classifier(learner="softmax", parties=1, colluding=1).fit(features, labels)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(599), r"^groups has the shape \(599,\), but should name the party of each of 600 records\.$"),
        (np.zeros((600, 1)), r"^groups has the shape \(600, 1\), but should name the party"),
        ("hospital", "^groups is 'hospital', but only a data frame has columns"),
        (np.zeros(600), r"^Expected groups to name at least two parties, got only one\.$"),
        ([1.0] * 599 + [np.nan], r"^groups\[599\] is nan, but should name the record's party\.$"),
        (["a", None] * 300, r"^groups\[1\] is None, but should name the record's party\.$"),
        (np.array(["a", 1] * 300, dtype=object), r"^groups mixes text and numbers, but should name parties by one"),
    ],
)
def test_groups_that_name_no_parties_are_refused(groups: Any, message: str) -> None:
    features, labels, _ = blobs()
    with pytest.raises(ValueError, match=message):
        classifier().fit(features, labels, groups)


def test_labels_must_fit_a_classification() -> None:
    features, labels, groups = blobs()
    with pytest.raises(ValueError, match=r"^Expected at least two classes in y, got only one class: 0"):
        classifier(classes=None).fit(features, np.zeros(600), groups)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        classifier().fit(features, labels + 0.5, groups)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"label_bounds": (40, 0)}, r"^PrivateRegressor: \[data\] label_bounds is \[40.0, 0.0\], but the smaller"),
        ({"label_bounds": (0, 1, 2)}, r"^Expected label_bounds=\(smallest, largest\), got label_bounds=\(0, 1, 2\)\.$"),
        (
            {"label_bounds": ("0", "9")},
            r"^Expected label_bounds=\(smallest, largest\), got label_bounds=\('0', '9'\)\.$",
        ),
        ({"label_bounds": 3}, r"^Expected label_bounds=\(smallest, largest\), got label_bounds=3\.$"),
        ({"method": "helmet"}, r"^PrivateRegressor: \[.*helmet"),
        ({"options": {"function": "mean"}}, r"\[method\] function is \"mean\", but for the task \"regression\""),
        ({"options": {"corelation": 3.0}}, r"\[method\] corelation is an unknown key; did you mean 'correlation'\?"),
        ({"unit": "party"}, r"\[privacy\] unit is \"party\", but \"cape\" protects records"),
    ],
)
def test_a_wrong_parameter_of_the_regressor_is_named(parameters: dict[str, Any], message: str) -> None:
    features, labels, groups = line()
    with pytest.raises(ValueError, match=message):
        regressor(**parameters).fit(features, labels, groups)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("cape", {"hiden": 3}, r"\[method\] hiden is an unknown key; did you mean 'hidden'\?"),
        ("conv", {"correlation": 3.0}, r"\[method\] correlation is an unknown key; known here: function, "),
        ("dp-fm", {"sensitivity": "loose"}, r"\[method\] sensitivity is \"loose\", but should be \"tight\" or"),
        ("cape", {"clip": 0}, r"\[method\] clip is 0, but should be the largest norm of a record's gradient, above 0"),
    ],
)
def test_an_option_that_does_not_fit_is_named(method: str, options: dict[str, Any], message: str) -> None:
    features, labels, groups = blobs()
    with pytest.raises(ValueError, match=message):
        classifier(method=method, options=options).fit(features, labels, groups)


def test_a_parameter_that_the_method_would_ignore_is_refused() -> None:
    rows, labels = np.eye(4)[np.arange(40) % 4], np.arange(40) % 2
    for parameter, value in (("regularization", 5.0), ("learner", "svm"), ("radius", 1.0)):
        model = unspoken.PrivateClassifier("moments", classes=[0, 1], **{parameter: value})
        with pytest.raises(ValueError, match=rf"^{parameter}={value!r} is for other methods than 'moments'"):
            model.fit(rows, labels)
        unspoken.PrivateClassifier("helmet", classes=[0, 1], **{parameter: value}).fit(rows, labels)


def test_more_parties_than_rows_are_refused() -> None:
    rows, labels = np.eye(4)[np.arange(8) % 4], np.arange(8) % 2
    with pytest.raises(ValueError, match=r"^Expected at most as many parties as rows, 8, got parties=1000000\.$"):
        unspoken.PrivateClassifier(parties=10**6, classes=[0, 1]).fit(rows, labels)
    assert unspoken.PrivateClassifier(classes=[0, 1]).fit(rows, labels).plan_.trust.parties == 8


def test_a_class_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected each class once, got 1 twice in classes=\[0, 1, 1\]; name it once"):
        unspoken.PrivateClassifier(classes=[0, 1, 1]).fit([[0.1], [0.2], [0.3], [0.4]], [0, 1, 0, 1])


@pytest.mark.parametrize("fitted", [True, False])
def test_a_fit_that_fails_leaves_the_model_that_there_was(fitted: bool) -> None:
    """It was paid for; and the new bounds are not for the old model. Without one, the estimator is not fitted."""
    features, labels, groups = blobs()
    ledger = unspoken.Ledger()
    model = classifier(bounds=(-1.0, 1.0), ledger=ledger)
    before = model.fit(features, labels, groups).decision_function(features) if fitted else None
    ledger.set_limit(1e-3, 1e-5)
    model.set_params(bounds=(-9.0, 9.0))
    for given in (features, features[:, :1]):
        with pytest.raises(OverLimit):
            model.fit(given, labels, groups)
    if fitted:
        assert model.n_features_in_ == features.shape[1]
        np.testing.assert_array_equal(model.decision_function(features), before)
    else:
        with pytest.raises(NotFittedError):
            model.predict(features)


def test_a_model_that_was_paid_for_is_kept_whatever_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of who turns warnings into errors, also that of the run's end."""
    features, labels, groups = blobs()
    monkeypatch.setattr(unspoken.estimators, "on_predictions", lambda *given: ["the model predicts one class only"])
    model = classifier()
    with pytest.raises(DataWarning), warnings.catch_warnings(action="error", category=DataWarning):
        model.fit(features, labels, groups)
    assert len(model.predict(features)) == len(features)
