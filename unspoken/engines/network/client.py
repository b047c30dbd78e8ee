"""A party or a helper on a network: one connection to the coordinator, made again whenever it is cut.

Messages are processed one at a time, and the next one only when all answers to the last have arrived. So at whatever
moment the process is stopped, the coordinator repeats exactly what the role must see again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidProxy, WebSocketException

from unspoken.defaults import PATIENCE
from unspoken.engines.network import frames, tls
from unspoken.engines.network.frames import (
    ENDING,
    Accepted,
    Countersigned,
    Denied,
    Done,
    Ending,
    Got,
    Leaving,
    News,
    Piece,
    Signatures,
    packed,
)
from unspoken.engines.network.hosts import bad_proxy, is_host
from unspoken.engines.network.link import WINDOW_BYTES, Arrived, Link
from unspoken.engines.network.participant import Finished, Told, agreeing, answers, checked, restrained
from unspoken.engines.network.reasons import why
from unspoken.engines.network.server import PING_SECONDS, SIGN_IN_SECONDS
from unspoken.engines.network.sign_in import PROCESS_BYTES, ClientSignIn, OtherServer, SignInRefused
from unspoken.errors import UnspokenError
from unspoken.roles.charging import LimitReached
from unspoken.roles.role import Role
from unspoken.summation.base import Envelope, Rejected, Roster
from unspoken.summation.keys import Identity

SIGNATURES_SECONDS = 15.0
"""How long a participant that has the result tries to get the signatures from a coordinator that is gone"""
LEAVING_SECONDS = 15.0
"""How long a participant that leaves tries to tell a coordinator so that is not there"""
LASTING_SECONDS = 5.0
"""A connection that lasted so long does not count as a failure, even if nothing came over it"""
APART_SECONDS = 0.1
"""The least time from the beginning of one connection to that of the next, whatever the coordinator does with them"""
_MOST_AHEAD = 32 * WINDOW_BYTES
"""The most bytes that are accepted without acknowledging them: one window for each connection that may be cut"""
_COSTS = 512
"""The memory that a piece or a message takes besides its bytes"""


class Unreachable(UnspokenError):
    """The coordinator could not be reached for as long as was agreed."""

    exit_status = 3


@dataclass(frozen=True)
class CoordinatorAddress:
    """Where the coordinator is, and how to know it."""

    host: str
    port: int
    certificate: str | None = None
    """The digest of its certificate's public key; without one, an authority must have signed it"""
    encrypted: bool = True

    def __post_init__(self) -> None:
        if not is_host(self.host):
            raise UnspokenError(f"{self.host!r} is no name of a machine; it should be one such as hub.example.org.")

    @property
    def uri(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.encrypted else 'ws'}://{host}:{self.port}/"


