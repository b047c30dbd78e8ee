"""The data sets of the cross-silo figures: whatever of them is to be had without a download."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from unspoken.data.block import Block
from unspoken.data.federation import BLOCK_PARTIES, Federation
from unspoken.types import Floats, Integers

FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its files."""


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
        return cifar_features(cifar)
    if (fashion / "train-images-idx3-ubyte.gz").exists():
        return fashion_mnist(fashion)
    return digits()


def cifar_features(path: Path) -> Images:
    """CIFAR-10 as what a network trained on ImageNet sees: X (uint8; a feature is (X/255·max_sqrt)²), y, 50,000 first
    for training."""
    with np.load(path) as file:
        features = (file["X"].astype(np.float32) * (float(file["max_sqrt"]) / 255.0)) ** 2
        labels = file["y"].astype(np.int64)
    return _split("CIFAR-10, EfficientNet-Lite0 features", features, labels, 50_000, 60, 0.04, (4.0, 12.0, 36.0))


def fashion_mnist(folder: Path) -> Images:
    """Fashion-MNIST's pixels."""
    names = ("train-images-idx3", "t10k-images-idx3", "train-labels-idx1", "t10k-labels-idx1")
    raw = [np.frombuffer(gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes()), dtype=np.uint8) for name in names]
    pixels = np.concatenate([part[16:].reshape(-1, 784) for part in raw[:2]]).astype(np.float32)
    labels = np.concatenate([part[8:] for part in raw[2:]]).astype(np.int64)
    return _split("Fashion-MNIST, pixels", pixels, labels, 60_000, 60, 0.04, (1.0, 3.0, 9.0))


def digits() -> Images:
    """Scikit-learn's digits, in a random order."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    features, labels = found.data[order].astype(np.float32), found.target[order].astype(np.int64)
    return _split("scikit-learn's digits, pixels", features, labels, 1_400, 40, 0.2, (1.0, 3.0, 9.0))


def _split(
    name: str,
    features: npt.NDArray[np.float32],
    labels: Integers,
    train: int,
    rounds: int,
    rate: float,
    steps: tuple[float, ...],
) -> Images:
    """Each row centred by its own mean and brought to norm 1: no record decides how another looks."""
    features = features - features.mean(axis=1, keepdims=True)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    # In single precision, which is what the networks compute in: half the memory.
    rows = cast(Floats, features)
    return Images(name, rows[:train], labels[:train], rows[train:], labels[train:], rounds, rate, steps)


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

    def blocks(self, most: int = BLOCK_PARTIES) -> Iterator[tuple[Integers, Block]]:
        for start in range(0, self.parties, most):
            part = slice(start, start + most)
            indices = np.arange(self.parties)[part]
            yield indices, Block(self._features[part], self._labels[part], np.full(len(indices), self.each))

    def counts(self) -> Integers:
        return np.full(self.parties, self.each)
