"""Coordinators with the right key that do what none should: participants end with a reason, and sign one thing."""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import serve

from unspoken.engines.network.client import Client, CoordinatorAddress, Finished, Told, Unreachable
from unspoken.engines.network.frames import Countersigned, Ending, Got, News, Piece, packed, unpacked
from unspoken.engines.network.sign_in import ServerSignIn, SignInRefused
from unspoken.methods.parameters import Refused
from unspoken.summation.base import Rejected, Roster
from unspoken.summation.keys import Identity

HUB, ME = Identity(os.urandom(32)), Identity(os.urandom(32))
ROSTER = Roster([ME.public], HUB.public, [])


class Role:
    largest = 1 << 20

    def leave(self) -> None:
        pass


def client_of(port: int = 1, told: Told | None = None) -> Client:
    role: Any = Role()
    where = CoordinatorAddress("127.0.0.1", port, encrypted=False)
    return Client(role, "d" * 64, ME, ROSTER, where, told=told, patience=0.3)


def visits(expects: tuple[int, int], then: bytes = b"") -> list[int]:
    """A participant takes part where the coordinator accepts it, says one thing and ends the connection."""
    came: list[int] = []

    async def accept(socket: Any) -> None:
        came.append(1)
        sign_in = ServerSignIn("d" * 64, ROSTER, [], HUB)
        await socket.send(packed(sign_in.challenge()))
        proof = sign_in.read(await socket.recv())
        sign_in.check(proof)
        await socket.send(packed(sign_in.accepted(proof, bytes(16), expects)))
        if then:
            await socket.send(then)

    async def play() -> None:
        async with serve(accept, "127.0.0.1", 0) as listening:
            await asyncio.wait_for(client_of(listening.sockets[0].getsockname()[1]).run(), 300.0)

    with pytest.raises(Unreachable, match="its connections end before anything of use has come"):
        asyncio.run(play())
    return came


def test_a_message_that_was_never_sent_cannot_be_gone_on_with() -> None:
    with pytest.raises(SignInRefused, match=r"cannot continue this connection \(byte 0 of message 7 is expected"):
        visits((7, 0))


def time_left(seconds: float) -> bytes:
    """News as an honest coordinator cannot make them."""
    encode = msgspec.msgpack.encode
    return packed(News("setup", 1, 3, 1.5)).replace(encode(1.5), encode(seconds))


@pytest.mark.parametrize("then", [b"", time_left(math.nan)], ids=["nothing", "no number"])
def test_connections_that_end_at_once_are_made_again_ever_more_slowly_and_then_no_more(then: bytes) -> None:
    assert 1 < len(visits((0, 0), then)) < 10


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 1e300])
def test_news_of_no_time_are_refused(seconds: float) -> None:
    with pytest.raises(Rejected, match="seconds are left, which cannot be"):
        unpacked(time_left(seconds), Piece | Got | News)


def test_addresses_are_short_and_small_messages_cost_more_than_their_bytes() -> None:
    client = client_of()
    with pytest.raises(Rejected, match="an address of 65 characters came, where 64 are the most"):
        client._piece(Piece(0, "p" * 65, 1, 0, memoryview(b"x")))
    comes = (Piece(number, "p" * 64, 1, 0, memoryview(b"x")) for number in range(1 << 19))
    with pytest.raises(Rejected, match="more comes than was acknowledged"):
        deque(map(client._piece, comes), 0)
    assert len(client._arrived) < 300_000


def test_one_certificate_is_signed_and_no_other() -> None:
    said: list[str] = []
    client = client_of(told=Told(said.append, agrees=lambda ending: b"signed " + ending.certificate))
    for ending in (Ending(b"one"), Ending(b"two"), Ending(b"one", file=b"another")):
        asyncio.run(client._end(packed(ending)))
    assert [unpacked(sent, Countersigned) for sent in client._extra] == [Countersigned(b"signed one")] * 2
    assert said == ["another certificate came after one was signed, and is not signed"]
    asyncio.run(client._end(packed(Ending(reason="there is none"))))
    assert client.finished == Finished(Ending(b"one"), b"signed one")


def test_a_coordinator_is_not_told_why_a_certificate_is_not_signed() -> None:
    def declines(ending: Ending) -> bytes:
        raise Refused("its file has another SHA-256")

    client = client_of(told=Told(agrees=declines))
    asyncio.run(client._end(packed(Ending(b"one"))))
    assert client._extra == [packed(Countersigned(b""))]
    assert client._result is not None
    assert client._result.disagrees == "its file has another SHA-256"
