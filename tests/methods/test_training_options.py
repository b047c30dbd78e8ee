"""Keys of training: each does what it says, costs no privacy of its own, and is refused where it would do nothing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unspoken
from factories import make
from unspoken.data.block import Block
from unspoken.methods.base import PartyContext
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.registry import method_for, plan_for
from unspoken.methods.training.gradients import GradientDescent
from unspoken.methods.training.optimizer import Optimizer
from unspoken.methods.training.options import TrainingOptions
from unspoken.methods.workloads import Query
from unspoken.noise.stream import SecretStream
from unspoken.privacy import gaussian
from unspoken.privacy.subsampled import Rounds, epsilon_of
from unspoken.report.verification import verify
from unspoken.study import Study, StudyError
from unspoken.summation.mixnet import onion_bytes

FEATURES = 4


def study(method: dict[str, Any], name: str = "cross-silo", parties: Any = (4, 25, 25), **privacy: Any) -> Study:
    count, records, most = parties
    privacy = {"noise_multiplier": 1.0, "delta": 1e-5} | privacy
    return make(
        name,
        data={"features": FEATURES, "norm": 10.0, "classes": 2},
        parties={"count": count, "records": records, "max_records": most},
        method=method,
        summation="ideal",
        **privacy,
    )


def two_classes(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    features = np.random.default_rng(seed).normal(size=(count, FEATURES))
    return features, (features[:, 0] > 0).astype(int)


# Batches of each party's own records.


def taken_by(workload: GradientDescent, count: int, seed: int) -> np.ndarray:
    return np.flatnonzero(workload.batches.is_taken(count, PartyContext(SecretStream(seed.to_bytes(32, "big")))))


def test_batches_within_parties_are_all_choices_of_a_size_alike() -> None:
    """Of 5 records 2 at the rate 0.5: ten pairs, 4,000 draws; χ² with 9 degrees of freedom exceeds 33.7 in 1 of 10⁴."""
    workload = CrossSilo(study({"sampling": "within-parties", "rate": 0.5}, parties=(4, 5, 5))).workload
    pairs = dict.fromkeys(combinations(range(5), 2), 0)
    for seed in range(4000):
        pairs[tuple(taken_by(workload, 5, seed).tolist())] += 1
    assert sum((count - 400) ** 2 / 400 for count in pairs.values()) < 33.7
    assert len(taken_by(workload, 1, 0)) == 1


@pytest.mark.parametrize(("records", "rate"), [pytest.param(25, 0.2, marks=pytest.mark.long), (3, 1 / 3)])
def test_batches_within_parties_cost_what_their_rate_costs_whoever_colludes(records: int, rate: float) -> None:
    """A party of three records takes one of them, a third, where a fifth was asked for."""
    keys = {"sampling": "within-parties", "rate": 0.2, "rounds": 5}
    plans = [plan_for(study(keys, parties=(4, records, 25), colluding=known)) for known in (0, 2)]
    expected = epsilon_of([Rounds(1.0, rate, 5)], 1e-5, "replace", "without-replacement")
    for plan in plans:
        assert plan.guarantee.epsilon == pytest.approx(expected, rel=2e-3)
        assert not any("token" in note for note in plan.notes)
    with pytest.raises(StudyError, match="batches of fixed size protect replaced records"):
        plan_for(study(keys, adjacency="add-remove"))


def test_a_floor_of_one_record_is_told_and_a_curator_has_none() -> None:
    keys = {"model": "linear", "sampling": "within-parties", "rate": 0.1, "rounds": 2}
    plans = {name: plan_for(study(keys, name, parties=(4, 5, 25))) for name in ("cross-silo", "central")}
    rates = {name: plan.sums[0].sampling.rate for name, plan in plans.items() if plan.sums[0].sampling}
    assert rates == {"cross-silo": 0.2, "central": 0.1}
    told = {name: any("at least one record" in note for note in plan.notes) for name, plan in plans.items()}
    assert told == {"cross-silo": True, "central": False}


@pytest.mark.parametrize("name", ["central", "local"])
def test_a_curator_and_a_party_alone_draw_batches_without_replacement(name: str) -> None:
    keys = {"model": "linear", "sampling": "without-replacement", "rate": 0.2, "rounds": 3}
    agreed = study(keys, name)
    plan = plan_for(agreed)
    expected = epsilon_of([Rounds(1.0, 0.2, 3)], 1e-5, "replace", "without-replacement")
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=2e-3)
    workload: Any = method_for(agreed).workload  # type: ignore[attr-defined]
    sizes = {len(taken_by(workload, 100 if name == "central" else 25, seed)) for seed in range(20)}
    assert sizes == {20 if name == "central" else 5}
    features, labels = two_classes(100)
    done = unspoken.simulate(agreed, features, labels, np.arange(100) % 4, X_test=features, y_test=labels)
    assert 0.0 <= done.metrics["accuracy"] <= 1.0


@pytest.mark.long
def test_the_plan_says_what_tokens_cost_and_what_needs_none() -> None:
    keys = {"sampling": "without-replacement", "rate": 0.2, "rounds": 60}
    plan = plan_for(study(keys, parties=(10, 5_000, 5_000)))
    (note,) = [note for note in plan.notes if "tokens" in note]
    sent = 60 * (5_000 * onion_bytes(10) + 50_000 * onion_bytes(9)) / 1e6
    assert f"lists of tokens take {sent:,.0f} MB" in note
    assert 'sampling = "within-parties"' in note
    assert plan.upload_bytes / 1e6 == pytest.approx(sent, rel=0.05)
    without = plan_for(study(keys | {"sampling": "within-parties"}, parties=(10, 5_000, 5_000)))
    assert without.upload_bytes < plan.upload_bytes / 1_000


# Steps.


def test_a_step_divides_by_the_records_that_the_sum_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties of 2, 2, 2 and 194 records: by their fewest, eight, the step would be 25 times too long."""
    agreed = study({"rounds": 1, "rate": 1.0, "clip": 0.5, "learning_rate": 1.0}, parties=(4, 2, 1_000))
    features, labels = two_classes(200)
    groups = np.minimum(np.arange(200) // 2, 3)
    done = unspoken.simulate(agreed, features, labels, groups)
    release: Any = done.outcome.release
    noise = done.plan.sums[0].total_std(4)
    assert release.details["noise_std_per_step"] == pytest.approx(noise / 200)
    model = release.model
    (total,) = model.clipped_gradients(model.initial(), features, labels, np.array([200]), 0.5)
    np.testing.assert_allclose(release.flat, model.initial() - total / 200, atol=6 * noise / 200)


def test_the_number_of_records_is_hidden_where_it_may_differ_between_neighbours() -> None:
    assert plan_for(study({})).sums[0].exact == ("records",)
    assert plan_for(study({}, adjacency="add-remove")).sums[0].exact == ()


def test_a_party_that_lies_about_its_records_moves_the_step_within_what_the_study_allows() -> None:
    workload = CrossSilo(study({"rate": 0.5}, parties=(4, 10, 20))).workload
    for said, expected in ((-5, 20.0), (40, 20.0), (60, 30.0), (10**9, 40.0)):
        total = unspoken.methods.base.Total(np.zeros(1), np.array([said]), 4, 1.0)
        assert workload._expected_batch(total) == expected


@pytest.mark.usefixtures("seeded")
def test_parties_of_very_unequal_sizes_learn_as_well_as_equal_ones() -> None:
    """ε = 2 on 1,000 records; the smallest party has 4. Steps for 40 records would be 25 times too long."""
    features, labels = two_classes(1_000)
    keys = {"rounds": 20, "rate": 0.2, "learning_rate": 2.0}
    sizes = np.array([4, 4, 8, 16, 32, 64, 128, 200, 244, 300])
    found = []
    for groups in (np.arange(1_000) % 10, np.repeat(np.arange(10), sizes)):
        agreed = study(keys, parties=(10, 4, 400), epsilon=2.0, noise_multiplier=None)
        done = unspoken.simulate(agreed, features, labels, groups, X_test=features, y_test=labels)
        found.append(done.metrics["accuracy"])
    assert min(found) > 0.9
    assert abs(found[0] - found[1]) < 0.05


@pytest.mark.parametrize(
    ("keys", "make_stepper", "make_schedule"),
    [
        (
            {"momentum": 0.9, "weight_decay": 0.1, "schedule": "cosine"},
            lambda w: torch.optim.SGD(w, lr=0.3, momentum=0.9, weight_decay=0.1),
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
        ),
        (
            {"optimizer": "adam", "weight_decay": 0.1, "schedule": "linear"},
            lambda w: torch.optim.AdamW(w, lr=0.3, weight_decay=0.1),
            lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, 8),
        ),
        (
            {"warmup": 4},
            lambda w: torch.optim.SGD(w, lr=0.3),
            lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda turn: min(1.0, (turn + 1) / 4)),
        ),
    ],
)
def test_schedules_and_decay_are_those_of_torch(keys: dict[str, Any], make_stepper: Any, make_schedule: Any) -> None:
    rng = np.random.default_rng(0)
    weights, gradients = rng.normal(size=5), rng.normal(size=(8, 5))
    tensor = torch.tensor(weights, requires_grad=True)
    stepper = make_stepper([tensor])
    schedule = make_schedule(stepper)
    ours = Optimizer(TrainingOptions(learning_rate=0.3, rounds=8, **keys), 5)
    for gradient in gradients:
        tensor.grad = torch.from_numpy(gradient)
        stepper.step()
        schedule.step()
        weights = ours.step(weights, gradient)
        np.testing.assert_allclose(weights, tensor.detach().numpy(), rtol=1e-6)


