"""The outcome of a run, as every engine returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.releases import Release
from unspoken.roles.coordinator import Coordinator
from unspoken.types import Flags

CLUSTER = "ray: blocks of parties on a cluster"
"""The engine that simulates on a cluster"""
NETWORK = "network: each participant on its own, over WebSocket and TLS"
"""The engine of a study across machines"""
FLOWER = "Flower: each participant at a SuperNode, which runs what it is sent unless its site has pinned that"
"""The engine of a study over a Flower federation"""


@dataclass
class Outcome:
    """The release of a run, and the facts of how it came about."""

    engine: str
    """The engine, in words for the certificate"""
    release: Release
    participation: dict[str, list[Participation]]
    """The numbers of parties in a total, by its name, one entry for each time that it was asked for"""
    began: datetime
    seconds: float
    """The duration. It depends on records, so it is only for the person who ran it."""
    bytes: int
    """The bytes of all messages. Simulations of many parties leave out the coordinator's requests to helpers while
    vectors come in, because their number depends on how many parties are simulated at a time."""
    party_bytes: int
    """The largest number of bytes that a party sent"""
    counted: dict[str, Flags]
    """Flags of the parties in a sum or vote, by its name, for the last time that it was asked for"""
    failed: dict[str, int] = field(default_factory=dict)
    """The number of attempts at each total, by its name, that came to nothing after vectors may have left"""
    noise: dict[str, float] = field(default_factory=dict)
    """The largest deviation of the noise in a total, by its name"""
    simulated: bool = True
    """Whether all parties were simulated in one place, which protects nobody's records"""

    @classmethod
    def of(
        cls,
        coordinator: Coordinator,
        engine: str,
        began: datetime,
        seconds: float,
        moved: tuple[int, int],
        *,
        simulated: bool = True,
    ) -> Self:
        """The outcome of a study that a coordinator has brought to its release. `moved` are the bytes of all messages,
        and the most that a party sent."""
        if coordinator.release is None:
            raise RuntimeError("The coordinator ended without a release.")
        totals = coordinator.totals
        return cls(
            engine,
            coordinator.release,
            dict(totals.participation),
            began,
            seconds,
            *moved,
            counted=totals.counted,
            failed=dict(coordinator.attempts.failed),
            noise=totals.noise,
            simulated=simulated,
        )

    @property
    def survivors(self) -> int:
        """The number of parties in the smallest total."""
        return min(there.sent for turns in self.participation.values() for there in turns)

    @property
    def attempts(self) -> int:
        """The number of attempts in which vectors may have left."""
        return sum(map(len, self.participation.values())) + sum(self.failed.values())
