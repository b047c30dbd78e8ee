"""A party and its ledger: what is charged is what the certificate promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dp_accounting
import msgspec
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from ledgered import Ledgered, expected, spent
from small_studies import KEY, federation_of, methods_and_tasks, records_of, small
from unspoken.engines.actors import Actors, Vanishing
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.methods.registry import METHODS, method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import Gaussian
from unspoken.privacy.ledger import Ledger, LedgerError
from unspoken.report.ledger import spent_in, spent_line
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore, StoreError
from unspoken.simulation import simulate_records
from unspoken.study import Study
from unspoken.summation.base import Aborted, Envelope


def ran(study: Study, vanishing: Sequence[int] = ()) -> Ledgered:
    actors = Ledgered(study)
    actors.run(list(vanishing))
    return actors


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_whole_run_costs_each_party_what_the_certificate_promises(method: str, public: Path) -> None:
    study = small(public, method, METHODS[method].tasks[0], colluding=1)
    plan = method_for(study).plan()
    if plan.is_pooled:
        ledgers = [Ledger()]
        groups = np.repeat(np.arange(study.parties.count), study.parties.records)
        simulate_records(study, records_of(study), groups, ledger=ledgers[0])
    else:
        ledgers = [ledger for ledger in ran(study).ledgers.values() if ledger.account().charges]
        assert len(ledgers) == plan.parties_asked
    for ledger in ledgers:
        assert spent(ledger, plan) == pytest.approx(expected(plan), rel=1e-9)


def test_a_run_that_ended_early_costs_each_party_what_its_certificate_says(public: Path, tmp_path: Path) -> None:
    """All of it: what was released has chosen where it ends."""
    features = np.random.default_rng(0).normal(size=(8, 4))
    np.savez(tmp_path / "validation.npz", X=features, y=np.arange(8) % 3)
    watched = {"validation": str(tmp_path / "validation.npz"), "validate_every": 1, "patience": 1}
    actors = ran(small(public, "cross-silo", "classification", keys={"rounds": 20, "rate": 1.0, **watched}))
    plan = actors.coordinator.plan
    for ledger in actors.ledgers.values():
        charges = ledger.account().charges.values()
        assert 1 < len(charges) < 20
        assert spent(ledger, plan) == pytest.approx(expected(plan), rel=1e-9)
        cost = spent_in(ledger, next(iter(charges)).run)
        told = spent_line(cost, plan, {"happened": {"epsilon": expected(plan)}})
        assert told.endswith(f"by {len(charges)} of the 20 vectors that the promise covers.")


@pytest.mark.parametrize(("method", "task"), list(methods_and_tasks()))
def test_all_planned_vectors_together_cost_the_plan(method: str, task: str, public: Path) -> None:
    """As often as a party may send, by its own count."""
    plan = method_for(small(public, method, task, attempts=2)).plan()
    ledger, run = Ledger(), plan.ledger_run("run")
    vectors = [planned for planned in plan.sums for _ in range(planned.releases)] if not plan.is_pooled else []
    for number, planned in enumerate(vectors):
        ledger.charge(run, str(number), plan.costs_of_a_vector(planned.name))
    if plan.is_pooled:
        ledger.charge(run, "simulated", plan.costs)
    assert spent(ledger, plan) == pytest.approx(expected(plan), rel=1e-9)
    assert ledger.spent().slack == plan.slack


def test_the_records_of_one_data_set_take_one_seat(public: Path) -> None:
    shared = Ledger()
    actors = Ledgered(small(public, "moments", "classification", colluding=1), lambda: shared)
    with pytest.raises(Refused, match=r"takes part in .* already, as another party"):
        actors.run([])
    assert len({charge.run for charge in shared.account().charges.values()}) <= 1


def independent(plan: Plan, runs: int) -> float:
    """ε of so many runs by dp-accounting's own accountant, from what the plan says in words for everyone."""
    sampling, kinds = plan.sums[0].sampling, dp_accounting.NeighboringRelation
    relation = kinds.ADD_OR_REMOVE_ONE if sampling is None else kinds.REPLACE_ONE
    accountant = PLDAccountant(relation, value_discretization_interval=1e-3)
    for release in plan.to_json()["releases"]:
        multiplier = release["noise_std"] / release["sensitivity"]
        event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(multiplier)
        if sampling is not None:
            event = dp_accounting.PoissonSampledDpEvent(sampling.rate, dp_accounting.GaussianDpEvent(2.0 * multiplier))
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, runs * release["count"]))
    return float(accountant.get_epsilon(plan.study.privacy.delta - runs * plan.slack))


