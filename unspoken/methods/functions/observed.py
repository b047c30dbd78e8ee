"""Counts how often the results of a user's function were clipped or failed, in a simulation in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Observed:
    """Counts for whoever holds all the records, and nobody else: they are in no release and no certificate."""

    what: str
    """What is bounded, as "parties' vectors" """
    bound: str
    """The argument that states the bound"""
    asked: int = 0
    clipped: int = 0
    failed: int = 0
    longest: float = 0.0
    """Times the bound"""

    def saw(self, length: float) -> None:
        """Count a vector by its length over its bound."""
        self.asked += 1
        if length > 1.0 + 1e-9:
            self.clipped += 1
            self.longest = max(self.longest, length)

    def saw_failure(self) -> None:
        self.asked += 1
        self.failed += 1

    def remarks(self) -> Iterator[str]:
        """Sentences about vectors that were shortened, and about those that count as zeros."""
        if self.clipped:
            yield (
                f"{self.clipped:,} of {self.asked:,} {self.what} were longer than {self.bound} (the longest "
                f"{self.longest:.3g} times) and were clipped to it, so the total is not the function's; raise "
                f"{self.bound}, or make the numbers smaller"
            )
        if self.failed:
            yield (
                f"the function failed for {self.failed:,} of {self.asked:,} {self.what}, or gave numbers that are not "
                "finite or not as many as stated; these count as zeros: let it handle all rows"
            )
