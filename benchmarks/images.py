"""Image data sets that several benchmarks use: whatever of them is to be had without a download."""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies import Floats, Integers

FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its files."""


class Labelled(NamedTuple):
    """Rows with their classes, to learn from and to test with."""

    train: Any
    labels: Integers
    test: Any
    test_labels: Integers


def add_cifar(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cifar", type=Path, metavar="FILE", help="NPZ of CIFAR-10 features: X (uint8), max_sqrt, y")


def add_fashion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fashion", type=Path, metavar="FOLDER", default=FASHION, help="of Fashion-MNIST's IDX files")


def cifar_features(file: Path) -> Labelled:
    """CIFAR-10 as what a network trained on ImageNet sees: X (uint8; a feature is (X/255·max_sqrt)²), max_sqrt, y; the
    first 50,000 rows are for training. Single precision."""
    with np.load(file, allow_pickle=False) as arrays:
        roots, largest, labels = arrays["X"], float(arrays["max_sqrt"]), arrays["y"].astype(np.int64)
    features = centred((roots.astype(np.float32) * np.float32(largest / 255.0)) ** 2)
    return Labelled(features[:50_000], labels[:50_000], features[50_000:], labels[50_000:])


def has_idx(folder: Path) -> bool:
    return (folder / "train-images-idx3-ubyte.gz").exists()


def idx(folder: Path) -> Labelled:
    """MNIST, or what has its shape, as (images, 28, 28) bytes."""
    train, test = (_bytes(folder / f"{part}-images-idx3-ubyte")[16:].reshape(-1, 28, 28) for part in ("train", "t10k"))
    labels = (_bytes(folder / f"{part}-labels-idx1-ubyte")[8:].astype(np.int64) for part in ("train", "t10k"))
    return Labelled(train, next(labels), test, next(labels))


def _bytes(file: Path) -> Any:
    packed = file.with_name(f"{file.name}.gz")
    return np.frombuffer(gzip.decompress(packed.read_bytes()) if packed.exists() else file.read_bytes(), np.uint8)


def digits(train: int) -> Labelled:
    """Scikit-learn's digits as (images, 8, 8) numbers from 0 to 16, in a random order."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images, labels = found.images[order], found.target[order].astype(np.int64)
    return Labelled(images[:train], labels[:train], images[train:], labels[train:])


def flat(rows: Any) -> Any:
    return rows.reshape(len(rows), -1)


def centred(rows: Any) -> Any:
    """Each row less its own mean, at norm 1: no record decides how another looks."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def as_floats(rows: Any) -> Floats:
    return np.asarray(rows, dtype=np.float64)
