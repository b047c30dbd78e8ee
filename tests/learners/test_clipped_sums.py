"""Sums of clipped gradients are what one example at a time gives, however a model is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modules import BOOKED, CHANGED, FEATURES, MODELS, OUTPUTS, Convolved, Mixing, Teacher, examples, here, make
from unspoken.arithmetic import rows_of
from unspoken.learners import torch_models
from unspoken.learners.projected_gradients import Plain, after_projection
from unspoken.learners.torch_models import TorchModel
from unspoken.learners.torch_modules import make_module


def alone(model: TorchModel, flat: np.ndarray, features: np.ndarray, label: Any) -> np.ndarray:
    """One example's gradient, in the plainest way: in double precision, by autograd, on a module of its own."""
    name, width, outputs, hidden = model._arguments
    module = make_module(name, width, outputs, hidden).double()
    module.load_state_dict({key: torch.from_numpy(value).double() for key, value in model.state(flat).items()})
    scores = module(torch.from_numpy(np.asarray(features, dtype=np.float32)).double()[None])
    if model._losses.name == "squares":
        loss = (scores[0, 0] - float(label)) ** 2 / 2
    else:
        loss = nn.functional.cross_entropy(scores, torch.tensor([int(label)]))
    trained = [weights for weights in module.parameters() if weights.requires_grad]
    slopes = torch.autograd.grad(loss, trained)
    return torch.cat([slope.reshape(-1) for slope in slopes]).numpy()


def clipped(vector: np.ndarray, clip: float) -> np.ndarray:
    return vector * min(1.0, clip / max(float(np.linalg.norm(vector)), 1e-300))


@pytest.mark.parametrize("loss", ["cross-entropy", "squares"])
@pytest.mark.parametrize("name", MODELS)
def test_sums_are_those_of_gradients_computed_and_clipped_one_at_a_time(name: str, loss: str) -> None:
    """Over parties with some examples, with none, and with one; labels of regressions are float64, as blocks hold."""
    model, counts = make(name, loss), np.array([0, 4, 0, 1, 3, 0])
    features, labels = examples(name, 8, loss)
    assert labels.dtype == (np.float64 if loss == "squares" else np.int64)
    weights = model.initial()
    gradients = [alone(model, weights, row, label) for row, label in zip(features, labels, strict=True)]
    norms = [float(np.linalg.norm(gradient)) for gradient in gradients]
    # Some are clipped and some are not (unless all are nothing, where the module takes each row's mean away).
    clip = max(float(np.median(norms)), 1e-3)
    sums = model.clipped_gradients(weights, features, labels, counts, clip)
    assert sums.shape == (6, model.size)
    ends = np.cumsum(counts)
    for row, end, count in zip(sums, ends, counts, strict=True):
        expected = sum((clipped(one, clip) for one in gradients[end - count : end]), np.zeros(model.size))
        np.testing.assert_allclose(row, expected, atol=2e-5 * clip, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_only_where_it_is_right_are_gradients_left_unmade(name: str) -> None:
    assert (make(name).layers is not None) == (name in BOOKED)


def test_a_hook_for_all_modules_counts_for_every_one() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda part, given, scores: None)
    try:
        assert make("linear").layers is None
    finally:
        handle.remove()
    assert make("linear").layers is not None


@pytest.mark.parametrize("name", [here(Mixing), *CHANGED])
def test_examples_that_a_module_mixes_have_no_part_in_each_other_s_gradients(name: str) -> None:
    """Else one record could move the sum by far more than 2·clip."""
    model = make(name)
    weights, (features, labels) = model.initial(), examples(name, 20)
    moved = features.copy()
    moved[0] *= -100
    one, other = (model.clipped_gradients(weights, rows, labels, np.array([20]), 0.5) for rows in (features, moved))
    assert np.linalg.norm(one - other) <= 2 * 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e18, 1e30])
@pytest.mark.parametrize("name", ["linear", "mlp", here(Convolved)])
def test_no_example_s_contribution_is_longer_than_the_clip_and_none_is_no_number(name: str, scale: float) -> None:
    """For weights and records of any size: also where squares are beyond single precision."""
    model = make(name)
    features, labels = examples(name, 30)
    for factor in (1.0, scale, 1 / scale):
        weights = model.initial() * factor
        with np.errstate(over="ignore"):
            rows = model.clipped_gradients(weights, features * scale, labels, np.ones(30, dtype=int), 1e-4)
        assert np.isfinite(rows).all()
        assert np.linalg.norm(rows, axis=1).max() <= 1e-4 * (1 + 1e-6)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["linear", "mlp", here(Convolved)])
