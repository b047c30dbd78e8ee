"""A torch module whose every pass starts from what it was made with.

A module may change more than its output in a pass: a running mean in a buffer, a counter, a cache. What an example
gives would then depend on examples that went through before it, which no sensitivity allows for, and a buffer is
released with the weights, without any noise. So buffers, attributes and weights, frozen ones too, are put back before
every pass and release. What a module keeps elsewhere (in globals, closures, objects of its own) is out of reach: the
guarantee says so.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from torch import Tensor, nn

_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
"""Attributes that torch itself keeps: weights, submodules, hooks; and buffers, which are looked after by name"""


class Stateless:
    """A module, and how its buffers, attributes and frozen weights were when it was made."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._frozen = [
            (weights, weights.detach().clone()) for weights in module.parameters() if not weights.requires_grad
        ]
        self.hold()
        parts = list(module.modules())
        self._buffers = [
            (part._buffers, {name: _copied(value) for name, value in part._buffers.items()}) for part in parts
        ]
        self._attributes = [
            (
                part.__dict__,
                {name: _copied(value) for name, value in part.__dict__.items() if name not in _OF_EVERY_MODULE},
            )
            for part in parts
        ]

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
        for weights, held in self._frozen + self._trained:
            weights.data.copy_(held)
        for there, first in self._buffers:
            for name in there.keys() - first.keys():
                del there[name]
            there.update({name: _copied(value) for name, value in first.items()})
        for attributes, first in self._attributes:
            for name in attributes.keys() - first.keys() - _OF_EVERY_MODULE:
                del attributes[name]
            attributes.update({name: _copied(value) for name, value in first.items()})
        return self.module


def _copied(value: Any) -> Any:
    """A copy of an array, or of a collection and the arrays in it; anything else is itself, weights and layers too."""
    match value:
        case nn.Parameter():
            return value
        case Tensor():
            return value.detach().clone()
        case np.ndarray():
            return value.copy()
        case dict() | list():
            made = copy(value)
            for place, part in value.items() if isinstance(value, dict) else enumerate(value):
                made[place] = _copied(part)
            return made
        case set():
            return copy(value)
        case tuple() if type(value) is tuple:
            return tuple(_copied(part) for part in value)
    return value
