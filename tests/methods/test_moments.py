"""Moments: the sums under attack, the pooled solution, and indifference to how records are spread."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import unspoken
from factories import maker
from unspoken.data.block import Block
from unspoken.data.splits import split
from unspoken.learners.second_moments import cleaned_eigenvalues
from unspoken.methods.base import Sum
from unspoken.methods.moments import Moments
from unspoken.methods.parameters import Refused
from unspoken.methods.registry import method_for
from unspoken.study import Study


def data(classes: int = 3, features: int = 4, norm: float = 2.0, **more: Any) -> dict[str, Any]:
    return {"features": features, "classes": classes, "norm": norm, **more}


study = maker("moments", data=data(), parties={"count": 20, "max_records": 2000}, summation="ideal")


def moments(agreed: Study) -> Moments:
    method = method_for(agreed)
    assert isinstance(method, Moments)
    return method


def contribution(
    method: Moments, features: np.ndarray, labels: np.ndarray, parameters: np.ndarray | None = None
) -> np.ndarray:
    block = Block(features[None], labels[None], np.array([len(labels)]))
    return method.contribute(Sum("function", parameters), block).noisy[0]


def clipped(records: np.ndarray, norm: float) -> np.ndarray:
    return records * (norm / np.maximum(np.linalg.norm(records, axis=1), norm))[:, None]


def largest_distance(method: Moments, parameters: np.ndarray | None, trials: int = 2) -> float:
    """How far apart two records' contributions are at most, by a search over both, for equal and other labels."""
    rng, reached, size = np.random.default_rng(0), 0.0, method.study.data.dimension
    for second_label in (0, 1):

        def distance(flat: np.ndarray, second_label: int = second_label) -> float:
            records = clipped(flat.reshape(2, size), method.study.data.norm)
            one, other = (
                contribution(method, record[None], np.array([label]), parameters)
                for record, label in zip(records, (0, second_label), strict=True)
            )
            return -float(np.linalg.norm(one - other))

        for _ in range(trials):
            start = rng.normal(scale=2.0, size=2 * size)
            reached = max(reached, -minimize(distance, start, method="Nelder-Mead", options={"maxiter": 1000}).fun)
    return reached


@pytest.mark.parametrize("turn", ["mean", "first step", "later step"])
@pytest.mark.parametrize("classes", [2, pytest.param(5, marks=pytest.mark.long)])
def test_no_turn_of_softmax_moves_by_more_than_its_sensitivity_and_each_can_reach_it(turn: str, classes: int) -> None:
    """Two records on opposite sides of the origin; in a later step both are classified wrongly, and surely."""
    method = moments(study(data=data(classes), method={"function": "softmax"}))
    axis = np.array([0.6, 0.0, 0.3, 0.0])
    weights = np.zeros((4, classes))
    if turn == "later step":
        weights[1] = np.linspace(-30.0, 30.0, classes)
    parameters = None if turn == "mean" else np.concatenate([axis, weights.ravel()])
    stated = method.plan().sum_named("function").sensitivity
    reached = largest_distance(method, parameters)
    assert reached <= stated
    assert reached >= 0.98 * stated


