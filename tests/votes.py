"""A vote with all its endpoints in one process, and everything that was sent: for tests and for adversaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
import pytest

from streams import fixed
from unspoken.summation import ballots as messages
from unspoken.summation.ballots import TALLIERS, Ballot, Count, Framed, address
from unspoken.summation.base import COORDINATOR, NO_ATTEMPT, Endpoint, Envelope, Message, Session, VoteShape
from unspoken.summation.incoming import bitmap
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.summation.tallier import Tallier
from unspoken.summation.tallier_state import TallierState
from unspoken.summation.tally import Options, Tally, TallyCoordinator, TallyParty
from unspoken.summation.tally_agreement import approved
from unspoken.types import Integers

_BETWEEN = (1, 2, 3)
"""Of five talliers, those that do what the first and the last do"""
EACH_TALLIER = pytest.mark.parametrize(
    ("talliers", "index"),
    [*((3, i) for i in range(3))]
    + [pytest.param(5, i, marks=pytest.mark.rare if i in _BETWEEN else ()) for i in range(5)],
)
EACH_NUMBER = pytest.mark.parametrize("talliers", TALLIERS)
MANY_ARE_RARE = pytest.mark.parametrize(
    "talliers", [*TALLIERS[:-1], pytest.param(TALLIERS[-1], marks=pytest.mark.rare)]
)


class Vote:
    """One vote with its endpoints, everything that was sent, and each tallier's state before it forgot it."""

    def __init__(
        self,
        parties: int = 5,
        queries: int = 4,
        classes: int = 3,
        least: int = 3,
        bound: int = 2**40,
        name: str = "vote",
        talliers: int = 3,
        attempt: bytes = NO_ATTEMPT,
    ) -> None:
        shape = VoteShape(queries, classes, bound)
        session = Session("digest", "labels", parties, 0, least, queries * classes, 64, vote=shape, attempt=attempt)
        self.protocol, self.name = SimulatedEndpoints(Tally(session, Options(talliers=talliers)), fixed(name)), name
        self.poll = self.protocol.protocol.poll
        self.talliers, self.sharing = range(talliers), self.poll.sharing
        self.coordinator: TallyCoordinator = self.protocol.coordinator()
        self.endpoints: dict[str, Endpoint] = {**self.protocol.helpers(), COORDINATOR: self.coordinator}
        self.seen: list[Envelope] = []
        self.keys: dict[int, bytes] = {}
        self.last: dict[str, TallierState] = {}
        self.alter: Callable[[Envelope], Iterable[Envelope]] = lambda envelope: [envelope]
        self.pick: Callable[[int], int] = lambda waiting: 0
        self.after_each: Callable[[], None] = lambda: None

    def tallier(self, index: int) -> Tallier:
        endpoint = self.endpoints[address(index)]
        assert isinstance(endpoint, Tallier)
        return endpoint

    def party(self, index: int) -> TallyParty:
        return self.protocol.party(index, fixed(f"{self.name}/{index}"))

    def deliver(self, envelopes: list[Envelope]) -> None:
        waiting = list(envelopes)
        while waiting:
            for envelope in self.alter(waiting.pop(self.pick(len(waiting)))):
                self.seen.append(envelope)
                if envelope.to not in self.endpoints:
                    continue
                endpoint = self.endpoints[envelope.to]
                if isinstance(endpoint, Tallier):
                    self.last[envelope.to] = endpoint.state
                waiting += endpoint.step(envelope.body)
                self.after_each()

    def submit(self, ballots: Integers) -> None:
        for index, rows in enumerate(ballots):
            self.deliver(self.party(index).submit(rows))
        self.keys = {party: key for party, (key, _) in self.tallier(0).state.ballots.items()}

    def count(self) -> Integers:
        self.deliver(self.coordinator.settle())
        self.deliver(self.coordinator.agree())
        self.deliver(self.coordinator.finish())
        return self.coordinator.winners()

    def hold(self, ballots: Integers) -> Integers:
        self.submit(ballots)
        return self.count()

    def frame(self, index: int, message: Message) -> bytes:
        """A message that a tallier takes for the coordinator's: the adversary plays the coordinator."""
        body = self.coordinator._channels[index].wrap(msgspec.msgpack.encode(message))
        return msgspec.msgpack.encode(Framed(self.poll.session.label(), index, memoryview(body)))

    def read(self, envelope: Envelope) -> Message | None:
        """What is in a frame between a tallier and the coordinator."""
        framed: Ballot | Framed = msgspec.msgpack.decode(envelope.body, type=Ballot | Framed)
        if isinstance(framed, Ballot):
            return None
        body = bytes(framed.body)[28:]
        kinds = messages.FromTallier if envelope.to == COORDINATOR else messages.ToTallier
        found: Message = msgspec.msgpack.decode(body, type=kinds)
        return found

    def list_of(self, *parties: int, begin: bool = True) -> Count:
        """A list that the coordinator signs, with the keys under which the first tallier has heard from the parties."""
        known = self.keys | {party: key for party, (key, _) in self.tallier(0).state.ballots.items()}
        listed = bitmap(np.isin(np.arange(self.poll.parties), parties))
        label, identity = self.poll.session.label(), self.protocol.keys.coordinator
        return approved(identity, label, listed, (known.get(party, b"") for party in sorted(parties)), begin)


def random_ballots(parties: int = 5, queries: int = 4, classes: int = 3, seed: int = 0) -> Integers:
    return np.random.default_rng(seed).integers(-1000, 1000, (parties, queries, classes))


def assert_largest(winners: Integers, totals: Integers) -> None:
    assert winners.shape == (len(totals),)
    assert (totals[np.arange(len(totals)), winners] == totals.max(axis=1)).all()
