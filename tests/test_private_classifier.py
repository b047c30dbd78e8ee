"""The classifier learns, gives the guarantee that it was asked for, and takes groups for parties."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from easy_data import LEARNERS, METHODS, blobs, classifier
from unspoken.estimators import PrivacyWarning, PrivateClassifier


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


def test_a_delta_above_one_over_the_records_is_warned_of() -> None:
    features, labels, groups = blobs()
    with pytest.warns(PrivacyWarning, match=r"^Delta = 0\.05 is above 1/600 .* choose it well below\.$") as caught:
        classifier(delta=0.05).fit(features, labels, groups)
    assert caught[0].filename == __file__


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


NETWORK = ("cape", {"function": "network", "steps": 30})


@pytest.mark.parametrize(
    ("method", "options", "classes"),
    [
        # What takes longest has three classes here, and two in the tests of saved models.
        pytest.param(
            *each, classes, marks=pytest.mark.long if classes == 2 and each in (("moments", None), NETWORK) else ()
        )
        for each in (*((method, None) for method in METHODS), NETWORK)
        for classes in (2, 3)
    ],
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