# Files: validation, first weights, the model.


@pytest.mark.usefixtures("seeded")
def test_a_model_is_measured_on_public_records_and_the_best_is_released(tmp_path: Path) -> None:
    features, labels = two_classes(100)
    np.savez(tmp_path / "public.npz", X=features[:50], y=labels[:50])
    keys = {"rounds": 30, "rate": 1.0, "learning_rate": 2.0, "validation": str(tmp_path / "public.npz")}
    keys |= {"validate_every": 2, "patience": 3}
    agreed = study(keys)
    assert any("stops earlier" in note for note in plan_for(agreed).notes)
    done = unspoken.simulate(agreed, features, labels, np.arange(100) % 4, X_test=features[:50], y_test=labels[:50])
    history = done.to_json()["validation"]
    qualities = [each["accuracy"] for each in history]
    assert [each["rounds"] for each in history] == list(range(2, 2 * len(history) + 1, 2))
    assert done.metrics["accuracy"] == max(qualities)
    asked = len(done.outcome.participation["gradient"])
    assert asked == history[-1]["rounds"] < 30
    assert max(qualities[-3:]) <= max(qualities[:-3])
    assert done.certificate["happened"]["epsilon"] == done.plan.guarantee.epsilon
    assert done.certificate["happened"]["rounds_made"] == asked
    assert done.certificate["happened"]["validation_accuracy"] == max(qualities)
    verify(done.certificate)


