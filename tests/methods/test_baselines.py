"""The baselines' noise has the stated size, their sensitivities hold, and objective perturbation keeps its promise."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

import unspoken
from factories import make
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.methods import dp_fm, objective_perturbation
from unspoken.methods.baselines import Central, IndependentMessages, Local, NonPrivate
from unspoken.methods.dp_fm import DpFm
from unspoken.methods.functions import Custom, FunctionMethod
from unspoken.methods.objective_perturbation import ObjectivePerturbation
from unspoken.methods.releases import LinearModel
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
    release = local.run(method, plan, federation, secrets=SecretStream(KEY)).release
    total = np.array(release.statistics["total"])
    planned = plan.planned("function")
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
@pytest.mark.parametrize("features", [1, 2, 5])
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
        ({"epsilon": 1e-15}, r"\[privacy\] epsilon is 1e-15, too small"),
        ({"epsilon": 30.0, "delta": 1e-30}, r"\[privacy\] delta is 1e-30, but the drawing of noise already costs"),
        ({"unit": "party"}, r"\[privacy\] unit does not fit \"dp-fm\""),
    ],
)
def test_what_dp_fm_cannot_promise_is_refused(privacy: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        DpFm(study("regression", "dp-fm", 3, **privacy)).plan()


# Objective perturbation.

Data = tuple[np.ndarray, np.ndarray]


def noise_of(weights: np.ndarray, data: Data, ridge: float, squared: bool) -> tuple[np.ndarray, float]:
    """The b that makes `weights` the minimiser for these records, and log |det ∂b/∂w|."""
    features, labels = data
    scores = features @ weights
    if squared:
        slopes, bends = labels - scores, np.ones(len(labels))
    else:
        slopes, bends = labels * expit(-labels * scores), expit(scores) * expit(-scores)
    hessian = features.T @ (features * bends[:, None]) + len(labels) * ridge * np.eye(features.shape[1])
    return features.T @ slopes - len(labels) * ridge * weights, float(np.linalg.slogdet(hessian)[1])


def log_ratio(weights: np.ndarray, one: Data, other: Data, scale: float, ridge: float, squared: bool) -> float:
    """log p(w | one)/p(w | other): densities of b and the change of variables."""
    (b_one, det_one), (b_other, det_other) = (noise_of(weights, data, ridge, squared) for data in (one, other))
    return float((np.linalg.norm(b_other) - np.linalg.norm(b_one)) / scale + det_one - det_other)


def neighbours(features: int, squared: bool, rng: np.random.Generator) -> list[tuple[Data, Data]]:
    """Random data sets and crowded ones, with one record replaced by its mirror image, by nothing, or at random."""
    pairs = []
    for count in (1, 3, 30):
        for crowd in ("random", "same", "none"):
            rows = rng.normal(size=(count, features))
            rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
            rows = {"random": rows, "same": np.tile(np.eye(features)[0], (count, 1)), "none": 0.0 * rows}[crowd]
            labels = rng.choice([-1.0, 1.0], size=count)
            point = rng.normal(size=features)
            point /= np.linalg.norm(point)
            mirrored = point * ([1.0, -1.0] if features == 2 else [-1.0])
            for (first, label), (second, other_label) in itertools.product(
                [(point, 1.0), (np.eye(features)[-1], -1.0), (0.3 * point, 1.0)],
                [(mirrored, 1.0), (-point, 1.0), (0.0 * point, 1.0), (point, -1.0), (point, 0.2 if squared else 1.0)],
            ):
                one, other = (
                    (np.vstack([rows, final]), np.append(labels, last))
                    for final, last in ((first, label), (second, other_label))
                )
                pairs.append((one, other))
    if features == 2:
        # Against a model along the first axis, two mirrored records that it gets wrong, and a crowd that makes their
        # difference point where b does.
        for angle in (0.8, 1.05, 1.3, 1.5):
            crowd, known = np.tile([0.0, 1.0], (1000, 1)), np.ones(1000)
            one, other = (
                (np.vstack([crowd, [-math.cos(angle), sign * math.sin(angle)]]), np.append(known, 1.0))
                for sign in (1.0, -1.0)
            )
            pairs.append((one, other))
    return pairs


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize(("epsilon", "regularization"), [(0.3, 1e-3), (2.0, 1e-3), (1.0, 0.05)])
def test_no_release_of_objective_perturbation_tells_neighbours_apart_by_more_than_epsilon(
    squared: bool, features: int, epsilon: float, regularization: float
) -> None:
    """The exact privacy loss of many released w, from very likely to very unlikely ones.

    For squared loss these are the points inside the ball. The scale and the ridge are those that the method uses.
    """
    options = {"regularization": regularization} | ({"radius": 1.0} if squared else {})
    task = "regression" if squared else "classification"
    method = ObjectivePerturbation(study(task, "objective-perturbation", features, options, epsilon=epsilon))
    rng = np.random.default_rng(0)
    directions = (
        np.array([[1.0], [-1.0]]) if features == 1 else [[math.cos(a), math.sin(a)] for a in np.arange(0, 6.28, 0.5)]
    )
    lengths = np.linspace(0.0, 0.999, 6) if squared else (0.0, 0.1, 1.0, 5.0, 30.0, 1000.0)
    grid = [length * np.array(direction) for length in lengths for direction in directions]
    worst = 0.0
    for one, other in neighbours(features, squared, rng):
        left, ridge = method.budget(len(one[1]))
        scale = 2.0 * method._slope / left
        worst = max(worst, *(abs(log_ratio(w, one, other, scale, ridge, squared)) for w in grid))
    assert worst <= epsilon * (1 + 1e-9)
    # In one dimension two slopes hardly add up, and with little regularisation ε pays for more curvature than there is.
    assert worst > (0.55 if regularization == 0.05 and features == 2 else 0.3) * epsilon


@pytest.mark.parametrize("task", ["regression", "classification", "three classes"])
@pytest.mark.parametrize("regularization", [1e-3, 0.1])
def test_what_is_released_is_the_minimiser_for_noise_of_the_planned_scale(
    task: str, regularization: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a regression over the ball: the gradient vanishes inside, and points inwards at its edge."""
    drawn: list[tuple[np.ndarray, float]] = []
    draw = objective_perturbation.spherical_laplace

    def remembered(dimension: int, scale: float, stream: SecretStream) -> np.ndarray:
        drawn.append((draw(dimension, scale, SecretStream(bytes([len(drawn)]) * 32)), scale))
        return drawn[-1][0]

    monkeypatch.setattr(objective_perturbation, "spherical_laplace", remembered)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    agreed = study(task, "objective-perturbation", 3, {"regularization": regularization}, data={"norm": 4.0})
    unit = features / np.maximum(4.0, np.linalg.norm(features, axis=1))[:, None]
    places = set()
    for turn in range(10):
        labels = rng.uniform(-1, 1, size=200) if task == "regression" else rng.integers(agreed.data.classes, size=200)
        method = ObjectivePerturbation(agreed)
        drawn.clear()
        drawn.extend([(np.zeros(3), 0.0)] * turn)  # another noise each turn
        release = learnt(agreed, method, Records(4.0 * unit, labels))
        for model, (noise, scale) in enumerate(drawn[turn:]):
            left, ridge = method.budget(200)
            assert scale == pytest.approx(2.0 * method._slope / left)
            weights = release.weights[model] * 4.0
            known = labels if task == "regression" else np.where(labels == (model if method._models > 1 else 1), 1, -1)
            needed, _ = noise_of(weights, (unit, known.astype(float)), ridge, task == "regression")
            if task != "regression" or np.linalg.norm(weights) < method.options.radius * (1 - 1e-9):
                np.testing.assert_allclose(needed, noise, atol=1e-8)
                places.add("inside")
            else:
                assert np.linalg.norm(weights) == pytest.approx(method.options.radius)
                multipliers = (needed - noise) / weights
                assert multipliers.min() > 0
                np.testing.assert_allclose(multipliers, multipliers[0], rtol=1e-6)
                places.add("edge")
    # A strong ridge keeps every regression inside.
    assert places == ({"inside", "edge"} if task == "regression" and regularization < 0.1 else {"inside"})


