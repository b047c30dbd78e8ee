"""The certificate says what was promised and what happened, and nothing that the promise does not cover."""

import json
import math
import re
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

import unspoken
from factories import maker
from unspoken.simulation import Simulation

study = maker(
    parties={"count": 20, "records": 5},
    summation={"protocol": "compute-nodes", "nodes": 2},
    epsilon=1.5,
    delta=1e-5,
    colluding=0.25,
    dropouts=2,
)


def run(agreed: unspoken.Study, drop: int = 0) -> Simulation:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(100, 4)), rng.integers(3, size=100)
    groups = np.arange(100) % 20
    # 97 test records: their accuracy has decimals that nothing else has.
    return unspoken.simulate(agreed, features, labels, groups, X_test=features[:97], y_test=labels[:97], drop=drop)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return run(study(), drop=2)


def test_it_holds_the_plan_and_the_guarantee(simulation: Simulation) -> None:
    certificate = simulation.certificate
    plan = simulation.plan.to_json()
    assert {key: certificate[key] for key in plan} == plan
    assert certificate["statement"].endswith(f" {simulation.plan.guarantee.sentence()}")
    guarantee = certificate["guarantee"]
    assert guarantee["epsilon"] <= 1.5
    assert (guarantee["delta"], guarantee["unit"], guarantee["adjacency"]) == (1e-5, "record", "replace")
    assert (guarantee["colluding"], guarantee["dropouts"]) == (5, 2)
    assert certificate["certificate"] == "unspoken/1"


def test_it_says_what_happened(simulation: Simulation) -> None:
    happened = simulation.certificate["happened"]
    assert (happened["parties"], happened["survivors"], happened["dropped"]) == (20, 18, 2)
    assert happened["records"] == 90
    assert happened["secure_sum"] is True
    assert happened["bytes"] == simulation.outcome.bytes > 20 * happened["largest_upload_of_a_party"] * 0.5
    assert happened["largest_upload_of_a_party"] <= simulation.certificate["upload_bytes"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", simulation.certificate["began"])


@pytest.mark.parametrize("drop", [0, 1, 2])
def test_the_epsilon_of_what_was_released_is_what_an_independent_accountant_makes_of_the_noise(drop: int) -> None:
    """From the certificate's own numbers: the noise of a weight, without the shares of the five colluders."""
    certificate = run(study(), drop=drop).certificate
    happened = certificate["happened"]
    total = happened["noise_std_per_weight"] * happened["records"]
    honest = total * math.sqrt((happened["survivors"] - 5) / happened["survivors"])
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(honest / certificate["releases"][0]["sensitivity"]))
    assert happened["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert happened["epsilon"] <= certificate["guarantee"]["epsilon"] <= 1.5


def test_it_names_the_versions_and_the_study_with_its_hash(simulation: Simulation) -> None:
    certificate = simulation.certificate
    assert certificate["versions"]["unspoken"] == version("unspoken")
    assert {"python", "numpy", "scipy", "cryptography"} <= certificate["versions"].keys()
    assert certificate["study_sha256"] == study().digest()
    assert unspoken.make_study(certificate["agreement"]).digest() == certificate["study_sha256"]


def test_it_can_be_written_as_json_and_read_again(simulation: Simulation) -> None:
    certificate = simulation.certificate
    assert json.loads(json.dumps(certificate, allow_nan=False)) == certificate


def test_nothing_that_was_measured_on_data_is_in_it(simulation: Simulation) -> None:
    assert 0 < simulation.metrics["accuracy"] < 1
    written = json.dumps(simulation.certificate).lower()
    assert not re.search("accura|metric|score|mse|loss", written)
    assert repr(simulation.metrics["accuracy"]) not in written


def test_it_says_so_when_the_sum_was_only_simulated() -> None:
    agreed = study().model_copy(update={"summation": unspoken.study.SummationSection(protocol="ideal")})
    certificate = run(agreed).certificate
    assert certificate["happened"]["secure_sum"] is False
    assert "adds in the clear" in certificate["statement"]
    assert any("simulation only" in note for note in certificate["notes"])


def test_a_simulation_says_so_and_what_would_be_different_on_a_network(simulation: Simulation) -> None:
    certificate = simulation.certificate
    assert certificate["simulation"] is simulation.to_json()["simulation"] is True
    assert certificate["statement"].startswith(
        "SIMULATION: all parties ran on this machine, where all records were; nobody was protected from anybody here. "
        "What follows would hold if every party, every helper and the coordinator had been on machines of their own, "
        "and every party had drawn its keys and its noise there. Whoever sees the result, "
    )
    real = replace(simulation.outcome, simulated=False)
    written = Simulation(simulation.plan, real, {}).certificate
    assert (written["simulation"], written["statement"]) == (False, simulation.plan.guarantee.sentence())


def test_a_simulation_of_a_curator_or_without_a_promise_says_what_is_true_of_it() -> None:
    central = run(study("central")).certificate["statement"]
    assert "would hold if one curator, and nobody else, had had the records. Whoever sees" in central
    none = run(study("none")).certificate["statement"]
    assert none == (
        "SIMULATION: all parties ran on this machine, where all records were. No privacy is promised: the result is "
        "computed from all records, without noise."
    )
    masked = study().model_copy(update={"summation": unspoken.study.SummationSection(protocol="secagg")})
    assert "if every party and the coordinator had been on" in run(masked).certificate["statement"]


def test_the_number_of_records_stays_out_of_it_when_parties_are_protected() -> None:
    certificate = run(study(unit="party")).certificate
    assert certificate["guarantee"]["unit"] == "party"
    assert "records" not in certificate["happened"]


def test_how_often_an_attacker_is_right_is_what_an_independent_accountant_makes_of_the_noise() -> None:
    """The distance of two neighbours' releases in total variation is δ at ε = 0."""
    certificate = run(study()).certificate
    (release,) = certificate["releases"]
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(release["noise_std"] / release["sensitivity"]))
    right = (1.0 + accountant.get_delta(0.0)) / 2.0
    assert certificate["guarantee"]["attack_success"] == pytest.approx(right, abs=1e-4)
    assert f"right at most {math.ceil(1000.0 * right) / 10.0:.1f} times in 100" in certificate["statement"]
