"""Voting: how far a record or a party moves the ballots, and what the noise and a budget of it promise."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.methods.base import Sum, Vote
from unspoken.methods.parameters import Refused
from unspoken.methods.registry import method_for
from unspoken.methods.voting import Voting
from unspoken.privacy.gaussian import delta_of, epsilon_of
from unspoken.privacy.integer import slack
from unspoken.study import StudyError, make_study
from voting_studies import study


def ballots(method: Voting, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    block = Block(features[None], labels[None], np.array([len(labels)]))
    return method.contribute(method.request, block).noisy[0]


@pytest.mark.parametrize("kind", ["ensemble", "neighbours"])
def test_no_record_and_no_party_moves_the_ballots_by_more_than_the_sensitivity(kind: str, tmp_path: Path) -> None:
    """Records put where the queries are, and parties of another class altogether, which reach it."""
    method = Voting(study(tmp_path, ballots=kind, neighbours=3))
    rng = np.random.default_rng(0)
    worst_record = worst_party = 0.0
    for _ in range(100):
        features, labels = rng.normal(size=(6, 2)), rng.integers(0, 3, 6)
        before = ballots(method, features, labels)
        changed, relabelled = features.copy(), labels.copy()
        changed[0], relabelled[0] = rng.normal(size=2) * 0.1, rng.integers(0, 3)
        worst_record = max(worst_record, float(np.linalg.norm(ballots(method, changed, relabelled) - before)))
    one, other = (ballots(method, features, np.full(6, label)) for label in (0, 1))
    worst_party = float(np.linalg.norm(one - other))
    assert worst_record <= method.sensitivity(1) + 1e-9
    assert worst_party == pytest.approx(method.sensitivity(None)) == pytest.approx(math.sqrt(40.0))
    assert method.sensitivity(1) == pytest.approx(math.sqrt(40.0) / (3 if kind == "neighbours" else 1))


def test_a_record_can_move_every_ballot_of_its_neighbours(tmp_path: Path) -> None:
    """All queries in one place, so that one record is a neighbour of all of them."""
    np.savez(tmp_path / "public.npz", X=np.zeros((20, 2)))
    method = Voting(study(tmp_path, ballots="neighbours", neighbours=3))
    features, labels = np.full((6, 2), 2.0), np.zeros(6, dtype=np.int64)
    changed, relabelled = features.copy(), labels.copy()
    changed[0], relabelled[0] = 0.0, 1
    moved = np.linalg.norm(ballots(method, changed, relabelled) - ballots(method, features, labels))
    assert moved == pytest.approx(method.sensitivity(1))


def test_a_model_may_abstain_and_is_then_nearer_to_any_vote_than_two_votes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Voting(study(tmp_path))
    features, labels = np.zeros((6, 2)), np.zeros(6, dtype=np.int64)
    found = []
    for predicted in (-1, 0, 2):
        monkeypatch.setattr(method._local, "predict", lambda fitted, rows, p=predicted: np.full(len(rows), p))
        found.append(ballots(method, features, labels))
    assert not found[0].any()
    distances = [float(np.linalg.norm(found[one] - found[other])) for one, other in ((0, 1), (0, 2), (1, 2))]
    assert distances == pytest.approx([math.sqrt(20.0), math.sqrt(20.0), method.sensitivity(None)])


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_noise_is_that_of_all_queries_together_and_both_levels_are_told(attempts: int, tmp_path: Path) -> None:
    plan = Voting(study(tmp_path, {"attempts": attempts}, ballots="neighbours", neighbours=3)).plan()
    planned = plan.sum_named("ballots")
    mu = planned.mu * math.sqrt(attempts)
    assert epsilon_of(mu, 1e-6) == pytest.approx(1.0, rel=1e-6)
    assert planned.sensitivity == pytest.approx(math.sqrt(40.0) / 3, rel=0.01)
    told = float(plan.notes[-1].rsplit("= ", 1)[1])
    assert told == pytest.approx(epsilon_of(3 * mu, 1e-6), rel=1e-3)
    assert "all records of one party" in plan.notes[-1]
    levels = plan.to_json()["epsilon_by_unit"]
    assert levels["party"] == pytest.approx(told, rel=1e-3)
    assert levels["record"] == pytest.approx(1.0, rel=1e-6)
    assert plan.to_json()["queries"] == 20


def test_a_record_of_a_party_smaller_than_its_neighbourhood_is_told_what_it_gets(tmp_path: Path) -> None:
    """Where parties are protected they may have fewer records than neighbours vote: then a record counts for more."""
    content = study(tmp_path, {"unit": "party"}, ballots="neighbours", neighbours=3).model_dump(exclude_none=True)
    content["parties"]["records"] = 1
    method = Voting(make_study(content))
    alone, other = (ballots(method, np.zeros((1, 2)), np.array([label])) for label in (0, 1))
    moved = float(np.linalg.norm(alone - other))
    plan = method.plan()
    assert moved == pytest.approx(method.sensitivity(1))
    assert plan.to_json()["epsilon_by_unit"]["record"] >= epsilon_of(moved / plan.sum_named("ballots").noise_std, 1e-6)


def test_what_is_not_proved_for_the_other_unit_is_not_promised(tmp_path: Path) -> None:
    """With 20 neighbours a party's ε would be 160, for continuous noise: integers are proved to be as good up to 30."""
    np.savez(tmp_path / "public.npz", X=np.random.default_rng(0).normal(size=(200, 2)))
    content = study(tmp_path, ballots="neighbours", neighbours=20, queries=200).model_dump(exclude_none=True)
    content["parties"] |= {"records": 30, "max_records": 30}
    content["privacy"] |= {"epsilon": 3.0}
    plan = Voting(make_study(content)).plan()
    assert plan.to_json()["epsilon_by_unit"] == {"record": pytest.approx(3.0), "party": None}
    assert plan.notes[-1] == (
        "for all records of one party the same noise promises next to nothing: its epsilon is above 30"
    )


