"""Signed keys, introductions along a graph, and authenticated messages, for protocols with masks between parties.

Each party advertises two X25519 keys for the sum, signed by its identity in the roster. The coordinator introduces it
to its neighbours in a random graph that both compute from the same seed. A party refuses neighbours that are not in the
graph, signatures that do not match the roster, and too few neighbours.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any

import msgspec

from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Envelope,
    Message,
    Party,
    Protocol,
    Rejected,
    Roster,
    Session,
    address_of,
    check_survivors,
    decode,
)
from unspoken.summation.graph import Degree, disconnected, neighbours_of
from unspoken.summation.keys import (
    PUBLIC_BYTES,
    SIGNATURE_BYTES,
    WRAPPING_BYTES,
    Channel,
    Identity,
    agree,
    public_key,
    verify,
)

NONCE_BYTES = 16
_FORGOTTEN = b"sent"


class Advertise(Message, frozen=True, tag="keys/advertise"):
    """Party to coordinator, forwarded to its neighbours: its keys for this sum."""

    sender: int
    cipher_key: bytes
    mask_key: bytes
    signature: bytes


class Introduce(Message, frozen=True, tag="keys/introduce"):
    """Coordinator to party: the graph's seed, and the advertisements of its neighbours."""

    nonce: bytes
    neighbours: list[Advertise]


class Framed(Message, frozen=True, tag="keys/framed"):
    """Any message from a party to the coordinator; the body is authenticated once keys are known."""

    session: str
    sender: int
    body: memoryview


def check_advertised(advertised: Advertise, label: str, roster: Roster) -> None:
    """Raise `Rejected` unless the keys are signed by their owner."""
    signed = _statement(label, advertised.sender, advertised.cipher_key, advertised.mask_key)
    verify(roster.parties[advertised.sender], signed, advertised.signature, f"party {advertised.sender}")


def _statement(label: str, sender: int, cipher_key: bytes, mask_key: bytes) -> bytes:
    return f"advertise/{label}/{sender}/".encode() + cipher_key + mask_key


def mask_seed(secret: bytes, public: bytes, label: str, one: int, other: int) -> bytes:
    """The seed of the common mask of two parties."""
    return agree(secret, public, f"mask/{label}/{min(one, other)}/{max(one, other)}".encode())


class NeighbourState(msgspec.Struct):
    cipher_secret: bytes
    mask_secret: bytes
    keys: dict[int, tuple[bytes, bytes]] = {}
    introduced: bytes = b""
    submitted: bytes = b""


class NeighbourParty(Party):
    """A party that masks with its neighbours."""

    state: NeighbourState

    def __init__(self, session: Session, roster: Roster, degree: Degree, index: int, identity: Identity) -> None:
        self._session, self._roster, self._degree, self._index = session, roster, degree, index
        self._identity, self._label = identity, session.label()

    def forget_vector(self) -> None:
        """Delete the masked vector once it is sent, so that many parties fit in one process; it cannot be resent."""
        self.state.submitted = _FORGOTTEN

    def _sent(self) -> list[Envelope]:
        """The masked vector as first sent, never another one."""
        if self.state.submitted == _FORGOTTEN:
            raise Aborted("a party was asked for its vector again after it was sent and deleted")
        return [Envelope(COORDINATOR, self.state.submitted)]

    def _advertise(self) -> list[Envelope]:
        cipher_key, mask_key = public_key(self.state.cipher_secret), public_key(self.state.mask_secret)
        signature = self._identity.sign(_statement(self._label, self._index, cipher_key, mask_key))
        return [self._framed(msgspec.msgpack.encode(Advertise(self._index, cipher_key, mask_key, signature)))]

    def _meet(self, introduction: Introduce) -> None:
        """Check the neighbours, and remember their keys."""
        state = self.state
        fingerprint = hashlib.sha256(msgspec.msgpack.encode(introduction)).digest()
        if state.introduced:
            if state.introduced != fingerprint:
                raise Aborted("the coordinator introduced two different sets of neighbours")
            raise Rejected("the neighbours were introduced twice")
        if len(introduction.nonce) != NONCE_BYTES:
            raise Rejected("the graph's seed has the wrong length")
        seed = introduction.nonce + self._label.encode()
        allowed = set(neighbours_of(self._index, self._session.parties, self._degree.neighbours, seed).tolist())
        keys: dict[int, tuple[bytes, bytes]] = {}
        for advertised in introduction.neighbours:
            if advertised.sender not in allowed or advertised.sender in keys:
                raise Aborted(f"party {advertised.sender} was introduced twice, or is not a neighbour")
            check_advertised(advertised, self._label, self._roster)
            keys[advertised.sender] = (advertised.cipher_key, advertised.mask_key)
        if len(keys) < self._degree.threshold:
            raise Aborted(f"only {len(keys)} neighbours were introduced; {self._degree.threshold} are needed")
        state.keys, state.introduced = dict(sorted(keys.items())), fingerprint

    def _masks_with(self, others: list[int]) -> list[tuple[bytes, bool]]:
        """The seeds of the masks with these neighbours, and whether to add (True) or subtract their streams."""
        return [
            (
                mask_seed(self.state.mask_secret, self.state.keys[other][1], self._label, self._index, other),
                self._index < other,
            )
            for other in others
        ]

    def _unwrapped(self, incoming: bytes, kind: Any) -> Any:
        return decode(self._channel().unwrap(incoming), kind)

    def _wrapped(self, message: Message) -> Envelope:
        return self._framed(self._channel().wrap(msgspec.msgpack.encode(message)))

    def _framed(self, body: bytes) -> Envelope:
        return Envelope(COORDINATOR, msgspec.msgpack.encode(Framed(self._label, self._index, memoryview(body))))

    def _channel(self) -> Channel:
        me = address_of(self._index)
        return Channel(self.state.cipher_secret, self._roster.coordinator, self._label, me, COORDINATOR)


