"""Data sets with public records: some rows are set aside, without their labels."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import images
from benchmarks.images import Labelled, add_cifar, add_fashion, as_floats, centred, flat
from benchmarks.studies import Floats, Labels, Records, sections

FUNCTIONS: tuple[dict[str, Any], ...] = ({"name": "moments"}, {"name": "helmet"}, {"name": "cape"})
TRAINING: dict[str, Any] = {"name": "cross-silo"}


class Rows(NamedTuple):
    """Rows to learn from, to test with, and public ones."""

    train: Records
    test: Records
    public: Floats

    @property
    def train_arrays(self) -> tuple[Floats, Labels]:
        return self.train.features, self.train.labels


@dataclass(frozen=True)
class Setting:
    """A data set, its parties and what is tried on it."""

    rows: Callable[[int], Rows]
    """By the seed of the split, where there is one"""
    classes: int
    parties: int
    epsilons: tuple[float, ...]
    methods: tuple[dict[str, Any], ...] = (*FUNCTIONS, TRAINING)
    colluding: float = 0
    intercept: bool = False
    sizes: tuple[int | None, ...] = (None,)
    """The numbers of public rows that are tried; None: all"""
    repeats: int = 20
    fewer: Mapping[str, int] = field(default_factory=dict)
    """The numbers of parties, by method, where `parties` of them would take too long"""

    def count(self, method: dict[str, Any]) -> int:
        """The number of parties."""
        return self.fewer.get(method["name"], self.parties)

    def sections(self, rows: Rows, epsilon: float, method: dict[str, Any]) -> dict[str, Any]:
        """The study without public records, as a dictionary."""
        count = self.count(method)
        each = len(rows.train) // count
        return sections(
            {"features": rows.public.shape[1], "classes": self.classes, "intercept": self.intercept},
            {"count": count, "records": each, "max_records": each + 1},
            {"epsilon": epsilon, "delta": 1e-5, "colluding": self.colluding},
            method,
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    add_cifar(parser)
    add_fashion(parser)
    parser.add_argument(
        "--scattering", type=Path, metavar="FILE", help="Fashion-MNIST's features, from benchmarks.public.scattering"
    )
    parser.add_argument("--adult", type=Path, metavar="FILE", help="CSV of adult, with indicators and salary_>50K")
    parser.add_argument("--repeats", type=int, help="runs with fresh noise for each cell")


def settings(arguments: argparse.Namespace) -> dict[str, Setting]:
    """The data sets that are to be had."""
    from sklearn.datasets import load_breast_cancer, load_wine

    quick = arguments.quick
    found = {"digits": Setting(_digits, 10, 20, (1.0, 10.0) if quick else (0.5, 1.0, 2.0, 4.0, 10.0))}
    if quick:
        return found
    found |= {
        "breast cancer": _table(load_breast_cancer, 5, (0.1, 0.3, 1.0, 3.0, 10.0)),
        "wine": _table(load_wine, 5, (0.5, 1.0, 3.0, 10.0), 60),
    }
    if arguments.adult is not None:
        adult = adult_rows(arguments.adult)
        found["adult"] = Setting(lambda _: adult, 2, 100, (0.1, 0.36, 1.0, 4.0, 10.0), intercept=True, repeats=5)
    several: dict[str, Any] = {"colluding": 0.5, "repeats": 5, "sizes": (500, 2_000)}
    epsilons = (0.1, 0.36, 0.59, 1.18, 3.0)
    if arguments.cifar is not None:
        cifar = _set_aside(images.cifar_features(arguments.cifar))
        found["cifar-10"] = Setting(cifar, 10, 1000, epsilons, fewer={"cape": 100, "cross-silo": 100}, **several)
    if arguments.scattering is not None:
        # A map of so many features takes minutes, so there is one split.
        fashion = _set_aside(_scattered(arguments.scattering))(0)
        found["fashion-mnist scattering"] = Setting(
            lambda _: fashion, 10, 1000, epsilons[1:4], FUNCTIONS[:2], **several
        )
    if images.has_idx(arguments.fashion):
        pixels = images.idx(arguments.fashion)
        rows = pixels._replace(train=centred(_single(pixels.train)), test=centred(_single(pixels.test)))
        found["fashion-mnist pixels"] = Setting(_set_aside(rows), 10, 1000, epsilons, FUNCTIONS[:2], **several)
    return found


def _single(pictures: Any) -> Any:
    return flat(pictures).astype(np.float32)


def _scattered(file: Path) -> Labelled:
    with np.load(file, allow_pickle=False) as arrays:
        features, labels = centred(arrays["X"].astype(np.float32)), arrays["y"].astype(np.int64)
    return Labelled(features[:60_000], labels[:60_000], features[60_000:], labels[60_000:])


def _set_aside(found: Labelled, public: int = 2_000) -> Callable[[int], Rows]:
    """50,000 rows to learn from; public ones are taken from the test rows, others in each run, and not tested with."""
    train = Records(as_floats(found.train[:50_000]), found.labels[:50_000])

    def rows(seed: int) -> Rows:
        aside, tested = np.split(np.random.default_rng(seed).permutation(len(found.test)), [public])
        test = Records(as_floats(found.test[tested]), found.test_labels[tested])
        return Rows(train, test, as_floats(found.test[aside]))

    return rows


def _digits(seed: int) -> Rows:
    found = images.digits(1_797)
    return _split(as_floats(centred(flat(found.train))), found.labels, seed)


def _table(load: Callable[..., Any], parties: int, epsilons: tuple[float, ...], repeats: int = 20) -> Setting:
    features, labels = load(return_X_y=True)
    low, high = features.min(axis=0), features.max(axis=0)
    scaled = (features - low) / (high - low) * 2.0 - 1.0
    classes = int(labels.max()) + 1
    split = partial(_split, scaled, labels)
    return Setting(split, classes, parties, epsilons, intercept=True, repeats=repeats)


def _split(features: Floats, labels: Any, seed: int) -> Rows:
    """Three fifths to learn from, one to test with, and a public one."""
    order, part = np.random.default_rng(seed).permutation(len(labels)), len(labels) // 5
    test, public, train = np.split(order, [part, 2 * part])
    return Rows(Records(features[train], labels[train]), Records(features[test], labels[test]), features[public])


def adult_rows(file: Path) -> Rows:
    """10,000 rows to test with, 2,000 public ones, and the others; numbers are scaled to [−1, 1]."""
    import pandas as pd

    table = pd.read_csv(file)
    targets = [name for name in table.columns if name.startswith("salary")]
    features = table.drop(columns=targets).to_numpy(dtype=np.float64, copy=True)
    numbers = features.max(axis=0) > 1.0
    low, high = features[:, numbers].min(axis=0), features[:, numbers].max(axis=0)
    features[:, numbers] = (features[:, numbers] - low) / (high - low) * 2.0 - 1.0
    labels = table["salary_>50K"].to_numpy(dtype=np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    test, public, train = np.split(order, [10_000, 12_000])
    return Rows(Records(features[train], labels[train]), Records(features[test], labels[test]), features[public])
