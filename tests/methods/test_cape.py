"""CAPE run for real: the colluders' view of a run is attacked, its noise measured, its promises checked."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from cape_studies import KEY, repeated, sites_with, study, totals
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.baselines import IndependentMessages, Local
from unspoken.methods.cape import Cape
from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.planning.mechanisms import IndependentNoise, Participation
from unspoken.noise.stream import SecretStream
from unspoken.roles.contributor import Contributor
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.totals import Totals
from unspoken.study import StudyError, make_study
from unspoken.summation.collection import CollectionCoordinator, OwnMessage


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
            bits = totals._plan.sum_named(request.name).encoding.bits
            self.sum_of_common = signed(totals.common[request.name].total, bits)
            return answer

        def noise_of_a_message(contributor: Contributor, name: str, common: Any, index: int) -> Any:
            noise = draw_after(contributor, name, common, index)
            if index in colluding:
                self.common[index] = noise.view(np.int64).astype(float)
            return noise

        def cancelled(totals: Totals, request: Any, coordinator: Any) -> Any:
            self.sum_of_common = signed(coordinator.total(), totals._plan.sum_named(request.name).encoding.bits)
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
    planned = plan.sum_named("function")
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
            Conditions(secrets=SecretStream(KEY[number:] + KEY[:number])),
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


def test_the_total_s_noise_is_the_pooled_one_and_a_gain_of_s_over_independent_noise() -> None:
    """Lemma 1 and Proposition 1, measured: 50,000 numbers a method, so deviations are known to 0.3 %."""
    sites, count = 5, 50_000
    agreed = study(parties=sites, method={"correlation": float(sites)})
    cape, conv = repeated(agreed, count), repeated(study(parties=sites), count, IndependentMessages)
    noise = cape.plan().sum_named("function").noise
    assert isinstance(noise, CorrelatedNoise)
    scale = cape.plan().sum_named("function").encoding.scale
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
    planned = Cape(agreed).plan().sum_named("function")
    shares = planned.noise_std * math.sqrt(10 / 7)
    assert planned.total_std(10) == pytest.approx(shares, rel=0.002)


@pytest.mark.parametrize("protocol", ["compute-nodes", "secagg", "secagg+", "pairwise", "ideal"])
def test_the_total_is_right_over_any_summation(protocol: str) -> None:
    agreed = study(parties=10, summation=protocol)
    values = [float(value) / 10 for value in range(10)]
    total = totals(repeated(agreed, 400), sites_with(agreed, values))
    deviation = Cape(agreed).plan().sum_named("function").total_std(10) * 20  # sensitivity 1 a number, not 1 in all
    assert abs(total.mean() - sum(values)) < 5 * deviation / 20


def test_local_hears_one_site_only() -> None:
    agreed = study(parties=4)
    method = repeated(agreed, 50_000, Local)
    outcome = local.run(
        method, method.plan(), sites_with(agreed, [0.25, 9.0, 9.0, 9.0]), Conditions(secrets=SecretStream(KEY))
    )
    assert outcome.participation == {"function": [Participation(1, 1)]}
    total = np.array(outcome.release.statistics["total"])
    assert total.mean() == pytest.approx(0.25, abs=5 * outcome.release.details["noise_std"] / math.sqrt(50_000))


@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ([2.0, 0.5, 2.0, 2.0, 2.0], [2.0, 0.5, 2.0, 2.0, 2.0]),
        # Two sites want more. One of them may collude, so the others had better help.
        ([2.0, 0.5, 2.0, 1.0, 2.0], [1.0, 0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_each_site_has_the_promise_that_it_asked_for(order: str, wanted: list[float], kept: list[float]) -> None:
    """And adds the noise for it, of which the total's is the sum, measured on 50,000 numbers."""
    count = 50_000
    agreed = study(parties=5, epsilon=2.0, method={"order": order, "epsilons": wanted})
    method = repeated(agreed, count)
    plan = method.plan()
    promised = [kept["epsilon"] for kept in plan.to_json()["promises"]]
    assert promised == pytest.approx(kept, rel=0.005)
    assert method.plan() == plan
    assert all(found <= own * (1.0 + 1e-9) for found, own in zip(promised, wanted, strict=True))
    told = "epsilon = {:g} for party 0, {:g} for party 1, {:g} for party 2".format(*kept)
    assert any(told in note for note in plan.notes)
    planned = plan.sum_named("function")
    assert isinstance(planned.noise, CorrelatedNoise)
    found = []
    for site in range(5):
        common, own = planned.noise.variances(site)
        secrets = PartySecrets(KEY, site)
        added = planned.noise.added(count, secrets.noise((), secrets.common(0))).view(np.int64)
        assert (added / math.sqrt(common + own)).var() == pytest.approx(1.0, rel=0.03)
        found.append(own)
    outcome = local.run(method, plan, sites_with(agreed, [0.5] * 5), Conditions(secrets=SecretStream(KEY)))
    total = np.array(outcome.release.statistics["total"])
    assert total.std() == pytest.approx(math.sqrt(sum(found)) / planned.encoding.scale, rel=0.02)
    assert outcome.release.details["noise_std"] == pytest.approx(math.sqrt(sum(found)) / planned.encoding.scale)
    # The total is public, so it must hide the strictest site: the others' weaker promises save the colluder's share.
    alike = repeated(study(parties=5, epsilon=0.5, method={"order": order}), count).plan().sum_named("function")
    assert 0.85 * alike.total_std(5) < planned.total_std(5) < alike.total_std(5)