def test_what_the_other_unit_s_larger_epsilon_adds_in_delta_is_counted(tmp_path: Path) -> None:
    """A distance η between drawn and stated noise costs (1 + e^ε)·η, which only shows at a tiny delta."""
    np.savez(tmp_path / "public.npz", X=np.random.default_rng(0).normal(size=(200, 2)))
    content = study(tmp_path, ballots="neighbours", neighbours=2, queries=200).model_dump(exclude_none=True)
    content["privacy"] |= {"epsilon": 13.0, "delta": 1e-15}
    plan = Voting(make_study(content)).plan()
    ballots, promised = plan.sum_named("ballots"), plan.to_json()["epsilon_by_unit"]["party"]
    assert 20.0 < promised < 30.0
    spent = delta_of(2.0 * ballots.sensitivity / ballots.noise_std, promised)
    assert spent + slack(promised, plan.trust.parties * ballots.noisy_numbers) <= 1e-15


def test_no_group_moves_more_ballots_than_there_are(tmp_path: Path) -> None:
    for keys, most in (({}, 8.0), ({"ballots": "neighbours", "neighbours": 3}, 8.0)):
        method = Voting(study(tmp_path, {"unit": {"group": 40}}, **keys))
        assert method.sensitivity(40) == pytest.approx(most * math.sqrt(40.0))
        assert method.sensitivity(2) == pytest.approx(2.0 * method.sensitivity(1))


