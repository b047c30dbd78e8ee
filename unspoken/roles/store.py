"""Where a role keeps what must survive a crash. It is written before any message that depends on it leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import msgspec

from unspoken.summation.base import Aborted

State = TypeVar("State", bound=msgspec.Struct)


class Store(ABC):
    """Bytes by name. `write` returns when they are kept; if it fails, what was kept before is still there."""

    @abstractmethod
    def read(self, name: str) -> bytes | None: ...

    @abstractmethod
    def write(self, name: str, content: bytes) -> None: ...


class MemoryStore(Store):
    """Lasts as long as the process: for simulations and tests."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._kept.get(name)

    def write(self, name: str, content: bytes) -> None:
        self._kept[name] = content


class Keeper(Generic[State]):
    """Keeps the state of a role. After every message the role is what its store says, whatever happened."""

    def __init__(self, store: Store, name: str, kind: type[State]) -> None:
        self._store, self._name, self._kind = store, name, kind

    def read(self) -> State:
        """What was kept, or the state of a role that has only begun."""
        kept = self._store.read(self._name)
        return self._kind() if kept is None else msgspec.msgpack.decode(kept, type=self._kind)

    @contextmanager
    def change(self, dump: Callable[[], State], restore: Callable[[], None]) -> Iterator[None]:
        """Within it the role takes a message. Then the new state is kept, or the old one is there again.

        A protocol that is given up stays given up, also after a crash.
        """
        try:
            yield
        except Aborted:
            self._keep(dump, restore)
            raise
        except BaseException:
            restore()
            raise
        self._keep(dump, restore)

    def _keep(self, dump: Callable[[], State], restore: Callable[[], None]) -> None:
        try:
            self._store.write(self._name, msgspec.msgpack.encode(dump()))
        except BaseException:
            restore()
            raise
