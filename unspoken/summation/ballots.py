"""The facts and messages of a vote, and the party's side, which sends ballots in parts.

See `tally` for the protocol and its security.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import TypeAlias

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation.argmax import rounds_of_argmax
from unspoken.summation.base import NO_ATTEMPT, Aborted, Envelope, Message, Party, Rejected, Roster, Session
from unspoken.summation.keys import Identity, agree, agreement_key, public_key, seal
from unspoken.summation.masks import add_masks
from unspoken.summation.replicated import Sharing
from unspoken.types import Integers, Words

TALLIERS = (3, 5, 7)
"""The allowed numbers of talliers; nine would need 126 shares of each value"""
MOST = 2**62
"""A strict upper bound on totals, so that the difference of two has a sign"""
_HEADER, _FOR_EACH_PARTY = 4096, 112
"""Bytes that a message may have besides numbers: in all, and for each party (index, one-time key, signature)"""
INTRODUCTION, AGREEMENT, FIRST_ROUND = 0, 1, 2
"""The numbers of the messages from one tallier to another"""


@dataclass(frozen=True)
class Poll:
    """The facts that all endpoints of one vote agree on."""

    study: str
    """The study's digest"""
    name: str
    """The name of this vote within the study"""
    parties: int
    least_survivors: int
    queries: int
    classes: int
    bound: int
    """The largest absolute value of a total"""
    talliers: int = TALLIERS[0]
    attempt: bytes = NO_ATTEMPT
    """The identifier of this attempt at the vote"""

    def __post_init__(self) -> None:
        if self.talliers not in TALLIERS:
            raise ValueError(f"Expected talliers={self.talliers} to be one of {', '.join(map(str, TALLIERS))}.")
        if not 0 <= self.bound < MOST:
            raise ValueError(f"Expected 0 <= bound={self.bound} < 2^62; scale the ballots down.")
        if self.queries < 1 or self.classes < 2:
            raise ValueError(f"Expected queries={self.queries} >= 1 and classes={self.classes} >= 2.")
        if not 1 <= self.least_survivors <= self.parties:
            raise ValueError(f"Expected 1 <= least_survivors={self.least_survivors} <= parties={self.parties}.")

    @cached_property
    def session(self) -> Session:
        name = f"vote/{self.name}/{self.queries}x{self.classes}/{self.bound}/{self.talliers}"
        length = self.queries * self.classes
        # What a vote reveals depends on talliers that collude, not on parties: its label names none.
        return Session(self.study, name, self.parties, 0, self.least_survivors, length, 64, attempt=self.attempt)

    @cached_property
    def sharing(self) -> Sharing:
        return Sharing(self.talliers)

    @property
    def rounds(self) -> int:
        """The number of messages from a tallier to each tallier before it, after the agreement."""
        return 1 + rounds_of_argmax(self.classes, self.sharing)

    @property
    def longest_words(self) -> int:
        """The most bytes of numbers in one message: ballots, the words of a round, or the shares of the winners."""
        threshold = self.sharing.threshold
        numbers = max(self.classes, threshold * (self.classes // 2), comb(2 * threshold, threshold))
        return 8 * self.queries * numbers

    @cached_property
    def largest_message(self) -> int:
        """A bound on the bytes of any message of this vote."""
        return _HEADER + len(self.session.label().encode()) + self.longest_words + _FOR_EACH_PARTY * self.parties

    def sized(self, incoming: bytes) -> bytes:
        """The message; `Rejected` if it is larger than any of this vote, before it is decoded."""
        if len(incoming) > self.largest_message:
            raise Rejected(f"a message of {len(incoming):,} bytes came where {self.largest_message:,} are the most")
        return incoming


class Ballot(Message, frozen=True, tag="tally/ballot"):
    """Party to tallier: a part of its ballots, sealed to the tallier's key."""

    session: str
    sender: int
    tallier: int
    key: bytes
    signature: bytes
    sealed: bytes


class Framed(Message, frozen=True, tag="tally/framed"):
    """Any message between a tallier and the coordinator: an authenticated body."""

    session: str
    tallier: int
    body: memoryview


class Roll(Message, frozen=True, tag="tally/roll"):
    """Coordinator to tallier: a request to name the ballots that it holds."""

    start: int
    """The number of the tallier's ballots that the coordinator knows already, in the order of arrival"""


class Held(Message, frozen=True, tag="tally/held"):
    """Tallier to coordinator: the ballots that it holds. It is sent once the tallier knows the other talliers' keys."""

    start: int
    ballots: list[tuple[int, bytes, bytes]]
    """The sender, the one-time key and the signature of each ballot from the `start`-th on"""


class Count(Message, frozen=True, tag="tally/count"):
    """Coordinator to tallier: the parties to count, first to agree on, then to begin with."""

    survivors: bytes
    counted: bytes
    """The digest of these parties and of their one-time keys"""
    signature: bytes
    """The coordinator's, which signs one digest a vote"""
    begin: bool


class Agreed(Message, frozen=True, tag="tally/agreed"):
    """Tallier to coordinator: all talliers will count the same ballots."""

    counted: bytes


class PeerMessage(Message, frozen=True, tag="tally/relay"):
    """Tallier to tallier through the coordinator; `peer` is the receiver, and after the relay the sender."""

    peer: int
    number: int
    body: memoryview


class Opening(Message, frozen=True, tag="tally/opening"):
    """Tallier to coordinator: all its shares of the winners, concatenated."""

    shares: memoryview


class Introduction(Message, frozen=True, tag="tally/introduction"):
    """Tallier to tallier: a key for this vote only, and a commitment to a seed."""

    key: bytes
    commitment: bytes


class Agreement(Message, frozen=True, tag="tally/agreement"):
    """Tallier to tallier: a digest of what is counted, the seed, and contributions to the keys of common groups."""

    counted: bytes
    signature: bytes
    """The coordinator's, of the digest"""
    seed: bytes
    keys: list[bytes]


ToTallier: TypeAlias = Roll | Count | PeerMessage
FromTallier: TypeAlias = Held | Agreed | PeerMessage | Opening


def address(tallier: int) -> str:
    return f"tallier:{tallier}"


def explicit_part(party: int, poll: Poll) -> int:
    """The tallier that gets an explicit part instead of a seed; it rotates with the party, to share the load."""
    return party % poll.talliers


def statement(label: str, sender: int, key: bytes) -> bytes:
    """The statement that a party signs: its one-time key, hence everything sealed under that key."""
    return f"ballot/{label}/{sender}/".encode() + key


def sealing_key(secret: bytes, public: bytes, sender_key: bytes, label: str, sender: int, tallier: int) -> bytes:
    """The key for one party's message to one tallier, bound to both, the vote and the sender's one-time key."""
    return agree(secret, public, f"seal/{label}/{sender}/{address(tallier)}/".encode() + sender_key)


def commitment(label: str, tallier: int, seed: bytes) -> bytes:
    return hashlib.sha256(f"tie/{label}/{tallier}/".encode() + seed).digest()


class PartyState(msgspec.Struct):
    key: bytes
    masks: list[bytes]
    """The seeds of the parts of all talliers but one"""
    submitted: list[bytes] = []


class TallyParty(Party):
    def __init__(self, poll: Poll, roster: Roster, index: int, identity: Identity, secrets: SecretStream) -> None:
        self._poll, self._roster, self._index, self._identity = poll, roster, index, identity
        self.state: PartyState = PartyState(secrets.key(), [secrets.key() for _ in range(poll.talliers - 1)])

    def step(self, incoming: bytes) -> list[Envelope]:
        return []

    def submit(self, ballots: Integers | Words) -> list[Envelope]:
        """Send the ballots (Q, K) in parts. If asked again, repeat the same bytes: two different ballots under one mask
        would reveal their difference."""
        if self.state.submitted == [b""] * self._poll.talliers:
            raise Aborted("a party was asked for its ballots again after they were sent and deleted")
        if not self.state.submitted:
            masks, session = self.state.masks, self._poll.session
            rest = add_masks(self._checked(ballots), [(mask, False) for mask in masks], session)
            parts = masks.copy()
            parts.insert(explicit_part(self._index, self._poll), session.pack(rest))
            self.state.submitted = [self._sealed(tallier, part) for tallier, part in enumerate(parts)]
        return [Envelope(address(tallier), body) for tallier, body in enumerate(self.state.submitted)]

    def forget_vector(self) -> None:
        """Delete all that this party has of the vote: ballots, keys and masks."""
        self.state = PartyState(b"", [], [b""] * self._poll.talliers)

    def _checked(self, ballots: Integers | Words) -> Words:
        if ballots.dtype not in (np.int64, np.uint64) or ballots.size != self._poll.session.length:
            raise ValueError(f"Expected {self._poll.queries} × {self._poll.classes} 64-bit whole numbers.")
        numbers = np.ascontiguousarray(ballots).reshape(-1).view(np.int64)
        if (numbers > self._poll.bound).any() or (numbers < -self._poll.bound).any():
            raise ValueError(f"Expected ballots within the bound={self._poll.bound} on totals.")
        return numbers.view(np.uint64)

    def _sealed(self, tallier: int, plain: bytes) -> bytes:
        label, key = self._poll.session.label(), public_key(self.state.key)
        theirs = agreement_key(self._roster.helpers[tallier])
        sealing = sealing_key(self.state.key, theirs, key, label, self._index, tallier)
        signature = self._identity.sign(statement(label, self._index, key))
        return msgspec.msgpack.encode(Ballot(label, self._index, tallier, key, signature, seal(sealing, 0, plain)))
