"""What parties compute for one request: check it, compute the contribution, round it, add noise.

The work is done for a block of parties at once. A real party is a block of one; an engine that simulates many parties
passes larger blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unspoken.data.block import Block
from unspoken.methods.base import Contribution, Method, PartyContext, PartyRequest
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.methods.planning.mechanisms import NoiseSource
from unspoken.noise.stream import SecretStream
from unspoken.roles.planned_requests import check_planned
from unspoken.roles.secrets import PartySecrets
from unspoken.types import Words


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

    def vectors(
        self,
        request: PartyRequest,
        block: Block,
        contexts: Sequence[PartyContext],
        sources: Sequence[NoiseSource] | None,
    ) -> list[Words]:
        """Each party's vector: first the numbers that carry noise, then the exact ones. Without `sources` no noise is
        added."""
        planned = self._plan.sum_named(request.name)
        contribution = self._method.contribute(request, block, contexts)
        self._check_shape(contribution, planned, len(block))
        noisy = planned.encoding.encode(contribution.noisy)
        for row, source in zip(noisy, sources or (), strict=sources is not None):
            row += planned.noise.added(planned.dimension, source)
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
