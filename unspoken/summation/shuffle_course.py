"""The public part of a shuffle: its signed messages, and all checks that need no secret.

See `record_shuffle` for the protocol and its security.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.abortable import AbortableEndpoint, AbortableState
from unspoken.summation.base import NO_ATTEMPT, Aborted, Message, Rejected, Roster, decode
from unspoken.summation.keys import verify
from unspoken.summation.mixnet import TOKEN_BYTES, digests, onion_bytes, split

DIGEST_BYTES = 32


@dataclass(frozen=True)
class ShuffleSession:
    """The facts that all endpoints of one list of tokens agree on."""

    study: str
    """The study's digest"""
    name: str
    """The name of this list within the study, used once"""
    parties: int
    attempt: bytes = NO_ATTEMPT
    """The identifier of this attempt at the list, never used twice"""

    def label(self) -> str:
        """The text that binds messages to this study, list and attempt."""
        return f"tokens/{self.parties}/{self.study}/{self.name}/{self.attempt.hex()}"


class Signed(Message, frozen=True):
    """A party's message, relayed unchanged by the coordinator to everyone."""

    session: str
    sender: int
    after: bytes
    """The digest of everything published before"""
    body: memoryview
    signature: bytes


class Announce(Signed, frozen=True, tag="tokens/announce"):
    """The key of the party's layer, and a commitment to its part of the seed."""


class Submit(Signed, frozen=True, tag="tokens/submit"):
    """The party's own onions, concatenated."""


class Publish(Signed, frozen=True, tag="tokens/publish"):
    """All onions without the party's layer, shuffled."""


class Confirm(Signed, frozen=True, tag="tokens/confirm"):
    """The party's part of the seed; confirms that the list is complete and has all its tokens."""


STAGES: tuple[type[Signed], ...] = (Announce, Submit, Publish, Confirm)
"""The types of messages due from every party, in order"""


class ShuffleState(AbortableState):
    """The public state, the same at every endpoint that has taken the same messages."""

    after: bytes
    stage: int = 0
    bodies: dict[int, bytes] = {}
    """The bodies of this stage (keys or onions) by party"""
    keys: list[bytes] = []
    commitments: list[bytes] = []
    parts_of_seed: list[bytes] = []
    counts: list[int] = []
    onions: bytes = b""
    turn: int = 0