@pytest.mark.parametrize("strict", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
def test_strict_sites_never_cost_more_noise_than_if_all_were_as_strict(order: str, strict: int) -> None:
    """Each counts on the others' noise too, and where they are several, the others add a share."""
    wanted = [0.05] * strict + [1.0] * (5 - strict)
    own = Cape(study(parties=5, epsilon=1.0, method={"order": order, "epsilons": wanted})).plan().sums[0]
    alike = Cape(study(parties=5, epsilon=0.05, method={"order": order})).plan().sums[0]
    assert own.total_std(5) <= alike.total_std(5) * 1.001
    assert own.total_std(5) > 0.89 * alike.total_std(5)


def test_the_noise_of_what_was_released_is_that_of_the_sites_in_it() -> None:
    """The site that asked for more vanishes, and its noise with it."""
    agreed = study(parties=6, epsilon=2.0, dropouts=1, method={"epsilons": [2.0, 2.0, 2.0, 2.0, 0.2, 2.0]})
    method = repeated(agreed, 1000)
    planned = method.plan().sum_named("function")
    gone = Conditions(1, 3).vanishing(6)
    stated = {}
    for site in (gone[0], (gone[0] + 1) % 6):
        wanted = [0.2 if index == site else 2.0 for index in range(6)]
        agreed = study(parties=6, epsilon=2.0, dropouts=1, method={"epsilons": wanted})
        method = repeated(agreed, 1000)
        outcome = local.run(method, method.plan(), sites_with(agreed, [0.5] * 6), Conditions(drop=1, seed=3))
        stated[site == gone[0]] = outcome.release.details["noise_std"]
    assert isinstance(planned.noise, CorrelatedNoise)
    assert stated[True] == pytest.approx(math.sqrt(5 * planned.noise.own) / planned.encoding.scale)
    assert stated[False] > 2.0 * stated[True]


@pytest.mark.parametrize(
    ("epsilons", "words"),
    [
        ([1.0] * 4, "has 4 numbers, but should have one for each of 5"),
        ([1.0] * 4 + [3.0], "has 3, but should have"),
        ([1.0] * 4 + [1e-5], r"has 1e-05, but should have numbers from 0\.0001 up to \[privacy\] epsilon, 2"),
    ],
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 1e-4, "method": {"correlation": 1e9}}, r"correlation is 1e\+09, .* too large to be drawn; choose"),
        (
            {"epsilon": 1.0, "method": {"correlation": 1e9, "epsilons": [1.0, 1e-4, 1.0, 1.0, 1.0]}},
            r"epsilons has 0\.0001, for which noise is too large to be drawn; choose larger ones",
        ),
    ],
)
def test_noise_that_nobody_can_draw_is_refused_by_the_plan(changes: dict[str, Any], words: str) -> None:
    """Not by the parties, in mid-run."""
    with pytest.raises(StudyError, match=words):
        repeated(study(parties=5, delta=1e-20, **changes), 100_000).plan()


def test_the_largest_correlation_that_the_refusal_names_can_be_drawn() -> None:
    given: dict[str, Any] = {"parties": 5, "delta": 1e-20, "epsilon": 1e-4}
    with pytest.raises(StudyError) as refused:
        repeated(study(**given, method={"correlation": 1e9}), 100_000).plan()
    named = float(str(refused.value).split("choose ")[1].split(" or less")[0])
    agreed = study(**given, method={"correlation": named})
    assert len(totals(repeated(agreed, 100_000), sites_with(agreed, [0.5] * 5))) == 100_000


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
