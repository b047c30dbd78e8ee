"""The classifier and the regressor pass scikit-learn's own checks, up to noise that nobody may repeat."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import unspoken
from easy_data import LEARNERS, blobs, classifier, line, regressor
from unspoken.estimators import PrivateClassifier, PrivateRegressor
from unspoken.methods.planning import mechanisms

FITS_TWICE = "fits twice and expects the same model; noise that can be drawn again could be taken away again"
EXPECTED_FAILURES = {
    "check_fit_idempotent": FITS_TWICE,
    "check_classifier_data_not_an_array": FITS_TWICE,
    "check_supervised_y_2d": FITS_TWICE,
}


def is_for_every_day(check: Callable[[Any], None], failures: dict[str, str]) -> bool:
    """What is expected to fail is run below without noise, where it passes. Training is checked in plain memory, and in
    memory that nobody may write to; that it takes 32-bit numbers, of which it makes a copy, is a check of its own."""
    assert isinstance(check, partial)
    on_other_numbers = check.func.__name__.endswith("_train") and "X_dtype" in check.keywords
    return check.func.__name__ not in failures and not on_other_numbers


@pytest.mark.filterwarnings("ignore::unspoken.estimators.PrivacyWarning")
@pytest.mark.usefixtures("seeded")
@parametrize_with_checks(
    [PrivateClassifier(), *(PrivateClassifier("helmet", learner) for learner in LEARNERS)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_it_passes_scikit_learn_s_checks(
    estimator: PrivateClassifier, check: Callable[[Any], None], runs: Callable[[int, int], int]
) -> None:
    usual = estimator.method == PrivateClassifier().method and is_for_every_day(check, EXPECTED_FAILURES)
    if not (usual or runs(0, 1)):
        pytest.skip("the same estimator with another method, or the same check in another place; runs with --soak")
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


def test_it_is_offered_at_the_top() -> None:
    assert unspoken.PrivateClassifier is PrivateClassifier


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
    usual = estimator.method == REGRESSORS[0].method and is_for_every_day(check, REGRESSOR_FAILURES)
    if not (usual or runs(0, 1)):
        pytest.skip("the same estimator with another method, or the same check in another place; runs with --soak")
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


def test_a_sample_weight_of_none_is_none() -> None:
    features, labels, groups = line()
    regressor().fit(features, labels, groups, sample_weight=None)
    chosen = PrivateClassifier(epsilon=20.0, classes=[0, 1], norm=1.3)
    chosen.fit(features, (labels > 20).astype(int), groups, sample_weight=None)
    with pytest.raises(TypeError, match="sample_weight is not supported"):
        regressor().fit(features, labels, groups, sample_weight=np.ones(len(labels)))


def test_the_regressor_is_offered_at_the_top() -> None:
    assert unspoken.PrivateRegressor is PrivateRegressor


def test_a_grid_search_gives_parties_to_fit_if_it_is_asked_to() -> None:
    rng = np.random.default_rng(0)
    X, y, parties = rng.uniform(-0.5, 0.5, (120, 3)), rng.integers(2, size=120), np.arange(120) % 4
    model = PrivateClassifier(norm=1.0, intercept=False, classes=[0, 1])
    with sklearn.config_context(enable_metadata_routing=True):
        asked = GridSearchCV(model.set_fit_request(groups=True), {"epsilon": [1.0]}, cv=KFold(2))
        asked.fit(X, y, groups=parties)
    assert asked.best_estimator_.plan_.to_json()["parties"] == 4
