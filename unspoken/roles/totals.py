"""What the coordinator makes of finished attempts: totals for the method, and a record of who took part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from unspoken.methods.base import Cancel, Collect, PartyRequest, Request, Sum, Total, Vote, ZeroSum
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.methods.planning.mechanisms import Participation
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Coordinator, address_of
from unspoken.summation.collection import CollectionCoordinator
from unspoken.types import Flags, Integers, Words

Map = Callable[[Callable[[list[bytes]], Words], Iterable[list[bytes]]], Iterable[Words]]
"""Like `map`: an engine may do it in parallel."""


@dataclass(frozen=True)
class CommonNoise:
    """The sum of the parties' common noise (CAPE), and which parties are in it."""

    prepared: Flags
    total: Words


@dataclass(frozen=True)
class Messages:
    """Messages in the open whose common noise is still to be added up."""

    senders: Integers
    vectors: Words
    """A row for each sender"""


class Totals:
    """Turns the endpoints of finished attempts into the method's answers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.participation: dict[str, list[Participation]] = defaultdict(list)
        """How many parties were in a total, by its name, with one entry for each time that it was made"""
        self.counted: dict[str, Flags] = {}
        """Which parties were in a sum or vote, by its name, as flags, for the last time that it was made"""
        self.noise: dict[str, float] = {}
        """The largest deviation of the noise in a total, by its name"""
        self.common: dict[str, CommonNoise] = {}
        self.messages: dict[str, Messages] = {}

    def add(self, name: str, there: Participation, deviation: float) -> None:
        """Note who was in a total, and the deviation of its noise."""
        self.participation[name].append(there)
        self.noise[name] = max(deviation, self.noise.get(name, 0.0))

    def turn(self, name: str) -> int:
        """The number of times that the named total was made."""
        return len(self.participation[name])

    def summed(
        self, request: Sum, coordinator: Coordinator, noise: SecretStream | None = None, parallel: Map = map
    ) -> Total:
        """The total of a secure sum, after subtracting the noise that was added for dropouts that did not happen.

        `noise` is given if the sum was in the clear and parties added no noise: then all of it is drawn here.
        """
        planned, sent = self._plan.sum_named(request.name), self._survivors(request.name, coordinator)
        words, there = coordinator.total(), Participation(sent, sent)
        if noise is not None:
            words[: planned.dimension] += planned.noise.at_once(planned.dimension, noise, there)
        seeds = coordinator.opened().values()
        for unneeded in parallel(lambda opened: planned.noise.opened(planned.dimension, sent, opened), seeds):
            words[: planned.dimension] -= unneeded
        return self._total(planned, words, self.counted[request.name])

    def voted(self, request: Vote, coordinator: Coordinator) -> Total:
        """The winners of a vote, as whole numbers."""
        planned, sent = self._plan.sum_named(request.name), self._survivors(request.name, coordinator)
        winners = coordinator.winners()
        deviation = planned.total_std(sent)
        self.add(request.name, Participation(sent, sent), deviation)
        return Total(np.empty(0), winners, sent, deviation)

    def prepared(self, request: ZeroSum, coordinator: Coordinator) -> Total:
        """The sum of common noise: kept until the messages come."""
        common = CommonNoise(coordinator.survivors().copy(), coordinator.total())
        self.common[request.name] = common
        return nothing(int(common.prepared.sum()))

    def collected(self, request: Collect, coordinator: Coordinator) -> Total:
        """The total of open messages, minus the sum of the common noise. If that sum is still to be made, the messages
        are kept until then."""
        planned, turn = self._plan.sum_named(request.name), self.turn(request.name)
        if planned.noise.cancels and isinstance(coordinator, CollectionCoordinator):
            found = sorted(coordinator.messages().items())
            senders = np.array([sender for sender, _ in found], dtype=np.int64)
            self.messages[request.name] = Messages(senders, np.stack([vector for _, vector in found]))
            return nothing(len(found))
        words, sent = coordinator.total(), coordinator.survivors()
        prepared = sent
        if common := self.common.get(request.name):
            words[: planned.dimension] -= common.total[turn * planned.dimension : (turn + 1) * planned.dimension]
            prepared = common.prepared
        return self._total(planned, words, sent, prepared)

    def senders(self, name: str) -> set[int]:
        """The parties whose messages are kept."""
        return set(self.messages[name].senders.tolist())

    def cancelled(self, request: Cancel, coordinator: Coordinator) -> Total:
        """The total of the kept messages whose senders are in the sum of the common noise, minus this sum."""
        planned, kept = self._plan.sum_named(request.name), self.messages[request.name]
        there = coordinator.survivors()
        if others := set(np.flatnonzero(there).tolist()) - self.senders(request.name):
            found = address_of(min(others))
            raise Aborted(f"{found} added up the noise of a message that it did not send", (found,))
        words = kept.vectors[there[kept.senders]].sum(axis=0, dtype=np.uint64)
        words[: planned.dimension] -= coordinator.total()
        return self._total(planned, words, there)

    def there(self, request: Request) -> Participation | None:
        """How many parties were in the total that a request has just made, if it made one."""
        is_total = isinstance(request, Cancel)
        if isinstance(request, PartyRequest):
            is_total = not self._plan.sum_named(request.name).noise.cancels
        return self.participation[request.name][-1] if is_total else None

    def _survivors(self, name: str, coordinator: Coordinator) -> int:
        self.counted[name] = coordinator.survivors().copy()
        return int(self.counted[name].sum())

    def _total(self, planned: PlannedSum, words: Words, sent: Flags, prepared: Flags | None = None) -> Total:
        prepared = sent if prepared is None else prepared
        there, deviation = Participation(int(prepared.sum()), int(sent.sum())), planned.total_std_of(prepared, sent)
        self.add(planned.name, there, deviation)
        noisy, exact = words[: planned.dimension], words[planned.dimension :]
        return Total(planned.encoding.decode(noisy), planned.encoding.centered(exact), there.sent, deviation)


def nothing(parties: int) -> Total:
    """An answer without numbers: so many parties took part."""
    return Total(np.empty(0), np.empty(0, dtype=np.int64), parties, 0.0)
