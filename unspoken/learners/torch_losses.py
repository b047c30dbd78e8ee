"""Losses of PyTorch models: one number an example, by name or by a function of an installed package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from unspoken.errors import first_line
from unspoken.learners.torch_modules import ModelError
from unspoken.plugins import NotImportable, imported


@dataclass(frozen=True)
class LossFunction:
    """A loss: "cross-entropy", "squares", or a function of scores and targets as "package.module:function".

    A function gets scores (one row an example) and targets (class numbers, or a regression's scaled labels), and
    returns one loss an example. In training it is called with one example at a time, so that it cannot mix examples.
    """

    name: str
    class_weights: tuple[float, ...] = ()
    """A factor for each class; none: all count alike"""

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own function, about which nothing is known."""
        return ":" in self.name

    def __call__(self, scores: Tensor, targets: Tensor) -> Tensor:
        losses = self._plain(scores, targets)
        if self.class_weights:
            losses = losses * torch.tensor(self.class_weights, device=losses.device)[targets]
        return losses

    def _plain(self, scores: Tensor, targets: Tensor) -> Tensor:
        if self.is_own:
            return self._function(scores, targets)
        if self.name == "squares":
            return (scores[..., 0] - targets) ** 2 / 2.0
        return nn.functional.cross_entropy(scores, targets, reduction="none")

    @cached_property
    def _function(self) -> Callable[[Tensor, Tensor], Tensor]:
        try:
            function: Callable[[Tensor, Tensor], Tensor] = imported(self.name)
        except NotImportable as error:
            raise ModelError(self.name, error.problem) from None
        if not callable(function):
            raise ModelError(self.name, f"is a {type(function).__name__}, but should be a function")
        return function

    def check(self, scores: Tensor, targets: Tensor) -> None:
        """Try the user's function on made-up scores: of all, and of one as in training."""
        if not self.is_own:
            return
        self._check(scores, targets)
        self._check(scores[:1], targets[:1])

    def _check(self, scores: Tensor, targets: Tensor) -> None:
        try:
            found = self._function(scores, targets)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(self.name, f"cannot be computed ({first_line(error)})") from None
        if not isinstance(found, Tensor) or found.shape != (len(scores),):
            got = (
                f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            )
            examples = "1 example" if len(scores) == 1 else f"{len(scores)} examples"
            raise ModelError(
                self.name, f"gives {got} for {examples}, but should give one loss an example: ({len(scores)},)"
            )
