"""What a party and a helper have in common: each takes a message, stores what follows from it, and only then answers.

A role's stored state is its last snapshot and the messages that it has taken since. Endpoints are deterministic, so
processing these messages again after a crash restores the same state. A step that draws randomness or must not be done
twice, such as making a vector, is followed by a snapshot, and is never repeated.

If the last message comes again, because its answer was lost, it gets the same answer, byte for byte, also after a
crash.

Of large messages that need no answer, a helper stores only the names (`store.Keeper`), so after a crash it lacks their
content. If it has sent nothing since they came, it treats them as never received. Otherwise it sends nothing more until
their senders have repeated them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple

from unspoken.methods.parameters import Refused
from unspoken.roles.messages import Carried, Over, carried, unpacked
from unspoken.roles.store import Keeper, MemoryStore, State, Store, Taken, name_of
from unspoken.summation.base import Aborted, Envelope, Message, Rejected, SignedStatement

_MOST_STATEMENTS = 64
"""The most statements that are remembered as evidence, since a liar may end attempts as often as it likes"""


class Reaction(NamedTuple):
    """What a message leads to."""

    envelopes: list[Envelope]
    is_new: bool = False
    """Whether the message alone does not restore the new state, so that a snapshot is due"""
    is_repeated: bool = False
    """Whether the message changes nothing, and would get the same answer again, also after a crash"""


class Role(ABC, Generic[State]):
    """A participant of a study, with a store."""

    takes: ClassVar[Any]
    """The types of the messages that it takes"""
    names: ClassVar[bool] = False
    """Whether the store has only the names of large messages that need no answer"""
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
        """Whether messages from before a crash are being processed again"""
        self._taken: list[Taken] = []
        self._missing: dict[bytes, int] = {}
        """Messages that their senders must repeat: each one's name, and its place among the messages taken"""
        self.blamed: dict[str, str] = {}
        """The faults that ended attempts, by address, as far as this process has seen them"""
        self.evidence: tuple[SignedStatement, ...] = ()
        """Signed statements that prove them, where there are some (`roles.evidence` checks them)"""
        self._restore()

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message, store what follows, and return what to send. `Refused` and `Rejected` change nothing.

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
        except Aborted as ended:
            self._blame(ended)
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

    def leave(self) -> None:
        """The study is over for this participant: nothing that costs something leaves any more."""

    def _answer(self, message: Message) -> Reaction:
        match message:
            case Over():
                self._forget()
                self._missing = {}
                return Reaction([], True)
            case Carried(attempt, body):
                self._check_attempt(attempt)
                answer = self._step(bytes(body))
                return answer._replace(envelopes=carried(answer.envelopes, attempt))
            case _:
                begun: Any = message
                envelopes = self._begin(begun)
                self._missing = {}
                return Reaction(carried(envelopes, begun.attempt), True)

    def _check_attempt(self, attempt: bytes) -> None:
        if attempt != self._attempt:
            raise Rejected("a message of an attempt that is not under way came")

    def _blame(self, ended: Aborted) -> None:
        """Remember who is to blame for the end of an attempt."""
        self.blamed |= ended.faults or dict.fromkeys(ended.blamed, str(ended))
        new = tuple(each for each in ended.evidence if each not in self.evidence)
        self.evidence = (self.evidence + new)[:_MOST_STATEMENTS]

    def _ended(self) -> None:
        """The attempt is given up."""
        self._forget()
        self._last = b"", []
        self._keeper.replace(self._snapshot(*self._last))

    def _keep(self, store: Callable[[], None]) -> None:
        """Store something; if that fails, go back to the state before."""
        try:
            store()
        except BaseException:
            self._restore()
            raise

    def _restore(self) -> None:
        """Take on the state that is in the store."""
        self._state, taken = self._keeper.read()
        self._last, self._taken, self._missing = self._load(), taken, {}
        if any(message.was_answered for message in taken):
            self._missing = {message.content: place for place, message in enumerate(taken) if message.is_named}
        if not self._missing:
            self._take_again()

    def _find(self, incoming: bytes) -> list[Envelope]:
        """Take a repeated message whose content was lost in a crash."""
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
            # Only some messages were taken again; a helper that went on from there would have forgotten what it signed.
            self._restore()
            raise
        return []

    def _take_again(self) -> None:
        """Process the messages since the snapshot again, except those whose content is lost."""
        self._repeats, some_are_forgotten = True, any(message.is_named for message in self._taken)
        try:
            for incoming, is_forgotten, _ in self._taken:
                try:
                    if not is_forgotten:
                        self._take_one_again(incoming)
                except Rejected:
                    # It depends on a message whose content is lost: treat both as never received.
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
    def _begin(self, asked: Any, /) -> list[Envelope]:
        """Begin an attempt. `Refused` changes nothing."""

    @abstractmethod
    def _step(self, body: bytes) -> Reaction:
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
