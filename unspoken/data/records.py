"""Records as numbers, and the error of a data file that does not fit its study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unspoken.errors import UnspokenError
from unspoken.types import Floats, Labels


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
    outside: Mapping[str, float] = field(default_factory=dict)
    """The share of values that were clipped to their column's bounds, by column; columns without any are left out.
    For the holder of the records only."""

    def __len__(self) -> int:
        return len(self.labels)