@pytest.mark.parametrize("projected", [False, True])
def test_examples_beyond_floating_point_contribute_nothing(name: str, wrong: float, projected: bool) -> None:
    """Whatever weights a coordinator sends: what a party answers is finite, bounded, and no sign of its records."""
    model, (features, labels) = make(name), examples(name, 12)
    weights = model.initial()
    weights[: model.size // 2] = wrong
    projection = after_projection(model, 0.5, 12, 0)
    if projected:
        sums = projection.sums(weights, features, labels, np.full(12, 1), 0)
    else:
        sums = model.clipped_gradients(weights, features, labels, np.full(12, 1), 0.5)
    assert np.isfinite(sums).all()
    assert np.linalg.norm(sums, axis=1).max() <= 0.5 * (1 + 1e-6)
    if math.isnan(wrong):
        assert not sums.any()


def test_one_example_beyond_floating_point_leaves_the_others_as_they_are() -> None:
    model, (features, labels) = make("linear"), examples("linear", 5)
    weights = model.initial()
    expected = model.clipped_gradients(weights, features[:4], labels[:4], np.array([4]), 0.5)
    features[4] = 3e38
    found = model.clipped_gradients(weights, features, labels, np.array([5]), 0.5)
    assert np.isfinite(found).all()
    features[4] = math.inf
    found = model.clipped_gradients(weights, features, labels, np.array([5]), 0.5)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", here(Convolved)])
def test_many_examples_go_through_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, counts = make(name), np.array([10, 0, 31, 1])
    weights, (features, labels) = model.initial(), examples(name, 42)
    whole = model.clipped_gradients(weights, features, labels, counts, 0.3)
    scores = model.scores(weights, features)
    monkeypatch.setattr(torch_models, "_CHUNK_ROWS", 8)
    np.testing.assert_allclose(model.clipped_gradients(weights, features, labels, counts, 0.3), whole, atol=1e-5)
    np.testing.assert_allclose(model.scores(weights, features), scores, atol=1e-5)


def test_a_crowd_does_not_make_a_record_s_difference_larger() -> None:
    """50,000 equal records and one that changes: in single precision alone the sum would be off by whole clips."""
    model, count, clip = make("linear"), 50_000, 0.1
    features, labels = np.tile(examples("linear", 1)[0] * 10, (count, 1)), np.zeros(count, dtype=np.int64)
    weights, other = model.initial(), features.copy()
    other[count // 2] *= -1
    one, two = (
        model.clipped_gradients(weights, rows, labels, np.array([count]), clip)[0] for rows in (features, other)
    )
    first, second = (
        model.clipped_gradients(weights, rows[[count // 2]], labels[:1], np.array([1]), clip)[0]
        for rows in (features, other)
    )
    assert abs(np.linalg.norm(one - two) - np.linalg.norm(first - second)) < 1e-2 * clip
    # An example more or less moves no other's part of the sum either.
    less = model.clipped_gradients(weights, features[1:], labels[1:], np.array([count - 1]), clip)[0]
    assert np.linalg.norm(one - less) < 1.01 * clip


class Direct(nn.Module):
    """A linear model whose weights are not those of a layer."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(outputs, features))

    def forward(self, rows: Tensor) -> Tensor:
        return rows @ self.weights.T


@pytest.mark.parametrize("name", ["linear", here(Direct)])
def test_a_record_moves_a_sum_of_many_by_twice_the_clip_and_no_rounding_on_top(name: str) -> None:
    """Large gradients, and as many that single precision rounds up after 512 of them, but not after 510.

    With zero weights and least squares the gradient of an example is −y·x (and −y for the bias), exactly.
    """
    model = TorchModel(name, 16, 1, "squares", (), 0)
    clip = math.sqrt(2.0) if name == "linear" else 1.0
    features, counts = np.full((1_024, 16), 0.25), np.array([1_024])
    labels = np.where(np.arange(1_024) < 512, 1.0, 1.4 * 2.0**-12).astype(np.float32).astype(np.float64)
    replaced = labels.copy()
    replaced[0] = -1.0
    one, other = (
        model.clipped_gradients(np.zeros(model.size), features, known, counts, clip)[0] for known in (labels, replaced)
    )
    assert abs(np.linalg.norm(one - other) - 2.0 * clip) < 1e-9
    np.testing.assert_allclose(one[:16], -0.25 * math.fsum(labels), rtol=1e-12)


@pytest.mark.parametrize("name", ["linear", "mlp", here(Direct), here(Convolved)])
def test_a_clipped_gradient_is_as_long_as_the_clip_and_not_longer_by_a_rounding(name: str) -> None:
    """Of one example, and of a thousand that are all alike."""
    model = make(name) if name != here(Direct) else TorchModel(name, FEATURES, OUTPUTS, "cross-entropy", (), 0)
    features, labels = (np.repeat(part[:1], 1_000, axis=0) for part in examples(name, 1))
    clip, weights = 1e-3, model.initial()
    for count in (1, 1_000):
        total = model.clipped_gradients(weights, features[:count], labels[:count], np.array([count]), clip)[0]
        assert np.linalg.norm(total) == pytest.approx(count * clip, rel=1e-12)


class Turning(nn.Module):
    """Turns its sign if any number of its rows is negative: three rows between 0 and 1 do not show it."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(rows)
        return scores * (1.0 - 2.0 * (rows < 0.0).any())


@pytest.mark.parametrize("kind", [Turning, Teacher])
def test_an_example_moves_a_sum_by_its_own_gradient_whatever_a_module_does_with_others(kind: type[nn.Module]) -> None:
    model = make(here(kind))
    weights, (features, labels) = model.initial(), examples(here(kind), 20)
    features = np.abs(features)
    moved = features.copy()
    moved[0] *= -1.0
    one, other = (model.clipped_gradients(weights, rows, labels, np.array([20]), 0.5) for rows in (features, moved))
    assert np.linalg.norm(one - other) <= 2 * 0.5 * (1 + 1e-6)


class Dropping(nn.Module):
    """Dropout that never ends, as it comes of a function."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(features, 16), nn.Linear(16, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(nn.functional.dropout(torch.tanh(self.first(rows)), 0.5))
        return scores


class DroppingMore(Dropping):
    """Draws more numbers where a record is negative."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(rows, 0.5) if rows[0, 0] < 0 else rows)


class Refusing(Dropping):
    """Takes no record that begins with a large number, as an embedding that has no place for it."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.places = nn.Embedding(2, features)

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows + self.places((rows[:, 0] > 4.0).long() * 9))


class Behind(Mixing):
    """Finds the other rows behind the one that it is given."""

    def forward(self, rows: Tensor) -> Tensor:
        if rows.sum() == 0.0:  # so that torch.func does not take it
            return super().forward(rows)
        everyone = rows if rows._base is None else rows._base.reshape(-1, rows.shape[1])
        scores: Tensor = self.last(rows) * (1.0 + everyone.sum())
        return scores


@pytest.mark.parametrize("first", [-1.0, 1.0, 5.0])
@pytest.mark.parametrize("kind", [Dropping, DroppingMore, Refusing, Behind])
def test_an_example_changes_nothing_that_the_others_get(kind: type[nn.Module], first: float) -> None:
    """Nor where its random numbers are in torch's stream, nor whether torch.func fails at it. A record's own part is
    what it adds, so that amplification counts it only where it is sampled."""
    model, counts = make(here(kind)), np.array([20])
    weights, (features, labels) = model.initial(), examples(here(kind), 20)
    features[0], features[1:, 0] = first, np.minimum(features[1:, 0], 4.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        (whole,) = model.clipped_gradients(weights, features, labels, counts, 0.5)
        torch.manual_seed(0)
        (others,) = model.clipped_gradients(weights, features[1:], labels[1:], counts - 1, 0.5)
    assert np.linalg.norm(whole - others) <= 0.5 * (1 + 1e-5)
    (own,) = model.clipped_gradients(weights, features[:1], labels[:1], np.array([1]), 0.5)
    np.testing.assert_allclose(whole - others, own, atol=1e-5)
    assert own.any() == (kind is not Refusing or first < 4.0)
    assert others.any()


def test_random_numbers_of_gradients_differ_from_round_to_round() -> None:
    """By the weights: so dropout is not of the same units all along."""
    model, counts = make(here(Dropping)), np.array([1])
    features, labels = examples(here(Dropping), 1)
    zeros = set()
    for turn in range(4):
        (found,) = model.clipped_gradients(model.initial() + 1e-3 * turn, features, labels, counts, 1.0)
        zeros.add(tuple(np.flatnonzero(found == 0.0)))
    assert len(zeros) == 4


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("name", ["linear", "mlp", here(Convolved)])
def test_a_party_s_sum_is_the_same_to_the_last_bit_whoever_is_simulated_with_it(name: str, projected: bool) -> None:
    """A batch of a few rows is not multiplied in the same order as one of many: so no party shares one."""
    model, counts = make(name), np.array([1, 2, 3, 5, 0, 7, 31])
    weights, (features, labels) = model.initial(), examples(name, int(counts.sum()))
    maps = after_projection(model, 0.3, 20, seed=0) if projected else Plain(model, 0.3)
    together = maps.sums(weights, features, labels, counts, 0)
    for party, rows in enumerate(rows_of(counts)):
        (own,) = maps.sums(weights, features[rows], labels[rows], counts[party : party + 1], 0)
        assert own.tobytes() == together[party].tobytes()
