"""The median: its promise, its accuracy, and what it says about mistakes."""

import tomllib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unspoken import make_study, simulate
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import check_arrays
from unspoken.engines import actors
from unspoken.methods.base import Sum
from unspoken.methods.registry import method_for
from unspoken.report.plan_text import plan_rows
from unspoken.study import StudyError
from unspoken.templates import study_text

PARTIES, RECORDS = 10, 40


def content(protocol: str = "compute-nodes", unit: Any = "record", data: Any = None, **keys: Any) -> dict[str, Any]:
    return {
        "study": {"name": "test", "task": "statistics"},
        "data": data or {"features": 3},
        "parties": {"count": PARTIES, "records": RECORDS, "max_records": RECORDS},
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": unit, "colluding": 1, "dropouts": 1},
        "method": {"name": "median", **({} if data else {"column": "x1", "bounds": [-3, 3]}), **keys},
        "summation": {"protocol": protocol},
    }


TABLE = {
    "columns": {
        "age": {"min": 0, "max": 110},
        "born": {"min": "1900-01-01", "max": "2020-01-01"},
        "dose": {"min": 0, "max": 5, "missing": "indicator"},
        "sex": {"categories": ["f", "m"]},
        "smokes": "boolean",
        "weight": {"min": 2, "max": 9, "missing": 5},
    }
}


@pytest.mark.parametrize(("unit", "replaced"), [("record", 1), ({"group": 5}, 5), ("party", RECORDS)])
def test_neighbours_stay_within_the_sensitivity_and_reach_it(unit: Any, replaced: int) -> None:
    """From one end to the other is as far as records go; some of them are no numbers that a column should have."""
    method = method_for(make_study(content(unit=unit)))
    declared = method.plan().sum_named("histogram")
    distances = []
    for there in (3.0, -1e9, np.inf, np.nan):
        features = np.full((2, RECORDS, 3), -3.0)
        features[1, :replaced] = there
        found = method.contribute(Sum("histogram"), Block(features, np.zeros((2, RECORDS)), np.full(2, RECORDS)))
        distances.append(float(np.linalg.norm(found.noisy[0] - found.noisy[1])))
    assert 0.99 * declared.sensitivity <= max(distances) <= declared.sensitivity


def test_every_record_counts_once_and_padding_does_not() -> None:
    method = method_for(make_study(content(bins=2)))
    features = np.zeros((2, 4, 3))
    features[0, :, 1] = [-3.0, -0.1, 0.1, 3.0]
    found = method.contribute(Sum("histogram"), Block(features, np.zeros((2, 4)), np.array([4, 1])))
    assert found.noisy.tolist() == [[2, 2], [0, 1]]


VALUES = np.random.default_rng(0).normal(0.5, 1.0, (PARTIES * RECORDS, 3))
GROUPS = np.arange(len(VALUES)) % PARTIES


@pytest.mark.parametrize(
    ("protocol", "drop"), [("compute-nodes", 1), ("secagg", 1), ("secagg+", 1), ("pairwise", 0), ("ideal", 1)]
)
def test_the_median_is_as_far_off_as_the_noise_says(protocol: str, drop: int) -> None:
    """Five deviations of the rank, and a bin: a false alarm in a million runs or so."""
    done = simulate(content(protocol), VALUES, None, GROUPS, X_test=VALUES, drop=drop)
    off = done.outcome.release.details["noise_std_of_the_rank"] / (RECORDS * (PARTIES - 1))
    assert done.metrics["rank_error"] < 5 * off + 0.05
    released = done.outcome.release.to_json()["statistics"]["x1"]
    assert abs(released["median"] - 0.5) < 5 * released["noise_std"] + 0.2


def test_it_runs_with_a_role_for_each_participant() -> None:
    study = make_study(content())
    method = method_for(study)
    records = check_arrays(VALUES, None, study, "the values")
    release = actors.run(method, method.plan(), ArrayFederation(study, records, GROUPS)).release
    assert release.metrics(study, records)["rank_error"] < 0.5


def test_a_column_of_a_table_is_found_behind_categories_and_told_in_its_own_units() -> None:
    method = method_for(make_study(content(data=TABLE, column="weight")))
    # age, born, dose and whether it is missing, f, m, smokes
    assert (method.axis.place, method.axis.in_own_units(-1.0), method.axis.in_own_units(1.0)) == (7, 2.0, 9.0)


