"""A policy agrees to nobody whom it does not know, and counts by data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from network.town import NAMES, Town
from unspoken.cli.consent import ask
from unspoken.engines.network.cards import read_identity
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.ledger import after
from unspoken.report.policy import refusal
from unspoken.roles.charging import run_name
from unspoken.sites import prepare
from unspoken.study import make_study
from unspoken.study.policy import Policy, PolicyLimits, read_policy
from unspoken.summation.keys import Identity


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    """A study, as its file has it."""
    return Town(tmp_path).study.model_dump(mode="json", exclude_none=True)


def invented(content: dict[str, Any]) -> Plan:
    """The same study, in which the coordinator has made up all parties but the first, with the others' names."""
    roster = content["roster"]
    first, *others = roster["parties"]
    keys = {known: Identity(os.urandom(32)).public.hex() for known in others}
    names = {name: keys.get(key, key) for name, key in roster["names"].items()}
    return plan_for(make_study({**content, "roster": {**roster, "parties": [first, *keys.values()], "names": names}}))


def policy_of(**rules: Any) -> Policy:
    return Policy.model_validate({"refuse_uncovered": False, **rules})


def test_parties_that_the_coordinator_has_made_up_are_refused_whatever_they_are_called(content: dict[str, Any]) -> None:
    policy = policy_of(parties=dict(zip(NAMES, content["roster"]["parties"], strict=True)))
    assert refusal(policy, plan_for(make_study(content)), Ledger()) is None
    told = refusal(policy, invented(content), Ledger()) or ""
    assert "[parties] is" in told
    assert "but the study has the parties Charité (" in told
    assert "St Mary (" not in told


def test_a_policy_without_parties_refuses_unless_it_allows_what_it_does_not_cover(content: dict[str, Any]) -> None:
    plan = plan_for(make_study(content))
    hub = {"hub": content["roster"]["coordinator"]}
    assert "[parties] is missing: the policy says nothing about it" in (
        refusal(policy_of(refuse_uncovered=True, coordinators=hub), plan, Ledger()) or ""
    )
    assert refusal(policy_of(coordinators=hub), plan, Ledger()) is None


def test_of_many_strangers_a_few_are_named(content: dict[str, Any]) -> None:
    keys = [Identity(os.urandom(32)).public.hex() for _ in range(10)]
    many = {**content, "parties": {**content["parties"], "count": 10}}
    many["roster"] = {**content["roster"], "parties": keys, "names": {}}
    told = refusal(policy_of(parties={}), plan_for(make_study(many)), Ledger()) or ""
    assert told.endswith(" and 7 more too.")


def test_the_total_is_that_of_a_data_set_and_the_refusal_names_it(content: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_for(make_study(content))
    policy = policy_of(limits={"total_epsilon": 2.5, "total_delta": 1e-5})
    spent, other = Ledger(tmp_path / "ledger.sqlite", "wards"), Ledger(tmp_path / "ledger.sqlite", "patients")
    spent.charge(plan.ledger_run("one"), "first", plan.costs)
    next_one = plan_for(make_study({**content, "study": {**content["study"], "name": "another"}}))
    assert 'but all studies on "wards" together would come to' in (refusal(policy, next_one, spent) or "")
    assert refusal(policy, next_one, other) is None
    assert "on a data set" in (PolicyLimits.model_fields["total_epsilon"].description or "")


@pytest.mark.parametrize("run", ["a simulation", None])
def test_a_simulation_of_the_same_study_is_no_beginning_of_it(
    run: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both cost the data set something: a party that had begun would otherwise have to leave in the middle."""
    town = Town(tmp_path)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "home"))
    plan, ledger = plan_for(town.study), Ledger(tmp_path / "ledger", NAMES[0])
    identity = read_identity(town.key(NAMES[0]))[1]
    ledger.charge(plan.ledger_run(run or run_name(plan, identity)), "first", plan.costs)
    rules = tmp_path / "rules.toml"
    rules.write_text("refuse_uncovered = false\n[limits]\ntotal_epsilon = 2.5\ntotal_delta = 1e-5\n")
    ready = prepare(town.study, tmp_path / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))
    if run is None:
        ask(plan, ready.seat, ledger, rules=read_policy(rules), yes=True, as_json=True)
        assert "it was begun before" in after(ledger, plan, 0, ready.seat.run)
    else:
        with pytest.raises(Refused, match="together would come to"):
            ask(plan, ready.seat, ledger, rules=read_policy(rules), yes=True, as_json=True)
        assert "all studies together would then have" in after(ledger, plan, 0, ready.seat.run)