class MeetingState(msgspec.Struct):
    nonce: bytes
    stage: str = "keys"
    keys: dict[int, Advertise] = {}


class NeighbourCoordinator(Coordinator):
    """The coordinator's side: collects keys, introduces neighbours, reads authenticated messages."""

    state: MeetingState

    def __init__(self, session: Session, roster: Roster, degree: Degree, secret: bytes) -> None:
        self._session, self._roster, self._degree, self._secret = session, roster, degree, secret
        self._label = session.label()
        self._channels: dict[int, Channel] = {}

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        framed: Framed = decode(incoming, Framed)
        if framed.session != self._label:
            raise Rejected("a message belongs to another study or another sum")
        if not 0 <= framed.sender < self._session.parties:
            raise Rejected(f"a message came from party {framed.sender}; the study has {self._session.parties} parties")
        if self.state.stage == "keys":
            self._take_keys(framed)
            return []
        if framed.sender not in self.state.keys:
            raise Rejected(f"party {framed.sender} sent a message but had not advertised keys")
        self._take(framed.sender, self._channel(framed.sender).unwrap(framed.body))
        return []

    @abstractmethod
    def _take(self, sender: int, body: memoryview) -> None:
        """Take an authenticated message from a party that advertised keys."""

    def _take_keys(self, framed: Framed) -> None:
        advertised: Advertise = decode(framed.body, Advertise)
        if advertised.sender != framed.sender:
            raise Rejected(f"party {framed.sender} advertised keys of party {advertised.sender}")
        check_advertised(advertised, self._label, self._roster)
        if framed.sender in self.state.keys:
            raise Rejected(f"a second message came from party {framed.sender}")
        self.state.keys[framed.sender] = advertised

    def _introduce(self) -> list[Envelope]:
        """Close the stage of keys: introduce the parties present to their neighbours present."""
        keys = self.state.keys
        check_survivors(len(keys), self._session)
        return [
            self._to(party, Introduce(self.state.nonce, [keys[o] for o in self._neighbours(party) if o in keys]))
            for party in sorted(keys)
        ]

    def _neighbours(self, party: int) -> list[int]:
        seed = self.state.nonce + self._label.encode()
        found: list[int] = neighbours_of(party, self._session.parties, self._degree.neighbours, seed).tolist()
        return found

    def _channel(self, party: int) -> Channel:
        if party not in self._channels:
            key = self.state.keys[party].cipher_key
            self._channels[party] = Channel(self._secret, key, self._label, COORDINATOR, address_of(party))
        return self._channels[party]

    def _to(self, party: int, message: Message) -> Envelope:
        return Envelope(address_of(party), self._channel(party).wrap(msgspec.msgpack.encode(message)))


class NeighbourProtocol(Protocol):
    """Masks between neighbours in a graph of this degree."""

    def __init__(self, session: Session, options: Section, degree: Degree, roster: Roster | None) -> None:
        super().__init__(session, options, roster)
        self.degree = degree

    @property
    def is_complete(self) -> bool:
        """True if everyone masks with everyone."""
        return self.degree.neighbours >= self.session.parties - 1

    def _cut_off(self, colluding: int) -> float:
        """A bound on the probability that honest survivors are disconnected, so that a partial sum opens."""
        if self.is_complete:
            return 0.0
        missing = colluding + self.session.parties - self.session.least_survivors
        return disconnected(self.session.parties, missing, self.degree.neighbours)

    @property
    def parameters(self) -> dict[str, int]:
        return {"neighbours": self.degree.neighbours, "threshold": self.degree.threshold}

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("the coordinator may be curious but follows the protocol",)

    def upload_bytes(self) -> int:
        """The bytes of the last party, whose index and neighbours' indices take the most bytes."""
        last = sizes.of_integer(self.session.parties - 1)
        keys = sizes.of_bytes(PUBLIC_BYTES)
        advertised = sizes.of_message(Advertise, last, keys, keys, sizes.of_bytes(SIGNATURE_BYTES))
        bodies = [advertised, *(WRAPPING_BYTES + size for size in self._later_sizes())]
        label = sizes.of_text(self.session.label())
        return sum(sizes.of_message(Framed, label, last, sizes.of_bytes(body)) for body in bodies)

    @abstractmethod
    def _later_sizes(self) -> list[int]:
        """The sizes of the messages that a party sends after its keys."""
