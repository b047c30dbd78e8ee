"""Signed keys, introductions along a graph, and authenticated messages, for protocols with masks between parties.

Each party advertises two X25519 keys for the sum and the neighbours that it chose, signed by its identity in the
roster. The coordinator introduces each party to the neighbours that it chose and to those that chose it. A party checks
the signatures against the roster, and that it is given the neighbours that it chose. That the others really chose it,
and that no more did, is only the coordinator's word. By a lie about this it can leave a survivor out of the total that
no other honest party chose: noise is sized for that (`Degree.unseen`). Otherwise the lie spoils the total. It weakens
nobody's masks, which rest on a party's own choice alone (see `graph.exposure`).
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from unspoken.noise.stream import SecretStream
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
    SignedStatement,
    Unsuitable,
    address_of,
)
from unspoken.summation.graph import Graph
from unspoken.summation.incoming import check_label, check_party, check_survivors, decode
from unspoken.summation.keys import (
    PUBLIC_BYTES,
    SIGNATURE_BYTES,
    WRAPPING_BYTES,
    Channel,
    Identity,
    agree,
    agreement_key,
    channel_key,
    public_key,
    verify,
)
from unspoken.summation.remedies import has_partner, one_of, remedies

Used = TypeVar("Used")

_FORGOTTEN = b"sent"
_DIGEST_BYTES = 32


class Advertise(Message, frozen=True, tag="keys/advertise"):
    """Party to coordinator: its keys for this sum, and the neighbours that it chose."""

    sender: int
    cipher_key: bytes
    mask_key: bytes
    chosen: bytes
    signature: bytes


class Introduced(Message, frozen=True, tag="keys/introduced"):
    """A party's keys, as its neighbours get them; its choice is a digest."""

    sender: int
    cipher_key: bytes
    mask_key: bytes
    chosen: bytes
    signature: bytes


class Introduce(Message, frozen=True, tag="keys/introduce"):
    """Coordinator to party: the keys of the neighbours that it chose, and of the others that chose it."""

    chosen: list[Introduced]
    choosers: list[Introduced]


class Framed(Message, frozen=True, tag="keys/framed"):
    """Any message from a party to the coordinator; the body is authenticated once keys are known."""

    session: str
    sender: int
    body: memoryview


def introduced(advertised: Advertise) -> Introduced:
    """The part of an advertisement that neighbours are shown."""
    digest = hashlib.sha256(advertised.chosen).digest()
    keys = advertised.cipher_key, advertised.mask_key
    return Introduced(advertised.sender, *keys, digest, advertised.signature)


def check_introduced(shown: Introduced, label: str, roster: Roster) -> None:
    """Raise `Rejected` unless the keys are signed by their owner."""
    if (len(shown.cipher_key), len(shown.mask_key), len(shown.chosen)) != (PUBLIC_BYTES, PUBLIC_BYTES, _DIGEST_BYTES):
        raise Rejected(f"party {shown.sender} advertised keys of the wrong length")
    signed = _statement(label, shown.sender, shown.cipher_key, shown.mask_key, shown.chosen)
    verify(roster.parties[shown.sender], signed, shown.signature, f"party {shown.sender}")


def keys_beginning(label: str, sender: int) -> bytes:
    """The beginning of the statement that a party signs with its keys: the cipher key and the mask key follow."""
    return f"advertise/{label}/{sender}/".encode()


def keys_evidence(advertised: Advertise, label: str) -> SignedStatement:
    """A party's keys as a statement that anyone with the roster can check."""
    shown = introduced(advertised)
    statement = _statement(label, shown.sender, shown.cipher_key, shown.mask_key, shown.chosen)
    return SignedStatement(address_of(shown.sender), statement, shown.signature)


def _statement(label: str, sender: int, cipher_key: bytes, mask_key: bytes, chosen_digest: bytes) -> bytes:
    return keys_beginning(label, sender) + cipher_key + mask_key + chosen_digest


def mask_seed(secret: bytes, public: bytes, label: str, one: int, other: int) -> bytes:
    """The seed of the common mask of two parties."""
    return agree(secret, public, f"mask/{label}/{min(one, other)}/{max(one, other)}".encode())


class NeighbourState(msgspec.Struct):
    cipher_secret: bytes
    mask_secret: bytes
    chosen: list[int]
    keys: dict[int, tuple[bytes, bytes]] = {}
    """The cipher key and the mask key of every neighbour: those that this party chose, and those that chose it"""
    introduced: bytes = b""
    submitted: bytes = b""


