"""CAPE run for real: the colluders' view of a run is attacked, its noise measured, its dropouts counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import unspoken
from factories import maker
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.outcome import vanishing_parties
from unspoken.methods.base import Cancel
from unspoken.methods.baselines import IndependentMessages, Local
from unspoken.methods.cape import Cape
from unspoken.methods.functions import Custom, FunctionMethod
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.planning.mechanisms import IndependentNoise, Participation
from unspoken.methods.workloads import Query
from unspoken.noise.stream import SecretStream
from unspoken.privacy.accounting import epsilon_of
from unspoken.roles.contributor import Contributor
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.totals import Messages, Totals
from unspoken.study import Study, StudyError, make_study
from unspoken.summation.base import Aborted, Rejected
from unspoken.summation.collection import CollectionCoordinator, OwnMessage
from unspoken.summation.simulated_keys import SimulatedEndpoints

KEY = bytes(range(32))


study = maker("cape", task="statistics", data={"features": 1}, parties={"count": 5, "max_records": 1})


def sites_with(agreed: Study, values: list[float]) -> ArrayFederation:
    """One record at each site."""
    records = Records(np.array(values)[:, None], np.zeros(len(values), dtype=np.int64))
    return ArrayFederation(agreed, records, np.arange(len(values)))


def repeated(agreed: Study, dimension: int, kind: type[FunctionMethod] = Cape) -> FunctionMethod:
    """f = the site's number, in each of many coordinates: with sensitivity 1 each is a trial of its own."""
    return kind(agreed, Custom(lambda rows: np.full(dimension, rows.sum()), dimension, 1.0, math.sqrt(dimension)))


