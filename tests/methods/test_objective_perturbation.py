"""Objective perturbation: how far a replaced record changes the volume element, what is left of ε, what is released."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from factories import make
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.methods import objective_perturbation
from unspoken.methods.objective_perturbation import ObjectivePerturbation
from unspoken.noise.stream import SecretStream
from unspoken.study import StudyError
from unspoken.types import Floats

KEYS: dict[str, dict[str, Any]] = {
    "regression": {"label_bounds": [-1, 1]},
    "classification": {"classes": 2},
    "three classes": {"classes": 3},
}


def perturbation(task: str, features: int = 3, norm: float = 1.0, **said: Any) -> ObjectivePerturbation:
    return ObjectivePerturbation(
        make(
            "objective-perturbation",
            task=task if task == "regression" else "classification",
            data={"features": features, "norm": norm, **KEYS[task]},
            parties={"count": 4, "records": 10},
            **said,
        )
    )


def log_volume(features: Floats, weights: Floats, ridge: float, task: str) -> float:
    """log det of the noise's derivative by the minimiser: Σ h·xxᵀ + n·ridge·I."""
    margins = features @ weights
    bends = expit(margins) * expit(-margins) if task == "classification" else np.ones(len(features))
    hessian = (features.T * bends) @ features + len(features) * ridge * np.eye(features.shape[1])
    return float(np.linalg.slogdet(hessian)[1])


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("epsilon", "regularization"), [(0.5, 1e-3), (0.5, 0.02), (2.0, 1e-3), (8.0, 1e-4)])
def test_the_budget_pays_for_the_largest_change_of_volume_and_for_no_more(
    task: str, epsilon: float, regularization: float, runs: Callable[[int, int], int]
) -> None:
    """Random neighbours of norm 1 or less among random others, many or few, long or short."""
    method = perturbation(task, epsilon=epsilon, method={"regularization": regularization})
    source = np.random.default_rng(0)
    nearest = 0.0
    for _ in range(runs(1000, 2000)):
        count = int(source.integers(1, 40))
        directions = source.normal(size=(count + 1, 3))
        lengths = source.uniform(size=count + 1) ** source.choice([0.2, 1.0, 30.0])
        rows = directions / np.linalg.norm(directions, axis=1)[:, None] * lengths[:, None]
        rows[-2] /= np.linalg.norm(rows[-2])
        rows[-1] *= source.choice([0.0, 1.0])
        weights = source.normal(size=3) * source.choice([0.0, 0.1, 3.0])
        left, ridge = method.budget(count)
        one, other = (log_volume(np.delete(rows, gone, axis=0), weights, ridge, task) for gone in (-1, -2))
        assert abs(one - other) <= epsilon - left + 1e-9
        nearest = max(nearest, abs(one - other) / (epsilon - left))
    assert nearest > 0.98


@pytest.mark.parametrize("regularization", [1e-5, 1e-3, 0.1])
def test_more_records_never_need_more_noise_or_a_larger_ridge_and_half_of_epsilon_is_always_left(
    regularization: float,
) -> None:
    for epsilon in (0.1, 0.5, 2.0, 8.0):
        method = perturbation("classification", epsilon=epsilon, method={"regularization": regularization})
        budgets = [method.budget(records) for records in (10, 100, 300, 1000, 3000, 10_000, 10**6)]
        assert all(epsilon / 2.0 * (1 - 1e-12) <= left < epsilon and ridge >= regularization for left, ridge in budgets)
        assert np.diff([left for left, _ in budgets]).min() >= -1e-12
        assert np.diff([ridge for _, ridge in budgets]).max() <= 0.0


def test_the_noise_is_a_fifth_of_what_the_squared_ratio_would_ask_for() -> None:
    left, ridge = perturbation("classification", epsilon=0.5, method={"regularization": 1e-3}).budget(1000)
    assert ridge == 1e-3
    assert left == pytest.approx(0.5 - math.log(1.25))
    assert left > 5.0 * (0.5 - 2.0 * math.log(1.25))


# The privacy loss of what is released, computed exactly.

Data = tuple[np.ndarray, np.ndarray]


def noise_of(weights: np.ndarray, data: Data, ridge: float, squared: bool) -> tuple[np.ndarray, np.ndarray]:
    """The b that makes `weights` the minimiser for these records, and log |det ∂b/∂w|; of many w at once, one a row."""
    features, labels = data
    scores = weights @ features.T
    if squared:
        slopes, bends = labels - scores, np.ones_like(scores)
    else:
        slopes, bends = labels * expit(-labels * scores), expit(scores) * expit(-scores)
    pulled = np.einsum("...n,ni,nj->...ij", bends, features, features, optimize=True)
    hessian = pulled + len(labels) * ridge * np.eye(features.shape[1])
    return slopes @ features - len(labels) * ridge * weights, np.linalg.slogdet(hessian)[1]


def log_ratios(weights: np.ndarray, one: Data, other: Data, scale: float, ridge: float, squared: bool) -> np.ndarray:
    """log p(w | one)/p(w | other): densities of b and the change of variables."""
    (b_one, det_one), (b_other, det_other) = (noise_of(weights, data, ridge, squared) for data in (one, other))
    lengths = (np.linalg.norm(b, axis=1) for b in (b_other, b_one))
    return np.subtract(*lengths) / scale + det_one - det_other


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
    method = perturbation(task, features, method=options, epsilon=epsilon)
    rng = np.random.default_rng(0)
    directions = (
        np.array([[1.0], [-1.0]]) if features == 1 else [[math.cos(a), math.sin(a)] for a in np.arange(0, 6.28, 0.5)]
    )
    lengths = np.linspace(0.0, 0.999, 6) if squared else (0.0, 0.1, 1.0, 5.0, 30.0, 1000.0)
    grid = np.array([length * np.array(direction) for length in lengths for direction in directions])
    worst = 0.0
    for one, other in neighbours(features, squared, rng):
        left, ridge = method.budget(len(one[1]))
        scale = 2.0 * method._slope / left
        worst = max(worst, float(np.abs(log_ratios(grid, one, other, scale, ridge, squared)).max()))
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
    unit = features / np.maximum(4.0, np.linalg.norm(features, axis=1))[:, None]
    places = set()
    for turn in range(10):
        method = perturbation(task, norm=4.0, method={"regularization": regularization})
        classes = method.study.data.classes
        labels = rng.uniform(-1, 1, size=200) if task == "regression" else rng.integers(classes, size=200)
        drawn.clear()
        drawn.extend([(np.zeros(3), 0.0)] * turn)  # another noise each turn
        federation = ArrayFederation(method.study, Records(4.0 * unit, labels), np.arange(200) % 4)
        release = local.run(method, method.plan(), federation).release
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


@pytest.mark.parametrize("task", ["regression", "classification", "three classes"])
def test_the_stated_deviation_is_that_of_the_noise_in_each_number_of_the_random_term(task: str) -> None:
    """Its length, in all directions alike, has a Gamma distribution whose shape is the number of features."""
    method = perturbation(task)
    dimension = method.study.data.dimension
    fewest = method.study.parties.count * method.study.parties.records
    scale = 2.0 * method._slope / method.budget(fewest)[0]
    stated = method.plan().others[0].noise_std
    assert stated**2 == pytest.approx(stats.gamma(dimension, scale=scale).moment(2) / dimension)


def test_the_models_of_several_classes_share_the_budget() -> None:
    three, two = (perturbation(task, epsilon=3.0) for task in ("three classes", "classification"))
    alone = perturbation("classification", epsilon=1.0)
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
        perturbation("regression", unit=unit)
