"""The coordinator over a Flower federation: asks nodes, and closes stages when all have answered or time is up.

Nobody connects to the coordinator. It greets every node that Flower lists. A node answers with its key in the roster,
and then stands for that party or helper until another node answers with the same key. A node that comes back under
another Flower number is recognised by its key, and gets again what its role must see. Each node is asked one question
at a time, and only if there is something to ask. Deadlines are the coordinator's own, because Flower takes most of a
minute to notice that a node is gone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from unspoken.engines.flower.exchanges import Answered, AskingSide, Begins, Hello, Joins, Packet, Taken
from unspoken.engines.network.conductor import LEAVING, Conductor
from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.frames import Leaving
from unspoken.engines.network.sign_in import PROCESS_BYTES, SignInRefused
from unspoken.engines.outcome import FLOWER
from unspoken.errors import UnspokenError
from unspoken.roles.coordinator import Coordinator
from unspoken.summation.base import Rejected, Roster
from unspoken.summation.keys import Identity

_MOST_DOUBLINGS = 6
"""How often a node is left alone for twice as long as before"""
Result = TypeVar("Result")


class NotReached(UnspokenError):
    """Flower does not take or give messages now."""


class AnyGrid(Protocol):
    """What is asked of Flower's `Grid`, or of what stands for it. `NotReached` if it cannot be done now."""

    def nodes(self) -> set[int]:
        """The nodes that are there."""

    def push(self, node: int, content: bytes, seconds: float) -> str:
        """Send a message that is of interest for so long; its name."""

    def pull(self, names: list[str]) -> list[tuple[str, bytes | str]]:
        """The answers that have come to these messages, each with its message's name; a text says why there is none."""


class _Asked(NamedTuple):
    """A question that was not answered yet."""

    node: int
    address: str
    """Whom it is for; nothing for a greeting"""
    nonce: bytes
    until: float


@dataclass
class _Node:
    """The connection to a participant: the node at which it is."""

    node: int
    more: bool = False
    """Whether it has more to say"""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, frame: Any) -> None:
        """Send nothing: an exchange for mere news would cost a node seconds."""