def test_noise_may_be_given_in_place_of_epsilon(tmp_path: Path) -> None:
    agreed = study(tmp_path, {"epsilon": None, "noise_multiplier": 7.0, "unit": "party"})
    plan = Voting(agreed).plan()
    assert plan.sum_named("ballots").noise_std == pytest.approx(7.0, rel=0.01)
    assert plan.guarantee.epsilon == pytest.approx(epsilon_of(math.sqrt(40.0) / 7.0, 1e-6), rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"ballots": "neighbours", "neighbours": 6}, "needs more records"),
        ({"queries": 21}, "has 20 records only"),
        ({"public": "nowhere.npz"}, "there is no such file"),
        ({"model": "sklearn.nowhere:Model"}, "cannot be imported here"),
        ({"model": "sklearn.ensemble:VotingClassifier"}, "cannot be made without arguments"),
        ({"student": "sklearn.ensemble:VotingClassifier"}, r"student is .* cannot be made without arguments"),
        ({"student": "mlp", "hidden": [0]}, "sizes of 1 or more"),
        ({"hidden": [8]}, 'neither model = "softmax" nor student = "softmax" takes their sizes'),
    ],
)
def test_what_does_not_fit_is_said(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises((StudyError, ValueError), match=words):
        Voting(study(tmp_path, **keys)).plan()


@pytest.mark.parametrize("unit", ["party", "record"])
def test_a_budget_and_a_noise_give_as_many_queries_as_they_allow(unit: str, tmp_path: Path) -> None:
    privacy = {"epsilon": 2.0, "noise_multiplier": 12.0 if unit == "party" else 4.0, "unit": unit}
    content = study(tmp_path).model_dump(exclude_none=True)
    del content["method"]["queries"]
    del content["method"]["public"]
    np.savez(tmp_path / "many.npz", X=np.zeros((500, 2)))
    keys = {"ballots": "neighbours", "neighbours": 3, "public": str(tmp_path / "many.npz")}
    content["method"] |= keys
    content["privacy"] |= privacy
    method = Voting(make_study(content))
    plan, asked = method.plan(), method.queries
    assert 1 < asked < 500
    assert plan.guarantee.epsilon <= 2.0
    assert plan.sum_named("ballots").noise_std == pytest.approx(privacy["noise_multiplier"], rel=0.01)
    one_more = method.sensitivity(method.study.group, asked + 1) / privacy["noise_multiplier"]
    assert epsilon_of(one_more, 1e-6) > 2.0
    assert any(f"epsilon would pay for {asked:,} with this noise" in note for note in plan.notes)


def test_a_budget_is_kept_where_the_summation_takes_a_part_of_delta(tmp_path: Path) -> None:
    """δ so small that the random graph of secagg+ costs a third of it."""
    content = study(tmp_path).model_dump(exclude_none=True)
    np.savez(tmp_path / "many.npz", X=np.zeros((500, 2)))
    content["method"] = {"name": "voting", "public": str(tmp_path / "many.npz")}
    content["privacy"] |= {"epsilon": 2.0, "delta": 8e-11, "noise_multiplier": 30.0, "unit": "party", "colluding": 0.1}
    content["parties"] |= {"count": 500}
    content["summation"] = {"protocol": "secagg+"}
    plan = Voting(make_study(content)).plan()
    assert plan.slack > 0.1 * 8e-11
    assert plan.guarantee.epsilon <= 2.0


def test_a_budget_too_small_for_one_query_and_too_many_keys_are_refused(tmp_path: Path) -> None:
    content = study(tmp_path).model_dump(exclude_none=True)
    content["privacy"] |= {"epsilon": 0.01, "noise_multiplier": 1.0}
    with pytest.raises(StudyError, match=r"remove one, or \[method\] queries"):
        make_study(content)
    del content["method"]["queries"]
    with pytest.raises(StudyError, match="too little for a single query"):
        Voting(make_study(content)).plan()


def test_typical_records_are_asked_about_and_any_choice_is_as_private(tmp_path: Path) -> None:
    """Three clusters, and records that belong to none: with three queries the middles of the three are asked about."""
    rng = np.random.default_rng(0)
    middles = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, 0.0]])
    np.savez(
        tmp_path / "public.npz",
        X=np.concatenate([rng.uniform(-2, 2, (3, 2)), *(middles + 0.1 * step for step in rng.normal(size=(9, 3, 2)))]),
    )
    method = Voting(study(tmp_path, queries=3))
    asked = method._asked(method.request)
    distances = np.linalg.norm(asked[:, None, :2] - middles, axis=2)
    assert sorted(distances.argmin(axis=1).tolist()) == [0, 1, 2]
    assert distances.min(axis=1).max() < 0.5
    first = Voting(study(tmp_path, queries=3, asking="first"))
    assert first.request.indices is not None
    assert first.request.indices.tolist() == [0, 1, 2]
    # A coordinator that asks three times about the same record learns no more than it paid for.
    block = Block(np.zeros((1, 6, 2)), np.zeros((1, 6), dtype=np.int64), np.array([6]))
    once, again = (
        method.contribute(Sum("ballots", indices=np.array(places)), block).noisy for places in ([0, 1, 2], [7, 7, 7])
    )
    assert np.linalg.norm(once) == np.linalg.norm(again) == math.sqrt(3.0)


