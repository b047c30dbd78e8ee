"""Per-example gradients of a torch module, computed and held one row an example.

A module may draw random numbers when it is used (dropout in evaluation mode, or where a record is this or that). From a
stream that all examples share, one example would change what the others get: so every example gets the same numbers,
by a seed of the round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from unspoken.learners.stateless import Stateless
from unspoken.learners.torch_modules import trained_weights

if hasattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled"):
    # PyTorch warns of operations that are not vectorised. Parties cannot do anything about it.
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)

GENERATOR = threading.RLock()
"""Held by whoever draws from torch's generator, of which there is only one: threads take turns."""
Losses: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""One loss an example, from scores and targets"""
Gradients: TypeAlias = Callable[[Stateless, Losses, Tensor, Tensor], Tensor]
"""Gradients of examples, one row each"""


def clip_factors(norms: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """A mask of the finite norms, and the factors that clip them to `clip`; 0 for the others."""
    kept = torch.isfinite(norms)
    return kept, torch.where(kept, clip / norms.clamp(min=clip), 0.0)


def gradients_at_once(module: Stateless, losses: Losses, inputs: Tensor, targets: Tensor) -> Tensor:
    """The examples' gradients by torch.func."""
    weights = {name: tensor.detach() for name, tensor in trained_weights(module.restore())}

    def loss(weights: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        scores = functional_call(module.module, weights, (row[None],))
        return losses(scores, target[None])[0]

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="same")
    with nullcontext() if module.seed is None else _drawing():
        if module.seed is not None:
            _seed(module.seed, inputs.device)
        # Of copies, which a loss may change in place.
        return torch.cat([part.flatten(1) for part in each(weights, inputs.clone(), targets.clone()).values()], 1)


def gradients_one_by_one(
    module: Stateless, losses: Losses, inputs: Tensor, targets: Tensor, of_one: Gradients | None = None
) -> Tensor:
    """The examples' gradients one by one, by autograd unless `of_one` is given; zeros for an example at which the
    module raises an error."""
    of_one, seed = of_one or _by_autograd, module.seed or 0
    size = sum(weights.numel() for _, weights in trained_weights(module.module))
    slopes = torch.zeros(len(inputs), size, device=inputs.device)
    with _drawing():
        for place, pair in enumerate(zip(torch.split(inputs, 1), torch.split(targets, 1), strict=True)):
            # Copies, as a module could find the other examples behind a view of them.
            row, target = (tensor.clone() for tensor in pair)
            _seed(seed, inputs.device)
            with suppress(Exception):
                slopes[place] = of_one(module, losses, row, target)[0]
    return slopes


def gradient(module: Stateless, losses: Losses, row: Tensor, target: Tensor) -> Tensor:
    """The gradient of one example."""
    weights = [tensor.requires_grad_() for _, tensor in trained_weights(module.module)]
    try:
        loss = losses(module(row[None]), target[None])[0]
        parts = torch.autograd.grad(loss, weights, materialize_grads=True)
    finally:
        for tensor in weights:
            tensor.requires_grad_(False)
    return torch.cat([part.reshape(-1) for part in parts])


def _by_autograd(module: Stateless, losses: Losses, rows: Tensor, targets: Tensor) -> Tensor:
    return gradient(module, losses, rows[0], targets[0])[None]


@contextmanager
def _drawing() -> Iterator[None]:
    """Torch's generator is as it was before."""
    with GENERATOR, torch.random.fork_rng(devices=[]):
        yield


def _seed(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)