def test_a_run_that_ends_by_what_it_released_is_promised_all_of_its_rounds(tmp_path: Path) -> None:
    """Were the ε of the rounds that it made stated, a run could end just where it has told more than that: with ten
    rounds under Gaussian noise of μ = 0.3 each, 5 times as often as δ allows. Backwards over the rounds, on a grid of
    losses: what ending here reveals beyond ε, or what going on does, whichever is more."""
    mu, rounds, delta = 0.3, 10, 1e-5
    losses = np.linspace(-12.0, 12.0, 4801)
    chances = np.exp(-((np.arange(-500, 501) * (losses[1] - losses[0]) - mu**2 / 2) ** 2) / (2 * mu**2))

    def beyond(made: int) -> Any:
        return np.maximum(0.0, -np.expm1(gaussian.epsilon_of(mu * math.sqrt(made), delta) - losses))

    most = beyond(rounds)
    for made in reversed(range(rounds)):
        further = np.convolve(np.pad(most, 500, mode="edge"), chances[::-1] / chances.sum(), mode="valid")
        most = np.maximum(beyond(made), further) if made else further
    assert np.interp(0.0, losses, most) > 5.0 * delta
    keys = {"rounds": 30, "rate": 1.0, "validation": str(tmp_path / "public.npz"), "patience": 3}
    np.savez(tmp_path / "public.npz", X=np.zeros((2, FEATURES)), y=np.array([0, 1]))
    few = {"gradient": [Participation(4, 4)] * 3}
    asked, fixed = (plan_for(study({key: keys[key] for key in kept})) for kept in (keys, ("rounds", "rate")))
    assert asked.guarantee_after(few).epsilon == asked.guarantee.epsilon == fixed.guarantee.epsilon
    assert fixed.guarantee_after(few).epsilon < 0.5 * fixed.guarantee.epsilon


