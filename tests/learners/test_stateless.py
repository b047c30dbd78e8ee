"""What a module keeps from one pass to the next is never released, and no example has a part in another's gradient."""

from __future__ import annotations

import sys
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unspoken
from factories import make
from unspoken.learners.projected_gradients import after_projection
from unspoken.learners.stateless import Stateless
from unspoken.learners.torch_models import Passes, TorchModel
from unspoken.learners.torch_modules import ModelError
from unspoken.methods.registry import method_for
from unspoken.study import StudyError

FEATURES, OUTPUTS, EACH, PARTIES = 4, 2, 20, 3


class Remembering(nn.Module):
    """Keeps running means in a buffer, changed in place or replaced, and in attributes; it does not use them."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, outputs)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("replaced", torch.full((features,), 7.0))
        self.register_buffer("passes", torch.tensor(0))
        self.plain, self.seen, self.count = torch.zeros(features), [], 0

    def forward(self, rows: Tensor) -> Tensor:
        self.mean.mul_(0.5).add_(0.5 * rows.detach().mean(dim=0))
        self.replaced = 0.5 * self.replaced + 0.5 * rows.detach().mean(dim=0)
        self.passes += 1
        self.plain += rows.detach().sum(dim=0)
        self.seen.append(rows.detach())
        self.count += 1
        self.last = rows
        return self.layer(rows)


class Centring(Remembering):
    """Uses what it remembers: an example's scores depend on all before it."""

    def forward(self, rows: Tensor) -> Tensor:
        kept = super().forward(rows)
        return kept - self.layer(self.mean) * self.count - self.plain.sum()


class Convolving(Remembering):
    """The same where not all trained weights are in linear layers."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows * self.scale) - self.layer(self.replaced) * self.count


class Normalised(nn.Sequential):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Linear(features, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))


class Queued(nn.Module):
    """Keeps the sign of the next example's rows in a deque."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.memory = nn.Linear(features, outputs), deque([torch.ones(features)], maxlen=1)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(rows * self.memory[0])
        if bool((rows < 0).any()):
            self.memory.append(-torch.ones(rows.shape[1]))
        return scores


class Noting(nn.Module):
    """Keeps it in an object of its own."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.notes = nn.Linear(features, outputs), SimpleNamespace(sign=1.0)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(rows * self.notes.sign)
        if bool((rows < 0).any()):
            self.notes.sign = -1.0
        return scores


class Hiding(nn.Module):
    """Keeps it in a module that torch does not know of, in a plain list."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer, hidden = nn.Linear(features, outputs), nn.Module()
        hidden.register_buffer("sign", torch.ones(1))
        self.hidden = [hidden]

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(rows * self.hidden[0].sign)
        if bool((rows < 0).any()):
            self.hidden[0].sign.neg_()
        return scores


class Rebuilding(nn.Module):
    """Exchanges one of its layers for another."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.turn = nn.Linear(features, outputs), nn.Identity()

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(self.turn(rows))
        if bool((rows < 0).any()):
            self.turn = Negated()
        return scores


class Negated(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        return -rows


class Locked(nn.Module):
    """Has an attribute that cannot be copied."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.lock = nn.Linear(features, outputs), [threading.Lock()]

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows)


class Turning:
    """A hook that keeps the sign of the next example's scores."""

    sign = 1.0

    def __call__(self, layer: nn.Module, given: tuple[Tensor, ...], scores: Tensor) -> Tensor:
        turned = scores * self.sign
        if bool((given[0] < 0).any()):
            self.sign = -1.0
        return turned


class Hooked(nn.Module):
    """Keeps it in a hook, and adds another hook."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, outputs)
        self.layer.register_forward_hook(Turning())

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(rows)
        if bool((rows < 0).any()):
            self.layer.register_forward_pre_hook(lambda layer, given: (2.0 * given[0],))
        return scores


class Narrowing(nn.Module):
    """Gives its weights another type, and frozen ones another shape."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(features, outputs), nn.Parameter(torch.ones(features), requires_grad=False)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer((rows * self.scale).to(self.layer.weight.dtype)).float()
        if bool((rows < 0).any()):
            self.half()
            self.scale.data = torch.ones(1)
        return scores


