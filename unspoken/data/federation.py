"""The parties of a simulation, in blocks, so that only a few are in memory at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows, clipping_factors, scale_labels
from unspoken.data.files import DataError, Records
from unspoken.study import Study
from unspoken.types import Floats, Integers

BLOCK_BYTES = 16 << 20
"""The memory for the features of one block (unless a single party needs more)"""
BLOCK_PARTIES = 256
"""The largest number of parties in a block; more would not fit the processor's cache in training"""


class Federation(ABC):
    """Parties numbered from 0, each with its bounded records."""

    parties: int

    @abstractmethod
    def blocks(self, most: int = BLOCK_PARTIES) -> Iterator[tuple[Integers, Block]]:
        """All parties in blocks of at most `most`: their indices and their bounded records."""

    def counts(self) -> Integers:
        """The number of records of each party."""
        counts = np.zeros(self.parties, dtype=np.int64)
        for indices, block in self.blocks():
            counts[indices] = block.counts
        return counts


class ArrayFederation(Federation):
    """The rows of one array, each belonging to a party."""

    def __init__(self, study: Study, records: Records, groups: Integers) -> None:
        self.parties = study.parties.count
        self._study, self._records = study, records
        self._rows = np.argsort(groups, kind="stable")
        self._counts = np.bincount(groups, minlength=self.parties)
        self._starts = np.cumsum(self._counts) - self._counts
        self._check(groups)

    def _check(self, groups: Integers) -> None:
        section = self._study.parties
        if len(groups) != len(self._records):
            raise DataError(
                f"there are {len(self._records)} records but {len(groups)} groups; give one party for each record."
            )
        if len(self._counts) != self.parties:
            raise DataError(
                f"the records belong to {len(self._counts)} parties, but the study has count = {self.parties}."
            )
        if self._counts.min() < section.records:
            party = int(self._counts.argmin())
            raise DataError(
                f"party {party} has {self._counts[party]} records, but the study's [parties] asks for at least "
                f"{section.records}; use fewer parties, or lower records in the study."
            )
        if self._counts.max() > section.max_records:
            party = int(self._counts.argmax())
            raise DataError(
                f"party {party} has {self._counts[party]} records, above the study's [parties] max_records = "
                f"{section.max_records}; raise it in the study."
            )

    def counts(self) -> Integers:
        return self._counts

    def blocks(self, most: int = BLOCK_PARTIES) -> Iterator[tuple[Integers, Block]]:
        # Parties of similar size share a block, so that there is little padding.
        order = np.argsort(self._counts, kind="stable")[::-1]
        row_bytes = self._study.data.dimension * 8
        start = 0
        while start < len(order):
            largest = int(self._counts[order[start]])
            size = min(most, max(1, BLOCK_BYTES // (largest * row_bytes)))
            parties = order[start : start + size]
            yield parties, self._block(parties, largest)
            start += size

    def _block(self, parties: Integers, largest: int) -> Block:
        counts = self._counts[parties]
        rows = np.concatenate([self._rows[self._starts[p] : self._starts[p] + self._counts[p]] for p in parties])
        bounded = clip_rows(self._records.features[rows], self._study.data)
        real = np.arange(largest) < counts[:, None]
        known = self._records.labels[rows]
        if self._study.task == "regression":
            known = scale_labels(known.astype(np.float64, copy=False), self._study.data)
            known = known * clipping_factors(self._records.features[rows], self._study.data)
        labels = np.zeros(real.shape, dtype=known.dtype)
        labels[real] = known
        if real.all():
            return Block(bounded.reshape(*real.shape, -1), labels, counts)
        features: Floats = np.zeros((*real.shape, bounded.shape[1]))
        features[real] = bounded
        return Block(features, labels, counts)
