"""A coordinator that is two: after the vectors have come, each of two coordinators tells its own story of who survived.

The parties are the real roles of a study, with their stores. Colluding parties are copied, so that each coordinator has
its own, which signs and opens whatever that one says. Honest parties are divided between the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from cast import Cast
from unspoken.engines.actors import Vanishing
from unspoken.methods.base import Request
from unspoken.noise.stream import SecretStream
from unspoken.roles.messages import Carried, carried
from unspoken.roles.party import Party
from unspoken.roles.planned_requests import protocol_for
from unspoken.roles.store import MemoryStore
from unspoken.study import Study
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, address_of
from unspoken.summation.keys import SIGNATURE_BYTES
from unspoken.summation.secagg_coordinator import SecAggCoordinator
from unspoken.types import Words

NOBODY = Vanishing([])


class Forked(Cast):
    """A study whose coordinator is honest up to the vectors of one request, and then lies."""

    def __init__(self, study: Study, colluders: set[int]) -> None:
        super().__init__(study)
        self.colluders = colluders
        self.made: dict[int, Words] = {}
        """The last vector that each party has made, as it was before it was masked"""
        self.vectors: dict[int, bytes] = {}
        """The messages with the masked vectors"""
        for index in range(study.parties.count):
            self._watch(index)

    @property
    def honest(self) -> list[int]:
        return [index for index in range(len(self.parties)) if index not in self.colluders]

    def _watch(self, index: int) -> None:
        party = self.parties[address_of(index)]
        make = party._vector

        def made(*given: Any) -> Words:
            self.made[index] = make(*given).copy()
            return self.made[index]

        party._vector = made  # type: ignore[method-assign]

    def gather(self, kind: type[Request], silent: Iterable[int] = ()) -> None:
        """Run honestly until all but the silent parties have sent their vectors for the first request of this kind.
        No coordinator has taken any of them yet."""
        self.send(self.coordinator.start())
        while not (isinstance(self.coordinator.request, kind) and self.coordinator.stage == "vectors"):
            self.deliver(NOBODY)
            self.send(self.coordinator.close_stage())
        for _, (to, body) in self._waiting:
            index = int(to.removeprefix("party:"))
            if index not in silent:
                (sent,) = self.parties[to].receive(body)
                self.vectors[index] = bytes(msgspec.msgpack.decode(sent.body, type=Carried).body)
        self._waiting.clear()

    def copied(self, index: int) -> Party:
        """Another party with the same secrets, in the same state."""
        address = address_of(index)
        store, self.stores[address] = self.stores[address], MemoryStore(self.stores[address].read())
        try:
            return self.party(index)
        finally:
            self.stores[address] = store

    def story(self, survivors: Iterable[int], hearers: Iterable[int]) -> Story:
        """What one of the two coordinators says, to its own colluders and to these honest parties."""
        colluders = {address_of(index): self.copied(index) for index in self.colluders}
        honest = {address_of(index): self.parties[address_of(index)] for index in hearers}
        return Story(self, set(survivors), honest | colluders)


class Story:
    """One coordinator's way from the vectors to a total."""

    def __init__(self, cast: Forked, survivors: set[int], parties: dict[str, Party]) -> None:
        self._parties, self._attempt, self._made = parties, cast.coordinator.attempt, cast.made
        request, turn = cast.coordinator.request, cast.coordinator.totals.turn(cast.coordinator.request.name)
        protocol = protocol_for(cast.plan, request, turn, self._attempt).with_roster(cast._keys.roster)
        self.session, endpoint = protocol.session, protocol.coordinator(cast._keys.coordinator, SecretStream())
        assert isinstance(endpoint, SecAggCoordinator)
        assert cast.coordinator._stages is not None
        endpoint.load(cast.coordinator._stages.endpoint.dump())
        endpoint._quorum = 1  # It asks to open shares with whatever signatures it has got.
        self.endpoint = endpoint
        for index in sorted(survivors & cast.vectors.keys()):
            endpoint.step(cast.vectors[index])
        for index in survivors - cast.vectors.keys():
            endpoint.state.arrived[index] = bytes(SIGNATURE_BYTES)

    def tell(self) -> None:
        """Ask for agreement on the survivors, and then for all that opens the total."""
        self._say(self.endpoint.agree())
        with contextlib.suppress(Aborted):
            self._say(self.endpoint.finish())

    def _say(self, envelopes: list[Envelope]) -> None:
        for to, body in carried(envelopes, self._attempt):
            if to not in self._parties:
                continue
            with contextlib.suppress(Rejected, Aborted):
                for answer in self._parties[to].receive(body):
                    assert answer.to == COORDINATOR
                    self.endpoint.step(bytes(msgspec.msgpack.decode(answer.body, type=Carried).body))

    def total(self) -> Words | None:
        """The total, if it can be opened."""
        try:
            return self.endpoint.total()
        except Aborted:
            return None

    def true_total(self, parties: Iterable[int]) -> Words:
        """The sum of what these parties have really sent."""
        return self.session.reduce(np.sum([self._made[index] for index in parties], axis=0, dtype=np.uint64))
