"""What parties compute for one request: check it, compute the contribution, round it, add noise.

The work is done for a block of parties at once. A real party is a block of one; an engine that simulates many parties
passes larger blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unspoken.data.block import Block
from unspoken.methods.base import Cancel, Contribution, Method, PartyRequest, Request, TokenPositions, ZeroSum
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.noise.stream import SecretStream
from unspoken.roles.planned_requests import check_planned
from unspoken.roles.secrets import PartySecrets
from unspoken.types import Words


@dataclass(frozen=True)
class PartyInput:
    """What one party makes its vector with, besides its records."""

    secrets: PartySecrets
    seeds: Sequence[bytes] | None
    """The seeds of noise that the protocol can open; None if whoever adds up draws the noise of the whole total."""
    common: SecretStream | None = None
    """The stream of the noise that its message of this turn has in common with the other parties'"""
    positions: TokenPositions | None = None
    """The positions of its tokens"""


class Contributor:
    """The party's arithmetic for one study."""

    def __init__(self, method: Method, plan: Plan) -> None:
        self._method, self._plan = method, plan

    def check(self, request: PartyRequest, turn: int) -> None:
        """Refuse a request that the plan does not have, before any record is looked at.

        `turn` is how often the party has been asked for it before, by the party's own count.
        """
        check_planned(self._plan, request, turn)
        self._method.check(request, turn)

    def vectors(self, request: Request, inputs: Sequence[PartyInput], records: Callable[[], Block]) -> list[Words]:
        """Each party's vector for a request. Records are looked at only if the request is for contributions."""
        if isinstance(request, ZeroSum):
            return [self.common_noise(request.name, own.secrets) for own in inputs]
        if isinstance(request, Cancel):
            return [self.noise_of_a_message(request.name, _common(own), own.secrets.index) for own in inputs]
        if isinstance(request, PartyRequest):
            return self._contributions(request, inputs, records())
        raise ValueError(f"Expected a request for vectors, got {type(request).__name__}.")

    def _contributions(self, request: PartyRequest, inputs: Sequence[PartyInput], block: Block) -> list[Words]:
        """First the numbers that carry noise, then the exact ones."""
        planned = self._plan.sum_named(request.name)
        contexts = [own.secrets.context(own.positions) for own in inputs]
        contribution = self._method.contribute(request, block, contexts)
        self._check_shape(contribution, planned, len(block))
        noisy = planned.encoding.encode(contribution.noisy)
        for row, own in zip(noisy, inputs, strict=True):
            if own.seeds is not None:
                row += planned.noise.added(planned.dimension, own.secrets.noise(own.seeds, own.common))
        exact = contribution.exact.astype(np.int64).view(np.uint64)
        return list(np.concatenate([noisy, exact], axis=1) if exact.size else noisy)

    def _check_shape(self, contribution: Contribution, planned: PlannedSum, parties: int) -> None:
        """Refuse a contribution of another shape than the method declared: no noise was planned for it. The shape does
        not depend on records, so the error tells nothing about them."""
        given = contribution.noisy.shape, contribution.exact.shape
        due = (parties, planned.dimension), (parties, len(planned.exact))
        if given != due:
            raise ValueError(
                f'Expected "{self._method.name}" to contribute {due[0]} numbers and {due[1]} exact ones to '
                f'"{planned.name}", as it declared, got {given[0]} and {given[1]}.'
            )

    def common_noise(self, name: str, secrets: PartySecrets) -> Words:
        """A party's common noise (CAPE) for all turns of the named messages. Its sum over the parties becomes
        public."""
        planned = self._plan.sum_named(name)
        turns = [(secrets.common(turn), secrets.index) for turn in range(planned.count)]
        return np.concatenate([planned.noise.prepared(planned.dimension, *turn) for turn in turns])

    def noise_of_a_message(self, name: str, common: SecretStream, index: int) -> Words:
        """The common noise in one of a party's messages, which is added up with the other parties' afterwards."""
        planned = self._plan.sum_named(name)
        return planned.noise.prepared(planned.dimension, common, index)


def _common(own: PartyInput) -> SecretStream:
    if own.common is None:
        raise RuntimeError("Expected the stream of the noise that messages have in common.")
    return own.common
