"""Data sets and sizes for the figures of DP-Helmet: parties' records, public ones to choose settings on, and tests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import images
from benchmarks.images import Labelled, as_floats, centred, flat
from benchmarks.studies import Records, Study, study


@dataclass(frozen=True)
class Size:
    """How much of a data set is used."""

    parties: tuple[int, ...]
    """Numbers of parties that all records are spread over; the last is that of 50 records each"""
    public: int
    test: int
    epsilons: tuple[float, ...]
    epsilon: float
    """Where there is one only"""
    runs: int
    rounds: int
    """Of DP-SGD, and of federated learning if nothing else is said"""
    each: int = 50
    federated_runs: int | None = None
    """Of Figure 3's federated learning, if fewer: all parties draw noise for all weights in every round"""
    federated_rounds: int | None = None
    """Likewise. 100 was the best of 50, 100 and 400 on public records (`local`, 100 parties, ε = 1.18 and 3)"""

    @property
    def records(self) -> int:
        return self.parties[-1] * self.each


@dataclass(frozen=True)
class Images:
    """A data set, split into records of parties, public records and records to test with."""

    name: str
    size: Size
    train: Records
    public: Records
    test: Records

    def study(self, method: dict[str, Any], parties: int, epsilon: float, **privacy: Any) -> Study:
        """Half of the parties collude, as in the paper; a party alone has nobody to collude with."""
        each = len(self.train) // parties
        promise = {"epsilon": epsilon, "delta": 1e-5, "colluding": 0.5 if parties > 1 else 0, **privacy}
        return study(
            {"features": self.train.features.shape[1], "classes": 10, "norm": 1.0},
            {"count": parties, "records": each, "max_records": 2 * each},
            promise,
            method,
        )

    def first(self, records: int) -> Images:
        """The same with fewer of the parties' records."""
        return Images(self.name, self.size, _rows(self.train, slice(0, records)), self.public, self.test)


PAPER = (0.05, 0.1, 0.36, 0.59, 1.18, 3.0)
FULL = {
    "cifar-10": Size((1, 10, 100, 900), 5_000, 10_000, PAPER, 0.5885, 5, 400, federated_runs=1, federated_rounds=100),
    "fashion-mnist": Size(
        (1, 10, 100, 1_000), 10_000, 10_000, PAPER, 0.5885, 5, 400, federated_runs=1, federated_rounds=100
    ),
}
COMPONENTS = 256
"""Of scattering features: with all 3,969 of them, DP-FL alone would take hours"""
QUICK = {"digits": Size((1, 20), 250, 250, (1.0, 8.0), 4.0, 2, 10)}


def add_paper_options(parser: argparse.ArgumentParser) -> None:
    images.add_cifar(parser)
    parser.add_argument("--scattering", type=Path, metavar="FILE", help="NPZ that benchmarks.public.scattering writes")


def data_sets(arguments: argparse.Namespace) -> Iterator[Images]:
    """Digits with --quick; else those whose files are named."""
    if arguments.quick:
        yield _made("digits", QUICK["digits"], _digits())
        return
    if arguments.cifar is not None:
        yield _made("cifar-10", FULL["cifar-10"], images.cifar_features(arguments.cifar))
    if arguments.scattering is not None:
        yield in_components(_made("fashion-mnist", FULL["fashion-mnist"], _scattering(arguments.scattering)))


def _digits() -> Labelled:
    found = images.digits(1_400)
    return found._replace(train=centred(flat(found.train)), test=centred(flat(found.test)))


def _scattering(file: Path) -> Labelled:
    """Scattering features, each row centred by itself and of norm 1; the last seventh of all rows is for testing."""
    with np.load(file, allow_pickle=False) as arrays:
        rows, labels = arrays["X"], arrays["y"].astype(np.int64)
    train = len(rows) * 6 // 7
    return Labelled(rows[:train], labels[:train], rows[train:], labels[train:])


def _made(name: str, size: Size, found: Labelled) -> Images:
    """Parties' records first, then public ones, in a fixed random order."""
    order = np.random.default_rng(0).permutation(len(found.labels))
    private, public = order[: size.records], order[size.records : size.records + size.public]
    if len(public) < size.public:
        raise SystemExit(f"{name} has {len(order):,} training records, but {size.records + size.public:,} are needed.")
    tested = slice(0, size.test)
    return Images(
        name,
        size,
        Records(as_floats(centred(as_floats(found.train[private]))), found.labels[private]),
        Records(as_floats(centred(as_floats(found.train[public]))), found.labels[public]),
        Records(as_floats(centred(as_floats(found.test[tested]))), found.test_labels[tested]),
    )


def in_components(data: Images, most: int = COMPONENTS) -> Images:
    """The same records in the first principal components of the public ones, each at norm 1."""
    mean = data.public.features.mean(axis=0)
    rows = data.public.features - mean
    directions = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :most]

    def turned(records: Records) -> Records:
        inside = (records.features - mean) @ directions
        return Records(inside / np.maximum(np.linalg.norm(inside, axis=1, keepdims=True), 1e-12), records.labels)

    return replace(data, train=turned(data.train), public=turned(data.public), test=turned(data.test))


def _rows(records: Records, rows: slice) -> Records:
    return Records(records.features[rows], records.labels[rows])
