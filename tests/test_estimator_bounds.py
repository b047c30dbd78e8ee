"""Estimators scale features by public bounds, keep a data frame's names, and say when records do not fit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.utils.validation import has_fit_parameter

from unspoken import DataWarning, PrivateClassifier, PrivateRegressor
from unspoken.data.scaling import Scaling

X, Y = load_breast_cancer(return_X_y=True, as_frame=True)
LOW, HIGH = np.zeros(30), X.max().to_numpy() * 1.2
SICK, COURSE = load_diabetes(return_X_y=True, as_frame=True, scaled=False)


def classifier(**parameters: Any) -> PrivateClassifier:
    return PrivateClassifier(**{"method": "moments", "classes": [0, 1], "protocol": "ideal", **parameters})


def regressor(**parameters: Any) -> PrivateRegressor:
    return PrivateRegressor(**{"label_bounds": (0, 400), "protocol": "ideal", **parameters})


def test_features_within_bounds_cause_no_warning_and_are_learnt_from() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model = classifier(bounds=(LOW, HIGH), epsilon=10.0).fit(X, Y)
        numbers = regressor(bounds=(SICK.min() - 1, SICK.max() + 1), epsilon=10.0).fit(SICK, COURSE)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    # Over 20 runs these were 0.92 and 0.47 at least.
    assert model.score(X, Y) > 0.85
    assert numbers.score(SICK, COURSE) > 0.3


def test_raw_features_are_warned_of() -> None:
    with pytest.warns(DataWarning, match=r"^100 % of the records are longer .* bounds=\(low, high\)") as caught:
        classifier().fit(X, Y)
    assert caught[0].filename == __file__
    with pytest.warns(DataWarning, match="^100 % of the records are longer"):
        regressor().fit(SICK, COURSE)


def test_features_outside_their_bounds_are_warned_of_by_name() -> None:
    with pytest.warns(
        DataWarning, match=r"^Feature 'mean area': 100 % of the values lie outside the bounds 0 to 1 and"
    ):
        classifier(bounds=(0, np.where(X.columns == "mean area", 1.0, HIGH))).fit(X, Y)
    with pytest.warns(DataWarning, match=r"^Feature 'x3': 100 % of the values lie outside the bounds"):
        classifier(bounds=(0, np.where(X.columns == "mean area", 1.0, HIGH))).fit(X.to_numpy(), Y)


def test_weights_are_in_the_units_of_the_features() -> None:
    model = classifier(bounds=(LOW, HIGH)).fit(X, Y)
    linear = X.to_numpy() @ model.coef_.T + model.intercept_
    expected = linear[:, 1] - linear[:, 0] if linear.shape[1] == 2 else linear[:, 0]
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-9, atol=1e-9)
    numbers = regressor(bounds=(SICK.min(), SICK.max()), intercept=False).fit(SICK, COURSE)
    linear = np.clip(SICK.to_numpy() @ numbers.coef_ + numbers.intercept_, *numbers.label_bounds)
    np.testing.assert_allclose(numbers.predict(SICK), linear)


def test_features_are_clipped_to_their_bounds_in_prediction_too() -> None:
    model = classifier(bounds=(LOW, HIGH)).fit(X, Y)
    far = X.copy()
    far["mean area"] = 1e9
    at = X.copy()
    at["mean area"] = HIGH[X.columns == "mean area"][0]
    np.testing.assert_array_equal(model.decision_function(far), model.decision_function(at))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_norm_is_by_default_what_no_record_within_bounds_exceeds(intercept: bool) -> None:
    bounded = classifier(bounds=(LOW, HIGH), intercept=intercept).fit(X, Y)
    assert bounded.plan_.study.data.norm == np.sqrt(30 + intercept)
    unit = classifier(intercept=intercept).fit(X / 1e5, Y)
    assert unit.plan_.study.data.norm == np.sqrt(1 + intercept)
    assert classifier(bounds=(LOW, HIGH), norm=2.0).fit(X, Y).plan_.study.data.norm == 2.0


def test_within_the_widest_bounds_every_value_is_scaled_to_a_number() -> None:
    """A value that is not would silence its party, and so say that it is there."""
    values = np.array([[-1.7e308], [-1e100], [0.0], [1e100], [1.7e308]])
    assert Scaling.of((-1e100, 1e100), ["x"]).apply(values).ravel().tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]
    with pytest.raises(
        ValueError, match=r"from -1e\+100 to 1e\+100, got -1\.7e\+308 and 1\.7e\+308 for the feature 'x'"
    ):
        Scaling.of((-1.7e308, 1.7e308), ["x"])


@pytest.mark.parametrize(
    "bounds",
    [
        *(5, (1, 0), (0, 0), (0, [1, 2]), (0, 1, 2), ("a", "b"), ([[0] * 30], 1), (None, 1)),
        *((0, np.inf), (np.nan, 1), (-1.7e308, 1.7e308), (0, 1.1e100), (-1.1e100, 0)),
    ],
)
def test_impossible_bounds_are_refused(bounds: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected bounds=\(low, high\), .* got .*\.$") as caught:
        classifier(bounds=bounds).fit(X, Y)
    assert "\n" not in str(caught.value)


def test_a_dictionary_of_bounds_is_refused_and_two_lists_are_named() -> None:
    """That of two features, 0 and 1, would pass for the bounds 0 and 1 of all."""
    for bounds in ({"mean radius": (0, 30)}, {0: (-5, 5), 1: (0, 3)}, {0: 1, 1: 2}):
        with pytest.raises(
            ValueError, match=r"^Expected bounds=\(low, high\), .* got the dictionary .*; write bounds=\("
        ):
            classifier(bounds=bounds).fit(X, Y)


def test_a_feature_whose_bounds_are_impossible_is_named() -> None:
    high = np.where(X.columns == "mean area", 0.0, HIGH)
    with pytest.raises(ValueError, match=r"got 0 and 0 for the feature 'mean area'; give what is publicly known of it"):
        classifier(bounds=(0, high)).fit(X, Y)


def test_a_series_of_bounds_goes_by_the_names_of_its_features() -> None:
    low, high = pd.Series(LOW, X.columns), pd.Series(HIGH, X.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model = classifier(bounds=(low[::-1], high[::-1]), epsilon=10.0).fit(X, Y)
    np.testing.assert_array_equal(model._scaling.bounds[1], HIGH)


def test_a_series_of_bounds_may_number_features_but_not_name_others() -> None:
    order = np.arange(30)[::-1]
    numbered = pd.Series(HIGH[order], order)
    for features in (X.to_numpy(), X.set_axis(range(30), axis=1)):
        model = classifier(bounds=(0, numbered)).fit(features, Y)
        np.testing.assert_array_equal(model._scaling.bounds[1], HIGH)
    named = pd.Series(HIGH, X.columns)
    np.testing.assert_array_equal(Scaling.of((0, named), [f"x{place}" for place in range(30)]).bounds[1], HIGH)
    for other in ("mean aera", "mean radius"):
        wrong = named.rename({"mean area": other})[::-1]
        with pytest.raises(ValueError, match=r"^bounds lacks the feature 'mean area', but names others; name each"):
            classifier(bounds=(0, wrong)).fit(X, Y)


def test_public_rows_go_by_the_names_of_their_features() -> None:
    model = classifier(bounds=(LOW, HIGH), epsilon=0.1)
    clinics, public = X.assign(clinic=np.arange(len(X)) % 4), X[:50]

    def fitted(rows: Any) -> str:
        return str(model.fit(clinics, Y, groups="clinic", public=rows).plan_.study.data.public_sha256)

    expected = fitted(public)
    assert fitted(public[public.columns[::-1]]) == expected
    assert fitted(clinics[:50]) == expected
    assert fitted(public.to_numpy()) == expected
    with pytest.raises(ValueError, match=r"^the public records: lacks the column 'mean area' of X; give the features"):
        fitted(public.drop(columns="mean area"))
    with pytest.raises(ValueError, match=r"^the public records: has the column 'sick', which X lacks; give the"):
        fitted(public.assign(sick=1))


def test_an_array_of_times_is_no_array_of_numbers() -> None:
    days = np.full((len(X), 2), "2019-01-31", dtype="M8[D]")
    for times in (days, days - days):
        with pytest.raises(
            ValueError, match=r"^X holds times, but PrivateClassifier takes numbers only; count days or"
        ):
            classifier().fit(times, Y)
        with pytest.raises(ValueError, match=r"^y holds times, but PrivateRegressor takes numbers only; count days or"):
            regressor().fit(X, times[:, 0])


def test_a_column_of_a_data_frame_may_name_the_parties_and_is_no_feature() -> None:
    clinics = X.assign(clinic=[f"clinic {row % 4}" for row in range(len(X))])
    for model in (classifier(bounds=(LOW, HIGH)), regressor(bounds=(LOW, HIGH), label_bounds=(0, 1))):
        model.fit(clinics, Y, groups="clinic")
        assert model.plan_.study.parties.count == 4
        assert model.feature_names_in_.tolist() == X.columns.tolist()
        np.testing.assert_array_equal(model.predict(clinics), model.predict(X))
        with pytest.raises(ValueError, match=r"^the training table: lacks the column 'clinc' .*[dD]id you mean"):
            model.fit(clinics, Y, groups="clinc")
        with pytest.raises(ValueError, match="only a data frame has columns; name the party of each record"):
            model.fit(X.to_numpy(), Y, groups="clinic")


@pytest.mark.parametrize(
    "values", ["north", pd.Timestamp("2019-01-31"), pd.Categorical(["a"] * len(X)), pd.Timedelta("1D")]
)
def test_a_column_that_is_no_number_is_refused_with_what_to_do(values: Any) -> None:
    told = r"^X has the column 'site' with '.*', but Private.* takes numbers only; leave it out, pass groups='site' if"
    for model in (classifier(), regressor()):
        with pytest.raises(ValueError, match=told):
            model.fit(X.assign(site=values), Y)
    fitted = classifier(bounds=(LOW, HIGH)).fit(X, Y)
    with pytest.raises(ValueError, match=told):
        fitted.predict(X.assign(site=values))


def test_a_missing_value_is_refused_and_nobody_is_told_to_estimate_it() -> None:
    holes = X.assign(**{"mean area": X["mean area"].where(np.arange(len(X)) % 4 > 0)})
    told = r"of the column 'mean area', but PrivateClassifier takes numbers only; fill in a public value, none that was"
    with pytest.raises(ValueError, match=r"^X has NaN in 25.1 % " + told):
        classifier().fit(holes, Y)
    with pytest.raises(
        ValueError, match=r"^X\[\d+, 3\] is NaN, but PrivateClassifier takes finite numbers only; fill in"
    ):
        classifier().fit(holes.to_numpy(), Y)


def test_numbers_in_columns_of_other_kinds_are_taken() -> None:
    kinds = {"flag": X["mean area"] > 500, "text": X["mean area"].astype(str), "whole": np.arange(len(X)) % 7}
    model = classifier(bounds=(0, 5000)).fit(pd.DataFrame(kinds), Y)
    assert model.n_features_in_ == 3


def test_weights_of_records_and_sparse_features_are_refused_in_one_sentence() -> None:
    for model, features, labels in ((classifier(), X, Y), (regressor(), SICK, COURSE)):
        assert not has_fit_parameter(model, "sample_weight")
        with pytest.raises(TypeError, match=r"^sample_weight is not supported: .*; leave it out\.$"):
            model.fit(features, labels, sample_weight=np.ones(len(labels)))
        with pytest.raises(TypeError, match=r"^fit\(\) got an unexpected keyword argument 'weights'$"):
            model.fit(features, labels, weights=1)
        with pytest.raises(
            TypeError, match=r"^Sparse data was passed for X, but dense data is required\. Use '\.toarray"
        ):
            model.fit(csr_array(np.asarray(features)), labels)


def test_public_records_of_a_regression_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^public is for classifiers: a regression makes no use of public records;"):
        regressor().fit(SICK, COURSE, public=SICK)


def test_a_data_frame_with_other_names_is_refused() -> None:
    model = classifier(bounds=(LOW, HIGH)).fit(X, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.rename(columns={"mean area": "area"}))
    assert isinstance(model.predict(X[:3]), np.ndarray)
    assert isinstance(X, pd.DataFrame)
