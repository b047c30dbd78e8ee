"""Records as numbers, and the error of a data file that does not fit its study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unspoken.errors import UnspokenError
from unspoken.types import Flags, Floats, Labels


class DataError(UnspokenError, ValueError):
    """A data file does not fit its study."""


@dataclass(frozen=True)
class Records:
    """Records as numbers: features (n, raw dimension) before the constant and the clipping, labels (n,).

    Labels are class numbers; for a regression real numbers as in the file (unclipped, in their own units); for
    statistics, where nothing is predicted, zeros.
    """

    features: Floats
    labels: Labels
    clipped: Mapping[str, Flags] = field(default_factory=dict)
    """Which records' values were clipped to their column's bounds, by column; columns without any are left out. For the
    holder of the records only."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def outside(self) -> dict[str, float]:
        """The share of values that were clipped, by column."""
        return {name: float(flags.mean()) for name, flags in self.clipped.items()}

    def of_rows(self, rows: Flags) -> Records:
        """Some of the records."""
        clipped = {name: flags[rows] for name, flags in self.clipped.items()}
        return Records(self.features[rows], self.labels[rows], clipped)
