"""Noise that fits however many parties drop out: each share comes in parts, and parts that prove unneeded are opened.

A share must be large enough for the worst allowed dropout, so a run with fewer dropouts carries too much noise. After
Jiang et al. (XNoise): a party's share is a base that suffices if nobody drops out, plus components; when the
survivors are known, the seeds of the components that are not needed are opened, and the coordinator takes that noise
away. Where XNoise has one component for each dropout that may happen, here they halve: E/2, E/4, … of the removable
variance E, so six of them come within 1/64 of E, whatever happens.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPONENTS = 6


@dataclass(frozen=True)
class NoiseSchedule:
    """The variances of a party's noise, in squared units of the encoding."""

    parties: int
    known: int
    """Shares that the adversary knows: those of the colluders, or a curious party's own."""
    absent: int
    """Parties that may be missing from a total: dropped out, or left out of it."""
    needed: float
    """The variance that the honest survivors' noise must have together."""
    base: float
    components: tuple[float, ...]

    @classmethod
    def plan(cls, parties: int, known: int, absent: int, needed: float, least: float) -> NoiseSchedule:
        """Split shares so that any allowed number of survivors keeps `needed`; no part has a variance below `least`."""
        most = needed / (parties - known - absent)
        removable = most - min(most, max(least, needed / (parties - known)))
        components = [removable / 2.0**level for level in range(1, COMPONENTS + 1)]
        while components and components[-1] < least:
            components.pop()
        return cls(parties, known, absent, needed, most - sum(components), tuple(components))

    @property
    def whole(self) -> float:
        """The variance of a share with all its components."""
        return self.base + sum(self.components)

    def opened(self, survivors: int) -> tuple[int, ...]:
        """The components that are not needed when so many parties survive: as much as possible, never more."""
        if survivors < self.parties - self.absent or survivors > self.parties:
            return ()
        spare = self.whole - self.needed / (survivors - self.known)
        chosen = []
        for number, variance in enumerate(self.components):
            # Rounding must not open a component for a hair's breadth of noise that is still needed.
            if variance <= spare * (1.0 - 1e-9):
                chosen.append(number)
                spare -= variance
        return tuple(chosen)

    def kept(self, survivors: int) -> float:
        """The variance of what is left of each survivor's share."""
        return self.whole - sum(self.components[number] for number in self.opened(survivors))
