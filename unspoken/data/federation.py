"""The parties of a simulation, in blocks, so that only a few are in memory at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from unspoken.arithmetic import blocks
from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows, clipping_factors, scale_labels
from unspoken.data.files import DataError, Records
from unspoken.study import Study
from unspoken.types import Floats, Integers, Labels

BLOCK_BYTES = 16 << 20
"""The memory for the features of one block (unless a single party needs more)"""
BLOCK_PARTIES = 256
"""The largest number of parties in a block; more would not fit the processor's cache in training"""


def check_count(study: Study, count: int, who: str | None = None) -> None:
    """Refuse a party whose number of records is not within the study's bounds: sensitivities rest on them.

    `who` names the party where somebody has the records of all. Without it, these records are all that anybody sees.

    If the promise hides whether all of a party's records were left out, a party may take part without any records.
    """
    section = study.parties
    remedy = "lower records in the study" if who is None else "use fewer parties, or lower records in the study"
    who = who or "this party"
    if count == 0 and study.leaves_out_parties:
        return
    if count < section.records:
        raise DataError(
            f"{who} has {count} record{'' if count == 1 else 's'}, but the study's [parties] asks for at least "
            f"{section.records}; {remedy}."
        )
    if count > section.max_records:
        raise DataError(
            f"{who} has {count} records, above the study's [parties] max_records = {section.max_records}; raise it in "
            "the study."
        )


def check_bounded(study: Study, block: Block) -> None:
    """Refuse a party's own records unless they are bounded as the study says: sensitivities rest on that."""
    check_count(study, int(block.counts[0]))
    longest = float(np.linalg.norm(block.features, axis=-1).max(initial=0.0))
    if not longest <= study.data.norm * (1.0 + 1e-9):
        raise ValueError(f"Expected records of norm {study.data.norm} at most, got {longest}; read them by the study.")


class Hash(Protocol):
    """A hash object, such as those of `hashlib`."""

    def update(self, data: bytes, /) -> object: ...


