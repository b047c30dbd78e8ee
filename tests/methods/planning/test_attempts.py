"""Attempts: every one in which vectors may have left is a release, in all that a plan and a certificate say.

The computations that they are compared with are written here, or are another library's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from factories import make
from small_studies import KEY, Recording, federation_of, method_of, public_file, small
from unspoken.engines import actors, local
from unspoken.engines.conditions import Conditions
from unspoken.engines.outcome import Outcome
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.accounting import epsilon_of
from unspoken.privacy.events import together
from unspoken.report.certificate import certificate
from unspoken.study import Study, StudyError
from unspoken.summation.base import Aborted

GAUSSIAN = ["helmet", "moments", "cape", "conv", "local", "voting"]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


def planned(study: Study) -> Plan:
    return method_for(study).plan()


def exact_delta(mu: float, epsilon: float) -> float:
    """δ of a Gaussian release at ε (Balle & Wang 2018)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("method", ["local", "conv"])
def test_all_attempts_draw_noise_and_what_that_costs_is_in_delta(method: str, public: Path) -> None:
    """Of messages in the open nothing else is in it: no protocol makes random choices."""
    once, thrice = (planned(small(public, method, "classification", attempts=attempts)) for attempts in (1, 3))
    assert thrice.slack == pytest.approx(3.0 * once.slack, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("method", GAUSSIAN)
def test_a_ledger_is_told_of_the_noise_of_all_attempts(method: str, public: Path) -> None:
    once, thrice = (
        planned(small(public, method, "classification", attempts=attempts)).ledger_run("run").distance
        for attempts in (1, 3)
    )
    assert thrice == pytest.approx(3.0 * once, rel=1e-9, abs=0.0)
    assert once > 0.0


@pytest.mark.parametrize("attempts", [2, 3])
@pytest.mark.parametrize("method", GAUSSIAN)
def test_epsilon_is_that_of_all_attempts_together_by_the_exact_formula(
    method: str, attempts: int, public: Path
) -> None:
    """The noise of each total, as stated: with `attempts` times as many totals, δ at the stated ε is what is left."""
    plan = planned(small(public, method, "classification", attempts=attempts, colluding=1))
    said = plan.to_json()
    squares = [(r["sensitivity"] / r["noise_std"]) ** 2 * r["count"] * attempts for r in said["releases"]]
    assert exact_delta(math.sqrt(sum(squares)), said["guarantee"]["epsilon"]) == pytest.approx(
        said["guarantee"]["delta"] - plan.slack, rel=1e-6
    )
    assert said["guarantee"]["epsilon"] == pytest.approx(2.0)


@pytest.mark.parametrize("method", ["moments", "voting"])
def test_epsilon_of_two_attempts_is_that_of_two_runs_by_another_library(method: str, public: Path) -> None:
    plan = planned(small(public, method, "classification", attempts=2))
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    for release in plan.to_json()["releases"]:
        one = GaussianDpEvent(release["noise_std"] / release["sensitivity"])
        accountant.compose(SelfComposedDpEvent(one, release["count"]), 2)
    assert plan.guarantee.epsilon == pytest.approx(accountant.get_epsilon(1e-6 - plan.slack), rel=1e-3)


@pytest.mark.parametrize("method", ["cross-silo", "fedsgd"])
def test_rounds_on_sampled_records_are_composed_as_often_by_another_library(method: str, public: Path) -> None:
    plan = planned(small(public, method, "regression", attempts=2, keys={"rate": 0.25}))
    (release,) = plan.sums
    steps = release.sampling.steps if release.sampling else 0
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4)
    one = PoissonSampledDpEvent(0.25, GaussianDpEvent(release.noise_multiplier))
    accountant.compose(SelfComposedDpEvent(one, 2 * release.count * steps))
    assert plan.guarantee.epsilon == pytest.approx(accountant.get_epsilon(1e-6 - plan.slack), rel=1e-3)
    assert plan.guarantee.epsilon == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(("method", "task"), [("cross-silo", "regression"), ("voting", "classification")])
