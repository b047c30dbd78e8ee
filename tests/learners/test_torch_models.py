"""Sums of clipped gradients are what one example at a time gives, however a model is made and whoever computes it."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unspoken.errors import UnspokenError
from unspoken.learners import torch_models
from unspoken.learners.projected_gradients import after_projection
from unspoken.learners.torch_models import Passes, TorchModel
from unspoken.learners.torch_modules import ModelError, make_module

FEATURES, OUTPUTS = 6, 3


class Convolved(nn.Module):
    """Trained convolutions and normalised layers: no linear layers alone."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 4, 3, padding=1)
        self.norm = nn.LayerNorm(4 * features)
        self.last = nn.Linear(4 * features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(self.norm(torch.tanh(self.first(rows[:, None])).flatten(1)))
        return scores


class Twice(nn.Module):
    """One linear layer that is used two times."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(features, features), nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.outer(torch.tanh(self.inner(torch.tanh(self.inner(rows)))))
        return scores


class Tied(Twice):
    """A layer whose weights are also used beside it."""

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.outer(torch.tanh(nn.functional.linear(self.inner(rows), self.inner.weight.T)))
        return scores


class Mixing(nn.Module):
    """Every row is seen against the mean of all: alone, each record is nothing."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.last = nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(rows - rows.mean(0))
        return scores


class InPlace(nn.Sequential):
    """Overwrites what its layers give."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(
            nn.Linear(features, 5), nn.ReLU(inplace=True), nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, outputs)
        )


def NoBias(features: int, outputs: int) -> nn.Module:  # noqa: N802 (named as a model is)
    return nn.Sequential(nn.Linear(features, 5, bias=False), nn.ReLU(), nn.Linear(5, outputs, bias=False))


class Derived(nn.Sequential):
    """A kind of its own: whether it is more than a sequence, its type does not say."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Linear(features, outputs))


def _turned_by_one(rows: Tensor, scores: Tensor) -> Tensor:
    """One far record in a batch turns the scores of all."""
    return -scores if bool((rows > 10.0).any()) else scores


def Hooked(features: int, outputs: int) -> nn.Module:  # noqa: N802
    module = nn.Sequential(nn.Linear(features, outputs))
    module[0].register_forward_hook(lambda part, given, scores: _turned_by_one(given[0], scores))
    return module


def HookedBefore(features: int, outputs: int) -> nn.Module:  # noqa: N802
    module = nn.Sequential(nn.Linear(features, outputs))
    module.register_forward_pre_hook(lambda part, given: (_turned_by_one(given[0], given[0]),))
    return module


def Replaced(features: int, outputs: int) -> nn.Module:  # noqa: N802
    """An instance whose forward is not that of its kind."""
    module = nn.Sequential(nn.Linear(features, outputs))
    plain = module.forward
    module.forward = lambda rows: _turned_by_one(rows, plain(rows))  # type: ignore[method-assign]
    return module


class HalfFrozen(nn.Sequential):
    """A layer whose bias alone is trained, before one that is trained as a whole."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, outputs))
        self[0].weight.requires_grad_(False)


class Sequences(nn.Module):
    """A linear layer that sees several rows of each example."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.last = nn.Linear(2, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(rows.view(len(rows), -1, 2)).mean(1)
        return scores


class Frozen(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.requires_grad_(False)


class Flat(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows).flatten()


class Picky(nn.Linear):
    def __init__(self, features: int) -> None:
        super().__init__(features, 2)


class Narrow(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features - 1, outputs)


def listed(features: int, outputs: int) -> list[int]:
    return [features, outputs]


def here(kind: Any) -> str:
    return f"{__name__}:{kind.__name__}"


BOOKED = {"linear": FEATURES, "mlp": FEATURES, "cnn": 64, here(NoBias): FEATURES}
HELD = dict.fromkeys(map(here, (Convolved, Twice, Tied, Mixing, InPlace, HalfFrozen, Sequences, Derived)), FEATURES)
CHANGED = dict.fromkeys(map(here, (Hooked, HookedBefore, Replaced)), FEATURES)
"""Instances that mix rows, although all their parts are of kinds that do not."""
MODELS = {**BOOKED, **HELD, **CHANGED}


def make(name: str, loss: Any = "cross-entropy", seed: int = 3) -> TorchModel:
    hidden = {"mlp": [5, 4], "cnn": [7]}.get(name, [])
    return TorchModel(name, MODELS.get(name, FEATURES), 1 if loss == "squares" else OUTPUTS, loss, hidden, seed)


def examples(name: str, count: int, loss: str = "cross-entropy") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(count, MODELS.get(name, FEATURES))) * rng.choice([0.1, 1.0, 5.0], size=(count, 1))
    return features, rng.uniform(-1, 1, count) if loss == "squares" else rng.integers(OUTPUTS, size=count)


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


def test_the_frozen_part_of_cnn_is_not_trained() -> None:
    model, (features, labels) = make("cnn"), examples("cnn", 6)
    weights = model.initial()
    state = model.state(weights)
    trained = {name: value for name, value in state.items() if name.startswith("classifier.")}
    assert model.size == sum(value.size for value in trained.values()) < sum(value.size for value in state.values())
    order = np.random.default_rng(0)
    moved = model.state(model.trained(weights, features, labels, Passes(2, 3, 0.5), order))
    for name, value in state.items():
        assert np.array_equal(moved[name], value) == (name not in trained)


def test_plain_training_is_torch_s_own_sgd() -> None:
    model, (features, labels) = make("mlp"), examples("mlp", 10)
    weights = model.initial()
    found = model.trained(weights, features, labels, Passes(3, 5, 0.1), np.random.default_rng(7))
    module = make_module("mlp", FEATURES, OUTPUTS, [5, 4])
    module.load_state_dict({name: torch.from_numpy(value) for name, value in model.state(weights).items()})
    optimizer, order = torch.optim.SGD(module.parameters(), lr=0.1), np.random.default_rng(7)
    inputs = torch.from_numpy(features.astype(np.float32))
    for _ in range(3):
        for rows in np.array_split(order.permutation(10), 2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs[rows]), torch.from_numpy(labels[rows])).backward()
            optimizer.step()
    expected = torch.cat([weights.detach().reshape(-1) for weights in module.parameters()])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


