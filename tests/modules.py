"""Torch modules of many kinds, by how `TorchModel` makes their gradients, and examples for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unspoken.learners.torch_models import TorchModel

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


def here(kind: Any) -> str:
    return f"{kind.__module__}:{kind.__name__}"


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
