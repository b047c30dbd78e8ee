"""A plan in words answers what those ask who must judge it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from factories import maker
from unspoken.learners.losses import CrossEntropy
from unspoken.methods.moments import Moments
from unspoken.methods.planning import Plan
from unspoken.methods.planning.scales import Scale, scales
from unspoken.methods.registry import plan_for
from unspoken.privacy.gaussian import epsilon_of
from unspoken.report.plan_text import plan_rows
from unspoken.study import Study
from unspoken.study.sections import RosterSection
from unspoken.summation.keys import Identity

study = maker("moments", parties={"count": 10, "records": 40, "max_records": 40}, delta=1e-5, colluding=2)
TABLE = {
    "label": "died",
    "classes": ["no", "yes"],
    "columns": {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}},
}


def told(agreed: Study) -> dict[str, str]:
    return dict(plan_rows(plan_for(agreed)))


def test_it_names_the_columns_and_the_label() -> None:
    assert told(study(data=TABLE))["data"] == "the columns age, sex; the label died, one of 2 classes; nothing else"
    assert told(study())["data"] == "4 features; the label, one of 3 classes; nothing else"
    wide = {**TABLE, "columns": {f"c{number}": {"min": 0, "max": 1} for number in range(21)}}
    assert told(study(data=wide))["data"].startswith("21 columns; the label died")
    assert told(study(task="regression"))["data"] == "4 features; the label, from -1 to 1; nothing else"
    assert told(study(task="statistics"))["data"] == "4 features; nothing else"


def test_it_names_only_the_columns_that_the_method_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moments, "columns_read", classmethod(lambda cls, study: ("age",)))
    assert told(study(task="statistics", data={"columns": TABLE["columns"]}))["data"] == "the column age; nothing else"


def test_one_number_is_one_number() -> None:
    alone = study("moments", task="statistics", data={"features": 1}, method={"function": "mean"})
    assert [text.partition(";")[0] for name, text in plan_rows(plan_for(alone)) if "release" in name] == ["1 number"]


def test_it_says_what_several_records_of_a_person_cost() -> None:
    plan = plan_for(study())
    mu, left = plan.guarantee.mu, plan.guarantee.delta - plan.guarantee.slack
    assert mu is not None
    assert told(study())["protects"] == (
        f"one record. A person with more is protected less: epsilon = {epsilon_of(2 * mu, left):.3g} with 2, epsilon = "
        f"{epsilon_of(5 * mu, left):.3g} with 5. unit = {{ group = k }} promises epsilon for k records"
    )
    assert told(study(unit={"group": 5}))["protects"].startswith("any 5 records. A person with more")
    assert told(study("helmet", unit="party"))["protects"].startswith("all records of one party, and so everybody")
    assert "up to k times as large" in told(study("dp-fm"))["protects"]
    assert "protects" not in told(study("none"))


def test_the_cost_of_a_group_is_no_more_than_is_said_of_it() -> None:
    """A study that protects five together at that ε needs no more noise."""
    keys = {"name": "moments", "function": "logistic-regression"}
    single = plan_for(study(method=keys))
    left = single.guarantee.delta - single.guarantee.slack
    cost = epsilon_of(5 * (single.guarantee.mu or math.nan), left)
    group = plan_for(study(method=keys, unit={"group": 5}, epsilon=cost))
    for alone, together in zip(single.sums, group.sums, strict=True):
        assert together.noise_std == pytest.approx(alone.noise_std, rel=0.02)


def test_it_says_who_runs_the_servers_and_that_nothing_is_known_of_earlier_runs() -> None:
    rows = told(study())
    assert rows["run by"].startswith("a coordinator and 3 helpers, which the study does not name: agree who runs them")
    assert told(study(summation="pairwise"))["run by"] == (
        "a coordinator, which the study does not name; there are no other servers"
    )
    keys = [Identity(bytes([number]) * 32).public.hex() for number in range(14)]
    names = {"Hub": keys[10], "North": keys[11], "South": keys[12]}
    roster = RosterSection(parties=keys[:10], coordinator=keys[10], helpers=keys[11:], names=names)
    named = study().model_copy(update={"roster": roster})
    assert told(named)["run by"] == f"Hub (coordinator), North, South, {keys[13][:8]}… (helpers)"
    assert rows["spent before"].startswith("not known here: this is the cost of one run")
    assert "run by" not in told(study("central"))


def agreeing(plan: Plan, count: int) -> float:
    """How far so many records that agree move a number of the last total, at most, in deviations of its noise."""
    planned = plan.sums[-1]
    return count * planned.sensitivity / planned.total_std(plan.parties_asked)


def test_noise_is_told_in_records_that_must_agree() -> None:
    plan = plan_for(study())
    scale = scales(plan)[-1]
    assert agreeing(plan, scale.seen_from) >= 2.0 > agreeing(plan, scale.seen_from - 1)
    assert scale.share == pytest.approx(1.0 / agreeing(plan, 400))
    assert told(study())["in scale"] == scale.sentence()
    assert scale.sentence() == (
        f"noise: {100 * scale.share:.2g} % of what 400 records can change; "
        f"changes in fewer than {scale.seen_from} records do not stand out"
    )
    # Five together cost five times as much noise, but a record moves no more than before.
    five = scales(plan_for(study(unit={"group": 5})))[-1]
    assert five.each == pytest.approx(scale.each, rel=0.01)
    assert five.seen_from == pytest.approx(5 * scale.seen_from, abs=6)
    parties = scales(plan_for(study("helmet", unit="party")))[-1]
    assert (parties.who, parties.among) == ("party", 10)
    assert scales(plan_for(study("none"))) == []
    assert Scale("mean", 0.4, 1.0, 50, "record").sentence().endswith("; even a change in one record can be seen")
    assert Scale("mean", 9.0, 1.0, 5, "party").sentence() == (
        "noise: 180 % of what 5 parties can change; not even all of them can be seen"
    )


def test_noise_is_told_in_records_that_are_in_a_batch_and_of_a_curator_s_release_as_of_a_sum() -> None:
    sampled = plan_for(study("cross-silo", method={"rounds": 2, "rate": 0.25}))
    (batch,) = scales(sampled)
    assert batch.among == pytest.approx(0.25 * 400)
    # As anywhere: a replaced record takes one gradient away and brings another.
    assert agreeing(sampled, batch.seen_from) >= 2.0 > agreeing(sampled, batch.seen_from - 1)
    one, five = (scales(plan_for(study("dp-fm", unit={"group": group})))[-1] for group in (1, 5))
    assert (one.release, one.among) == ("polynomial", 400)
    assert five.each == pytest.approx(one.each, rel=0.01)
    assert five.seen_from == pytest.approx(5 * one.seen_from, abs=6)


@pytest.mark.parametrize("weights", ["records", "equal"])
def test_all_records_together_move_models_no_further_than_models_are_long(weights: str) -> None:
    """However many records there are, the sum of all models is no longer than so many times the longest one."""
    plan = plan_for(study("helmet", method={"learner": "svm", "radius": 0.02, "weights": weights}))
    (scale,), parties = scales(plan), plan.study.parties
    longest = parties.count * 0.02 * (parties.records if weights == "records" else 1)
    assert scale.share == pytest.approx(plan.sums[0].total_std(parties.count) / (2.0 * longest))
    assert scale.share > 5.0 / agreeing(plan, 400)


def test_noise_that_drowns_everything_is_noted() -> None:
    statistics = {"task": "statistics", "data": {"features": 4}}
    plain = plan_for(study("moments", **statistics))
    assert not any("outweighs" in note for note in plain.notes)
    drowned = plan_for(study("moments", **statistics, epsilon=1e-4))
    (note,) = [note for note in drowned.notes if "outweighs" in note]
    assert note.startswith("if parties have no more than 40 records each, as [parties] records allows, the noise in")
    assert "not even all of them can be seen" in scales(drowned)[-1].sentence()
    scale = Scale("model", noise=1.0, each=1.0, among=2.0, who="record")
    assert not scale.drowns
    assert replace(scale, noise=1.01).drowns
    # However many they are: a model of norm R is at most 2R from another.
    short = replace(scale, among=1000.0, limit=2.0)
    assert (short.drowns, short.share, replace(short, noise=1.01).drowns) == (False, 0.5, True)
    keys = {"name": "multiparty", "labels": "average", "regularization": 0.5}
    agreed = study(method=keys)
    (model,) = scales(plan_for(agreed))
    assert model.limit == 2.0 * CrossEntropy(len(agreed.data.class_names)).longest(0.5, agreed.data.norm)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"regularization": 1e9}, "regularization = 1e+09 keeps every score of a model below 8.2e-10, so that classes"),
        ({"radius": 0.01}, "radius = 0.01 keeps every score of a model below 0.01, so that classes are hardly told"),
    ],
)
def test_models_that_have_nothing_to_say_are_noted(keys: dict[str, float], words: str) -> None:
    assert any(note.startswith(words) for note in plan_for(study("helmet", method=keys)).notes)
    assert not any("keeps every score" in note for note in plan_for(study("helmet")).notes)


def test_ballots_have_no_scale_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    public = tmp_path_factory.mktemp("public") / "public.npz"
    np.savez(public, X=np.zeros((12, 4)))
    keys = {"name": "voting", "public": str(public), "queries": 5}
    assert scales(plan_for(study(method=keys, unit="party", summation="tally"))) == []
