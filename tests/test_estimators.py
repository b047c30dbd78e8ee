"""The estimators are a scikit-learn classifier and regressor, up to noise that nobody may repeat."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_validate
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import unspoken
from unspoken.estimators import PrivacyWarning, PrivateClassifier, PrivateRegressor
from unspoken.methods.planning import mechanisms

LEARNERS = ["softmax", "logistic", "svm"]

FITS_TWICE = "fits twice and expects the same model; noise that can be drawn again could be taken away again"
EXPECTED_FAILURES = {
    "check_fit_idempotent": FITS_TWICE,
    "check_classifier_data_not_an_array": FITS_TWICE,
    "check_supervised_y_2d": FITS_TWICE,
}


@pytest.mark.filterwarnings("ignore::unspoken.estimators.PrivacyWarning")
@pytest.mark.usefixtures("seeded")
@parametrize_with_checks(
    [PrivateClassifier(), *(PrivateClassifier("helmet", learner) for learner in LEARNERS)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_it_passes_scikit_learn_s_checks(
    estimator: PrivateClassifier, check: Callable[[Any], None], runs: Callable[[int, int], int]
) -> None:
    if estimator.method != PrivateClassifier().method and not runs(0, 1):
        pytest.skip("the same estimator with another method; runs with --soak")
    check(estimator)


@pytest.mark.filterwarnings("ignore::unspoken.estimators.PrivacyWarning")
@pytest.mark.parametrize("learner", LEARNERS)
def test_without_noise_no_check_would_fail(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "sample", lambda sigma, count, secrets: np.zeros(count, dtype=np.int64))
    ran = set()
    for estimator, check in estimator_checks_generator(PrivateClassifier("helmet", learner)):
        if check.func.__name__ in EXPECTED_FAILURES:
            check(estimator)
            ran.add(check.func.__name__)
    assert ran == EXPECTED_FAILURES.keys()


def blobs(classes: int = 3, records: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Well separated classes in the unit ball, and the party of each record."""
    angles = 2 * np.pi * np.arange(classes) / classes
    centers = 0.8 * np.column_stack([np.cos(angles), np.sin(angles)])
    features, labels = make_blobs(records, centers=centers, cluster_std=0.05, random_state=0)
    return features, labels, np.arange(records) % 20


def classifier(**parameters: Any) -> PrivateClassifier:
    """By the default method, unless a learner is named, which is helmet's."""
    method = {"method": "helmet"} if "learner" in parameters else {}
    return PrivateClassifier(**{"epsilon": 20.0, "classes": [0, 1, 2], "protocol": "ideal", **method, **parameters})


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_it_learns_what_is_easy_to_learn(learner: str, classes: int) -> None:
    features, labels, groups = blobs(classes)
    model = classifier(learner=learner, classes=range(classes), protocol="compute-nodes")
    assert model.fit(features, labels, groups=groups) is model
    # The noise on the average moves no score by a tenth of the distance between classes.
    assert model.score(features, labels) > 0.95
    np.testing.assert_array_equal(model.classes_, np.arange(classes))
    outputs = 1 if classes == 2 and learner != "softmax" else classes
    assert (model.coef_.shape, model.intercept_.shape, model.n_features_in_) == ((outputs, 2), (outputs,), 2)


def test_the_guarantee_is_the_one_asked_for_and_the_groups_are_its_parties() -> None:
    features, labels, groups = blobs()
    asked = {"epsilon": 1.25, "delta": 1e-7, "unit": "party", "colluding": 0.5, "dropouts": 3}
    model = classifier(method="helmet", **asked).fit(features, labels, groups)
    guarantee = model.guarantee_
    assert 1.24 < guarantee.epsilon <= 1.25
    assert (guarantee.delta, guarantee.unit, guarantee.adjacency) == (1e-7, "party", "replace")
    assert (guarantee.trust.parties, guarantee.trust.colluding, guarantee.trust.dropouts) == (20, 10, 3)
    assert model.plan_.guarantee is guarantee
    assert model.certificate_["happened"]["survivors"] == 20
    assert model.certificate_["guarantee"]["epsilon"] == guarantee.epsilon