class NeighbourParty(Party):
    """A party that masks with its neighbours."""

    state: NeighbourState

    def __init__(self, session: Session, roster: Roster, graph: Graph, index: int, identity: Identity) -> None:
        self._session, self._roster, self._graph, self._index = session, roster, graph, index
        self._identity, self._label = identity, session.label()
        self._channel_key: tuple[bytes, bytes] | None = None
        """The key of the channel to the coordinator, after the secret that it was agreed on with"""

    def _draw(self, secrets: SecretStream) -> list[int]:
        return self._graph.draw(self._index, self._label, secrets)

    def forget_vector(self) -> None:
        """Delete the masked vector once it is sent, so that many parties fit in one process; it cannot be resent."""
        self.state.submitted = _FORGOTTEN

    def _sent(self) -> list[Envelope]:
        """The masked vector as it was first sent."""
        if self.state.submitted == _FORGOTTEN:
            raise Aborted("a party was asked for its vector again after it was sent and deleted")
        return [Envelope(COORDINATOR, self.state.submitted)]

    def _advertise(self) -> list[Envelope]:
        state = self.state
        cipher_key, mask_key = public_key(state.cipher_secret), public_key(state.mask_secret)
        chosen = self._graph.announce(state.chosen)
        digest = hashlib.sha256(chosen).digest()
        signature = self._identity.sign(_statement(self._label, self._index, cipher_key, mask_key, digest))
        return [self._framed(msgspec.msgpack.encode(Advertise(self._index, cipher_key, mask_key, chosen, signature)))]

    def _meet(self, introduction: Introduce, use: Callable[[], Used]) -> Used:
        """Check the neighbours, remember their keys, and use them. `Rejected` changes nothing."""
        state = self.state
        fingerprint = hashlib.sha256(msgspec.msgpack.encode(introduction)).digest()
        if state.introduced:
            if state.introduced != fingerprint:
                raise Aborted("the coordinator introduced two different sets of neighbours")
            raise Rejected("the neighbours were introduced twice")
        keys = self._keys_of(introduction.chosen, set(state.chosen))
        if len(keys) < self._graph.degree.threshold:
            raise Aborted(f"only {len(keys)} neighbours were introduced; {self._graph.degree.threshold} are needed")
        for shown in introduction.chosen:
            check_introduced(shown, self._label, self._roster)
        everyone = set(range(self._session.parties)) - {self._index, *state.chosen}
        keys |= self._keys_of(introduction.choosers, everyone)
        state.keys, state.introduced = dict(sorted(keys.items())), fingerprint
        try:
            return use()
        except Rejected:  # A neighbour signed a key that nobody can agree on.
            state.keys, state.introduced = {}, b""
            raise

    def _keys_of(self, shown: list[Introduced], allowed: set[int]) -> dict[int, tuple[bytes, bytes]]:
        keys = {other.sender: (other.cipher_key, other.mask_key) for other in shown}
        if len(keys) != len(shown) or not keys.keys() <= allowed:
            raise Aborted("a party was introduced twice, or is not a neighbour")
        return keys

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
        """The channel to the coordinator. Its key is agreed on once; the channel itself is larger, and not kept."""
        me, secret = address_of(self._index), self.state.cipher_secret
        if self._channel_key is None or self._channel_key[0] != secret:
            peer = agreement_key(self._roster.coordinator)
            self._channel_key = secret, channel_key(secret, peer, self._label, me, COORDINATOR)
        return Channel.with_key(self._channel_key[1], me, COORDINATOR)


class MeetingState(msgspec.Struct):
    stage: str = "keys"
    keys: dict[int, Advertise] = {}