def test_the_same_noise_promises_for_two_attempts_what_two_runs_together_do(
    method: str, task: str, public: Path
) -> None:
    """Where the study gives the noise, and ε follows. The runs' own slacks in δ are a little larger together."""
    one, two = (
        planned(small(public, method, task, noise_multiplier=3.0, epsilon=None, attempts=attempts))
        for attempts in (1, 2)
    )
    assert [s.noise_std / s.sensitivity for s in two.sums] == pytest.approx(
        [s.noise_std / s.sensitivity for s in one.sums]
    )
    assert two.guarantee.epsilon > 1.2 * one.guarantee.epsilon
    assert two.guarantee.epsilon == pytest.approx(epsilon_of(together([one.spend, one.spend]), 1e-6), rel=0.01)
    assert two.guarantee.epsilon == pytest.approx(epsilon_of(two.spend, 1e-6), rel=1e-9)


def test_a_vote_pays_for_half_as_many_queries_with_two_attempts(public: Path) -> None:
    said: dict[str, Any] = {"noise_multiplier": 50.0, "epsilon": 2.0, "method": {"public": str(public)}}
    one, two = (
        next(note for note in planned(make("voting", attempts=attempts, **said)).notes if "would pay for" in note)
        for attempts in (1, 2)
    )
    paid = [int(note.split("would pay for ")[1].split(" ")[0]) for note in (one, two)]
    assert paid[0] > 20
    assert paid[1] == pytest.approx(paid[0] / 2, abs=1)


@pytest.mark.parametrize("method", ["central", "objective-perturbation", "multiparty", "none"])
def test_what_leaves_a_curator_once_is_counted_once(method: str, public: Path) -> None:
    """Records that are pooled, or messages to a trusted trainer, are no releases."""
    one, two = (planned(small(public, method, "classification", attempts=attempts)) for attempts in (1, 2))
    assert two.guarantee == one.guarantee
    assert [release.event for release in two.others] == [release.event for release in one.others]


def test_the_dice_of_a_setup_are_counted_for_every_attempt_that_may_be_begun() -> None:
    """SecAgg+ may fail by bad luck of its graph: an adversary may begin again until it does."""
    slacks = [
        planned(make(parties=1000, summation="secagg+", colluding=0.2, dropouts=0.05, attempts=attempts)).slack
        for attempts in (1, 3)
    ]
    plan = planned(make(parties=1000, summation="secagg+", colluding=0.2, dropouts=0.05))
    exposure = plan.protocol(plan.sums[0]).openable(200).exposure
    assert exposure > 0.0
    assert slacks[1] - slacks[0] == pytest.approx(2 * exposure, rel=1e-3, abs=0.0)
    assert slacks[0] == pytest.approx((1 + FREE_ATTEMPTS) * exposure, rel=1e-3, abs=0.0)


def test_lists_of_tokens_are_counted_for_every_attempt(public: Path) -> None:
    """Of each list an adversary may see the seed and prevent it: the chance of a bad batch is divided among all."""
    keys = {"sampling": "without-replacement"}
    rates = []
    for attempts in (1, 4):
        study = small(public, "cross-silo", "regression", keys=keys, colluding=2, attempts=attempts)
        method: Any = method_for(study)
        batches = method.workload.batches
        rounds = method.workload.options.rounds
        assert batches.sampling(0.0).slack == pytest.approx(0.01 * study.privacy.delta)
        assert batches._allowed * rounds * attempts == pytest.approx(0.01 * study.privacy.delta)
        rates.append(batches.sampling(0.0).rate)
    assert rates[1] >= rates[0]


def test_plan_and_promise_say_it() -> None:
    one, three = (planned(make(attempts=attempts)) for attempts in (1, 3))
    assert "has to send" not in one.guarantee.sentence()
    assert ", and even if each party has to send its part of each sum 3 times: epsilon = " in three.guarantee.sentence()
    assert [plan.to_json()["attempts"] for plan in (one, three)] == [1, 3]
    assert [plan.to_json()["guarantee"]["attempts"] for plan in (one, three)] == [1, 3]
    assert three.to_json()["releases"][0]["attempts"] == 3


