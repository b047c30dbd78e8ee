"""Local models that are trained once, for runs that differ in their noise only."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.sgd import shrinking
from unspoken.methods.helmet import Helmet
from unspoken.types import Floats

_MOST = 2
"""The number of learners whose models are kept: those of CIFAR-10 take 0.1 GB each"""


class Remembering:
    """Keeps what the last few learners made of the blocks of one split."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, float], dict[bytes, Floats]] = {}

    def watch(self, method: Helmet) -> None:
        """Let the method train what it has not trained before only."""
        method.learner = _Watched(method.learner, self)  # type: ignore[assignment]

    def average(self, method: Helmet, block: Block) -> Floats:
        """The sum of a block's models, each weighted as in the method, without noise."""
        models = method.learner.fit(block)
        weights = block.counts if method.by_records else block.counts * 0 + 1
        total: Floats = (models * weights[:, None, None]).sum(axis=0)
        return total

    def fit(self, learner: LinearLearner, block: Block) -> Floats:
        who = (type(learner.loss).__name__, learner.regularization)
        if who not in self._kept:
            self._kept = dict(list(self._kept.items())[1 - _MOST :]) | {who: {}}
        key = hashlib.blake2b(block.labels.tobytes() + block.features[:, 0].tobytes()).digest()
        if key not in self._kept[who]:
            self._kept[who][key] = replace(learner, radius=None).fit(block)
        models = self._kept[who][key]
        factors = shrinking((models**2).sum(axis=(1, 2)), learner.model_bound)
        projected: Floats = models * factors[:, None, None]
        return projected


class _Watched:
    """A learner whose models are kept; everything else is the learner's own."""

    def __init__(self, learner: LinearLearner, kept: Remembering) -> None:
        self._learner, self._kept = learner, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def fit(self, block: Block) -> Floats:
        return self._kept.fit(self._learner, block)
