"""Batches are drawn as the promise counts them, with and without replacement."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspoken
from factories import make
from silos import FIXED, KEY, accountant, records_for, run, silence, study, totals_of
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.engines import local
from unspoken.engines.answering import Answering
from unspoken.engines.attempt import Post
from unspoken.engines.conditions import Conditions
from unspoken.engines.journal import Journal
from unspoken.learners.random_projection import projected_bound
from unspoken.methods.base import PartyContext, Sum, TokenPositions, Tokens
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.parameters import Refused
from unspoken.methods.registry import method_for
from unspoken.methods.training import batches
from unspoken.methods.training.batches import poisson_sample
from unspoken.noise.stream import SecretStream
from unspoken.privacy.subsampled import effective_rate, largest_rate
from unspoken.roles.totals import Totals
from unspoken.study import StudyError, make_study


@pytest.mark.parametrize("rate", [0.001, 0.3, 0.999, 1.0])
def test_records_are_drawn_at_the_rate(rate: float) -> None:
    """100,000 draws: five standard errors."""
    taken = poisson_sample(100_000, rate, SecretStream(KEY))
    assert abs(taken.mean() - rate) <= 5 * math.sqrt(rate * (1 - rate) / 100_000)


def test_parties_and_rounds_draw_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 rounds of 5 parties with 100 records: any two of the 200 batches are uncorrelated within 6/√100."""
    drawn: list[np.ndarray] = []

    def remembered(count: int, rate: float, secrets: SecretStream) -> np.ndarray:
        drawn.append(poisson_sample(count, rate, secrets))
        return drawn[-1]

    monkeypatch.setattr(batches, "poisson_sample", remembered)
    run(CrossSilo(study({"rounds": 40, "rate": 0.3}, (5, 100), summation="ideal")))
    taken = np.array(drawn)
    assert taken.shape == (200, 100)
    assert taken.mean() == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / 20_000))
    # Sizes vary as binomials do: a variance of 21, known to a tenth from 200 of them.
    assert 13 < taken.sum(1).var() < 31
    related = np.corrcoef(taken)[np.triu_indices(200, 1)]
    assert np.abs(related).max() < 0.6
    assert abs(related.mean()) < 0.01


