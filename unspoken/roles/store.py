"""Where a role keeps what must survive a crash. It is written before any message that depends on it leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Store(ABC):
    """Bytes by name. `write` returns when they are kept."""

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
