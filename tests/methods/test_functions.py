"""Statistics and functions of one's own: their sensitivity attacked, their values right, their mistakes explained."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unspoken
from factories import maker
from unspoken.data.bounding import clip_rows
from unspoken.data.files import read_records
from unspoken.methods.base import Total
from unspoken.methods.functions import Custom, Function, FunctionMethod, Turns
from unspoken.methods.registry import METHODS, method_for
from unspoken.methods.workloads import answered_by
from unspoken.simulation import Simulation, simulate_records
from unspoken.study import Study, StudyError, make_study

COLUMNS: dict[str, Any] = {
    "age": {"min": 0, "max": 110},
    "sex": {"categories": ["m", "f", "x"]},
    "site": {"categories": [3, 1]},
    "weight": {"min": -7.5, "max": 300},
}
COMPUTING = [name for name, kind in METHODS.items() if issubclass(kind, FunctionMethod) and kind.takes_functions]
"""The methods that compute any function."""


study = maker("cape", task="statistics", parties=3, epsilon=2.0)


def function_of(agreed: Study) -> Function:
    method = method_for(agreed)
    assert isinstance(method, FunctionMethod)
    assert isinstance(method.workload, Function)
    return method.workload


def people(count: int = 300) -> pd.DataFrame:
    """Some numbers beyond their bounds."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 40, size=count).round(1),
            "sex": rng.choice(["m", "f", "x"], p=[0.5, 0.4, 0.1], size=count),
            "site": rng.choice([1, 3], size=count),
            "weight": rng.uniform(-20, 320, size=count),
        }
    )


