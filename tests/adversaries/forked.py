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
from unspoken.roles.helper import Helper
from unspoken.roles.messages import Carried, carried
from unspoken.roles.party import Party
from unspoken.roles.planned_requests import protocol_for
from unspoken.roles.store import MemoryStore
from unspoken.study import Study
from unspoken.summation.base import COORDINATOR, Aborted, Coordinator, Envelope, Rejected, Session, address_of
from unspoken.summation.compute_nodes_coordinator import NodesCoordinator
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
        No coordinator has taken any of them yet; helpers have."""
        self.send(self.coordinator.start())
        while not (isinstance(self.coordinator.request, kind) and self.coordinator.stage == "vectors"):
            self.deliver(NOBODY)
            self.send(self.coordinator.close_stage())
        hidden = set(map(address_of, silent))
        while self._waiting:
            sender, (to, body) = self._waiting.popleft()
            if to == COORDINATOR:
                self.vectors[int(sender.removeprefix("party:"))] = _body(body)
            elif to not in hidden:
                self.send({**self.parties, **self.helpers}[to].receive(body), to)

    def copied(self, address: str) -> Party | Helper:
        """Another participant with the same secrets, in the same state."""
        store, self.stores[address] = self.stores[address], MemoryStore(self.stores[address].read())
        try:
            return self.helper(address) if address in self.helpers else self.party(int(address.removeprefix("party:")))
        finally:
            self.stores[address] = store

    def _endpoint(self) -> tuple[Session, Coordinator]:
        """A new coordinator's side of the sum under way."""
        request = self.coordinator.request
        turn = self.coordinator.totals.turn(request.name)
        protocol = protocol_for(self.plan, request, turn, self.coordinator.attempt).with_roster(self._keys.roster)
        return protocol.session, protocol.coordinator(self._keys.coordinator, SecretStream())

    def story(self, survivors: Iterable[int], hearers: Iterable[int]) -> Story:
        """What one of the two coordinators says, to its own colluders and to these honest parties."""
        session, endpoint = self._endpoint()
        assert isinstance(endpoint, SecAggCoordinator)
        assert self.coordinator._stages is not None
        endpoint.load(self.coordinator._stages.endpoint.dump())
        endpoint._quorum = 1  # It asks to open shares with whatever signatures it has got.
        for index in sorted(set(survivors) & self.vectors.keys()):
            endpoint.step(self.vectors[index])
        for index in set(survivors) - self.vectors.keys():
            endpoint.state.arrived[index] = bytes(SIGNATURE_BYTES)
        return Story(self, session, endpoint, map(address_of, self.colluders), map(address_of, hearers))

    def story_for_nodes(self, corrupt: set[int], before: Story | None = None, left_out: int = -1) -> Story:
        """The same for compute nodes, of which corrupt ones are the coordinator's own. The second one knows what was
        counted in the story before, and leaves out a party."""
        session, endpoint = self._endpoint()
        assert isinstance(endpoint, NodesCoordinator)
        if before is not None:
            endpoint.state.blamed[address_of(left_out)] = "it is left out"
            endpoint.state.settled, endpoint.state.keys = (
                before.endpoint.state.settled.copy(),
                before.endpoint.state.keys,
            )
            endpoint.state.settled[left_out] = False
        theirs = {node for number, node in enumerate(self.helpers) if number in corrupt}
        return Story(self, session, endpoint, theirs, set(self.helpers) - theirs)


class Story:
    """One coordinator's way from the vectors to a total. It has copies of its own of those who collude with it."""

    def __init__(
        self, cast: Forked, session: Session, endpoint: Any, colluders: Iterable[str], hearers: Iterable[str]
    ) -> None:
        self.session, self.endpoint = session, endpoint
        self._attempt, self._made = cast.coordinator.attempt, cast.made
        everyone: dict[str, Any] = {**cast.parties, **cast.helpers}
        self._roles = {each: cast.copied(each) for each in colluders} | {each: everyone[each] for each in hearers}

    def tell(self) -> None:
        """Ask for agreement on the survivors, and then for all that opens the total."""
        self._say(self.endpoint.settle())
        self._say(self.endpoint.agree())
        if isinstance(self.endpoint, NodesCoordinator):
            for number in range(len(self._roles)):
                self.endpoint.state.signatures.setdefault(number, bytes(SIGNATURE_BYTES))
        with contextlib.suppress(Aborted):
            self._say(self.endpoint.finish())

    def _say(self, envelopes: list[Envelope]) -> None:
        waiting = carried(envelopes, self._attempt)
        while waiting:
            to, body = waiting.pop(0)
            if to not in self._roles:
                continue
            with contextlib.suppress(Rejected, Aborted):
                for answer in self._roles[to].receive(body):
                    assert answer.to == COORDINATOR
                    waiting += carried(self.endpoint.step(_body(answer.body)), self._attempt)

    def total(self) -> Words | None:
        """The total, if it can be opened."""
        try:
            return self.endpoint.total()  # type: ignore[no-any-return]
        except Aborted:
            return None

    def true_total(self, parties: Iterable[int]) -> Words:
        """The sum of what these parties have really sent."""
        return self.session.reduce(np.sum([self._made[index] for index in parties], axis=0, dtype=np.uint64))


def _body(message: bytes) -> bytes:
    """The protocol's message in a message between roles."""
    return bytes(msgspec.msgpack.decode(message, type=Carried).body)
