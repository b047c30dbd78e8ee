"""A coordinator with the right key and certificate that says what it likes, on a real port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from network.town import Town
from unspoken.engines.network import frames, tls
from unspoken.engines.network.cards import find_identity
from unspoken.engines.network.frames import ENDING, Countersigned, Done, Ending, Got, Leaving, Piece, packed, unpacked
from unspoken.engines.network.link import Link
from unspoken.engines.network.sign_in import ServerSignIn
from unspoken.roles.attempts import next_attempt
from unspoken.roles.messages import Ask, Carried
from unspoken.summation.base import COORDINATOR, Rejected, Roster
from unspoken.summation.keys import Identity


def hub_of(town: Town) -> Identity:
    """The coordinator's identity."""
    return find_identity(town.study, {Roster.of(town.study).coordinator.hex()}, town.key("hub"))[1]


class Talk:
    """One connection after its sign-in."""

    def __init__(self, socket: Any, link: Link, came: list[tuple[str, bytes]]) -> None:
        self.socket, self._link, self._came = socket, link, came

    async def say(self, body: bytes, peer: str = COORDINATOR) -> None:
        """A message, and all that is answered to it."""
        self._link.put(peer, body)
        for piece in self._link.pieces():
            await self.socket.send(packed(piece))
        while True:
            frame: Any = unpacked(await self.socket.recv(), Piece | Got | Done | Countersigned | Leaving)
            match frame:
                case Got():
                    self._link.acknowledge(frame)
                case Piece():
                    got, arrived = self._link.take(frame)
                    await self.socket.send(packed(got))
                    if arrived is not None:
                        self._came.append((arrived.peer, arrived.body))
                case Done() | Countersigned():
                    return

    async def ask(self, attempt: bytes | None = None, peer: str = COORDINATOR, **other: Any) -> bytes:
        """A request, honest but for what is given; its attempt."""
        given = {"attempt": attempt or next_attempt(), "kind": "sum", "name": "model", "turn": 0} | other
        await self.say(packed(Ask(**given)), peer)
        return bytes(given["attempt"])

    async def end(self, ending: Ending) -> None:
        await self.say(packed(ending), ENDING)


class Liar:
    """Serves a town's study. Each connection gets the next lie, and those after the last one the last."""

    def __init__(self, town: Town, *lies: Callable[[Talk], Awaitable[None]]) -> None:
        self._town, self._lies = town, list(lies)
        self.identity = hub_of(town)
        self.came: list[tuple[str, bytes]] = []
        self._process, self._link = bytes(16), Link(lambda: 1 << 24)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def __enter__(self) -> Liar:
        self._thread.start()
        assert self._begun.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def vectors(self) -> list[str]:
        """Whom something of a protocol was sent to."""
        return [to for to, body in self.came if isinstance(msgspec.msgpack.decode(body, type=Carried), Carried)]

    async def _serve(self) -> None:
        context = tls.server_context(self.identity)
        async with serve(self._connection, "127.0.0.1", 0, ssl=context, max_size=frames.FRAME_BYTES) as listening:
            self.port = listening.sockets[0].getsockname()[1]
            self._begun.set()
            await self._stop.wait()

    async def _connection(self, socket: Any) -> None:
        sign_in = ServerSignIn(self._town.study.digest(), Roster.of(self._town.study), [], self.identity)
        with suppress(ConnectionClosed, Rejected):
            await socket.send(packed(sign_in.challenge()))
            proof = sign_in.read(await socket.recv())
            self._link.resume(proof.expects)
            await socket.send(packed(sign_in.accepted(proof, self._process, self._link.expects)))
            lie = self._lies.pop(0) if len(self._lies) > 1 else self._lies[0]
            await lie(Talk(socket, self._link, self.came))
            await socket.wait_closed()