def unequal(records: int, parties: int = 3) -> np.ndarray:
    """The party of each record: the first has half of them."""
    return np.where(np.arange(records) < records // 2, 0, np.arange(records) % parties)


def simulated(folder: Path, agreed: Study, frame: pd.DataFrame) -> Simulation:
    frame.to_csv(folder / "people.csv", index=False)
    records = read_records(folder / "people.csv", agreed)
    return simulate_records(agreed, records, unequal(len(frame), agreed.parties.count))


def extreme_rows() -> np.ndarray:
    """Every record of the table whose numbers are at a bound or in the middle, in the study's order of columns."""
    rows = []
    for age in (-1.0, 0.0, 1.0):
        for sex in np.eye(3):
            for site in np.eye(2):
                for weight in (-1.0, 0.0, 1.0):
                    rows.append(np.concatenate([[age], sex, site, [weight]]))
    return np.array(rows)


@pytest.mark.parametrize("norm", [None, 0.5, 1.2, 100.0])
@pytest.mark.parametrize("function", ["mean", "histogram"])
def test_no_swap_of_a_table_s_records_moves_the_total_further_than_the_sensitivity(
    function: str, norm: float | None
) -> None:
    agreed = study(data={"columns": COLUMNS} | ({} if norm is None else {"norm": norm}), method={"function": function})
    computed = function_of(agreed)
    rows = clip_rows(extreme_rows(), agreed.data)
    vectors = np.array([computed.of(row[None], None, None) for row in rows])
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    assert distances.max() <= computed.sensitivity * (1 + 1e-12)
    # Only a norm that cuts categories, which cannot point the other way, leaves the bound unreached.
    assert distances.max() >= (0.7 if norm in (0.5, 1.2) else 1 - 1e-9) * computed.sensitivity
    assert np.linalg.norm(vectors, axis=1).max() <= computed.record_bound * (1 + 1e-12)


@pytest.mark.parametrize("norm", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("function", ["mean", "histogram"])
@pytest.mark.parametrize("features", [1, 3])
def test_no_swap_of_a_matrix_s_records_moves_the_total_further_than_the_sensitivity(
    features: int, function: str, norm: float
) -> None:
    agreed = study(data={"features": features, "norm": norm}, method={"function": function})
    computed = function_of(agreed)
    rng = np.random.default_rng(0)
    points = np.concatenate([[10 * norm * np.eye(features)[0]], rng.normal(scale=3 * norm, size=(100, features))])
    rows = clip_rows(np.concatenate([points, -points]), agreed.data)
    vectors = np.array([computed.of(row[None], None, None) for row in rows])
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    assert distances.max() <= computed.sensitivity * (1 + 1e-12)
    assert distances.max() >= (1 - 1e-9) * computed.sensitivity
    assert np.linalg.norm(vectors, axis=1).max() <= computed.record_bound * (1 + 1e-12)


@pytest.mark.parametrize("name", COMPUTING)
@pytest.mark.parametrize("group", [1, 2, 7])
def test_a_group_of_records_moves_the_total_so_many_times_as_far(name: str, group: int) -> None:
    one, many = (
        method_for(
            study(data={"columns": COLUMNS}, method={"name": name, "function": "mean"}, unit={"group": size})
        ).plan()
        for size in (1, group)
    )
    assert many.sums[0].sensitivity == pytest.approx(group * one.sums[0].sensitivity, rel=0.01)
    assert many.sums[0].noise_std == pytest.approx(group * one.sums[0].noise_std, rel=0.01)


def test_means_and_shares_are_those_of_all_records_in_their_own_units(tmp_path: Path) -> None:
    frame = people()
    result = simulated(tmp_path, study(data={"columns": COLUMNS}, method={"name": "none"}), frame)
    found = result.outcome.release.statistics
    assert found.keys() == COLUMNS.keys()
    assert found["age"]["mean"] == pytest.approx(frame["age"].clip(0, 110).mean())
    assert found["weight"]["mean"] == pytest.approx(frame["weight"].clip(-7.5, 300).mean())
    assert found["sex"]["shares"] == pytest.approx(frame["sex"].value_counts(normalize=True).to_dict())
    assert found["site"]["shares"] == pytest.approx(
        {"1": (frame["site"] == 1).mean(), "3": (frame["site"] == 3).mean()}
    )
    assert result.to_json()["statistics"] == found


def test_the_histogram_counts_every_record_once_in_each_column(tmp_path: Path) -> None:
    frame = people()
    result = simulated(
        tmp_path, study(data={"columns": COLUMNS}, method={"name": "none", "function": "histogram", "bins": 11}), frame
    )
    found = result.outcome.release.statistics
    expected, edges = np.histogram(frame["age"].clip(0, 110), bins=11, range=(0, 110))
    assert found["age"]["edges"] == pytest.approx(edges)
    assert found["age"]["counts"] == expected.tolist()
    assert found["sex"]["counts"] == frame["sex"].value_counts().to_dict()
    assert found["site"]["counts"] == {"3": (frame["site"] == 3).sum(), "1": (frame["site"] == 1).sum()}
    for column in found.values():
        counts = column["counts"]
        assert sum(counts.values() if isinstance(counts, dict) else counts) == len(frame)


@pytest.mark.parametrize(("low", "high", "bins"), [(0, 110, 10), (0, 110, 11), (-3, 4, 7), (0.1, 0.8, 7), (0, 1, 100)])
def test_a_number_at_an_edge_is_in_the_upper_bin_and_one_beyond_the_bounds_in_the_nearest(
    tmp_path: Path, low: float, high: float, bins: int
) -> None:
    columns = {"value": {"min": low, "max": high}}
    agreed = study(data={"columns": columns}, method={"name": "none", "function": "histogram", "bins": bins}, parties=2)
    edges = np.linspace(low, high, bins + 1)
    frame = pd.DataFrame({"value": [*edges, low - 1, high + 1]})
    counts = simulated(tmp_path, agreed, frame).outcome.release.statistics["value"]["counts"]
    assert counts == [2, *[1] * (bins - 2), 3]


def test_a_matrix_has_its_numbers_between_minus_and_plus_the_norm() -> None:
    agreed = study(data={"features": 2, "norm": 5.0}, method={"name": "none", "function": "histogram", "bins": 2})
    rows = np.array([[-4.0, 1.0], [4.0, 1.0], [3.0, 4.0], [300.0, 400.0]])
    found = unspoken.simulate(agreed, rows, None, [0, 1, 2, 2]).outcome.release.statistics
    assert found["x0"] == {"edges": [-5.0, 0.0, 5.0], "counts": [1, 3], "noise_std": 0.0}
    assert found["x1"]["counts"] == [0, 4]
    means = unspoken.simulate(
        study(data={"features": 2, "norm": 5.0}, method={"name": "none"}), rows, None, [0, 1, 2, 2]
    )
    assert means.outcome.release.statistics["x0"]["mean"] == pytest.approx((-4 + 4 + 3 + 3) / 4)


@pytest.mark.parametrize("name", COMPUTING)
def test_noisy_statistics_are_as_far_off_as_they_say(name: str, tmp_path: Path) -> None:
    """40 columns with true mean 2: the root mean square of 40 normal errors is within a factor of 2 of its mean."""
    columns = {f"c{number:02}": {"min": -8, "max": 12} for number in range(40)}
    agreed = study(data={"columns": columns}, method={"name": name}, epsilon=8.0)
    frame = pd.DataFrame({column: np.tile([1.0, 3.0], 150) for column in columns})
    found = simulated(tmp_path, agreed, frame).outcome.release.statistics
    errors = np.array([column["mean"] for column in found.values()]) - 2.0
    claimed = next(iter(found.values()))["noise_std"]
    assert 0.5 * claimed < math.sqrt((errors**2).mean()) < 2.0 * claimed


def test_a_mean_and_the_share_of_missing_values_are_each_as_far_off_as_they_say(tmp_path: Path) -> None:
    """200 columns, half of each missing and the rest near the upper bound, where the noise of the share moves the mean
    most. The root mean square of 200 normal errors is a fifth off its mean once in 10,000 times."""
    columns = {f"c{number:03}": {"min": -80, "max": 120, "missing": "indicator"} for number in range(200)}
    frame = pd.DataFrame({column: np.tile([math.nan, 110.0], 300) for column in columns})
    release = simulated(tmp_path, study("central", data={"columns": columns}, epsilon=30.0), frame).outcome.release
    found = pd.DataFrame(list(release.statistics.values()))
    for name, true, claimed in (("mean", 110.0, "noise_std"), ("missing", 0.5, "missing_noise_std")):
        assert 0.8 < math.sqrt(((found[name] - true) ** 2).mean()) / found[claimed].mean() < 1.2
    (_, _, share, noise) = release.rows()[1]
    assert share == f"{100 * found['missing'][0]:.2f} %"
    assert noise == f"{100 * found['missing_noise_std'][0]:.3g} %"


def test_a_mean_of_values_that_are_all_missing_is_as_far_off_as_its_bounds_and_no_further() -> None:
    """The noisy share of missing values may exceed 1."""
    agreed = study(data={"columns": {"a": {"min": -80, "max": 120, "missing": "indicator"}}})
    total = Total(np.array([3.0, 104.0]), np.array([100]), 3, 5.0)
    with pytest.raises(StopIteration) as concluded:
        next(function_of(agreed).conclude(answered_by(lambda query: total)))
    found = concluded.value.value.statistics["a"]
    assert (found["mean"], found["missing"]) == (80.0, 1.04)
    assert found["noise_std"] == pytest.approx(100.0 * math.hypot(1.0, 0.6))


@pytest.mark.parametrize(
    ("task", "function", "expected"),
    [
        ("regression", "mean", 'is "mean", but for the task "regression" it should be "linear-regression".'),
        ("statistics", "network", 'is "network", but for the task "statistics" it should be "mean" or "histogram".'),
        ("classification", "histogram", 'is "histogram", but for the task "classification" it should be "logistic-'),
    ],
)
def test_a_function_that_does_not_fit_the_task_is_told_in_one_sentence(task: str, function: str, expected: str) -> None:
    data = {"classification": {"classes": 2}, "regression": {"label_bounds": [0, 1]}, "statistics": {}}[task]
    content = study(data={"features": 2}).model_dump(exclude_none=True, exclude_defaults=True)
    content |= {"study": {"name": "fit", "task": task}, "data": {"features": 2, **data}}
    for name in (*COMPUTING, "none"):
        content["method"] = {"name": name, "function": function}
        with pytest.raises(StudyError) as caught:
            method_for(make_study(content))
        assert str(caught.value).startswith(f"the study: [method] function {expected}")
        assert str(caught.value).count(". ") == 0


ROWS = np.random.default_rng(0).uniform(size=(1200, 2))
GROUPS = unequal(1200, 4)


def computed(function: Any = lambda rows: rows.sum(axis=0), **options: Any) -> unspoken.simulation.Computation:
    given = {"dimension": 2, "sensitivity": 1.5, "bound": 2000.0, "epsilon": 20.0, "delta": 1e-6}
    return unspoken.compute(function, options.pop("rows", ROWS), options.pop("groups", GROUPS), **given | options)


@pytest.mark.parametrize("name", COMPUTING)
def test_a_function_of_one_s_own_is_computed_by_every_method(name: str) -> None:
    result = computed(method=name)
    expected = ROWS[GROUPS == 0].sum(axis=0) if name == "local" else ROWS.sum(axis=0)
    assert (np.abs(result.total - expected) < 6 * result.noise_std).all()
    assert result.noise_std < 10
    assert result.guarantee.epsilon <= 20.0
    assert result.certificate["method"] == name
    assert "that replacing one record moves the function's total by at most 1.5 is its author's word" in "".join(
        result.certificate["notes"]
    )


@pytest.mark.parametrize("name", ["cape", "conv"])
def test_a_party_s_numbers_are_clipped_to_the_bound(name: str) -> None:
    """Four parties give (3, 4)·10⁶, clipped to norm 5: their total is 4·(3, 4)."""
    result = computed(lambda rows: [3e6, 4e6], method=name, bound=5.0, epsilon=200.0)
    assert np.abs(result.total - [12.0, 16.0]).max() < 6 * result.noise_std


def test_rows_are_clipped_to_the_norm_only_if_one_is_given() -> None:
    rows = np.full((1200, 2), 300.0)
    assert computed(rows=rows, bound=1e6).total == pytest.approx([360_000.0] * 2, rel=1e-3)
    assert computed(rows=rows, bound=1e6, norm=1.0).total == pytest.approx([1200 / math.sqrt(2)] * 2, abs=50)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"dimension": 3}, r"^Expected the function to give 3 numbers, got the shape \(2,\)\.$"),
        ({"function": lambda rows: [1.0, math.nan]}, r"^Expected the function to give finite numbers, got nan\.$"),
        ({"function": lambda rows: [math.inf, 0.0]}, r"^Expected the function to give finite numbers, got inf\.$"),
        ({"dimension": 0}, r"^dimension is 0, but should be how many numbers the function returns, 1 or more\.$"),
        ({"dimension": 2.0}, r"^dimension is 2.0, but should be"),
        ({"sensitivity": 0.0}, r"^sensitivity is 0.0, but should be a number above 0\.$"),
        ({"sensitivity": math.nan}, r"^sensitivity is nan, but should be a number above 0\.$"),
        ({"sensitivity": math.inf}, r"^sensitivity is inf, but should be a number above 0\.$"),
        ({"sensitivity": "one"}, r"^sensitivity is 'one', but should be a number above 0\.$"),
        ({"bound": -1.0}, r"^bound is -1.0, but should be a number above 0\.$"),
        ({"method": "magic"}, r"name is \"magic\", but to compute a function it should be one of: .*\"cape\""),
        ({"method": "none"}, r"name is \"none\", but to compute a function it should be one of: "),
        ({"epsilon": 0.0}, r"^compute: \[privacy\] epsilon is 0.0, but should be a number from 1e-4"),
        ({"unit": "party"}, r"unit is \"party\", but \"moments\" protects records"),
        ({"rows": ROWS[:, 0]}, r"^X has the shape \(1200,\), but should have one row a record\.$"),
        ({"rows": ROWS * 1e7}, r"^X has a row of norm 1.3\d+e\+07, above 1e\+06; scale X, or give the norm"),
        ({"groups": GROUPS[1:]}, r"^groups has the shape \(1199,\), but should name the party of each of 1200 records"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        computed(**options)


def test_numpy_numbers_are_taken() -> None:
    assert computed(dimension=np.int64(2), sensitivity=np.float32(1.5)).total.shape == (2,)


def test_a_function_of_one_number_may_give_it_without_a_list() -> None:
    assert computed(lambda rows: rows.sum(), dimension=1).total.shape == (1,)


def test_a_function_that_fails_fails_loudly() -> None:
    with pytest.raises(ZeroDivisionError):
        computed(lambda rows: [1 / 0, 0])


def test_a_function_that_changes_what_it_is_given_changes_nothing_else() -> None:
    rows, numbers = np.ones((3, 2)), np.ones(2)
    beyond: list[Any] = []

    def careless(given: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        beyond.extend([given.base, parameters.base])
        found = given.sum(axis=0)
        given += 1.0
        parameters += 1.0
        return found

    turns = Turns(2, numbers, lambda total, now: now, -10.0, 10.0)
    custom = Custom(careless, 2, 1.0, 100.0, turns)
    for _ in range(2):
        assert custom.of(rows[:2], None, numbers).tolist() == [2.0, 2.0]
    assert beyond == [None] * 4
    assert rows.tolist() == [[1.0, 1.0]] * 3
    assert numbers.tolist() == [1.0, 1.0]


def _logarithms(rows: np.ndarray) -> list[float]:
    """Moves by at most log 2 with a row between 0 and 1, and fails at a row below."""
    if (rows < 0.0).any():
        raise ValueError
    return [float(np.log1p(rows).sum())]


@pytest.mark.parametrize(
    "function", [_logarithms, lambda rows: [np.log(rows + 0.5).sum()], lambda rows: [1.0] * (1 + int(rows.min() < 0.0))]
)
def test_where_a_function_fails_its_author_s_word_must_hold_for_zeros(function: Any) -> None:
    """An error, a number that is not finite and too many numbers: all give zeros, however far off they are, and the
    plan and the certificate say whose business that is."""
    custom, rows = Custom(function, 1, math.log(2.0), 100.0), np.ones((50, 1))
    assert np.abs(custom.of(rows, None, None)).max() > 0.5
    rows[0] = -1.0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(custom.of(rows, None, None), [0.0])
    result = computed(function, rows=np.ones((1200, 1)), dimension=1)
    (note,) = (note for note in result.certificate["notes"] if "author's word" in note)
    assert note.endswith("also where the function fails on a party's records, which then counts as zeros")
    assert note in result.simulation.plan.notes


def test_too_many_vanished_parties_end_a_computation() -> None:
    with pytest.raises(unspoken.errors.UnspokenError, match="there is no total"):
        computed(drop=2, dropouts=1)


def test_a_custom_function_is_stated_with_its_own_bound() -> None:
    custom = Custom(lambda rows: [0.0], 1, 0.5, 7.0)
    assert (custom.bound(1), custom.bound(10**6), custom.sensitivity) == (7.0, 7.0, 0.5)


def test_padding_is_no_record() -> None:
    """Parties of unequal size share a block; a row of zeros is in the middle of a histogram, if it were counted."""
    agreed = study(data={"features": 1}, method={"function": "histogram", "bins": 3})
    method = method_for(agreed)
    records = unspoken.data.files.Records(np.full((10, 1), 0.9), np.zeros(10, dtype=np.int64))
    groups = np.array([0] * 7 + [1] * 2 + [2])
    federation = unspoken.data.federation.ArrayFederation(agreed, records, groups)
    for parties, block in federation.blocks():
        contribution = method.contribute(unspoken.methods.base.Collect("function"), block)
        np.testing.assert_array_equal(contribution.noisy[:, :2], 0.0)
        np.testing.assert_array_equal(contribution.noisy[:, 2], np.bincount(groups)[parties])
        np.testing.assert_array_equal(contribution.exact[:, 0], np.bincount(groups)[parties])


def test_a_network_s_gradient_needs_the_weights_that_were_asked_for() -> None:
    """A request without the network's weights is refused, not computed with others."""
    content = study(data={"features": 2}).model_dump(exclude_none=True, exclude_defaults=True)
    content |= {"study": {"name": "net", "task": "classification"}, "data": {"features": 2, "classes": 2}}
    content["method"] = {"name": "conv", "function": "network"}
    computed = function_of(make_study(content))
    with pytest.raises(ValueError, match="Expected parameters with the request"):
        computed.of(np.zeros((1, 2)), np.zeros(1, dtype=int), None)
