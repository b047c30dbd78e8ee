"""The data sets of the cross-silo figures: whatever of them is to be had without a download."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks import images
from benchmarks.images import Labelled, centred, flat
from benchmarks.studies import Federation, Floats, Integers
from unspoken.data.block import Block
from unspoken.data.federation import BLOCK_PARTIES


@dataclass(frozen=True, eq=False)
class Images:
    """Rows of norm 1 with their classes, and the rounds and the rate that suit their number."""

    name: str
    features: Floats
    labels: Integers
    test_features: Floats
    test_labels: Integers
    rounds: int
    rate: float
    learning_rates: tuple[float, ...]

    def part(self, divisor: int) -> Images:
        """One of so many parts of the training records; batches are a larger share of them, and steps are shorter."""
        return replace(
            self,
            features=self.features[: len(self.labels) // divisor],
            labels=self.labels[: len(self.labels) // divisor],
            rounds=40,
            rate=0.2,
            learning_rates=tuple(rate / 4.0 for rate in self.learning_rates),
        )

    @lru_cache(maxsize=1)  # noqa: B019 (there are three of them)
    def validation(self) -> Images:
        """A tenth of the records kept aside to choose learning rates by: never the test records."""
        cut = len(self.labels) * 9 // 10
        return replace(
            self,
            features=self.features[:cut],
            labels=self.labels[:cut],
            test_features=self.features[cut:],
            test_labels=self.labels[cut:],
        )


def load(cifar: Path | None, fashion: Path, quick: bool) -> Images:
    """The first that there is of CIFAR-10 features, Fashion-MNIST and scikit-learn's digits."""
    if quick:
        return replace(digits(), rounds=20, learning_rates=(4.0,))
    if cifar is not None:
        name = "CIFAR-10, EfficientNet-Lite0 features"
        return Images(name, *images.cifar_features(cifar), 60, 0.04, (4.0, 12.0, 36.0))
    if images.has_idx(fashion):
        return Images("Fashion-MNIST, pixels", *_rows(images.idx(fashion)), 60, 0.04, (1.0, 3.0, 9.0))
    return digits()


def digits() -> Images:
    return Images("scikit-learn's digits, pixels", *_rows(images.digits(1_400)), 40, 0.2, (1.0, 3.0, 9.0))


def _rows(found: Labelled) -> Labelled:
    """In single precision, which is what the networks compute in: half the memory."""
    train, test = (centred(flat(part).astype(np.float32)) for part in (found.train, found.test))
    return Labelled(train, found.labels, test, found.test_labels)


class HeldParties(Federation):
    """Parties of equal size, held in memory from round to round: their rows are within the norm as they are."""

    def __init__(self, images: Images, parties: int) -> None:
        self.parties = parties
        self.each = len(images.labels) // parties
        # Dealt out in turn; what is left over stays out.
        rows = np.arange(self.each * parties).reshape(self.each, parties).T
        self._features, self._labels = images.features[rows], images.labels[rows]

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, images: Images, parties: int) -> HeldParties:
        """The same parties again, if they were asked for before."""
        return cls(images, parties)

    def layout(self, most: int = BLOCK_PARTIES) -> Iterator[Integers]:
        everyone = np.arange(self.parties)
        return (everyone[start : start + most] for start in range(0, self.parties, most))

    def block(self, parties: Integers) -> Block:
        part = slice(int(parties[0]), int(parties[-1]) + 1)
        return Block(self._features[part], self._labels[part], np.full(len(parties), self.each))

    def counts(self) -> Integers:
        return np.full(self.parties, self.each)