def test_groups_may_be_names_and_parties_of_any_size() -> None:
    features, labels, _ = blobs()
    names = np.array(["large", "small", "middle"])[np.repeat([0, 1, 2], [400, 1, 199])]
    model = classifier().fit(features, labels, groups=pd.Series(names))
    assert model.plan_.trust.parties == 3
    assert model.certificate_["happened"]["records"] == 600


@pytest.mark.parametrize(("parties", "expected"), [(7, 7), (np.int64(7), 7)])
def test_without_groups_rows_are_dealt_out_to_that_many_parties(parties: int, expected: int) -> None:
    features, labels, _ = blobs()
    assert classifier(parties=parties).fit(features, labels).plan_.trust.parties == expected


def test_classes_that_are_given_need_not_all_occur() -> None:
    features, labels, groups = blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        model = classifier(classes=["d", "c", "b", "a"]).fit(features, np.array(["d", "b", "c"])[labels], groups)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.score(features, np.array(["d", "b", "c"])[labels]) > 0.9
    assert model.predict_proba(features).shape == (600, 4)


def test_classes_that_are_taken_from_the_labels_are_warned_of() -> None:
    features, labels, groups = blobs()
    with pytest.warns(
        PrivacyWarning, match=r"the guarantee does not cover which labels occur\. Pass classes="
    ) as caught:
        model = classifier(classes=None).fit(features, labels, groups)
    assert caught[0].filename == __file__
    assert model.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_and_probabilities_agree_with_predictions(learner: str, classes: int) -> None:
    features, labels, groups = blobs(classes)
    model = classifier(learner=learner, classes=range(classes)).fit(features, labels, groups)
    scores = model.decision_function(features)
    assert scores.shape == ((600,) if classes == 2 else (600, classes))
    best = (scores > 0).astype(int) if classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(features), best)
    assert hasattr(model, "predict_proba") == (learner != "svm")
    if learner != "svm":
        probabilities = model.predict_proba(features)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        np.testing.assert_array_equal(probabilities.argmax(axis=1), best)


def test_every_fit_draws_fresh_noise() -> None:
    features, labels, groups = blobs()
    model = classifier()
    first = model.fit(features, labels, groups).coef_.copy()
    assert (model.fit(features, labels, groups).coef_ != first).all()


def test_a_smaller_epsilon_means_more_noise() -> None:
    features, labels, groups = blobs()
    noise = [
        classifier(epsilon=epsilon).fit(features, labels, groups).certificate_["happened"]["noise_std_per_gradient"]
        for epsilon in (0.1, 1.0, 10.0)
    ]
    assert noise[0] > 5 * noise[1] > 20 * noise[2]


def test_where_noise_is_larger_a_rule_chooses_more_regularization() -> None:
    features, labels, groups = blobs()
    plans = [
        classifier(method="helmet", epsilon=epsilon).fit(features, labels, groups).plan_ for epsilon in (0.1, 100.0)
    ]
    assert plans[0].facts["regularization"] > plans[1].facts["regularization"]


