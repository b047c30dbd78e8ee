"""Runs of CAPE: sites that vanish, noise that is prepared and used once, messages, certificates and ledgers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import unspoken
from cape_studies import KEY, repeated, sites_with, study, totals
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.base import Cancel
from unspoken.methods.baselines import IndependentMessages
from unspoken.methods.cape import Cape
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.workloads import Query
from unspoken.noise.stream import SecretStream
from unspoken.privacy.accounting import epsilon_of
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.totals import Messages, Totals
from unspoken.study import make_study
from unspoken.summation.base import Aborted, Rejected
from unspoken.summation.simulated_keys import SimulatedEndpoints


def test_a_site_that_vanishes_after_its_noise_leaves_noise_and_no_bias() -> None:
    """One of two vanishing sites goes in the noise phase, the other between its noise and its message."""
    count = 50_000
    agreed = study(parties=8, dropouts=2, method={"order": "noise-first"})
    method = repeated(agreed, count)
    plan = method.plan()
    outcome = local.run(method, plan, sites_with(agreed, [0.5] * 8), Conditions(drop=2, secrets=SecretStream(KEY)))
    assert outcome.participation == {"function": [Participation(prepared=7, sent=6)]}
    total = np.array(outcome.release.statistics["total"])
    planned = plan.sum_named("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    expected = math.sqrt(6 * planned.noise.own + planned.noise.common) / planned.encoding.scale
    assert outcome.release.details["noise_std"] == pytest.approx(expected)
    assert total.std() == pytest.approx(expected, rel=0.02)
    assert abs(total.mean() - 3.0) < 5 * expected / math.sqrt(count)
    # The guarantee counts the seven whose noise was summed, one of them a colluder.
    assert plan.guarantee_after(outcome.participation).epsilon <= plan.guarantee.epsilon
    mu = plan.guarantee_after(outcome.participation).mu
    assert mu is not None
    assert mu == pytest.approx(
        planned.sensitivity * planned.encoding.scale / math.sqrt(planned.noise.adversary_variance(Participation(7, 7)))
    )


def test_whoever_vanishes_when_messages_come_first_leaves_no_noise_behind() -> None:
    """One of two vanishing sites sends no message, the other does, and is not in the sum of the noise: the total is of
    the six that are left, with their own noise alone. It is what is stated, measured on 50,000 numbers."""
    count = 50_000
    agreed = study(parties=8, dropouts=2)
    method = repeated(agreed, count)
    plan = method.plan()
    outcome = local.run(method, plan, sites_with(agreed, [0.5] * 8), Conditions(drop=2, secrets=SecretStream(KEY)))
    assert outcome.participation == {"function": [Participation(prepared=6, sent=6)]}
    total, planned = np.array(outcome.release.statistics["total"]), plan.sum_named("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    expected = math.sqrt(6 * planned.noise.own) / planned.encoding.scale
    assert outcome.release.details["noise_std"] == pytest.approx(expected)
    assert total.std() == pytest.approx(expected, rel=0.02)
    assert abs(total.mean() - 3.0) < 5 * expected / math.sqrt(count)
    assert outcome.release.details["records"] == 6
    mu = plan.guarantee_after(outcome.participation).mu
    assert mu == pytest.approx(planned.mu, rel=1e-9)


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_with_messages_first_there_is_never_more_noise_than_independent_noise_has(dropped: int) -> None:
    """At 5 sites, of which 2 may vanish: with the other order one vanished site is enough to lose against "conv"."""
    agreed = study(parties=5, dropouts=2)
    planned, sent = Cape(agreed).plan().sum_named("function"), 5 - dropped
    independent = IndependentMessages(agreed).plan().sum_named("function").total_std(sent)
    assert planned.total_std(sent, sent) < 0.8 * independent
    first = Cape(study(parties=5, dropouts=2, method={"order": "noise-first"})).plan()
    assert (first.sum_named("function").total_std(sent, 5) > independent) == (dropped > 0)
    assert any("more noise" in note and "1 party vanishes" in note for note in first.notes)


def test_messages_whose_noise_is_never_added_up_have_cost_their_epsilon() -> None:
    """Too many vanish between the messages and the sum: nothing is released, but messages have left."""
    agreed = study(parties=8, dropouts=1)
    with pytest.raises(Aborted, match=r"epsilon = [1-9]|epsilon = 0\.[0-9]*[1-9]") as ended:
        totals(repeated(agreed, 10), sites_with(agreed, [0.5] * 8), drop=4)
    assert "cost no epsilon" not in str(ended.value)


def test_too_many_vanished_end_in_an_abort() -> None:
    agreed = study(parties=8, dropouts=1, method={"order": "noise-first"})
    with pytest.raises(Aborted):
        totals(repeated(agreed, 10), sites_with(agreed, [0.5] * 8), drop=4)


def test_common_noise_is_prepared_for_all_turns_at_once_and_never_used_twice() -> None:
    """A network of three steps: one preparation, three messages, and as many different common noises a site."""
    content = study(parties=4, method={"function": "network", "steps": 3, "hidden": 2}).model_dump(exclude_none=True)
    content["study"]["task"], content["data"] = "classification", {"features": 2, "classes": 2}
    content["parties"]["max_records"] = 10
    agreed = make_study(content)
    method = Cape(agreed)
    plan = method.plan()
    rng = np.random.default_rng(0)
    records = Records(rng.normal(size=(40, 2)), rng.integers(0, 2, 40))
    outcome = local.run(method, plan, ArrayFederation(agreed, records, np.arange(40) % 4))
    assert plan.rounds == 4
    assert outcome.participation == {"function": [Participation(4, 4)] * 3}
    planned, parties = plan.sum_named("function"), [PartySecrets(KEY, index) for index in range(4)]
    drawn = [
        planned.noise.prepared(5, party.common(turn), party.index).tobytes() for party in parties for turn in range(3)
    ]
    assert len(set(drawn)) == 12
    # Three releases of the whole: μ is √3 times that of one.
    assert plan.guarantee.mu == pytest.approx(math.sqrt(3) * plan.sum_named("function").mu)


def test_a_method_cannot_ask_more_often_than_it_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = study(parties=4)
    method = IndependentMessages(agreed)

    def greedy(plan: Any) -> Iterator[Any]:
        yield method.request(Query("function"))
        yield method.request(Query("function"))

    monkeypatch.setattr(method, "coordinate", greedy)
    with pytest.raises(Refused, match="more often than planned"):
        local.run(method, method.plan(), sites_with(agreed, [0.5] * 4))


def test_messages_that_were_changed_or_come_twice_are_rejected() -> None:
    agreed = study(parties=3)
    method = Cape(agreed)
    plan = method.plan()
    protocol = SimulatedEndpoints(plan.collection(plan.sum_named("function")), SecretStream(KEY))
    coordinator = protocol.coordinator()
    vector = np.arange(plan.sum_named("function").length, dtype=np.uint64)
    (envelope,) = protocol.party(1, SecretStream()).submit(vector)
    changed = bytearray(envelope.body)
    changed[envelope.body.index(vector.astype(f"<u{plan.sum_named('function').encoding.bits // 8}").tobytes())] ^= 1
    with pytest.raises(Rejected):
        coordinator.step(bytes(changed))
    with pytest.raises(Rejected):
        coordinator.step(
            SimulatedEndpoints(plan.collection(plan.sum_named("function"), turn=1), SecretStream(KEY))
            .party(1, SecretStream())
            .submit(vector)[0]
            .body
        )
    coordinator.step(envelope.body)
    with pytest.raises(Rejected):
        coordinator.step(envelope.body)
    assert coordinator.survivors().tolist() == [False, True, False]


@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
def test_the_certificate_states_the_noise_of_what_was_released(order: str) -> None:
    """Two of eight sites vanish, one of them after its ê, or after its message."""
    content = study(parties=8, dropouts=2, method={"order": order}).model_dump(exclude_none=True)
    done = unspoken.simulate(content, np.full((8, 1), 0.5), None, np.arange(8), drop=2)
    (there,) = done.outcome.participation["function"]
    planned = done.plan.sum_named("function")
    stated = done.certificate["happened"]["noise_std_of_totals"]["function"]
    assert stated == planned.total_std(6, there.prepared)
    assert stated != pytest.approx(done.certificate["releases"][0]["total_noise_std"], rel=0.05)
    # What was released has it: of a mean of six numbers, in the units of the mean.
    told = next(iter(done.outcome.release.statistics.values()))["noise_std"]
    assert told == pytest.approx(stated / 6)


def test_the_certificate_states_the_noise_without_that_of_a_site_that_asked_for_more_and_vanished() -> None:
    (gone,) = Conditions(1).vanishing(8)
    wanted = [0.1 if site == gone else 2.0 for site in range(8)]
    content = study(parties=8, epsilon=2.0, dropouts=1, method={"epsilons": wanted}).model_dump(exclude_none=True)
    done = unspoken.simulate(content, np.full((8, 1), 0.5), None, np.arange(8), drop=1, seed=0)
    stated = done.certificate["happened"]["noise_std_of_totals"]["function"]
    planned = done.plan.sum_named("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    assert stated == pytest.approx(math.sqrt(7 * planned.noise.own) / planned.encoding.scale)


def test_a_site_s_ledger_is_charged_by_its_own_promise() -> None:
    agreed = study(parties=4, epsilon=2.0, method={"epsilons": [2.0, 0.5, 2.0, 2.0]})
    plan = Cape(agreed).plan()
    (one,), (other,) = (plan.costs_of_a_vector("function", party) for party in (0, 1))
    assert one.mu == pytest.approx(plan.costs_of_a_vector("function")[0].mu, rel=1e-9)
    assert plan.costs_of(2)[0].mu == one.mu
    spent = epsilon_of(replace(plan.spend, events=(other,)), plan.guarantee.delta)
    assert spent == pytest.approx(0.5, rel=1e-6)


def test_whoever_adds_up_noise_of_a_message_that_it_did_not_send_ends_the_attempt() -> None:
    """Its ê would be taken from a total without its message."""
    plan = Cape(study(parties=4, method={"order": "messages-first"})).plan()
    planned, kept = plan.sum_named("function"), Totals(plan)
    kept.messages["function"] = Messages(np.arange(3), np.zeros((3, planned.length), dtype=np.uint64))
    coordinator = mock.Mock()
    coordinator.survivors.return_value = np.ones(4, dtype=np.bool_)
    with pytest.raises(Aborted, match="party:3 added up the noise of a message that it did not send"):
        kept.cancelled(Cancel("function"), coordinator)
