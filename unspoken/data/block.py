"""The records of several parties in one array, so that one operation serves all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unspoken.types import Floats, Integers, Labels


@dataclass(frozen=True)
class Block:
    """The bounded records of B parties; a single party is a block of one.

    Parties with fewer records than the largest are padded with rows of zeros, which learners ignore.
    """

    features: Floats
    """(B, n, d)"""
    labels: Labels
    """(B, n): class numbers, or for a regression labels scaled to [−1, 1]"""
    counts: Integers
    """(B,): the parties' numbers of records"""

    def __len__(self) -> int:
        return len(self.counts)

    def record_weights(self) -> Floats:
        """1/N_i for each record of party i, 0 for padding: (B, n)."""
        real = np.arange(self.features.shape[1]) < self.counts[:, None]
        weights: Floats = real / self.counts[:, None]
        return weights

    def by_size(self) -> Iterator[tuple[Integers, Block]]:
        """Blocks of parties with equally many records, each with its parties' positions in this block."""
        for count in np.unique(self.counts):
            positions = np.flatnonzero(self.counts == count)
            whole = len(positions) == len(self)
            yield (
                positions,
                Block(
                    self.features[:, :count] if whole else self.features[positions, :count],
                    self.labels[:, :count] if whole else self.labels[positions, :count],
                    self.counts[positions],
                ),
            )
