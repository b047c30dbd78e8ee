"""The parts of a summation protocol: endpoints that turn incoming bytes into outgoing bytes.

A `Protocol` knows public facts only: the session, the options of the study, and the roster. It makes endpoints, each
from its owner's secrets alone. An endpoint does no input or output; an engine moves the bytes. Its state can be dumped
and loaded between any two steps. It ends in exactly one of two ways: the right total over the named survivors, or
`Aborted`. A message that is not allowed at this point is `Rejected` and changes nothing.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.addresses import address_of as address_of
from unspoken.summation.dumps import array_from_bytes, array_to_bytes
from unspoken.summation.errors import Aborted as Aborted
from unspoken.summation.errors import Rejected as Rejected
from unspoken.summation.errors import Unsuitable as Unsuitable
from unspoken.types import Flags, Integers, Residues, Words

if TYPE_CHECKING:
    # A tallier in a process of its own need not load what reads studies.
    from unspoken.study import Section, Study
    from unspoken.summation.keys import Identity

COORDINATOR = "coordinator"

ATTEMPT_BYTES = 16
NO_ATTEMPT = bytes(ATTEMPT_BYTES)
"""A placeholder for the attempt while a session is only planned"""
_ROOM, _ROOM_FOR_A_PARTY, _ROOM_FOR_A_SHARE = 1 << 14, 512, 128
"""Bytes that a message may have besides numbers: in all, for each party's keys and signatures, for each secret share"""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A typed message: on the wire an array of the type's tag and exactly its fields."""


class SignedStatement(Message, frozen=True, tag="signed"):
    """A statement that someone in the roster signed: evidence that others can check (`summation.evidence`)."""

    signer: str
    """The signer's address"""
    statement: bytes
    signature: bytes
    exhibit: bytes = b""
    """Further bytes that prove the fault together with the statement, where the statement alone does not"""


class Envelope(NamedTuple):
    """A message and the address that an engine delivers it to."""

    to: str
    body: bytes


@dataclass(frozen=True)
class Roster:
    """The identities (Ed25519 public keys) of all who take part, agreed on beforehand, not told by the coordinator."""

    parties: Sequence[bytes]
    coordinator: bytes
    helpers: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, study: Study) -> Roster:
        """The study's roster, which is part of the digest that every message is bound to."""
        if study.roster is None:
            raise study.error("roster", "is missing; `unspoken roster` writes it, from everyone's cards")
        parties = tuple(bytes.fromhex(key) for key in study.roster.parties)
        helpers = tuple(bytes.fromhex(key) for key in study.roster.helpers)
        return cls(parties, bytes.fromhex(study.roster.coordinator), helpers)


@dataclass(frozen=True)
class VoteShape:
    """The shape of a vote, whose vectors are ballots: a number for each query and class."""

    queries: int
    classes: int
    bound: int = 2**62 - 1
    """The largest absolute value of a total"""


@dataclass(frozen=True)
class Session:
    """The facts that all endpoints of one sum agree on. Parties take them from the study, not from the coordinator."""

    study: str
    """The study's digest"""
    name: str
    """The name of this sum within the study"""
    parties: int
    colluding: int
    least_survivors: int
    length: int
    bits: int
    schedule: NoiseSchedule | None = None
    """The components of the parties' noise that may be opened"""
    vote: VoteShape | None = None
    """The vote that a sum of ballots decides"""
    attempt: bytes = NO_ATTEMPT
    """The identifier of this attempt at the sum, never used twice"""

    def __post_init__(self) -> None:
        if self.vote is not None and self.length != self.vote.queries * self.vote.classes:
            raise ValueError(f"Expected length={self.length} to be the queries times the classes of {self.vote}.")

    def label(self) -> str:
        """The text that binds messages to this study, sum and parameters; it contains exact numbers only."""
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
        """The noise components to open when so many parties are in the total."""
        return () if self.schedule is None else self.schedule.opened(survivors)

    @property
    def vector_bytes(self) -> int:
        """The size of a vector on the wire."""
        return self.length * self.wire_type.itemsize

    @property
    def wire_type(self) -> np.dtype[np.unsignedinteger[npt.NBitBase]]:
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    def zeros(self) -> Residues:
        """A new running total, of words that wrap by themselves."""
        return np.zeros(self.length, dtype=self.wire_type)

    def reduce(self, words: Words | Residues) -> Words:
        """Words modulo 2^bits."""
        return words.astype(self.wire_type, copy=False).astype(np.uint64)

    def pack(self, words: Words | Residues) -> bytes:
        """Residues as bytes on the wire."""
        return words.astype(self.wire_type, copy=False).tobytes()

    def unpack(self, data: bytes | memoryview) -> Residues:
        """Residues from bytes on the wire; `Rejected` unless they are exactly one vector."""
        if len(data) != self.vector_bytes:
            raise Rejected(f"a vector has {len(data)} bytes; {self.vector_bytes} are due")
        return np.frombuffer(data, dtype=self.wire_type)