class NeighbourCoordinator(Coordinator):
    """The coordinator's side: collects keys, introduces neighbours, reads authenticated messages."""

    state: MeetingState

    def __init__(self, session: Session, roster: Roster, graph: Graph, identity: Identity) -> None:
        self._session, self._roster, self._graph, self._identity = session, roster, graph, identity
        self._label = session.label()
        self._channels: dict[int, Channel] = {}
        self._chosen: dict[int, list[int]] = {}
        self._choosers: dict[int, list[int]] = {}

    def load(self, dumped: bytes) -> None:
        super().load(dumped)
        self._channels, self._chosen, self._choosers = {}, {}, {}

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        framed: Framed = decode(incoming, Framed)
        check_label(framed.session, self._session)
        check_party(framed.sender, self._session.parties)
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
        sender = framed.sender
        if advertised.sender != sender:
            raise Rejected(f"party {sender} advertised keys of party {advertised.sender}")
        check_introduced(introduced(advertised), self._label, self._roster)
        if sender in self.state.keys:
            raise Rejected(f"a second message came from party {sender}")
        if self._graph.read(sender, self._label, advertised.chosen) is None:
            raise Rejected(f"party {sender} chose neighbours that it may not have")
        # A key with which others cannot agree on a secret would stop them, so its owner is left out.
        for key in (advertised.cipher_key, advertised.mask_key):
            agree(self._identity.agreement_secret, key, b"")
        self.state.keys[sender] = advertised

    def _introduce(self) -> list[Envelope]:
        """Close the stage of keys: introduce the parties present to their neighbours present."""
        keys = self.state.keys
        check_survivors(len(keys), self._session)
        shown = {party: introduced(advertised) for party, advertised in keys.items()}
        return [
            self._to(
                party,
                Introduce([shown[other] for other in self._chosen_by(party)], [shown[other] for other in others]),
            )
            for party in sorted(keys)
            for others in [sorted(set(self._choosers_of(party)) - set(self._chosen_by(party)))]
        ]

    def _chosen_by(self, party: int) -> list[int]:
        """The neighbours that a party chose, of those who advertised keys."""
        if not self._chosen:
            self._meet_all()
        return self._chosen[party]

    def _choosers_of(self, party: int) -> list[int]:
        """The parties that chose this one as a neighbour."""
        if not self._chosen:
            self._meet_all()
        return self._choosers[party]

    def _meet_all(self) -> None:
        keys = self.state.keys
        self._choosers = {party: [] for party in keys}
        for party in sorted(keys):
            chosen = self._graph.read(party, self._label, keys[party].chosen) or []
            self._chosen[party] = [other for other in chosen if other in keys]
            for other in self._chosen[party]:
                self._choosers[other].append(party)

    def _neighbours(self, party: int) -> set[int]:
        """The parties that mask with this one: chosen by it, or by which it was chosen."""
        return {*self._chosen_by(party), *self._choosers_of(party)}

    def _channel(self, party: int) -> Channel:
        if party not in self._channels:
            secret, key = self._identity.agreement_secret, self.state.keys[party].cipher_key
            self._channels[party] = Channel(secret, key, self._label, COORDINATOR, address_of(party))
        return self._channels[party]

    def _to(self, party: int, message: Message) -> Envelope:
        return Envelope(address_of(party), self._channel(party).wrap(msgspec.msgpack.encode(message)))


class NeighbourProtocol(Protocol):
    """Masks between neighbours in a graph."""

    def __init__(self, session: Session, options: Section, graph: Graph, roster: Roster | None) -> None:
        super().__init__(session, options, roster)
        self.graph = graph
        facts = session.parties, session.colluding, session.parties - session.least_survivors
        if session.least_survivors < 2:
            raise Unsuitable(
                "privacy.dropouts" if session.parties > 1 else "parties.count",
                "leaves at most one party, which has nobody to mask with; "
                + one_of(remedies(*facts, fits=has_partner)),
            )

    def upload_bytes(self) -> int:
        """The bytes of the last party, whose index and neighbours' indices take the most bytes."""
        last = sizes.of_integer(self.session.parties - 1)
        keys, chosen = sizes.of_bytes(PUBLIC_BYTES), len(self.graph.announce(list(range(self.graph.degree.neighbours))))
        signature = sizes.of_bytes(SIGNATURE_BYTES)
        advertised = sizes.of_message(Advertise, last, keys, keys, sizes.of_bytes(chosen), signature)
        bodies = [advertised, *(WRAPPING_BYTES + size for size in self._later_sizes())]
        label = sizes.of_text(self.session.label())
        return sum(sizes.of_message(Framed, label, last, sizes.of_bytes(body)) for body in bodies)

    @property
    def party_messages(self) -> int:
        return 1 + len(self._later_sizes())

    @abstractmethod
    def _later_sizes(self) -> list[int]:
        """The sizes of the messages that a party sends after its keys."""