class BoundedMap(Protocol):
    """A map of bounded records, after which they are bounded again."""

    def apply(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mapped rows, and the factors by which they were clipped."""


def party_block(study: Study, records: Records, mapped: BoundedMap | None = None) -> Block:
    """One party's own records, bounded as the study says; and mapped, if its method learns from mapped ones."""
    count = len(records)
    check_count(study, count)
    bounded = bounded_rows(study, records)
    features, labels = bounded if mapped is None else mapped_rows(bounded, mapped)
    return Block(features[None], labels[None], np.array([count]))


class Federation(ABC):
    """Parties numbered from 0, each with its bounded records."""

    parties: int
    mapped: BoundedMap | None = None
    """The map that records went through, after they were bounded"""

    @abstractmethod
    def layout(self, most: int = BLOCK_PARTIES) -> Iterator[Integers]:
        """The indices of the parties in each block, at most `most`. All parties are in one."""

    @abstractmethod
    def block(self, parties: Integers) -> Block:
        """The bounded records of a block of the layout. May be called from several threads."""

    def blocks(self, most: int = BLOCK_PARTIES) -> Iterator[tuple[Integers, Block]]:
        """All parties in blocks of at most `most`: their indices and their bounded records."""
        for parties in self.layout(most):
            yield parties, self.block(parties)

    def check(self) -> None:  # noqa: B027
        """Refuse records that do not fit the study, before anything is spent. Those in memory were checked."""

    def fix(self) -> None:  # noqa: B027
        """Have all who get a copy of this refuse records that change from now on. Those in memory cannot."""

    def digest(self, into: Hash) -> None:
        """Put all that is known of parties and records into a digest."""
        for indices, block in self.blocks():
            for array in (indices, block.counts, block.features, block.labels):
                into.update(np.ascontiguousarray(array).tobytes())

    def check_map(self, wanted: BoundedMap | None) -> None:
        """Refuse records that did not go through the map that a method learns with: its model would be wrong."""
        if self.mapped is not wanted:
            raise ValueError("Expected records that went through the method's directions; pass them to the federation.")

    def counts(self) -> Integers:
        """The number of records of each party."""
        counts = np.zeros(self.parties, dtype=np.int64)
        for indices, block in self.blocks():
            counts[indices] = block.counts
        return counts


class ArrayFederation(Federation):
    """The rows of one array, each belonging to a party."""

    def __init__(self, study: Study, records: Records, groups: Integers, mapped: BoundedMap | None = None) -> None:
        """`mapped` is the map of the study's method (`Method.directions`), if it has one."""
        self.parties, self.mapped = study.parties.count, mapped
        self._study, self._records = study, records
        # A map takes longer than many a method's turn, and is the same for all turns.
        self._bounded = None if mapped is None else mapped_rows(bounded_rows(study, records), mapped)
        self._groups = groups
        self._rows = np.argsort(groups, kind="stable")
        self._counts = np.bincount(groups, minlength=self.parties)
        self._starts = np.cumsum(self._counts) - self._counts
        self._check(groups)

    def _check(self, groups: Integers) -> None:
        if len(groups) != len(self._records):
            raise DataError(
                f"there are {len(self._records)} records but {len(groups)} groups; give one party for each record."
            )
        if len(self._counts) != self.parties:
            raise DataError(
                f"the records belong to {len(self._counts)} parties, but the study has count = {self.parties}."
            )
        for party in (int(self._counts.argmin()), int(self._counts.argmax())):
            check_count(self._study, int(self._counts[party]), f"party {party}")

    def digest(self, into: Hash) -> None:
        for array in (self._records.features, self._records.labels, self._groups):
            into.update(np.ascontiguousarray(array).tobytes())

    def counts(self) -> Integers:
        return self._counts

    def layout(self, most: int = BLOCK_PARTIES) -> Iterator[Integers]:
        return by_size(self._counts, self._study.data.dimension, most)

    def _bounded_rows(self, rows: Integers) -> tuple[Floats, Labels]:
        if self._bounded is not None:
            features, labels = self._bounded
            return features[rows], labels[rows]
        return bounded_rows(self._study, Records(self._records.features[rows], self._records.labels[rows]))

    def block(self, parties: Integers) -> Block:
        rows = np.concatenate([self._rows[self._starts[p] : self._starts[p] + self._counts[p]] for p in parties])
        return padded(*self._bounded_rows(rows), self._counts[parties])


def by_size(counts: Integers, dimension: int, most: int) -> Iterator[Integers]:
    """Blocks of parties of similar size, so that there is little padding. Their features take `BLOCK_BYTES` at most."""
    order = np.argsort(counts, kind="stable")[::-1]
    start = 0
    while start < len(order):
        largest = max(1, int(counts[order[start]]))
        size = min(most, max(1, BLOCK_BYTES // (largest * dimension * 8)))
        yield order[start : start + size]
        start += size


def padded(bounded: Floats, known: Labels, counts: Integers) -> Block:
    """A block of bounded rows and their labels, which are in the order of its parties."""
    real = np.arange(int(counts.max())) < counts[:, None]
    if real.all():
        return Block(bounded.reshape(*real.shape, bounded.shape[1]), known.reshape(real.shape), counts)
    features: Floats = np.zeros((*real.shape, bounded.shape[1]))
    labels: Any = np.zeros(real.shape, dtype=known.dtype)
    features[real], labels[real] = bounded, known
    return Block(features, labels, counts)


def bounded_rows(study: Study, records: Records) -> tuple[Floats, Labels]:
    """The records' bounded vectors and labels. A regression's labels are scaled, and clipped as their records are."""
    features = clip_rows(records.features, study.data)
    if study.task != "regression":
        return features, records.labels
    labels = scale_labels(records.labels.astype(np.float64, copy=False), study.data)
    return features, labels * clipping_factors(records.features, study.data)


def mapped_rows(bounded: tuple[Floats, Labels], by: BoundedMap) -> tuple[Floats, Labels]:
    """Bounded records after a map. Real labels are clipped as their records are, so that y = wᵀx still holds."""
    features, labels = bounded[0].copy(), bounded[1].copy()
    for block in blocks(len(labels)):
        features[block], factors = by.apply(features[block])
        if labels.dtype.kind == "f":
            labels[block] *= factors
    return features, labels
