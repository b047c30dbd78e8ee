"""PyTorch models for cross-silo training: sums of clipped per-example gradients, as flat vectors.

Needs the extra `torch`. Where all trained weights are in linear layers, an example's gradient in a layer is the outer
product of what went in (a) and what comes back (g): its norm is ‖a‖·‖g‖, and the clipped sum is one product of
matrices. So a pass costs what an ordinary gradient costs, and no example's gradient is ever held ("book keeping", Bu et
al. 2023). Any other module goes through torch.func, some examples at a time.

An example's gradient is computed in single precision and clipped and added up in double: in single precision a sum of
a thousand loses enough for one example to move it by more than 2·clip (`test_torch_models` does it). What is left of
that in double precision is counted in the sensitivity (`arithmetic`). Not counted is that a library may round an
example's own gradient differently in another batch.

No party fails because of its records: an example whose gradient is beyond floating point, or at which a module raises
an error, has none. What cannot be trained whatever the records are is found out when the model is made.
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from unspoken.errors import UnspokenError, missing_package
from unspoken.types import Floats, Integers, Labels

try:
    import torch
    from torch import Tensor, nn
    from torch.func import functional_call, grad, vmap
    from torch.nn.modules.module import _has_any_global_hook
except ImportError:  # pragma: no cover (the tests install torch)
    raise missing_package("this method", "PyTorch", "torch") from None

from unspoken.learners.stateless import NotCopiedError, Stateless

_CHUNK_BYTES = 64 << 20
"""How much memory the examples' gradients may take where they must be held."""
_CHUNK_ROWS = 1024
"""How many examples go through a module at once, so that memory does not grow with them."""
_MAKING = threading.Lock()
"""Modules are made from torch's one generator: two threads at once would mix up each other's first weights."""