def test_of_models_that_got_worse_the_best_is_chosen_and_patience_ends(tmp_path: Path) -> None:
    features, labels = two_classes(50)
    np.savez(tmp_path / "public.npz", X=features, y=labels)
    keys = {"rounds": 30, "validation": str(tmp_path / "public.npz"), "validate_every": 2, "patience": 2}
    workload = CrossSilo(study(keys)).workload
    watch = workload.watch()
    # Of the two classes' scores only the second's, from the first feature: right, then wrong.
    right = np.zeros(workload.model.size)
    right[FEATURES] = 1.0
    assert [watch.is_over(turn, right if turn < 2 else -right) for turn in range(6)] == [False] * 5 + [True]
    assert [each["accuracy"] for each in watch.history] == [1.0, 0.0, 0.0]
    np.testing.assert_array_equal(workload.release(-right, watch).flat, right)


def test_pretrained_layers_come_from_a_file_and_are_not_trained(tmp_path: Path) -> None:
    first = {"0.weight": np.full((3, FEATURES), 0.25, dtype=np.float32), "0.bias": np.ones(3, dtype=np.float32)}
    np.savez(tmp_path / "first.npz", **first)
    keys = {"model": "mlp", "hidden": [3], "weights": str(tmp_path / "first.npz"), "frozen": ["0"], "rounds": 2}
    agreed = study(keys)
    assert any("the file of first weights has the SHA-256" in note for note in plan_for(agreed).notes)
    features, labels = two_classes(100)
    done = unspoken.simulate(agreed, features, labels, np.arange(100) % 4)
    state = done.outcome.release.state  # type: ignore[attr-defined]
    np.testing.assert_array_equal(state["0.weight"], first["0.weight"])
    assert done.plan.sums[0].dimension == 3 * 2 + 2
    # A released model can be trained further.
    path = Path(done.save(tmp_path)["model"])
    again = study(keys | {"weights": str(path)})
    np.testing.assert_allclose(CrossSilo(again).workload.model.initial(), done.outcome.release.flat, rtol=1e-6)


READER = Path(__file__).parents[2] / "examples" / "read_model.py"