def rule_parameters(method: Moments, name: str, seed: int = 0) -> np.ndarray | None:
    """Numbers that a request of the default rule may carry: a map that stretches, and weights that are surely wrong."""
    workload: Any = method.workload
    allowed = workload.parameters(name, 0)
    if not allowed.ranges:
        return None
    return np.asarray(allowed.nearest(np.random.default_rng(seed).normal(scale=5.0, size=allowed.size)))


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("epsilon", "name"), [(8.0, "scale"), (8.0, "spread"), (8.0, "function"), (0.001, "function")])
def test_no_turn_of_the_rule_moves_by_more_than_its_sensitivity_and_each_can_reach_it(
    task: str, epsilon: float, name: str
) -> None:
    """With ε = 0.001 nothing is whitened, and a regression is least squares, whose own tests are elsewhere."""
    described = {
        "features": 4,
        "norm": 2.0,
        **({"classes": 3} if task == "classification" else {"label_bounds": [0, 9]}),
    }
    parties = {"count": 20, "records": 100, "max_records": 2000}
    method = moments(study(task=task, data=described, parties=parties, epsilon=epsilon))
    assert ("spread" in [planned.name for planned in method.plan().sums]) == (epsilon == 8.0)
    if task == "regression" and epsilon < 1.0:
        return
    stated, parameters = method.plan().sum_named(name).sensitivity, rule_parameters(method, name)
    rng, reached = np.random.default_rng(1), 0.0
    labels = np.array([0, 1]) if task == "classification" else np.array([-1.0, 1.0])
    for _ in range(100):
        one = clipped(rng.normal(scale=5.0, size=(1, 4)), 2.0)
        turned = np.linalg.qr(np.concatenate([one, rng.normal(size=(3, 4))]).T)[0].T[1:2] * 2.0
        for other, second in itertools.product((-one, turned), labels):
            vectors = [
                method.contribute(Sum(name, parameters), Block(row[None], label[None, None], np.array([1]))).noisy[0]
                for row, label in ((one, labels[0]), (other, second))
            ]
            reached = max(reached, float(np.linalg.norm(vectors[0] - vectors[1])))
    assert reached <= stated
    assert reached >= 0.9 * stated


@pytest.mark.parametrize("place", [0, 17, -1])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e12])
def test_a_request_of_the_rule_with_numbers_beyond_all_bounds_is_refused(place: int, value: float) -> None:
    method = moments(study(parties={"count": 20, "records": 100, "max_records": 2000}))
    parameters = rule_parameters(method, "function")
    assert parameters is not None
    method.check(Sum("function", parameters.copy()), 0)
    parameters[place] = value
    with pytest.raises(Refused, match="parameter number"):
        method.check(Sum("function", parameters), 0)
    with pytest.raises(Refused, match="should carry"):
        method.check(Sum("function", parameters[:-1]), 0)


def test_what_the_rule_chose_depends_on_the_study_alone_and_the_plan_says_it() -> None:
    agreed = study(parties={"count": 20, "records": 100, "max_records": 2000})
    plan = moments(agreed).plan()
    assert [planned.name for planned in plan.sums] == ["scale", "spread", "function"]
    assert any(note.startswith("chosen by rule: two sums find how to whiten") for note in plan.notes)
    few = moments(study(parties={"count": 20, "records": 1, "max_records": 2000}, unit={"group": 50})).plan()
    assert [planned.name for planned in few.sums] == ["scale", "function"]
    assert any("without whitening" in note for note in few.notes)


@pytest.mark.parametrize(
    "keys", [{"steps": 3, "clip": 0.2}, {"clip": 0.1}, {"score_noise": 0.5}, {"function": "softmax"}]
)
def test_a_study_that_chooses_for_itself_gets_what_it_always_got(keys: dict[str, Any]) -> None:
    """A sum of one length for the mean and for all steps."""
    plan = moments(study(method=keys)).plan()
    assert [(planned.name, planned.dimension) for planned in plan.sums] == [("function", 12)]
    assert plan.sums[0].count == keys.get("steps", 8) + 1


@pytest.mark.parametrize(("classes", "coefficients"), [(2, 2.0), (3, 2.0), (10, 2.0), (3, 1e-3)])
def test_no_two_records_of_a_discriminant_lie_further_apart_than_its_sensitivity(
    classes: int, coefficients: float
) -> None:
    """Also where the model is guessed to be short, and labels weigh most: β² = 2."""
    options = {"function": "discriminant", "coefficients": coefficients}
    method = moments(study(data=data(classes, 3, intercept=True), method=options))
    stated = method.plan().sum_named("function").sensitivity
    reached = largest_distance(method, None)
    assert reached <= stated
    assert reached >= 0.97 * stated
    other_label = contribution(method, np.array([[2.0, 0, 0, 0]]), np.array([1]))
    one_label = contribution(method, np.array([[0, 2.0, 0, 0]]), np.array([0]))
    assert np.linalg.norm(other_label - one_label) <= stated


