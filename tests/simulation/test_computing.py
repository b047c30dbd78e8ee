"""Functions of one's own in several turns, and the functional mechanism."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import unspoken
from unspoken import DataWarning
from unspoken.data.files import DataError
from unspoken.methods.functions import RecordPolynomials
from unspoken.report.verification import CertificateError
from unspoken.study import StudyError

ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, size=(600, 2))
GROUPS = np.arange(600) % 4
PROMISE: dict[str, Any] = {"dimension": 2, "sensitivity": 2.0, "bound": 300.0, "norm": 1.0, "delta": 1e-6}


def distances(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
    return (rows - centre).sum(axis=0)


@pytest.mark.parametrize("method", ["moments", "cape", "conv", "central"])
def test_turns_share_one_budget_and_each_follows_from_the_one_before(method: str) -> None:
    """Steps towards the mean: with almost no noise they arrive where they should, and only then."""
    found = unspoken.compute(
        distances,
        ROWS + 0.2,
        GROUPS,
        **PROMISE | {"epsilon": 500.0, "bound": 900.0},
        turns=3,
        start=np.zeros(2),
        update=lambda total, centre: centre + 0.5 * total / 600,
        parameter_bounds=(-1.0, 1.0),
        method=method,
    )
    mean = (ROWS + 0.2).mean(axis=0)
    assert found.parameters is not None
    assert found.parameters == pytest.approx(mean * (1.0 - 0.5**3), abs=0.03)
    assert len(found.totals) == 3
    assert (found.totals[-1] == found.total).all()
    planned = found.simulation.plan.sum_named("function")
    assert planned.count == 3


@pytest.mark.parametrize("method", ["moments", "cape", "central"])
def test_a_function_that_changes_what_it_is_given_leaves_nothing_for_others(method: str) -> None:
    """Numbers are the same for all parties, and lead to the next ones: they would carry sums of records, without
    noise."""
    seen = []

    def function(rows: Any, numbers: Any) -> list[float]:
        seen.append(float(numbers[0]))
        numbers += rows.sum()
        rows *= 2.0
        return [0.0]

    rows = np.full((8, 1), 0.5)
    found = unspoken.compute(
        function, rows, np.arange(8) % 4, dimension=1, sensitivity=1, bound=1, epsilon=1, delta=1e-6, method=method,
        turns=2, start=[0.0], update=lambda total, numbers: numbers,
    )  # fmt: skip
    assert set(seen) == {0.0}
    assert found.parameters is not None
    assert found.parameters.tolist() == [0.0]
    assert (rows == 0.5).all()


def test_parameters_are_moved_into_their_bounds() -> None:
    seen = []

    def function(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
        seen.append(centre.copy())
        return rows.sum(axis=0)

    found = unspoken.compute(
        function,
        ROWS,
        GROUPS,
        **PROMISE,
        epsilon=1.0,
        turns=2,
        start=[0.0, 0.0, 0.1],
        update=lambda total, centre: [9.0, -9.0, 0.2],
        parameter_bounds=(-1.0, 1.0),
    )
    assert seen[-1].tolist() == [1.0, -1.0, 0.2]
    assert found.parameters is not None
    assert found.parameters.tolist() == [1.0, -1.0, 0.2]


@pytest.mark.parametrize("turns", [1, 4])
def test_a_noise_multiplier_is_the_least_noise_over_the_sensitivity_in_each_turn(turns: int) -> None:
    several: dict[str, Any] = {}
    if turns > 1:
        several = {"turns": turns, "start": [0.0], "update": lambda total, known: known}
    found = unspoken.compute(
        lambda rows, *known: rows.sum(axis=0), ROWS, GROUPS, **PROMISE, noise_multiplier=3.0, method="cape", **several
    )
    planned = found.simulation.plan.sum_named("function")
    assert 3.0 <= planned.noise_std / 2.0 < 3.1
    assert found.guarantee.mu == pytest.approx(math.sqrt(turns) / 3.0, rel=0.05)


def test_options_reach_the_method_and_the_largest_sensitivity_counts() -> None:
    def noise(**changes: Any) -> Any:
        given = PROMISE | {"epsilon": 1.0, "method": "cape", **changes}
        return unspoken.compute(lambda rows: rows.sum(axis=0), ROWS, GROUPS, **given).simulation.plan.sums[0]

    plain, paper = noise(), noise(options={"correlation": 4.0})
    assert paper.noise.common / paper.noise.own == pytest.approx(4.0, rel=0.01)
    assert paper.total_std(4) > 1.1 * plain.total_std(4)
    assert noise(sensitivity=[0.5, 2.0, 1.0, 1.0]).sensitivity == plain.sensitivity


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "epsilon and noise_multiplier are both given or both missing"),
        ({"epsilon": 1.0, "noise_multiplier": 2.0}, "both given or both missing"),
        ({"noise_multiplier": -1.0}, r"noise_multiplier is -1\.0, but should be a number from 0\.001 to 1e\+06"),
        ({"noise_multiplier": 1e9}, r"noise_multiplier is 1000000000\.0, .* from 0\.001 to 1e\+06\.$"),
        ({"noise_multiplier": 1e-200}, r"noise_multiplier is 1e-200, "),
        (
            {"epsilon": 1.0, "options": ["correlation"]},
            r"options is \['correlation'\], but should be keys of the method",
        ),
        ({"epsilon": 1.0, "options": {"name": "conv"}}, "options has 'name', .* give the method's name as method"),
        ({"epsilon": 1.0, "options": {"bins": 5}}, "options has 'bins', .* the function is your own; remove it"),
        (
            {"epsilon": 1.0, "sensitivity": np.array(1.5)},
            r"sensitivity is array\(1\.5\), but should be a number above 0",
        ),
        (
            {"epsilon": 1.0, "sensitivity": 100.0, "bound": 10.0},
            r"sensitivity is 100, .* clipped to bound = 10, .* by more than 20; state at most that, or raise bound\.$",
        ),
        ({"epsilon": 1.0, "start": [0.0], "update": 3}, "update is 3, but should be a function of a noisy total"),
        ({"epsilon": 1.0, "start": "a", "update": max}, "start is 'a', but should be numbers, all from"),
        (
            {"epsilon": 1.0, "start": [0.0], "update": max, "parameter_bounds": (0,)},
            r"parameter_bounds is \(0,\), but should be two finite numbers",
        ),
        ({"epsilon": 1.0, "turns": 2}, "start and update belong together"),
        ({"epsilon": 1.0, "turns": 0}, "turns is 0, but should be a whole number from 1"),
        (
            {"epsilon": 1.0, "sensitivity": [1.0]},
            "sensitivity has 1 numbers, but should have one for each of 4 parties",
        ),
        (
            {"epsilon": 1.0, "start": [2.0], "update": max, "parameter_bounds": (0.0, 1.0)},
            "start has 1 numbers, but should have some, all from 0 to 1",
        ),
        ({"epsilon": 1.0, "start": [2.0], "update": max, "parameter_bounds": (1.0, 0.0)}, "the smaller one first"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        unspoken.compute(lambda rows: rows.sum(axis=0), ROWS, GROUPS, **PROMISE | changes)


@pytest.mark.parametrize("delta", [0.0, 2.0, "small"])
def test_a_wrong_delta_is_named_whatever_the_noise_is_given_by(delta: Any) -> None:
    for noise in ({"epsilon": 1.0}, {"noise_multiplier": 3.0}):
        with pytest.raises(StudyError, match=r"\[privacy\] delta is .*, but should be a number from 1e-30 to below 1"):
            unspoken.compute(lambda rows: rows.sum(axis=0), ROWS, GROUPS, **PROMISE | {"delta": delta} | noise)


@pytest.mark.parametrize("method", ["cape", "central"])
def test_noise_that_no_certificate_states_is_refused_before_anything_is_spent(method: str) -> None:
    asked = []

    def function(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return rows.sum(axis=0)

    given = PROMISE | {"epsilon": 1.0, "sensitivity": 1e16, "bound": 1e18}
    with pytest.raises(
        DataError, match=r"The noise would have a deviation of .* let the function give smaller numbers"
    ):
        unspoken.compute(function, ROWS, GROUPS, **given, method=method)
    assert len(asked) <= 1, "only on made-up rows"


def test_little_noise_is_as_little_as_was_asked_for() -> None:
    """Not that of the largest epsilon that noise is planned for; the plan says that such an epsilon is not proven."""
    found = unspoken.compute(lambda rows: rows.sum(axis=0), ROWS, GROUPS, **PROMISE, noise_multiplier=0.05)
    planned = found.simulation.plan
    assert 0.05 <= planned.sums[0].noise_std / 2.0 < 0.051
    assert any("not proven" in note for note in planned.notes)


def test_a_curator_s_vector_may_be_as_long_as_those_of_all_parties() -> None:
    rows, groups = np.ones((600, 1)), np.arange(600) % 6
    promise: Any = {"dimension": 1, "sensitivity": 1, "epsilon": 1.0, "delta": 1e-6, "method": "central"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = unspoken.compute(lambda part: [part.sum()], rows, groups, bound=100, **promise)
    assert abs(found.total[0] - 600) < 6 * found.noise_std
    with pytest.warns(DataWarning, match=r"1 of 1 parties' vectors were longer than bound \(the longest 2 times\)"):
        found = unspoken.compute(lambda part: [part.sum()], rows, groups, bound=50, **promise)
    assert abs(found.total[0] - 300) < 6 * found.noise_std


def cubic(row: np.ndarray) -> dict[int, Any]:
    return {1: row, 2: np.outer(row, row), 3: np.multiply.outer(np.outer(row, row), row)}


def test_a_record_moves_its_polynomials_by_at_most_what_is_stated_and_comes_close() -> None:
    """Whatever the coefficients do: records longer than the norms, not finite, of another shape, or with an error."""
    wild = [np.array([1e9, 0.0]), np.array([np.inf, 0.0]), np.array([-1.0, 0.0]), np.array([0.0, 1.0])]

    def coefficients(row: np.ndarray) -> dict[int, Any]:
        if row[1] == 1.0:
            raise ZeroDivisionError
        return cubic(row)

    summed = RecordPolynomials(coefficients, 2, {1: 1.0, 2: 0.5, 3: 0.1})
    vectors = [summed.of(row[None], None, None) for row in (*wild, np.array([1.0, 0.0]), np.array([0.0, -1.0]))]
    far = max(float(np.linalg.norm(one - other)) for one in vectors for other in vectors)
    assert max(map(np.linalg.norm, vectors)) <= 1.0
    # Order 2 is the same for opposite rows, orders 1 and 3 are as far apart as can be.
    assert 2.0 * math.sqrt(2.0 / 3.0) * 0.999 < far <= summed.sensitivity
    assert (vectors[1] == 0.0).all()
    assert (vectors[3] == 0.0).all()


def test_coefficients_whose_squares_are_lost_are_clipped_too() -> None:
    summed = RecordPolynomials(lambda row: {1: np.array([1e-165])}, 1, {1: 1e-200})
    assert np.abs(summed.of(np.ones((1, 1)), None, None)).max() <= 1.0


@pytest.mark.parametrize("method", ["cape", "moments"])
def test_the_noisy_polynomial_is_the_mean_of_those_of_the_records(method: str) -> None:
    found = unspoken.functional_mechanism(
        cubic,
        ROWS,
        GROUPS,
        variables=2,
        norms={1: 1.0, 2: 1.0, 3: 1.0},
        epsilon=500.0,
        delta=1e-6,
        method=method,
    )
    at = np.array([0.4, -0.9])
    inner = ROWS @ at
    assert found.polynomial.value(at) == pytest.approx(float((inner + inner**2 + inner**3).mean()), abs=0.02)
    assert {*found.noise_std} == {1, 2, 3}
    assert found.guarantee.epsilon <= 500.0
    assert "order 3" in found.simulation.outcome.release.to_json()["statistics"]


def test_the_stated_noise_is_in_the_coefficients() -> None:
    """Of records that are all zero, 200 coefficients: within five standard errors, 5/√400."""
    found = unspoken.functional_mechanism(
        lambda row: {1: row[:200] * 0.0},
        np.zeros((40, 200)),
        np.arange(40) % 4,
        variables=200,
        norms={1: 0.5},
        epsilon=1.0,
        delta=1e-6,
    )
    assert found.polynomial.coefficients[1].std() == pytest.approx(found.noise_std[1], rel=0.25)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norms": {}}, "norms has the orders"),
        ({"norms": [4, 0.5]}, r"norms is \[4, 0\.5\], but should be norms by order"),
        ({"norms": {0: 1.0}}, "norms has the orders"),
        ({"norms": {1: -1.0}}, "norms has -1"),
        ({"variables": 0}, "variables is 0"),
        ({"variables": 10, "norms": {7: 1.0}}, "the order 7, which takes too much memory"),
    ],
)
def test_wrong_norms_are_told_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    given = {"variables": 2, "norms": {1: 1.0}, "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(DataError, match=words):
        unspoken.functional_mechanism(lambda row: {1: row}, ROWS, GROUPS, **given | changes)


def test_coefficients_that_are_not_by_order_are_told() -> None:
    given = {"variables": 2, "norms": {1: 1.0}, "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(ValueError, match=r"Expected a dictionary of coefficients by order, .* got a ndarray"):
        unspoken.functional_mechanism(lambda row: row, ROWS, GROUPS, **given)  # type: ignore[arg-type, return-value]


def test_coefficients_that_fail_on_a_made_up_record_are_refused_before_any_data_is_used() -> None:
    with pytest.raises(ValueError, match=r"Expected coefficients of the orders \[1\], got \[2\]"):
        unspoken.functional_mechanism(
            lambda row: {2: np.eye(2)}, ROWS, GROUPS, variables=2, norms={1: 1.0}, epsilon=1.0, delta=1e-6
        )
    with pytest.raises(ValueError, match=r"Expected finite coefficients of order 1 .*, got some that are not"):
        unspoken.functional_mechanism(
            lambda row: {1: [math.nan, 0.0]}, ROWS, GROUPS, variables=2, norms={1: 1.0}, epsilon=1.0, delta=1e-6
        )


def test_what_was_clipped_or_failed_is_said_to_whoever_holds_the_records() -> None:
    rows, groups = np.linspace(0.0, 9.0, 40)[:, None], np.arange(40) % 4
    promise: Any = {"dimension": 1, "sensitivity": 9, "epsilon": 1.0, "delta": 1e-6}
    with pytest.warns(
        DataWarning, match=r"^4 of 4 parties' vectors were longer than bound \(the longest .*; raise bound"
    ):
        unspoken.compute(lambda part: [part.sum()], rows, groups, bound=20, **promise)
    with pytest.warns(DataWarning, match=r"of the records are longer than the study's norm = 1 .* or raise the norm"):
        unspoken.compute(lambda part: [len(part)], rows, groups, bound=20, norm=1.0, **promise)
    with pytest.warns(
        DataWarning, match=r"^The function failed for 1 of 4 parties' vectors, .*: let it handle all rows"
    ):
        unspoken.compute(lambda part: [1 / int(part.max() < 9.0)], rows, groups, bound=20, **promise)
    with pytest.warns(
        DataWarning, match=r"^35 of 40 records' polynomials were longer than norms \(the longest 9 times\)"
    ):
        unspoken.functional_mechanism(
            lambda row: {1: row}, rows, groups, variables=1, norms={1: 1.0}, epsilon=1.0, delta=1e-6
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unspoken.compute(lambda part: [part.sum()], rows, groups, bound=90, **promise)


@pytest.mark.parametrize("method", ["moments", "cape", "central"])
def test_the_certificate_of_a_function_of_one_s_own_is_not_taken_for_that_of_its_study(method: str) -> None:
    """The study does not name the function, so nobody can compute its noise again."""
    found = unspoken.compute(lambda rows: rows.sum(axis=0), ROWS, GROUPS, **PROMISE, epsilon=1.0, method=method)
    content = found.simulation.certificate
    (told,) = (said for said in unspoken.verify(content).unchecked if said.startswith("The promise"))
    assert told == "The promise: it is that of somebody's own function, which is not in the certificate."
    with pytest.raises(CertificateError, match="its study makes"):
        unspoken.verify({key: value for key, value in content.items() if key != "own_function"})
    with pytest.raises(CertificateError, match="its study makes"):
        unspoken.verify(content | {"simulation": False})
