"""Parties that adapt to public records: where it is allowed, that it helps, and what their voters are told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import unspoken
from factories import make
from unspoken.data.block import Block
from unspoken.methods.registry import method_for
from unspoken.methods.voting import Voting
from unspoken.study import Study, StudyError

PARTIES, EACH = 12, 30


def displaced() -> tuple[Any, Any, Any, Any]:
    """Records of the parties, stretched and displaced, their labels, and public records with theirs."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, PARTIES * EACH + 200)
    both = 0.1 * (rng.normal(size=(len(labels), 4)) + 4.0 * labels[:, None] * [1.0, 0.0, 0.0, 0.0])
    own = both[:-200] * [2.0, 0.3, 1.0, 1.0] + [1.0, 0.0, 0.5, 0.0]
    return own, labels[:-200], both[-200:], labels[-200:]


def study(folder: Path, name: str, unit: str = "party", **keys: Any) -> Study:
    path = folder / "public.npz"
    np.savez(path, X=displaced()[2])
    data = {"features": 4, "classes": 2, "norm": 3.0, "intercept": True}
    return make(
        name,
        data=data if name == "voting" else {**data, "public": str(path)},
        parties={"count": PARTIES, "records": EACH, "max_records": EACH},
        privacy={"epsilon": 500.0, "unit": unit},
        method={**({"public": str(path), "queries": 60} if name == "voting" else {}), **keys},
        summation="ideal",
    )


@pytest.mark.parametrize(("ballots", "unit"), [("ensemble", "record"), ("ensemble", "party"), ("neighbours", "party")])
def test_votes_of_parties_that_adapt_are_better_where_domains_differ(ballots: str, unit: str, tmp_path: Path) -> None:
    own, labels, public, right = displaced()
    groups = np.arange(len(labels)) % PARTIES
    shares = []
    for adaptation in ("none", "coral"):
        agreed = study(tmp_path, "voting", unit, ballots=ballots, adaptation=adaptation)
        done = unspoken.simulate(agreed, own, labels, groups, seed=0)
        shares.append(float((done.outcome.release.predict(agreed, public) == right).mean()))
    assert shares[1] > 0.8
    assert shares[1] > shares[0] + 0.1


@pytest.mark.parametrize("unit", ["record", {"group": 3}])
def test_neighbours_that_one_record_may_all_replace_are_refused(unit: Any, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"adaptation is \"coral\", with which one record moves .*unit = \"party\""):
        Voting(study(tmp_path, "voting", unit, ballots="neighbours", adaptation="coral"))


def test_what_is_said_of_one_record_holds_where_it_may_replace_all_neighbours(tmp_path: Path) -> None:
    """Whole parties are protected, and the plan also says what one record is promised: with the map as much as its
    party, since a record far away moves all others."""
    plan = Voting(agreed := study(tmp_path, "voting", ballots="neighbours", adaptation="coral")).plan()
    assert plan.facts["epsilon_by_unit"]["record"] == plan.facts["epsilon_by_unit"]["party"]
    method, rng, furthest = Voting(agreed), np.random.default_rng(0), 0.0
    for _ in range(20):
        rows = 0.1 * rng.normal(size=(20, agreed.data.dimension))
        labels, moved = (rows[:, 0] > 0.0).astype(np.int64), rows.copy()
        moved[0] = 50.0
        one, other = (
            method.contribute(method.request, Block(features[None], labels[None], np.array([20]))).noisy
            for features in (rows, moved)
        )
        furthest = max(furthest, float(np.linalg.norm(one - other)))
    # One of the neighbours of each query, at most, would be replaced without the map.
    assert furthest > math.sqrt(2.0 * method.queries) / method.options.neighbours


def test_adaptation_changes_no_noise(tmp_path: Path) -> None:
    plans = [Voting(study(tmp_path, "voting", adaptation=adaptation)).plan() for adaptation in ("none", "coral")]
    assert plans[0].sum_named("ballots").noise_std == plans[1].sum_named("ballots").noise_std


def test_fedavg_adapts_networks_and_fedsgd_refuses_to(tmp_path: Path) -> None:
    own, labels, public, right = displaced()
    groups = np.arange(len(labels)) % PARTIES
    keys = {"model": "mlp", "hidden": [8], "rounds": 20, "rate": 1.0, "local_rate": 1.0, "epochs": 5}
    shares = []
    for adaptation in ("none", "coral"):
        agreed = study(tmp_path, "fedavg", adaptation=adaptation, **keys)
        done = unspoken.simulate(agreed, own, labels, groups, seed=0)
        shares.append(float((done.outcome.release.predict(agreed, public) == right).mean()))
    assert shares[1] > shares[0] + 0.1
    with pytest.raises(StudyError, match="is for models other than"):
        method_for(study(tmp_path, "fedavg", adaptation="coral")).plan()
    with pytest.raises(StudyError, match="adaptation is for whole parties"):
        method_for(study(tmp_path, "fedsgd", "record", adaptation="coral"))


class Listening:
    """A classifier that is told the public records."""

    told: ClassVar[list[Any]] = []

    def fit(self, features: Any, labels: Any, public: Any = None) -> Listening:
        Listening.told.append(None if public is None else len(public))
        return self

    def predict(self, features: Any) -> Any:
        return np.zeros(len(features), dtype=int)


def test_a_voter_and_a_student_whose_fit_takes_public_records_get_them(tmp_path: Path) -> None:
    own, labels, _, _ = displaced()
    name = f"{__name__}:Listening"
    agreed = study(tmp_path, "voting", model=name)
    Listening.told.clear()
    unspoken.simulate(agreed, own, labels, np.arange(len(labels)) % PARTIES, seed=0)
    assert Listening.told.count(200) >= PARTIES
