"""The store of a role, for all that must survive a crash: one snapshot, and the messages that were taken since.

What a message depends on is kept before it leaves. What nothing that was sent depends on need not be: an appended
record is kept when `sync` has returned, and many records may wait for one `sync`. `roles.file_store` keeps it on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import msgspec

from unspoken.errors import UnspokenError

State = TypeVar("State", bound=msgspec.Struct)

MOST_MESSAGES = 1 << 14
"""After so many messages there is a new snapshot, so that whoever sends many does not fill the disk."""
LARGE = 1 << 16
"""The size above which messages that need no answer are named"""
_BEGINNING, _END = 1024, 64
_ANSWERED, _UNANSWERED, _NAMED = b"a", b"u", b"n"


class StoreError(UnspokenError):
    """A state that cannot be used, or could not be kept. The message says what to do."""


def not_kept(error: OSError) -> StoreError:
    """A disk that takes no more, in one sentence."""
    return StoreError(
        f"the state could not be kept ({error.strerror or error}); make room, and start the same command again: it "
        "goes on from there."
    )


class Store(ABC):
    """A journal for one role. If an operation fails, what was there before is still there."""

    @abstractmethod
    def read(self) -> list[bytes]:
        """All records: a snapshot, and what was appended to it. Nothing if nothing was ever kept."""

    @abstractmethod
    def append(self, record: bytes) -> None:
        """Add a record. It is kept when `sync` has returned."""

    @abstractmethod
    def sync(self) -> None:
        """Keep all that was appended."""

    @abstractmethod
    def put(self, snapshot: bytes) -> None:
        """Put a snapshot in place of all records. Nothing of these is left. It is kept when `sync` has returned."""

    def replace(self, snapshot: bytes) -> None:
        """Keep a snapshot in place of all records."""
        self.put(snapshot)
        self.sync()

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Let others use it."""


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
    """The message, or if it is only named, its name"""
    is_named: bool = False
    was_answered: bool = False


class Keeper(Generic[State]):
    """Turns the state of a role into records, and back.

    A helper's large messages that need no answer, such as vectors, are not written down but named. Their senders keep
    them until the attempt is over. To write one would take a compute node half as long as to add it up.
    """

    def __init__(self, store: Store, kind: type[State], *, names: bool = False) -> None:
        """`names`: large messages that need no answer are named."""
        self._store, self._kind, self._messages = store, kind, 0
        self._largest = LARGE if names else None

    def read(self) -> tuple[State, list[Taken]]:
        """The last snapshot, or the state of a role that has only begun; and the messages that were taken since."""
        records = self._store.read()
        self._messages = max(0, len(records) - 1)
        if not records:
            return self._kind(), []
        taken = [Taken(record[1:], record[:1] == _NAMED, record[:1] == _ANSWERED) for record in records[1:]]
        return msgspec.msgpack.decode(records[0], type=self._kind), taken

    @property
    def is_long(self) -> bool:
        """Whether it is time for a new snapshot."""
        return self._messages >= MOST_MESSAGES

    def replace(self, state: State, *, answered: bool = True) -> None:
        """Put a snapshot in place of what there is. If something leaves that depends on it, it is kept before."""
        (self._store.replace if answered else self._store.put)(msgspec.msgpack.encode(state))
        self._messages = 0

    def append(self, message: bytes, *, answered: bool) -> None:
        """Add a message that was taken. If it is answered, all so far are kept before the answer leaves."""
        if answered:
            self._store.append(_ANSWERED + message)
            self._store.sync()
        elif self._largest is None or len(message) <= self._largest:
            self._store.append(_UNANSWERED + message)
        else:
            self._store.append(_NAMED + name_of(message))
        self._messages += 1


def name_of(message: bytes) -> bytes:
    """The name of a large message, which tells it from all others: its length, its beginning and its end.

    The beginning says whose it is, and the end authenticates it. Who sealed it could make another of the same name, and
    so change its own contribution; it could have done so before, too.
    """
    return len(message).to_bytes(8, "big") + message[:_BEGINNING] + message[-_END:]
