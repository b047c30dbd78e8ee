"""Per-example gradients of a torch module, computed and held one row an example."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from unspoken.learners.stateless import Stateless
from unspoken.learners.torch_modules import trained_weights

if hasattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled"):
    # PyTorch warns of operations that are not vectorised. Parties cannot do anything about it.
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)

Losses: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""One loss an example, from scores and targets"""


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

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    return torch.cat([part.flatten(1) for part in each(weights, inputs, targets).values()], 1)


def gradients_one_by_one(module: Stateless, losses: Losses, inputs: Tensor, targets: Tensor) -> Tensor:
    """The examples' gradients one by one; zeros for an example at which the module raises an error."""
    size = sum(weights.numel() for _, weights in trained_weights(module.module))
    slopes = torch.zeros(len(inputs), size, device=inputs.device)
    for place, (row, target) in enumerate(zip(inputs, targets, strict=True)):
        with suppress(Exception):
            slopes[place] = gradient(module, losses, row, target)
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
