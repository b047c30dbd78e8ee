"""Two processes with one key: the first one stays, and the other is told why; they do not drive each other out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cast import study_of
from network.test_hostile import refused, signed_in
from network.test_server import honest, made
from small_studies import public_file
from unspoken.engines.network import presence
from unspoken.engines.network.sign_in import SignInRefused


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


def test_the_second_process_is_refused_with_the_reason_and_the_study_goes_on(public: Path) -> None:
    network, recording = made(study_of(public, "turns", "secagg+"))
    told: list[str] = []
    joined: list[str] = []
    network.server._events.told = joined.append

    async def second(port: int) -> None:
        while "party:0" not in network.server.present:
            await asyncio.sleep(0.001)
        with pytest.raises(SignInRefused, match="another process takes part with your key and is connected") as ended:
            await refused(network, port, network.keys.identity(0)).run()
        told.append(str(ended.value))

    coming: list[asyncio.Task[None]] = []

    async def meanwhile(port: int) -> int:
        coming.append(asyncio.create_task(second(port)))
        gather = network.server._gather

        async def gathered() -> None:
            await gather()
            await coming[0]

        network.server._gather = gathered  # type: ignore[method-assign]
        return port

    asyncio.run(network.run([], meanwhile))
    assert len(told) == 1
    assert recording.answers == honest(public, "turns", "secagg+")
    assert joined.count("party:0 has joined") == 1


@pytest.mark.parametrize("is_frozen", [True, False], ids=["frozen", "gone without a word"])
def test_who_does_not_answer_any_more_makes_room(
    is_frozen: bool, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut: nobody has closed the old connection."""
    monkeypatch.setattr(presence, "ALIVE_SECONDS", 0.3)
    network, recording = made(study_of(public, "turns", "secagg+"))
    old: list[Any] = []

    async def meanwhile(port: int) -> int:
        old.append(await signed_in(network, port, 0))
        if is_frozen:
            old[0].transport.pause_reading()
        else:
            old[0].transport.abort()
        return port

    async def play() -> None:
        await network.run([], meanwhile)
        old[0].transport.abort()

    asyncio.run(play())
    assert recording.answers == honest(public, "turns", "secagg+")


def test_the_same_process_may_come_again_at_once(public: Path) -> None:
    """Its old connection may look alive for a while, as behind a proxy."""
    network, _ = made(study_of(public, "turns", "secagg+"))

    async def play() -> bool:
        listening = await network.server.listen("127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        first = await signed_in(network, port, 0)
        again = await signed_in(network, port, 0)
        await asyncio.wait_for(first.wait_closed(), 300.0)
        stays = again.close_code is None
        await again.close()
        listening.close()
        await listening.wait_closed()
        return stays

    assert asyncio.run(play())
