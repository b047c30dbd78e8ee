"""The baselines' noise has the stated size, and their sensitivities hold."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression, LogisticRegression

import unspoken
from factories import make
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods import dp_fm
from unspoken.methods.baselines import Central, IndependentMessages, Local, NonPrivate
from unspoken.methods.dp_fm import DpFm
from unspoken.methods.functions import Custom, FunctionMethod
from unspoken.methods.objective_perturbation import ObjectivePerturbation
from unspoken.methods.releases import LinearModel
from unspoken.noise.discrete_laplace import DISTANCE
from unspoken.noise.stream import SecretStream
from unspoken.privacy.gaussian import delta_of
from unspoken.study import Study, StudyError, make_study

KEY = bytes(range(32))
TASKS: dict[str, dict[str, Any]] = {
    "regression": {"label_bounds": [-1, 1]},
    "classification": {"classes": 2},
    "three classes": {"classes": 3},
    "statistics": {},
}


def study(task: str, name: str, features: int = 2, method: Any = None, data: Any = None, **privacy: Any) -> Study:
    return make(
        name,
        task=task if task in ("regression", "statistics") else "classification",
        data={"features": features, **TASKS[task], **(data or {})},
        parties=4,
        method=method or {},
        **privacy,
    )


def learnt(agreed: Study, method: Any, records: Records) -> LinearModel:
    groups = np.arange(len(records)) % 4
    return local.run(method, method.plan(), ArrayFederation(agreed, records, groups)).release


@pytest.mark.parametrize("kind", [IndependentMessages, Local, Central])
def test_the_noise_has_the_size_that_is_stated_and_that_the_promise_needs(kind: type[FunctionMethod]) -> None:
    """40,000 numbers that are all zero without noise: their deviation is known to 0.4 %."""
    agreed, count = study("statistics", kind.name, 1), 40_000
    method = kind(agreed, Custom(lambda rows: np.zeros(count), count, 1.0, 1.0))
    if isinstance(method, Central):
        method.secrets = SecretStream(KEY)
    plan = method.plan()
    records = Records(np.zeros((8, 1)), np.zeros(8, dtype=np.int64))
    federation = ArrayFederation(agreed, records, np.arange(8) % 4)
    release = local.run(method, plan, federation, Conditions(secrets=SecretStream(KEY))).release
    total = np.array(release.statistics["total"])
    planned = plan.sum_named("function")
    messages = 4 if kind is IndependentMessages else 1
    assert total.std() == pytest.approx(math.sqrt(messages) * planned.noise_std, rel=0.02)
    assert release.details["noise_std"] == pytest.approx(total.std(), rel=0.02)
    assert abs(total.mean()) < 5 * total.std() / math.sqrt(count)
    # What an adversary faces at one message: the exact trade-off of the Gaussian.
    assert delta_of(planned.sensitivity / planned.noise_std, plan.guarantee.epsilon) <= 1e-6 * (1 + 1e-9)
    assert plan.guarantee.epsilon <= 1.0


def test_the_curator_s_total_is_not_clipped_to_what_one_party_may_contribute() -> None:
    """Four parties with 100 records each, as many as a party may have."""
    content = study("statistics", "central", 1, epsilon=20.0).model_dump(exclude_none=True)
    content["parties"]["max_records"] = 100
    result = unspoken.simulate(content, np.ones((400, 1)), None, np.arange(400) % 4)
    found = result.outcome.release.statistics["x0"]
    assert abs(found["mean"] - 1.0) < 6 * found["noise_std"] < 0.05


# The functional mechanism with Laplace noise.


def coefficients(method: DpFm, point: np.ndarray, label: float) -> np.ndarray:
    row = point / max(1.0, float(np.linalg.norm(point)))
    labels = np.array([[label]]) if method._moments.classes is None else np.array([[int(label)]])
    return method._coefficients(Block(row[None, None], labels, np.ones(1, dtype=np.int64)))


@pytest.mark.parametrize("task", ["regression", "classification", "three classes"])
@pytest.mark.parametrize("features", [1, 2, pytest.param(5, marks=pytest.mark.long)])
def test_the_coefficients_of_dp_fm_move_within_the_sensitivity(task: str, features: int) -> None:
    """In L1 norm, by hill climbing. The bound adds up two maxima that no pair of records has at once."""
    method, published = (DpFm(study(task, "dp-fm", features, {"sensitivity": kind})) for kind in ("tight", "published"))
    rng = np.random.default_rng(0)
    found = 0.0
    for labels in [(1, 1), (1, -1)] if task == "regression" else [(1, 1), (1, 0)]:
        for _ in range(3):

            def distance(z: np.ndarray, labels: tuple[int, int] = labels) -> float:
                one, other = (
                    coefficients(method, z[:features], labels[0]),
                    coefficients(method, z[features:], labels[1]),
                )
                return -float(np.abs(one - other).sum())

            start = rng.normal(scale=2.0, size=2 * features)
            found = max(found, -minimize(distance, start, method="Powell", options={"maxiter": 50}).fun)
    assert found <= method.sensitivity() * (1 + 1e-9)
    assert found >= (0.7 if features == 1 else 0.8) * method.sensitivity()
    assert published.sensitivity() > method.sensitivity()
    assert published.sensitivity() >= 2 * features**2


def test_records_at_a_right_angle_move_the_squares_of_dp_fm_as_far_as_stated() -> None:
    """Between the axes and their diagonals, all entries of the difference of two squares have the same size."""
    method = DpFm(study("regression", "dp-fm", 2))
    turned, square = math.pi / 8.0, 3
    one, other = (np.array([math.cos(angle), math.sin(angle)]) for angle in (turned, turned + math.pi / 2.0))
    first, second = coefficients(method, one, 1.0), coefficients(method, other, -1.0)
    labels = 4.0 * math.sqrt(2.0)
    assert np.abs(first - second)[:square].sum() == pytest.approx(2.0 * math.sqrt(2.0))
    assert method.sensitivity() == pytest.approx(2.0 * math.sqrt(2.0) + labels, rel=1e-5)
    assert np.abs(first - second).sum() <= method.sensitivity()


@pytest.mark.parametrize("kind", ["tight", "published"])
@pytest.mark.parametrize("task", ["regression", "three classes"])
def test_what_floating_point_adds_to_the_coefficients_of_dp_fm_is_in_the_sensitivity(task: str, kind: str) -> None:
    """Sums of 3,000 records are off by less than what is counted for one data set, and by something."""
    content = study(task, "dp-fm", 3, {"sensitivity": kind}).model_dump(exclude_none=True)
    sizes = [{**content, "parties": {"count": 4, "max_records": most}} for most in (1, 750)]
    few, many = (DpFm(make_study(content)) for content in sizes)
    counted = many.sensitivity() - few.sensitivity()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3_000, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.uniform(-1.0, 1.0, 3_000) if task == "regression" else rng.integers(0, 3, 3_000)
    found = many._coefficients(Block(rows[None], labels[None], np.array([3_000])))
    each = [
        many._coefficients(Block(row[None, None], np.array([[label]]), np.array([1])))
        for row, label in zip(rows, labels, strict=True)
    ]
    exact = np.array([math.fsum(column) for column in np.transpose(each)])
    assert 0.0 < np.abs(found - exact).sum() <= counted / 2.0


@pytest.mark.parametrize("kind", ["tight", "published"])
@pytest.mark.parametrize(("epsilon", "group"), [(0.1, 1), (1.0, 1), (1.0, 3), (20.0, 1)])
def test_dp_fm_draws_noise_for_its_sensitivity_rounding_included(
    kind: str, epsilon: float, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, int]] = []

    def sample(scale: float, count: int, stream: SecretStream) -> np.ndarray:
        drawn.append((scale, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(dp_fm, "sample", sample)
    agreed = study("regression", "dp-fm", 3, {"sensitivity": kind}, epsilon=epsilon, unit={"group": group})
    method = DpFm(agreed)
    rng = np.random.default_rng(0)
    learnt(agreed, method, Records(rng.normal(size=(40, 3)), rng.uniform(-1, 1, size=40)))
    ((scale, count),) = drawn
    assert count == 3 * 4 // 2 + 3
    units, _ = method._scale()
    # ε-differential privacy of the discrete Laplace distribution: what a record moves, over the scale, is ε.
    assert (method.sensitivity() * units + count) / scale == pytest.approx(epsilon)
    one = DpFm(study("regression", "dp-fm", 3, {"sensitivity": kind}))
    # Floating point adds the same to the distance of any neighbours.
    assert method.sensitivity() == pytest.approx(group * one.sensitivity(), rel=1e-5)
    plan = method.plan()
    assert plan.guarantee.epsilon == epsilon
    assert 0.0 < plan.guarantee.delta < 1e-20
    # Each number that is drawn is in δ.
    assert plan.guarantee.delta == pytest.approx((1.0 + math.exp(epsilon)) * count * DISTANCE, abs=0.0)
    assert plan.others[0].noise_std == pytest.approx(math.sqrt(2) * scale / units)


@pytest.mark.parametrize("task", ["regression", "classification", "three classes"])
def test_without_noise_dp_fm_gives_the_least_squares_model(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_fm, "sample", lambda scale, count, stream: np.zeros(count, dtype=np.int64))
    monkeypatch.setattr(dp_fm, "_LIFT", 0.0)
    agreed = study(task, "dp-fm", 3, data={"norm": 2.0})
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(2000, 3))
    scores = features @ [0.3, -0.2, 0.4]
    labels = scores if task == "regression" else np.digitize(scores, [0.0, 0.3][: agreed.data.classes - 1])  # type: ignore[operator]
    weights = learnt(agreed, DpFm(agreed), Records(features, labels)).weights
    if task == "regression":
        np.testing.assert_allclose(weights, [[0.3, -0.2, 0.4]], atol=1e-4)
    else:
        classes = len(agreed.data.class_names)
        expected = np.linalg.lstsq(features, np.eye(classes)[labels] - 1 / classes)[0]
        np.testing.assert_allclose(weights, classes * expected.T, atol=1e-3)


@pytest.mark.parametrize("epsilon", [50.0, 1000.0])
def test_a_huge_epsilon_leaves_the_delta_of_dp_fm_small(epsilon: float) -> None:
    assert DpFm(study("regression", "dp-fm", epsilon=epsilon)).plan().guarantee.delta < 1e-10


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"epsilon": 1e-4, "features": 10_000}, r"\[privacy\] epsilon is 0\.0001, too small"),
        ({"epsilon": 30.0, "delta": 1e-30}, r"\[privacy\] delta is 1e-30, but the drawing of noise already costs"),
        ({"unit": "party"}, r"\[privacy\] unit does not fit \"dp-fm\""),
    ],
)
def test_what_dp_fm_cannot_promise_is_refused(privacy: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        DpFm(study("regression", "dp-fm", **{"features": 3, **privacy})).plan()


@pytest.mark.parametrize("name", ["dp-fm", "objective-perturbation"])
def test_methods_that_learn_refuse_statistics(name: str) -> None:
    with pytest.raises(StudyError, match=rf"\[study\] task is .*, but \"{name}\" is for"):
        {"dp-fm": DpFm, "objective-perturbation": ObjectivePerturbation}[name](study("statistics", name))


# No privacy.


@pytest.mark.parametrize("scale", [1e-4, 1.0])
def test_none_is_scikit_learn_s_linear_regression(scale: float) -> None:
    """Also where one feature is a ten-thousandth of the norm."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, size=(300, 3)) * [1.0, 1.0, scale]
    labels = features @ [1.0, -2.0, 3.0 / scale] + 7.0 + rng.normal(scale=0.1, size=300)
    agreed = study("regression", "none", 3, data={"label_bounds": [0, 15], "intercept": True, "norm": 3.0})
    result = unspoken.simulate(agreed, features, labels, np.arange(300) % 4)
    expected = LinearRegression().fit(features, labels)
    share = result.model.regressor_  # of the way through the label's bounds
    np.testing.assert_allclose(15.0 * share.coef_, expected.coef_, rtol=1e-6)
    assert 15.0 * share.intercept_ == pytest.approx(expected.intercept_)