@dataclass(frozen=True)
class Openable:
    """The smallest total that an adversary can make a protocol open."""

    parties: int
    """The number of parties in it, colluding ones included"""
    exposure: float = 0.0
    """The probability, over the protocol's randomness, that a smaller one opens; counted in δ"""
    alone: bool = False
    """True if every honest party's vector can be opened alone, with its noise components"""


class Endpoint(ABC):
    """One side of a protocol. All its memory is in `state`."""

    state: msgspec.Struct

    @abstractmethod
    def step(self, incoming: bytes) -> list[Envelope]:
        """Take one message (empty: begin) and return the messages to send."""

    @property
    def has_forgotten(self) -> bool:
        """Whether it has deleted secrets that it no longer needs. Then it only repeats itself; keep no older state."""
        return False

    def dump(self) -> bytes:
        """The whole state; secret, for the endpoint's own disk only."""
        return msgspec.msgpack.encode(self.state, enc_hook=array_to_bytes)

    def load(self, dumped: bytes) -> None:
        """Continue from a dumped state."""
        self.state = msgspec.msgpack.decode(dumped, type=type(self.state), dec_hook=array_from_bytes)


class Party(Endpoint):
    """A data holder's side. It submits its vector once, after the setup."""

    @property
    def seeds(self) -> list[bytes]:
        """Seeds of this party's noise components. The protocol opens those that turn out not to be needed."""
        return []

    @property
    def ready(self) -> bool:
        """Whether the setup is over."""
        return True

    @abstractmethod
    def submit(self, vector: Words) -> list[Envelope]:
        """Send the vector in protected form. Asked again, it repeats the same bytes, whatever it is given then."""

    def forget_vector(self) -> None:
        """Delete the vector after it was sent, so that many parties fit in one process. `submit` then aborts."""


class Coordinator(Endpoint):
    """The side that moves messages and learns the total. The engine decides when a stage ends."""

    setup_stages = 0
    """The number of calls of `advance` between the parties' start and their vectors"""
    helper_messages = 1
    """The most messages that helpers send one after the other in a stage"""

    def advance(self) -> list[Envelope]:
        """Close a stage of the setup and continue with those who are present; `Aborted` if they are too few."""
        raise Aborted("this protocol has no setup to advance")

    def settle(self) -> list[Envelope]:
        """Take in the vectors that have arrived so far; may be repeated."""
        return []

    def part(self) -> bytes | None:
        """What it took in so far, for another simulated coordinator to `absorb`; None: not divisible."""
        return None

    def absorb(self, part: bytes) -> None:
        """Take in what another coordinator of this attempt has; `Rejected` if a party would be in the total twice."""
        raise Rejected("this coordinator cannot take in what another one has")

    def agree(self) -> list[Envelope]:
        """Fix the parties in the total, and have everyone who opens it agree on them; `Aborted` if they are too few."""
        return []

    @property
    def waiting_for(self) -> list[str] | None:
        """The addresses that have not answered in this stage. None: everyone who was sent something owes one answer."""
        return None

    @property
    def blamed(self) -> dict[str, str]:
        """The addresses that were left out of the sum for what they sent, and why."""
        return {}

    @property
    def evidence(self) -> tuple[SignedStatement, ...]:
        """Signed statements that prove what `blamed` says, where there are some."""
        return ()

    @abstractmethod
    def finish(self) -> list[Envelope]:
        """Ask for what is needed to open the total over all parties present; `Aborted` if they are too few."""

    @abstractmethod
    def survivors(self) -> Flags:
        """A flag for each party: whether it is in the total."""

    @abstractmethod
    def total(self) -> Words:
        """The total; `Aborted` if something needed for it never came."""

    def winners(self) -> Integers:
        """The winning class of each query of a vote; `Aborted` if something needed never came."""
        raise Aborted("this protocol computes sums and decides no votes")

    def opened(self) -> dict[int, list[bytes]]:
        """The opened noise seeds of every party in the total."""
        return {}