@pytest.mark.parametrize("runs", [2, 19])
@pytest.mark.parametrize(
    ("method", "task"), [("moments", "classification"), ("voting", "classification"), ("cross-silo", "regression")]
)
def test_many_runs_cost_what_another_library_says(method: str, task: str, runs: int, public: Path) -> None:
    plan = method_for(small(public, method, task, epsilon=0.5)).plan()
    ledger = Ledger()
    for number in range(runs):
        for planned in plan.sums:
            for turn in range(planned.count):
                ledger.charge(
                    plan.ledger_run(str(number)), f"{planned.name}/{turn}", plan.costs_of_a_vector(planned.name)
                )
    found = spent(ledger, plan)
    assert found == pytest.approx(independent(plan, runs), rel=5e-3)
    assert found < 0.7 * runs * 0.5 or runs == 2


def test_a_study_that_would_exceed_the_limit_is_refused_before_anything_leaves(public: Path) -> None:
    """Already at its first request, though the first of its two turns alone would fit."""
    study = small(public, "moments", "classification", keys={"function": "network", "steps": 2, "hidden": 3})
    actors = Ledgered(study)
    for ledger in actors.ledgers.values():
        ledger.set_limit(1.9, study.privacy.delta)
    with pytest.raises(Refused, match=r'limit for "records" is epsilon = 1.9 .* "test" would bring it to 2;'):
        actors.run([])
    assert not actors.sent
    assert not any(ledger.account().charges for ledger in actors.ledgers.values())