class ModelError(UnspokenError):
    """A model that cannot be trained here: `problem` says why, in words that follow its name."""

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
    """The cross-silo paper's network: two frozen convolutions, then linear layers that are trained.

    Images are square, of one or three channels, as flat rows (channels first).
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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Steps on small batches: on a busy machine several threads spend most of their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _image_shape(features: int) -> tuple[int, int]:
    for channels in (3, 1):
        side = math.isqrt(features // channels)
        if channels * side * side == features and side >= 8:
            return channels, side
    raise ModelError("cnn", f"takes square images of one or three channels, but records have {features} features")


@dataclass(frozen=True)
class Layer:
    """A trained linear layer: where its weights stand in the flat vector."""

    name: str
    outputs: int
    inputs: int
    bias: bool


class TorchModel:
    """A module with its loss, seen as a function of one flat vector of trained weights."""

    def __init__(
        self,
        name: str,
        features: int,
        outputs: int,
        loss: Literal["cross-entropy", "squares"],
        hidden: Sequence[int],
        seed: int,
    ) -> None:
        self._arguments, self._loss, self._seed = (name, features, outputs, tuple(hidden)), loss, seed
        self._local = threading.local()
        module = self._made()
        self._shapes = [(name, tuple(weights.shape)) for name, weights in _trained(module.module)]
        self.size = sum(math.prod(shape) for _, shape in self._shapes)
        if self.size == 0:
            raise ModelError(name, "has no weights to train")
        self._check_scores(module)
        self.layers = self._linear_layers(module)
        self._check_training()
        self._is_vectorised = self.layers is None and self._can_be_vectorised()

    def initial(self) -> Floats:
        """The weights at the start, by the public seed."""
        weights = [weights.detach().reshape(-1) for _, weights in _trained(self._made().module)]
        return torch.cat(weights).double().numpy()

    def scores(self, flat: Floats, features: Floats) -> Floats:
        module, inputs = self._with(flat), torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        with torch.no_grad():
            scores: Tensor = torch.cat([module(rows) for rows in torch.split(inputs, _CHUNK_ROWS)])
        return scores.double().numpy()

    def clipped_gradients(
        self, flat: Floats, features: Floats, labels: Labels, counts: Integers, clip: float
    ) -> Floats:
        """One row a party: the sum of its examples' clipped gradients. `counts` says how many of the rows are whose.

        An example whose gradient is beyond floating point has none, whatever the weights are.
        """
        sums = np.zeros((len(counts), self.size))
        if len(features) == 0:
            return sums
        inputs = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        targets = torch.from_numpy(np.ascontiguousarray(labels))
        ends = np.cumsum(counts)
        parts = [
            (party, int(end - count), int(end)) for party, (count, end) in enumerate(zip(counts, ends, strict=True))
        ]
        if self.layers is None:
            self._held(flat, inputs, targets, parts, clip, sums)
        else:
            self._kept_books(flat, inputs, targets, parts, clip, sums)
        return sums

    @property
    def rows(self) -> int:
        """How many examples go through the module at once, where their gradients must be held or not."""
        held = max(1, _CHUNK_BYTES // (4 * self.size))
        return _CHUNK_ROWS if self.layers is not None else min(_CHUNK_ROWS, held)

    def example_gradients(self, flat: Floats, features: Floats, labels: Labels) -> Iterator[Floats]:
        """The examples' gradients, one row each, some at a time; zeros for one that is beyond floating point."""
        inputs = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        targets = torch.from_numpy(np.ascontiguousarray(labels))
        for slopes in self._slopes(flat, inputs, targets):
            finite = torch.isfinite(slopes).all(dim=1)
            yield torch.where(finite[:, None], slopes, 0.0).double().numpy()

    def outer_products(self, flat: Floats, features: Floats, labels: Labels) -> list[tuple[Tensor, Tensor]]:
        """For each linear layer what comes back and what went in (with a constant 1 for the bias), a row an example."""
        inputs = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        return self._safe_books(self._with(flat), inputs, torch.from_numpy(np.ascontiguousarray(labels)))

    def trained(
        self,
        flat: Floats,
        features: Floats,
        labels: Labels,
        epochs: int,
        batch: int,
        rate: float,
        order: np.random.Generator,
    ) -> Floats:
        """Plain SGD from the given weights on one party's records (for FedAvg)."""
        module = self._with(flat)
        weights = [tensor.requires_grad_() for _, tensor in _trained(module.module)]
        inputs = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        targets = torch.from_numpy(np.ascontiguousarray(labels))
        with _one_thread():
            for _ in range(epochs):
                for rows in np.array_split(order.permutation(len(inputs)), max(1, len(inputs) // batch)):
                    losses = self._losses(module(inputs[rows]), targets[rows])
                    slopes = torch.autograd.grad(losses.mean(), weights, materialize_grads=True)
                    for tensor, slope in zip(weights, slopes, strict=True):
                        tensor.data.sub_(rate * slope)
                    module.hold()
        return torch.cat([tensor.detach().reshape(-1) for tensor in weights]).double().numpy()

    def state(self, flat: Floats) -> dict[str, np.ndarray]:
        """All weights by name, frozen ones too: what a module's `load_state_dict` takes. Buffers are as at first."""
        state = self._with(flat).restore().state_dict()
        return {name: tensor.detach().numpy().copy() for name, tensor in state.items()}

    def module(self, flat: Floats) -> nn.Module:
        """The module itself with these weights, to predict with."""
        module = self._made().module
        module.load_state_dict({name: torch.from_numpy(weights) for name, weights in self.state(flat).items()})
        module.requires_grad_(False).eval()
        return module

    def _losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        if self._loss == "squares":
            return (scores[..., 0] - targets) ** 2 / 2.0
        return nn.functional.cross_entropy(scores, targets, reduction="none")

    def _kept_books(
        self,
        flat: Floats,
        inputs: Tensor,
        targets: Tensor,
        parts: list[tuple[int, int, int]],
        clip: float,
        sums: Floats,
    ) -> None:
        module = self._with(flat)
        for start in range(0, len(inputs), _CHUNK_ROWS):
            stop = start + _CHUNK_ROWS
            books = self._safe_books(module, inputs[start:stop], targets[start:stop])
            self._add_books(books, _within(parts, start, stop), clip, sums)

    def _add_books(
        self, books: list[tuple[Tensor, Tensor]], parts: list[tuple[int, int, int]], clip: float, sums: Floats
    ) -> None:
        # In double precision no square of a number is beyond it, too small or too large.
        norms = [
            torch.linalg.vector_norm(back, dim=1, dtype=torch.float64)
            * torch.linalg.vector_norm(seen, dim=1, dtype=torch.float64)
            for back, seen in books
        ]
        kept, factors = _factors(torch.linalg.vector_norm(torch.stack(norms), dim=0), clip)
        start = 0
        for layer, (back, seen) in zip(self.layers or [], books, strict=True):
            if not kept.all():
                back, seen = (torch.where(kept[:, None], tensor, 0.0) for tensor in (back, seen))
            back, seen = back.double() * factors[:, None], seen.double()
            weights, size = layer.outputs * layer.inputs, layer.outputs * (layer.inputs + layer.bias)
            for party, first, last in parts:
                row = torch.from_numpy(sums[party, start : start + size])
                row[:weights].view(layer.outputs, -1).addmm_(back[first:last].T, seen[first:last, : layer.inputs])
                if layer.bias:
                    row[weights:] += back[first:last].sum(dim=0)
            start += size

    def _safe_books(self, module: Stateless, inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """`_books`, with zeros for an example at which the module raises an error."""
        try:
            return self._books(module, inputs, targets)
        except Exception:
            if len(inputs) == 1:
                layers = self.layers or []
                return [(torch.zeros(1, each.outputs), torch.zeros(1, each.inputs + each.bias)) for each in layers]
        alone = [
            self._safe_books(module, *pair)
            for pair in zip(torch.split(inputs, 1), torch.split(targets, 1), strict=True)
        ]
        return [
            (torch.cat([back for back, _ in layer]), torch.cat([seen for _, seen in layer]))
            for layer in zip(*alone, strict=True)
        ]

    def _books(
        self, module: Stateless, inputs: Tensor, targets: Tensor, layers: list[Layer] | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """One pass forward and one back to the layers' outputs; the weights' own gradients are never asked for."""
        seen: dict[str, Tensor] = {}
        outputs: dict[str, Tensor] = {}

        def remember(name: str) -> Any:
            def hook(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
                seen[name], outputs[name] = (
                    given[0].detach(),
                    output if output.requires_grad else output.requires_grad_(),
                )
                return outputs[name]

            return hook

        layers = layers or self.layers or []
        named = dict(module.module.named_modules())
        handles = [named[layer.name].register_forward_hook(remember(layer.name)) for layer in layers]
        try:
            losses = self._losses(module(inputs), targets)
            backs = torch.autograd.grad(losses.sum(), [outputs[layer.name] for layer in layers])
        finally:
            for handle in handles:
                handle.remove()
        ones = torch.ones(len(inputs), 1)
        pairs = zip(layers, backs, strict=True)
        return [
            (back, torch.cat([seen[layer.name], ones], 1) if layer.bias else seen[layer.name]) for layer, back in pairs
        ]

    def _held(
        self,
        flat: Floats,
        inputs: Tensor,
        targets: Tensor,
        parts: list[tuple[int, int, int]],
        clip: float,
        sums: Floats,
    ) -> None:
        start = 0
        for slopes in self._slopes(flat, inputs, targets):
            slopes = slopes.double()
            kept, factors = _factors(torch.linalg.vector_norm(slopes, dim=1), clip)
            if not kept.all():
                slopes = torch.where(kept[:, None], slopes, 0.0)
            for party, first, last in _within(parts, start, start + len(slopes)):
                sums[party] += (factors[first:last] @ slopes[first:last]).numpy()
            start += len(slopes)

    def _slopes(self, flat: Floats, inputs: Tensor, targets: Tensor) -> Iterator[Tensor]:
        """Per-example gradients: by torch.func, or one by one where it cannot be used."""
        module = self._with(flat)
        for start in range(0, len(inputs), self.rows):
            rows = slice(start, start + self.rows)
            if self._is_vectorised:
                try:
                    slopes = self._together(module, inputs[rows], targets[rows])
                except Exception:
                    slopes = self._alone(module, inputs[rows], targets[rows])
            else:
                slopes = self._alone(module, inputs[rows], targets[rows])
            yield slopes

    def _together(self, module: Stateless, inputs: Tensor, targets: Tensor) -> Tensor:
        """The examples' gradients by torch.func."""
        weights = {name: tensor.detach() for name, tensor in _trained(module.module)}

        def loss(weights: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
            scores = functional_call(module.module, weights, (row[None],))
            return self._losses(scores, target[None])[0]

        module.restore()
        each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
        return torch.cat([part.flatten(1) for part in each(weights, inputs, targets).values()], 1)

    def _alone(self, module: Stateless, inputs: Tensor, targets: Tensor) -> Tensor:
        """The examples' gradients one by one; zeros for one at which the module raises an error."""
        slopes = torch.zeros(len(inputs), self.size)
        for place, (row, target) in enumerate(zip(inputs, targets, strict=True)):
            with suppress(Exception):
                slopes[place] = self._slope(module, row, target)
        return slopes

    def _slope(self, module: Stateless, row: Tensor, target: Tensor) -> Tensor:
        """One example's gradient."""
        weights = [tensor.requires_grad_() for _, tensor in _trained(module.module)]
        try:
            loss = self._losses(module(row[None]), target[None])[0]
            parts = torch.autograd.grad(loss, weights, materialize_grads=True)
        finally:
            for tensor in weights:
                tensor.requires_grad_(False)
        return torch.cat([part.reshape(-1) for part in parts])

    def _made_up(self, count: int) -> tuple[Tensor, Tensor]:
        """Examples to try a module with."""
        rows = torch.rand(count, self._arguments[1], generator=torch.Generator().manual_seed(0))
        return rows, torch.zeros(count, dtype=torch.float32 if self._loss == "squares" else torch.int64)

    def _check_training(self) -> None:
        """Can the module be trained? It is found out here, so that no records have a part in it."""
        (row,), (target,) = self._made_up(1)
        try:
            self._slope(self._with(self.initial()), row, target)
        except Exception as error:
            raise ModelError(self._arguments[0], f"cannot be trained here ({_first_line(error)})") from None

    def _can_be_vectorised(self) -> bool:
        """Does torch.func take the module? Not if it changes its buffers in place, or is recurrent."""
        try:
            self._together(self._with(self.initial()), *self._made_up(2))
        except Exception:
            return False
        return True

    def _with(self, flat: Floats) -> Stateless:
        """This thread's module, with the given weights."""
        if not hasattr(self._local, "module"):
            self._local.module = self._made()
        module: Stateless = self._local.module
        with np.errstate(over="ignore"):
            start, tensor = 0, torch.from_numpy(np.array(flat, dtype=np.float32))
        module.restore()
        for _, weights in _trained(module.module):
            weights.data = tensor[start : start + weights.numel()].view(weights.shape)
            weights.requires_grad_(False)
            start += weights.numel()
        module.hold()
        return module

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What sums of clipped gradients rest on and we cannot check, in words that follow 'assumes that'."""
        alike = "PyTorch computes an example's gradient alike, to the last bit, whichever examples it computes with it"
        kept = "the module keeps nothing of an example but in its weights, buffers and attributes"
        return (alike, kept) if ":" in self._arguments[0] else (alike,)

    def _made(self) -> Stateless:
        """The module with its first weights; torch's own generator is left as it was."""
        name, features, outputs, hidden = self._arguments
        with _MAKING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            module = make_module(name, features, outputs, hidden)
        # Marked once: later the weights are frozen, so that autograd does not ask for their gradients.
        for parameter in module.parameters():
            parameter.unspoken_trained = parameter.requires_grad  # type: ignore[attr-defined]
        module.eval()
        try:
            return Stateless(module)
        except NotCopiedError as error:
            raise ModelError(name, str(error)) from None

    def _check_scores(self, module: Stateless) -> None:
        name, features, outputs, _ = self._arguments
        try:
            with torch.no_grad():
                shape = tuple(module(torch.zeros(2, features)).shape)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ModelError(name, f"cannot take rows of {features} features ({_first_line(error)})") from None
        if shape != (2, outputs):
            raise ModelError(name, f"gives an array of shape {shape} for two records, but should give {(2, outputs)}")

    def _linear_layers(self, module: Stateless) -> list[Layer] | None:
        """The trained layers if all are linear and each sees one row an example, once; else None.

        Only for modules that are made of parts which are known to treat each row for itself: no number of tried rows
        would show that for others.
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
        if [name for name, _ in self._shapes] != expected:
            return None
        return layers if self._seen_once(module, layers) and self._is_booked(module, layers) else None

    def _is_booked(self, module: Stateless, layers: list[Layer]) -> bool:
        """Are the outer products the gradients that examples have alone? Not if the module mixes its rows, changes a
        layer's output in place, or uses a layer's weights beside it."""
        rows, targets = self._made_up(3)
        weights = [weights for _, weights in _trained(module.module)]
        try:
            books = self._books(module, rows, targets, layers)
        except Exception:
            return False
        for row in range(len(rows)):
            loss = self._losses(module(rows[row : row + 1]), targets[row : row + 1]).sum()
            slopes = iter(torch.autograd.grad(loss, weights, materialize_grads=True))
            for layer, (back, seen) in zip(layers, books, strict=True):
                product = torch.outer(back[row], seen[row])
                expected = [product[:, : layer.inputs]] + ([product[:, -1]] if layer.bias else [])
                if not all(torch.allclose(one, next(slopes), rtol=1e-3, atol=1e-5) for one in expected):
                    return False
        return True

    def _seen_once(self, module: Stateless, layers: Iterable[Layer]) -> bool:
        calls: list[tuple[str, int]] = []
        named = dict(module.module.named_modules())
        handles = [
            named[layer.name].register_forward_hook(
                lambda part, given, output, name=layer.name: calls.append((name, given[0].dim()))
            )
            for layer in layers
        ]
        try:
            with torch.no_grad():
                module(torch.zeros(2, self._arguments[1]))
        finally:
            for handle in handles:
                handle.remove()
        return sorted(calls) == sorted((layer.name, 2) for layer in layers)


def _within(parts: list[tuple[int, int, int]], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The parties' rows that are among those from `start` to `stop`, numbered from there."""
    here = [(party, max(first, start) - start, min(last, stop) - start) for party, first, last in parts]
    return [part for part in here if part[1] < part[2]]


def _factors(norms: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Which gradients are within floating point, and what brings each of those to the norm `clip` at most."""
    kept = torch.isfinite(norms)
    return kept, torch.where(kept, clip / norms.clamp(min=clip), 0.0)


_ROWWISE: frozenset[type[nn.Module]] = frozenset(
    {
        *(Perceptron, SmallCNN, nn.Sequential, nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.LayerNorm, nn.Flatten),
        *(nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus),
    }
)
"""Modules of torch's own, and ours, whose output for a row depends on that row alone."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _treats_rows_alone(part: nn.Module) -> bool:
    """Is it one of those, and nothing that this instance has of its own: no method, no hook?"""
    kind = type(part)
    changed = any(callable(getattr(kind, name, None)) for name in part.__dict__) or part._compiled_call_impl
    hooked = any(getattr(part, hooks) for hooks in _HOOKS) or _has_any_global_hook()  # type: ignore[no-untyped-call]
    return kind in _ROWWISE and not changed and not hooked


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, weights) for name, weights in module.named_parameters() if weights.unspoken_trained]  # type: ignore[attr-defined]


def make_module(name: str, features: int, outputs: int, hidden: Sequence[int] = ()) -> nn.Module:
    """A ready model, or "package.module:Class", which is called with (features, outputs) and takes rows of features."""
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
            name, f"cannot be made with the numbers of features and outputs, {features} and {outputs} ({error})"
        ) from None
    if not isinstance(module, nn.Module):
        raise ModelError(name, f"should be made a torch.nn.Module, but is made a {type(module).__name__}")
    return module


def _first_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0]
