"""`unspoken plan`: the documented fields for programs, and the guarantee in words for people."""

import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import GUARANTEE_FIELDS, PLAN_FIELDS, RELEASE_FIELDS, answer, changed, shown, unspoken
from unspoken import make_study, plan
from unspoken.privacy.gaussian import delta_of


def test_in_python_a_plan_is_that_of_the_command(folder: Path) -> None:
    told = answer(folder, "plan", "study.toml")
    content = tomllib.loads((folder / "study.toml").read_text(encoding="utf-8"))
    for study in (folder / "study.toml", content, make_study(content)):
        assert told.items() >= plan(study).to_json().items()


def test_a_plan_has_the_documented_fields(folder: Path) -> None:
    result = answer(folder, "plan", "study.toml", run=unspoken)
    assert result.keys() >= PLAN_FIELDS
    assert (result["method"], result["rounds"]) == ("helmet", 1)
    assert isinstance(result["upload_bytes"], int)
    guarantee = result["guarantee"]
    assert guarantee.keys() >= GUARANTEE_FIELDS
    assert 2.9 < guarantee["epsilon"] <= 3.0
    assert {key: guarantee[key] for key in GUARANTEE_FIELDS - {"epsilon"}} == {
        "delta": 1e-5,
        "unit": "record",
        "adjacency": "replace",
        "colluding": 2,
        "dropouts": 2,
    }
    (release,) = result["releases"]
    assert release.keys() >= RELEASE_FIELDS
    assert (release["name"], release["count"]) == ("model", 1)
    # sensitivity / noise_std is the μ that the adversary faces.
    assert delta_of(release["sensitivity"] / release["noise_std"], guarantee["epsilon"]) == pytest.approx(1e-5)


def test_a_plan_for_people_states_the_guarantee_in_words(folder: Path) -> None:
    text = shown(folder, "plan", "study.toml")
    assert "20; 2 may collude and 2 may drop out; the noise is sized for the 16 that then remain" in text
    assert "Guarantee. Whoever sees the result, even a lying coordinator together with 2 of the 20 parties" in text
    assert "epsilon = 3, delta = 1e-05" in text


@pytest.mark.parametrize(
    ("colluding", "dropouts", "attempts", "told"),
    [
        (19, 0, 1, "20; 19 may collude and 0 may drop out; the noise is sized for the one that then remains; if any"),
        (
            0,
            2,
            1,
            "20; none collude, but each knows its own noise, and 2 may drop out; the noise is sized for the 17 that",
        ),
        (2, 2, 3, "; more if attempts fail"),
    ],
)
def test_a_plan_counts_parties_and_bytes_in_words_that_add_up(
    folder: Path, colluding: int, dropouts: int, attempts: int, told: str
) -> None:
    changed(folder, "colluding = 0.1", f"colluding = {colluding}\nattempts = {attempts}")
    changed(folder, "dropouts = 2", f"dropouts = {dropouts}")
    assert told in shown(folder, "plan", "study.toml")


def test_a_plan_of_cape_says_what_a_vanished_party_costs(tasks: Callable[..., Path]) -> None:
    folder = tasks("regression", "cape", 'order = "noise-first"\n')
    text = shown(folder, "plan", "study.toml")
    found = re.search(
        r"noise ([\d.]+) against the adversary \(([\d.]+) in the total if nobody drops out, "
        r"([\d.]+) if 2 vanish between the noise and the messages\)",
        text,
    )
    assert found is not None
    hidden, total, worst = map(float, found.groups())
    release = answer(folder, "plan", "study.toml")["releases"][0]
    assert (hidden, total) == pytest.approx((release["noise_std"], release["total_noise_std"]), rel=1e-3)
    assert worst > 1.2 * total
    assert "if more drop out, nothing is released" in text
    changed(folder, "dropouts = 2", "dropouts = 0")
    text = shown(folder, "plan", "study.toml")
    assert "if any drop out, nothing is released" in text
    assert "vanish" not in text


def test_a_plan_of_cape_says_what_its_noise_is_made_of(tasks: Callable[..., Path]) -> None:
    folder = tasks("regression", "cape")
    text = " ".join(shown(folder, "plan", "study.toml").split())
    assert "messages in the open, and then" in text
    assert "messages come first, then a secure sum of their noise, in each turn" in text
    release = answer(folder, "plan", "study.toml")["releases"][0]
    parts = release["noise_parts"]
    assert f"τ_g = {parts['tau_g']:.4g} stays" in text
    assert parts["gain"] * parts["over_curator"] == pytest.approx(20.0, rel=1e-9)
    assert release["total_noise_std"] == pytest.approx(math.sqrt(20.0) * parts["tau_g"], rel=1e-9)
    assert release["noise_std"] == pytest.approx(math.sqrt(parts["gain"]) * parts["tau_g"], rel=1e-9)


def test_a_promise_against_a_curious_coordinator_says_what_is_assumed_of_it(folder: Path) -> None:
    changed(folder, "[method]", '[summation]\nprotocol = "secagg"\n\n[method]')
    assert "even a lying coordinator together with 2 of the 20 parties" in shown(folder, "plan", "study.toml")
    changed(folder, 'protocol = "secagg"', 'protocol = "secagg"\ncoordinator = "curious"')
    told = shown(folder, "plan", "study.toml")
    assert "lying" not in told.partition("Guarantee.")[2]
    assert "this assumes that the coordinator follows the protocol, though it may look at all that it receives" in told