def test_a_limit_that_another_study_reaches_meanwhile_stops_the_next_vector(public: Path) -> None:
    """In the midst of an attempt: after the setup, before the vector."""
    study = small(public, "helmet", "classification", summation="secagg+", colluding=1)
    actors = Ledgered(study)
    ledger = actors.ledgers[0]
    ledger.set_limit(2.5, study.privacy.delta)
    actors.send(actors.coordinator.start())
    actors.deliver(Vanishing([]))
    other = msgspec.structs.replace(actors.coordinator.plan.ledger_run("other"), study="other")
    ledger.charge(other, "a", [Gaussian(0.5)])
    messages: list[bytes] = []

    def deliver() -> None:
        for _ in range(10):
            actors.send(actors.coordinator.close_stage())
            actors.deliver(Vanishing([]))

    step = actors.step

    def noted(to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        if to == "party:0":
            messages.append(body)
        return step(to, body, gone, sender)

    actors.step = noted  # type: ignore[method-assign]
    with pytest.raises(Refused, match="would bring it to"):
        deliver()
    party = actors.parties["party:0"]
    assert not party.has_sent
    assert [attempt for _, attempt in ledger.account().charges] == ["a"]
    # It says the same again, and goes on when there is room.
    with pytest.raises(Refused, match="would bring it to"):
        party.receive(messages[-1])
    ledger.set_limit(None)
    assert party.receive(messages[-1])
    assert party.has_sent
    assert len(ledger.account().charges) == 2


def test_a_study_goes_on_with_the_ledger_that_it_began_with(public: Path) -> None:
    study = small(public, "conv", "classification")
    actors = ran(study)
    facts = (actors._method, actors._records[0], actors._keys.identity(0), actors._keys.roster)
    store = actors.stores["party:0"]
    Party(*facts, plan=actors._plan, store=store, ledger=actors.ledgers[0])
    with pytest.raises(StoreError, match="begun with a ledger"):
        Party(*facts, plan=actors._plan, store=store)
    with pytest.raises(StoreError, match="begun with another ledger"):
        Party(*facts, plan=actors._plan, store=store, ledger=Ledger())
    without = Actors(actors._method, actors._plan, federation_of(study), SecretStream(KEY))
    without.run([])
    facts = (without._method, without._records[0], without._keys.identity(0), without._keys.roster)
    with pytest.raises(StoreError, match="begun with no ledger"):
        Party(*facts, plan=without._plan, store=without.stores["party:0"], ledger=Ledger())


def test_the_ledger_recognises_a_party_whose_state_is_gone(public: Path) -> None:
    """With a new store it would send another vector, as often as the study is begun again."""
    actors = Ledgered(small(public, "conv", "classification"))
    ask = actors.coordinator.start()[0].body
    ledger = actors.ledgers[0]
    actors.stores["party:0"] = MemoryStore()
    assert actors.party(0).receive(ask)
    actors.stores["party:0"] = MemoryStore()
    with pytest.raises(StoreError, match=r"the ledger has charges of this study, but the state .* is gone"):
        actors.party(0)
    assert len(ledger.account().charges) == 1
    other = Ledgered(small(public, "conv", "classification", epsilon=0.7))
    other.ledgers[0] = ledger
    other.stores["party:0"] = MemoryStore()
    assert other.party(0).receive(other.coordinator.start()[0].body)
    assert len(ledger.account().charges) == 2


def test_it_does_so_under_the_name_of_another_data_set(public: Path, tmp_path: Path) -> None:
    """A party that goes on with its state is held to its own data set, though."""
    actors = Ledgered(small(public, "conv", "classification"))
    one, two = (Ledger(tmp_path / "ledger", dataset) for dataset in ("one", "two"))
    actors.ledgers[0], actors.stores["party:0"] = one, (store := MemoryStore())
    assert actors.party(0).receive(actors.coordinator.start()[0].body)
    assert (one.holds(actors.party(0).run), two.holds(actors.party(0).run)) == (True, False)
    actors.ledgers[0] = two
    with pytest.raises(StoreError, match="begun with another ledger, or another data set"):
        actors.party(0)
    actors.stores["party:0"] = MemoryStore()
    with pytest.raises(StoreError, match=r"the ledger has charges of this study, but the state .* is gone"):
        actors.party(0)
    actors.ledgers[0], actors.stores["party:0"] = one, store
    actors.party(0)


def test_an_attempt_that_was_charged_for_one_sum_pays_for_no_other(public: Path) -> None:
    """After a crash between charge and state, a lying coordinator asks for another sum under the same attempt."""
    plan = method_for(small(public, "moments", "classification")).plan()
    cheap, dear = (plan.costs_of_a_vector(planned.name) for planned in (plan.sums[0], plan.sums[-1]))
    ledger, run = Ledger(), plan.ledger_run("run")
    assert tuple(cheap) != tuple(dear)
    ledger.charge(run, "first", cheap)
    ledger.charge(run, "first", cheap)
    with pytest.raises(LedgerError, match="was charged for one sum and asked for another"):
        ledger.charge(run, "first", dear)
    assert len(ledger.account().charges) == 1


def test_failed_attempts_are_charged_too(public: Path) -> None:
    """Everyone's vector leaves, twice, and the coordinator makes nothing of the first."""
    study = small(public, "helmet", "classification", attempts=2)
    actors = Ledgered(study)
    close, failed = actors.coordinator.close_stage, []

    def fails_once() -> list[Envelope]:
        if actors.parties["party:0"].has_sent and not failed:
            failed.append(1)
            raise Aborted("a fault")
        return close()

    actors.coordinator.close_stage = fails_once  # type: ignore[method-assign]
    actors.run([])
    plan = actors.coordinator.plan
    assert failed
    for ledger in actors.ledgers.values():
        assert len(ledger.account().charges) == 2
        assert spent(ledger, plan) == pytest.approx(expected(plan), rel=1e-9)


@pytest.mark.parametrize("protocol", ["compute-nodes", "secagg+"])
def test_behind_a_closed_gate_no_vector_leaves_and_none_is_charged(protocol: str, public: Path) -> None:
    """Also not if the attempt was under way when the certificate came."""
    study = small(public, "helmet", "classification", summation=protocol, colluding=1)
    actors = Ledgered(study)
    party: Party = actors.parties["party:0"]
    party.gate.close()
    with pytest.raises(Refused, match="no vector leaves after it"):
        actors.run([])
    assert not party.sent
    assert not party.has_sent
    assert not actors.ledgers[0].account().charges
    again = actors.party(0)
    assert party._state == again._state
    assert _dumped(party) == _dumped(again)


def _dumped(party: Party) -> bytes:
    return b"" if party._course is None else party._course.endpoint.dump()
