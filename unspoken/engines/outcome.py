"""The outcome of a run, as every engine returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.releases import Release
from unspoken.types import Flags

ON_A_CLUSTER = "ray"
"""The beginning of the name of the engine that simulates on a cluster"""

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

    @property
    def survivors(self) -> int:
        """The number of parties in the smallest total."""
        return min(there.sent for turns in self.participation.values() for there in turns)

    @property
    def attempts(self) -> int:
        """The number of attempts in which vectors may have left."""
        return sum(map(len, self.participation.values())) + sum(self.failed.values())


def is_on_a_cluster(engine: str) -> bool:
    """Whether this is the name, in words for the certificate, of the engine that simulates on a cluster."""
    return engine.startswith(f"{ON_A_CLUSTER}:")
