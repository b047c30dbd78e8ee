"""Exchanges without a study: a real server, and clients in processes of their own that answer with so many bytes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.common import PeakMemory
from benchmarks.studies import method_for, study
from unspoken.engines.network import tls
from unspoken.engines.network.client import Client, CoordinatorAddress
from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.server import Server
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.messages import Carried
from unspoken.summation.base import ATTEMPT_BYTES, COORDINATOR, Envelope, Roster, address_of
from unspoken.summation.keys import Identity

SECONDS = 600.0
"""The most that anything here may take"""
PROGRAM = "import sys; from benchmarks.network.exchange import answer; answer(*sys.argv[1:])"
SHOT = 1 << 20


def message(size: int) -> bytes:
    """A message between roles with so many bytes inside, and at least one."""
    return msgspec.msgpack.encode(Carried(bytes(ATTEMPT_BYTES), memoryview(bytes(max(1, size)))))


class Answering:
    """A role that answers everything with so many bytes as the message asks for."""

    largest = SHOT

    def receive(self, body: bytes) -> list[Envelope]:
        size = int(bytes(msgspec.msgpack.decode(body, type=Carried).body).rstrip(b"\0") or b"0")
        return [Envelope(COORDINATOR, message(size))]


def answer(port: str, study_digest: str, pinned: str, coordinator: str, secret: str, *parties: str) -> None:
    """The program of a party."""
    roster = Roster(tuple(bytes.fromhex(key) for key in parties), bytes.fromhex(coordinator))
    where = CoordinatorAddress("127.0.0.1", int(port), pinned)
    role: Any = Answering()
    asyncio.run(Client(role, study_digest, Identity(bytes.fromhex(secret)), roster, where).run())


def memory_of(process: int) -> int:
    """The most memory that another process has occupied, in bytes; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


class Large(NamedTuple):
    """What one large message cost."""

    seconds: float
    received_above: int
    """How far the receiver's memory rose"""
    sent_above: int
    """How far the sender's did"""
    resumed_at: int
    """The offset at which it went on after its connection was cut"""


class Exchanges:
    """A server and parties that answer."""

    def __init__(self, parties: int, largest: int) -> None:
        method = method_for(
            study(
                {"features": 2, "classes": 2},
                {"count": max(2, parties), "records": 10},
                {"epsilon": 1.0, "delta": 1e-5},
                {"name": "helmet", "regularization": 0.1},
                "secagg+",
            )
        )
        self._secrets = [Identity(os.urandom(32)) for _ in range(parties)]
        self._hub = Identity(os.urandom(32))
        self._roster = Roster(tuple(each.public for each in self._secrets), self._hub.public)
        coordinator = Coordinator(method, self._hub, self._roster)
        coordinator.receive = self._received  # type: ignore[method-assign]
        coordinator._largest_ever = largest + SHOT
        self.server = Server(coordinator, self._hub, self._roster, Deadlines(), Events())
        self._addresses = [address_of(index) for index in range(parties)]
        self._waiting: set[str] = set()
        self._all = asyncio.Event()
        self.programs: list[subprocess.Popen[bytes]] = []

    def _received(self, body: bytes, sender: str = "") -> list[Envelope]:
        """In a thread of its own: the event loop is told by whoever waits."""
        self._waiting.discard(sender)
        if not self._waiting:
            self._loop.call_soon_threadsafe(self._all.set)
        return []

    async def run(self, work: Callable[[Exchanges], Any]) -> Any:
        """Do something while all parties are there."""
        self._loop = asyncio.get_running_loop()
        listening = await self.server.listen("127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        digest = self.server.relay.coordinator.plan.study.digest()
        shared = [str(port), digest, tls.certificate_digest(self._hub), self._hub.public.hex()]
        keys = [key.hex() for key in map(bytes, self._roster.parties)]
        path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        try:
            for identity in self._secrets:
                command = [sys.executable, "-c", PROGRAM, *shared, identity.secret.hex(), *keys]
                surroundings = {**os.environ, "PYTHONPATH": path}
                self.programs.append(subprocess.Popen(command, env=surroundings))  # noqa: S603 (this very program)
            await asyncio.wait_for(self._everyone(), SECONDS)
            return await work(self)
        finally:
            for program in self.programs:
                program.kill()
                program.wait()
            listening.close()
            await listening.wait_closed()

    async def _everyone(self) -> None:
        while len(self.server.present) < len(self._addresses):
            await asyncio.sleep(0.05)

    async def once(self, size: int) -> float:
        """Seconds of one exchange: a message to everyone, and an answer of so many bytes from everyone."""
        self._all.clear()
        self._waiting = set(self._addresses)
        ask = msgspec.msgpack.encode(Carried(bytes(ATTEMPT_BYTES), memoryview(str(size).encode().ljust(16, b"\0"))))
        began = time.perf_counter()
        self.server._woken(self.server.relay.send([Envelope(address, ask) for address in self._addresses]))
        await asyncio.wait_for(self._all.wait(), SECONDS)
        return time.perf_counter() - began


async def times(exchanges: Exchanges, size: int, repeats: int) -> list[float]:
    await exchanges.once(size)
    return [await exchanges.once(size) for _ in range(repeats)]


async def large(exchanges: Exchanges, size: int) -> Large:
    """One message of so many bytes, whose connection is cut when half of it is there."""
    await exchanges.once(0)
    (program,), relay = exchanges.programs, exchanges.server.relay
    before, resumed, begin = memory_of(program.pid), list[int](), relay.begin

    def beginning(*given: Any) -> tuple[int, int]:
        expects = begin(*given)
        resumed.append(expects[1])
        return expects

    async def cut() -> None:
        while relay.peers["party:0"].link.expects[1] < size // 2:
            await asyncio.sleep(0.001)
        exchanges.server._open["party:0"].socket.transport.abort()

    relay.begin = beginning  # type: ignore[method-assign]
    with PeakMemory() as memory:
        cutting = asyncio.create_task(cut())
        seconds = await exchanges.once(size)
        await cutting
    return Large(seconds, memory.above, memory_of(program.pid) - before, resumed[0])