class FlowerServer(Conductor[_Node]):
    """Serves one study to the nodes of a federation."""

    engine = FLOWER
    farewell_seconds = 120.0
    poll_seconds = 0.5
    """How often answers are asked for"""
    again_seconds = 15.0
    """How long a node is left alone that answered by an error, or not at all; then twice as long, and so on"""

    def __init__(
        self,
        coordinator: Coordinator,
        identity: Identity,
        roster: Roster,
        deadlines: Deadlines,
        grid: AnyGrid,
        events: Events,
    ) -> None:
        super().__init__(coordinator, identity, roster, deadlines, events)
        self._grid, self._asking = grid, AskingSide(self._study, identity, roster, self._helpers)
        self._asked: dict[str, _Asked] = {}
        self._away: dict[str, _Node] = {}
        """The ways to those whose nodes are gone, and may come back"""
        self._later: dict[int, float] = {}
        """When a node is greeted again that takes no part now"""
        self._lost = Counter[int]()
        """How often a node was lost since it has joined"""

    async def carrying(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something while messages are carried."""
        working, carries = asyncio.create_task(work), asyncio.create_task(self._carry())
        try:
            await asyncio.wait([working, carries], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                carries.result()
            return await working
        finally:
            for task in (working, carries):
                task.cancel()
            await asyncio.gather(working, carries, return_exceptions=True)

    async def _carry(self) -> None:
        told = ""
        while True:
            try:
                await self._exchange()
                told = ""
            except NotReached as error:
                if str(error) != told:
                    self._events.told(f"Flower is not reached ({error}); trying again")
                told = str(error)
            await asyncio.sleep(self.poll_seconds)

    async def _exchange(self) -> None:
        """Hear what was answered, and ask what there is to ask."""
        nodes = await asyncio.to_thread(self._grid.nodes)
        for name, content in await asyncio.to_thread(self._grid.pull, list(self._asked)):
            # A participant that has joined elsewhere meanwhile is asked nothing here any more.
            if (asked := self._asked.pop(name, None)) is not None:
                await self._heard(asked, content)
        self._see(nodes)
        failed: NotReached | None = None
        for node, address in self._due(nodes):
            try:
                await self._ask(node, await self._packet(address) if address else Hello(self._plan), address)
            except NotReached as error:
                failed = error  # The others are asked all the same.
        if failed is not None:
            raise failed

    def _due(self, nodes: set[int]) -> list[tuple[int, str]]:
        """The nodes to ask now, with whom they stand for: messages for participants, greetings for nodes of nobody."""
        busy = {asked.node for asked in self._asked.values()}
        due = [
            (way.node, address)
            for address, way in self._open.items()
            if way.node not in busy and (way.more or not self.relay.peers[address].link.is_empty)
        ]
        known = {way.node for way in (*self._open.values(), *self._away.values())}
        greeted = [node for node in nodes - busy - known if self._later.get(node, 0.0) <= time.monotonic()]
        return due + [(node, "") for node in greeted]

    async def _packet(self, address: str) -> Packet:
        """What can be sent now. If its answer is lost, the answer to the next one says where to go on."""
        # The relay may be at work in another thread.
        async with self._lock:
            peer = self.relay.peers[address]
            return Packet(peer.process, peer.link.expects, tuple(peer.link.pieces()))

    async def _ask(self, node: int, asked: Hello | Packet, address: str = "") -> None:
        content, nonce = self._asking.question(asked, address)
        seconds = self._deadlines.stage_seconds
        try:
            name = await asyncio.to_thread(self._grid.push, node, content, seconds)
        except NotReached:
            if address:
                async with self._lock:
                    self.relay.peers[address].link.take_back()
            raise
        self._asked[name] = _Asked(node, address, nonce, time.monotonic() + seconds)

    def _see(self, nodes: set[int]) -> None:
        """Notice who has gone, who is back, and who has not answered in time."""
        for address, way in list(self._open.items()):
            if way.node not in nodes:
                self._close(address)
                self._away[address] = way
        for address, way in list(self._away.items()):
            if way.node in nodes:
                self._join(address, self._away.pop(address))
        for name, asked in list(self._asked.items()):
            if time.monotonic() > asked.until:
                del self._asked[name]
                self._lose(asked, "no answer came in time")

    def _join(self, address: str, way: _Node) -> None:
        self._open[address] = way
        self._gone.pop(address, None)
        self._tell(address, f"{address} has joined")
        self._moved.set()

    def _close(self, address: str, since: float | None = None) -> None:
        """Nothing is asked of this participant until it is back."""
        if self._open.pop(address, None) is not None:
            self._gone[address] = time.monotonic() if since is None else since
            if not self.watch.is_over:
                self._tell(address, f"{address} has gone")
        self._away.pop(address, None)
        self._moved.set()

    def _lose(self, asked: _Asked, reason: str, *, for_good: bool = False, since: float | None = None) -> None:
        """A node takes no part for now, or never again."""
        seconds = math.inf if for_good else self.again_seconds * 2 ** min(self._lost[asked.node], _MOST_DOUBLINGS)
        self._lost[asked.node] += 1
        self._later[asked.node] = time.monotonic() + seconds
        known = f" ({asked.address})" if asked.address else ""
        self._tell(asked.address, f"node {asked.node}{known} is left out: {reason}")
        if asked.address and self._at(asked.address) == asked.node:
            self._close(asked.address, since)

    def _at(self, address: str) -> int | None:
        way = self._open.get(address) or self._away.get(address)
        return way.node if way else None

    async def _heard(self, asked: _Asked, content: bytes | str) -> None:
        """An answer came, or a reason why there is none."""
        if isinstance(content, str):
            self._lose(asked, content)
            return
        try:
            address, answered = self._asking.answer(content, asked.nonce)
            if asked.address not in ("", address):
                raise SignInRefused("it answers as somebody else")
            await self._answered(asked, address, answered)
        except SignInRefused as reason:
            self._lose(asked, str(reason), for_good=True)
        except Rejected as reason:
            self._lose(asked, str(reason))

    async def _answered(self, asked: _Asked, address: str, answered: Answered) -> None:
        match answered:
            case Joins(process):
                self._begin(address, process, asked.node)
            case Leaving(why):
                self._lose(asked._replace(address=address), LEAVING[why], for_good=True, since=-math.inf)
            case _ if not asked.address:
                raise Rejected("it answers a greeting as if it had joined")
            case Taken():
                await self._take(address, answered)
            case Begins():
                self._close(address)

    def _begin(self, address: str, process: bytes, node: int) -> None:
        """A participant is at a node now. What was asked of it at another one is of no interest any more."""
        if len(process) != PROCESS_BYTES:
            raise Rejected("the name of its session is malformed")
        before = self._at(address)
        if before not in (None, node):
            # The newest is the one: two nodes with one key would take turns for ever.
            self._later[before] = math.inf
        del self._lost[node]
        self._close(address)
        self._asked = {name: asked for name, asked in self._asked.items() if asked.address != address}
        self.relay.begin(address, process, (0, 0))
        self._join(address, _Node(node))

    async def _take(self, address: str, taken: Taken) -> None:
        peer = self.relay.peers[address]
        way = self._open.get(address) or self._away[address]
        async with self._lock:
            peer.link.resume(taken.expects)
        way.more = taken.more
        for piece in taken.pieces:
            if (piece.number, piece.offset) >= peer.link.expects:
                _, arrived = peer.link.take(piece)
                if arrived is not None:
                    await self._message(address, arrived)
        if not taken.more:
            peer.done(taken.done)
        if taken.signature is not None:
            self.relay.coordinator.log.sign(address, taken.signature)
        self._moved.set()
