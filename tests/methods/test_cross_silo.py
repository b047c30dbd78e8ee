"""Cross-silo training is DP-SGD in one place; its noise and its batches are what the promise counts."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from sklearn.datasets import load_digits
from torch import Tensor, nn

import unspoken
from factories import make
from unspoken.arithmetic import floating_point_slack
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.answering import Answering
from unspoken.engines.exchange import Post
from unspoken.engines.journal import Journal
from unspoken.learners.projected_gradients import BeforeProjection
from unspoken.learners.random_projection import projected_bound
from unspoken.methods.base import PartyContext, Sum, TokenPositions, Tokens
from unspoken.methods.baselines import Central
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import DeclaredSum, mechanisms
from unspoken.methods.planning.budget import trust_of
from unspoken.methods.planning.making import Setting, plan_sum
from unspoken.methods.registry import method_for
from unspoken.methods.training import batches
from unspoken.methods.training.batches import poisson_sample
from unspoken.methods.training.optimizer import Optimizer
from unspoken.methods.training.options import TrainingOptions
from unspoken.noise.stream import SecretStream
from unspoken.privacy.subsampled import effective_rate, largest_rate
from unspoken.roles.totals import Totals
from unspoken.study import Study, StudyError, make_study
from unspoken.summation.base import Aborted

KEY = bytes(range(32))


class Curved(nn.Module):
    """A model that is more than linear layers."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(features)), nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(rows * self.scale)
        return scores


def study(
    method: dict[str, Any] | None = None,
    parties: tuple[int, int] = (3, 10),
    features: int = 4,
    classes: int = 2,
    data: dict[str, Any] | None = None,
    task: str = "classification",
    summation: str = "compute-nodes",
    **privacy: Any,
) -> Study:
    """`parties` of as many records each; without an epsilon the noise multiplier is 4."""
    count, records = parties
    labels = {"classes": classes} if task == "classification" else {"label_bounds": [-1, 1]}
    return make(
        task=task,
        data={"features": features, "norm": 10.0, **labels, **(data or {})},
        parties={"count": count, "records": records, "max_records": records},
        method={"name": "cross-silo", **(method or {})},
        summation=summation,
        **{"delta": 1e-5, **({} if "epsilon" in privacy else {"noise_multiplier": 4.0}), **privacy},
    )


def records_for(agreed: Study, seed: int = 0) -> tuple[Records, np.ndarray]:
    rng, count = np.random.default_rng(seed), agreed.parties.count * agreed.parties.records
    if agreed.study.task == "regression":
        labels: np.ndarray = rng.uniform(-1, 1, count)
    else:
        labels = rng.integers(len(agreed.data.class_names), size=count)
    groups = np.arange(count) % agreed.parties.count
    return Records(rng.normal(size=(count, agreed.data.raw_dimension)), labels), groups


def run(method: Any, plan: Any = None, seed: int = 0, **options: Any) -> local.Outcome:
    agreed = method.study
    federation = ArrayFederation(agreed, *records_for(agreed, seed))
    return local.run(method, plan or method.plan(), federation, secrets=SecretStream(KEY), **options)


def totals_of(method: CrossSilo) -> list[np.ndarray]:
    """The totals of a run to come, as the coordinator sees them."""
    totals: list[np.ndarray] = []
    projection: Any = method.workload.projection
    lift = projection.lift
    projection.lift = lambda total, turn: (totals.append(total), lift(total, turn))[1]
    return totals