@pytest.fixture
def _eager() -> Iterator[None]:
    """Threads take turns as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(count: int, work: Any) -> list[Any]:
    """What several threads give that begin at once."""
    barrier, found = threading.Barrier(count), [None] * count

    def run(index: int) -> None:
        barrier.wait()
        found[index] = work(index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.usefixtures("_eager")
@pytest.mark.parametrize("name", ["mlp", here(Convolved)])
def test_threads_with_different_weights_do_not_disturb_each_other(name: str) -> None:
    model, (features, labels) = make(name), examples(name, 20)
    weights = [model.initial() * factor for factor in (1.0, -2.0)]

    def sums(index: int) -> np.ndarray:
        return model.clipped_gradients(weights[index], features, labels, np.array([20]), 0.5)

    expected = [sums(index) for index in (0, 1)]
    for index, found in enumerate(together(2, lambda index: [sums(index) for _ in range(20)])):
        assert all(np.array_equal(one, expected[index]) for one in found)


@pytest.mark.usefixtures("_eager")
def test_every_thread_has_the_same_frozen_weights() -> None:
    """Each makes a module of its own, from the one generator that torch has."""
    expected = make("cnn").state(make("cnn").initial())
    before = torch.random.get_rng_state()
    for _ in range(10):
        model = make("cnn")
        flat = model.initial()
        for state in together(4, lambda _, model=model, flat=flat: model.state(flat)):
            assert all(np.array_equal(state[name], value) for name, value in expected.items())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_first_weights_follow_from_the_seed_and_leave_torch_s_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = make("mlp", seed=1).initial(), make("mlp", seed=1).initial(), make("mlp", seed=2).initial()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(1)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one, make("mlp", seed=1).initial())
    assert not np.array_equal(one, other)
    assert one.dtype == np.float64


def test_weights_survive_the_way_through_a_state() -> None:
    model, (features, _) = make("mlp"), examples("mlp", 4)
    weights = model.initial() * 2
    module = make_module("mlp", FEATURES, OUTPUTS, [5, 4])
    module.load_state_dict({name: torch.from_numpy(value) for name, value in model.state(weights).items()})
    expected = module(torch.from_numpy(features.astype(np.float32))).detach().numpy()
    np.testing.assert_array_equal(model.scores(weights, features), expected)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("mpl", r"^the model 'mpl' is unknown; use \"linear\", \"mlp\", \"cnn\" or \"package.module:Class\"\.$"),
        ("", "is unknown"),
        (":Net", "is unknown"),
        (
            "no_such_package:Net",
            r"cannot be imported here \(No module named 'no_such_package'\); install its package, name",
        ),
        (f"{__name__}:Nothing", r"cannot be imported here \(module .* has no attribute 'Nothing'\)"),
        (here(Picky), r"cannot be called with \(6, 3\), features and outputs"),
        (here(listed), r"should return a torch\.nn\.Module, but returns a list"),
        (here(Frozen), "has no weights to train"),
        (here(Narrow), r"cannot take rows of 6 features \(mat1 and mat2 shapes cannot be multiplied"),
        (here(Flat), r"gives an array of shape \(6,\) for two records, but should give \(2, 3\)"),
        ("cnn", "takes square images of one or three channels, but records have 6 features"),
    ],
)
def test_a_model_that_cannot_be_trained_is_told_in_one_sentence(name: str, problem: str) -> None:
    with pytest.raises(UnspokenError, match=problem) as raised:
        TorchModel(name, FEATURES, OUTPUTS, "cross-entropy", [], 0)
    assert isinstance(raised.value, ModelError)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


@pytest.mark.parametrize(("features", "shape"), [(64, (1, 8)), (784, (1, 28)), (3072, (3, 32)), (192, (3, 8))])
def test_images_are_square_and_of_one_or_three_channels(features: int, shape: tuple[int, int]) -> None:
    module: Any = make_module("cnn", features, 10)
    assert (module.channels, module.side) == shape
    assert [layer.out_features for layer in module.classifier if isinstance(layer, nn.Linear)] == [384, 384, 10]


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


class Teacher(nn.Module):
    """Keeps the mean of what it saw in a frozen weight, and adds it."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, outputs)
        self.mean = nn.Parameter(torch.zeros(features), requires_grad=False)

    def forward(self, rows: Tensor) -> Tensor:
        self.mean.data += rows.detach().mean(dim=0)
        scores: Tensor = self.layer(rows + 100.0 * self.mean)
        return scores


@pytest.mark.parametrize("kind", [Turning, Teacher])
def test_an_example_moves_a_sum_by_its_own_gradient_whatever_a_module_does_with_others(kind: type[nn.Module]) -> None:
    model = make(here(kind))
    weights, (features, labels) = model.initial(), examples(here(kind), 20)
    features = np.abs(features)
    moved = features.copy()
    moved[0] *= -1.0
    one, other = (model.clipped_gradients(weights, rows, labels, np.array([20]), 0.5) for rows in (features, moved))
    assert np.linalg.norm(one - other) <= 2 * 0.5 * (1 + 1e-6)


def test_frozen_weights_are_released_as_they_were_made() -> None:
    model = make(here(Teacher))
    weights, (features, labels) = model.initial(), examples(here(Teacher), 20)
    model.clipped_gradients(weights, features, labels, np.array([20]), 0.5)
    model.trained(weights, features, labels, Passes(1, 5, 0.1), np.random.default_rng(0))
    assert not model.state(weights)["mean"].any()
