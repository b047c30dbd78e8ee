"""The functional mechanism with coefficients of one's own: how far records move it, whatever their coefficients are."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unspoken
from factories import maker
from unspoken.data.block import Block
from unspoken.learners.polynomials import Monomials
from unspoken.methods.baselines import Central
from unspoken.methods.cape import Cape
from unspoken.methods.functions import RecordPolynomials
from unspoken.methods.workloads import Query

study = maker("cape", task="statistics", parties={"count": 5, "records": 6, "max_records": 6})


def power(vector: np.ndarray, order: int) -> np.ndarray:
    """v ⊗ … ⊗ v"""
    return np.asarray(reduce(np.multiply.outer, [vector] * order, np.float64(1.0)))


def alone(tensors: dict[int, np.ndarray], norms: dict[int, float], variables: int) -> np.ndarray:
    """The contribution of one record with these coefficients."""
    return RecordPolynomials(lambda row: tensors, variables, norms).of(np.zeros((1, 1)), None, None)


@given(data=st.data())
def test_no_record_s_vector_is_longer_than_one(data: st.DataObject) -> None:
    """Orders up to 8, symmetric or not, of any size."""
    orders = data.draw(st.sets(st.integers(0, 8), min_size=1, max_size=4).filter(lambda found: found != {0}))
    variables = data.draw(st.integers(1, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    sizes = st.sampled_from([1e-300, 1e-160, 0.3, 1.0, 7.0, 1e160, 1e308])
    tensors = {
        order: data.draw(sizes) * rng.uniform(-1.0, 1.0, (variables,) * order)
        if data.draw(st.booleans())
        else data.draw(sizes) * power(rng.uniform(0.0, 0.9, variables), order)
        for order in orders
    }
    norms = {order: data.draw(st.sampled_from([1e-100, 0.5, 1.0, 1e100])) for order in orders}
    assert np.linalg.norm(alone(tensors, norms, variables)) <= 1.0


@pytest.mark.parametrize("orders", [(1,), (1, 2), (1, 3), (2, 4), (1, 2, 3, 8), (8,)])
def test_what_is_not_clipped_is_what_the_record_has(orders: tuple[int, ...]) -> None:
    rng, weights = np.random.default_rng(1), np.array([0.3, -0.8])
    tensors = {order: rng.normal(size=(2,) * order) for order in orders}
    summed = RecordPolynomials(lambda row: tensors, 2, dict.fromkeys(orders, 100.0))
    polynomial = summed.polynomial(summed.of(np.zeros((3, 1)), None, None), 3)
    value = sum(float(np.sum(tensors[order] * power(weights, order))) for order in orders)
    assert polynomial.value(weights) == pytest.approx(value, rel=1e-12)


def test_only_the_symmetric_part_counts_when_a_tensor_is_clipped() -> None:
    """⟨Λ, w ⊗ w⟩ is the same for both; the other part would take all of the norm."""
    square = np.array([[0.6, 0.0], [0.0, 0.3]])
    turning = np.array([[0.0, 50.0], [-50.0, 0.0]])
    found, expected = (alone({2: tensor}, {2: 1.0}, 2) for tensor in (square + turning, square))
    assert found == pytest.approx(expected, rel=1e-12)
    assert (alone({2: turning}, {2: 1.0}, 2) == 0.0).all()


@pytest.mark.parametrize("unit", ["record", {"group": 3}])
@pytest.mark.parametrize("kind", [Cape, Central])
@pytest.mark.parametrize("norms", [{1: 0.5}, {1: 2.0, 2: 1.0}, {1: 1.0, 3: 0.1, 5: 4.0, 7: 1.0}, {0: 1.0, 8: 1.0}])
def test_neighbours_built_to_be_far_apart_are_not_further_than_the_plan_says(
    norms: dict[int, float], kind: Any, unit: Any
) -> None:
    """As whole numbers, which is what noise is added to: k records at one party, or one each at several."""
    summed = RecordPolynomials(
        lambda row: {order: row[0] * 3.0 * norms[order] * power(row[1:], order) for order in norms}, 2, norms
    )
    method = kind(study(unit=unit, data={"features": 3}), summed)
    planned = method.plan().sums[0]
    group = 1 if unit == "record" else 3
    found = 0.0
    for together in {True, group == 1}:
        rng = np.random.default_rng(2)
        rows = rng.normal(size=(5, 6, 3))
        rows[:, :, 1:] /= np.linalg.norm(rows[:, :, 1:], axis=2, keepdims=True)
        other = rows.copy()
        places = [(0, each) for each in range(group)] if together else [(party, 2) for party in range(group)]
        for party, record in places:
            rows[party, record] = [1.0, 0.6, 0.8]
            other[party, record] = [-1.0, 0.6, 0.8]
        totals = []
        for records in (rows, other):
            if kind is Central:
                records = records.reshape(1, 30, 3)
            counts = np.full(len(records), records.shape[1])
            block = Block(records, np.zeros(records.shape[:2], dtype=np.int64), counts)
            vectors = summed.contribute(Query("function"), block).noisy
            bound = planned.encoding.bound * (5 if kind is Central else 1)
            words = np.rint(vectors * planned.encoding.scale)
            assert np.linalg.norm(vectors, axis=1).max() <= bound
            totals.append(words.sum(axis=0))
        moved = float(np.linalg.norm(totals[0] - totals[1])) / planned.encoding.scale
        assert moved <= planned.sensitivity
        found = max(found, moved)
    assert found > 0.99 * 2.0 * group


@pytest.mark.parametrize(("order", "variables"), [(8, 2), (6, 3), (3, 4)])
def test_packing_rounds_little(order: int, variables: int) -> None:
    """Against fractions: the mean of 40,320 arrangements would be off by a thousand times as much, more than the plan
    allows for in a sum."""
    monomials = Monomials(variables, order)
    tensor = np.random.default_rng(3).uniform(0.9, 1.0, (variables,) * order)
    exact = []
    for place, times in zip(monomials._places.T.tolist(), monomials._times.tolist(), strict=True):
        entries = {tuple(arranged) for arranged in permutations(place)}
        exact.append(float(sum((Fraction(tensor[entry]) for entry in entries), Fraction(0))) / math.sqrt(times))
    off = np.linalg.norm(monomials.packed(tensor) - exact) / np.linalg.norm(exact)
    assert off < 16 * 2.0**-53


@given(variables=st.integers(1, 3), order=st.integers(0, 5), seed=st.integers(0, 99))
def test_an_unpacked_tensor_has_the_same_entry_wherever_the_indices_are_the_same(
    variables: int, order: int, seed: int
) -> None:
    monomials = Monomials(variables, order)
    tensor = monomials.unpacked(np.random.default_rng(seed).normal(size=monomials.size))
    for place in product(range(variables), repeat=order):
        assert tensor[place] == tensor[tuple(sorted(place))]


def test_order_8_takes_several_variables() -> None:
    at = np.array([0.5, -0.5, 0.5, 0.5])
    found = unspoken.functional_mechanism(
        lambda row: {8: power(row, 8)},
        np.tile(at, (400, 1)),
        np.arange(400) % 4,
        variables=4,
        norms={8: 1.0},
        epsilon=500.0,
        delta=1e-6,
    )
    assert found.polynomial.value(at) == pytest.approx(1.0, abs=0.02)


def test_complex_coefficients_are_refused_before_any_data_is_used() -> None:
    with pytest.raises(ValueError, match="got some that are not"):
        RecordPolynomials(lambda row: {1: row * 1j}, 2, {1: 1.0}).try_out(2)


def test_a_record_s_coefficients_see_no_other_record_and_leave_it_as_it_was() -> None:
    rows, others = np.arange(6.0).reshape(3, 2), list[Any]()

    def curious(row: np.ndarray) -> dict[int, np.ndarray]:
        others.append(row.base)
        found = {1: row.copy()}
        row += 100.0
        return found

    RecordPolynomials(curious, 2, {1: 100.0}).of(rows, None, None)
    assert others == [None] * 3
    assert np.array_equal(rows, np.arange(6.0).reshape(3, 2))
