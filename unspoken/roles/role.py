"""The common part of a party and a helper: each takes a message, keeps what follows from it, and then answers.

A role is its last snapshot and the messages that it took since: endpoints are deterministic, so that taking them again
leads to the same state. Whatever uses up randomness or must not be done twice, such as making a vector, is followed by
a snapshot, and is never done again.

The last message may come again, when its answer was lost: it gets the same answer. After a crash it does, too. What a
snapshot came with is kept, byte for byte.

A helper's large messages that needed no answer are only named in its store (`store.Keeper`). After a crash those are
missing. If nothing was said since they came, it is as if they had never come. Otherwise the role says nothing more
until their senders have repeated them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple

from unspoken.methods.parameters import Refused
from unspoken.roles.messages import Carried, Over, carried, unpacked
from unspoken.roles.store import Keeper, MemoryStore, State, Store, Taken, name_of
from unspoken.summation.base import Aborted, Envelope, Message, Rejected


class Answer(NamedTuple):
    """The consequences of a message."""

    envelopes: list[Envelope]
    is_new: bool = False
    """Whether there is more to keep than the message, so that a snapshot is due"""
    is_repeated: bool = False
    """Whether it changes nothing, and will be said again to the same message, after a crash as well"""


class Role(ABC, Generic[State]):
    """A participant of a study, with a store."""

    takes: ClassVar[Any]
    """The messages that it takes"""
    names: ClassVar[bool] = False
    """Whether large messages that need no answer are only named in the store"""
    _state: State
    _largest: int
    """The largest message that it takes now"""
    largest: int
    """The largest message that may come in the study"""

    def __init__(self, store: Store | None, kind: type[State]) -> None:
        self._keeper = Keeper(store or MemoryStore(), kind, names=self.names)
        self._last: tuple[bytes, list[Envelope]] = (b"", [])
        """The last message, and the answer to it"""
        self._repeats = False
        """Whether messages are taken again that were taken before a crash"""
        self._taken: list[Taken] = []
        self._missing: dict[bytes, int] = {}
        """Messages that must come again, by their names, and their places among those that were taken"""
        self._restore()

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message and say what to send, once that is kept. `Refused` and `Rejected` change nothing.

        After `Aborted` the attempt is over: it is given up for good, and its secrets are forgotten.
        """
        asked, answer = self._last
        if incoming and incoming == asked:
            return answer
        message = unpacked(incoming, self.takes, self._largest)
        if isinstance(message, Over) and message.attempt != self._attempt:
            return []
        if self._missing and isinstance(message, Carried) and message.attempt == self._attempt:
            return self._find(incoming)
        try:
            envelopes, is_new, is_repeated = self._answer(message)
        except (Refused, Rejected):
            raise
        except Aborted:
            self._keep(self._ended)
            raise
        except BaseException:
            self._restore()
            raise
        if is_new or self._keeper.is_long:
            kept = self._snapshot(incoming, envelopes)
            self._keep(lambda: self._keeper.replace(kept, answered=bool(envelopes)))
        elif not is_repeated:
            self._keep(lambda: self._keeper.append(incoming, answered=bool(envelopes)))
        self._last = incoming, envelopes
        return envelopes

    def _answer(self, message: Message) -> Answer:
        match message:
            case Over():
                self._forget()
                self._missing = {}
                return Answer([], True)
            case Carried(attempt, body):
                self._check_attempt(attempt)
                answer = self._step(bytes(body))
                return answer._replace(envelopes=carried(answer.envelopes, attempt))
            case _:
                begun: Any = message
                envelopes = self._begin(begun)
                self._missing = {}
                return Answer(carried(envelopes, begun.attempt), True)

    def _check_attempt(self, attempt: bytes) -> None:
        if attempt != self._attempt:
            raise Rejected("a message of an attempt that is not under way came")

    def _ended(self) -> None:
        """The attempt is given up."""
        self._forget()
        self._last = b"", []
        self._keeper.replace(self._snapshot(*self._last))

    def _keep(self, kept: Any) -> None:
        """Keep something, or be as before."""
        try:
            kept()
        except BaseException:
            self._restore()
            raise

    def _restore(self) -> None:
        """Be what the store says."""
        self._state, taken = self._keeper.read()
        self._last, self._taken, self._missing = self._load(), taken, {}
        if any(message.was_answered for message in taken):
            self._missing = {message.content: place for place, message in enumerate(taken) if message.is_named}
        if not self._missing:
            self._take_again()

    def _find(self, incoming: bytes) -> list[Envelope]:
        """A message comes again that was taken before a crash."""
        place = self._missing.pop(name_of(incoming), None)
        if place is None:
            raise Rejected(f"{len(self._missing)} messages that came before a crash must come again before any other")
        self._taken[place] = Taken(incoming)
        if self._missing:
            return []
        try:
            self._take_again()
        except (Rejected, Aborted):
            self._keep(self._ended)
            raise Aborted("a message that came before a crash came again in another form") from None
        except BaseException:
            # Only a part was taken again: a helper that goes on from there has forgotten what it signed.
            self._restore()
            raise
        return []

    def _take_again(self) -> None:
        """Take all messages again that were taken since the snapshot, but for those that are forgotten."""
        self._repeats, some_are_forgotten = True, any(message.is_named for message in self._taken)
        try:
            for incoming, is_forgotten, _ in self._taken:
                try:
                    if not is_forgotten:
                        self._take_one_again(incoming)
                except Rejected:
                    # It came after one that is forgotten, and is worth nothing without it: as if neither had come.
                    if not some_are_forgotten:
                        raise
        finally:
            self._repeats = False
        if some_are_forgotten:
            self._keep(lambda: self._keeper.replace(self._snapshot(*self._last)))
        self._taken = []

    def _take_one_again(self, incoming: bytes) -> None:
        message: Any = unpacked(incoming, Carried, len(incoming))
        self._last = incoming, carried(self._step(bytes(message.body)).envelopes, message.attempt)

    @property
    @abstractmethod
    def _attempt(self) -> bytes | None:
        """The attempt under way."""

    @abstractmethod
    def _begin(self, message: Any) -> list[Envelope]:
        """Begin an attempt. `Refused` changes nothing."""

    @abstractmethod
    def _step(self, body: bytes) -> Answer:
        """Take a message of the protocol under way. `Rejected` changes nothing."""

    @abstractmethod
    def _forget(self) -> None:
        """The attempt under way is over: forget what it was about."""

    @abstractmethod
    def _snapshot(self, incoming: bytes, envelopes: list[Envelope]) -> State:
        """All that is to be kept, with the last message and the answer to it while the attempt is under way."""

    @abstractmethod
    def _load(self) -> tuple[bytes, list[Envelope]]:
        """Go on from the state that was read: the last message and its answer."""
