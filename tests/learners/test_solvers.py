"""Both solvers find the model they promise, in either space, for padded blocks and for parties of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from unspoken.data.block import Block
from unspoken.learners import linear, sgd
from unspoken.learners.linear import SLACK, LinearLearner
from unspoken.learners.losses import CrossEntropy, HuberSVM, Logistic, Loss
from unspoken.learners.parametrization import FeatureSpace, GramSpace, Space

LOSSES = {"svm": HuberSVM(4), "logistic": Logistic(4), "softmax": CrossEntropy(4), "logistic-2": Logistic(2)}
SHAPES = [(3, 20, 60), (3, 60, 20), (2, 15, 15), (2, 1, 8)]


def made_up(shape: tuple[int, int, int], classes: int, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=shape)
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    return Block(features, rng.integers(0, classes, shape[:2]), np.full(shape[0], shape[1]))


def objective(
    weights: np.ndarray, loss: Loss, features: np.ndarray, labels: np.ndarray, regularization: float
) -> float:
    losses = loss.values(features @ weights.T, loss.targets(labels))
    return float(regularization / 2 * (weights**2).sum() + losses.mean())


def gradient(
    weights: np.ndarray, loss: Loss, features: np.ndarray, labels: np.ndarray, regularization: float
) -> np.ndarray:
    slopes = loss.slopes(features @ weights.T, loss.targets(labels))
    return regularization * weights + slopes.T @ features / len(labels)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("regularization", [1.0, 0.01, 1e-4])
@pytest.mark.parametrize("name", LOSSES)
def test_a_certified_model_has_the_gradient_norm_that_its_sensitivity_assumes(
    name: str, regularization: float, shape: tuple[int, int, int]
) -> None:
    loss = LOSSES[name]
    data = made_up(shape, loss.classes)
    learner = LinearLearner(loss, 1.0, regularization)
    for model, features, labels in zip(learner.fit(data), data.features, data.labels, strict=True):
        reached = np.linalg.norm(gradient(model, loss, features, labels, regularization))
        assert reached <= SLACK * learner.lipschitz / shape[1]


@pytest.mark.parametrize("name", LOSSES)
def test_a_certified_model_is_the_minimiser_that_scipy_finds(name: str) -> None:
    loss, regularization = LOSSES[name], 0.05
    data = made_up((1, 12, 5), loss.classes)
    model = LinearLearner(loss, 1.0, regularization).fit(data)[0]

    def flat(weights: np.ndarray) -> tuple[float, np.ndarray]:
        matrix = weights.reshape(model.shape)
        args = (matrix, loss, data.features[0], data.labels[0], regularization)
        return objective(*args), gradient(*args).ravel()

    found = minimize(flat, np.zeros(model.size), jac=True, options={"gtol": 1e-10, "maxiter": 5000})
    assert np.allclose(model.ravel(), found.x, atol=1e-5)


def in_space(monkeypatch: pytest.MonkeyPatch, space: type[Space], learner: LinearLearner, data: Block) -> np.ndarray:
    with monkeypatch.context() as patch:
        patch.setattr(linear, "space_for", space)
        return learner.fit(data)


@pytest.mark.parametrize("radius", [None, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LOSSES)
def test_sgd_takes_the_same_steps_in_gram_space_and_in_feature_space(
    monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, int, int], radius: float | None
) -> None:
    learner = LinearLearner(LOSSES[name], 1.0, 0.05, radius, solver="sgd", batch=7, epochs=20)
    data = made_up(shape, learner.loss.classes)
    gram, feature = (in_space(monkeypatch, space, learner, data) for space in (GramSpace, FeatureSpace))
    assert np.abs(gram - feature).max() <= 1e-9
    assert np.abs(gram).max() > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LOSSES)
def test_certified_models_agree_in_gram_space_and_in_feature_space(
    monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, int, int]
) -> None:
    learner = LinearLearner(LOSSES[name], 1.0, 0.05)
    data = made_up(shape, learner.loss.classes)
    gram, feature = (in_space(monkeypatch, space, learner, data) for space in (GramSpace, FeatureSpace))
    distance = np.linalg.norm((gram - feature).reshape(shape[0], -1), axis=1)
    assert (distance <= SLACK * learner.lipschitz / shape[1] / learner.regularization).all()


@pytest.mark.parametrize("solver", ["certified", "sgd"])
@pytest.mark.parametrize("dimension", [4, 40])
def test_padding_a_block_changes_no_model(solver: str, dimension: int) -> None:
    whole = made_up((3, 20, dimension), 4)
    counts = np.array([20, 11, 1])
    real = np.arange(20) < counts[:, None]
    padded = Block(whole.features * real[:, :, None], whole.labels * real, counts)
    learner = LinearLearner(CrossEntropy(4), 1.0, 0.05, solver=solver, batch=6, epochs=10)
    together = learner.fit(padded)
    for party, count in enumerate(counts):
        alone = learner.fit(Block(whole.features[[party], :count], whole.labels[[party], :count], counts[[party]]))
        assert np.allclose(together[party], alone[0], atol=1e-6)


def test_duplicated_records_make_the_same_model_as_their_originals() -> None:
    data = made_up((1, 10, 30), 4)
    twice = Block(np.tile(data.features, (1, 3, 1)), np.tile(data.labels, (1, 3)), np.array([30]))
    learner = LinearLearner(CrossEntropy(4), 1.0, 0.01)
    assert np.allclose(learner.fit(data), learner.fit(twice), atol=1e-5)


def test_models_never_leave_the_ball_of_the_natural_radius() -> None:
    for loss in LOSSES.values():
        for solver in ("certified", "sgd"):
            for regularization in (10.0, 0.1):
                learner = LinearLearner(loss, 1.0, regularization, solver=solver, epochs=5)
                norms = np.linalg.norm(learner.fit(made_up((4, 6, 9), loss.classes)).reshape(4, -1), axis=1)
                assert (norms <= learner.lipschitz / regularization * (1 + 1e-12)).all()


@pytest.mark.parametrize(("records", "batch"), [(50, 20), (1, 20), (20, 20), (21, 20), (7, 1), (9, 4)])
def test_batches_hold_every_record_once_and_differ_by_at_most_one(records: int, batch: int) -> None:
    sizes = sgd.batch_sizes(records, batch)
    assert sum(sizes) == records
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch


@pytest.mark.parametrize("counts", [[20] * 12, [5, 30, 30, 7, 64, 12, 65, 20]], ids=["equal", "different"])
@pytest.mark.parametrize("solver", ["certified", "sgd"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_model_depends_on_its_own_party_s_records_alone(name: str, solver: Any, counts: list[int]) -> None:
    """To the last bit, whoever else is in the block: engines have blocks of different sizes, and the same totals. And
    the sensitivity counts the model of one party, so a record may not move the others'."""
    loss = LOSSES[name]
    data = made_up((len(counts), max(counts), 64), loss.classes)
    # Some parties are much harder to solve for than others.
    data.features[::3] *= 0.01
    padded = np.arange(max(counts)) >= np.array(counts)[:, None]
    data.features[padded] = 0.0
    learner = LinearLearner(loss, 1.0, 0.01, solver=solver, epochs=2)
    together = learner.fit(Block(data.features, data.labels, np.array(counts)))
    for party, count in enumerate(counts):
        own = Block(*(part[party : party + 1, :count] for part in (data.features, data.labels)), np.array([count]))
        assert np.array_equal(learner.fit(own)[0], together[party])
