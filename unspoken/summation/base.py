"""The parts of every summation protocol: endpoints that turn incoming bytes into outgoing bytes.

A `Protocol` knows public facts only: the session, the options of the study, and the roster. It makes endpoints, each
from the secrets of its owner and nobody else's. An endpoint does no input or output; an engine moves the bytes. Between
any two steps it can be dumped and loaded. It ends in exactly one of two ways: the right total over the named survivors,
or `Aborted`; a message that does not belong is `Rejected` and changes nothing.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.errors import UnspokenError
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.study import Section, Study
from unspoken.types import Flags, Integers, Residues, Words

if TYPE_CHECKING:
    from unspoken.summation.keys import Identity

COORDINATOR = "coordinator"

ATTEMPT_BYTES = 16
NO_ATTEMPT = bytes(ATTEMPT_BYTES)
"""Stands for any attempt while a session is only planned."""


class Aborted(UnspokenError):
    """The sum was given up, and nothing of it was revealed."""


class Rejected(UnspokenError):
    """A message was refused: it is not what the protocol allows at this point."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A typed message: on the wire an array of its type's tag and its fields, nothing missing and nothing more."""


class Envelope(NamedTuple):
    """A message and the address that an engine delivers it to."""

    to: str
    body: bytes


class Unsuitable(UnspokenError):
    """A protocol cannot serve the study as it is: `place` names the key, and the text says what to do."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem)
        self.place, self.problem = place, problem


@dataclass(frozen=True)
class Roster:
    """Who takes part, by their public keys: part of what everyone agreed on, never the coordinator's word."""

    parties: Sequence[bytes]
    """Ed25519 identities"""
    coordinator: bytes
    """X25519 key"""
    helpers: tuple[bytes, ...] = ()
    """X25519 keys"""

    @classmethod
    def of(cls, study: Study) -> Roster:
        """The study's own roster: it is part of the digest that every message of a sum is bound to."""
        if study.roster is None:
            raise study.error(
                "roster", "is missing; list the public keys of the parties, the coordinator and the helpers"
            )
        parties = tuple(bytes.fromhex(key) for key in study.roster.parties)
        helpers = tuple(bytes.fromhex(key) for key in study.roster.helpers)
        return cls(parties, bytes.fromhex(study.roster.coordinator), helpers)


@dataclass(frozen=True)
class VoteShape:
    """The queries of a vote. Its vectors are ballots: for each query a number for each class."""

    queries: int
    classes: int
    bound: int = 2**62 - 1
    """No total is larger than this, in absolute value."""


@dataclass(frozen=True)
class Session:
    """The facts that all endpoints of one sum agree on; parties take them from the study, not from the coordinator."""

    study: str
    """The study's digest."""
    name: str
    """The name of this sum within the study."""
    parties: int
    colluding: int
    least_survivors: int
    length: int
    bits: int
    schedule: NoiseSchedule | None = None
    """The components of the parties' noise that may be opened."""
    vote: VoteShape | None = None
    """For a sum of ballots: the vote that it decides."""
    attempt: bytes = NO_ATTEMPT
    """Which try at this sum it is: an identifier that is never used twice."""

    def __post_init__(self) -> None:
        if self.vote is not None and self.length != self.vote.queries * self.vote.classes:
            raise ValueError(f"Expected length={self.length} to be the queries times the classes of {self.vote}.")

    def label(self) -> str:
        """Binds messages to this study, this sum and these parameters. It is made of exact numbers only."""
        return self._label

    @cached_property
    def _label(self) -> str:
        facts = (self.study, self.name, self.parties, self.colluding, self.least_survivors, self.length, self.bits)
        noise = () if self.schedule is None else self.schedule.exact
        digest = hashlib.sha256("/".join(map(str, noise)).encode()).hexdigest()
        return "/".join(map(str, ("unspoken-1", *facts, digest[:16], self.attempt.hex())))

    @property
    def components(self) -> int:
        return 0 if self.schedule is None else len(self.schedule.components)

    def opened(self, survivors: int) -> tuple[int, ...]:
        """The noise components that everyone opens when so many parties are in the total."""
        return () if self.schedule is None else self.schedule.opened(survivors)

    @property
    def vector_bytes(self) -> int:
        """The size of a vector on the wire."""
        return self.length * self.wire_type.itemsize

    @property
    def wire_type(self) -> np.dtype[np.unsignedinteger[npt.NBitBase]]:
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    def zeros(self) -> Residues:
        """A running total: words of this type wrap by themselves."""
        return np.zeros(self.length, dtype=self.wire_type)

    def reduce(self, words: Words | Residues) -> Words:
        """Words modulo 2^bits."""
        return words.astype(self.wire_type, copy=False).astype(np.uint64)

    def pack(self, words: Words | Residues) -> bytes:
        """Residues as bytes on the wire."""
        return words.astype(self.wire_type, copy=False).tobytes()

    def unpack(self, data: bytes | memoryview) -> Residues:
        """Bytes on the wire as residues; `Rejected` unless they are exactly one vector."""
        if len(data) != self.vector_bytes:
            raise Rejected(f"a vector has {len(data)} bytes; {self.vector_bytes} are due")
        return np.frombuffer(data, dtype=self.wire_type)