class Protocol(ABC):
    """The public side of one session. It plans without a roster, and makes endpoints with one."""

    options_type: ClassVar[type[Section]]
    """The protocol's own keys of [summation]"""

    reveals_contributions: ClassVar[bool] = False
    """True if the coordinator sees what each party sends, as in simulations only"""

    serves: ClassVar[frozenset[str]] = frozenset({"sum"})
    """The services offered: "sum" opens a total, "vote" opens the winners of a vote and no totals"""

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
        """The public keys of all who take part."""
        if self._roster is None:
            raise ValueError(f"Expected a roster: {type(self).__name__} needs the public keys to make endpoints.")
        return self._roster

    @property
    def opens_noise(self) -> bool:
        """Whether it can open the seeds of noise components that are not needed."""
        return False

    @property
    def withstands_lies(self) -> bool:
        """Whether only the total is revealed even if the coordinator deviates from the protocol."""
        return False

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions under which only the total is revealed, each to follow 'assumes that'."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on this session for people who read the plan."""
        return ()

    @abstractmethod
    def openable(self, colluding: int) -> Openable:
        """The smallest total that can open if so many parties collude; noise is sized for it."""

    @property
    def parameters(self) -> dict[str, int]:
        """The numbers chosen for this session, to show to people."""
        return {}

    @abstractmethod
    def upload_bytes(self) -> int:
        """The most bytes that one party sends if nobody drops out, computed without keys or vectors."""

    @property
    def party_messages(self) -> int:
        """The number of messages that a party sends one after the other if nobody drops out."""
        return 1

    @property
    def longest_words(self) -> int:
        """The most bytes of numbers in one message: a vector, unless helpers send each other more."""
        return self.session.vector_bytes

    @property
    def largest_message(self) -> int:
        """The largest number of bytes of a message, whoever sends it; a bound, unless the protocol knows better."""
        for_each_party = _ROOM_FOR_A_PARTY + _ROOM_FOR_A_SHARE * (2 + self.session.components)
        label = len(self.session.label().encode())
        return _ROOM + label + self.longest_words + for_each_party * self.session.parties

    def recipients(self, party: int) -> tuple[str, ...]:
        """The addresses that a party sends its vector to."""
        return self.helper_addresses or (COORDINATOR,)

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        """The addresses of the helpers, in the order of their keys in the roster."""
        return ()

    @abstractmethod
    def party(self, index: int, identity: Identity, secrets: SecretStream) -> Party:
        """The endpoint of a party. Its secret randomness for this session comes from `secrets`."""

    @abstractmethod
    def coordinator(self, identity: Identity, secrets: SecretStream) -> Coordinator:
        """The endpoint of the coordinator."""

    def warm_up(self) -> None:  # noqa: B027 (most have nothing to compile)
        """Compile the code that endpoints use ahead of time."""

    def convicts(self, evidence: Sequence[SignedStatement]) -> dict[str, str]:
        """The addresses that these statements prove at fault, and the fault."""
        return {}

    def helper(self, index: int, identity: Identity, secrets: SecretStream) -> Endpoint:
        """The endpoint of a helper. It draws its secrets from `secrets` at once and keeps them in its state."""
        raise ValueError(f"Expected a protocol with helpers; {type(self).__name__} has none.")

    def _checked(self, roster: Roster) -> Roster:
        if (keys := len(roster.parties)) != self.session.parties:
            raise Unsuitable("roster.parties", f"has {keys} keys, but {self.session.parties} parties take part")
        if (needed := len(self.helper_addresses)) and len(roster.helpers) != needed:
            raise Unsuitable("roster.helpers", f"has {len(roster.helpers)} keys, but there are {needed} helpers")
        return roster
