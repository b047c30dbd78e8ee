"""CAPE run for real: the colluders' view of a run is attacked, its noise measured, its dropouts counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from factories import maker
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.methods.baselines import IndependentMessages, Local
from unspoken.methods.cape import Cape
from unspoken.methods.functions import Custom, FunctionMethod
from unspoken.methods.mechanisms import CorrelatedNoise, IndependentNoise, Participation
from unspoken.methods.parameters import Refused
from unspoken.methods.workloads import Query
from unspoken.noise.stream import SecretStream
from unspoken.roles.contributor import Contributor
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.totals import Totals
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

        monkeypatch.setattr(CollectionCoordinator, "step", step)
        monkeypatch.setattr(Contributor, "common_noise", common_noise)
        monkeypatch.setattr(Totals, "prepared", prepared)


def signed(words: np.ndarray, bits: int) -> np.ndarray:
    shift = np.uint64(64 - bits)
    return ((words << shift).view(np.int64) >> np.int64(64 - bits)).astype(float)


@pytest.mark.parametrize(("colluding", "correlation"), [(1, 5.0), (3, 5.0), (2, None)])
def test_the_best_attack_on_a_run_stays_below_the_promised_curve_and_comes_close_to_it(
    colluding: int, correlation: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likelihood-ratio test on the honest messages, given the sum of the honest ê, in 40,000 trials.

    Each rate of the attacker has a standard error of at most 0.0025; the margin of five of them is never exceeded by
    chance (and the key is fixed). The victim is site 0, the colluders are the last sites.
    """
    sites, trials = 5, 40_000
    agreed = study(
        parties=sites,
        method={} if correlation is None else {"correlation": correlation},
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
    agreed = study(parties=8, dropouts=2)
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


def test_too_many_vanished_end_in_an_abort() -> None:
    agreed = study(parties=8, dropouts=1)
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
    drawn = [planned.noise.prepared(5, party.common(turn)).tobytes() for party in parties for turn in range(3)]
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
