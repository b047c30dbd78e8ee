"""A participant that cannot go on says so, also if its connection is cut just then; nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.server import serve

from network.test_coming_back import HUB, accepts, client_of
from unspoken.engines.network import client, tls
from unspoken.engines.network.frames import Got, Leaving, Piece, packed, unpacked
from unspoken.roles.charging import LimitReached
from unspoken.summation.base import COORDINATOR, Envelope

REQUEST = packed(Piece(0, COORDINATOR, 1, 0, memoryview(b"x")))


class Spent:
    """A role whose ledger allows nothing more."""

    largest = 1 << 20

    def receive(self, body: bytes) -> list[Envelope]:
        raise LimitReached("the ledger's limit is reached")


async def left(cuts: int, patience: float = 20.0) -> list[Leaving]:
    """What a coordinator hears whose first connections are cut, each without a word, when it has asked for something.

    What was asked over the first one may be lost with it. So it is asked again; the next is cut when it has arrived.
    """
    heard: list[Leaving] = []
    came = 0

    async def handle(socket: Any) -> None:
        nonlocal came
        came += 1
        expects = await accepts(socket)
        if expects == (0, 0):
            await socket.send(REQUEST)
            if came > 1:
                await socket.recv()
        if came <= cuts:
            socket.transport.abort()
            return
        async for content in socket:
            if isinstance(frame := unpacked(content, Got | Leaving), Leaving):
                heard.append(frame)

    async with serve(handle, "127.0.0.1", 0, ssl=tls.server_context(HUB)) as listening:
        participant = client_of(listening.sockets[0].getsockname()[1], [], patience)
        participant._role = Spent()  # type: ignore[assignment]
        with pytest.raises(LimitReached):
            await participant.run()
    return heard


@pytest.mark.parametrize("cuts", [0, 1, 2])
def test_who_leaves_says_so_over_the_next_connection_if_this_one_is_cut(cuts: int) -> None:
    assert asyncio.run(asyncio.wait_for(left(cuts), 300.0)) == [Leaving("ledger")]


def test_who_leaves_does_not_try_for_ever_to_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LEAVING_SECONDS", 0.3)
    assert asyncio.run(asyncio.wait_for(left(1000, patience=1000.0), 300.0)) == []
