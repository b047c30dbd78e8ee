"""Data sets that blind averaging and second moments are compared on, and how accurate we say blind averaging is."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import images
from benchmarks.images import Labelled, add_cifar, as_floats, centred, flat
from benchmarks.studies import Integers, Records, Study, run_records, share_right, study

SPLITS = ("iid", "by-class")


@dataclass(frozen=True)
class Experiment:
    """A data set, its parties, and the accuracies (iid, in %) that we claim for blind averaging."""

    name: str
    train: Records
    test: Records
    parties: int
    colluding: float
    epsilons: tuple[float, ...]
    party_epsilons: tuple[float, ...]
    """Where whole parties are protected"""
    claimed: dict[str, dict[float | None, float]]
    repeats: int

    def epsilons_of(self, unit: str) -> tuple[float, ...]:
        return self.party_epsilons if unit == "party" else self.epsilons

    def colluding_of(self, unit: str) -> float:
        return 0 if unit == "party" else self.colluding

    def study(self, method: dict[str, Any], epsilon: float, unit: str = "record") -> Study:
        each = len(self.train) // self.parties
        return study(
            {"features": self.train.features.shape[1], "classes": 10, "norm": 1.0},
            {"count": self.parties, "records": each, "max_records": 2 * each},
            {"epsilon": epsilon, "delta": 1e-5, "unit": unit, "colluding": self.colluding_of(unit)},
            method,
        )

    def accuracies(self, agreed: Study, groups: Integers, repeats: int) -> list[float]:
        """In %, of some runs with fresh noise."""
        releases = (run_records(agreed, self.train, groups).release for _ in range(repeats))
        return [100.0 * share_right(agreed, release, self.test.features, self.test.labels) for release in releases]


def add_experiment_options(parser: argparse.ArgumentParser) -> None:
    add_cifar(parser)
    parser.add_argument("--repeats", type=int, help="runs with fresh noise for each cell")


def experiments(arguments: argparse.Namespace) -> list[Experiment]:
    """Digits, and with --cifar the CIFAR-10 features."""
    found = [digits(arguments.quick)]
    if arguments.cifar is not None:
        found.append(cifar(arguments.cifar, arguments.quick))
    return found


def digits(quick: bool) -> Experiment:
    found = images.digits(1_400)
    train, test = records_of(found._replace(train=centred(flat(found.train)), test=centred(flat(found.test))))
    return Experiment(
        name="digits",
        train=train,
        test=test,
        parties=20,
        colluding=0,
        epsilons=(1.0, 4.0) if quick else (0.5, 1.0, 2.0, 4.0),
        party_epsilons=(4.0,) if quick else (1.0, 4.0, 8.0),
        claimed={"softmax": {4.0: 85.9} if quick else {0.5: 53.7, 1.0: 72.4, 2.0: 82.6, 4.0: 85.9}},
        repeats=3 if quick else 20,
    )


def cifar(path: Path, quick: bool) -> Experiment:
    train, test = records_of(images.cifar_features(path))
    return Experiment(
        name="cifar-10",
        train=train,
        test=test,
        parties=1000,
        colluding=0.5,
        epsilons=(0.59,) if quick else (0.1, 0.36, 0.59, 1.18, 3.0),
        party_epsilons=(3.0,) if quick else (1.17, 3.0),
        claimed={
            "softmax": {0.59: 76.5} if quick else {0.1: 71.9, 0.36: 76.1, 0.59: 76.5, 1.18: 76.5, 3.0: 76.6},
            "svm": {0.59: 77.2} if quick else {0.1: 68.9, 0.36: 76.3, 0.59: 77.2, 1.18: 77.5, 3.0: 77.8},
        },
        repeats=1 if quick else 3,
    )


def records_of(found: Labelled) -> tuple[Records, Records]:
    """To learn from, and to test with."""
    return Records(as_floats(found.train), found.labels), Records(as_floats(found.test), found.test_labels)
