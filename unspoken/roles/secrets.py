"""A party's secret randomness in one attempt: one stream for each purpose, all derived from one root.

A party draws the root from the operating system and keeps it until its vector leaves, so after a crash it goes on with
the very same noise. In a simulation all parties share a root, and their indices keep their streams apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from unspoken.methods.base import PartyContext, TokenPositions
from unspoken.methods.planning.mechanisms import NoiseSource
from unspoken.noise.stream import SecretStream


@dataclass(frozen=True)
class PartySecrets:
    """The streams of one party in one attempt."""

    root: bytes
    index: int

    def key(self, purpose: str) -> bytes:
        return hashlib.sha256(self.root + f"{purpose}/{self.index}".encode()).digest()

    def stream(self, purpose: str) -> SecretStream:
        return SecretStream(self.key(purpose))

    def context(self, positions: TokenPositions | None) -> PartyContext:
        """What the method may use at this party: randomness for sampling, and the positions of the party's tokens."""
        return PartyContext(self.stream("sampling"), positions)

    def noise(self, seeds: Sequence[bytes] = (), common: SecretStream | None = None) -> NoiseSource:
        """The randomness of the party's noise."""
        return NoiseSource(self.stream("noise"), seeds, common, self.index)

    def common_key(self, turn: int) -> bytes:
        """The key of the noise that this attempt prepared for a later turn; always the same."""
        return PartySecrets(common_root(self.root, turn), self.index).key("common")

    def common(self, turn: int) -> SecretStream:
        """The stream of that noise."""
        return SecretStream(self.common_key(turn))


def common_root(root: bytes, turn: int) -> bytes:
    """The root of all parties' common noise for one turn. Each turn has its own, so that the roots of past turns can be
    forgotten."""
    return hashlib.sha256(root + f"common/{turn}".encode()).digest()