@pytest.mark.parametrize(
    ("method", "protocol", "whom"),
    [
        ("helmet", "compute-nodes", "lying"),
        ("helmet", "secagg", "lying"),
        ("helmet", "pairwise", "lying"),
        ("helmet", "ideal", "curious"),
        ("voting", "tally", "lying"),
        ("cape", "compute-nodes", "lying"),
        ("conv", "secagg", "lying"),
        ("multiparty", "secagg", "curious"),
        ("central", "secagg", "curious"),
    ],
)
def test_a_promise_says_whom_it_holds_against(method: str, protocol: str, whom: str, public: Path) -> None:
    """A lying coordinator, or there is an assumption about whoever collects what parties send."""
    said = planned(small(public, method, "classification", summation=protocol)).guarantee
    assert said.to_json()["coordinator"] == whom
    assert ("a lying coordinator" in said.sentence()) == (whom == "lying")
    trusted = any(word in " ".join(said.assumptions) for word in ("the coordinator", "trainer", "curator"))
    assert trusted == (whom == "curious")


@pytest.mark.parametrize("protocol", ["compute-nodes", "tally"])
def test_a_promise_assumes_that_helpers_do_not_forget(protocol: str, public: Path) -> None:
    """A node or a tallier that begins anew in mid-attempt would sign or count a second list."""
    said = planned(small(public, "voting", "classification", summation=protocol)).guarantee
    assert any("never forget" in assumption for assumption in said.assumptions)


def test_a_study_without_the_key_keeps_its_digest() -> None:
    assert make().digest() == make(attempts=1).digest() != make(attempts=2).digest()


@pytest.mark.parametrize("attempts", [0, -1, 101, 1.5, "2"])
def test_other_numbers_of_attempts_are_refused(attempts: Any) -> None:
    with pytest.raises(StudyError, match="how often a party may send its vector for one sum"):
        make(attempts=attempts)


