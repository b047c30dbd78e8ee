"""What the coordinator makes of an attempt that has ended: totals for the method, and a record of who was there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from unspoken.methods.base import Collect, Sum, Total, Vote, ZeroSum
from unspoken.methods.mechanisms import Participation
from unspoken.methods.plan import Plan, PlannedSum
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Coordinator
from unspoken.types import Flags, Words

Map = Callable[[Callable[[list[bytes]], Words], Iterable[list[bytes]]], Iterable[Words]]
"""Like `map`: an engine may do it in parallel."""


@dataclass(frozen=True)
class CommonNoise:
    """The sum of the noise that parties have in common, and which of them are in it."""

    prepared: Flags
    total: Words


class Totals:
    """Turns the endpoints of finished attempts into the method's answers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.participation: dict[str, list[Participation]] = defaultdict(list)
        """How many parties were in each total, by its name, each time that it was asked for."""
        self.counted: dict[str, Flags] = {}
        """Which parties are in each sum or vote, by its name, the last time that it was asked for."""
        self.common: dict[str, CommonNoise] = {}

    def turn(self, name: str) -> int:
        """How often the named total was made."""
        return len(self.participation[name])

    def summed(
        self, request: Sum, coordinator: Coordinator, noise: SecretStream | None = None, parallel: Map = map
    ) -> Total:
        """The total of a secure sum, without the noise that proved unneeded.

        `noise`: nobody added any (the sum was in the clear), so that all of it is drawn here.
        """
        planned, sent = self._plan.planned(request.name), self._survivors(request.name, coordinator)
        words, there = coordinator.total(), Participation(sent, sent)
        if noise is not None:
            words[: planned.dimension] += planned.noise.at_once(planned.dimension, noise, there)
        seeds = coordinator.opened().values()
        for unneeded in parallel(lambda opened: planned.noise.opened(planned.dimension, sent, opened), seeds):
            words[: planned.dimension] -= unneeded
        return self._total(planned, words, there)

    def voted(self, request: Vote, coordinator: Coordinator) -> Total:
        """The winners of a vote, as whole numbers."""
        planned, sent = self._plan.planned(request.name), self._survivors(request.name, coordinator)
        winners = coordinator.winners()
        self.participation[request.name].append(Participation(sent, sent))
        return Total(np.empty(0), winners, sent, planned.total_std(sent))

    def prepared(self, request: ZeroSum, coordinator: Coordinator) -> Total:
        """The sum of common noise: kept until the messages come."""
        common = CommonNoise(coordinator.survivors().copy(), coordinator.total())
        self.common[request.name] = common
        return nothing(int(common.prepared.sum()))

    def collected(self, request: Collect, coordinator: Coordinator) -> Total:
        """The total of messages in the open, without the sum of the common noise."""
        planned, turn = self._plan.planned(request.name), self.turn(request.name)
        words, sent = coordinator.total(), int(coordinator.survivors().sum())
        prepared = sent
        if common := self.common.get(request.name):
            words[: planned.dimension] -= common.total[turn * planned.dimension : (turn + 1) * planned.dimension]
            prepared = int(common.prepared.sum())
        return self._total(planned, words, Participation(prepared, sent))

    def _survivors(self, name: str, coordinator: Coordinator) -> int:
        self.counted[name] = coordinator.survivors().copy()
        return int(self.counted[name].sum())

    def _total(self, planned: PlannedSum, words: Words, there: Participation) -> Total:
        self.participation[planned.name].append(there)
        noisy, exact = words[: planned.dimension], words[planned.dimension :]
        deviation = planned.total_std(there.sent, there.prepared)
        return Total(planned.encoding.decode(noisy), planned.encoding.centered(exact), there.sent, deviation)


def nothing(parties: int) -> Total:
    """An answer without numbers: so many parties took part."""
    return Total(np.empty(0), np.empty(0, dtype=np.int64), parties, 0.0)
