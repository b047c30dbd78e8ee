"""A torch module whose every pass starts from what it was made with.

A module may change more than its output in a pass: a running mean in a buffer, a counter, a cache. What an example
gives would then depend on examples that went through before it, which no sensitivity allows for, and a buffer is
released with the weights, without any noise. So buffers, attributes and weights, frozen ones too, are put back before
every pass and release, with all that is in them: collections, objects, modules that torch does not know of. A module
with an attribute that cannot be copied is refused. What a module keeps elsewhere (in globals and closures) is out of
reach: the guarantee says so.
"""

from __future__ import annotations

from copy import deepcopy
from types import ModuleType
from typing import Any

from torch import Tensor, nn

_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
"""Attributes that torch itself keeps: weights, submodules, hooks; and buffers, which are looked after by name"""

_State = list[tuple[dict[str, Any], dict[str, Any]]]
"""Of each part of a module, buffers and attributes."""


class NotCopiedError(TypeError):
    """An attribute that cannot be copied, so that it cannot be put back: its words follow the module's name."""


class Stateless:
    """A module, and how its buffers, attributes and frozen weights were when it was made."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._frozen = [
            (weights, weights.detach().clone()) for weights in module.parameters() if not weights.requires_grad
        ]
        self.hold()
        self._parts = list(module.modules())
        self._makeup = [(part, dict(part._modules), dict(part._parameters), part.training) for part in self._parts]
        state = [(part._buffers, _attributes(part)) for part in self._parts]
        self._own = [*self._parts, *module.parameters()]
        for _, attributes in state:
            self._own += [value for value in attributes.values() if isinstance(value, ModuleType)]
        self._first = self._copied(state)

    def __call__(self, rows: Tensor) -> Tensor:
        self.restore()
        output: Tensor = self.module(rows)
        return output

    def hold(self) -> None:
        """Take the trained weights as they are now for those that every pass starts from."""
        frozen = {id(weights) for weights, _ in self._frozen}
        self._trained = [
            (weights, weights.detach().clone()) for weights in self.module.parameters() if id(weights) not in frozen
        ]

    def restore(self) -> nn.Module:
        """The module as it was made, with the weights that it was last given."""
        for part, modules, parameters, training in self._makeup:
            _refill(part._modules, modules)
            _refill(part._parameters, parameters)
            part.training = training
        for weights, held in self._frozen + self._trained:
            weights.data.copy_(held)
        for part, (buffers, attributes) in zip(self._parts, self._copied(self._first), strict=True):
            _refill(part._buffers, buffers)
            for name in _attributes(part).keys() - attributes.keys():
                del part.__dict__[name]
            part.__dict__.update(attributes)
        return self.module

    def _copied(self, state: _State) -> _State:
        """A copy of all that is in it but weights, layers and Python modules. What was one object stays one."""
        memo: dict[int, Any] = {id(own): own for own in self._own}
        return [
            ({name: _copy(name, value, memo) for name, value in buffers.items()},
             {name: _copy(name, value, memo) for name, value in attributes.items()})
            for buffers, attributes in state
        ]  # fmt: skip


def _attributes(part: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in part.__dict__.items() if name not in _OF_EVERY_MODULE}


def _refill(there: dict[str, Any], first: dict[str, Any]) -> None:
    there.clear()
    there.update(first)


def _copy(name: str, value: Any, memo: dict[int, Any]) -> Any:
    try:
        _clone_tensors(value, memo)
        return deepcopy(value, memo)
    except Exception as error:
        raise NotCopiedError(
            f"keeps in its attribute {name!r} a {type(value).__name__} that cannot be copied ({error}), so that what "
            "one example leaves there could reach the next; make it where it is used, or keep numbers and tensors only"
        ) from None


def _clone_tensors(value: Any, memo: dict[int, Any]) -> None:
    """Tensors in collections come first, since torch makes no deep copy of one that was computed from others."""
    if id(value) in memo:
        return
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        memo[id(value)] = value.detach().clone()
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            _clone_tensors(part, memo)