def weights_of(outcome: local.Outcome) -> np.ndarray:
    return np.concatenate([value.ravel() for value in outcome.release.state.values()]).astype(float)


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise."""
    monkeypatch.setattr(mechanisms, "sample", lambda deviation, count, stream: np.zeros(count, dtype=np.int64))


# The same as DP-SGD in one place.


@pytest.mark.parametrize("optimizer", [{"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adam"}])
@pytest.mark.parametrize("model", [{"model": "linear"}, {"model": "mlp", "hidden": [5]}])
def test_without_noise_it_is_central_dp_sgd_step_by_step(
    model: dict[str, Any], optimizer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against torch's own optimiser on the clipped sum of all records; only the rounding of sums is in between."""
    silence(monkeypatch)
    agreed = study({**model, **optimizer, "rounds": 6, "rate": 1.0, "clip": 0.5, "learning_rate": 0.1})
    method = CrossSilo(agreed)
    found = weights_of(run(method))
    records, _ = records_for(agreed)
    weights = torch.tensor(method.workload.model.initial(), requires_grad=True)
    makes = {"sgd": lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9), "adam": lambda w: torch.optim.Adam(w, lr=0.1)}
    stepper = makes[optimizer["optimizer"]]([weights])
    for _ in range(6):
        flat = weights.detach().numpy()
        (total,) = method.workload.model.clipped_gradients(flat, records.features, records.labels, np.array([30]), 0.5)
        weights.grad = torch.from_numpy(total / 30)
        stepper.step()
    # Adam makes steps of the same length of however small a gradient, and of its rounding.
    tolerance = 2e-3 if "adam" in optimizer.values() else 2e-4
    np.testing.assert_allclose(found, weights.detach().numpy(), atol=tolerance)
    central = Central(make_study({**agreed.model_dump(exclude_none=True), "method": {**model, **optimizer,
        "name": "central", "rounds": 6, "rate": 1.0, "clip": 0.5, "learning_rate": 0.1}}))  # fmt: skip
    np.testing.assert_allclose(found, weights_of(run(central)), atol=tolerance)


@pytest.mark.parametrize("options", [{"momentum": 0.0}, {"momentum": 0.9}, {"optimizer": "adam"}])
def test_steps_are_those_of_torch(options: dict[str, Any]) -> None:
    optimizer = Optimizer(TrainingOptions(learning_rate=0.3, **options), 7)
    weights, rng = torch.zeros(7, dtype=torch.float64, requires_grad=True), np.random.default_rng(0)
    stepper: torch.optim.Optimizer = (
        torch.optim.Adam([weights], lr=0.3)
        if "optimizer" in options
        else torch.optim.SGD([weights], lr=0.3, momentum=options["momentum"])
    )
    own = np.zeros(7)
    for _ in range(20):
        gradient = rng.normal(size=7)
        weights.grad = torch.from_numpy(gradient)
        stepper.step()
        own = optimizer.step(own, gradient)
        np.testing.assert_allclose(own, weights.detach().numpy(), rtol=1e-10)


def opacus_accuracies(features: np.ndarray, labels: np.ndarray, tests: Any, runs: int, rounds: int) -> list[float]:
    """DP-SGD by Opacus on Poisson batches: linear model, σ = 1, clip = 1, rate 0.2, learning rate 1."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    rng, inputs, targets = np.random.default_rng(1), torch.from_numpy(features).float(), torch.from_numpy(labels)
    found = []
    for seed in range(runs):
        torch.manual_seed(seed)
        module = GradSampleModule(nn.Linear(64, 10))
        optimizer = DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=1.0),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=len(labels) // 5,
        )
        for _ in range(rounds):
            rows = np.flatnonzero(rng.uniform(size=len(labels)) < 0.2)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()
            optimizer.step()
        guesses = module(torch.from_numpy(tests[0]).float()).argmax(1).numpy()
        found.append(float((guesses == tests[1]).mean()))
    return found


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1,500 digits to learn from, whose rows have a norm of about 1, and 297 to test."""
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = features[order] / 55.0, labels[order]
    return features[:1500], labels[:1500], features[1500:], labels[1500:]


