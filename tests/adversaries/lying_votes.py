"""A coordinator of votes that lies at random, and what is checked after its moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation.ballots import (
    Framed,
    PeerMessage,
    address,
)
from unspoken.summation.base import (
    Aborted,
    Envelope,
    Rejected,
    SignedStatement,
)
from unspoken.summation.evidence import convicted
from votes import Vote, random_ballots


def assert_proof(evidence: tuple[SignedStatement, ...], vote: Vote, signer: str) -> None:
    """Two different statements about the same vote, which anyone can check with the roster alone."""
    assert len(evidence) == 2
    assert list(convicted(vote.protocol.protocol, evidence)) == [signer]


def sender(envelope: Envelope) -> int:
    return msgspec.msgpack.decode(envelope.body, type=Framed).tallier


LISTS = ((0, 1, 2), (0, 1, 2, 3), (1, 2, 3), (0, 1))
MOVES = {"deliver": 0.7, "repeat": 0.1, "ask": 0.14, "keep": 0.03, "set back": 0.02, "forget": 0.01}


class Liar:
    """A coordinator that makes any moves, in any order, and sets back or makes again all talliers but the first.

    It prefers one list, and asks for others now and then, in some runs never: else there would hardly be a count.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.vote = np.random.default_rng(seed), Vote(parties=4, queries=1, classes=2)
        self.strays, self.preferred = float(self.rng.choice([0.0, 0.02, 0.5])), self.pick(range(3))
        self.pending: list[Envelope] = []
        self.known: list[Envelope] = []
        self.dumps: list[tuple[int, bytes]] = []
        self.begun: set[bytes] = set()
        self.fixed: set[bytes] = set()
        for party, ballots in enumerate(random_ballots(4, 1, 2)):
            for envelope in self.vote.party(party).submit(ballots):
                self.known.append(envelope)
                self.deliver(envelope)
        for index in range(3):
            self.send(self.vote.tallier(index).step(b""))
        self.lists = [self.vote.list_of(*parties) for parties in LISTS]
        self.vote.keys = {party: key for party, (key, _) in self.vote.tallier(0).state.ballots.items()}

    def pick(self, among: Sequence[Any]) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def send(self, envelopes: Iterable[Envelope]) -> None:
        """Hand on what a tallier says to another one; what it says to the coordinator is heard."""
        for envelope in envelopes:
            if isinstance(relay := self.vote.read(envelope), PeerMessage):
                handed = PeerMessage(sender(envelope), relay.number, relay.body)
                envelope = Envelope(address(relay.peer), self.vote.frame(relay.peer, handed))
                self.pending.append(envelope)
                self.known.append(envelope)

    def move(self) -> None:
        index = int(self.rng.integers(3))
        match self.rng.choice(list(MOVES), p=list(MOVES.values())):
            case "deliver" if self.pending:
                self.deliver(self.pending.pop(int(self.rng.integers(len(self.pending)))))
            case "repeat":
                self.deliver(self.pick(self.known))
            case "ask":
                which = self.pick(self.lists) if self.rng.random() < self.strays else self.lists[self.preferred]
                count = msgspec.structs.replace(which, begin=bool(self.rng.integers(2)))
                self.deliver(Envelope(address(index), self.vote.frame(index, count)))
            case "keep" if index:
                self.dumps.append((index, self.vote.tallier(index).dump()))
            case "set back" if self.dumps and self.strays:
                index, dumped = self.pick(self.dumps)
                self.vote.tallier(index).load(dumped)
            case "forget" if index and self.strays:
                keys = self.vote.protocol.keys
                fresh = self.vote.protocol.protocol.helper(index, keys.helper(index), SecretStream())
                self.vote.endpoints[address(index)] = fresh

    def deliver(self, envelope: Envelope) -> None:
        tallier = self.vote.tallier(int(envelope.to[-1]))
        with suppress(Rejected, Aborted):
            self.send(tallier.step(envelope.body))
        if tallier.state.counted:
            self.fixed.add(tallier.state.counted)
        if tallier._computation is not None or tallier.state.opening:
            self.begun.add(tallier.state.counted)


def play(seed: int) -> Liar:
    """Play one run, and check what must hold, whatever was said."""
    liar = Liar(seed)
    for _ in range(600):
        liar.move()
    assert len(liar.begun) <= 1, f"seed {seed}: two lists were begun with"
    assert liar.lists[3].counted not in liar.fixed, f"seed {seed}: a list below the least was agreed on"
    return liar
