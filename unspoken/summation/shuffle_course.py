"""The public part of a shuffle: its signed messages, and all checks that need no secret.

See `record_shuffle` for the protocol and its security.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation import sizes
from unspoken.summation.abortable import AbortableEndpoint, AbortableState
from unspoken.summation.base import NO_ATTEMPT, Aborted, Message, Rejected, Roster, SignedStatement, address_of
from unspoken.summation.incoming import decode
from unspoken.summation.keys import SIGNATURE_BYTES, verify
from unspoken.summation.mixnet import TOKEN_BYTES, digests, is_usable, onion_bytes, split

DIGEST_BYTES = 32
_TWICE = "the list of {} has the same onion twice: someone copied it"


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
    least: int = 0
    """The fewest tokens of a party"""
    most: int = 1_000_000
    """The most tokens of a party"""

    def label(self) -> str:
        """The text that binds messages to this study, list and attempt."""
        facts = f"{self.parties}/{self.least}-{self.most}/{self.study}/{self.name}"
        return f"tokens/{facts}/{self.attempt.hex()}"

    def size(self, kind: type[Signed], tokens: int) -> int:
        """The most bytes of a message, if it holds so many tokens."""
        bodies: dict[type[Signed], int] = {
            Announce: KEY_BYTES + DIGEST_BYTES,
            Submit: onion_bytes(self.parties) * tokens,
            Publish: onion_bytes(self.parties - 1) * tokens,
            Confirm: KEY_BYTES,
        }
        label, sender = sizes.of_text(self.label()), sizes.of_integer(self.parties - 1)
        after, signature = sizes.of_bytes(DIGEST_BYTES), sizes.of_bytes(SIGNATURE_BYTES)
        return sizes.of_message(kind, label, sender, after, sizes.of_bytes(bodies[kind]), signature)

    @cached_property
    def largest_message(self) -> int:
        """The most bytes of any message: all onions of one party, or of all of them with a layer less."""
        return max(self.size(Submit, self.most), self.size(Publish, self.parties * self.most))


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
    history: list[bytes] = []
    """What was published, in short: an entry for each stage, and for each list of onions. `after` is the digest of all
    entries."""
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
        self._session, self._roster, self._parties, self._label = session, roster, session.parties, session.label()

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
        self._check_alive()
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

    def _take(self, incoming: bytes) -> bool:
        """Take a party's message; `Rejected` if it is not due or not signed, `Aborted` if it is signed but wrong.

        False if it only proves a fault of its sender, and is not taken.
        """
        if len(incoming) > (most := self._session.largest_message):
            raise Rejected(f"a message of {len(incoming):,} bytes came where {most:,} are the most")
        message: Signed = decode(incoming, Announce | Submit | Publish | Confirm)
        sender = message.sender
        if message.session != self._label:
            raise Rejected("a message belongs to another study or another list of tokens")
        if not 0 <= sender < self._parties:
            raise Rejected(f"a message came from party {sender}; the study has {self._parties} parties")
        if self.complete or type(message) is not STAGES[self.state.stage] or sender not in self.waiting_for:
            if self._contradicts(message):
                return False
            raise Rejected(f"{type(message).__name__} came from party {sender} when it was not due")
        verify(self._roster.parties[sender], statement(message), message.signature, f"party {sender}")
        if message.after != self.state.after:
            reason = f"party {sender} signed a different history than the one published here"
            raise Aborted(reason, self._suspected(sender), (evidence(message),))
        self._note(message)
        match message:
            case Announce():
                self._take_key(message)
            case Submit():
                self._take_onions(message)
            case Publish():
                self._take_list(message)
            case _:
                self._take_confirmation(message)
        return True

    def _suspected(self, sender: int) -> tuple[str, ...]:
        """Whom to blame for a message that contradicts earlier ones. Nobody, where the coordinator may have changed
        their order."""
        return ()

    def _note(self, message: Signed) -> None:
        """Note a message that is due and signed."""

    def _contradicts(self, message: Signed) -> bool:
        """Note that a sender has signed something else before, if this message proves it."""
        return False

    def _take_key(self, message: Signed) -> None:
        state, sender, body, size = self.state, message.sender, message.body, KEY_BYTES + DIGEST_BYTES
        if len(body) != size:
            raise blaming(message, f"party {sender} announced a key and a digest of {len(body)} bytes; {size} were due")
        if not is_usable(bytes(body[:KEY_BYTES])):
            raise blaming(message, f"party {sender} announced an invalid key", Exhibit(bytes(body)))
        if body[:KEY_BYTES] in [other[:KEY_BYTES] for other in state.bodies.values()]:
            raise Aborted(f"party {sender} announced the key of another party", self._suspected(sender))
        if len(bodies := self._gather(message)) == self._parties:
            state.keys = [body[:KEY_BYTES] for body in bodies]
            state.commitments = [body[KEY_BYTES:] for body in bodies]
            self._close_stage(b"".join(bodies))

    def _take_onions(self, message: Signed) -> None:
        state, sender, size = self.state, message.sender, onion_bytes(self._parties)
        count, rest = divmod(len(message.body), size)
        if rest:
            reason = f"party {sender} submitted {len(message.body)} bytes; its onions must have {size} each"
            raise blaming(message, reason)
        if not self._session.least <= count <= self._session.most:
            allowed = f"{self._session.least} to {self._session.most} are allowed"
            raise blaming(message, f"party {sender} submitted {count} onions; {allowed}")
        if len(bodies := self._gather(message)) == self._parties:
            state.counts = [len(body) // size for body in bodies]
            state.onions = b"".join(bodies)
            self._check_submissions()
            self._close_stage(submitted(state.counts, self._digest()))

    def _check_submissions(self) -> None:
        """Refuse an onion that occurs twice: whoever copied it could trace the original."""
        known: set[bytes] = set()
        # In the order of arrival, by which the later of two is the copy.
        for party, body in self.state.bodies.items():
            marks = digests(split(body, self._parties))
            if known.intersection(marks) or len(set(marks)) != len(marks):
                raise Aborted(_TWICE.format("all submissions"), self._suspected(party))
            known.update(marks)

    def _take_list(self, message: Signed) -> None:
        state, sender, size = self.state, message.sender, onion_bytes(self._parties - message.sender - 1)
        if len(message.body) != size * sum(state.counts):
            raise blaming(
                message,
                f"party {sender} published a list of {len(message.body)} bytes; "
                f"{sum(state.counts)} onions of {size} bytes were due",
                Exhibit(history=state.history),
            )
        state.onions, state.turn = bytes(message.body), state.turn + 1
        digest = self._digest(message)
        if state.turn == self._parties:
            self._close_stage(digest)
        else:
            self._log(digest)

    def _take_confirmation(self, message: Signed) -> None:
        sender, body = message.sender, message.body
        if len(body) != KEY_BYTES:
            raise blaming(message, f"party {sender} revealed a part of the seed of {len(body)} bytes")
        if commitment(self._label, sender, body) != self.state.commitments[sender]:
            reason = f"party {sender} revealed a part of the seed that does not match its commitment"
            raise blaming(message, reason, Exhibit(bytes(body), self.state.history))
        if len(bodies := self._gather(message)) == self._parties:
            self.state.parts_of_seed = bodies
            self._close_stage(b"".join(bodies))

    def _digest(self, published: Signed | None = None) -> bytes:
        """The digest of the present list. Its onions must all differ, because whoever copied one could trace the
        original."""
        found = digests(split(self.state.onions, self._parties - self.state.turn))
        if published is not None and len(set(found)) != len(found):
            raise blaming(published, _TWICE.format(f"party {published.sender}"))
        self._look_at(found)
        return hashlib.sha256(b"".join(found)).digest()

    def _look_at(self, found: list[bytes]) -> None:
        """Check a list of digests; a party looks for its own onions."""

    def _gather(self, message: Signed) -> list[bytes]:
        """Keep one party's body of a stage, and return all bodies so far, in the parties' order."""
        self.state.bodies[message.sender] = bytes(message.body)
        return [self.state.bodies[party] for party in sorted(self.state.bodies)]

    def _close_stage(self, published: bytes) -> None:
        self._log(published)
        self.state.stage += 1
        self.state.bodies = {}

    def _log(self, published: bytes) -> None:
        self.state.history.append(published)
        self.state.after = digest_after(self.state.after, published)


def statement(message: Signed) -> bytes:
    """The statement that a party signs: this body, in this stage of this list, after everything published before.

    It contains the length of the body, so that a wrong length is proved by the statement alone.
    """
    kind = message.__struct_config__.tag
    facts = f"{kind}/{message.session}/{message.sender}/{len(message.body)}/"
    return facts.encode() + message.after + hashlib.sha256(message.body).digest()


class Exhibit(Message, frozen=True, tag="tokens/exhibit"):
    """What a signed statement is about, for those who were not there: it contains only the digests of both."""

    body: bytes = b""
    """The body of the message, if it is needed"""
    history: list[bytes] = []
    """What was published before it, if it is needed"""


def evidence(message: Signed, exhibit: Exhibit | None = None) -> SignedStatement:
    """A party's signature, for others to check (`summation.shuffle_evidence`)."""
    shown = b"" if exhibit is None else msgspec.msgpack.encode(exhibit)
    return SignedStatement(address_of(message.sender), statement(message), message.signature, shown)


