"""PyTorch modules that a study can name: ready ones, and classes of installed packages. Needs the extra `torch`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from unspoken.errors import UnspokenError


class ModelError(UnspokenError):
    """A model that cannot be trained here; `problem` says why and continues the model's name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the model {name!r} {problem}.")
        self.problem = problem


class Perceptron(nn.Sequential):
    """Rectified hidden layers and a linear output."""

    def __init__(self, features: int, outputs: int, hidden: Sequence[int] = (64,)) -> None:
        sizes = [features, *hidden]
        layers: list[nn.Module] = []
        for one, other in pairwise(sizes):
            layers += [nn.Linear(one, other), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], outputs))


class SmallCNN(nn.Module):
    """The cross-silo paper's network: two frozen convolutions, then trained linear layers.

    Images are square, with one or three channels, given as flat rows (channels first).
    """

    def __init__(self, features: int, outputs: int, hidden: Sequence[int] = (384, 384)) -> None:
        super().__init__()
        self.channels, self.side = _image_shape(features)
        self.convolutions = nn.Sequential(
            nn.Conv2d(self.channels, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Flatten(),
        )
        self.convolutions.requires_grad_(False)
        with torch.no_grad():
            size = self.convolutions(torch.zeros(1, self.channels, self.side, self.side)).shape[1]
        self.classifier = Perceptron(size, outputs, hidden)

    def forward(self, rows: Tensor) -> Tensor:
        images = rows.view(-1, self.channels, self.side, self.side)
        with torch.no_grad():
            seen = self.convolutions(images)
        scores: Tensor = self.classifier(seen)
        return scores


def make_module(name: str, features: int, outputs: int, hidden: Sequence[int] = ()) -> nn.Module:
    """A ready module, or the class "package.module:Class", called with (features, outputs)."""
    match name:
        case "linear":
            return nn.Linear(features, outputs)
        case "mlp":
            return Perceptron(features, outputs, hidden or (64,))
        case "cnn":
            return SmallCNN(features, outputs, hidden or (384, 384))
    path, _, attribute = name.partition(":")
    if not path or not attribute:
        raise ModelError(name, 'is unknown; use "linear", "mlp", "cnn" or "package.module:Class"')
    try:
        kind = getattr(importlib.import_module(path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(
            name, f'cannot be imported here ({error}); install its package, or use "linear", "mlp" or "cnn"'
        ) from None
    try:
        module = kind(features, outputs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(
            name, f"cannot be called with ({features}, {outputs}), features and outputs ({error})"
        ) from None
    if not isinstance(module, nn.Module):
        raise ModelError(name, f"should return a torch.nn.Module, but returns a {type(module).__name__}")
    return module


def mark_trained(module: nn.Module) -> nn.Module:
    """Mark the weights to train, once: later all are frozen, so that autograd computes no gradients for them."""
    for parameter in module.parameters():
        parameter.unspoken_trained = parameter.requires_grad  # type: ignore[attr-defined]
    return module


def trained_weights(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The names and tensors of the weights marked as trained."""
    return [(name, weights) for name, weights in module.named_parameters() if weights.unspoken_trained]  # type: ignore[attr-defined]


def _image_shape(features: int) -> tuple[int, int]:
    for channels in (3, 1):
        side = math.isqrt(features // channels)
        if channels * side * side == features and side >= 8:
            return channels, side
    raise ModelError("cnn", f"takes square images of one or three channels, but records have {features} features")
