"""PyTorch models as functions of a flat vector of weights, with sums of clipped per-example gradients.

Needs the extra `torch`. If all trained weights are in linear layers, a clipped sum costs about as much as an ordinary
gradient (`ghost_clipping`). Any other module goes through torch.func, some examples at a time (`example_gradients`).

An example's gradient is computed in single precision, then clipped and summed in double precision: a sum of a thousand
in single precision loses enough for one example to move it by more than 2·clip (`test_clipped_sums` shows it). The
sensitivity counts the error that double precision leaves (`arithmetic`). It does not count that a library may round an
example's own gradient differently in another batch.

No party fails because of its records: an example whose gradient is not finite, or at which the module raises an error,
contributes zeros. A module that no records could train is refused when the model is made.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.arithmetic import rows_of
from unspoken.errors import first_line, missing_package
from unspoken.types import Floats, Integers, Labels

try:
    import torch
    from torch import Tensor, nn
except ImportError:  # pragma: no cover (the tests install torch)
    raise missing_package("training a PyTorch model", "PyTorch", "torch") from None

from unspoken.learners import ghost_clipping, torch_trials
from unspoken.learners.example_gradients import (
    GENERATOR,
    clip_factors,
    gradient,
    gradients_at_once,
    gradients_one_by_one,
)
from unspoken.learners.stateless import NotCopiedError, Stateless
from unspoken.learners.torch_losses import LossFunction
from unspoken.learners.torch_modules import (
    HIDDEN,
    PLAIN,
    READY,
    ModelError,
    Recipe,
    device_here,
    make_module,
    mark_trained,
    prepared,
    trained_weights,
)

_CHUNK_BYTES = 64 << 20
"""The memory that the examples' gradients may take where they must be held"""
_CHUNK_ROWS = 1024
"""The number of examples that go through a module at once, which bounds memory"""


@dataclass(frozen=True)
class Passes:
    """How a party trains on its own records."""

    epochs: int
    batch: int
    rate: float
    adam: bool = False


