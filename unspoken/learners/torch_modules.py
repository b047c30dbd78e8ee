"""PyTorch modules that a study can name: ready ones, and classes of installed packages. Needs the extra `torch`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from unspoken.errors import UnspokenError, first_line
from unspoken.plugins import NotImportable, imported


class ModelError(UnspokenError):
    """A model that cannot be trained here; `problem` says why and continues the model's name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the model {name!r} {problem}.")
        self.name, self.problem = name, problem


@dataclass(frozen=True)
class Recipe:
    """How a model is made, besides its name and sizes. All of it is public."""

    shape: tuple[int, ...] = ()
    """The shape in which the module takes a record; (): as a vector"""
    first: Mapping[str, np.ndarray] | None = None
    """First weights by name, such as those of pretrained layers; others are drawn from the seed"""
    frozen: tuple[str, ...] = ()
    """The names of layers that are not trained"""
    class_weights: tuple[float, ...] = ()
    """A factor on the loss for each class; (): all count alike"""


PLAIN = Recipe()
READY = ("linear", "mlp", "cnn")
"""The modules that need no import"""
DEVICE = "UNSPOKEN_DEVICE"
"""The environment variable that names the device for passes through a module. It belongs to the machine, not to the
study"""


def device_here() -> torch.device:
    """The device that `UNSPOKEN_DEVICE` names, or the processor."""
    name = os.environ.get(DEVICE) or "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UnspokenError(
            f'{DEVICE} is "{name}", on which PyTorch cannot compute here ({first_line(error)}); unset it, or name a '
            'device such as "cpu" or "cuda:0".'
        ) from None
    return device


HIDDEN: Mapping[str, tuple[int, ...]] = {"mlp": (64,), "cnn": (384, 384)}
"""The sizes of hidden layers, where a study names none"""


class Perceptron(nn.Sequential):
    """Rectified hidden layers and a linear output."""

    def __init__(self, features: int, outputs: int, hidden: Sequence[int]) -> None:
        sizes = [features, *hidden]
        layers: list[nn.Module] = []
        for one, other in pairwise(sizes):
            layers += [nn.Linear(one, other), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], outputs))


class SmallCNN(nn.Module):
    """The cross-silo paper's network: two frozen convolutions, then trained linear layers.

    Images are square, with one or three channels, given as flat rows (channels first).
    """

    def __init__(self, features: int, outputs: int, hidden: Sequence[int]) -> None:
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
            return Perceptron(features, outputs, hidden or HIDDEN[name])
        case "cnn":
            return SmallCNN(features, outputs, hidden or HIDDEN[name])
    path, _, attribute = name.partition(":")
    if not path or not attribute:
        raise ModelError(name, 'is unknown; use "linear", "mlp", "cnn" or "package.module:Class"')
    try:
        kind = imported(name, READY)
    except NotImportable as error:
        raise ModelError(name, error.problem) from None
    try:
        module = kind(features, outputs)
    except (Exception, SystemExit) as error:
        raise ModelError(
            name, f"cannot be called with ({features}, {outputs}), features and outputs ({first_line(error)})"
        ) from None
    if not isinstance(module, nn.Module):
        raise ModelError(name, f"should return a torch.nn.Module, but returns a {type(module).__name__}")
    return module


def prepared(module: nn.Module, name: str, recipe: Recipe) -> nn.Module:
    """The module with its first weights and frozen layers, if it can be trained in single precision."""
    for place, weights in [*module.named_parameters(), *module.named_buffers()]:
        if nn.parameter.is_lazy(weights):
            raise ModelError(name, f"has a lazy layer, whose {place!r} has no size yet; give the size in its place")
        if weights.is_floating_point() and weights.dtype != torch.float32:
            kind = str(weights.dtype).removeprefix("torch.")
            raise ModelError(
                name, f"keeps {place!r} as {kind}, but is trained in float32; end its constructor with self.float()"
            )
        if weights.is_complex():
            raise ModelError(name, f"keeps complex numbers in {place!r}, but is trained in float32; use real ones")
    for place, kept in module.state_dict().items():
        if not isinstance(kept, Tensor):
            raise ModelError(
                name,
                f"keeps {place!r} in its state, which is a {type(kept).__name__}, but a model file has tensors only; "
                "make a buffer of it, or keep it elsewhere",
            )
    if recipe.first is not None:
        _load(module, name, recipe.first)
    for prefix in recipe.frozen:
        inside = [
            weights
            for place, weights in module.named_parameters(remove_duplicate=False)
            if f"{place}.".startswith(f"{prefix}.")
        ]
        if not inside:
            known = ", ".join(sorted({place.partition(".")[0] for place, _ in module.named_parameters()}))
            raise ModelError(name, f'has no layer "{prefix}" to freeze; it has: {known}')
        for weights in inside:
            weights.requires_grad_(False)
    return module


def _load(module: nn.Module, name: str, first: Mapping[str, np.ndarray]) -> None:
    """Put given weights into a module: all names must be its own, with the same shapes."""
    own = module.state_dict()
    for place, weights in first.items():
        if place not in own:
            raise ModelError(
                name,
                f"has no weights {place!r}, which the file of first weights has; it has {few_of(own)}; name the "
                "file of such a model as weights, or leave that out",
            )
        if tuple(own[place].shape) != weights.shape:
            raise ModelError(
                name,
                f"has {place!r} of shape {tuple(own[place].shape)}, where the file of first weights has "
                f"{weights.shape}",
            )
        with torch.no_grad():
            own[place].copy_(torch.from_numpy(np.asarray(weights)))


def few_of(names: Iterable[str], most: int = 6) -> str:
    """
    >>> few_of("abc"), few_of("abc", most=2)
    ('a, b, c', 'a, b, …')
    """
    first = [*names]
    return ", ".join([*first[:most], *(["…"] if len(first) > most else [])])


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
    problem = "takes square images of one or three channels, of 8 by 8 pixels at least, but records have"
    raise ModelError("cnn", f"{problem} {features} features")
