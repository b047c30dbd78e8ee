"""The private analysis of a vote: what the ballots that were counted cost, under the noise that was left in them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspoken
from factories import maker
from unspoken.data.federation import ArrayFederation
from unspoken.data.records import Records
from unspoken.methods import voting
from unspoken.methods.voting import Voting
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.votes import data_dependent_epsilon
from unspoken.report.terminal import show_private_analysis
from unspoken.roles.totals import Totals
from unspoken.study import Study
from unspoken.summation.base import Aborted
from unspoken.types import Flags, Floats, Integers

PARTIES, QUERIES, CLASSES = 40, 12, 3


def votes(folder: Path, **said: Any) -> tuple[Study, Floats, Integers, Integers]:
    """A study of 40 parties, of which half may drop out, and its records: of most parties all of one class."""
    source = np.random.default_rng(3)
    np.savez(folder / "public.npz", X=source.normal(size=(QUERIES, 2)))
    groups = np.repeat(np.arange(PARTIES), 3)
    labels = np.where(groups % 4 == 0, 1, np.where(groups % 7 == 0, 2, 0))
    agreed = maker(
        "voting",
        data={"features": 2, "classes": CLASSES, "norm": 5.0},
        parties={"count": PARTIES, "records": 3, "max_records": 3},
        privacy={"epsilon": 8.0, "delta": 1e-5, "unit": "party", "dropouts": 20},
        method={"public": str(folder / "public.npz"), "queries": QUERIES, "asking": "first"},
        summation="tally",
    )(**{"method": {"ballots": "neighbours", "neighbours": 1}, **said})
    return agreed, source.normal(size=(len(groups), 2)), labels, groups


def by_hand(folder: Path, features: Floats, labels: Integers, groups: Integers, counted: Flags) -> Floats:
    """The totals of the ballots: each party's vote is the class of its record that is nearest."""
    with np.load(folder / "public.npz") as public:
        asked = public["X"]
    totals = np.zeros((QUERIES, CLASSES))
    for party in np.flatnonzero(counted).tolist():
        mine = groups == party
        nearest = ((asked[:, None] - features[mine]) ** 2).sum(axis=2).argmin(axis=1)
        totals[np.arange(QUERIES), labels[mine][nearest]] += 1.0
    return totals