class TorchModel:
    """A module with its loss, as a function of one flat vector of trained weights."""

    def __init__(
        self,
        name: str,
        features: int,
        outputs: int,
        loss: str,
        hidden: Sequence[int],
        seed: int,
        recipe: Recipe = PLAIN,
    ) -> None:
        """`loss` is "cross-entropy", "squares" or a function, as "package.module:function"."""
        self._arguments, self._seed, self._recipe = (name, features, outputs, tuple(hidden)), seed, recipe
        self._losses = LossFunction(loss, recipe.class_weights)
        self._local = threading.local()
        self._device, self._may_draw = device_here(), False
        if recipe.shape and math.prod(recipe.shape) != features:
            one_more = math.prod(recipe.shape) == features - 1
            remedy = "; the last is the constant 1, if intercept is true: set it to false" if one_more else ""
            shaped = f"records of shape {list(recipe.shape)}"
            raise ModelError(name, f"is to take {shaped}, but they have {features} numbers{remedy}")
        module = self._made()
        self.size = sum(weights.numel() for _, weights in trained_weights(module.module))
        if self.size == 0:
            raise ModelError(name, "has no weights to train")
        torch_trials.check_scores(name, module, self._inputs, (features, outputs), recipe.shape)
        self._losses.check(torch.zeros(2, outputs), self._made_up(2)[1].cpu())
        self.layers = self._linear_layers(module)
        self._is_vectorised = self.layers is None and self._can_be_vectorised()
        self._may_draw = self.layers is None and (not self._is_vectorised or self._draws())
        self._check_training()
        self.notes = torch_trials.notes(
            name, module, self._inputs, features, self.layers is None and not self._is_vectorised
        )

    @property
    def described(self) -> dict[str, Any]:
        """What a reader of its weights must know: its name, the sizes of its hidden layers, the shape of a record."""
        name, _, _, hidden = self._arguments
        sizes = list(hidden or HIDDEN[name]) if name in HIDDEN else []
        return {"model": name, "hidden": sizes, "shape": list(self._recipe.shape) or None}

    def initial(self) -> Floats:
        """The first weights, from the public seed."""
        weights = [weights.detach().reshape(-1) for _, weights in trained_weights(self._made().module)]
        return torch.cat(weights).cpu().double().numpy()

    def scores(self, flat: Floats, features: Floats) -> Floats:
        """One row a record; zeros where the module raises an error or gives no numbers, so that one record does not end
        a run."""
        return self._scored(flat, features)[0]

    def failures(self, flat: Floats, features: Floats) -> tuple[int, str]:
        """The number of records that the module cannot score, and what it says of the last of them."""
        errors = [] if self._arguments[0] in READY else self._scored(flat, features)[1]
        return len(errors), errors[-1] if errors else ""

    def _scored(self, flat: Floats, features: Floats) -> tuple[Floats, list[str]]:
        """Scores, and what the module says of the records that it does not take."""
        module, errors, found = self._with(flat), [], []
        with torch.no_grad():
            for rows in torch.split(self._inputs(features), _CHUNK_ROWS):
                try:
                    found.append(module(rows))
                    continue
                except Exception:
                    alone = torch.split(rows, 1)
                for row in alone:
                    try:
                        found.append(module(row))
                    except Exception as error:
                        errors.append(first_line(error))
                        found.append(torch.zeros(1, self._arguments[2], device=self._device))
        scores: Floats = torch.cat(found).cpu().double().numpy()
        unknown = np.asarray(np.isnan(scores).any(axis=1))
        errors += ["its scores are no numbers"] * int(unknown.sum())
        return np.where(unknown[:, None], 0.0, scores), errors

    def clipped_gradients(
        self, flat: Floats, features: Floats, labels: Labels, counts: Integers, clip: float
    ) -> Floats:
        """The sums of clipped gradients, one row a party; `counts` are the parties' numbers of examples, in order.

        An example whose gradient is not finite contributes zeros. Each party's examples go through the module by
        themselves: a library rounds an example's gradient differently in another batch, and a party's sum must be the
        same wherever it is computed, whoever is simulated with it.
        """
        module, add = self._with(flat), self._add_held if self.layers is None else self._add_booked
        sums = np.zeros((len(counts), self.size))
        for party, rows in enumerate(rows_of(counts)):
            total = torch.zeros(self.size, dtype=torch.float64)
            add(module, self._inputs(features[rows]), self._targets(labels[rows]), clip, total)
            sums[party] = total.numpy()
        return sums

    @property
    def rows(self) -> int:
        """The number of examples that go through the module at once."""
        held = max(1, _CHUNK_BYTES // (4 * self.size))
        return _CHUNK_ROWS if self.layers is not None else min(_CHUNK_ROWS, held)

    def example_gradients(self, flat: Floats, features: Floats, labels: Labels) -> Iterator[Floats]:
        """The examples' gradients, one row each, in chunks; zeros where a gradient is not finite."""
        for slopes in self._slopes(self._with(flat), self._inputs(features), self._targets(labels)):
            finite = torch.isfinite(slopes).all(dim=1)
            yield torch.where(finite[:, None], slopes, 0.0).cpu().double().numpy()

    def outer_products(self, flat: Floats, features: Floats, labels: Labels) -> ghost_clipping.OuterProducts:
        """The factors of the examples' gradients in the linear layers."""
        return ghost_clipping.outer_products(
            self._with(flat), self._losses, self.layers or [], self._inputs(features), self._targets(labels)
        )

    def trained(
        self, flat: Floats, features: Floats, labels: Labels, passes: Passes, order: np.random.Generator
    ) -> Floats:
        """The weights after plain SGD, or Adam, from the given ones on one party's records."""
        module = self._with(flat)
        weights = [tensor.requires_grad_() for _, tensor in trained_weights(module.module)]
        inputs, targets, steps = self._inputs(features), self._targets(labels), _Steps(passes.adam)
        with _one_thread():
            for _ in range(passes.epochs):
                for rows in np.array_split(order.permutation(len(inputs)), max(1, len(inputs) // passes.batch)):
                    losses = self._losses(module(inputs[rows]), targets[rows])
                    slopes = torch.autograd.grad(losses.mean(), weights, materialize_grads=True)
                    for tensor, step in zip(weights, steps.of(slopes), strict=True):
                        tensor.data.sub_(passes.rate * step)
                    module.hold()
        return torch.cat([tensor.detach().reshape(-1) for tensor in weights]).cpu().double().numpy()

    def state(self, flat: Floats) -> dict[str, np.ndarray]:
        """All weights by name, for `load_state_dict`; frozen weights and buffers as they were made."""
        state = self._with(flat).restore().state_dict()
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}

    def module(self, flat: Floats) -> nn.Module:
        """A module with these weights, to predict with."""
        module = self._made().module.cpu()
        module.load_state_dict({name: torch.from_numpy(weights) for name, weights in self.state(flat).items()})
        module.requires_grad_(False).eval()
        return module

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Unchecked assumptions of the sensitivity, each to follow 'assumes that'."""
        alike = "PyTorch computes an example's gradient alike, to the last bit, whichever examples it computes with it"
        kept = (
            "the module keeps nothing of an example outside of its own weights, buffers, attributes and hooks, such as "
            "in its class"
        )
        forgotten = "the loss keeps nothing of an example"
        found = [alike, kept] if ":" in self._arguments[0] else [alike]
        return (*found, forgotten) if self._losses.is_own else tuple(found)

    def _add_booked(self, module: Stateless, inputs: Tensor, targets: Tensor, clip: float, total: Tensor) -> None:
        """Add one party's clipped gradients to its total, without holding any."""
        layers = self.layers or []
        for start in range(0, len(inputs), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            products = ghost_clipping.outer_products(module, self._losses, layers, inputs[rows], targets[rows])
            ghost_clipping.add_clipped(layers, products, clip, total)

    def _add_held(self, module: Stateless, inputs: Tensor, targets: Tensor, clip: float, total: Tensor) -> None:
        """Add one party's clipped gradients to its total, a chunk of them held at a time."""
        for slopes in self._slopes(module, inputs, targets):
            # Not every device has double precision.
            slopes = slopes.cpu().double()
            kept, factors = clip_factors(torch.linalg.vector_norm(slopes, dim=1), clip)
            if not kept.all():
                slopes = torch.where(kept[:, None], slopes, 0.0)
            total += factors @ slopes

    def _slopes(self, module: Stateless, inputs: Tensor, targets: Tensor) -> Iterator[Tensor]:
        """Per-example gradients in chunks, by torch.func if it takes the module. Where it fails at an example, it takes
        each of the chunk alone: autograd may round theirs differently, or draw other random numbers."""
        for start in range(0, len(inputs), self.rows):
            given = module, self._losses, inputs[start : start + self.rows], targets[start : start + self.rows]
            if not self._is_vectorised:
                yield gradients_one_by_one(*given)
                continue
            try:
                slopes = gradients_at_once(*given)
            except Exception:
                slopes = gradients_one_by_one(*given, gradients_at_once)
            yield slopes

    def _made_up(self, count: int) -> tuple[Tensor, Tensor]:
        """Made-up examples to try the module on."""
        rows = torch.rand(count, self._arguments[1], generator=torch.Generator().manual_seed(0))
        outputs = self._arguments[2]
        labels: Labels = np.full(count, 0.5) if outputs == 1 else np.arange(count) % outputs
        return self._inputs(rows.numpy()), self._targets(labels)

    def _inputs(self, features: Floats) -> Tensor:
        """Rows as the module takes them."""
        # In memory of torch's own: where a matrix begins in memory may decide how it is multiplied, too.
        rows = torch.tensor(features, dtype=torch.float32)
        return (rows.view(-1, *self._recipe.shape) if self._recipe.shape else rows).to(self._device)

    def _targets(self, labels: Labels) -> Tensor:
        """Classes, or numbers in the module's own precision: torch's losses take no other."""
        targets = torch.from_numpy(np.ascontiguousarray(labels))
        return (targets.float() if targets.is_floating_point() else targets).to(self._device)

    def _linear_layers(self, module: Stateless) -> list[ghost_clipping.Layer] | None:
        """The trained layers, if all are linear; None for a user's own loss, which might mix the examples of a
        batch."""
        if self._losses.is_own:
            return None
        return ghost_clipping.linear_layers(module, self._losses, *self._made_up(3))

    def _check_training(self) -> None:
        """Compute gradients of two made-up examples as in training, so that a module that cannot be trained fails
        before it sees records. Of a ready module the loss is to blame, if it is the user's own."""
        rows, targets = self._made_up(2)
        guilty = self._losses.name if self._losses.is_own and self._arguments[0] in READY else self._arguments[0]
        try:
            gradient(self._with(self.initial()), self._losses, rows[0], targets[0])
        except Exception as error:
            remedy = torch_trials.remedy(self._made().module)
            raise ModelError(guilty, f"cannot be trained here ({first_line(error)}); {remedy}") from None
        add = self._add_held if self.layers is None else self._add_booked
        total = torch.zeros(self.size, dtype=torch.float64)
        add(self._with(self.initial()), rows, targets, 1.0, total)
        if not total.any():
            raise ModelError(
                guilty,
                "has gradients of zero, or none that are finite numbers, for made-up records between 0 and 1, so it "
                "would learn nothing; look at its first weights, and at what it computes without gradients",
            )

    def _can_be_vectorised(self) -> bool:
        """Whether torch.func takes the module. It refuses recurrent ones, branches that depend on numbers, and changes
        of buffers in place."""
        try:
            gradients_at_once(self._with(self.initial()), self._losses, *self._made_up(2))
        except Exception:
            return False
        return True

    def _draws(self) -> bool:
        """Whether torch.func, by which no branch depends on numbers, draws random numbers. Generators of other devices
        are not looked at."""
        with GENERATOR:
            before = torch.random.get_rng_state()
            gradients_at_once(self._with(self.initial()), self._losses, *self._made_up(2))
            return self._device.type != "cpu" or not torch.equal(before, torch.random.get_rng_state())

    def __getstate__(self) -> dict[str, Any]:
        """Every thread makes a module of its own, so none is copied."""
        return {name: value for name, value in vars(self).items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._local = threading.local()

    def _with(self, flat: Floats) -> Stateless:
        """This thread's module, with the given weights."""
        if not hasattr(self._local, "module"):
            self._local.module = self._made()
        module: Stateless = self._local.module
        with np.errstate(over="ignore"):
            start, tensor = 0, torch.from_numpy(np.array(flat, dtype=np.float32)).to(self._device)
        module.restore()
        for _, weights in trained_weights(module.module):
            weights.data = tensor[start : start + weights.numel()].view(weights.shape)
            weights.requires_grad_(False)
            start += weights.numel()
        module.hold()
        if self._may_draw:
            # Others in every round, for dropout.
            module.seed = zlib.crc32(tensor.cpu().numpy().tobytes())
        return module

    def _made(self) -> Stateless:
        """A module with the first weights; torch's own generator stays as it was."""
        name, features, outputs, hidden = self._arguments
        with GENERATOR, torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also leave a note, with the whole stack, for every graphics card.
            torch.default_generator.manual_seed(self._seed)
            module = mark_trained(prepared(make_module(name, features, outputs, hidden), name, self._recipe))
        module.to(self._device).eval()
        try:
            return Stateless(module)
        except NotCopiedError as error:
            raise ModelError(name, str(error)) from None


class _Steps:
    """The direction of each step: the gradient itself, or Adam's average of it over its root mean square."""

    def __init__(self, adam: bool) -> None:
        self._adam, self._count = adam, 0
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []

    def of(self, slopes: Sequence[Tensor]) -> Sequence[Tensor]:
        if not self._adam:
            return slopes
        self._count += 1
        if not self._means:
            self._means, self._squares = ([torch.zeros_like(slope) for slope in slopes] for _ in range(2))
        found = []
        for slope, mean, square in zip(slopes, self._means, self._squares, strict=True):
            mean.mul_(0.9).add_(slope, alpha=0.1)
            square.mul_(0.999).addcmul_(slope, slope, value=0.001)
            spread = (square / (1.0 - 0.999**self._count)).sqrt()
            found.append(mean / (1.0 - 0.9**self._count) / (spread + 1e-8))
        return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread: for small batches several spend most of their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
