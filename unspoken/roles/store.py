"""The store of a role, for all that must survive a crash: one snapshot, and the messages that were taken since.

Everything that an outgoing message depends on is stored before the message leaves. Records on which nothing sent
depends may wait: an appended record or a snapshot is safe once `sync` has returned, and one `sync` may serve many. So a
power cut never takes a role back behind its last answer. What it then has not taken are messages without an answer,
which engines repeat. `roles.file_store` is the store on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import msgspec

from unspoken.errors import UnspokenError

State = TypeVar("State", bound=msgspec.Struct)

MOST_MESSAGES = 1 << 14
"""After so many messages a new snapshot is made, so that a sender of very many messages cannot fill the disk."""
LARGE = 1 << 16
"""Messages that need no answer and have more bytes than this are stored by name only"""
_BEGINNING, _END = 1024, 64
_ANSWERED, _UNANSWERED, _NAMED, _NOTED = b"a", b"u", b"n", b"c"


class StoreError(UnspokenError):
    """A state that cannot be used, or could not be kept. The message says what to do."""


def not_kept(error: OSError) -> StoreError:
    """The error for a disk that cannot be written to, in one sentence."""
    return StoreError(
        f"the state could not be kept ({error.strerror or error}); make room, and start the same command again: it "
        "goes on from there."
    )


class Store(ABC):
    """A journal for one role. If an operation fails, what was there before is still there."""

    @abstractmethod
    def read(self) -> list[bytes]:
        """All records: a snapshot, and what was appended to it. Empty if nothing was ever stored."""

    @abstractmethod
    def append(self, record: bytes) -> None:
        """Add a record. It is kept when `sync` has returned."""

    @abstractmethod
    def sync(self) -> None:
        """Make all that was appended safe."""

    @abstractmethod
    def put(self, snapshot: bytes) -> None:
        """Put a snapshot in place of all records, which are erased. It is safe once `sync` has returned."""

    def replace(self, snapshot: bytes) -> None:
        """Put a snapshot in place of all records, and make it safe."""
        self.put(snapshot)
        self.sync()

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Release the store, so that another process can open it."""


class MemoryStore(Store):
    """Lasts as long as the process: for simulations and tests."""

    def __init__(self, records: list[bytes] | None = None) -> None:
        self._records = list(records or [])

    def read(self) -> list[bytes]:
        return list(self._records)

    def append(self, record: bytes) -> None:
        self._records.append(record)

    def sync(self) -> None:
        pass

    def put(self, snapshot: bytes) -> None:
        self._records = [snapshot]


class Taken(NamedTuple):
    """A message that was taken since the last snapshot."""

    content: bytes
    """The message; or its name, if only that is stored"""
    is_named: bool = False
    was_answered: bool = False


class Keeper(Generic[State]):
    """Turns the state of a role into records, and back.

    Of a helper's large messages that need no answer, such as vectors, only a name is stored. Their senders keep them
    until the attempt is over and can repeat them. (To write a vector would take a compute node half as long as to add
    it up.)
    """

    def __init__(self, store: Store, kind: type[State], *, names: bool = False) -> None:
        """`names`: store only the names of large messages that need no answer."""
        self._store, self._kind, self._messages = store, kind, 0
        self._largest = LARGE if names else None
        self.noted = b""
        """The last note since the last snapshot"""

    def read(self) -> tuple[State, list[Taken]]:
        """The last snapshot, or the state of a role that has only begun; and the messages that were taken since."""
        snapshot, *records = self._store.read() or [b""]
        self._messages, taken, self.noted = len(records), list[Taken](), b""
        for kind, content in ((record[:1], record[1:]) for record in records):
            if kind == _NOTED:
                self.noted = content
            else:
                taken.append(Taken(content, kind == _NAMED, kind == _ANSWERED))
        return msgspec.msgpack.decode(snapshot, type=self._kind) if snapshot else self._kind(), taken

    @property
    def is_long(self) -> bool:
        """Whether it is time for a new snapshot."""
        return self._messages >= MOST_MESSAGES

    def replace(self, state: State, *, answered: bool = True) -> None:
        """Put a snapshot in place of all records. `answered`: a message that depends on it leaves next, so it is made
        safe first."""
        (self._store.replace if answered else self._store.put)(msgspec.msgpack.encode(state))
        self._messages, self.noted = 0, b""

    def note(self, content: bytes) -> None:
        """Keep something that has to be known before the state changes. It is safe when this returns; the next snapshot
        has to contain it."""
        self._store.append(_NOTED + content)
        self._store.sync()
        self._messages, self.noted = self._messages + 1, content

    def append(self, message: bytes, *, answered: bool) -> None:
        """Add a message that was taken. If it is answered, all messages so far are made safe before the answer
        leaves."""
        if answered:
            self._store.append(_ANSWERED + message)
            self._store.sync()
        elif self._largest is None or len(message) <= self._largest:
            self._store.append(_UNANSWERED + message)
        else:
            self._store.append(_NAMED + name_of(message))
        self._messages += 1


def name_of(message: bytes) -> bytes:
    """A name that tells a large message from all others: its length, its beginning and its end.

    The beginning contains the sender, and the end is the authentication tag. Only the sender could make another message
    of the same name; it would change nothing but its own contribution, which it chose in the first place.
    """
    return len(message).to_bytes(8, "big") + message[:_BEGINNING] + message[-_END:]