def test_an_intercept_costs_next_to_nothing_where_it_is_not_needed() -> None:
    """A 1 beside records of norm 1 would take half of their square."""
    model = classifier(method="helmet", intercept=True, norm=1.0, epsilon=30.0, regularization=0.1)
    without = clone(model).set_params(intercept=False)
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 3
    features = np.eye(3)[labels] @ rng.normal(size=(3, 30)) + rng.normal(size=(3000, 30))
    features -= features.mean(axis=1, keepdims=True)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    models = [kind.fit(features, labels, np.arange(3000) // 300) for kind in (model, without)]
    assert models[0].plan_.facts["constant"] == 0.125
    lengths = [np.linalg.norm(fitted.coef_) for fitted in models]
    assert lengths[0] >= 0.9 * lengths[1]
    scores = features @ models[0].coef_.T + models[0].intercept_
    assert np.allclose(scores, models[0].decision_function(features))


def test_parameters_can_be_read_set_and_cloned() -> None:
    model = classifier(unit={"group": 5}, colluding=0.25)
    assert model.get_params()["unit"] == {"group": 5}
    copy = clone(model).set_params(epsilon=3.0)
    assert copy.get_params() == {**model.get_params(), "epsilon": 3.0}
    assert not hasattr(copy, "guarantee_")
    assert "epsilon=20.0" in repr(model)


def test_it_works_inside_cross_validation_with_groups() -> None:
    features, labels, groups = blobs()
    scores = cross_validate(classifier(), features, labels, params={"groups": groups}, cv=2)["test_score"]
    assert (scores > 0.8).all()


def test_numpy_numbers_are_taken_as_parameters() -> None:
    features, labels, groups = blobs()
    model = classifier(
        method="helmet",
        epsilon=np.float32(2.0),
        delta=np.float64(1e-6),
        unit={"group": np.int64(2)},
        colluding=np.int32(3),
        dropouts=np.float64(0.1),
        regularization=np.float32(0.5),
        norm=np.int64(1),
        intercept=np.bool_(False),
        seed=np.int64(4),
    ).fit(features, labels, groups)
    assert model.guarantee_.epsilon <= 2.0
    assert (model.guarantee_.unit, model.plan_.study.colluding, model.plan_.study.dropouts) == ({"group": 2}, 3, 2)
    assert not model.intercept_.any()


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


def test_it_is_offered_at_the_top() -> None:
    assert unspoken.PrivateClassifier is PrivateClassifier


METHODS = ["moments", "cape", "conv", "local", "central", "dp-fm", "objective-perturbation", "none"]
"""Of regressions, and besides helmet of classifications."""
REGRESSORS = [PrivateRegressor(method=method) for method in ("moments", "cape", "none")]
REGRESSOR_FAILURES = {
    "check_fit_idempotent": FITS_TWICE,
    "check_regressor_data_not_an_array": FITS_TWICE,
    "check_supervised_y_2d": FITS_TWICE,
    "check_regressors_int": FITS_TWICE,
}


@pytest.mark.filterwarnings("ignore::unspoken.estimators.PrivacyWarning")
@pytest.mark.usefixtures("seeded")
@parametrize_with_checks(
    REGRESSORS, expected_failed_checks=lambda estimator: {} if estimator.method == "none" else REGRESSOR_FAILURES
)
def test_the_regressor_passes_scikit_learn_s_checks(
    estimator: PrivateRegressor, check: Callable[[Any], None], runs: Callable[[int, int], int]
) -> None:
    if estimator.method != REGRESSORS[0].method and not runs(0, 1):
        pytest.skip("the same estimator with another method; runs with --soak")
    check(estimator)


@pytest.mark.filterwarnings("ignore::unspoken.estimators.PrivacyWarning")
@pytest.mark.parametrize("method", ["moments", "cape"])
def test_without_noise_no_check_of_the_regressor_would_fail(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "sample", lambda sigma, count, secrets: np.zeros(count, dtype=np.int64))
    ran = set()
    for estimator, check in estimator_checks_generator(PrivateRegressor(method=method)):
        if check.func.__name__ in REGRESSOR_FAILURES:
            check(estimator)
            ran.add(check.func.__name__)
    assert ran == REGRESSOR_FAILURES.keys()


def line(records: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels between 0 and 40 that a plane explains, and the party of each record."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, size=(records, 2))
    labels = 20.0 + features @ [20.0, -10.0] + rng.normal(scale=0.5, size=records)
    return features, labels, np.arange(records) % 10


def regressor(**parameters: Any) -> PrivateRegressor:
    given: dict[str, Any] = {"method": "cape", "epsilon": 20.0, "label_bounds": (0, 40), "norm": 1.3}
    return PrivateRegressor(**given | parameters)


@pytest.mark.parametrize("method", METHODS)
def test_a_line_is_learnt_in_the_units_of_its_labels(method: str) -> None:
    features, labels, groups = line()
    model = regressor(method=method)
    assert model.fit(features, labels, groups=groups) is model
    assert model.n_features_in_ == 2
    assert model.coef_.shape == (2,)
    np.testing.assert_allclose(model.predict(features), np.clip(features @ model.coef_ + model.intercept_, 0, 40))
    # A tenth of the records is what `local` has; `dp-fm` and objective perturbation pull towards zero.
    assert model.score(features, labels) > {"local": 0.5, "objective-perturbation": 0.8}.get(method, 0.9)
    exported = model._release.estimator(model.plan_.study)
    np.testing.assert_allclose(exported.predict(features), model.predict(features))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_intercept_is_that_of_the_labels(intercept: bool) -> None:
    features, labels, groups = line()
    model = regressor(method="none", intercept=intercept).fit(features, labels, groups)
    # Without one, a record of zeros has the middle of the bounds.
    assert model.intercept_ == pytest.approx(20.0, abs=0.2 if intercept else 1e-12)
    np.testing.assert_allclose(model.coef_, [20.0, -10.0], atol=0.3)


def test_the_regressor_s_guarantee_is_the_one_asked_for() -> None:
    features, labels, groups = line()
    model = regressor(epsilon=1.25, delta=1e-7, unit={"group": 2}, colluding=0.3, dropouts=1).fit(
        features, labels, groups
    )
    guarantee = model.guarantee_
    assert 1.24 < guarantee.epsilon <= 1.25
    assert (guarantee.delta, guarantee.unit) == (1e-7, {"group": 2})
    assert (guarantee.trust.parties, guarantee.trust.colluding, guarantee.trust.dropouts) == (10, 3, 1)
    assert model.certificate_["guarantee"] == guarantee.to_json()


def test_a_sample_weight_of_none_is_none() -> None:
    features, labels, groups = line()
    regressor().fit(features, labels, groups, sample_weight=None)
    chosen = PrivateClassifier(epsilon=20.0, classes=[0, 1], norm=1.3)
    chosen.fit(features, (labels > 20).astype(int), groups, sample_weight=None)
    with pytest.raises(TypeError, match="sample_weight is not served"):
        regressor().fit(features, labels, groups, sample_weight=np.ones(len(labels)))


def test_label_bounds_that_are_taken_from_the_labels_are_warned_of() -> None:
    features, labels, groups = line()
    with pytest.warns(PrivacyWarning, match=r"does not cover what they reveal\. Pass label_bounds=") as caught:
        model = regressor(label_bounds=None).fit(features, labels, groups)
    assert caught[0].filename == __file__
    assert model.plan_.study.data.label_bounds == (labels.min(), labels.max())
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        regressor().fit(features, labels, groups)


def test_labels_beyond_the_bounds_count_as_the_nearer_one() -> None:
    features, labels, groups = line()
    beyond = np.where(labels > 25, 1e6, labels)
    clipped = regressor(method="none", label_bounds=(0, 25)).fit(features, beyond, groups)
    np.testing.assert_allclose(
        clipped.coef_, regressor(method="none", label_bounds=(0, 25)).fit(features, labels, groups).coef_
    )


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


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("method", "options"), [*((method, None) for method in METHODS), ("cape", {"function": "network", "steps": 30})]
)
def test_every_method_classifies_with_probabilities_that_add_up(
    method: str, options: dict[str, Any] | None, classes: int
) -> None:
    features, labels, groups = blobs(classes, records=1000)
    model = classifier(method=method, options=options, classes=range(classes), epsilon=50.0, protocol="compute-nodes")
    model.fit(features, labels, groups)
    probabilities = model.predict_proba(features)
    assert probabilities.shape == (1000, classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(features))
    assert model.score(features, labels) > (0.6 if method == "local" else 0.9)
    assert hasattr(model, "coef_") == (options is None)
    np.testing.assert_array_equal(
        model._release.estimator(model.plan_.study).predict(features), labels_of(model, features)
    )


def labels_of(model: PrivateClassifier, features: np.ndarray) -> np.ndarray:
    """The numbers of the predicted classes."""
    return np.searchsorted(model.classes_, model.predict(features))


def test_a_network_leaves_no_weights_of_an_earlier_model() -> None:
    features, labels, groups = blobs()
    model = classifier(method="cape").fit(features, labels, groups)
    assert model.coef_.shape == (3, 2)
    model.set_params(options={"function": "network", "steps": 2}).fit(features, labels, groups)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "intercept_")


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


def test_the_regressor_is_offered_at_the_top() -> None:
    assert unspoken.PrivateRegressor is PrivateRegressor


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
