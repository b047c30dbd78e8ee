"""A torch module whose state is reset before every pass.

A module may keep state across passes: a running mean in a buffer, a counter, a cache. Then an example's output would
depend on earlier examples, and its influence would exceed the sensitivity; and buffers would be released with the
weights, without noise. So buffers, attributes, hooks and weights, frozen ones too, are restored before every pass and
release, with everything inside them: collections, objects, modules unknown to torch. A module with an attribute that
cannot be copied is refused. State that a module keeps elsewhere (in its class, globals, closures) is out of reach, and
the guarantee says so.
"""

from __future__ import annotations

from copy import deepcopy
from types import ModuleType
from typing import Any

from torch import Tensor, nn

_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
"""Attributes of torch itself: weights, submodules, hooks, and buffers, which are restored by name"""
_HOOKS = sorted(name for name in _OF_EVERY_MODULE if "_hooks" in name)

_State = list[tuple[dict[str, dict[Any, Any]], dict[str, Any]]]
"""Of each part of a module: its buffers with its hooks, by kind, and its attributes"""


class NotCopiedError(TypeError):
    """An attribute that cannot be copied and so not restored; the message continues the module's name."""


class Stateless:
    """A module with a copy of its first buffers, attributes and frozen weights."""

    seed: int | None = None
    """For torch's random numbers in the gradients of each example; None if the module draws none"""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._frozen = [
            (weights, weights.detach().clone()) for weights in module.parameters() if not weights.requires_grad
        ]
        self.hold()
        self._parts = list(module.modules())
        self._makeup = [(part, dict(part._modules), dict(part._parameters), part.training) for part in self._parts]
        state = [({"_buffers": part._buffers, **_hooks(part)}, _attributes(part)) for part in self._parts]
        self._own = [*self._parts, *module.parameters()]
        for _, attributes in state:
            self._own += [value for value in attributes.values() if isinstance(value, ModuleType)]
        self._first = self._copied(state)
        self._of_weights = [(weights, dict(weights.__dict__)) for weights in module.parameters()]

    def __call__(self, rows: Tensor) -> Tensor:
        self.restore()
        output: Tensor = self.module(rows)
        return output

    def hold(self) -> None:
        """Keep the present trained weights as those that every pass starts from."""
        frozen = {id(weights) for weights, _ in self._frozen}
        self._trained = [
            (weights, weights.detach().clone()) for weights in self.module.parameters() if id(weights) not in frozen
        ]

    def restore(self) -> nn.Module:
        """The module in its first state, with the weights last held."""
        for part, modules, parameters, training in self._makeup:
            _refill(part._modules, modules)
            _refill(part._parameters, parameters)
            part.training = training
        for weights, held in self._frozen + self._trained:
            # Anew, since a pass may have given them another type or shape.
            weights.data = held.clone()
        for weights, attributes in self._of_weights:
            weights.grad = None
            _refill(weights.__dict__, attributes)
        for part, (by_kind, attributes) in zip(self._parts, self._copied(self._first), strict=True):
            for kind, first in by_kind.items():
                _refill(part.__dict__[kind], first)
            for name in _attributes(part).keys() - attributes.keys():
                del part.__dict__[name]
            part.__dict__.update(attributes)
        return self.module

    def _copied(self, state: _State) -> _State:
        """A deep copy without weights, layers and Python modules; shared objects stay shared."""
        memo: dict[int, Any] = {id(own): own for own in self._own}
        return [
            ({kind: {name: _copy(name, value, memo) for name, value in held.items()} for kind, held in by_kind.items()},
             {name: _copy(name, value, memo) for name, value in attributes.items()})
            for by_kind, attributes in state
        ]  # fmt: skip


def _attributes(part: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in part.__dict__.items() if name not in _OF_EVERY_MODULE}


def _hooks(part: nn.Module) -> dict[str, dict[Any, Any]]:
    """The hooks of a part, by their kind."""
    return {name: part.__dict__[name] for name in _HOOKS if isinstance(part.__dict__.get(name), dict)}


def _refill(there: dict[Any, Any], first: dict[Any, Any]) -> None:
    there.clear()
    there.update(first)


def _copy(name: Any, value: Any, memo: dict[int, Any]) -> Any:
    try:
        _clone_tensors(value, memo)
        return deepcopy(value, memo)
    except Exception as error:
        # Hooks have numbers for names.
        place = f"attribute {name!r}" if isinstance(name, str) else "hooks"
        raise NotCopiedError(
            f"keeps in its {place} a {type(value).__name__} that cannot be copied ({error}), so one example "
            "could leave something there for the next; create it where it is used, or keep only numbers and tensors"
        ) from None


def _clone_tensors(value: Any, memo: dict[int, Any]) -> None:
    """Clone tensors in collections first: torch refuses a deep copy of a computed tensor."""
    if id(value) in memo:
        return
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        memo[id(value)] = value.detach().clone()
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            _clone_tensors(part, memo)
