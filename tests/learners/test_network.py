"""The network's clipped gradients, against gradients that are computed one by one, and attacked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax

from unspoken.learners.network import Network


def loss(network: Network, flat: np.ndarray, features: np.ndarray, label: int) -> float:
    return -float(log_softmax(network.scores(flat, features[None])[0])[label])


def gradient(network: Network, flat: np.ndarray, features: np.ndarray, label: int) -> np.ndarray:
    """By central differences."""
    steps = 1e-6 * np.eye(len(flat))
    return np.array(
        [(loss(network, flat + s, features, label) - loss(network, flat - s, features, label)) / 2e-6 for s in steps]
    )


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(2, 4),
    st.floats(1e-3, 10.0),
    st.floats(0.1, 3.0),
    st.integers(0, 2**32 - 1),
)
def test_it_is_the_sum_of_the_records_gradients_each_clipped(
    inputs: int, hidden: int, classes: int, clip: float, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    network = Network(inputs, hidden, classes, clip)
    flat = rng.normal(scale=spread, size=network.size)
    features, labels = rng.normal(size=(5, inputs)), rng.integers(classes, size=5)
    layer, _ = network.layers(flat)
    kinks = np.abs(np.append(features, np.ones((5, 1)), axis=1) @ layer.T)
    keep = (kinks > 1e-4).all(axis=1)
    each = [gradient(network, flat, row, label) for row, label in zip(features[keep], labels[keep], strict=True)]
    expected = sum((g * min(1.0, clip / max(float(np.linalg.norm(g)), 1e-300)) for g in each), np.zeros(network.size))
    np.testing.assert_allclose(
        network.clipped_gradient(flat, features[keep], labels[keep]), expected, atol=1e-6 * max(1.0, spread) ** 2
    )


@given(st.floats(1e-3, 10.0), st.sampled_from([1e-3, 1.0, 1e3, 1e80, 1e160, 1e300]), st.integers(0, 2**32 - 1))
def test_no_record_contributes_more_than_the_clip_whatever_the_weights(clip: float, spread: float, seed: int) -> None:
    """Also for weights that have run away so far that gradients are beyond floating point."""
    rng = np.random.default_rng(seed)
    network = Network(3, 4, 3, clip)
    flat = spread * rng.normal(size=network.size)
    features, labels = rng.normal(size=(6, 3)), rng.integers(3, size=6)
    for row in range(6):
        length = np.linalg.norm(network.clipped_gradient(flat, features[row : row + 1], labels[row : row + 1]))
        assert length <= clip * (1 + 1e-9)
    together = network.clipped_gradient(flat, features, labels)
    apart = sum(network.clipped_gradient(flat, features[r : r + 1], labels[r : r + 1]) for r in range(6))
    np.testing.assert_allclose(together, apart, atol=1e-9 * clip)


@pytest.mark.parametrize("clip", [0.1, pytest.param(1.0, marks=pytest.mark.long)])
def test_replacing_a_record_moves_the_sum_by_at_most_twice_the_clip_and_by_almost_as_much(clip: float) -> None:
    rng = np.random.default_rng(0)
    network = Network(2, 3, 2, clip)
    flat = rng.normal(scale=2.0, size=network.size)
    crowd, labels = rng.normal(size=(4, 2)), rng.integers(2, size=4)

    def moved(z: np.ndarray, one: int, other: int) -> float:
        points = np.vstack([crowd, z[:2]]), np.vstack([crowd, z[2:]])
        sums = [
            network.clipped_gradient(flat, rows, np.append(labels, label))
            for rows, label in zip(points, (one, other), strict=True)
        ]
        return float(np.linalg.norm(sums[0] - sums[1]))

    found = 0.0
    for one, other in ((0, 0), (0, 1), (1, 0), (1, 1)):
        for _ in range(2):
            start = rng.normal(scale=3.0, size=4)
            climbed = minimize(lambda z: -moved(z, one, other), start, method="Nelder-Mead", options={"maxiter": 300})  # noqa: B023
            found = max(found, -climbed.fun)
    assert found <= 2 * clip * (1 + 1e-9)
    assert found > 0.95 * 2 * clip


def test_the_first_weights_are_public_and_the_output_starts_at_nothing() -> None:
    network = Network(5, 3, 4, 1.0)
    np.testing.assert_array_equal(network.initial(7), network.initial(7))
    hidden, output = network.layers(network.initial(7))
    assert (hidden.shape, output.shape) == ((3, 6), (4, 4))
    assert hidden[:, :-1].all()
    assert not hidden[:, -1].any()
    assert not output.any()
    assert (network.initial(8) != network.initial(7)).any()