def test_the_plan_says_that_one_column_is_read_and_no_other_changes_what_a_party_sends() -> None:
    method = method_for(make_study(content(data=TABLE, column="weight")))
    assert dict(plan_rows(method.plan()))["data"] == "the column weight; nothing else"
    features = np.random.default_rng(0).uniform(-1, 1, (2, RECORDS, 8))
    features[1, :, method.axis.place] = features[0, :, method.axis.place]
    sent = method.contribute(Sum("histogram"), Block(features, np.zeros((2, RECORDS)), np.full(2, RECORDS))).noisy
    assert (sent[0] == sent[1]).all()


def test_the_median_of_a_table_is_that_of_the_column() -> None:
    """Days, truth values and missing ones stand beside it, under little noise."""
    rng, count = np.random.default_rng(1), PARTIES * RECORDS
    weights = np.where(np.arange(count) % 50 == 0, np.nan, rng.uniform(6, 9, count))
    frame = pd.DataFrame({"age": 50, "born": "1970-01-01", "dose": None, "sex": "f", "smokes": True, "weight": weights})
    agreed = content("ideal", data=TABLE, column="weight")
    agreed["privacy"]["epsilon"] = 30.0
    found = simulate(agreed, frame, None, GROUPS).outcome.release.to_json()["statistics"]["weight"]
    assert found["median"] == pytest.approx(np.median(np.where(np.isnan(weights), 5.0, weights)), abs=0.5)


def test_a_study_that_leaves_column_and_bounds_open_is_told_what_is_taken() -> None:
    notes = method_for(make_study(content(data={"features": 3}))).plan().notes
    assert any('that of "x0"' in note for note in notes)
    assert any("beyond -1 and 1" in note for note in notes)
    assert any('that of "age"' in note for note in method_for(make_study(content(data=TABLE))).plan().notes)
    assert not any("as the study" in note for note in method_for(make_study(content())).plan().notes)


def test_noise_that_drowns_the_records_is_noted_in_the_plan() -> None:
    assert "says nothing" not in method_for(make_study(content())).plan().notes[-1]
    assert "says nothing" in method_for(make_study(content(unit="party"))).plan().notes[-1]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"column": "x3"}, r'\[method\] column is "x3", but should be a number .*; there are: "x0", "x1", "x2"'),
        ({"bounds": [3, -3]}, r"\[method\] bounds is \[3.0, -3.0\], but should have the smallest value first"),
        ({"bounds": [1, 2, 3]}, r"\[method\] bounds is \[1, 2, 3\], but should be the column's smallest and largest"),
        ({"data": {"features": 3, "norm": 1.0}, "column": "x1"}, r"\[data\] norm is 1, to which longer records"),
        ({"data": TABLE, "column": "sex"}, r'column is "sex", but should be .* there are: "age", "weight"'),
        ({"data": TABLE, "column": "born"}, r'column is "born", but should be .* there are: "age", "weight"'),
        ({"data": TABLE, "column": "smokes"}, r'column is "smokes", but should be .* there are: "age", "weight"'),
        ({"data": TABLE, "column": "dose"}, r'column is "dose", but should be a number without missing = "indicator"'),
        ({"data": {"columns": {"sex": {"categories": ["f", "m"]}}}}, r"\[data\] columns has no column with a median"),
        ({"data": TABLE, "column": "age", "bounds": [0, 1]}, r"\[method\] bounds is for a matrix"),
        ({"bin": 3}, r"\[method\] bin is an unknown key; did you mean 'bins'\?"),
    ],
)
def test_mistakes_are_told_with_their_place_and_remedy(said: dict[str, Any], told: str) -> None:
    with pytest.raises(StudyError, match=told):
        method_for(make_study(content(**said)))


@pytest.mark.parametrize("matrix", [True, False])
def test_a_study_to_start_from_plans_as_it_is(matrix: bool) -> None:
    text = study_text("study.toml", "ages", matrix=matrix, task="statistics", method="median")
    assert method_for(make_study(tomllib.loads(text))).plan().guarantee.epsilon <= 1.0