class Unlucky:
    """A method that is told of an abort, instead of a total, the first times that vectors came together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, aborts: int) -> None:
        from unspoken.roles.totals import Totals

        self.left = aborts
        for name in ("summed", "voted", "collected"):
            made = getattr(Totals, name)

            def unlucky(totals: Totals, *given: Any, made: Any = made, **more: Any) -> Any:
                if self.left:
                    self.left -= 1
                    raise Aborted("bad luck")
                return made(totals, *given, **more)

            monkeypatch.setattr(Totals, name, unlucky)


ENGINES = {"local": local.run, "actors": actors.run}
CASES = [
    ("helmet", {}, "compute-nodes"),
    ("helmet", {}, "secagg+"),
    ("cape", {}, "compute-nodes"),
    ("conv", {}, "compute-nodes"),
    ("voting", {}, "tally"),
    ("cross-silo", {"sampling": "without-replacement"}, "ideal"),
]


def ran(engine: str, study: Study) -> tuple[Plan, Outcome]:
    method: Method = method_for(study)
    plan = method.plan()
    return plan, ENGINES[engine](method, plan, federation_of(study))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("method", "keys", "protocol"), CASES)
def test_an_attempt_that_failed_is_made_again_and_counted(
    engine: str, method: str, keys: dict[str, Any], protocol: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ε of what happened is that of the totals that there were, and of one more."""
    task = "regression" if method == "cross-silo" else "classification"
    study = small(public, method, task, keys=keys, summation=protocol, attempts=2)
    Unlucky(monkeypatch, 1)
    plan, outcome = ran(engine, study)
    (name,) = outcome.failed
    assert outcome.failed == {name: 1}
    happened = certificate(plan, outcome)["happened"]
    totals = sum(planned.count for planned in plan.sums)
    assert (happened["attempts_planned"], happened["attempts"]) == (2 * totals, totals + 1)
    everyone = Participation(study.parties.count, study.parties.count)
    there = {planned.name: [everyone] * planned.count for planned in plan.sums}
    without, twice = (
        plan.guarantee_after(there).epsilon,
        plan.guarantee_after({key: 2 * turns for key, turns in there.items()}),
    )
    # Of the attempt that failed nobody knows who was there: it counts like the worst.
    assert without < happened["epsilon"] <= plan.guarantee.epsilon
    if totals == 1 and not study.dropouts:
        assert happened["epsilon"] == pytest.approx(twice.epsilon, rel=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("turn", [1, 2])
def test_noise_is_prepared_anew_when_a_later_turn_has_failed(
    engine: str, turn: int, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CAPE prepares its noise for all turns at once: another attempt at any of them needs all of it anew."""
    from unspoken.roles.totals import Totals

    keys = {"function": "network", "steps": 3, "hidden": 3}
    study = small(public, "cape", "classification", keys=keys, summation="compute-nodes", attempts=2)
    made, calls = Totals.collected, list[int]()

    def unlucky(totals: Totals, *given: Any) -> Any:
        calls.append(totals.turn("function"))
        if calls.count(turn) == 1 and calls[-1] == turn:
            raise Aborted("bad luck")
        return made(totals, *given)

    monkeypatch.setattr(Totals, "collected", unlucky)
    plan, outcome = ran(engine, study)
    assert outcome.failed == {"function": 1}
    assert calls == sorted([0, 1, 2, turn])
    assert [there.sent for there in outcome.participation["function"]] == [plan.trust.parties] * 3


@pytest.mark.parametrize(("method", "keys", "protocol"), CASES)
def test_engines_agree_bit_for_bit_when_an_attempt_failed(
    method: str, keys: dict[str, Any], protocol: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = "regression" if method == "cross-silo" else "classification"
    study = small(public, method, task, keys=keys, summation=protocol, attempts=2)
    unlucky, found = Unlucky(monkeypatch, 0), []
    for run in ENGINES.values():
        unlucky.left, made = 1, method_of(study)
        recording = Recording(made)
        run(made, made.plan(), federation_of(study), Conditions(secrets=SecretStream(KEY)))
        found.append(recording.answers)
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("method", "keys", "protocol"), CASES)
def test_with_no_attempt_left_the_run_ends(
    engine: str, method: str, keys: dict[str, Any], protocol: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = "regression" if method == "cross-silo" else "classification"
    for attempts in (1, 2):
        unlucky = Unlucky(monkeypatch, attempts)
        with pytest.raises(Aborted, match="bad luck"):
            ran(engine, small(public, method, task, keys=keys, summation=protocol, attempts=attempts))
        assert unlucky.left == 0


def test_the_epsilon_of_what_happened_counts_only_what_happened(public: Path) -> None:
    """With two attempts planned and one made of each, it is that of one run."""
    study = small(public, "helmet", "classification", attempts=2)
    plan, outcome = ran("local", study)
    (release,) = plan.to_json()["releases"]
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(release["noise_std"] / release["sensitivity"]))
    happened = certificate(plan, outcome)["happened"]
    assert happened["epsilon"] == pytest.approx(accountant.get_epsilon(1e-6 - plan.slack), rel=1e-3)
    assert happened["epsilon"] < 0.75 * plan.guarantee.epsilon


@pytest.mark.parametrize("colluding", [0, 3])
def test_the_least_that_totals_can_have_cost_counts_every_party_s_noise(colluding: int) -> None:
    """For whoever colludes and for nobody: what is stated below it is wrong, whatever happened."""
    plan = planned(make("moments", parties=12, colluding=colluding, attempts=3))
    sent = {one.name: turns for turns, one in enumerate(plan.sums, 1)}
    mu = math.hypot(*(math.sqrt(sent[one.name]) * one.sensitivity / one.total_std(12) for one in plan.sums))
    assert exact_delta(mu, plan.least_epsilon(sent)) == pytest.approx(1e-6 - plan.slack, rel=1e-6)
    assert plan.least_epsilon({}) == 0.0
    everything = plan.least_epsilon({one.name: one.releases for one in plan.sums})
    honest = (12 - max(colluding, 1)) / 12
    assert everything == pytest.approx(math.sqrt(honest) * plan.guarantee.epsilon, rel=0.02)


def test_more_colluders_than_planned_see_every_attempt() -> None:
    """And face the noise of those that are left."""
    plan = planned(make("moments", parties=12, colluding=2, attempts=3, summation="compute-nodes"))
    rows = {row["colluding"]: row["epsilon"] for row in plan.weakening()}
    assert min(rows) == 2
    assert max(rows) == 11
    for colluding, epsilon in rows.items():
        missing = math.sqrt((12 - colluding) / 10)
        mu = math.hypot(*(math.sqrt(3 * one.count) * one.mu / missing for one in plan.sums))
        assert exact_delta(mu, epsilon) == pytest.approx(1e-6 - plan.slack, rel=1e-3)