class Marking(nn.Module):
    """Keeps sums of what it saw on a weight itself, and as its gradient."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        weight, grown = self.layer.weight, rows.detach().sum(dim=0)
        seen = getattr(weight, "seen", 0.0) + (0.0 if weight.grad is None else weight.grad[0])
        weight.seen = weight.grad = (seen + grown).expand_as(weight)  # type: ignore[assignment]
        scores: Tensor = self.layer(rows) * (1.0 + torch.as_tensor(seen).sum())
        return scores


KINDS = (Remembering, Centring, Convolving, Normalised, Queued, Noting, Hiding, Rebuilding, Hooked, Narrowing, Marking)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "found_here", sys.modules[__name__])


def model(kind: type[nn.Module]) -> TorchModel:
    return TorchModel(f"found_here:{kind.__name__}", FEATURES, OUTPUTS, "cross-entropy", (), 0)


def examples(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, FEATURES)) + 3.0, rng.integers(0, OUTPUTS, count)


TRAINING: dict[str, dict[str, Any]] = {
    "central": {"rounds": 3},
    "cross-silo": {"rounds": 3},
    "local": {"rounds": 3},
    "fedavg": {"rounds": 3, "rate": 0.5},
    "fedsgd": {"rounds": 2, "local_steps": 2},
    "none": {"rounds": 2},
    "voting": {"queries": 5, "epochs": 1},
}


EVERY_WAY = [(method, kind) for method in TRAINING for kind in KINDS]
CLIPPED = ("central", "cross-silo")
TELLING = [
    (method, kind) for method, kind in EVERY_WAY if (method in CLIPPED and kind in KINDS[:4]) or kind is Centring
]
"""All modules where gradients are clipped, at the parties and by a curator; else the one that uses what it keeps."""


@pytest.mark.parametrize(("method", "kind"), TELLING)
def test_buffers_are_released_as_they_were_before_training(method: str, kind: type[nn.Module], tmp_path: Path) -> None:
    buffers_are_released_as_they_were(method, kind, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("method", "kind"), [way for way in EVERY_WAY if way not in TELLING])
def test_buffers_are_released_as_they_were_by_all_other_ways_to_train(
    method: str, kind: type[nn.Module], tmp_path: Path
) -> None:
    buffers_are_released_as_they_were(method, kind, tmp_path)


def buffers_are_released_as_they_were(method: str, kind: type[nn.Module], tmp_path: Path) -> None:
    options = {"model": f"found_here:{kind.__name__}", **TRAINING[method]}
    if method == "voting":
        np.savez(tmp_path / "public.npz", X=examples(20, 5)[0])
        options |= {"public": str(tmp_path / "public.npz"), "student": options["model"]}
    agreed = make(
        method,
        data={"features": FEATURES, "classes": OUTPUTS},
        parties={"count": PARTIES, "records": EACH, "max_records": EACH},
        noise_multiplier=4.0,
        delta=1e-4,
        unit="party" if method == "fedavg" else "record",
        method=options,
    )
    features, labels = examples(PARTIES * EACH)
    simulation = unspoken.simulate(
        agreed, features, labels, np.arange(len(labels)) % PARTIES, X_test=features, y_test=labels
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = dict(kind(FEATURES, OUTPUTS).named_buffers())
    released = dict(simulation.model.named_buffers())
    assert released.keys() == first.keys()
    for name, buffer in first.items():
        assert torch.equal(released[name], buffer), name
        np.testing.assert_array_equal(simulation.outcome.release.state[name], buffer.numpy())


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_module_that_remembers_moves_by_no_more_than_twice_the_clip(kind: type[nn.Module], projected: bool) -> None:
    """Whatever went through it before."""
    made, counts, clip = model(kind), np.array([30]), 0.1
    weights, (features, labels) = made.initial(), examples(30)
    moved = features.copy()
    moved[0] *= -100.0
    projection = after_projection(made, clip, 6, 0)

    def total(rows: np.ndarray) -> np.ndarray:
        if projected:
            return projection.sums(weights, rows, labels, counts, 0)
        return made.clipped_gradients(weights, rows, labels, counts, clip)

    one, other = total(features), total(moved)
    assert 0.01 * clip < np.linalg.norm(one - other) <= 2 * clip * (1 + 1e-6)
    np.testing.assert_array_equal(total(features), one)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_plain_training_do_not_depend_on_what_went_through_before(kind: type[nn.Module]) -> None:
    made, (features, labels) = model(kind), examples(30)
    weights = made.initial()
    scores = made.scores(weights, features)
    trained = made.trained(weights, features, labels, Passes(2, 10, 0.1), np.random.default_rng(0))
    made.scores(weights, features * 100.0)
    made.clipped_gradients(weights, features * 100.0, labels, np.array([30]), 1.0)
    np.testing.assert_array_equal(made.scores(weights, features), scores)
    again = made.trained(weights, features, labels, Passes(2, 10, 0.1), np.random.default_rng(0))
    np.testing.assert_array_equal(again, trained)


def test_buffers_attributes_and_collections_are_put_back_and_new_ones_go() -> None:
    module = Remembering(FEATURES, OUTPUTS)
    kept = Stateless(module)
    for _ in range(3):
        kept(torch.ones(2, FEATURES))
    assert module.count == 1
    kept.restore()
    assert (module.count, module.seen, int(module.passes)) == (0, [], 0)
    assert not hasattr(module, "last")
    assert not module.mean.any()
    assert not module.plain.any()
    assert (module.replaced == 7.0).all()


def test_weights_and_layers_that_are_kept_in_a_list_stay_themselves() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.all = [self.layer, self.layer.weight]

    module = Listed()
    Stateless(module).restore()
    assert module.all[0] is module.layer
    assert module.all[1] is module.layer.weight


def test_what_is_one_object_stays_one_and_a_computed_tensor_is_copied() -> None:
    class Sharing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.numpy = nn.Linear(2, 2), np
            self.one = self.other = [self.layer.weight * 2.0]
            self.computed = self.layer.weight * 2.0

    module = Sharing()
    module.one[0] = module.computed
    Stateless(module).restore()
    assert module.one is module.other
    assert module.one[0] is module.computed
    assert module.numpy is np


def test_a_module_with_an_attribute_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(ModelError, match="keeps in its attribute 'lock' a list that cannot be copied"):
        model(Locked)
    agreed = make("cross-silo", method={"model": "found_here:Locked"})
    with pytest.raises(StudyError, match=r"\[method\] model is .*keeps in its attribute 'lock'"):
        method_for(agreed).plan()
