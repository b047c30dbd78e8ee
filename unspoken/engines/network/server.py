"""The coordinator on a network: accepts parties and helpers, and carries their messages (`conductor` has the rest).

Garbage, strangers and slow connections do not disturb the others: each step to a sign-in (TLS, the request for a
WebSocket, the proof) has a few seconds, or the connection is closed, and the number of such connections is bounded
(`door`).
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import Server as WebSocketServer
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from unspoken.engines.network import frames, tls
from unspoken.engines.network.conductor import LEAVING, Conductor
from unspoken.engines.network.door import QUIET, Door
from unspoken.engines.network.frames import (
    Countersigned,
    Denied,
    Done,
    Got,
    Leaving,
    Piece,
    packed,
    unpacked,
)
from unspoken.engines.network.presence import Presence
from unspoken.engines.network.sign_in import ServerSignIn, SignInRefused
from unspoken.engines.network.status import Status
from unspoken.engines.network.window import Viewers, Window
from unspoken.engines.outcome import NETWORK
from unspoken.summation.base import Rejected

SIGN_IN_SECONDS = 10.0
"""For each step to a sign-in"""
STRANGERS = 300
"""The most connections that have not signed in: each costs memory"""
PING_SECONDS = 5.0


class Server(Conductor[Presence]):
    """Serves one study on one port."""

    engine = NETWORK

    _door: Door | None = None
    _refused = 0

    async def listen(
        self, host: str, port: int, *, encrypted: bool = True, viewers: Viewers | None = None, door: Door | None = None
    ) -> WebSocketServer:
        """Begin to accept connections, at a door that is open already if one is given. Without encryption only for a
        proxy on this machine that ends TLS.

        `viewers` says who may look at the study's status. By default these are programs on this machine, and nobody
        behind a proxy.
        """
        self._door = door or Door(host, port, STRANGERS)
        window = Window(lambda: self.status, viewers or ("here" if encrypted else "nobody"))
        return await serve(
            self._connection,
            sock=self._door,
            process_request=window.look,
            server_header=None,
            logger=QUIET,
            ssl=tls.server_context(self._identity) if encrypted else None,
            ssl_handshake_timeout=SIGN_IN_SECONDS if encrypted else None,
            **frames.socket_settings(PING_SECONDS, SIGN_IN_SECONDS),
        )

    @property
    def present(self) -> list[str]:
        """Who is connected."""
        return sorted(self._open)

    @property
    def status(self) -> Status:
        """How the study is doing, for whoever may look."""
        away = self._door.sent_away if self._door else 0
        return self.watch.status(self._open, self._refused + away)

    async def _connection(self, socket: ServerConnection) -> None:
        """One connection, from its first byte to its last."""
        connection = Presence(socket)
        try:
            address = await asyncio.wait_for(self._sign_in(connection), SIGN_IN_SECONDS)
        except (TimeoutError, ConnectionClosed, Rejected):
            address = None
        if address is None or self._open.get(address) is not connection:
            self._refused += 1
            return
        if self._door is not None:
            self._door.known(socket.remote_address)
        self._gone.pop(address, None)
        self._tell(address, f"{address} has joined")
        self._moved.set()
        connection.tasks = [
            asyncio.create_task(self._send(address, connection)),
            asyncio.create_task(self._receive(address, connection)),
        ]
        try:
            await connection.tasks[1]
        except (ConnectionClosed, asyncio.CancelledError):
            pass
        except Rejected as reason:
            self._tell(address, f"the connection of {address} is ended: {reason}")
        finally:
            self._close(address, connection)

    def _close(self, address: str, connection: Presence) -> None:
        """Nothing more comes from this connection, and nothing is sent over it."""
        for task in connection.tasks:
            task.cancel()
        if self._open.get(address) is connection:
            del self._open[address]
            self._gone[address] = -math.inf if connection.leaves else time.monotonic()
            if not self.watch.is_over:
                self._tell(address, f"{address} has gone")
        self._moved.set()

    async def _sign_in(self, connection: Presence) -> str | None:
        socket, sign_in = connection.socket, ServerSignIn(self._study, self._roster, self._helpers, self._identity)
        connection.limit(frames.SIGN_IN_BYTES)
        await socket.send(packed(sign_in.challenge()))
        try:
            proof = sign_in.read(await socket.recv())
            address = sign_in.check(proof)
            await self._make_room(address, proof.process)
            expects = self.relay.begin(address, proof.process, proof.expects)
        except (SignInRefused, Rejected) as refused:
            self._tell_refused(str(refused))
            await socket.send(packed(Denied(str(refused))))
            return None
        # From here on this connection holds the participant's place: others with the same key have to wait for it.
        self._open[address] = connection
        try:
            await socket.send(packed(sign_in.accepted(proof, self.relay.process, expects, self._plan)))
        except BaseException:
            self._close(address, connection)
            raise
        connection.limit(frames.FRAME_BYTES)
        return address

    async def _make_room(self, address: str, process: bytes) -> None:
        """End the connection that a participant has already, if it is the same process's, or if nobody answers there.

        Two processes with one key would otherwise drive each other out for ever. The first one stays.
        """
        while (before := self._open.get(address)) is not None:
            if process != self.relay.peers[address].process and await before.is_alive():
                if self._open.get(address) is not before:
                    continue
                raise SignInRefused(
                    "another process takes part with your key and is connected; end it first, or leave this one out."
                )
            self._close(address, before)

    def _tell_refused(self, reason: str) -> None:
        self._tell("", f"a connection is refused: {reason}")

    async def _send(self, address: str, connection: Presence) -> None:
        with suppress(ConnectionClosed):
            while True:
                connection.wake.clear()
                while connection.extra:
                    await connection.socket.send(connection.extra.pop(0))
                while (piece := self.relay.peers[address].next_piece()) is not None:
                    await connection.socket.send(packed(piece))
                    while connection.extra:
                        await connection.socket.send(connection.extra.pop(0))
                await connection.wake.wait()

    async def _receive(self, address: str, connection: Presence) -> None:
        peer = self.relay.peers[address]
        async for content in connection.socket:
            frame: Any = unpacked(content, Piece | Got | Done | Countersigned | Leaving)
            match frame:
                case Piece():
                    await self._piece(address, connection, frame)
                case Got():
                    peer.acknowledge(frame)
                    connection.wake.set()
                case Done():
                    peer.done(frame)
                case Countersigned(signature):
                    self.relay.coordinator.log.sign(address, signature)
                case Leaving(why):
                    connection.leaves = True
                    self._tell(address, f"{address} leaves: {LEAVING[why]}")
            self._moved.set()

    async def _piece(self, address: str, connection: Presence, piece: Piece) -> None:
        link = self.relay.peers[address].link
        got, arrived = link.take(piece)
        if len(connection.extra) >= frames.MOST_WAITING:
            raise Rejected(f"{frames.MOST_WAITING:,} acknowledgements wait to be read")
        connection.put(got)
        if arrived is not None:
            # A message that has arrived is taken, even if its connection ends meanwhile.
            await asyncio.shield(asyncio.create_task(self._message(address, arrived)))
