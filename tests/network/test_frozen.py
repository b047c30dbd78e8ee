"""A process that is frozen is noticed by pings, long before a stage's deadline, and large messages are held once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from cast import study_of
from network.test_server import made
from small_studies import public_file
from unspoken.engines.network import frames, server
from unspoken.engines.network.link import Link

SCRIPT = """
import asyncio, sys
from websockets.asyncio.client import connect
from unspoken.engines.network import frames, tls
from unspoken.engines.network.sign_in import ClientSignIn
from unspoken.summation.base import Roster
from unspoken.summation.keys import Identity

async def main():
    port, study, secret, coordinator, *parties = sys.argv[1:]
    identity = Identity(bytes.fromhex(secret))
    roster = Roster(tuple(map(bytes.fromhex, parties)), bytes.fromhex(coordinator))
    context = tls.client_context(pinned=True)
    async with connect(f"wss://127.0.0.1:{port}/", ssl=context, compression=None, ping_interval=None) as socket:
        sign_in = ClientSignIn(study, roster, identity, bytes(16))
        await socket.send(frames.packed(sign_in.proof(sign_in.read(await socket.recv()), (0, 0))))
        async for _ in socket:
            pass

asyncio.run(main())
"""


def test_a_frozen_process_is_noticed_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection stays open, as the kernel answers for it; but nobody answers pings."""
    monkeypatch.setattr(server, "PING_SECONDS", 0.5)
    network, _ = made(study_of(public_file(tmp_path), "turns", "secagg+"))
    roster, identity = network.keys.roster, network.keys.identity(0)

    async def until(is_so: bool) -> None:
        began = time.monotonic()
        while ("party:0" in network.server.present) is not is_so:
            assert time.monotonic() - began < 300.0
            await asyncio.sleep(0.02)

    async def play() -> None:
        listening = await network.server.listen("127.0.0.1", 0)
        given = [str(listening.sockets[0].getsockname()[1]), network.study, identity.secret.hex()]
        given += [key.hex() for key in (roster.coordinator, *map(bytes, roster.parties))]
        program = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *given], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
        try:
            await until(True)
            program.send_signal(signal.SIGSTOP)
            await until(False)
        finally:
            program.kill()
            program.wait(20)
            listening.close()
            await listening.wait_closed()

    asyncio.run(play())


def test_a_large_message_is_held_once_where_it_arrives() -> None:
    sender, receiver = Link(lambda: 1 << 30), Link(lambda: 1 << 30)
    size = 40 * frames.PIECE_BYTES + 17
    sender.put("party:0", bytes(size))
    tracemalloc.start()
    try:
        whole = None
        while not sender.is_empty:
            for piece in sender.pieces():
                assert len(piece.part) <= 1 << 20
                got, whole = receiver.take(piece)
                sender.acknowledge(got)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert whole is not None
    assert len(whole.body) == size
    # The buffer grows by an eighth more than it needs.
    assert size <= peak < 1.3 * size