@pytest.mark.parametrize("protocol", ["compute-nodes", "secagg"])
def test_an_empty_batch_sends_a_message_like_any_other(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[float, list[tuple[str, int]]] = {}
    send = Post.send
    for rate in (1e-9, 1.0):
        sent = sizes[rate] = []

        def watched(post: Any, envelopes: Any, sender: str = "coordinator", sent: Any = sent) -> None:
            sent.extend((sender, len(envelope.body)) for envelope in envelopes)
            send(post, envelopes, sender)

        monkeypatch.setattr(Post, "send", watched)
        outcome = run(CrossSilo(study({"rounds": 2, "rate": rate}, (4, 10), summation=protocol)))
        assert outcome.survivors == 4
    assert sorted(sizes[1e-9]) == sorted(sizes[1.0])


def test_batches_without_replacement_are_of_the_records_behind_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise each total is the clipped sum over exactly the records whose tokens are at the batch's places."""
    silence(monkeypatch)
    dealings: list[dict[int, TokenPositions]] = []
    weights: list[np.ndarray] = []
    deal = Answering._shuffle

    def dealt(running: Any, *arguments: Any) -> Any:
        answer = deal(running, *arguments)
        dealings.append(running._positions)
        return answer

    monkeypatch.setattr(Answering, "_shuffle", dealt)
    agreed = study({**FIXED, "clip": 0.5}, (3, 7))
    method = CrossSilo(agreed)
    ask = method.request

    def request(query: Any) -> Any:
        weights.append(query.parameters)
        return ask(query)

    monkeypatch.setattr(method, "request", request)
    totals = totals_of(method)
    run(method)
    records, groups = records_for(agreed)
    lists = set()
    for total, dealing, at in zip(totals, dealings, weights, strict=True):
        where = {party: dealt.places for party, dealt in dealing.items()}
        # All parties come to the same batch, by the seed that they made together.
        assert len({dealt.seed for dealt in dealing.values()}) == 1
        batch = method.workload.batches.batch(dealing[0])
        assert len(set(batch.tolist())) == 6  # ⌊0.3·21⌋
        # Every place has one record.
        assert sorted(np.concatenate(list(where.values()))) == list(range(21))
        lists.add(tuple(np.concatenate(list(where.values())).tolist()))
        rows = np.concatenate([np.flatnonzero(groups == party)[np.isin(where[party], batch)] for party in range(3)])
        assert len(rows) == 6
        (expected,) = method.workload.model.clipped_gradients(
            at, records.features[rows], records.labels[rows], np.array([6]), 0.5
        )
        np.testing.assert_allclose(total, expected, atol=2e-3)
    assert len(lists) == 4


def test_tokens_count_in_the_upload_and_the_run_keeps_its_promise() -> None:
    method = CrossSilo(study(FIXED, (3, 40)))
    plan = method.plan()
    outcome = run(method, plan)
    assert plan.upload_bytes == outcome.party_bytes
    without = CrossSilo(study({**FIXED, "sampling": "poisson"}, (3, 40))).plan()
    assert plan.upload_bytes - without.upload_bytes > 4 * 40 * 3 * 48
    # In each round a party sends its key, its onions, all onions with a layer less, and its part of the seed.
    assert plan.party_messages == without.party_messages + 4 * 4
    assert plan.guarantee_after(outcome.participation).epsilon <= plan.guarantee.epsilon


def test_batches_without_replacement_are_accounted_for_as_such() -> None:
    """A replaced record against those that make room for it: the add-remove pair at half the noise, and a little more,
    as either of the two may be the one at hand in each round."""
    plan = CrossSilo(study(FIXED, (3, 40), noise_multiplier=2.0)).plan()
    rate = plan.sums[0].sampling.rate
    assert rate == effective_rate(36, 120, 40, 1e-7 / 4)
    assert 0.3 < rate < 0.5
    one_way = accountant(1.0, rate, 4, "add-remove").get_epsilon(1e-5 * 0.99)
    assert 1.001 * one_way < plan.guarantee.epsilon < 1.01 * one_way
    with pytest.raises(StudyError, match=r"\[privacy\] adjacency is \"add-remove\", but batches of fixed size"):
        CrossSilo(study(FIXED, adjacency="add-remove")).plan()


@pytest.mark.parametrize("attempts", [1, 3])
def test_every_list_of_tokens_that_may_be_made_pays_for_more_honest_records_than_its_rate_says(attempts: int) -> None:
    """A hundredth of δ for all lists together: of four rounds, each as often as a sum may be tried."""
    planned = CrossSilo(study(FIXED, (3, 40), noise_multiplier=2.0, attempts=attempts)).plan().sums[0].sampling
    assert planned.rate == effective_rate(36, 120, 40, 1e-7 / (4 * attempts))
    assert planned.slack == pytest.approx(1e-7)


@pytest.mark.parametrize(
    ("count", "known", "fewest", "most", "rate"),
    [
        (3, 0, 1, 10, 0.5),
        (4, 1, 5, 30, 0.1),
        (10, 1, 37, 60, 0.05),
        (10, 3, 20, 100, 0.2),
        (3, 1, 2, 9, 0.01),
        (3, 0, 1, 10, 0.01),
    ],
)
def test_the_planned_rate_holds_for_any_numbers_of_records_that_a_study_allows(
    count: int, known: int, fewest: int, most: int, rate: float
) -> None:
    content = study({**FIXED, "rate": rate}, (count, fewest)).model_dump(exclude_none=True)
    content["parties"]["max_records"] = most
    content["privacy"] |= {"enclaves": True} if known == 0 else {"colluding": known}
    method = CrossSilo(make_study(content))
    planned, allowed = method.plan().sums[0].sampling.rate, 1e-7 / 4
    for honest, theirs in itertools.product(
        np.linspace((count - known) * fewest, (count - known) * most, 25).astype(int).tolist(),
        {known * fewest, known * (fewest + most) // 2, known * most},
    ):
        batch = method.workload.batches.size(honest + theirs)
        assert effective_rate(batch, honest + theirs, theirs, allowed) <= planned + 1e-12


def test_a_curator_s_batch_of_one_counts_at_its_share_of_as_few_records_as_there_may_be() -> None:
    keys = {"model": "linear", "sampling": "within-parties", "rate": 0.1, "rounds": 2}
    content = study(keys, (2, 3)).model_dump(exclude_none=True)
    content["parties"]["max_records"], content["method"]["name"] = 25, "central"
    planned = method_for(make_study(content)).plan().sums[0].sampling
    assert planned is not None
    assert planned.rate == 1.0 / 6.0


def test_a_curator_s_batch_of_one_is_drawn_from_fewer_records_if_parties_drop_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares: list[float] = []
    is_taken = batches.PooledBatches.is_taken

    def watched(own: batches.PooledBatches, count: int, context: PartyContext) -> np.ndarray:
        taken = is_taken(own, count, context)
        shares.append(float(taken.mean()))
        return taken

    monkeypatch.setattr(batches.PooledBatches, "is_taken", watched)
    keys = {"model": "linear", "sampling": "without-replacement", "rate": 0.01, "rounds": 2, "name": "central"}
    method = method_for(study(keys, (5, 4), dropouts=2))
    (planned,) = method.agreed_plan.sums
    assert planned.sampling is not None
    assert any("so where it is drawn from 12 the rate counts as 0.0833" in note for note in method.agreed_plan.notes)
    for drop, records in ((0, 20), (2, 12)):
        run(method, drop=drop)
        assert shares[-2:] == [1.0 / records] * 2
        assert max(shares) <= planned.sampling.rate == 1.0 / 12.0
    sampling = method_for(study(keys, (5, 4), dropouts=5)).agreed_plan.sums[0].sampling
    assert sampling is not None
    assert sampling.rate == 1.0 / 4.0  # someone has to stay


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_bound_that_projected_gradients_may_exceed_is_paid_for_both_records_and_each_vector(attempts: int) -> None:
    """A hundredth of δ for all: the record that is there and the one in its place, in four rounds, as often as a sum
    may be tried."""
    keys = {"model": "linear", "rounds": 4, "rate": 0.5, "clip": 0.5, "projection": 5, "projection_kind": "gaussian"}
    method = CrossSilo(study(keys, (3, 40), noise_multiplier=2.0, attempts=attempts))
    (planned,) = method.plan().sums
    each = 1e-7 / (2 * 4 * attempts)
    assert planned.sampling is not None
    assert planned.sampling.slack == pytest.approx(1e-7)
    assert planned.contribution == pytest.approx(projected_bound(0.5, 5, each), rel=0.01)
    assert planned.contribution >= projected_bound(0.5, 5, each)


def test_the_largest_rate_is_that_of_all_if_there_are_no_others_and_falls_towards_it() -> None:
    assert largest_rate(0.2, 100, 1.0) == pytest.approx(0.2)
    rates = [largest_rate(0.2, honest, 1e-9) for honest in (10, 100, 1000, 10**6)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.203


def test_a_run_that_was_cut_off_deals_the_same_tokens_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut when the third total was made but not yet kept: the same batch and the same total come again."""
    method = CrossSilo(study(FIXED, (3, 6)))
    totals, total = [], Totals._total

    def made(running: Any, *arguments: Any) -> Any:
        answer = total(running, *arguments)
        totals.append(answer.noisy.tobytes())
        if len(totals) == 3:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(Totals, "_total", made)
    records, federation = tmp_path / "run", ArrayFederation(method.study, *records_for(method.study))
    journal = Journal(records, "run")
    with pytest.raises(KeyboardInterrupt):
        local.run(method, method.plan(), federation, Conditions(journal=journal))
    journal.close()
    journal = Journal(records, "run")
    outcome = local.run(method, method.plan(), federation, Conditions(journal=journal))
    journal.close()
    assert totals[3] == totals[2]
    assert len(totals) == 5
    assert len(set(totals)) == 4
    assert len(outcome.participation["gradient"]) == 4


def test_a_party_needs_tokens_before_a_batch_and_weights_before_either() -> None:
    method = CrossSilo(study(FIXED))
    block = Block(np.zeros((1, 2, 4)), np.zeros((1, 2), dtype=np.int64), np.array([2]))
    with pytest.raises(ValueError, match="list of tokens"):
        method.contribute(Sum("gradient", method.workload.model.initial()), block, [PartyContext(SecretStream())])
    with pytest.raises(ValueError, match="Expected parameters"):
        method.contribute(Sum("gradient"), block, [PartyContext(SecretStream())])
    for weights in (None, np.zeros(3)):
        with pytest.raises(Refused, match="it should carry 10 numbers"):
            method.check(Sum("gradient", weights), 0)
    assert next(method.coordinate(method.plan())) == Tokens(0)


@pytest.mark.parametrize(
    ("name", "sizes", "rate", "batch"),
    [
        ("cross-silo", [5] * 20, 0.01, 20),  # one record of each party, not a hundredth of all
        ("cross-silo", [19] * 4, 0.1, 4),
        ("cross-silo", [9, 19, 20, 39], 0.1, 1 + 1 + 2 + 3),
        ("local", [19] * 4, 0.1, 4),
        ("central", [19] * 4, 0.1, 7),
    ],
)
def test_a_step_divides_by_the_batches_that_parties_draw(name: str, sizes: list[int], rate: float, batch: int) -> None:
    """Records all alike: the mean of their clipped gradients is one of them, whatever the sizes."""
    keys = {"model": "linear", "sampling": "within-parties", "rounds": 1, "rate": rate, "clip": 0.25}
    agreed = make(
        name,
        data={"features": 4, "norm": 10.0, "classes": 2},
        parties={"count": len(sizes), "records": min(sizes), "max_records": max(sizes)},
        method=keys | {"learning_rate": 1.0},
        summation="ideal",
        noise_multiplier=1.0,
    )
    features, labels = np.ones((sum(sizes), 4)), np.zeros(sum(sizes), dtype=int)
    done = unspoken.simulate(agreed, features, labels, np.repeat(np.arange(len(sizes)), sizes))
    release: Any = done.outcome.release
    (total,) = release.model.clipped_gradients(release.model.initial(), features, labels, np.array([len(labels)]), 0.25)
    noise = release.details["noise_std_per_step"]
    assert noise == pytest.approx(done.plan.sums[0].total_std(len(sizes)) / batch)
    moved = release.model.initial() - release.flat
    np.testing.assert_allclose(moved, total / len(labels), atol=6 * noise)