@pytest.mark.parametrize("classes", [2, 3])
def test_none_is_scikit_learn_s_logistic_regression(classes: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, size=(600, 3))
    labels = np.digitize(features @ [2.0, 1.0, 0.0] + rng.normal(scale=0.7, size=600), [0.0, 0.5][: classes - 1])
    agreed = study("classification", "none", 3, data={"classes": classes, "intercept": True, "norm": 3.0})
    model = unspoken.simulate(agreed, features, labels, np.arange(600) % 4).model
    expected = LogisticRegression(C=1e6, tol=1e-8, max_iter=1000).fit(features, labels)
    np.testing.assert_allclose(model.predict_proba(features), expected.predict_proba(features), atol=0.01)
    assert model.score(features, labels) == pytest.approx(expected.score(features, labels), abs=0.01)


@pytest.mark.parametrize("task", TASKS)
def test_none_promises_nothing_and_says_so(task: str) -> None:
    agreed = study(task, "none")
    plan = NonPrivate(agreed).plan()
    assert not plan.guarantee.is_promise
    assert plan.guarantee.sentence().startswith("No privacy is promised")
    rng = np.random.default_rng(0)
    labels = None if task == "statistics" else rng.integers(2, size=40)
    result = unspoken.simulate(agreed, rng.normal(size=(40, 2)), labels, np.arange(40) % 4)
    for content in (plan.to_json(), result.to_json(), result.certificate):
        written = json.loads(json.dumps(content, allow_nan=False))
        assert written["guarantee"]["epsilon"] is None
        assert written["guarantee"]["attack_success"] == 1.0
    assert result.certificate["happened"]["epsilon"] is None
    assert result.certificate["happened"]["secure_sum"] is False


@pytest.mark.parametrize(
    ("kind", "secure", "dropped"), [("cape", True, 0), ("conv", False, 0), ("local", False, 0), ("central", False, 0)]
)
def test_the_certificate_claims_no_secure_sum_and_no_dropouts_that_were_not_there(
    kind: str, secure: bool, dropped: int
) -> None:
    certificate = unspoken.simulate(study("statistics", kind), np.zeros((40, 2)), None, np.arange(40) % 4).certificate
    assert certificate["happened"]["secure_sum"] is secure
    assert certificate["happened"]["dropped"] == dropped
