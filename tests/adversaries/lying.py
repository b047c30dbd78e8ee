"""A coordinator that says what it likes, with some parties on its side, and what it can learn by it.

`Stage` has the real endpoints of all parties, and the coordinator's and the colluders' secrets in the adversary's
hands. `Stage.say` puts any message before any party, rightly wrapped. `Stage.sums` is the best that linear algebra can
do with all that was said and sent: the sets of honest parties whose sum the adversary knows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Message, Rejected, Session, address_of
from unspoken.summation.graph import Graph
from unspoken.summation.incoming import bitmap
from unspoken.summation.introductions import Advertise, Framed, Introduce, introduced
from unspoken.summation.keys import WRAPPING_BYTES, Channel, Identity
from unspoken.summation.secagg import Options, SecAgg
from unspoken.summation.secagg_messages import (
    MARK_BYTES,
    Agreed,
    Begin,
    Checked,
    Deal,
    DealtShares,
    FromParty,
    Masked,
    Opened,
    Survivors,
    Unmask,
    agreed_statement,
)
from unspoken.summation.secagg_party import SecAggParty
from unspoken.summation.simulated_keys import SimulatedEndpoints

ATTEMPTS = count(1)
LOW_ORDER = [bytes(32), bytes([1]) + bytes(31), bytes.fromhex("ec" + "ff" * 30 + "7f")]
"""Keys that agree on the same secret with everyone."""


def session(parties: int, colluding: int, dropouts: int, attempt: bytes | None = None, **more: Any) -> Session:
    """A sum of four numbers, in an attempt of its own."""
    attempt = next(ATTEMPTS).to_bytes(16, "big") if attempt is None else attempt
    return Session("digest", "model", parties, colluding, parties - dropouts, 4, 64, attempt=attempt, **more)


@dataclass
class Stage:
    """One attempt at a sum before a lying coordinator. `colluders` are on its side."""

    agreed: Session
    colluders: set[int]
    graph: Graph | None = None
    options: Options = field(default_factory=Options)
    keys: SecretStream = field(default_factory=SecretStream)

    def __post_init__(self) -> None:
        protocol = SecAgg(self.agreed, self.options)
        if self.graph is not None:
            protocol.graph = self.graph
        self.simulated = SimulatedEndpoints(protocol, self.keys)
        self.quorum, self.threshold = protocol.quorum, protocol.graph.degree.threshold
        self.label, everyone = self.agreed.label(), range(self.agreed.parties)
        self.parties: dict[int, SecAggParty] = {
            index: self.simulated.party(index, SecretStream())
            for index in everyone  # type: ignore[misc]
        }
        self.adverts: dict[int, Advertise] = {}
        self.deals: dict[int, Deal] = {}
        self.vectors: dict[int, Masked] = {}
        self.signatures: dict[tuple[int, bytes, bytes], bytes] = {}
        self.opened: list[tuple[int, bytes, Opened]] = []
        self.partners: dict[int, set[int]] = {}
        """The others with whom a party's vector is masked"""
        self.shares: dict[str, dict[int, set[int]]] = {"alive": defaultdict(set), "gone": defaultdict(set)}
        """Who opened a share of a party's seed, or of its mask key"""
        for index in everyone:
            framed = msgspec.msgpack.decode(self.parties[index].step(b"")[0].body, type=Framed)
            self.adverts[index] = msgspec.msgpack.decode(framed.body, type=Advertise)

    @property
    def honest(self) -> list[int]:
        return [party for party in self.parties if party not in self.colluders]

    def identity(self, party: int) -> Identity:
        return self.simulated.keys.identity(party)

    def channel(self, party: int) -> Channel:
        secret, peer = self.simulated.keys.coordinator.agreement_secret, self.adverts[party].cipher_key
        return Channel(secret, peer, self.label, COORDINATOR, address_of(party))

    def say(self, party: int, message: Message) -> FromParty | None:
        """Put a message before a party. Its answer is remembered; None if it refuses, or has nothing to say."""
        try:
            envelopes = self.parties[party].step(self.channel(party).wrap(msgspec.msgpack.encode(message)))
        except (Rejected, Aborted):
            return None
        if isinstance(message, Begin):
            self._masked(party)
        if not envelopes:
            return None
        framed = msgspec.msgpack.decode(envelopes[0].body, type=Framed)
        answer: FromParty = msgspec.msgpack.decode(framed.body[WRAPPING_BYTES:], type=FromParty)
        self._hear(party, answer)
        return answer

    def _masked(self, party: int) -> None:
        state = self.parties[party].state
        dealers = flags(state.dealers, self.agreed.parties)
        self.partners[party] = {other for other in state.keys if dealers[other]}
        vector = np.full(4, party, dtype=np.uint64)
        framed = msgspec.msgpack.decode(self.parties[party].submit(vector)[0].body, type=Framed)
        self.vectors[party] = msgspec.msgpack.decode(framed.body[WRAPPING_BYTES:], type=Masked)

    def _hear(self, party: int, answer: FromParty) -> None:
        state = self.parties[party].state
        match answer:
            case Deal():
                self.deals[party] = answer
            case Agreed():
                self.signatures[party, state.dealers, state.agreed] = answer.signature
            case Opened():
                self.opened.append((party, state.agreed, answer))
                for kind in ("alive", "gone"):
                    for owner in getattr(answer, kind):
                        self.shares[kind][owner].add(party)

    # What an honest coordinator would say, with lists that a lying one may choose.

    def introduction(self, party: int, known: set[int] | None = None) -> Introduce:
        known = set(self.parties) if known is None else known
        graph, label = self.simulated.protocol.graph, self.label
        chosen = [other for other in self.parties[party].state.chosen if other in known]
        choosers = [
            other
            for other in sorted(known - {party, *chosen})
            if party in (graph.read(other, label, self.adverts[other].chosen) or [])
        ]
        return Introduce(
            [introduced(self.adverts[other]) for other in chosen], [introduced(self.adverts[o]) for o in choosers]
        )

    def relay(self, party: int, dealers: set[int] | None = None) -> DealtShares:
        size = (2 + self.agreed.components) * MARK_BYTES
        senders, sealed, marks = [], [], []
        for dealer in sorted(self.deals if dealers is None else dealers & self.deals.keys()):
            receivers = [
                other for other in self.parties[dealer].state.chosen if other in self.parties[dealer].state.keys
            ]
            if party in receivers:
                place = receivers.index(party)
                senders.append(dealer)
                sealed.append(self.deals[dealer].sealed[place])
                marks.append(self.deals[dealer].marks[place * size : (place + 1) * size])
        return DealtShares(senders, sealed, b"".join(marks))

    def begin(self, dealers: set[int]) -> Begin:
        return Begin(self.listed(dealers))

    def listed(self, parties: set[int]) -> bytes:
        return bitmap(np.isin(np.arange(self.agreed.parties), list(parties)))

    def certificate(self, dealers: bytes, survivors: bytes) -> Unmask:
        """All signatures that there are for these lists, and those of all colluders, who sign anything."""
        statement = agreed_statement(self.label, dealers, survivors)
        signed = {
            party: signature
            for (party, for_dealers, for_survivors), signature in self.signatures.items()
            if (for_dealers, for_survivors) == (dealers, survivors)
        }
        signed |= {party: self.identity(party).sign(statement) for party in self.colluders}
        silent = [party for party in sorted(self.vectors) if party not in signed]
        declared = b"".join(self.vectors[party].signature for party in silent)
        signatures = b"".join(signed[party] for party in sorted(signed))
        return Unmask(survivors, self.listed(set(signed)), signatures, silent, declared)

    def set_up(self, dealers: set[int] | None = None) -> None:
        """An honest setup up to the vectors, for everyone or among these."""
        for party in self.parties:
            self.say(party, self.introduction(party))
        for party in self.parties:
            self.say(party, self.relay(party))
        for party in self.parties if dealers is None else dealers:
            self.say(party, self.begin(set(self.parties) if dealers is None else dealers))

    # What the adversary knows in the end.

    def known_seeds(self) -> set[int]:
        """The honest parties whose self-mask the adversary can take away."""
        return {party for party in self.honest if self._recovers("alive", party)}

    def known_keys(self) -> set[int]:
        """The honest parties whose mask keys it has."""
        return {party for party in self.honest if self._recovers("gone", party)}

    def _recovers(self, kind: str, owner: int) -> bool:
        holders = set(self.shares[kind][owner])
        holders |= {party for party in self.colluders if owner in self._held_by(party)}
        return len(holders) >= self.threshold

    def _held_by(self, colluder: int) -> set[int]:
        """The dealers whose shares a colluder was ever sent."""
        return {
            dealer
            for dealer in self.deals
            if colluder in self.parties[dealer].state.chosen and dealer != colluder and dealer not in self.colluders
        }

    def sums(self) -> list[set[int]]:
        """The sets of honest parties whose sum the adversary knows.

        A mask of two honest parties is unknown unless one of their mask keys is known. Two vectors that share an
        unknown mask open together or not at all, and one with an unknown mask that no other vector has opens in no sum.
        (It stands in nobody's way, unless it shares another mask with them.)
        """
        keys, seeds = self.known_keys(), self.known_seeds()
        unknown = {
            party: {other for other in self.partners[party] - self.colluders if not {party, other} & keys}
            for party in self.honest
            if party in self.vectors
        }
        found, left = [], set(unknown)
        while left:
            group, more = set(), {left.pop()}
            while more:
                party = more.pop()
                group.add(party)
                more |= {other for other in unknown[party] if party in unknown.get(other, ())} - group
            left -= group
            hidden = group - seeds
            lonely = any(party not in unknown.get(other, ()) for party in group for other in unknown[party])
            if not hidden and not lonely:
                found.append(group)
        return found


def flags(listed: bytes, parties: int) -> Any:
    return np.unpackbits(np.frombuffer(listed, dtype=np.uint8))[:parties].astype(bool)


__all__ = ["Begin", "Checked", "DealtShares", "Introduce", "Opened", "Stage", "Survivors", "Unmask", "flags", "session"]