def test_replacing_several_records_moves_the_sum_within_the_planned_sensitivity_and_close_to_it() -> None:
    """Three records on one side of the origin against three on the other."""
    method = moments(study(unit={"group": 3}, method={"function": "softmax"}))
    one = np.tile([2.0, 0.0, 0.0, 0.0], (3, 1))
    labels = np.zeros(3, dtype=np.int64)
    moved = np.linalg.norm(contribution(method, one, labels) - contribution(method, -one, labels))
    stated = method.plan().sum_named("function").sensitivity
    assert 0.98 * stated <= moved <= stated


@pytest.mark.parametrize("function", ["softmax", "logistic-regression"])
def test_the_bound_on_a_contribution_holds_for_the_largest_records(function: str) -> None:
    method = moments(study(method={"function": function}))
    features = np.tile([2.0, 0.0, 0.0, 0.0], (50, 1))
    vector = contribution(method, features, np.zeros(50, dtype=np.int64))
    assert np.linalg.norm(vector) == pytest.approx(method.plan().sum_named("function").encoding.bound / 2000 * 50)


@pytest.mark.parametrize("function", ["softmax", "logistic-regression"])
def test_however_records_are_spread_the_sums_are_the_same(function: str) -> None:
    method = moments(study(method={"function": function}))
    rng = np.random.default_rng(3)
    features, labels = clipped(rng.normal(size=(60, 4)), 2.0), rng.integers(0, 3, 60)
    parameters = rng.normal(size=4 + 12) / 3 if function == "softmax" else None
    whole = contribution(method, features, labels, parameters)
    for parts in (np.array_split(np.arange(60), 7), np.array_split(np.argsort(labels), 3)):
        assert np.allclose(sum(contribution(method, features[rows], labels[rows], parameters) for rows in parts), whole)


def test_the_common_direction_is_taken_away_if_there_is_one() -> None:
    method = moments(study(data=data(features=50, norm=1.0), method={"function": "softmax"}))
    function: Any = method.workload
    rng = np.random.default_rng(0)
    around_zero = rng.normal(size=(1000, 50))
    shifted = around_zero + 5.0
    for features, least, most in ((around_zero, 0.0, 0.05), (shifted, 0.9, 1.0)):
        mean = contribution(method, features, np.zeros(1000, dtype=np.int64))[:50]
        axis = function.model.axis(mean, 0.0, 1000)
        assert least <= axis @ axis <= most
    # A mean that is nothing but noise is no direction.
    assert function.model.axis(rng.normal(size=50), 1.0, 10**6) @ function.model.axis(mean, 1.0, 10**6) < 1e-3


def test_the_steps_noises_add_up_to_the_stated_noise_of_scores() -> None:
    function: Any = moments(study(method={"steps": 5, "score_noise": 0.7})).workload
    sizes = function.model.step_sizes(13.0, 10**5)
    assert len(sizes) == 5
    assert math.sqrt(float(((sizes * 13.0) ** 2).sum())) == pytest.approx(0.7)
    assert (np.diff(sizes) < 0.0).all()
    assert function.model.step_sizes(0.0, 100).max() * 100 * 0.25 == pytest.approx(1000.0)


def test_cleaning_brings_the_noisy_matrix_closer_to_the_true_one() -> None:
    """A matrix with a decaying spectrum under symmetric noise: the error in Frobenius norm, five matrices."""
    rng = np.random.default_rng(0)
    size = 150
    for _ in range(5):
        basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
        true = (basis * (100.0 / np.arange(1, size + 1))) @ basis.T
        noise = np.triu(rng.normal(size=(size, size)), 1)
        observed, vectors = np.linalg.eigh(true + noise + noise.T + np.diag(rng.normal(size=size) * math.sqrt(2.0)))
        cleaned = cleaned_eigenvalues(observed, math.sqrt(size))
        clipped = np.maximum(observed, 0.0)
        errors = [np.linalg.norm((vectors * values) @ vectors.T - true) for values in (cleaned, clipped)]
        oracle = np.linalg.norm((vectors * np.einsum("ij,ik,kj->j", vectors, true, vectors)) @ vectors.T - true)
        assert errors[0] < 0.7 * errors[1]
        assert errors[0] < 1.15 * oracle
    assert (cleaned_eigenvalues(observed, 0.0) == clipped).all()