def test_the_models_of_several_classes_share_the_budget() -> None:
    three, two = (
        ObjectivePerturbation(study(task, "objective-perturbation", epsilon=3.0))
        for task in ("three classes", "classification")
    )
    alone = ObjectivePerturbation(study("classification", "objective-perturbation", epsilon=1.0))
    assert three.budget(1000) == alone.budget(1000) != two.budget(1000)
    assert (three._models, two._models) == (3, 1)
    assert three.plan().guarantee.epsilon == 3.0
    assert three.plan().guarantee.delta == 0.0


@pytest.mark.parametrize("regularization", [1e-9, 1e-3, 10.0])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3])
def test_the_logistic_minimiser_is_found_for_any_noise(regularization: float, size: float) -> None:
    """Also on records that a plane separates."""
    features = np.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    noise = size * np.array([0.6, -0.8])
    weights = objective_perturbation._logistic(features, np.array([1.0, 1.0, -1.0]), noise, regularization)
    needed, _ = noise_of(weights, (features, np.array([1.0, 1.0, -1.0])), regularization, False)
    np.testing.assert_allclose(needed, noise, atol=1e-6 * max(1.0, size))


@pytest.mark.parametrize("unit", ["party", {"group": 2}])
def test_objective_perturbation_protects_a_single_record_only(unit: Any) -> None:
    with pytest.raises(StudyError, match=r"\[privacy\] unit does not fit \"objective-perturbation\".*a single record"):
        ObjectivePerturbation(study("regression", "objective-perturbation", unit=unit))


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
    np.testing.assert_allclose(result.model.coef_, expected.coef_, rtol=1e-6)
    assert result.model.intercept_ == pytest.approx(expected.intercept_)


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