class Client:
    """One participant's connection for a whole study."""

    def __init__(
        self,
        role: Role[Any],
        study: str,
        identity: Identity,
        roster: Roster,
        coordinator: CoordinatorAddress,
        *,
        told: Told | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`patience` is the number of seconds without a connection after which the client gives up."""
        self._role, self._study, self._identity, self._roster = role, study, identity, roster
        self._coordinator, self._patience = coordinator, patience
        self._told = restrained(told or Told())
        self._process = os.urandom(PROCESS_BYTES)
        self._theirs = b""
        self.largest = 1 << 20
        """The most bytes of a result"""
        self._link, self._flushed = self._new_link(), asyncio.Event()
        self._arrived, self._came = deque[Arrived](), asyncio.Event()
        self._wake = asyncio.Event()
        self._extra: list[bytes] = []
        self._unread = self._ahead = 0
        """The memory of what has arrived and was not yet processed by the role, and of the part that was not
        acknowledged"""
        self._held: list[Got] = []
        """Acknowledgements that wait until the role has taken more"""
        self._done: Done | None = None
        self._result: Finished | None = None
        """How the study has ended, while signatures may still come"""
        self.finished: Finished | None = None
        self._leaving: Leaving | None = None
        self._left = asyncio.Event()
        """Set when the coordinator knows that this participant leaves"""
        self._heard = False
        """Whether anything has come over this connection"""
        self.sent = 0

    def _new_link(self) -> Link:
        return Link(lambda: max(self._role.largest, self.largest))

    async def run(self) -> Finished:
        """Take part until the coordinator says that the study is over.

        `LimitReached` if the ledger does not allow to go on, and `StoreError`, `LedgerError` or `OSError` if something
        cannot be kept: then the coordinator is told to go on without this participant.
        """
        taking, connected = asyncio.create_task(self._take()), asyncio.create_task(self._connections())
        try:
            await asyncio.wait([taking, connected], return_when=asyncio.FIRST_COMPLETED)
            if not connected.done():
                is_limit = isinstance(taking.exception(), LimitReached)
                await self._leave(Leaving("ledger" if is_limit else "disk"), connected)
                taking.result()
            return connected.result()
        finally:
            for task in (taking, connected):
                task.cancel()
            await asyncio.gather(taking, connected, return_exceptions=True)

    async def _connections(self) -> Finished:
        """One connection after the other."""
        clock = asyncio.get_running_loop().time
        since, failures = clock(), 0
        while self.finished is None:
            began = clock()
            try:
                is_of_use = await self._connection()
                if self._left.is_set():
                    await asyncio.Event().wait()  # until `run` ends this
                if is_of_use:
                    since, failures = clock(), 0
                    await asyncio.sleep(max(0.0, began + APART_SECONDS - since))
                    continue
                reason = "its connections end before anything of use has come"
            except (OtherServer, tls.WrongCertificate) as other:
                # The address is right if the coordinator was reached there before; somebody else may answer there for a
                # moment.
                if not self._theirs:
                    raise SignInRefused(f"{self._where}: {other}") from None
                reason = f"somebody else answers: {str(other).rstrip('.')}"
            except (OSError, WebSocketException, TimeoutError) as error:
                reason = why(error, self._coordinator.host, self._coordinator.encrypted)
            if self.finished is not None:
                break
            failures, away = failures + 1, clock() - since
            if self._result is not None and away > min(SIGNATURES_SECONDS, self._patience):
                return self._result
            if not away <= self._patience:
                raise Unreachable(
                    f"{self._where}: not reached for {self._patience:.0f} s ({reason}); if the study has ended "
                    "meanwhile, ask its coordinator for the model and the certificate."
                )
            self._told.line(f"{self._where} is not reached ({reason}); trying again")
            await asyncio.sleep(min(10.0, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0))  # noqa: S311
        return self.finished

    async def _leave(self, leaving: Leaving, connected: asyncio.Task[Finished]) -> None:
        """Tell the coordinator: over the next connection, if this one is cut before it has heard it."""
        self._leaving = leaving
        self._put(leaving)
        left, most = asyncio.create_task(self._left.wait()), min(LEAVING_SECONDS, self._patience)
        await asyncio.wait([left, connected], timeout=most, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()

    @property
    def _where(self) -> str:
        return f"{self._coordinator.host}:{self._coordinator.port}"

    async def _connection(self) -> bool:
        """One connection, to its end; whether it was of use: something came, or it lasted."""
        where = self._coordinator
        pinned = where.certificate if where.encrypted else None
        try:
            socket = await connect(
                where.uri,
                ssl=tls.client_context(pinned is not None) if where.encrypted else None,
                create_connection=tls.pinning(pinned) if pinned else None,
                **frames.socket_settings(PING_SECONDS, SIGN_IN_SECONDS),
            )
        except (InvalidProxy, ImportError, ValueError) as error:
            # A certificate that cannot be verified is a ValueError, too. The host is one (`CoordinatorAddress`), so
            # otherwise it is the proxy that is none.
            if isinstance(error, OSError):
                raise
            raise bad_proxy(error) from None
        async with socket:
            await asyncio.wait_for(self._sign_in(socket), SIGN_IN_SECONDS)
            self._told.line(f"connected to {self._where}")
            sending = asyncio.create_task(self._send(socket))
            clock = asyncio.get_running_loop().time
            self._heard, began = False, clock()
            try:
                await self._receive(socket)
                if self.finished is not None:
                    await asyncio.wait_for(sending, SIGN_IN_SECONDS)
            except Rejected as reason:
                self._told.line(f"the connection is ended: {reason}")
                return clock() - began > LASTING_SECONDS
            finally:
                sending.cancel()
        # The coordinator answers the end of a connection once it has got all that came before.
        if self._leaving is not None and socket.protocol.close_rcvd and not socket.protocol.close_rcvd_then_sent:
            self._left.set()
        return self._heard or clock() - began > LASTING_SECONDS

    async def _sign_in(self, socket: ClientConnection) -> None:
        sign_in = ClientSignIn(self._study, self._roster, self._identity, self._process)
        try:
            challenge = sign_in.read(await socket.recv())
            await socket.send(packed(sign_in.proof(challenge, self._link.expects)))
            answer: Any = frames.unpacked(await socket.recv(), Accepted | Denied)
        except Rejected as reason:
            raise OtherServer(f"this is no coordinator of unspoken ({reason}).") from None
        accepted = sign_in.check(answer)
        try:
            agreeing(accepted.plan, challenge.version, self._told)
        except SignInRefused as differs:
            await socket.send(packed(Leaving("plan")))
            raise SignInRefused(f"{self._where}: {differs}") from None
        if self._theirs and accepted.process != self._theirs:
            # The coordinator has begun again: it knows nothing of what is under way.
            self._link, self._done = self._new_link(), None
            self._arrived.clear()
            self._unread = self._ahead = 0
            self._told.line("the coordinator has begun again")
        self._theirs = accepted.process
        try:
            self._link.resume(accepted.expects)
        except Rejected as reason:
            raise SignInRefused(f"{self._where}: the coordinator cannot continue this connection ({reason}).") from None
        # Acknowledgements of the last connection are void: on a new one each side says what it expects.
        self._held.clear()
        self._extra = [] if self._done is None else [packed(self._done)]
        if self._result is not None:
            self._extra.append(packed(Countersigned(self._result.signature)))
        if self._leaving is not None:
            self._extra.append(packed(self._leaving))
        self._wake.set()
        self._flushed.set()

    async def _send(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                self._wake.clear()
                while self._extra:
                    await socket.send(self._extra.pop(0))
                for piece in self._link.pieces():
                    await socket.send(packed(piece))
                    while self._extra:
                        await socket.send(self._extra.pop(0))
                if self.finished is not None:
                    return
                if self._leaving is not None and not self._extra:
                    await socket.close()
                await self._wake.wait()

    async def _receive(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for content in socket:
                frame: Any = frames.unpacked(content, Piece | Got | News)
                self._heard = True
                match frame:
                    case Piece():
                        if (ending := self._piece(frame)) is not None:
                            await self._end(ending.body)
                            if self.finished is not None:
                                return
                    case Got():
                        self._link.acknowledge(frame)
                        self._wake.set()
                        if self._link.is_empty:
                            self._flushed.set()
                    case News():
                        self._told.news(frame)

    def _piece(self, piece: Piece) -> Arrived | None:
        """Take a piece. Returns the study's end, if the piece completes it.

        If much has arrived that the role has not processed yet, the acknowledgement is held back, so that the
        coordinator sends at most one window more. A coordinator that sends more regardless is ignored.
        """
        is_ahead = self._unread >= WINDOW_BYTES
        self._ahead += _COSTS + len(piece.part) if is_ahead else 0
        if self._ahead > _MOST_AHEAD:
            raise Rejected("more comes than was acknowledged")
        got, arrived = self._link.take(piece)
        if is_ahead:
            self._held.append(got)
        else:
            self._put(got)
        if arrived is None or arrived.peer == ENDING:
            return arrived
        self._arrived.append(arrived)
        self._unread += _COSTS + len(arrived.body)
        self._came.set()
        return None

    async def _end(self, body: bytes) -> None:
        """The study is over: sign its certificate, then wait for all signatures."""
        said: Any = frames.unpacked(body, Ending | Signatures)
        if isinstance(said, Signatures):
            if self._result is None:
                raise Rejected("signatures of a certificate came before it")
            self.finished = replace(self._result, signatures=said.signatures)
        elif said.certificate:
            if self._result is None or not self._result.signature:
                # Off the event loop, which goes on to answer pings.
                self._result = await asyncio.to_thread(self._checked, said)
            if said.certificate != self._result.ending.certificate:
                # A study has one result. If there were two, nobody could tell which one counts.
                self._told.line("another certificate came after one was signed, and is not signed")
                return
            self._put(Countersigned(self._result.signature))
        else:
            # A vector may be under way in another thread. It would be charged, and nobody would get it.
            await asyncio.to_thread(self._role.leave)
            self._put(Countersigned(b""))
            is_signed = self._result is not None and self._result.signature
            self.finished = self._result if is_signed else Finished(said)
        self._wake.set()

    def _checked(self, ending: Ending) -> Finished:
        return checked(ending, self._told)

    def _put(self, frame: Any) -> None:
        self._extra.append(packed(frame))
        self._wake.set()

    async def _take(self) -> None:
        """Process messages one at a time. Messages from before a restart of the coordinator are dropped."""
        while True:
            arrived = await self._next()
            link = self._link
            envelopes = await self._answers(arrived)
            if link is not self._link:
                continue
            for to, body in envelopes:
                self.sent += len(body)
                link.put(to, body)
            self._flushed.clear()
            self._wake.set()
            while link is self._link and not link.is_empty:
                await self._flushed.wait()
                self._flushed.clear()
            if link is self._link:
                answered = self._done.answered if self._done else -1
                self._done = Done(arrived.number, arrived.number if envelopes else answered)
                self._put(self._done)

    async def _next(self) -> Arrived:
        while True:
            self._came.clear()
            if self._arrived:
                arrived = self._arrived.popleft()
                self._unread -= _COSTS + len(arrived.body)
                if self._unread < WINDOW_BYTES:
                    self._ahead, held, self._held = 0, self._held, []
                    for got in held:
                        self._put(got)
                return arrived
            await self._came.wait()

    async def _answers(self, arrived: Arrived) -> list[Envelope]:
        """The role's answers. Off the event loop, which goes on to answer pings."""
        return await asyncio.to_thread(answers, self._role, arrived, self._told)
