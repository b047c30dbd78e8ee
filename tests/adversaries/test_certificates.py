"""A coordinator that has a certificate signed that says less was spent than parties know to have spent."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cast import Cast
from small_studies import public_file, small
from unspoken.engines.outcome import NETWORK, Outcome
from unspoken.engines.signing import canonical
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan, budget
from unspoken.methods.registry import method_for
from unspoken.privacy.gaussian import mu_for
from unspoken.report.certificate import certificate
from unspoken.report.countersigning import check_certificate, received
from unspoken.roles.totals import Totals
from unspoken.study import Study
from unspoken.summation.base import Aborted

CASES = [
    ("helmet", "classification", {}, "compute-nodes"),
    ("moments", "regression", {}, "compute-nodes"),
    ("cape", "classification", {"function": "network", "steps": 2, "hidden": 3}, "compute-nodes"),
    ("voting", "classification", {}, "tally"),
]


def content_of(cast: Cast, failed: dict[str, int]) -> dict[str, Any]:
    """The certificate of a run, with so many failed attempts."""
    coordinator, totals = cast.coordinator, cast.coordinator.totals
    assert coordinator.release is not None
    facts = (dict(totals.participation), datetime.now(UTC), 1.0, cast.bytes, 1, totals.counted, failed)
    outcome = Outcome(NETWORK, coordinator.release, *facts, simulated=False, noise=dict(totals.noise))
    found: dict[str, Any] = certificate(cast.plan, outcome)
    return found


@pytest.mark.parametrize(("method", "task", "keys", "protocol"), CASES)
def test_parties_sign_no_certificate_that_has_forgotten_what_they_spent(
    method: str, task: str, keys: dict[str, Any], protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt of two comes to nothing after vectors have left. A coordinator that leaves it out, or states a
    smaller ε than all vectors of a party can have cost, gets no signature; an honest one does."""
    study = small(public_file(tmp_path), method, task, keys=keys, summation=protocol, attempts=2, dropouts=1)
    cast, name = Cast(study), {"voting": "voted", "cape": "collected"}.get(method, "summed")
    made, left = getattr(Totals, name), [Aborted("bad luck")]

    def unlucky(totals: Totals, *given: Any) -> Any:
        if left:
            raise left.pop()
        return made(totals, *given)

    monkeypatch.setattr(Totals, name, unlucky)
    cast.totals()
    sums, plan = sum(planned.count for planned in cast.plan.sums), cast.plan
    honest = content_of(cast, dict(cast.coordinator.attempts.failed))
    # How much noise vanished parties left in CAPE's messages no single party knows.
    smaller = honest["happened"]["epsilon"] / (10.0 if method == "cape" else 2.0)
    assert honest["happened"]["attempts"] == sums + 1
    for party in cast.parties.values():
        assert sum(party.sent.values()) == sums + 1
        check_certificate(plan, canonical(honest), party.sent)
        for lie in (
            content_of(cast, {}),
            honest | {"happened": honest["happened"] | {"epsilon": smaller}},
            honest | {"happened": honest["happened"] | {"epsilon": 0.0}},
            honest | {"happened": honest["happened"] | {"attempts": sums}},
        ):
            with pytest.raises(Refused, match=r"less was spent than this participant has spent|attempts cost at least"):
                check_certificate(plan, canonical(lie), party.sent)
    nan, infinite = ({"began": math.nan}, {"happened": honest["happened"] | {"attempts": math.inf}})
    twice = canonical(honest).replace(b"{", b'{"began":"",', 1)
    others = (canonical(honest | nan), canonical(honest | infinite), twice, b"[]", b"[" * 100_000, b'"\\ud800"')
    for broken in (b"x", json.dumps(honest | {"happened": None}).encode(), *others):
        with pytest.raises(Refused, match="malformed"):
            check_certificate(plan, broken, {})


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Study, dict[str, Any]]:
    """A study, and the coordinator's certificate of a run."""
    cast = Cast(small(tmp_path, "helmet", "classification", keys={}, summation="compute-nodes"))
    cast.totals()
    return cast.plan.study, content_of(cast, {})