class ShuffleEndpoint(AbortableEndpoint):
    """Takes what parties publish, and makes all checks that need no secret."""

    state: ShuffleState

    def __init__(self, session: ShuffleSession, roster: Roster) -> None:
        self._roster, self._parties, self._label = roster, session.parties, session.label()

    @property
    def complete(self) -> bool:
        """Whether all parties have confirmed the list."""
        return self.state.stage == len(STAGES)

    @property
    def waiting_for(self) -> list[int]:
        """The parties whose messages are due."""
        if self.complete:
            return []
        if STAGES[self.state.stage] is Publish:
            return [self.state.turn]
        return [party for party in range(self._parties) if party not in self.state.bodies]

    def all_tokens(self) -> npt.NDArray[np.uint8]:
        """The tokens of all parties (n, 16), in secret order; `Aborted` unless all parties have confirmed them."""
        if self.state.failed:
            raise Aborted(self.state.failed)
        if not self.complete:
            raise Aborted(f"the list of tokens is not complete: parties {self.waiting_for} have not answered")
        return rows(self.state.onions)

    def seed(self) -> int:
        """A public seed that nobody could know or choose before the list was fixed; `Aborted` without a list."""
        self.all_tokens()
        return int.from_bytes(hashlib.sha256(b"".join(self.state.parts_of_seed)).digest()[:16])

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of tokens of each party; empty until all have submitted theirs."""
        return tuple(self.state.counts)

    def _take(self, incoming: bytes) -> None:
        """Take a party's message; `Rejected` if it is not due or not signed, `Aborted` if it is signed but wrong."""
        message: Signed = decode(incoming, Announce | Submit | Publish | Confirm)
        sender = message.sender
        if message.session != self._label:
            raise Rejected("a message belongs to another study or another list of tokens")
        if not 0 <= sender < self._parties:
            raise Rejected(f"a message came from party {sender}; the study has {self._parties} parties")
        if self.complete or type(message) is not STAGES[self.state.stage] or sender not in self.waiting_for:
            raise Rejected(f"{type(message).__name__} came from party {sender} when it was not due")
        verify(self._roster.parties[sender], statement(message), message.signature, f"party {sender}")
        if message.after != self.state.after:
            raise Aborted(f"party {sender} signed a different history than the one published here")
        match message:
            case Announce():
                self._take_key(sender, message.body)
            case Submit():
                self._take_onions(sender, message.body)
            case Publish():
                self._take_list(sender, message.body)
            case _:
                self._take_confirmation(sender, message.body)

    def _take_key(self, sender: int, key: memoryview) -> None:
        state = self.state
        if len(key) != KEY_BYTES + DIGEST_BYTES:
            raise Aborted(
                f"party {sender} announced a key and a digest of {len(key)} bytes; {KEY_BYTES + DIGEST_BYTES} were due"
            )
        if key[:KEY_BYTES] in [body[:KEY_BYTES] for body in state.bodies.values()]:
            raise Aborted(f"party {sender} announced the key of another party")
        if len(bodies := self._gather(sender, key)) == self._parties:
            state.keys = [body[:KEY_BYTES] for body in bodies]
            state.commitments = [body[KEY_BYTES:] for body in bodies]
            self._close_stage(b"".join(bodies))

    def _take_onions(self, sender: int, onions: memoryview) -> None:
        state, size = self.state, onion_bytes(self._parties)
        if len(onions) % size:
            raise Aborted(f"party {sender} submitted {len(onions)} bytes; its onions must have {size} each")
        if len(bodies := self._gather(sender, onions)) == self._parties:
            state.counts = [len(body) // size for body in bodies]
            state.onions = b"".join(bodies)
            self._close_stage(repr(state.counts).encode() + self._checked_digest("all submissions"))

    def _take_list(self, sender: int, onions: memoryview) -> None:
        state, size = self.state, onion_bytes(self._parties - sender - 1)
        if len(onions) != size * sum(state.counts):
            raise Aborted(
                f"party {sender} published a list of {len(onions)} bytes; "
                f"{sum(state.counts)} onions of {size} bytes were due"
            )
        state.onions, state.turn = bytes(onions), state.turn + 1
        digest = self._checked_digest(f"party {sender}")
        if state.turn == self._parties:
            self._close_stage(digest)
        else:
            self._log(digest)

    def _take_confirmation(self, sender: int, body: memoryview) -> None:
        if hashlib.sha256(body).digest() != self.state.commitments[sender]:
            raise Aborted(f"party {sender} revealed a part of the seed that does not match its commitment")
        if len(bodies := self._gather(sender, body)) == self._parties:
            self.state.parts_of_seed = bodies
            self._close_stage(b"".join(bodies))

    def _checked_digest(self, publisher: str) -> bytes:
        """The digest of the present list, whose onions must all differ, as a copy would mark its original."""
        found = digests(split(self.state.onions, self._parties - self.state.turn))
        if len(set(found)) != len(found):
            raise Aborted(f"the list of {publisher} has the same onion twice: someone copied it")
        self._look_at(found)
        return b"".join(found)

    def _look_at(self, found: list[bytes]) -> None:
        """Check a list of digests; a party looks for its own onions."""

    def _gather(self, sender: int, body: memoryview) -> list[bytes]:
        """Keep one party's body of a stage, and return all bodies so far, in the parties' order."""
        self.state.bodies[sender] = bytes(body)
        return [self.state.bodies[party] for party in sorted(self.state.bodies)]

    def _close_stage(self, published: bytes) -> None:
        self._log(published)
        self.state.stage += 1
        self.state.bodies = {}

    def _log(self, published: bytes) -> None:
        self.state.after = hashlib.sha256(self.state.after + published).digest()


def statement(message: Signed) -> bytes:
    """The statement that a party signs: this body, in this stage of this list, after everything published before."""
    kind = message.__struct_config__.tag
    return (
        f"{kind}/{message.session}/{message.sender}/".encode() + message.after + hashlib.sha256(message.body).digest()
    )


def beginning(label: str) -> bytes:
    return hashlib.sha256(label.encode()).digest()


def rows(tokens: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(tokens, dtype=np.uint8).reshape(-1, TOKEN_BYTES)