def blaming(message: Signed, reason: str, exhibit: Exhibit | None = None) -> Aborted:
    """The abort of a shuffle because of a signed message that is wrong, given what its sender says came before it."""
    return Aborted(reason, (address_of(message.sender),), (evidence(message, exhibit),))


def digest_after(before: bytes, published: bytes) -> bytes:
    """The digest of a history with one entry more."""
    return hashlib.sha256(before + published).digest()


def submitted(counts: list[int], digest: bytes) -> bytes:
    """The history's entry about the submitted onions: their numbers, and the digest of all."""
    return ",".join(map(str, counts)).encode() + b";" + digest


def counts_in(entry: bytes) -> list[int] | None:
    """The numbers of onions in such an entry; None if it is another one.

    >>> counts_in(submitted([3, 0, 12], bytes(32))), counts_in(bytes(40))
    ([3, 0, 12], None)
    """
    found = re.fullmatch(rb"(\d{1,9}(?:,\d{1,9})*);.{%d}" % DIGEST_BYTES, entry, re.DOTALL)
    return None if found is None else [int(count) for count in found[1].split(b",")]


def commitment(label: str, party: int, part: bytes | memoryview) -> bytes:
    """A commitment to a party's part of the seed."""
    return hashlib.sha256(f"seed/{label}/{party}/".encode() + part).digest()


def beginning(label: str) -> bytes:
    return hashlib.sha256(label.encode()).digest()


def rows(tokens: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(tokens, dtype=np.uint8).reshape(-1, TOKEN_BYTES)