class View:
    """What `colluding` sites and the coordinator see of a run, read off the wire and out of the colluders' memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, colluding: set[int]) -> None:
        self.messages: dict[int, np.ndarray] = {}
        self.common: dict[int, np.ndarray] = {}
        self.sum_of_common: np.ndarray = np.empty(0)
        take, draw, prepare = CollectionCoordinator.step, Contributor.common_noise, Totals.prepared
        draw_after, cancel = Contributor.noise_of_a_message, Totals.cancelled

        def step(endpoint: CollectionCoordinator, incoming: bytes) -> Any:
            message = msgspec.msgpack.decode(incoming, type=OwnMessage)
            words = endpoint._session.unpack(message.vector)
            self.messages[message.sender] = signed(words[:-1], endpoint._session.bits)
            return take(endpoint, incoming)

        def common_noise(contributor: Contributor, name: str, secrets: PartySecrets) -> Any:
            noise = draw(contributor, name, secrets)
            if secrets.index in colluding:
                self.common[secrets.index] = noise.view(np.int64).astype(float)
            return noise

        def prepared(totals: Totals, request: Any, coordinator: Any) -> Any:
            answer = prepare(totals, request, coordinator)
            bits = totals._plan.planned(request.name).encoding.bits
            self.sum_of_common = signed(totals.common[request.name].total, bits)
            return answer

        def noise_of_a_message(contributor: Contributor, name: str, common: Any, index: int) -> Any:
            noise = draw_after(contributor, name, common, index)
            if index in colluding:
                self.common[index] = noise.view(np.int64).astype(float)
            return noise

        def cancelled(totals: Totals, request: Any, coordinator: Any) -> Any:
            self.sum_of_common = signed(coordinator.total(), totals._plan.planned(request.name).encoding.bits)
            return cancel(totals, request, coordinator)

        monkeypatch.setattr(Contributor, "noise_of_a_message", noise_of_a_message)
        monkeypatch.setattr(Totals, "cancelled", cancelled)
        monkeypatch.setattr(CollectionCoordinator, "step", step)
        monkeypatch.setattr(Contributor, "common_noise", common_noise)
        monkeypatch.setattr(Totals, "prepared", prepared)


def signed(words: np.ndarray, bits: int) -> np.ndarray:
    shift = np.uint64(64 - bits)
    return ((words << shift).view(np.int64) >> np.int64(64 - bits)).astype(float)


@pytest.mark.parametrize(
    ("colluding", "correlation", "order"),
    [
        (1, 5.0, "noise-first"),
        (3, 5.0, "noise-first"),
        (2, None, "noise-first"),
        (2, 3.0, "messages-first"),
        (1, None, "messages-first"),
    ],
)
def test_the_best_attack_on_a_run_stays_below_the_promised_curve_and_comes_close_to_it(
    colluding: int, correlation: float | None, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likelihood-ratio test on the honest messages, given the sum of the honest ê, in 40,000 trials.

    Each rate of the attacker has a standard error of at most 0.0025; the margin of five of them is never exceeded by
    chance (and the key is fixed). The victim is site 0, the colluders are the last sites.
    """
    sites, trials = 5, 40_000
    agreed = study(
        parties=sites,
        method={"order": order} | ({} if correlation is None else {"correlation": correlation}),
        colluding=colluding,
        epsilon=4.0,
    )
    method = repeated(agreed, trials)
    plan = method.plan()
    planned = plan.planned("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    accomplices = set(range(sites - colluding, sites))
    honest = sites - colluding
    # Each trial is one number, whose sensitivity is 1 and some rounding.
    mu = planned.mu * (planned.encoding.scale + 1) / (planned.sensitivity * planned.encoding.scale)
    scores = []
    for number, value in enumerate((0.0, 1.0)):
        view = View(monkeypatch, accomplices)
        local.run(
            method,
            plan,
            sites_with(agreed, [value, *[0.0] * (sites - 1)]),
            secrets=SecretStream(KEY[number:] + KEY[:number]),
        )
        assert set(view.common) == accomplices
        honest_sum = view.sum_of_common - sum(view.common.values())
        noise = planned.noise
        covariance = noise.common * (np.eye(honest) - 1.0 / honest) + noise.own * np.eye(honest)
        direction = np.linalg.solve(covariance, np.eye(honest)[0])
        messages = np.stack([view.messages[site] - honest_sum / honest for site in range(honest)])
        scores.append(direction @ messages)
        monkeypatch.undo()
    thresholds = np.quantile(np.concatenate(scores), np.linspace(0.02, 0.98, 49))
    false_alarms = np.array([(scores[0] > threshold).mean() for threshold in thresholds])
    found = np.array([(scores[1] > threshold).mean() for threshold in thresholds])
    promised = ndtr(ndtri(false_alarms) + mu)
    assert (found <= promised + 0.0125).all()
    assert (found >= promised - 0.0125).all()
    assert (found - false_alarms).max() > 0.8 * (2 * ndtr(mu / 2) - 1)


def totals(method: FunctionMethod, federation: ArrayFederation, **options: Any) -> np.ndarray:
    outcome = local.run(method, method.plan(), federation, secrets=SecretStream(KEY), **options)
    return np.array(outcome.release.statistics["total"])


def test_the_total_s_noise_is_the_pooled_one_and_a_gain_of_s_over_independent_noise() -> None:
    """Lemma 1 and Proposition 1, measured: 50,000 numbers a method, so deviations are known to 0.3 %."""
    sites, count = 5, 50_000
    agreed = study(parties=sites, method={"correlation": float(sites)})
    cape, conv = repeated(agreed, count), repeated(study(parties=sites), count, IndependentMessages)
    noise = cape.plan().planned("function").noise
    assert isinstance(noise, CorrelatedNoise)
    scale = cape.plan().planned("function").encoding.scale
    # What a site alone would need: τ², of which CAPE makes ê of variance τ² and g of τ²/S.
    tau_squared = (noise.common - 12.5) / scale**2
    assert noise.own - 18.75 == pytest.approx((noise.common - 12.5) / sites, rel=1e-9)
    measured = float(totals(cape, sites_with(agreed, [0.0] * sites)).var()) / sites**2
    pooled = tau_squared / sites**2
    assert measured == pytest.approx(pooled, rel=0.02)
    conventional = IndependentNoise(noise.common, sites).total(Participation(sites, sites)) / scale**2 / sites**2
    assert conventional / measured == pytest.approx(sites, rel=0.02)
    # At equal true μ the gain is 1/[1/h + (1 − 1/h)/(κ + 1)], h = 4 honest sites.
    measured_conv = float(totals(conv, sites_with(agreed, [0.0] * sites)).var()) / sites**2
    assert measured_conv / measured == pytest.approx(1.0 / (1 / 4 + (3 / 4) / (sites + 1)), rel=0.03)


def test_with_nobody_to_vanish_the_total_is_as_good_as_a_secure_sum_s() -> None:
    agreed = study(parties=10, colluding=3)
    planned = Cape(agreed).plan().planned("function")
    shares = planned.noise_std * math.sqrt(10 / 7)
    assert planned.total_std(10) == pytest.approx(shares, rel=0.002)


@pytest.mark.parametrize("protocol", ["compute-nodes", "secagg", "secagg+", "pairwise", "ideal"])
def test_the_total_is_right_over_any_summation(protocol: str) -> None:
    agreed = study(parties=10, summation=protocol)
    values = [float(value) / 10 for value in range(10)]
    total = totals(repeated(agreed, 400), sites_with(agreed, values))
    deviation = Cape(agreed).plan().planned("function").total_std(10) * 20  # sensitivity 1 a number, not 1 in all
    assert abs(total.mean() - sum(values)) < 5 * deviation / 20


def test_a_site_that_vanishes_after_its_noise_leaves_noise_and_no_bias() -> None:
    """One of two vanishing sites goes in the noise phase, the other between its noise and its message."""
    count = 50_000
    agreed = study(parties=8, dropouts=2, method={"order": "noise-first"})
    method = repeated(agreed, count)
    plan = method.plan()
    outcome = local.run(method, plan, sites_with(agreed, [0.5] * 8), drop=2, secrets=SecretStream(KEY))
    assert outcome.participation == {"function": [Participation(prepared=7, sent=6)]}
    total = np.array(outcome.release.statistics["total"])
    planned = plan.planned("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    expected = math.sqrt(6 * planned.noise.own + planned.noise.common) / planned.encoding.scale
    assert outcome.release.details["noise_std"] == pytest.approx(expected)
    assert total.std() == pytest.approx(expected, rel=0.02)
    assert abs(total.mean() - 3.0) < 5 * expected / math.sqrt(count)
    # The guarantee counts the seven whose noise was summed, one of them a colluder.
    assert plan.released(outcome.participation).epsilon <= plan.guarantee.epsilon
    mu = plan.released(outcome.participation).mu
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
    outcome = local.run(method, plan, sites_with(agreed, [0.5] * 8), drop=2, secrets=SecretStream(KEY))
    assert outcome.participation == {"function": [Participation(prepared=6, sent=6)]}
    total, planned = np.array(outcome.release.statistics["total"]), plan.planned("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    expected = math.sqrt(6 * planned.noise.own) / planned.encoding.scale
    assert outcome.release.details["noise_std"] == pytest.approx(expected)
    assert total.std() == pytest.approx(expected, rel=0.02)
    assert abs(total.mean() - 3.0) < 5 * expected / math.sqrt(count)
    assert outcome.release.details["records"] == 6
    mu = plan.released(outcome.participation).mu
    assert mu == pytest.approx(planned.mu, rel=1e-9)


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_with_messages_first_there_is_never_more_noise_than_independent_noise_has(dropped: int) -> None:
    """At 5 sites, of which 2 may vanish: with the other order one vanished site is enough to lose against "conv"."""
    agreed = study(parties=5, dropouts=2)
    planned, sent = Cape(agreed).plan().planned("function"), 5 - dropped
    independent = IndependentMessages(agreed).plan().planned("function").total_std(sent)
    assert planned.total_std(sent, sent) < 0.8 * independent
    first = Cape(study(parties=5, dropouts=2, method={"order": "noise-first"})).plan()
    assert (first.planned("function").total_std(sent, 5) > independent) == (dropped > 0)
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
    planned, parties = plan.planned("function"), [PartySecrets(KEY, index) for index in range(4)]
    drawn = [
        planned.noise.prepared(5, party.common(turn), party.index).tobytes() for party in parties for turn in range(3)
    ]
    assert len(set(drawn)) == 12
    # Three releases of the whole: μ is √3 times that of one.
    assert plan.guarantee.mu == pytest.approx(math.sqrt(3) * plan.planned("function").mu)


def test_a_method_cannot_ask_more_often_than_it_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = study(parties=4)
    method = IndependentMessages(agreed)

    def greedy(plan: Any) -> Iterator[Any]:
        yield method.request(Query("function"))
        yield method.request(Query("function"))

    monkeypatch.setattr(method, "coordinate", greedy)
    with pytest.raises(Refused, match="more often than planned"):
        local.run(method, method.plan(), sites_with(agreed, [0.5] * 4))


def test_local_hears_one_site_only() -> None:
    agreed = study(parties=4)
    method = repeated(agreed, 50_000, Local)
    outcome = local.run(method, method.plan(), sites_with(agreed, [0.25, 9.0, 9.0, 9.0]), secrets=SecretStream(KEY))
    assert outcome.participation == {"function": [Participation(1, 1)]}
    total = np.array(outcome.release.statistics["total"])
    assert total.mean() == pytest.approx(0.25, abs=5 * outcome.release.details["noise_std"] / math.sqrt(50_000))


def test_messages_that_were_changed_or_come_twice_are_rejected() -> None:
    agreed = study(parties=3)
    method = Cape(agreed)
    plan = method.plan()
    protocol = SimulatedEndpoints(plan.collection(plan.planned("function")), SecretStream(KEY))
    coordinator = protocol.coordinator()
    vector = np.arange(plan.planned("function").length, dtype=np.uint64)
    (envelope,) = protocol.party(1, SecretStream()).submit(vector)
    changed = bytearray(envelope.body)
    changed[envelope.body.index(vector.astype(f"<u{plan.planned('function').encoding.bits // 8}").tobytes())] ^= 1
    with pytest.raises(Rejected):
        coordinator.step(bytes(changed))
    with pytest.raises(Rejected):
        coordinator.step(
            SimulatedEndpoints(plan.collection(plan.planned("function"), turn=1), SecretStream(KEY))
            .party(1, SecretStream())
            .submit(vector)[0]
            .body
        )
    coordinator.step(envelope.body)
    with pytest.raises(Rejected):
        coordinator.step(envelope.body)
    assert coordinator.survivors().tolist() == [False, True, False]


@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
def test_each_site_has_the_promise_that_it_asked_for(order: str) -> None:
    """And adds the noise for it, of which the total's is the sum, measured on 50,000 numbers: two sites want more."""
    count, wanted = 50_000, [2.0, 0.5, 2.0, 1.0, 2.0]
    agreed = study(parties=5, epsilon=2.0, method={"order": order, "epsilons": wanted})
    method = repeated(agreed, count)
    plan = method.plan()
    promised = [kept["epsilon"] for kept in plan.to_json()["promises"]]
    assert promised == pytest.approx(wanted, rel=0.005)
    assert method.plan() == plan
    assert all(kept <= own * (1.0 + 1e-9) for kept, own in zip(promised, wanted, strict=True))
    assert any("epsilon = 2 of 0, 0.5 of 1, 2 of 2" in note for note in plan.notes)
    planned = plan.planned("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    found = []
    for site in range(5):
        common, own = planned.noise.variances(site)
        secrets = PartySecrets(KEY, site)
        added = planned.noise.added(count, secrets.noise((), secrets.common(0))).view(np.int64)
        assert (added / math.sqrt(common + own)).var() == pytest.approx(1.0, rel=0.03)
        found.append(own)
    outcome = local.run(method, plan, sites_with(agreed, [0.5] * 5), secrets=SecretStream(KEY))
    total = np.array(outcome.release.statistics["total"])
    assert total.std() == pytest.approx(math.sqrt(sum(found)) / planned.encoding.scale, rel=0.02)
    assert outcome.release.details["noise_std"] == pytest.approx(math.sqrt(sum(found)) / planned.encoding.scale)
    # The total is public, so it must hide the strictest site: the others' weaker promises save the colluder's share.
    alike = repeated(study(parties=5, epsilon=0.5, method={"order": order}), count).plan().planned("function")
    assert 0.85 * alike.total_std(5) < planned.total_std(5) < alike.total_std(5)


def test_the_noise_of_what_was_released_is_that_of_the_sites_in_it() -> None:
    """The site that asked for more vanishes, and its noise with it."""
    agreed = study(parties=6, epsilon=2.0, dropouts=1, method={"epsilons": [2.0, 2.0, 2.0, 2.0, 0.2, 2.0]})
    method = repeated(agreed, 1000)
    planned = method.plan().planned("function")
    gone = vanishing_parties(6, 1, 3)
    stated = {}
    for site in (gone[0], (gone[0] + 1) % 6):
        wanted = [0.2 if index == site else 2.0 for index in range(6)]
        agreed = study(parties=6, epsilon=2.0, dropouts=1, method={"epsilons": wanted})
        method = repeated(agreed, 1000)
        outcome = local.run(method, method.plan(), sites_with(agreed, [0.5] * 6), drop=1, seed=3)
        stated[site == gone[0]] = outcome.release.details["noise_std"]
    assert isinstance(planned.noise, CorrelatedNoise)
    assert stated[True] == pytest.approx(math.sqrt(5 * planned.noise.own) / planned.encoding.scale)
    assert stated[False] > 2.0 * stated[True]


@pytest.mark.parametrize(
    ("epsilons", "words"),
    [([1.0] * 4, "has 4 numbers, but should have one for each of 5"), ([1.0] * 4 + [3.0], "has 3, but should have")],
)
def test_promises_of_their_own_are_one_for_each_site_and_none_above_that_of_all(
    epsilons: list[float], words: str
) -> None:
    with pytest.raises(StudyError, match=rf"epsilons {words}"):
        Cape(study(parties=5, epsilon=2.0, method={"epsilons": epsilons})).plan()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": "party"}, "protects records"),
        ({"colluding": 4, "dropouts": 1}, "no honest party"),
    ],
)
def test_what_cannot_be_promised_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        Cape(study(parties=5, **changes)).plan()


def test_a_correlation_below_one_is_refused_with_the_remedy() -> None:
    with pytest.raises(StudyError, match=r"correlation.*from 1"):
        Cape(study(parties=5, method={"correlation": 0.5}))


def test_the_published_settings_are_a_key_and_what_is_given_stays() -> None:
    agreed = study(parties=5, task="regression", data={"features": 2, "label_bounds": [0, 1]})
    content = agreed.model_dump(exclude_none=True)
    content["method"] = {"name": "cape", "published": True, "order": "messages-first"}
    paper = Cape(make_study(content))
    options = paper.read_options()
    assert (options.correlation, options.reshape, options.repair) == (5.0, False, "none")
    assert options.order == "messages-first"
    assert [planned.name for planned in paper.plan().sums] == ["function"]
    assert [planned.name for planned in Cape(agreed).plan().sums] == ["scale", "function"]
    noise = paper.plan().sums[0].noise
    assert isinstance(noise, CorrelatedNoise)
    assert noise.ratio == 5.0


@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
def test_the_certificate_states_the_noise_of_what_was_released(order: str) -> None:
    """Two of eight sites vanish, one of them after its ê, or after its message."""
    content = study(parties=8, dropouts=2, method={"order": order}).model_dump(exclude_none=True)
    done = unspoken.simulate(content, np.full((8, 1), 0.5), None, np.arange(8), drop=2)
    (there,) = done.outcome.participation["function"]
    planned = done.plan.planned("function")
    stated = done.certificate["happened"]["noise_std_of_totals"]["function"]
    assert stated == planned.total_std(6, there.prepared)
    assert stated != pytest.approx(done.certificate["releases"][0]["total_noise_std"], rel=0.05)
    # What was released has it: of a mean of six numbers, in the units of the mean.
    told = next(iter(done.outcome.release.statistics.values()))["noise_std"]
    assert told == pytest.approx(stated / 6)


def test_the_certificate_states_the_noise_without_that_of_a_site_that_asked_for_more_and_vanished() -> None:
    (gone,) = vanishing_parties(8, 1, 0)
    wanted = [0.1 if site == gone else 2.0 for site in range(8)]
    content = study(parties=8, epsilon=2.0, dropouts=1, method={"epsilons": wanted}).model_dump(exclude_none=True)
    done = unspoken.simulate(content, np.full((8, 1), 0.5), None, np.arange(8), drop=1, seed=0)
    stated = done.certificate["happened"]["noise_std_of_totals"]["function"]
    planned = done.plan.planned("function")
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
    planned, kept = plan.planned("function"), Totals(plan)
    kept.messages["function"] = Messages(np.arange(3), np.zeros((3, planned.length), dtype=np.uint64))
    coordinator = mock.Mock()
    coordinator.survivors.return_value = np.ones(4, dtype=np.bool_)
    with pytest.raises(Aborted, match="party:3 added up the noise of a message that it did not send"):
        kept.cancelled(Cancel("function"), coordinator)
