"""The data sets of the voting tables: images in a public feature space, spread over parties in several ways.

The feature space is public: small patches of the public images, clustered, and the principal components of how often
each cluster is seen where (Coates, Lee & Ng 2011). It is made of the public images alone, without labels, and every
method of the tables, private or not, works in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import images
from benchmarks.images import Labelled
from benchmarks.studies import Floats, Integers, split

PATCH, CLUSTERS, POOLS, COMPONENTS = 6, 128, 3, 50
CONSTANT = 0.3
"""The last feature, before rows are brought to norm 1: linear models here have no intercept of their own."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Square images from 0 to 1, and which of them are public: a part of the test images, as in the paper."""

    name: str
    train: Floats
    labels: Integers
    public: Floats
    public_labels: Integers
    """Only to say how good votes are; no method sees them."""
    test: Floats
    test_labels: Integers


@dataclass(frozen=True, eq=False)
class Setting:
    """Parties with their records, public records without labels, and records to test with."""

    name: str
    features: Floats
    labels: Integers
    groups: Integers
    """The party of each record."""
    public: Floats
    public_labels: Integers
    test: Floats
    test_labels: Integers

    @property
    def parties(self) -> int:
        return int(self.groups.max()) + 1

    @property
    def dimension(self) -> int:
        return int(self.features.shape[1])

    def tuning(self) -> Setting:
        """A tenth of each party's records kept aside to choose settings by, in place of the test records."""
        aside = np.zeros(len(self.labels), dtype=np.bool_)
        for party in range(self.parties):
            rows = np.flatnonzero(self.groups == party)
            aside[np.random.default_rng(party).choice(rows, max(1, len(rows) // 10), replace=False)] = True
        return replace(
            self,
            features=self.features[~aside],
            labels=self.labels[~aside],
            groups=self.groups[~aside],
            test=self.features[aside],
            test_labels=self.labels[aside],
        )

    def cut(self, components: int) -> Setting:
        """The same with the first principal components only, and the constant."""
        rows = [np.concatenate([each[:, :components], each[:, -1:]], axis=1) for each in self._rows]
        return replace(self, features=rows[0], public=rows[1], test=rows[2])

    @property
    def _rows(self) -> tuple[Floats, Floats, Floats]:
        return self.features, self.public, self.test


# --- Images ----------------------------------------------------------------------------------------------------------


def load(mnist: Path | None, fashion: Path, quick: bool) -> list[Pictures]:
    """Whatever there is of MNIST and Fashion-MNIST, or scikit-learn's digits."""
    found = []
    if not quick and mnist is not None:
        found.append(_pictures("MNIST", images.idx(mnist), 255.0))
    if not quick and images.has_idx(fashion):
        found.append(_pictures("Fashion-MNIST", images.idx(fashion), 255.0))
    return found or [_pictures("scikit-learn's digits", images.digits(1_000), 16.0)]


def _pictures(name: str, found: Labelled, white: float) -> Pictures:
    """Three tenths of the test images are public, as in the paper."""
    order = np.random.default_rng(0).permutation(len(found.test))
    cut = len(order) * 3 // 10
    (public, public_labels), (test, test_labels) = (
        (found.test[part] / white, found.test_labels[part]) for part in (order[:cut], order[cut:])
    )
    return Pictures(name, found.train / white, found.labels, public, public_labels, test, test_labels)


# --- The public feature space ----------------------------------------------------------------------------------------


class PublicSpace:
    """Features made from public images alone: each image has norm 1 in it."""

    def __init__(self, images: Floats, seed: int = 0) -> None:
        self._size = PATCH if images.shape[1] > 8 else 3
        self._centres = self._cluster(images, torch.Generator().manual_seed(seed))
        pooled = self._pooled(images)
        self._mean = pooled.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov((pooled - self._mean).T))
        spread = np.sqrt(np.maximum(values[::-1][:COMPONENTS], 1e-9))
        # Halfway to whitening: later components are weaker, but not as weak as they were.
        self._axes = vectors[:, ::-1][:, :COMPONENTS] / np.sqrt(spread)

    def features(self, images: Floats) -> Floats:
        rows = (self._pooled(images) - self._mean) @ self._axes
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        # A hair below norm 1, so that nothing is clipped.
        rows = np.concatenate([rows, np.full((len(rows), 1), CONSTANT)], axis=1) / (np.hypot(1.0, CONSTANT) + 1e-9)
        return np.asarray(rows)

    def _patches(self, images: Floats) -> Tensor:
        """(images, places, pixels): each patch less its mean, and of norm 1 unless it is nearly flat."""
        flat = functional.unfold(torch.from_numpy(images).float()[:, None], self._size, stride=self._stride)
        rows = flat.transpose(1, 2)
        rows = rows - rows.mean(dim=-1, keepdim=True)
        bounded: Tensor = rows / (rows.norm(dim=-1, keepdim=True) + 0.5)
        return bounded

    @property
    def _stride(self) -> int:
        return 2 if self._size == PATCH else 1

    def _cluster(self, images: Floats, generator: torch.Generator) -> Tensor:
        """Spherical k-means of patches that are not flat."""
        rows = self._patches(images[:1500]).flatten(0, 1)
        rows = rows[rows.norm(dim=1) > 0.3]
        rows = rows[torch.randperm(len(rows), generator=generator)[:40_000]]
        centres = functional.normalize(rows[:CLUSTERS])
        for _ in range(10):
            nearest = (rows @ centres.T).argmax(dim=1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
            centres = functional.normalize(torch.where(sums.norm(dim=1, keepdim=True) > 0.0, sums, centres))
        return centres

    def _pooled(self, images: Floats) -> Floats:
        """Square roots of how much each cluster is seen in each part of an image."""
        side = (images.shape[1] - self._size) // self._stride + 1
        parts = []
        for start in range(0, len(images), 500):
            seen = torch.relu(self._patches(images[start : start + 500]) @ self._centres.T - 0.25)
            maps = seen.transpose(1, 2).reshape(len(seen), -1, side, side)
            parts.append(functional.adaptive_avg_pool2d(maps, POOLS).flatten(1).numpy())
        return np.asarray(np.sqrt(np.concatenate(parts)), dtype=np.float64)


# --- Settings --------------------------------------------------------------------------------------------------------


def six_classes(pictures: Pictures, parties: int) -> Setting:
    """The paper's Table 1: every party has records of six classes only."""
    return _setting("six classes a party", pictures, split("classes:6", pictures.labels, parties, 0))


def alike(pictures: Pictures, parties: int) -> Setting:
    return _setting("all parties alike", pictures, split("iid", pictures.labels, parties, 0))


def shifted(pictures: Pictures, parties: int) -> Setting:
    """Seven tenths of the parties have noisy images, the others faint ones moved to one side; the public images and
    those tested with are moved to the other side, with more contrast."""
    groups = split("iid", pictures.labels, parties, 0)
    rng = np.random.default_rng(1)
    images = pictures.train.copy()
    noisy = groups < parties * 7 // 10
    images[noisy] = np.clip(images[noisy] + rng.normal(scale=0.25, size=images[noisy].shape), 0.0, 1.0)
    step = max(1, images.shape[1] // 14)
    images[~noisy] = 0.6 * np.roll(images[~noisy], (step, step), axis=(1, 2))
    moved = replace(
        pictures,
        train=images,
        public=np.roll(pictures.public, -step, axis=2) ** 2,
        test=np.roll(pictures.test, -step, axis=2) ** 2,
    )
    return _setting("parties and public records of other domains", moved, groups)


def _setting(name: str, pictures: Pictures, groups: Integers) -> Setting:
    space = PublicSpace(pictures.public)
    return Setting(
        f"{pictures.name}, {name}",
        space.features(pictures.train),
        pictures.labels,
        groups,
        space.features(pictures.public),
        pictures.public_labels,
        space.features(pictures.test),
        pictures.test_labels,
    )
