"""Polynomials: packing keeps norms, gradients are those of the values, and minimisers are least in their ball."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from unspoken.learners.polynomials import Monomials, Polynomial


def drawn(variables: int, order: int, seed: int) -> np.ndarray:
    """A symmetric tensor."""
    monomials = Monomials(variables, order)
    return monomials.unpacked(np.random.default_rng(seed).normal(size=monomials.size))


@given(variables=st.integers(1, 4), order=st.integers(0, 4), seed=st.integers(0, 99))
def test_packing_keeps_the_norm_of_the_symmetric_part_and_the_polynomial(variables: int, order: int, seed: int) -> None:
    monomials, rng = Monomials(variables, order), np.random.default_rng(seed)
    tensor = drawn(variables, order, seed)
    packed = monomials.packed(tensor)
    assert packed.shape == (monomials.size,)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(tensor))
    assert monomials.unpacked(packed) == pytest.approx(tensor)
    # Of any other tensor, what it does to w ⊗ … ⊗ w stays, and the norm gets no larger.
    other, weights = rng.normal(size=(variables,) * order), rng.normal(size=variables)
    assert np.linalg.norm(monomials.packed(other)) <= np.linalg.norm(other) * (1.0 + 1e-12)
    symmetric = monomials.unpacked(monomials.packed(other))
    assert Polynomial({order: symmetric}).value(weights) == pytest.approx(Polynomial({order: other}).value(weights))


@pytest.mark.parametrize("orders", [(1, 2), (0, 1, 3), (2, 4)])
def test_the_gradient_is_that_of_the_value(orders: tuple[int, ...]) -> None:
    polynomial = Polynomial({order: drawn(3, order, order) for order in orders})
    at = np.array([0.3, -0.7, 1.1])
    assert check_grad(polynomial.value, polynomial.gradient, at) < 1e-5


@pytest.mark.parametrize("orders", [(1, 2), (1, 2, 3), (1, 2, 3, 4)])
@pytest.mark.parametrize("radius", [0.3, 3.0])
def test_the_minimiser_is_within_its_radius_and_nothing_there_is_less(
    orders: tuple[int, ...], radius: float, seeds: Callable[[int, int], range]
) -> None:
    """Also where the polynomial has no least value. Against points all over the ball, and near what was found."""
    for seed in seeds(1, 3):
        polynomial = Polynomial({order: drawn(3, order, seed + order) for order in orders})
        found = polynomial.minimiser(radius)
        assert np.linalg.norm(found) <= radius * (1.0 + 1e-9)
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(3000, 3))
        points *= radius * np.maximum(rng.uniform(size=(3000, 1)), 0.5) ** 0.2 / np.linalg.norm(points, axis=1)[:, None]
        points = np.concatenate([points, found + 1e-3 * points])
        points *= np.minimum(1.0, radius / np.linalg.norm(points, axis=1))[:, None]
        best = min(map(polynomial.value, points))
        assert polynomial.value(found) <= best + 1e-9 * abs(best)


def test_a_ridge_shortens_and_a_radius_is_needed() -> None:
    polynomial = Polynomial({1: np.array([-2.0, 0.0]), 2: np.eye(2)})
    assert polynomial.minimiser(5.0, ridge=1.0) == pytest.approx(np.array([0.5, 0.0]))
    with pytest.raises(ValueError, match="radius > 0"):
        polynomial.minimiser(0.0)


@pytest.mark.parametrize("linear", [None, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
def test_a_cost_that_falls_both_ways_is_least_on_the_surface(linear: tuple[float, ...] | None) -> None:
    """As in a principal component: the least −⟨C, w⊗w⟩ of norm 1."""
    polynomial = Polynomial({2: np.diag([-3.0, 1.0, 2.0])} | ({} if linear is None else {1: np.array(linear)}))
    found = polynomial.minimiser(radius=1.0)
    # Along the second axis: −(1 + 3)⁻¹/2 for a slope of 1.
    across = 0.0 if linear is None else -linear[1] / 8.0
    assert np.abs(found) == pytest.approx([(1.0 - across**2) ** 0.5, abs(across), 0.0], abs=1e-9)
    assert found[1] == pytest.approx(across, abs=1e-9)