@dataclass(frozen=True)
class Openable:
    """The smallest total that an adversary can bring a protocol to open, and how surely it opens no smaller one."""

    parties: int
    """The fewest parties in it, colluding ones included."""
    exposure: float = 0.0
    """The probability, over the protocol's own dice, that a smaller one opens: counted in δ."""
    alone: bool = False
    """True if every honest party's vector can be opened by itself, and its noise components with it."""


class Endpoint(ABC):
    """One side of a protocol. All that it remembers is in `state`."""

    state: msgspec.Struct

    @abstractmethod
    def step(self, incoming: bytes) -> list[Envelope]:
        """Take one message (empty: begin) and say what to send."""

    def dump(self) -> bytes:
        """The whole state: secret, for the endpoint's own disk only."""
        return msgspec.msgpack.encode(self.state, enc_hook=_array_to_bytes)

    def load(self, dumped: bytes) -> None:
        """Go on where the endpoint that was dumped stopped."""
        self.state = msgspec.msgpack.decode(dumped, type=type(self.state), dec_hook=_array_from_bytes)


class Party(Endpoint):
    """A data holder's side. Its vector is asked for once, after the setup, and need not be kept."""

    @property
    def seeds(self) -> list[bytes]:
        """Seeds for the components of this party's noise, which the protocol can open if they prove unneeded."""
        return []

    @property
    def ready(self) -> bool:
        """Is the setup over?"""
        return True

    @abstractmethod
    def submit(self, vector: Words) -> list[Envelope]:
        """Send the vector, hidden."""

    def forget_vector(self) -> None:
        """Drop what is left of the vector after it was sent, so that many parties fit in one process."""


class Coordinator(Endpoint):
    """The side that moves messages and learns the total. When a stage is over is for the engine to say."""

    setup_stages = 0
    """The number of calls of `advance` after the parties have begun and before they send vectors."""

    def advance(self) -> list[Envelope]:
        """Close a stage of the setup, and go on with those who are there; `Aborted` if they are too few."""
        raise Aborted("this protocol has no setup to advance")

    def settle(self) -> list[Envelope]:
        """Begin to agree on the parties whose vectors have arrived so far; may be repeated."""
        return []

    @abstractmethod
    def finish(self) -> list[Envelope]:
        """Ask for what the total needs, over all parties that are there; `Aborted` if they are too few."""

    @abstractmethod
    def survivors(self) -> Flags:
        """A flag for each party: is it in the total?"""

    @abstractmethod
    def total(self) -> Words:
        """The total; `Aborted` if what it needs never came."""

    def winners(self) -> Integers:
        """Of a vote: the number of the winning class of each query; `Aborted` if what it needs never came."""
        raise Aborted("this protocol adds up, and decides no votes")

    def opened(self) -> dict[int, list[bytes]]:
        """The opened noise seeds of every party in the total."""
        return {}