@pytest.mark.parametrize("function", ["softmax", "logistic-regression", "discriminant"])
def test_padding_adds_nothing(function: str) -> None:
    described = data(features=3, intercept=True) if function == "discriminant" else data()
    method = moments(study(method={"function": function}, data=described))
    rng = np.random.default_rng(2)
    features, labels = rng.normal(size=(2, 6, 4)) / 3, rng.integers(0, 3, (2, 6))
    features[1, 4:], labels[1, 4:] = 0.0, 0
    block = Block(features, labels, np.array([6, 4]))
    rows = method.contribute(Sum("function"), block).noisy
    assert np.allclose(rows[1], contribution(method, features[1, :4], labels[1, :4]))


def test_without_noise_the_discriminant_is_scikit_learn_s() -> None:
    features, labels = digits()
    options = {"function": "discriminant"}
    model = unspoken.PrivateClassifier("none", classes=range(10), norm=10.0, options=options)
    model.fit(features[:1400], labels[:1400])
    reference = LinearDiscriminantAnalysis().fit(features[:1400], labels[:1400])
    # 2e-12 whatever the processor: pixels that are always blank and the constant must not be divided by their rounding.
    assert np.abs(model.predict_proba(features) - reference.predict_proba(features)).max() < 1e-7
    assert (model.predict(features) == reference.predict(features)).all()


def digits() -> tuple[np.ndarray, np.ndarray]:
    features, labels = load_digits(return_X_y=True)
    features = features - features.mean(axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (features / np.linalg.norm(features, axis=1, keepdims=True))[order], labels[order]


@pytest.mark.parametrize("kind", ["iid", "by-class"])
def test_one_class_a_party_is_as_good_as_any_other_spread(kind: str) -> None:
    """Digits at epsilon 2: 0.93 on average, with a deviation of 0.01 a run (blind averaging: 0.81, 0.77)."""
    features, labels = digits()
    agreed = study(data=data(10, 64, 1.0), epsilon=2.0, delta=1e-5)
    groups = split(kind, labels[:1400], 20, seed=0)
    accuracies = [
        unspoken.simulate(
            agreed, features[:1400], labels[:1400], groups, X_test=features[1400:], y_test=labels[1400:]
        ).metrics["accuracy"]
        for _ in range(5)
    ]
    assert np.mean(accuracies) > 0.89


def test_it_runs_on_a_real_secure_sum_and_through_the_estimator() -> None:
    features, labels = digits()
    groups = split("by-class", labels, 10, seed=0)
    model = unspoken.PrivateClassifier("moments", epsilon=8.0, delta=1e-5, classes=range(10), intercept=False)
    model.fit(features, labels, groups)
    assert model.score(features, labels) > 0.9
    assert np.allclose(model.predict_proba(features).sum(axis=1), 1.0)
    assert model.guarantee_.epsilon <= 8.0
    assert model.plan_.rounds == 18


@pytest.mark.parametrize(("reshape", "rounds"), [(True, 2), (False, 1)])
def test_a_regression_is_solved_from_second_moments(reshape: bool, rounds: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, size=(5000, 3))
    labels = 20.0 + features @ [10.0, -5.0, 0.0]
    options = {"reshape": reshape}
    model = unspoken.PrivateRegressor(
        "moments", epsilon=2.0, delta=1e-6, label_bounds=(0.0, 40.0), norm=1.3, options=options
    )
    model.fit(features, labels, np.arange(5000) % 10)
    assert model.plan_.rounds == rounds
    assert model.score(features, labels) > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": {"unit": "party"}}, "protects records"),
        ({"method": {"steps": 0}}, "steps is 0, but should be"),
        ({"method": {"learner": "svm"}}, "learner is an unknown key"),
        ({"method": {"function": "mean"}}, 'function is "mean", but for the task "classification" it should be'),
        ({"method": {"function": "discriminant"}}, "needs intercept = true"),
    ],
)
def test_what_it_cannot_do_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method_for(study(**changes))