@pytest.mark.parametrize("drop", [0, 7, 20])
def test_the_analysis_is_of_the_ballots_that_were_counted_and_of_the_noise_that_was_left(
    drop: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agreed, features, labels, groups = votes(tmp_path)
    done = unspoken.simulate(agreed, features, labels, groups, drop=drop, seed=5, private_analysis=True)
    gone = np.random.default_rng(5).permutation(PARTIES)[:drop]
    counted = ~np.isin(np.arange(PARTIES), gone)
    assert done.outcome.counted["ballots"].tolist() == counted.tolist()
    # Each of the parties that are there brings its share of the noise: sized so that any 20 of them are enough.
    share = done.plan.sum_named("ballots").total_std(PARTIES) / math.sqrt(PARTIES)
    totals = by_hand(tmp_path, features, labels, groups, counted)
    deviation = share * math.sqrt(PARTIES - drop)
    # Rounding may move each of a query's numbers by one unit more.
    move = math.sqrt(2.0) + math.sqrt(CLASSES) / done.plan.sum_named("ballots").encoding.scale
    expected = data_dependent_epsilon(totals, deviation, move, 1e-5 - done.plan.slack)
    assert done.private is not None
    assert float(done.private["epsilon"]) == pytest.approx(expected, rel=1e-6)
    # One curious party knows its own share: the others' is what it faces.
    hidden = share * math.sqrt(PARTIES - drop - 1)
    curious = data_dependent_epsilon(totals, hidden, move, 1e-5 - done.plan.slack, known=share)
    assert float(done.private["epsilon_colluding"]) == pytest.approx(curious, rel=1e-6)
    assert expected <= curious <= done.plan.guarantee.epsilon * (1.0 + 1e-9)
    ordered = np.sort(totals, axis=1)
    assert float(done.private["median_lead"]) == float(np.median(ordered[:, -1] - ordered[:, -2]))
    show_private_analysis(done.private)
    said = " ".join(capsys.readouterr().out.split())
    assert f"half of the queries were won by {done.private['median_lead']:.3g} votes or more." in said
    if drop == 20:
        everyone = by_hand(tmp_path, features, labels, groups, np.ones(PARTIES, dtype=bool))
        before = data_dependent_epsilon(everyone, share * math.sqrt(PARTIES), math.sqrt(2.0), 1e-5)
        assert expected > 1.3 * before


def test_a_vote_that_failed_is_in_the_analysis_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its winners may have become known. Nobody knows who was counted, so agreement does not make it any cheaper."""
    agreed, *records = votes(tmp_path, attempts=2)
    lucky = unspoken.simulate(agreed, *records, private_analysis=True)
    made, left = Totals.voted, [Aborted("bad luck")]

    def unlucky(totals: Totals, *given: Any) -> Any:
        if left:
            raise left.pop()
        return made(totals, *given)

    monkeypatch.setattr(Totals, "voted", unlucky)
    done = unspoken.simulate(agreed, *records, private_analysis=True)
    assert done.outcome.failed == {"ballots": 1}
    assert lucky.private is not None
    assert done.private is not None
    found, without = float(done.private["epsilon"]), float(lucky.private["epsilon"])
    alone = epsilon_of(done.plan.sum_named("ballots").mu, 1e-5)
    assert without < alone < found <= done.plan.guarantee.epsilon * (1.0 + 1e-9)
    assert found >= max(alone, without)


@pytest.mark.parametrize("failed", [1, 2])
def test_each_vote_that_failed_is_one_more_release_of_all_that_it_may_have_told(failed: int, tmp_path: Path) -> None:
    agreed, features, labels, groups = votes(tmp_path, attempts=3, epsilon=4.0)
    method, told = Voting(agreed), list[float]()
    plan = method.agreed_plan

    def listening(*given: Any) -> float:
        told.append(given[5])
        return 1.0

    mu = plan.sum_named("ballots").mu
    blocks = list(ArrayFederation(agreed, Records(features, labels), groups).blocks(PARTIES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voting, "data_dependent_epsilon", listening)
        method.analysis(plan, blocks, {"ballots": np.ones(PARTIES, dtype=bool)}, {"ballots": failed})
    assert 0.0 < mu < 0.9
    assert told == [pytest.approx(failed * mu**2)] * 2


def test_a_run_that_goes_on_from_its_checkpoint_knows_whose_ballots_were_counted(tmp_path: Path) -> None:
    agreed, *records = votes(tmp_path)
    kept = tmp_path / "journal"
    first, again = (
        unspoken.simulate(agreed, *records, drop=9, seed=2, private_analysis=True, checkpoint=kept) for _ in range(2)
    )
    assert first.private == again.private
    assert first.outcome.counted["ballots"].tolist() == again.outcome.counted["ballots"].tolist()


def test_a_model_that_draws_lots_votes_alike_whenever_it_is_asked(tmp_path: Path) -> None:
    agreed, features, labels, groups = votes(
        tmp_path,
        method={"ballots": "ensemble", "model": "sklearn.tree:ExtraTreeClassifier"},
        parties={"count": 5, "records": 24, "max_records": 24},
        dropouts=0,
    )
    records = features, np.arange(len(labels)) % 3, groups // 8
    one, other = (unspoken.simulate(agreed, *records, private_analysis=True).private for _ in range(2))
    assert one == other


def test_an_analysis_that_cannot_be_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agreed, *records = votes(tmp_path, summation="ideal")
    monkeypatch.setattr("unspoken.engines.local.run", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(unspoken.UnspokenError, match="by which the noisy totals become known"):
        unspoken.simulate(agreed, *records, private_analysis=True)


def test_shares_that_are_rounded_are_counted_as_they_are_added_up(tmp_path: Path) -> None:
    """Thirds are no multiples of a unit: a ballot then moves by more than √2/3, and the analysis says so."""
    ballots = {"method": {"ballots": "neighbours", "neighbours": 3}, "privacy": {"unit": "record"}}
    agreed, features, labels, groups = votes(tmp_path, parties={"records": 4, "max_records": 4}, **ballots)
    features, labels = (np.repeat(column[:PARTIES], 4, axis=0) for column in (features, labels))
    groups = np.repeat(np.arange(PARTIES), 4)
    method = Voting(agreed)
    plan = method.plan()
    planned = plan.sum_named("ballots")
    assert planned.sensitivity / math.sqrt(QUERIES) > math.sqrt(2.0) / 3
    told: list[tuple[Floats, float]] = []

    def listening(totals: Floats, deviation: float, move: float, *given: float) -> float:
        told.append((totals, move))
        return 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voting, "data_dependent_epsilon", listening)
        unspoken.simulate(agreed, features, labels, groups, private_analysis=True)
    totals, move = told[0]
    units = totals * planned.encoding.scale
    assert (units == np.rint(units)).all()
    assert move >= math.sqrt(2.0) / 3 + math.sqrt(CLASSES) / planned.encoding.scale