@pytest.mark.usefixtures("only_with_soak", "seeded")
def test_it_is_as_accurate_as_opacus() -> None:
    """The same model, σ, clip, rate, rounds and step size, three runs each.

    The rule: means differ by less than four standard errors of their difference, and 0.02 for the first weights. (In
    enclaves nobody knows a share of the noise, so that the total has no more than Opacus's.)
    """
    rounds, runs, (features, labels, *tests) = 30, 3, digits()
    agreed = study(
        {"rounds": rounds, "rate": 0.2, "clip": 1.0, "learning_rate": 1.0},
        (5, 300),
        64,
        10,
        {"norm": 2.0},
        enclaves=True,
        noise_multiplier=1.0,
    )
    found = []
    for seed in range(runs):
        groups = np.random.default_rng(seed).permutation(1500) % 5
        result = unspoken.simulate(agreed, features, labels, groups, X_test=tests[0], y_test=tests[1])
        found.append(result.metrics["accuracy"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = opacus_accuracies(features, labels, tests, runs, rounds)
    error = math.sqrt((np.var(found, ddof=1) + np.var(expected, ddof=1)) / runs)
    print(f"unspoken {np.mean(found):.3f}, Opacus {np.mean(expected):.3f}, standard error {error:.3f}")
    assert abs(np.mean(found) - np.mean(expected)) < 4 * error + 0.02
    assert np.mean(found) > 0.6


# Noise.


@pytest.mark.parametrize(
    ("privacy", "drop"),
    [
        ({"colluding": 2, "dropouts": 1}, 0),
        ({"colluding": 2, "dropouts": 1}, 1),
        ({}, 0),
        ({"dropouts": 2}, 2),
        ({"enclaves": True}, 0),
        ({"enclaves": True, "dropouts": 1}, 1),
    ],
)
def test_a_round_s_noise_has_the_stated_deviation_and_enough_of_it_is_unknown(
    privacy: dict[str, Any], drop: int
) -> None:
    """All batches are empty, so that 10 totals of 2,010 numbers are noise alone: deviations are known to 0.5 %."""
    parties, sigma, clip = 6, 1.5, 0.5
    agreed = study({"rounds": 10, "rate": 1e-9, "clip": clip}, (parties, 5), 200, 10, noise_multiplier=sigma, **privacy)
    method = CrossSilo(agreed)
    plan, totals = method.plan(), totals_of(method)
    outcome = run(method, plan, drop=drop)
    sent, known = parties - drop, 0 if agreed.privacy.enclaves else max(agreed.colluding, 1)
    assert {there.sent for there in outcome.participation["gradient"]} == {sent}
    measured = np.concatenate(totals).std()
    planned = plan.sums[0]
    assert measured == pytest.approx(planned.total_std(sent), rel=0.02)
    assert outcome.release.details["noise_std_per_step"] == pytest.approx(measured / (1e-9 * 5 * sent), rel=0.02)
    # What colluders (or one curious party) cannot subtract: σ·clip, with rounding and the last component as room.
    left = measured * math.sqrt((sent - known) / sent)
    assert 0.98 * sigma * clip < left < 1.03 * sigma * clip
    assert abs(np.concatenate(totals).mean()) < 5 * measured / math.sqrt(20_100)


def accountant(sigma: float, rate: float, rounds: int, adjacency: str) -> PLDAccountant:
    """dp-accounting's, on a grid that is coarser than ours by far, and so somewhat above."""
    relation = dp_accounting.NeighboringRelation
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    kind = relation.REPLACE_ONE if adjacency == "replace" else relation.ADD_OR_REMOVE_ONE
    return PLDAccountant(kind, value_discretization_interval=1e-3).compose(event, rounds)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_how_often_an_attacker_is_right_is_what_dp_accounting_says(adjacency: str) -> None:
    agreed = study({"rounds": 30, "rate": 0.05}, adjacency=adjacency, noise_multiplier=1.2)
    expected = (1.0 + accountant(1.2, 0.05, 30, adjacency).get_delta(0.0)) / 2.0
    assert CrossSilo(agreed).plan().guarantee.attack_success == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("promise", [{"noise_multiplier": 1.2}, {"epsilon": 2.0}])
def test_the_plan_says_what_dp_accounting_says(adjacency: str, promise: dict[str, float]) -> None:
    agreed = study({"rounds": 30, "rate": 0.05, "clip": 0.7}, adjacency=adjacency, colluding=1, **promise)
    plan = CrossSilo(agreed).plan().to_json()
    (release,) = plan["releases"]
    factor = 2.0 if adjacency == "replace" else 1.0
    # Rounding adds at most 1/128 to the sensitivity, and noise as much.
    assert release["sensitivity"] == pytest.approx(factor * 0.7, rel=0.01)
    assert release["sensitivity"] >= factor * 0.7
    assert release["noise_std"] / (release["sensitivity"] / factor) == pytest.approx(plan["noise_multiplier"])
    assert release["noise_std"] / 0.7 == pytest.approx(plan["noise_multiplier"], rel=0.01)
    epsilon = plan["guarantee"]["epsilon"]
    expected = accountant(plan["noise_multiplier"], 0.05, 30, adjacency).get_epsilon(1e-5)
    assert epsilon == pytest.approx(expected, rel=5e-3)
    assert plan["guarantee"]["adjacency"] == adjacency
    if "epsilon" in promise:
        assert 1.95 < epsilon <= 2.0
    else:
        assert plan["noise_multiplier"] == pytest.approx(1.2)
    assert (release["count"], plan["rounds"]) == (30, 30)
    assert plan["sampling"] == {"kind": "poisson", "rate": 0.05}


def test_the_noise_of_a_promise_and_the_promise_of_a_noise_agree() -> None:
    options = {"rounds": 30, "rate": 0.05}
    promised = CrossSilo(study(options, epsilon=2.0)).plan()
    noisy = CrossSilo(study(options, noise_multiplier=promised.sums[0].noise_multiplier)).plan()
    assert noisy.guarantee.epsilon == pytest.approx(promised.guarantee.epsilon, rel=1e-3)


def test_an_epsilon_or_a_noise_is_needed_and_not_both() -> None:
    with pytest.raises(StudyError, match=r"\[privacy\] has both epsilon and noise_multiplier.*remove one\.$"):
        study(epsilon=1.0, noise_multiplier=1.0)
    content = study().model_dump(exclude_none=True)
    del content["privacy"]["noise_multiplier"]
    with pytest.raises(StudyError, match=r"\[privacy\] epsilon is missing; it should be a number from 1e-4"):
        make_study(content)


UNSAMPLED = ("helmet", "moments", "cape", "conv", "local", "central", "dp-fm", "objective-perturbation")


@pytest.mark.parametrize("name", ["dp-fm", "objective-perturbation"])
def test_pure_promises_refuse_a_noise_multiplier_in_one_sentence(name: str) -> None:
    content = study().model_dump(exclude_none=True)
    content["method"] = {"name": name}
    with pytest.raises(StudyError) as raised:
        method_for(make_study(content)).plan()
    assert str(raised.value) == f'the study: [privacy] lacks epsilon, which the method "{name}" needs.'


@pytest.mark.parametrize("name", UNSAMPLED)
def test_other_methods_refuse_add_remove_in_one_sentence(name: str) -> None:
    content = study(epsilon=1.0, adjacency="add-remove").model_dump(exclude_none=True)
    content["method"] = {"name": name}
    with pytest.raises(StudyError, match=r"\[privacy\] adjacency is \"add-remove\", but .*use \"replace\"\.$"):
        method_for(make_study(content)).plan()


# What a record can do.


def contribution(
    method: CrossSilo, features: np.ndarray, labels: np.ndarray, weights: np.ndarray, turn: int = 0
) -> Any:
    """What a party with these records contributes in a round in which all take part."""
    block = Block(features[None], labels[None], np.array([len(labels)]))
    return method.contribute(Sum("gradient", weights, turn), block, [PartyContext(SecretStream(KEY))]).noisy[0]


@pytest.mark.parametrize("projection", [{}, {"projection": 7}])
@pytest.mark.parametrize(
    "model", [{"model": "linear"}, {"model": "mlp", "hidden": [5]}, {"model": f"{__name__}:Curved"}]
)
def test_replacing_a_record_moves_a_contribution_by_twice_the_clip_at_most_and_can_reach_it(
    model: dict[str, Any], projection: dict[str, Any]
) -> None:
    """Random pairs, and an attack: a label that is flipped where both are as likely turns the gradient round."""
    clip = 0.01
    method = CrossSilo(study({**model, **projection, "rate": 1.0, "rounds": 5, "clip": clip}))
    rng, weights = np.random.default_rng(0), method.workload.model.initial()
    largest = 0.0
    for turn, attack in itertools.product(range(5), (False, True)):
        features, labels = rng.normal(size=(10, 4)) * 3, rng.integers(2, size=10)
        other, flipped = features.copy(), labels.copy()
        flipped[3] = 1 - flipped[3]
        if not attack:
            other[3] = rng.normal(size=4) * 10
        # All scores equal: the last layer (its weights are the last 2·k + 2) says nothing yet.
        here = (
            weights * (np.arange(len(weights)) < len(weights) - (12 if "hidden" in model else 10))
            if attack
            else weights
        )
        one, two = contribution(method, features, labels, here, turn), contribution(method, other, flipped, here, turn)
        distance = float(np.linalg.norm(one - two))
        assert distance <= 2 * clip * (1 + 1e-5)
        largest = max(largest, distance)
    assert largest > 0.95 * 2 * clip


def test_gaussian_projections_exceed_their_bound_as_rarely_as_stated() -> None:
    """With δ' = 0.05 in 1,000 turns: 50 expected, and 80 never by chance (P < 1e-4). The plan's δ' is never seen."""
    clip, size = 0.01, 6
    agreed = study({"projection": size, "projection_kind": "gaussian", "rate": 1.0, "rounds": 50, "clip": clip})
    method = CrossSilo(agreed)
    plan, weights = method.plan(), method.workload.model.initial()
    features, labels = np.full((1, 4), 3.0), np.array([1])
    loose = BeforeProjection(method.workload.model, clip, size, 0, 0.05)
    norms = np.array([
        np.linalg.norm(loose.sums(weights, features, labels, np.array([1]), turn)) for turn in range(1000)
    ])  # fmt: skip
    assert 25 < (norms > loose.bound).sum() < 80
    assert norms.max() < plan.sums[0].contribution
    # Half of a hundredth of δ is shared among rounds, twice each for a replaced record.
    assert method.workload.projection.bound == pytest.approx(projected_bound(clip, size, 1e-5 * 0.01 / 100))
    assert plan.sums[0].sampling.slack == pytest.approx(1e-7)
    assert any("nobody chose records by the seed" in note for note in plan.notes)
    assert (np.mean(norms**2)) == pytest.approx(clip**2, rel=0.1)


def test_a_projection_must_fit_the_model() -> None:
    with pytest.raises(StudyError, match=r"\[method\] projection is 11, but the model has 10 weights only"):
        CrossSilo(study({"projection": 11}))
    plan = CrossSilo(study({"projection": 6, "rounds": 2}, classes=3)).plan()
    assert plan.sums[0].dimension <= 6


def test_with_a_projection_it_still_learns() -> None:
    features, labels, *tests = digits()
    options = {"rounds": 60, "rate": 0.2, "learning_rate": 0.5, "projection": 300}
    agreed = study(options, (5, 300), 64, 10, {"norm": 2.0}, noise_multiplier=1.0)
    result = unspoken.simulate(agreed, features, labels, np.arange(1500) % 5, X_test=tests[0], y_test=tests[1])
    # 0.77 with a standard deviation of 0.04; guessing gives 0.1.
    assert result.metrics["accuracy"] > 0.5


# Poisson sampling.


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


# Batches without replacement.

FIXED = {"sampling": "without-replacement", "rounds": 4, "rate": 0.3}


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
    assert plan.upload_bytes == pytest.approx(outcome.party_bytes, rel=0.2)
    tokens = CrossSilo(study({**FIXED, "sampling": "poisson"}, (3, 40))).plan().upload_bytes
    assert plan.upload_bytes - tokens > 4 * 40 * 3 * 48
    assert plan.released(outcome.participation).epsilon <= plan.guarantee.epsilon


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


@pytest.mark.parametrize(
    ("count", "known", "fewest", "most", "rate"),
    [(3, 0, 1, 10, 0.5), (4, 1, 5, 30, 0.1), (10, 1, 37, 60, 0.05), (10, 3, 20, 100, 0.2), (3, 1, 2, 9, 0.01)],
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
        local.run(method, method.plan(), federation, journal=journal)
    journal.close()
    journal = Journal(records, "run")
    outcome = local.run(method, method.plan(), federation, journal=journal)
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


# Trust.


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_the_promise_weakens_without_a_break_as_more_collude(sampling: str) -> None:
    plan = CrossSilo(study({**FIXED, "sampling": sampling}, (10, 20), colluding=2, dropouts=1)).plan()
    table = plan.weakening()
    assert [row["colluding"] for row in table] == [2, 3, 4, 5, 6, 7, 8]
    found = [row["epsilon"] for row in table]
    assert found == sorted(found)
    assert found[0] == pytest.approx(plan.guarantee.epsilon, rel=0.02)
    assert found[0] >= plan.guarantee.epsilon * (1 - 1e-6)
    # Against the last honest party the noise is that of one share of the seven.
    assert found[-1] > 2 * found[0]


def test_dropouts_within_the_allowance_cost_no_more_than_planned_and_more_end_the_run() -> None:
    agreed = study({"rounds": 5, "rate": 0.2}, (6, 10), dropouts=2, colluding=1)
    records, groups = records_for(agreed)
    for drop in (0, 1, 2):
        result = unspoken.simulate(agreed, records.features, records.labels, groups, drop=drop)
        happened = result.certificate["happened"]
        assert 0.9 * result.plan.guarantee.epsilon < happened["epsilon"] <= result.plan.guarantee.epsilon
        assert (happened["survivors"], happened["dropped"]) == (6 - drop, drop)
    with pytest.raises(Aborted, match="only 3 of 6 parties"):
        unspoken.simulate(agreed, records.features, records.labels, groups, drop=3)


def test_enclaves_need_no_share_for_the_curious() -> None:
    with_them, without = (CrossSilo(study(parties=(4, 10), **more)).plan() for more in ({"enclaves": True}, {}))
    ratio = with_them.sums[0].total_std(4) / without.sums[0].total_std(4)
    assert ratio == pytest.approx(math.sqrt(3 / 4), rel=1e-3)
    assert with_them.guarantee.epsilon == pytest.approx(without.guarantee.epsilon, rel=1e-3)
    assert "trusted execution environments" in with_them.guarantee.sentence()


def test_shares_from_enclaves_that_were_broken_into_count_as_known() -> None:
    """Two of six enclaves: four shares must do, where without enclaves as many would if two parties colluded."""
    broken, colluding = (
        CrossSilo(study(parties=(6, 10), colluding=2, **more)).plan() for more in ({"enclaves": True}, {})
    )
    assert broken.trust.known == 2
    assert broken.sums[0].total_std(6) == pytest.approx(colluding.sums[0].total_std(6), rel=1e-6)
    whole = CrossSilo(study(parties=(6, 10), enclaves=True)).plan()
    assert broken.sums[0].total_std(6) == pytest.approx(math.sqrt(6 / 4) * whole.sums[0].total_std(6), rel=0.02)
    assert "of which none but 2 are broken into" in broken.guarantee.sentence()
    assert "together with 2 of the 6 parties" in broken.guarantee.sentence()


# Studies.


@pytest.mark.parametrize(
    ("method", "privacy", "words"),
    [
        ({}, {"unit": "party"}, r"\[privacy\] unit should be \"record\" with \"cross-silo\""),
        ({}, {"unit": {"group": 2}}, "sampling protects single records"),
        ({}, {"colluding": 2, "dropouts": 1}, "leaves no honest party: of 3 parties, 2 may know their own noise"),
        ({"model": "mpl"}, {}, r"\[method\] model is \"mpl\", which is unknown; use \"linear\", \"mlp\", \"cnn\" or"),
        ({"model": "cnn"}, {}, r"\[method\] model is \"cnn\", which takes square images of one or three channels"),
        ({"rate": 0.0}, {}, r"\[method\] rate is 0\.0, but should be the expected share of all records in a batch"),
        ({"hidden": [3, 0]}, {}, r"\[method\] hidden is \[3, 0\], but should list sizes of 1 or more"),
        ({"hidden": [3]}, {}, r"\[method\] has hidden layers, but model = \"linear\" has none"),
        ({"momentum": 0.9, "optimizer": "adam"}, {}, r"\[method\] has momentum, which is for optimizer = \"sgd\""),
        ({"projection_kind": "gaussian"}, {}, r"\[method\] has projection_kind, but no projection"),
        ({"rouns": 3}, {}, r"\[method\] rouns is an unknown key; did you mean 'rounds'\?"),
        ({}, {"delta": 1e-30}, r"\[privacy\] delta is 1e-30, but the summation, the drawing of noise and the sampling"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    method: dict[str, Any], privacy: dict[str, Any], words: str
) -> None:
    with pytest.raises(StudyError, match=words):
        CrossSilo(study(method, **privacy)).plan()


def test_statistics_are_not_trained() -> None:
    content = study().model_dump(exclude_none=True)
    content["study"]["task"], content["data"] = "statistics", {"features": 2}
    with pytest.raises(
        StudyError, match=r"\[study\] task is \"statistics\", but \"cross-silo\" is for classification and regression"
    ):
        CrossSilo(make_study(content))


def test_who_leaves_the_number_of_records_open_is_told_what_steps_are_sized_for() -> None:
    """Only where their true number is hidden."""
    content = study().model_dump(exclude_none=True)
    content["parties"] = {"count": 3}
    content["privacy"]["adjacency"] = "add-remove"
    assert any("set records" in note for note in CrossSilo(make_study(content)).plan().notes)
    content["privacy"]["adjacency"] = "replace"
    assert not any("set records" in note for note in CrossSilo(make_study(content)).plan().notes)


@pytest.mark.parametrize("model", [{}, {"model": "mlp", "hidden": [8]}])
def test_a_released_model_is_a_module_and_scores_records_clipped_as_in_training(model: dict[str, Any]) -> None:
    """Records far longer than the norm, on which an unclipped bias would count for nothing."""
    agreed = study(
        {**model, "rounds": 30, "rate": 1.0, "learning_rate": 2.0}, (2, 100), noise_multiplier=1.0, data={"norm": 1.0}
    )
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 4)) * 50
    result = unspoken.simulate(agreed, features, (features[:, 0] > 0).astype(int), np.arange(200) % 2, X_test=features,
                            y_test=(features[:, 0] > 0).astype(int))  # fmt: skip
    clipped = features / np.linalg.norm(features, axis=1, keepdims=True)
    module = result.model
    assert isinstance(module, nn.Module)
    assert not module.training
    guesses = module(torch.from_numpy(clipped).float()).argmax(1).numpy()
    assert result.metrics["accuracy"] == pytest.approx((guesses == (features[:, 0] > 0)).mean())
    assert result.metrics["accuracy"] > 0.8
    release = result.outcome.release
    np.testing.assert_allclose(release.scores(agreed, features), release.scores(agreed, clipped), atol=1e-5)
    assert result.model.state_dict().keys() == module.state_dict().keys()


def test_a_regression_is_learnt_in_the_units_of_its_labels() -> None:
    """With labels of half the length where records are clipped to half of theirs."""
    agreed = study(
        {"rounds": 40, "rate": 1.0, "learning_rate": 0.5, "clip": 2.0},
        (2, 200),
        task="regression",
        data={"norm": 1.0, "label_bounds": [-4, 4]},
        noise_multiplier=1.0,
    )
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 4))
    labels = features @ [0.5, -1.0, 0.2, 0.0]
    result = unspoken.simulate(agreed, features, labels, np.arange(400) % 2)
    errors = result.outcome.release.predict(agreed, features) - labels
    assert (errors**2).mean() < 0.1 * labels.var()


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
@pytest.mark.parametrize(("parties", "rate"), [((1_000, 1_000), 1.0), ((1_000, 100_000), 0.01), ((10, 10**6), 0.5)])
def test_the_words_of_a_total_hold_the_largest_batch(parties: tuple[int, int], rate: float, sampling: str) -> None:
    """Records that all pull the same way, in a batch that is larger than expected by eight deviations."""
    clip, everyone = 2.0, parties[0] * parties[1]
    method = {"rounds": 10, "rate": rate, "clip": clip, "sampling": sampling}
    planned = method_for(study(method, parties, noise_multiplier=3.0)).plan().planned("gradient")
    batch = everyone * rate + (8.0 * math.sqrt(everyone * rate * (1.0 - rate)) if sampling == "poisson" else 0.0)
    noise = 8.0 * planned.total_std(parties[0])
    assert (clip * batch + noise) * planned.encoding.scale < 2.0 ** (planned.encoding.bits - 1)


@pytest.mark.parametrize(("records", "group"), [(100, 1), (10**8, 1), (10**8, 2)])
def test_what_floating_point_adds_to_the_sensitivity_is_counted(records: int, group: int) -> None:
    """Once for each party that neighbours differ at, and in proportion to all that a party adds up."""
    content = study({"rounds": 1, "rate": 1e-3, "clip": 2.0}, (3, records)).model_dump(exclude_none=True)
    rows = 1024
    if group == 1:
        planned = method_for(make_study(content)).plan().planned("gradient")
    else:
        content |= {"method": {"name": "helmet"}, "privacy": {"epsilon": 1.0, "delta": 1e-5, "unit": {"group": group}}}
        agreed = make_study(content)
        declared = DeclaredSum("any", 10, 2.0 * records, 2.0, rows=rows)
        planned = plan_sum(agreed, Setting(trust_of(agreed)), declared, 1.0)
    rounding = group * planned.encoding.rounding(planned.dimension) / planned.encoding.scale
    off = group * floating_point_slack(records, rows) * 2.0 * records
    assert planned.contribution - rounding == pytest.approx(2.0 + off, rel=1e-9, abs=0.0)
    assert planned.sensitivity == planned.contribution * (2 if group == 1 else 1)
    assert (off > 1e-3) == (records == 10**8)
