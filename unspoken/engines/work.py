"""What simulated parties compute in one attempt, a block of parties at a time, in any engine.

Everything is derived from the attempt's secret roots and a party's index. So a block can be computed anywhere, and
again with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from unspoken.data.federation import BLOCK_PARTIES, Federation
from unspoken.methods.base import Cancel, Method, PartyRequest, TokenPositions, ZeroSum
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream
from unspoken.roles.contributor import Contributor, PartyInput
from unspoken.roles.planned_requests import protocol_for
from unspoken.roles.secrets import PartySecrets
from unspoken.summation.base import Envelope, Party, Protocol
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Integers, Words

BLOCK_BYTES = 64 << 20
"""The memory for the contributions of one block (unless a single party needs more)"""


@dataclass(frozen=True)
class Job:
    """One attempt at a request, with the secrets of all parties. This exists in simulations only."""

    request: PartyRequest | ZeroSum | Cancel
    turn: int
    attempt: bytes
    root: bytes
    """The root of the parties' secrets"""
    keys: bytes
    """The root of everybody's keys"""
    vanishing: tuple[int, ...] = ()
    """The parties that vanish in the middle"""
    absent: frozenset[int] = frozenset()
    """The parties that have left before"""
    common: bytes | None = None
    """The root of the noise that the parties' messages of this turn have in common"""
    positions: Mapping[int, TokenPositions] = field(default_factory=dict)


class Work:
    """What parties do in one attempt."""

    def __init__(self, method: Method, plan: Plan, federation: Federation, job: Job) -> None:
        self.job, self._federation, self._contributor = job, federation, Contributor(method, plan)
        protocol = protocol_for(plan, job.request, job.turn, job.attempt)
        self.endpoints: SimulatedEndpoints[Protocol] = SimulatedEndpoints(protocol, SecretStream(job.keys))

    def layout(self, most: int = BLOCK_PARTIES) -> Iterator[Integers]:
        """The parties of each block, at most `most`, whose vectors take `BLOCK_BYTES` at most."""
        most, parties = max(1, min(most, BLOCK_BYTES // (8 * self.endpoints.session.length))), self._federation.parties
        if not isinstance(self.job.request, ZeroSum | Cancel):
            return self._federation.layout(min(BLOCK_PARTIES, most))
        return (np.arange(start, min(start + most, parties)) for start in range(0, parties, most))

    def party(self, index: int) -> Party:
        """A party's endpoint, as it begins."""
        return self.endpoints.party(index, self._secrets(index).stream("keys"))

    def messages(
        self, indices: Integers, known: Mapping[int, Party], silent: Collection[int], late: Collection[int]
    ) -> list[list[Envelope]]:
        """The vectors of a block's parties in messages: each contributes, rounds, adds noise and masks for itself.

        `known` are parties that have been through a setup. Those who are `silent` send nothing, and the last message of
        those who are `late` is lost with them.
        """
        if self.job.absent.issuperset(indices.tolist()):
            return [[] for _ in indices]
        parties = [known[index] if index in known else self.party(index) for index in indices.tolist()]
        messages: list[list[Envelope]] = []
        for index, party, vector in zip(indices.tolist(), parties, self._vectors(indices, parties), strict=True):
            if not party.ready or index in silent or index in self.job.absent:
                messages.append([])
                continue
            envelopes = party.submit(vector)
            messages.append(envelopes[:-1] if index in late else envelopes)
            party.forget_vector()
        return messages

    def _vectors(self, indices: Integers, parties: list[Party]) -> list[Words]:
        """The vectors of a block's parties, each made with its own secrets."""
        clear, common = self.endpoints.protocol.reveals_contributions, self.job.common
        inputs = [
            PartyInput(
                self._secrets(index),
                None if clear else party.seeds,
                None if common is None else PartySecrets(common, index).stream("common"),
                self.job.positions.get(index),
            )
            for index, party in zip(indices.tolist(), parties, strict=True)
        ]
        return self._contributor.vectors(self.job.request, inputs, lambda: self._federation.block(indices))

    def _secrets(self, index: int) -> PartySecrets:
        return PartySecrets(self.job.root, index)
