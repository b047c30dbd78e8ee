"""The regressor learns in the units of its labels, within bounds that are given or warned of."""

import warnings

import numpy as np
import pytest

from easy_data import METHODS, line, regressor
from unspoken.estimators import PrivacyWarning


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
