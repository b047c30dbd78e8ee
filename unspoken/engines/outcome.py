"""What an engine gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from unspoken.methods.mechanisms import Participation
from unspoken.methods.releases import Release
from unspoken.types import Flags

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many parties are done, and how many there are."""


@dataclass
class Outcome:
    """What really happened."""

    release: Release
    participation: dict[str, list[Participation]]
    """How many parties were in each total, by its name, each time that it was asked for."""
    began: datetime
    seconds: float
    """How long it took: it depends on records, so it is for the person who ran it alone."""
    bytes: int
    party_bytes: int
    """The most that any one party sent."""
    counted: dict[str, Flags]
    """Which parties are in each sum or vote, by its name, the last time that it was asked for."""

    @property
    def survivors(self) -> int:
        """How many parties were there to the end."""
        return min(there.sent for turns in self.participation.values() for there in turns)
