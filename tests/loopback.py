"""Studies on a network of this machine: a real server and real connections, all in one process, for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from unspoken.data.federation import Federation
from unspoken.engines.actors import Actors, Vanishing
from unspoken.engines.conditions import USUAL, Conditions
from unspoken.engines.network import tls
from unspoken.engines.network.client import Client, CoordinatorAddress
from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.frames import Ending
from unspoken.engines.network.server import Server
from unspoken.engines.outcome import Outcome
from unspoken.errors import UnspokenError
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Envelope

DEADLINES = Deadlines(stage_seconds=300.0, join_seconds=300.0, grace_seconds=0.2)


Meanwhile = Callable[[int], Awaitable[int]]


class Vanishes:
    """A role whose process ends when its time has come."""

    def __init__(self, role: Any, address: str, gone: Vanishing) -> None:
        self._role, self._address, self._gone = role, address, gone

    @property
    def largest(self) -> int:
        return self._role.largest

    def receive(self, body: bytes) -> list[Envelope]:
        if self._gone.is_gone(self._address):
            return []
        envelopes = self._role.receive(body)
        return self._gone.sent(self._address, envelopes, self._role.has_sent) if envelopes else envelopes

    def leave(self) -> None:
        self._role.leave()


class Loopback:
    """A server and a client for each participant."""

    def __init__(self, method: Method, plan: Plan, federation: Federation, secrets: SecretStream) -> None:
        self.actors = Actors(method, plan, federation, secrets)
        keys = self.actors._keys
        self.keys = keys
        self.study = plan.study.digest()
        self.server: Any = Server(self.actors.coordinator, keys.coordinator, keys.roster, DEADLINES, Events())

    def identities(self) -> dict[str, Any]:
        parties = {address: self.keys.identity(int(address.removeprefix("party:"))) for address in self.actors.parties}
        return parties | {address: self.keys.helper(index) for index, address in enumerate(self.actors.helpers)}

    async def run(self, vanishing: list[int], meanwhile: Meanwhile | None = None) -> None:
        """`meanwhile` is told the server's port, gives the one that clients use, and may do harm."""
        listening = await self.server.listen("127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        if meanwhile is not None:
            port = await meanwhile(port)
        where = CoordinatorAddress("127.0.0.1", port, tls.certificate_digest(self.keys.coordinator))
        gone, roles = self.vanishing(vanishing)
        clients = {}
        for address, identity in self.identities().items():
            clients[address] = Client(roles[address], self.study, identity, self.keys.roster, where, patience=30.0)
        self.clients = clients
        tasks = [asyncio.create_task(client.run()) for client in clients.values()]
        watching = asyncio.create_task(self.drop(gone))
        try:
            await self.conduct()
        finally:
            watching.cancel()
            await asyncio.wait(tasks, timeout=5.0)
            for task in [watching, *tasks]:
                task.cancel()
            _, *ends = await asyncio.gather(watching, *tasks, return_exceptions=True)
            listening.close()
            await listening.wait_closed()
        assert not [end for end in ends if isinstance(end, Exception) and not isinstance(end, UnspokenError)]

    def vanishing(self, vanishing: list[int]) -> tuple[Vanishing, dict[str, Any]]:
        """All roles by address, some of which vanish when their time has come."""
        gone, coordinator = Vanishing(vanishing), self.actors.coordinator
        opened = coordinator._opened

        def opening(request: Any) -> list[Envelope]:
            envelopes = opened(request)
            gone.begin(coordinator)
            return envelopes

        coordinator._opened = opening  # type: ignore[method-assign]
        parties = {address: Vanishes(role, address, gone) for address, role in self.actors.parties.items()}
        return gone, {**parties, **self.actors.helpers}

    async def conduct(self) -> None:
        """Run the study, and tell everyone how it has ended."""
        try:
            await asyncio.wait_for(self.server.run(), 300.0)
            await self.server.finish(Ending())
        except Aborted as ended:
            await self.server.finish(Ending(reason=str(ended)))
            raise

    async def drop(self, gone: Vanishing) -> None:
        """The server does not wait for those who have vanished."""
        while True:
            for address in list(self.server._open):
                if gone.is_gone(address):
                    self.server._gone[address] = 0.0
                else:
                    self.server._gone.pop(address, None)
            self.server._moved.set()
            await asyncio.sleep(0.005)

    def outcome(self, engine: str, began: datetime, seconds: float) -> Outcome:
        relay = self.server.relay
        largest = max(peer.sent for address, peer in relay.peers.items() if address.startswith("party:"))
        return Outcome.of(self.actors.coordinator, engine, began, seconds, (relay.bytes, largest))


def engine(kind: type[Loopback], name: str) -> Callable[..., Outcome]:
    """A function that runs a study as other engines do."""

    def run(method: Method, plan: Plan, federation: Federation, conditions: Conditions = USUAL) -> Outcome:
        began, started = datetime.now(UTC), time.perf_counter()
        made = kind(method, plan, federation, conditions.secrets or SecretStream())
        asyncio.run(made.run(conditions.vanishing(federation.parties)))
        return made.outcome(name, began, time.perf_counter() - started)

    return run


run = engine(Loopback, "network")