def read(*arguments: str) -> Any:
    """What the example prints in a process of its own, in which unspoken and torch cannot be imported."""
    barred = "import sys; sys.modules['unspoken'] = sys.modules['torch'] = None; "
    program = f"{barred}import runpy; sys.argv = {['read', *arguments]!r}; runpy.run_path({str(READER)!r}, "
    told = subprocess.run(
        [sys.executable, "-c", f"{program}run_name='__main__')"],
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    return json.loads(told.stdout)


def test_a_model_file_tells_its_preprocessing_to_those_who_have_numpy_only(tmp_path: Path) -> None:
    """Numbers, days, booleans, categories with others, and missing values of each kind."""
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(-10, 130, 80), "sex": rng.choice(["f", "m", "x"], 80)})
    table["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, 80), unit="D")
    table["when"] = table["when"].dt.strftime("%Y-%m-%d")
    table["tired"] = rng.choice([True, False], 80).astype(object)
    table.loc[::7, "age"], table.loc[1::9, "sex"] = np.nan, None
    table["died"] = np.where(rng.uniform(size=80) < 0.5, "yes", "no")
    columns = {
        "age": {"min": 0, "max": 110, "missing": "indicator"},
        "sex": {"categories": ["m", "f"], "other": True, "missing": "f"},
        "when": {"min": "2020-01-01", "max": "2021-06-01"},
        "tired": "boolean",
    }
    content = {
        "study": {"name": "table", "task": "classification"},
        "data": {"label": "died", "classes": ["no", "yes"], "columns": columns, "norm": 1.2},
        "parties": {"count": 4, "records": 20, "max_records": 20},
        "privacy": {"noise_multiplier": 0.5, "delta": 1e-5},
        "method": {"name": "cross-silo", "rounds": 5, "rate": 0.5, "learning_rate": 0.5},
        "summation": {"protocol": "ideal"},
    }
    done = unspoken.simulate(content, table, groups=np.arange(80) % 4)
    path = done.save(tmp_path)["model"]
    table.drop(columns="died").to_csv(tmp_path / "new.csv", index=False)
    records = unspoken.data.tables.Table(table, "the table").records(done.plan.study)
    expected = [["no", "yes"][each] for each in done.outcome.release.predict(done.plan.study, records.features)]
    assert read(path, str(tmp_path / "new.csv")) == expected
    assert len(set(expected)) == 2


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_model_file_of_a_network_is_read_without_torch(task: str, tmp_path: Path) -> None:
    """Rows longer than the norm, which are clipped; a regression's predictions are scaled up again."""
    features, labels = two_classes(100)
    labels = labels if task == "classification" else np.clip(features[:, 0] * 20.0, -40.0, 40.0)
    described = {"classes": 2} if task == "classification" else {"label_bounds": [-40, 40]}
    agreed = make(
        "cross-silo",
        task=task,
        data={"features": FEATURES, "norm": 1.0, **described},
        parties={"count": 4, "records": 25, "max_records": 25},
        method={"model": "mlp", "hidden": [6, 5], "rounds": 30, "rate": 1.0},
        summation="ideal",
        noise_multiplier=0.5,
        delta=1e-5,
    )
    done = unspoken.simulate(agreed, features, labels, np.arange(100) % 4)
    np.savez(tmp_path / "new.npz", X=features)
    found = read(done.save(tmp_path)["model"], str(tmp_path / "new.npz"))
    np.testing.assert_allclose(found, done.outcome.release.predict(agreed, features), rtol=1e-3, atol=1e-2)
    assert len(set(found)) > 1


# Refusals.


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"patience": 3}, r"\[method\] has patience, but no validation"),
        ({"validate_every": 3}, r"\[method\] has validate_every, but no validation"),
        ({"weights_sha256": "0" * 64}, r"\[method\] has weights_sha256, but no weights"),
        ({"warmup": 100}, r"\[method\] has warmup = 100, but rounds = 100 only"),
        ({"weights": "nowhere.npz"}, r"\[method\] weights is \"nowhere.npz\", but there is no such file"),
        ({"class_weights": [1.0]}, r"\[method\] class_weights has 1 numbers, but there are 2 classes"),
        ({"loss": "squares"}, r"\[method\] loss is \"squares\", but a classification takes \"cross-entropy\" or"),
        ({"shape": [3, 2]}, r"records of shape \[3, 2\], but they have 4 numbers"),
        ({"frozen": ["head"]}, 'has no layer "head" to freeze'),
        ({"frozen": ["weight", "bias"]}, "has no weights to train"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        plan_for(study(keys))


def test_a_file_of_first_weights_must_be_the_one_that_the_study_means(tmp_path: Path) -> None:
    path = tmp_path / "first.npz"
    np.savez(path, weight=np.zeros((2, FEATURES)))
    with pytest.raises(StudyError, match=r"\[method\] weights_sha256 is .* has the SHA-256"):
        plan_for(study({"weights": str(path), "weights_sha256": "0" * 64}))
    path.write_bytes(b"no zip")
    with pytest.raises(StudyError, match=r"\[method\] weights is .*, which is no NPZ file of plain arrays"):
        plan_for(study({"weights": str(path)}))
    np.savez(path, weight=np.array([{}], dtype=object))
    with pytest.raises(StudyError, match="which is no NPZ file of plain arrays"):
        plan_for(study({"weights": str(path)}))


def test_a_contribution_counts_the_party_s_records() -> None:
    method = CrossSilo(study({"rate": 1.0}))
    features, labels = two_classes(50)
    block = Block(features.reshape(2, 25, FEATURES), labels.reshape(2, 25), np.array([25, 20]))
    contexts = [PartyContext(SecretStream(bytes(32))) for _ in range(2)]
    made = method.workload.contribute(Query("gradient", method.workload.model.initial()), block, contexts)
    assert made.exact.tolist() == [[25], [20]]