def nudged(study: Study, factor: float, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan of a machine whose arithmetic gives another μ."""
    monkeypatch.setattr(budget, "mu_for", lambda epsilon, delta: mu_for(epsilon, delta) * factor)
    return method_for(study).agreed_plan


def test_other_last_digits_of_an_honest_machine_are_no_other_promise(
    signed: tuple[Study, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, content = signed
    for factor in (1.0 - 1e-12, 1.0 - 2e-15, 1.0 + 2e-15):
        plan = nudged(study, factor, monkeypatch)
        assert plan.to_json() != {key: content[key] for key in plan.to_json()}
        check_certificate(plan, canonical(content), {})


def test_a_copy_of_the_study_that_differs_in_what_is_not_agreed_on_has_the_same_certificate(
    tmp_path: Path,
) -> None:
    """Other methods to compare with, and public records at another place: the same study, so it is signed at its end.
    The place is a name, and no room for a message."""
    study, file = small(tmp_path, "helmet", "classification", keys={}, summation="compute-nodes"), public_file(tmp_path)
    public = {"public": str(file), "public_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    cast = Cast(study.model_copy(update={"data": study.data.model_copy(update=public)}))
    cast.totals()
    study = cast.plan.study
    content = content_of(cast, {}) | method_for(study).agreed_plan.to_json()
    content["agreement"]["data"]["public"] = "/srv/public.npz"
    other = study.model_copy(update={"compare": {"mine": {"name": "cape"}}})
    assert other.digest() == study.digest()
    for copy in (study, other):
        check_certificate(method_for(copy).agreed_plan, canonical(content), {})
    for lie in ({"public": "a\x1b[2J"}, {"public": "x" * 1000}, {"public": None}, {"public_sha256": "0" * 64}):
        changed = content["agreement"] | {"data": content["agreement"]["data"] | lie}
        with pytest.raises(Refused, match=r"agreement\.data\.public"):
            check_certificate(method_for(study).agreed_plan, canonical(content | {"agreement": changed}), {})


def test_a_participant_says_where_a_certificate_promises_something_else(signed: tuple[Study, dict[str, Any]]) -> None:
    study, content = signed
    plan = method_for(study).agreed_plan
    for lie, place in (
        ({"rounds": 2}, '"rounds" is 2, but its study makes 1 of it'),
        ({"guarantee": content["guarantee"] | {"epsilon": content["guarantee"]["epsilon"] * 0.999}}, '"guarantee.epsi'),
        ({"guarantee": content["guarantee"] | {"dropouts": 3}}, '"guarantee.dropouts"'),
        ({"releases": []}, '"releases" is'),
        ({"statement": "All is well.\x1b"}, '"statement" is'),
        ({"simulation": True}, '"simulation" is'),
        ({"agreement": content["agreement"] | {"study": {}}}, '"agreement.study.name" is missing'),
    ):
        with pytest.raises(Refused, match=re.escape(f"than this study's plan: {place}")) as refused:
            check_certificate(plan, canonical(content | lie), {})
        assert str(refused.value).isprintable()


def test_a_participant_signs_nothing_that_it_knows_nothing_of(signed: tuple[Study, dict[str, Any]]) -> None:
    study, content = signed
    plan = method_for(study).agreed_plan
    check_certificate(plan, canonical(content | {"model_sha256": "00"}), {})
    for key in ("audited", "statistics_sha256", "\x1b[2J"):
        with pytest.raises(Refused, match="says something that no certificate of this study says") as refused:
            check_certificate(plan, canonical(content | {"model_sha256": "00", key: "00"}), {})
        assert str(refused.value).isprintable()


LIES: list[tuple[dict[str, Any], str]] = [
    ({"note": "its raw records are published"}, '"happened" has "note", which no certificate of this study has'),
    ({"secure_sum": False}, '"happened.secure_sum" is false, but its study makes true of it'),
    ({"engine": "e-mail"}, '"happened.engine" is "e-mail", but its study makes "network: '),
    ({"parties": 5000}, '"happened.parties" is 5000'),
    ({"dropped": 2}, '"happened.dropped" is 2, but its study makes 0 of it'),
    ({"attempts_planned": -1}, '"happened.attempts_planned" is -1'),
    ({"survivors": -1, "dropped": 7}, '"happened.survivors" is -1, but the study has'),
    ({"survivors": True}, '"happened.survivors" is true'),
    ({"attempts": 10**9}, '"happened.attempts" is 1000000000, but the study has 1 to 1'),
    ({"attempts": "1"}, '"happened.attempts" is "1"'),
    ({"attempts": None}, '"happened.attempts" is missing'),
    ({"bytes": -5}, '"happened.bytes" is -5'),
    (
        {"noise_std_of_totals": {"model": 1e-9}},
        '"happened.noise_std_of_totals.model" is 1e-09, but the plan has at least',
    ),
    ({"noise_std_of_totals": {"model": "much"}}, '"happened.noise_std_of_totals.model" is "much"'),
    ({"noise_std_of_totals": {"other": 1.0}}, "but should have the noise of model"),
    ({"noise_std_of_totals": None}, '"happened.noise_std_of_totals" is missing'),
    ({"epsilon": 99.0}, '"happened.epsilon" is 99.0, but the study promises at most'),
    ({"epsilon": None}, '"happened.epsilon" is missing'),
    ({"epsilon": 1e-4}, '"happened.epsilon" is 0.0001, but so many attempts cost at least'),
    ({"epsilon": "1.0"}, '"happened.epsilon" is "1.0"'),
    ({"epsilon": True}, '"happened.epsilon" is true'),
    ({"records": "all of them"}, '"happened.records" is "all of them", but should be a number'),
    ({"records": 10**400}, '"happened.records" is 1000'),
]
"""What a coordinator may say of what happened, and what is said to that"""
TOLD_LIES: list[tuple[dict[str, Any], str]] = [
    ({"happened": "nothing"}, '"happened" is "nothing"'),
    ({"began": "1970-01-01"}, '"began" is "1970-01-01", but should be a time such as'),
    ({"began": "1970-01-01T00:00:00+00:00"}, "which is too long ago"),
    ({"began": "9999-01-01T00:00:00+00:00"}, "which is in the future"),
    ({"began": "2026-02-01T00:00:00+05:00"}, "but should be a time such as"),
    ({"began": {"x": ["1970"]}}, '"began" is'),
    ({"began": None}, '"began" is missing'),
    ({"versions": None}, '"versions" is missing'),
    ({"versions": {"numpy": "2.0.0"}}, "but should have at least that of unspoken"),
    ({"versions": {"unspoken": "1.0", "statement": "1.0"}}, '"versions" has "statement", which this study does not'),
    ({"versions": {"unspoken": "1.0, and no privacy at all"}}, '"versions.unspoken" is "1.0, and no privacy at all"'),
]


def test_a_participant_signs_nothing_of_what_happened_that_cannot_be(signed: tuple[Study, dict[str, Any]]) -> None:
    study, content = signed
    plan = method_for(study).agreed_plan
    lies = [({"happened": content["happened"] | lie}, told) for lie, told in LIES]
    for lie, told in [*lies, *TOLD_LIES]:
        with pytest.raises(Refused, match=re.escape(f"says something that cannot be: {told}").replace("be:", "be:.*")):
            check_certificate(plan, canonical(content | lie), {})


def test_versions_are_those_of_any_library_that_the_study_rests_on(signed: tuple[Study, dict[str, Any]]) -> None:
    study, content = signed
    plan = method_for(study).agreed_plan
    for version in ("3.13.0rc1+", "2.13.0+cpu", "1.0.dev3", "0.2.0.post1", "24.1"):
        other = content | {"versions": content["versions"] | {"python": version, "torch": version}}
        check_certificate(plan, canonical(other), {})


def test_a_released_file_has_a_name_that_the_study_gives_it(signed: tuple[Study, dict[str, Any]]) -> None:
    study, _ = signed
    digest = hashlib.sha256(b"content").hexdigest()
    certificate = canonical({"model_sha256": digest, "statistics_sha256": digest})
    assert received(study, certificate, "model.skops", b"content").name == "model.skops"
    for name in ("model.pkl", "statistics.json", "model.json", "model", "../model.skops"):
        with pytest.raises(Refused, match="did not come with its certificate"):
            received(study, certificate, name, b"content")


def test_no_certificate_says_that_a_run_which_ended_early_cost_less_than_was_planned(tmp_path: Path) -> None:
    """What was released has chosen where it ends, so that the ε of so few rounds is exceeded more often than δ says."""
    features = np.random.default_rng(0).normal(size=(8, 4))
    np.savez(tmp_path / "validation.npz", X=features, y=np.arange(8) % 3)
    watched = {"validation": str(tmp_path / "validation.npz"), "validate_every": 1, "patience": 1}
    keys = {"rounds": 20, "rate": 1.0, **watched}
    cast = Cast(small(public_file(tmp_path), "cross-silo", "classification", keys=keys, summation="compute-nodes"))
    cast.totals()
    honest, plan = content_of(cast, {}), cast.plan
    happened, (rounds,) = honest["happened"], cast.coordinator.totals.participation.values()
    assert happened["attempts"] == len(rounds) < 20
    check_certificate(plan, canonical(honest), {"gradient": len(rounds)})
    spent = replace(plan, may_end_early=False).guarantee_after({"gradient": rounds})
    assert spent.epsilon < 0.9 * happened["epsilon"]
    lie = honest | {"happened": happened | {"epsilon": spent.epsilon}}
    with pytest.raises(Refused, match=r"a run that may end early costs all of its 1\.99"):
        check_certificate(plan, canonical(lie), {"gradient": len(rounds)})
