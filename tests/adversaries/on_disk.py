"""Casts whose state is on disk, with crashes at chosen moments, and recounts by their coordinator."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adversaries.said import Said
from cast import VICTIM, Cast, study_of
from disks import FailingDisk, Folder, PowerCut
from unspoken.engines.actors import Vanishing
from unspoken.methods.parameters import Refused
from unspoken.roles.attempts import next_attempt
from unspoken.roles.file_store import Disk
from unspoken.roles.messages import Ask, Assist, Carried, Over
from unspoken.roles.store import StoreError
from unspoken.summation.base import Envelope, Rejected

SCENES = [
    ("turns", "secagg+"),
    ("turns", "compute-nodes"),
    ("messages", "compute-nodes"),
    ("votes", "tally"),
    ("tokens", "ideal"),
]
SCENE = pytest.mark.parametrize(("kind", "protocol"), SCENES)
HELPED = pytest.mark.parametrize(("kind", "protocol"), SCENES[1:4])


def decoded(body: bytes) -> Any:
    return msgspec.msgpack.decode(body, type=Ask | Assist | Carried | Over)


class OnDisk(Cast):
    """A cast in which one participant's state is on disk."""

    def __init__(self, public: Path, kind: str, protocol: str, place: Path, address: str = VICTIM) -> None:
        super().__init__(study_of(public, kind, protocol))
        self.address = address if address == VICTIM else self.plan.helper_addresses[0]
        self.folder = Folder(place)
        self.open()

    @property
    def role(self) -> Any:
        return {**self.parties, **self.helpers}[self.address]

    def open(self, disk: Disk | None = None) -> None:
        """Make the participant from what is on its disk."""
        index = 0
        keys = self._keys.identity(index) if self.address == VICTIM else self._keys.helper(index)
        store = self.folder.open(keys, self.study.digest(), self.address, disk=disk)
        self.stores[self.address] = store
        if self.address == VICTIM:
            self.parties[self.address] = self.party(index)
        else:
            self.helpers[self.address] = self.helper(self.address)

    def close(self) -> None:
        self.stores[self.address].close()


class Crashing(OnDisk):
    """The participant's disk fails at some operation. It begins again from what is there, and gets all messages again
    since its last answer, as from any engine."""

    def __init__(self, *given: Any, operations: int, torn: float = 0.0, lost: bool = False, power: bool = True) -> None:
        self._operations, self._torn, self._lost, self._power = operations, torn, lost, power
        self.failed = False
        self.unanswered: list[bytes] = []
        self.said = Said()
        super().__init__(*given)

    def open(self, disk: Disk | None = None) -> None:
        super().open(disk or (None if self.failed else FailingDisk(self._operations, self._fail, self._torn)))

    def close(self) -> None:
        with contextlib.suppress(PowerCut):
            super().close()

    def _fail(self, disk: FailingDisk) -> None:
        self.failed = True
        if not self._power:
            raise OSError(28, "No space left on device")
        after = self.folder.folder.with_name("after")
        if self._lost:
            disk.survivors(self.folder.folder, after)
        else:
            shutil.copytree(self.folder.folder, after)
        self.folder = Folder(after)
        raise PowerCut

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        try:
            envelopes = super().step(to, body, gone, sender)
        except (PowerCut, OSError, StoreError):
            if self._power:
                # Nothing that a process does in the end is done.
                self.stores[self.address]._broken = "no power"  # type: ignore[attr-defined]
            self.close()
            self.open()
            envelopes = []
            for message in [*self.unanswered, body]:
                with contextlib.suppress(Rejected, Refused):
                    envelopes += super().step(to, message, gone, sender)
        if to == self.address:
            self.unanswered = [] if envelopes else [*self.unanswered, body]
        if to == self.address == VICTIM:
            self.said.note(to, envelopes)
        return envelopes


def recount(cast: Cast, ask: Ask) -> bytes:
    """The same request in a new attempt."""
    attempt = next_attempt(max(ask.attempt, cast.coordinator.attempt))
    cast._attempts._roots[attempt] = bytes(32)
    return msgspec.msgpack.encode(msgspec.structs.replace(ask, attempt=attempt))
