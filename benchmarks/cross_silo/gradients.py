"""Sums of clipped gradients of a batch: ours, those of Opacus and of torch.func, and a plain gradient beside them."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.common import best_of, claim, say
from benchmarks.cross_silo.rounds import CLASSES, CLIP, PIXELS, data_of
from unspoken.learners.projected_gradients import BeforeProjection, Plain, Projection, after_projection
from unspoken.learners.torch_models import TorchModel
from unspoken.learners.torch_modules import make_module

HELD_BYTES = 64 << 20
"""How much memory the examples' gradients may take with Opacus and torch.func: both are slower with more."""
CONVOLUTIONS = "benchmarks.cross_silo.gradients:Convolutions"


class Convolutions(nn.Sequential):
    """A small network that is trained in all its layers, convolutions too."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 8, stride=2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, outputs),
        )


def time_gradients(name: str, hidden: tuple[int, ...], batch: int, repeats: int) -> dict[str, float]:
    """Processor seconds of each way to a sum of clipped gradients, and of a plain gradient of the same batch."""
    features, labels = data_of(batch)
    model = TorchModel(name, PIXELS, CLASSES, "cross-entropy", hidden, 0)
    say(f"gradients of {batch} records in {model.size:,} weights")
    weights, counts = model.initial(), np.array([batch])
    inputs, targets = torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels)

    def by(projection: Projection) -> Callable[[], object]:
        return lambda: projection.sums(weights, features, labels, counts, 1)

    size = min(1_000, model.size)
    works: dict[str, Callable[[], object]] = {
        "plain": plain_gradient(make_module(name, PIXELS, CLASSES, hidden), inputs, targets),
        "clipped": by(Plain(model, CLIP)),
        "structured": by(after_projection(model, CLIP, size, 0)),
        "gaussian": by(BeforeProjection(model, CLIP, size, 0, 1e-9)),
        "torch.func": by_torch_func(make_module(name, PIXELS, CLASSES, hidden), inputs, targets),
    }
    if find_spec("opacus") is not None:
        works["Opacus"] = by_opacus(make_module(name, PIXELS, CLASSES, hidden), inputs, targets, ghost=False)
        works["Opacus, ghost"] = by_opacus(make_module(name, PIXELS, CLASSES, hidden), inputs, targets, ghost=True)
    taken: dict[str, list[float]] = defaultdict(list)
    for work in works.values():
        if work is not works["gaussian"]:
            work()
    for turn in range(repeats):
        for way, work in works.items():
            if way != "gaussian" or turn == 0:
                taken[way].append(best_of(1, work)[1])
    return {way: min(found) for way, found in taken.items()}


def plain_gradient(module: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], object]:
    def work() -> None:
        module.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]

    return work


def by_torch_func(module: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], object]:
    weights, most = {name: tensor.detach() for name, tensor in module.named_parameters()}, examples_held(module)

    def loss(weights: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, weights, (row[None],)), target[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))

    def work() -> list[Tensor]:
        total: list[Tensor] = []
        for start in range(0, len(inputs), most):
            slopes = list(each(weights, inputs[start : start + most], targets[start : start + most]).values())
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in slopes]).norm(dim=0)
            factors = CLIP / norms.clamp(min=CLIP)
            sums = [torch.tensordot(factors, part, dims=1) for part in slopes]
            total = [one + other for one, other in zip(total, sums, strict=True)] if total else sums
        return total

    return work


def examples_held(module: nn.Module) -> int:
    return max(1, HELD_BYTES // (4 * sum(weights.numel() for weights in module.parameters())))


def by_opacus(module: nn.Module, inputs: Tensor, targets: Tensor, ghost: bool) -> Callable[[], object]:
    """Forward, backward, and clip-and-accumulate, as in Opacus's own training loop; no noise."""
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    grad_sample: Any = import_module("opacus.grad_sample")
    optimizers: Any = import_module("opacus.optimizers")
    fast_clipping: Any = import_module("opacus.utils.fast_gradient_clipping_utils")
    plain, most = torch.optim.SGD(module.parameters(), lr=0.0), examples_held(module)
    noise = {"noise_multiplier": 0.0, "max_grad_norm": CLIP, "expected_batch_size": len(inputs)}
    if not ghost:
        wrapped = grad_sample.GradSampleModule(module)
        optimizer = optimizers.DPOptimizer(plain, **noise)

        def held() -> None:
            optimizer.zero_grad(set_to_none=True)
            # In parts, as its BatchMemoryManager makes them.
            for rows, known in zip(torch.split(inputs, most), torch.split(targets, most), strict=True):
                nn.functional.cross_entropy(wrapped(rows), known).backward()  # type: ignore[no-untyped-call]
                optimizer.clip_and_accumulate()
                for weights in wrapped.parameters():
                    weights.grad_sample = None

        return held
    ghostly = grad_sample.GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, use_ghost_clipping=True)
    fast = optimizers.DPOptimizerFastGradientClipping(plain, **noise)
    criterion = fast_clipping.DPLossFastGradientClipping(ghostly, fast, nn.CrossEntropyLoss())

    def passed() -> None:
        fast.zero_grad(set_to_none=True)
        criterion(ghostly(inputs), targets).backward()

    return passed


def gradient_rows(kind: str, taken: dict[str, float]) -> list[list[str]]:
    return [
        [f"{kind}: {way}", f"{1e3 * seconds:.1f}", f"{seconds / taken['plain']:.2f}"] for way, seconds in taken.items()
    ]


def gradient_claims(linear: dict[str, float], others: dict[str, float]) -> list[dict[str, Any]]:
    """From processor seconds of each way, for linear layers and for convolutions."""
    projected = linear["structured"] / linear["plain"]
    text = "structured projection to 1,000 numbers over a plain gradient"
    return [claim("structured", text, projected, at_most=2.0)] + [
        claim("opacus", f"{kind}: speed over {way}", taken[way] / taken["clipped"], at_least=1.0)
        for kind, taken in (("linear layers", linear), ("convolutions", others))
        for way in ("Opacus", "Opacus, ghost", "torch.func")
        if way in taken
    ]
