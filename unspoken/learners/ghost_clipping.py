"""Clipped sums of per-example gradients of linear layers, without holding any example's gradient.

In a linear layer an example's gradient is the outer product of the layer's input (a) and of the gradient at its
output (g). Its norm is ‖a‖·‖g‖, and the clipped sum is one product of matrices: "ghost clipping" and "book keeping"
(Bu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from unspoken.learners.example_gradients import Losses, clip_factors
from unspoken.learners.stateless import Stateless
from unspoken.learners.torch_modules import Perceptron, SmallCNN, trained_weights

OuterProducts: TypeAlias = list[tuple[Tensor, Tensor]]
"""For each layer g and a, one row an example; a ends with a constant 1 if the layer has a bias"""

_ROWWISE: frozenset[type[nn.Module]] = frozenset(
    {
        *(Perceptron, SmallCNN, nn.Sequential, nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.LayerNorm, nn.Flatten),
        *(nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus),
    }
)
"""Modules whose output for a row depends on that row alone"""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Layer:
    """A trained linear layer."""

    name: str
    outputs: int
    inputs: int
    bias: bool


def outer_products(
    module: Stateless, losses: Losses, layers: list[Layer], inputs: Tensor, targets: Tensor
) -> OuterProducts:
    """The factors of the examples' gradients; zeros for an example at which the module raises an error."""
    try:
        return _outer_products(module, losses, layers, inputs, targets)
    except Exception:
        if len(inputs) == 1:
            return [(torch.zeros(1, each.outputs), torch.zeros(1, each.inputs + each.bias)) for each in layers]
    alone = [
        outer_products(module, losses, layers, *pair)
        for pair in zip(torch.split(inputs, 1), torch.split(targets, 1), strict=True)
    ]
    return [
        (torch.cat([back for back, _ in layer]), torch.cat([seen for _, seen in layer]))
        for layer in zip(*alone, strict=True)
    ]


def add_clipped(layers: list[Layer], products: OuterProducts, clip: float, total: Tensor) -> None:
    """Add the examples' clipped gradients to a total."""
    # Squares of single-precision numbers neither overflow nor underflow in double precision.
    norms = [
        torch.linalg.vector_norm(back, dim=1, dtype=torch.float64)
        * torch.linalg.vector_norm(seen, dim=1, dtype=torch.float64)
        for back, seen in products
    ]
    kept, factors = clip_factors(torch.linalg.vector_norm(torch.stack(norms), dim=0), clip)
    start = 0
    for layer, (back, seen) in zip(layers, products, strict=True):
        if not kept.all():
            back, seen = (torch.where(kept[:, None], tensor, 0.0) for tensor in (back, seen))
        back, seen = back.double() * factors[:, None], seen.double()
        weights, size = layer.outputs * layer.inputs, layer.outputs * (layer.inputs + layer.bias)
        row = total[start : start + size]
        row[:weights].view(layer.outputs, -1).addmm_(back.T, seen[:, : layer.inputs])
        if layer.bias:
            row[weights:] += back.sum(dim=0)
        start += size


def linear_layers(module: Stateless, losses: Losses, rows: Tensor, targets: Tensor) -> list[Layer] | None:
    """The trained layers if all are linear and each sees every example once, as one row; else None.

    The examples given are tried. Trials alone prove nothing about other examples, so all parts of the module must be
    known to treat each row for itself.
    """
    if not all(map(_treats_rows_alone, module.module.modules())):
        return None
    layers: list[Layer] = []
    for name, part in module.module.named_modules():
        own = [weights for weights in part.parameters(recurse=False) if weights.unspoken_trained]
        if not own:
            continue
        if type(part) is not nn.Linear or len(own) != (1 if part.bias is None else 2):
            return None
        layers.append(Layer(name, part.out_features, part.in_features, part.bias is not None))
    expected = [
        f"{layer.name}.{kind}".lstrip(".")
        for layer in layers
        for kind in (("weight", "bias") if layer.bias else ("weight",))
    ]
    if [name for name, _ in trained_weights(module.module)] != expected or not _seen_once(module, layers, rows):
        return None
    return layers if _products_are_gradients(module, losses, layers, rows, targets) else None


def _outer_products(
    module: Stateless, losses: Losses, layers: list[Layer], inputs: Tensor, targets: Tensor
) -> OuterProducts:
    """The factors, from one pass forward and one back to the layers' outputs, without gradients of weights."""
    seen: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def remember(name: str) -> Any:
        def hook(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen[name] = given[0].detach()
            outputs[name] = output if output.requires_grad else output.requires_grad_()
            return outputs[name]

        return hook

    # Restored first, because that takes hooks away.
    restored = module.restore()
    named = dict(restored.named_modules())
    handles = [named[layer.name].register_forward_hook(remember(layer.name)) for layer in layers]
    try:
        total = losses(restored(inputs), targets).sum()
        backs = torch.autograd.grad(total, [outputs[layer.name] for layer in layers])
    finally:
        for handle in handles:
            handle.remove()
    # Sums are taken in double precision by the processor, wherever the passes went.
    ones = torch.ones(len(inputs), 1)
    pairs = [(layer, back.cpu(), seen[layer.name].cpu()) for layer, back in zip(layers, backs, strict=True)]
    return [(back, torch.cat([given, ones], 1) if layer.bias else given) for layer, back, given in pairs]


def _products_are_gradients(
    module: Stateless, losses: Losses, layers: list[Layer], rows: Tensor, targets: Tensor
) -> bool:
    """Whether the outer products equal the gradients of single examples.

    They do not if the module mixes rows, changes a layer's output in place, or also uses a layer's weights elsewhere.
    """
    weights = [weights for _, weights in trained_weights(module.module)]
    try:
        products = _outer_products(module, losses, layers, rows, targets)
    except Exception:
        return False
    for row in range(len(rows)):
        loss = losses(module(rows[row : row + 1]), targets[row : row + 1]).sum()
        slopes = iter([slope.cpu() for slope in torch.autograd.grad(loss, weights, materialize_grads=True)])
        for layer, (back, seen) in zip(layers, products, strict=True):
            product = torch.outer(back[row], seen[row])
            expected = [product[:, : layer.inputs]] + ([product[:, -1]] if layer.bias else [])
            if not all(torch.allclose(one, next(slopes), rtol=1e-3, atol=1e-5) for one in expected):
                return False
    return True


def _seen_once(module: Stateless, layers: Iterable[Layer], rows: Tensor) -> bool:
    """Whether each layer is called once a pass, on one row an example."""
    calls: list[tuple[str, int]] = []
    restored = module.restore()
    named = dict(restored.named_modules())
    handles = [
        named[layer.name].register_forward_hook(
            lambda part, given, output, name=layer.name: calls.append((name, given[0].dim()))
        )
        for layer in layers
    ]
    try:
        with torch.no_grad():
            restored(rows)
    finally:
        for handle in handles:
            handle.remove()
    return sorted(calls) == sorted((layer.name, 2) for layer in layers)


def _treats_rows_alone(part: nn.Module) -> bool:
    """Whether it is one of `_ROWWISE`, without methods or hooks of its own."""
    kind = type(part)
    changed = any(callable(getattr(kind, name, None)) for name in part.__dict__) or part._compiled_call_impl
    hooked = any(getattr(part, hooks) for hooks in _HOOKS) or _has_any_global_hook()  # type: ignore[no-untyped-call]
    return kind in _ROWWISE and not changed and not hooked