@pytest.mark.parametrize(
    "places",
    [None, [0, 1], [0, 1, 2, 3], [0, 1, 20], [0, 1, -1], [[0, 1, 2]], [0.0, 1.0, 2.0]],
)
def test_a_party_answers_as_many_questions_about_public_records_as_were_planned(
    places: list[Any] | None, tmp_path: Path
) -> None:
    method = Voting(study(tmp_path, queries=3))
    method.check(Vote("ballots", indices=np.array([0, 19, 2])), 0)
    request = Vote("ballots", indices=None if places is None else np.array(places))
    with pytest.raises(Refused, match=r'"ballots" names (no places|places of shape|the place)'):
        method.check(request, 0)


@pytest.mark.parametrize("method", ["voting", "multiparty"])
def test_another_file_of_public_records_than_the_study_means_is_refused(method: str, tmp_path: Path) -> None:
    content = study(tmp_path).model_dump(exclude_none=True)
    content["method"] = {"name": method, "public": content["method"]["public"]}
    digest = hashlib.sha256((tmp_path / "public.npz").read_bytes()).hexdigest()
    assert any(f"SHA-256 {digest}; as public_sha256" in note for note in method_for(make_study(content)).plan().notes)
    content["method"]["public_sha256"] = digest
    agreed = make_study(content)
    assert any(note.endswith(f"SHA-256 {digest}") for note in method_for(agreed).plan().notes)
    np.savez(tmp_path / "public.npz", X=np.zeros((20, 2)))
    with pytest.raises(
        StudyError, match=rf'public_sha256 is "{digest}", but .*public.npz has the SHA-256 [0-9a-f]+; use the file'
    ):
        method_for(agreed).plan()
    content["method"]["public_sha256"] = "12"
    with pytest.raises(StudyError, match=r'public_sha256 is "12".* the SHA-256 of the public records. file'):
        method_for(make_study(content)).plan()


@pytest.mark.parametrize("protocol", ["ideal", "pairwise"])
def test_the_totals_have_the_noise_that_is_stated(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "public.npz", X=np.random.default_rng(0).normal(size=(2_000, 2)))
    content = study(tmp_path, queries=2_000).model_dump(exclude_none=True)
    method, rng = Voting(make_study({**content, "summation": {"protocol": protocol}})), np.random.default_rng(1)
    told: list[np.ndarray] = []
    release = method._release
    monkeypatch.setattr(method, "_release", lambda known, details: told.append(known) or release(known, details))
    federation = ArrayFederation(
        method.study, Records(rng.normal(size=(48, 2)), rng.integers(0, 3, 48)), np.arange(48) % 8
    )
    stated = local.run(method, method.plan(), federation).release.details["noise_std_per_total"]
    exact = sum(method.contribute(method.request, block).noisy.sum(axis=0) for _, block in federation.blocks())
    # Of 6,000 numbers the deviation has a deviation of 0.9 %.
    assert float(np.std(told[0].ravel() - exact)) == pytest.approx(stated, rel=0.05)
