"""Modules as models: their weights, threads, frozen parts, plain training, and what cannot be trained."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modules import FEATURES, OUTPUTS, Convolved, Teacher, examples, here, make
from unspoken.errors import UnspokenError
from unspoken.learners.torch_models import Passes, TorchModel
from unspoken.learners.torch_modules import ModelError, make_module


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
        ("cnn", "takes square images of one or three channels, of 8 by 8 pixels at least, but records have 6 features"),
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


def test_frozen_weights_are_released_as_they_were_made() -> None:
    model = make(here(Teacher))
    weights, (features, labels) = model.initial(), examples(here(Teacher), 20)
    model.clipped_gradients(weights, features, labels, np.array([20]), 0.5)
    model.trained(weights, features, labels, Passes(1, 5, 0.1), np.random.default_rng(0))
    assert not model.state(weights)["mean"].any()
