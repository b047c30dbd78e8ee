"""Votes of parties whose records are left out or put in: what is promised for them, and where it is said."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import unspoken
from factories import make
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records, read_features, read_records
from unspoken.data.public import unlabelled
from unspoken.engines import actors, local
from unspoken.methods.voting import Voting
from unspoken.report.certificate import certificate
from unspoken.study import Study, make_study

PARTIES, QUERIES = 8, 20


def study(folder: Path, privacy: dict[str, Any] | None = None, summation: str = "ideal", **keys: Any) -> Study:
    np.savez(folder / "public.npz", X=np.random.default_rng(0).normal(size=(QUERIES, 2)))
    return make(
        "voting",
        data={"features": 2, "classes": 3, "norm": 5.0},
        parties={"count": PARTIES, "records": 6, "max_records": 6},
        privacy={"unit": "party", "adjacency": "add-remove", **(privacy or {})},
        method={"public": str(folder / "public.npz"), "queries": QUERIES, **keys},
        summation=summation,
    )


def by_dp_accounting(sensitivity: float, noise: float, delta: float) -> float:
    loss = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sensitivity=sensitivity, value_discretization_interval=1e-4
    )
    return float(loss.get_epsilon_for_delta(delta))


@pytest.mark.parametrize(("noise", "queries"), [(5.0, 20), (12.0, 7)])
@pytest.mark.parametrize("ballots", ["ensemble", "neighbours"])
def test_epsilon_is_what_dp_accounting_says_of_parties_that_are_left_out(
    ballots: str, noise: float, queries: int, tmp_path: Path
) -> None:
    promise = {"noise_multiplier": noise, "epsilon": None, "delta": 1e-5}
    agreed = study(tmp_path, promise, ballots=ballots, queries=queries)
    plan = Voting(agreed).plan()
    expected = by_dp_accounting(math.sqrt(queries), noise, 1e-5)
    replaced = by_dp_accounting(math.sqrt(2.0 * queries), noise, 1e-5)
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=5e-3)
    assert plan.facts["epsilon_if_replaced"] == pytest.approx(replaced, rel=5e-3)
    other = agreed.model_copy(update={"privacy": agreed.privacy.model_copy(update={"adjacency": "replace"})})
    assert Voting(other).plan().guarantee.epsilon == pytest.approx(replaced, rel=5e-3)


def test_a_single_record_that_is_left_out_costs_what_a_replaced_one_costs(tmp_path: Path) -> None:
    """Another record may become a neighbour, and a model may change altogether."""
    for ballots in ("ensemble", "neighbours"):
        plans = [
            Voting(study(tmp_path, {"unit": "record", "adjacency": adjacency}, ballots=ballots)).plan()
            for adjacency in ("add-remove", "replace")
        ]
        assert plans[0].sum_named("ballots").noise_std == plans[1].sum_named("ballots").noise_std
        assert [plan.guarantee.adjacency for plan in plans] == ["add-remove", "replace"]


def records(parties: int = PARTIES) -> tuple[Records, Any]:
    rng = np.random.default_rng(1)
    return Records(rng.normal(size=(6 * parties, 2)), rng.integers(0, 3, 6 * parties)), np.repeat(np.arange(parties), 6)


@pytest.mark.parametrize("run", [local.run, actors.run])
@pytest.mark.parametrize("ballots", ["ensemble", "neighbours"])
def test_a_party_without_records_takes_part_with_empty_ballots(run: Any, ballots: str, tmp_path: Path) -> None:
    method = Voting(study(tmp_path, {"epsilon": 1000.0}, ballots=ballots))
    everyone, groups = records()
    stay = groups != 3
    plan = method.plan()
    rest = ArrayFederation(method.study, Records(everyone.features[stay], everyone.labels[stay]), groups[stay])
    outcome = run(method, plan, rest)
    assert outcome.survivors == PARTIES
    empty = [method.contribute(method.request, block).noisy for places, block in rest.blocks() if 3 in places]
    assert any(not row.any() for rows in empty for row in rows)


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_file_without_records_is_a_party_s_where_records_may_be_left_out(kind: str, tmp_path: Path) -> None:
    """Elsewhere it is refused, and so is a public file without records everywhere."""
    agreed, file = study(tmp_path), tmp_path / f"empty.{kind}"
    if kind == "csv":
        columns = {"age": {"min": 0, "max": 9}, "sex": {"categories": ["f", "m"]}}
        changed = {"data": {"label": "ill", "classes": ["a", "b", "c"], "columns": columns, "norm": 5.0}}
        agreed = make_study({**agreed.model_dump(exclude_none=True), **changed})
        file.write_text("age,sex,ill\n", encoding="utf-8")
    else:
        np.savez(file, X=np.zeros((0, 2)), y=np.zeros(0, dtype=int))
    assert len(read_records(file, agreed)) == 0
    found = unspoken.check(agreed, file)
    assert (found.fits, found.records) == (True, 0)
    assert "sends empty ballots" in found.remarks[0]
    privacy = agreed.privacy.model_copy(update={"adjacency": "replace"})
    for reader, of in ((read_records, agreed.model_copy(update={"privacy": privacy})), (read_features, agreed)):
        with pytest.raises(unspoken.UnspokenError, match=r"has no records; at least one is needed"):
            reader(file, of)


def test_elsewhere_a_party_without_records_is_refused(tmp_path: Path) -> None:
    method = Voting(study(tmp_path, {"adjacency": "replace"}))
    everyone, groups = records()
    stay = groups != 3
    with pytest.raises(unspoken.UnspokenError, match="party 3 has 0 records"):
        ArrayFederation(method.study, Records(everyone.features[stay], everyone.labels[stay]), groups[stay])


def test_plan_guarantee_and_certificate_say_what_is_promised(tmp_path: Path) -> None:
    method = Voting(study(tmp_path))
    everyone, groups = records()
    plan = method.plan()
    outcome = local.run(method, plan, ArrayFederation(method.study, everyone, groups))
    (note,) = (note for note in plan.notes if "(add-remove)" in note)
    assert note.endswith(f"epsilon = {plan.facts['epsilon_if_replaced']:.4g}")
    for told in (plan.to_json()["guarantee"], certificate(plan, outcome)["guarantee"]):
        assert told["adjacency"] == "add-remove"
        assert "whether all records of one party had been left out or put in" in told["sentence"]
        assert "no secret which parties take part" in told["sentence"]


@pytest.mark.parametrize(("rows", "told"), [(np.zeros((0, 2)), "has no records"), ("p.csv", "is the path 'p.csv'")])
def test_public_rows_are_there_and_no_path(rows: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(unspoken.UnspokenError, match=f"^the public records: {told}"):
        unlabelled(rows, study(tmp_path), "the public records")