class Protocol(ABC):
    """One session of a protocol, as far as it is public. It plans without a roster, and makes endpoints with one."""

    options_type: ClassVar[type[Section]]
    """The protocol's own keys of [summation]."""

    reveals_contributions: ClassVar[bool] = False
    """True if the coordinator sees what each party sends: for simulations only."""

    serves: ClassVar[frozenset[str]] = frozenset({"sum"})
    """What it can do: "sum" opens a total, "vote" opens the winners of a vote and no totals."""

    def __init__(self, session: Session, options: Section, roster: Roster | None = None) -> None:
        self.session, self._options = session, options
        self._roster = None if roster is None else self._checked(roster)

    def with_roster(self, roster: Roster) -> Self:
        """The same session, ready to make endpoints."""
        ready = copy(self)
        ready._roster = ready._checked(roster)
        return ready

    @property
    def roster(self) -> Roster:
        """The public keys of everyone for whom it makes endpoints."""
        if self._roster is None:
            raise ValueError(f"Expected a roster: {type(self).__name__} needs the public keys to make endpoints.")
        return self._roster

    @property
    def opens_noise(self) -> bool:
        """True if it can open the seeds of noise components that prove unneeded."""
        return False

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions under which only the total is revealed, in words that follow 'assumes that'."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on this session for people to read beforehand."""
        return ()

    @abstractmethod
    def openable(self, colluding: int) -> Openable:
        """The smallest total that can be brought to open if so many parties collude: noise is sized by it."""

    @property
    def parameters(self) -> dict[str, int]:
        """The numbers chosen for this session, for people to see."""
        return {}

    @abstractmethod
    def upload_bytes(self) -> int:
        """The most bytes that one party sends if nobody drops out: by arithmetic, without keys or vectors."""

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        """The addresses of the helpers, in the order of their keys in the roster."""
        return ()

    @abstractmethod
    def party(self, index: int, identity: Identity, secrets: SecretStream) -> Party:
        """The endpoint of a party. Its secret randomness for this session comes from `secrets`."""

    @abstractmethod
    def coordinator(self, secret: bytes, secrets: SecretStream) -> Coordinator:
        """The endpoint of the coordinator, whose X25519 key is `secret`."""

    def helper(self, index: int, secret: bytes, secrets: SecretStream) -> Endpoint:
        """The endpoint of a helper, whose X25519 key is `secret`."""
        raise ValueError(f"Expected a protocol with helpers; {type(self).__name__} has none.")

    def _checked(self, roster: Roster) -> Roster:
        if len(roster.parties) != self.session.parties:
            raise Unsuitable(
                "roster.parties", f"has {len(roster.parties)} keys, but {self.session.parties} parties take part"
            )
        if (needed := len(self.helper_addresses)) and len(roster.helpers) != needed:
            raise Unsuitable("roster.helpers", f"has {len(roster.helpers)} keys, but there are {needed} helpers")
        return roster


def address_of(party: int) -> str:
    return f"party:{party}"


def bitmap(flags: Flags) -> bytes:
    return np.packbits(flags).tobytes()


def from_bitmap(packed: bytes, parties: int) -> Flags:
    """Flags from their bitmap, or `Rejected` if it is not of so many parties."""
    if len(packed) != (parties + 7) // 8:
        raise Rejected(f"a list of parties has {len(packed)} bytes; {(parties + 7) // 8} are due")
    flags = np.unpackbits(np.frombuffer(packed, dtype=np.uint8)).astype(np.bool_)
    if flags[parties:].any():
        raise Rejected("a list of parties names parties that are not in the study")
    return flags[:parties]


def decode(incoming: bytes | memoryview, kind: Any) -> Any:
    """A typed message from its bytes, or `Rejected`."""
    try:
        return msgspec.msgpack.decode(incoming, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as error:
        raise Rejected(f"a message is not of a kind that this endpoint takes ({error})") from None


def check_label(label: str, session: Session) -> None:
    """Refuse a message of another study, sum or shape."""
    if label != session.label():
        raise Rejected("a message belongs to another study or another sum")


def check_sender(sender: int, session: Session, seen: Flags) -> None:
    """Refuse a message from outside the study, or a second one from the same party."""
    if not 0 <= sender < session.parties:
        raise Rejected(f"a message came from party {sender}; the study has {session.parties} parties")
    if seen[sender]:
        raise Rejected(f"a second message came from party {sender}")


def check_survivors(count: int, session: Session) -> None:
    """Refuse a total over fewer parties than the noise shares were sized for."""
    if count < session.least_survivors:
        raise Aborted(
            f"only {count} of {session.parties} parties are left and the study asks for at least "
            f"{session.least_survivors}; nothing was revealed. Run it again, or agree on more dropouts."
        )


def _array_to_bytes(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    raise TypeError(f"Expected an array, got {type(value)}.")


def _array_from_bytes(kind: Any, value: Any) -> Any:
    dtype, data = value
    return np.frombuffer(data, dtype=np.dtype(dtype)).copy()
