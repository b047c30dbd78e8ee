"""A server and real connections on this machine: bad lines, strangers, garbage, and participants that begin again."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

import loopback
from cast import study_of
from network.bad_lines import BadLine
from small_studies import KEY, Recording, federation_of, method_of, public_file, small
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.engines.network import frames, server, tls
from unspoken.engines.network.client import Client, CoordinatorAddress
from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.frames import Denied, Piece, packed
from unspoken.engines.network.presence import Presence
from unspoken.engines.network.sign_in import ClientSignIn, SignInRefused
from unspoken.noise.stream import SecretStream
from unspoken.roles.stages import SummingStages
from unspoken.study import Study
from unspoken.summation.base import Aborted, Envelope
from unspoken.summation.keys import Identity

SCENES = [("turns", "secagg+"), ("messages", "compute-nodes"), ("votes", "tally"), ("tokens", "ideal")]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


@cache
def honest(public: Path, kind: str, protocol: str) -> list[Any]:
    """The totals of the local engine."""
    study = study_of(public, kind, protocol)
    method = method_of(study)
    recording = Recording(method)
    local.run(method, method.plan(), federation_of(study), Conditions(secrets=SecretStream(KEY)))
    return recording.answers


def made(study: Study) -> tuple[loopback.Loopback, Recording]:
    method = method_of(study)
    recording = Recording(method)
    return loopback.Loopback(method, method.plan(), federation_of(study), SecretStream(KEY)), recording


@pytest.mark.parametrize(("kind", "protocol"), SCENES)
def test_a_bad_line_changes_no_total(
    kind: str, protocol: str, public: Path, monkeypatch: pytest.MonkeyPatch, seeds: Callable[[int, int], range]
) -> None:
    """Connections are cut again and again, in the middle of messages, and made again."""
    from unspoken.engines.network import link

    monkeypatch.setattr(link, "PIECE_BYTES", 500)
    monkeypatch.setattr(loopback, "DEADLINES", Deadlines(60.0, 60.0, 60.0))
    for seed in seeds(protocol == "secagg+", 2):
        network, recording = made(study_of(public, kind, protocol))
        line = BadLine(seed, cuts=30, mean_bytes=3000.0)

        async def play(network: loopback.Loopback = network, line: BadLine = line) -> None:
            try:
                await network.run([], line.start)
            finally:
                await line.stop()

        asyncio.run(play())
        assert recording.answers == honest(public, kind, protocol)
        assert line.made > len(network.clients)


def test_what_ends_an_attempt_when_time_is_up_is_not_taken_for_the_end_of_the_next_one(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was taken in at the last moment has ended the attempt: it is made again, once."""
    running, _ = made(study_of(public, "turns", "secagg+"))
    conductor, happened = running.server, list[str]()

    async def at_once() -> None:
        conductor._failed = Aborted("a share was wrong")

    def closed() -> set[str]:
        happened.append("closed")
        monkeypatch.setattr(type(conductor.relay.coordinator), "stage", "done")
        return set()

    monkeypatch.setattr(conductor, "_deadlines", Deadlines(0.0, 0.0, 0.0))
    monkeypatch.setattr(conductor, "_gather", at_once)
    monkeypatch.setattr(conductor.relay, "close_stage", closed)
    monkeypatch.setattr(conductor, "_is_enough", lambda *hoped_for: True)
    monkeypatch.setattr(conductor.relay, "fail", lambda ended: happened.append(str(ended)))
    monkeypatch.setattr(conductor.relay, "again", set)
    asyncio.run(conductor.run())
    assert happened == ["a share was wrong", "closed"]


def test_nobody_asks_who_is_missing_while_a_message_is_taken_in(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In between, nobody may seem to be missing, and the stage would end without those who are about to be asked."""
    step, missing = SummingStages.step, SummingStages.missing.fget
    assert missing is not None
    taking, asked_between = threading.Event(), threading.Event()

    def slow_step(stages: SummingStages, body: bytes, sender: str) -> list[Envelope]:
        taking.set()
        time.sleep(0.02)
        try:
            return step(stages, body, sender)
        finally:
            taking.clear()

    def watched(stages: SummingStages) -> set[str]:
        if taking.is_set():
            asked_between.set()
        return missing(stages)

    monkeypatch.setattr(SummingStages, "step", slow_step)
    monkeypatch.setattr(SummingStages, "missing", property(watched))
    running, recording = made(study_of(public, "turns", "secagg+"))
    asyncio.run(running.run([]))
    assert not asked_between.is_set()
    assert len(recording.answers) == len(honest(public, "turns", "secagg+"))


def test_strangers_and_garbage_cost_themselves_only(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a study runs: text, garbage, a false identity, silence, a message of 10 GB, and half a handshake."""
    monkeypatch.setattr(server, "SIGN_IN_SECONDS", 1.0)
    network, recording = made(study_of(public, "turns", "secagg+"))
    said: list[str] = []
    network.server._events.told = said.append
    answers: list[Any] = []

    async def harm(port: int) -> int:
        context = tls.client_context(pinned=True)
        for content in (b"garbage", "text", bytes(5000)):
            async with connect(f"wss://127.0.0.1:{port}/", ssl=context, compression=None) as socket:
                await socket.recv()
                await socket.send(content)
                with suppress(ConnectionClosed):
                    # What is too long is not even refused.
                    frames.unpacked(await asyncio.wait_for(socket.recv(), 300.0), Denied)
                await asyncio.wait_for(socket.wait_closed(), 300.0)
        assert socket.close_code == CloseCode.MESSAGE_TOO_BIG
        async with connect(f"wss://127.0.0.1:{port}/", ssl=context, compression=None) as socket:
            sign_in = ClientSignIn(network.study, network.keys.roster, Identity(bytes(32)), bytes(16))
            challenge: Any = frames.unpacked(await socket.recv(), frames.Challenge)
            await socket.send(packed(sign_in.proof(challenge, (0, 0))))
            answers.append(frames.unpacked(await socket.recv(), Denied))
        async with connect(f"wss://127.0.0.1:{port}/", ssl=context, compression=None) as socket:
            # An honest identity, by another process, which then announces too much.
            sign_in = ClientSignIn(network.study, network.keys.roster, network.keys.identity(0), bytes(16))
            challenge = frames.unpacked(await socket.recv(), frames.Challenge)
            await socket.send(packed(sign_in.proof(challenge, (0, 0))))
            await socket.recv()
            await socket.send(packed(Piece(0, "coordinator", 10**10, 0, memoryview(b"x"))))
            async for _ in socket:
                pass
        silent = await connect(f"wss://127.0.0.1:{port}/", ssl=context, compression=None)
        _, half = await asyncio.open_connection("127.0.0.1", port)
        half.write(b"\x16\x03")
        silences.extend([silent, half])
        return port

    silences: list[Any] = []

    async def play() -> None:
        await network.run([], harm)
        await silences[0].close()
        silences[1].close()

    asyncio.run(play())
    assert recording.answers == honest(public, "turns", "secagg+")
    assert "not in the study's roster" in answers[0].reason
    assert any("10,000,000,000 bytes was announced" in line for line in said)


def test_of_too_many_strangers_the_first_are_sent_away(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STRANGERS", 3)
    monkeypatch.setattr(server, "SIGN_IN_SECONDS", 600.0)
    network, _ = made(study_of(public, "turns", "secagg+"))

    async def play() -> list[bool]:
        listening = await network.server.listen("127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        context = tls.client_context(pinned=True)
        sockets = [await connect(f"wss://127.0.0.1:{port}/", ssl=context, compression=None) for _ in range(6)]
        for socket in sockets[:3]:
            await asyncio.wait_for(socket.wait_closed(), 300.0)
        stay = []
        for socket in sockets:
            stay.append(socket.close_code is None)
            await socket.close()
        listening.close()
        await listening.wait_closed()
        return stay

    assert asyncio.run(play()) == [False] * 3 + [True] * 3


def test_a_server_with_another_certificate_or_key_is_left_at_once(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    role: Any = network.actors.parties["party:0"]

    async def play(digest: str, reason: str) -> None:
        listening = await network.server.listen("127.0.0.1", 0)
        where = CoordinatorAddress("127.0.0.1", listening.sockets[0].getsockname()[1], digest)
        client = Client(role, network.study, network.keys.identity(0), network.keys.roster, where, patience=5.0)
        with pytest.raises(SignInRefused, match=reason):
            await client.run()
        listening.close()
        await listening.wait_closed()

    asyncio.run(play("00" * 32, "shows another certificate"))
    network.server._identity = Identity(bytes(32))
    monkeypatch.setattr(server.ServerSignIn, "check", lambda self, proof: "party:0")
    asyncio.run(play(tls.certificate_digest(Identity(bytes(32))), "does not have the coordinator's key"))


@pytest.mark.parametrize(
    ("scene", "told"),
    [
        (
            ("turns", "secagg+"),
            r"^0 of 6 parties are there after 0 s, where 6 parties are needed \(not there: party:0, ",
        ),
        (
            ("messages", "compute-nodes"),
            r"0 of 3 helpers are there .* and all helpers are needed \(not there: node:0, ",
        ),
    ],
)
def test_too_few_parties_end_the_study_before_it_begins(scene: tuple[str, str], told: str, public: Path) -> None:
    network, _ = made(study_of(public, *scene))
    network.server._deadlines = Deadlines(1.0, 0.2, 0.2)
    with pytest.raises(Aborted, match=told + r".* so it cost no epsilon\.$"):
        asyncio.run(network.server.run())
    coordinator = network.server.relay.coordinator
    coordinator.attempts.failed[coordinator.plan.sums[0].name] += 1
    assert re.search(r"\)\. Vectors may have left once .* is spent\.$", str(network.server._too_few(0.2)))


def test_another_attempt_waits_until_enough_are_there(public: Path) -> None:
    """With fewer it would come to nothing, and be spent if vectors left in it."""
    network, _ = made(study_of(public, "turns", "secagg+"))
    told: list[str] = []
    server = network.server
    server._deadlines, server._events = Deadlines(60.0, 0.2, 0.2), Events(told.append)

    async def play() -> None:
        server.relay.start()
        first, server._failed = server.relay.coordinator.attempt, Aborted("party:1 fell silent")
        closing = asyncio.create_task(server._close_stage())
        while not told:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert server.relay.coordinator.attempt == first, "another one is not begun yet"
        server._open.update({address: Mock(spec=Presence, wake=asyncio.Event()) for address in server.relay.peers})
        server._moved.set()
        await asyncio.wait_for(closing, 60.0)
        assert server.relay.coordinator.attempt > first

    asyncio.run(play())
    assert told == ["this attempt has ended, and another is to be made: party:1 fell silent"]


def test_another_attempt_for_which_too_few_come_back_is_not_made(public: Path) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    server = network.server
    server._deadlines = Deadlines(0.2, 0.2, 0.2)
    server.relay.start()
    first, server._failed = server.relay.coordinator.attempt, Aborted("party:1 fell silent")
    with pytest.raises(
        Aborted, match=r"^0 of 6 parties are there after 0 s, where 6 parties are needed .* no epsilon\.$"
    ):
        asyncio.run(server._close_stage())
    assert server.relay.coordinator.attempt == first


def test_who_has_said_that_it_leaves_is_not_waited_for(public: Path) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    server = network.server
    server._deadlines = Deadlines(600.0, 0.2, 0.2)
    server.relay.start()
    server._gone["party:1"], server._failed = -math.inf, Aborted("party:1 left")
    with pytest.raises(Aborted, match=r"^0 of 6 parties are there after 0 s, where 6 parties are needed"):
        asyncio.run(asyncio.wait_for(server._close_stage(), 60.0))


@pytest.mark.parametrize("limits", [{"max_size": 7}, {"max_message_size": 7, "max_fragment_size": None}])
def test_the_largest_frame_is_limited_in_all_versions_of_the_library(limits: dict[str, Any]) -> None:
    socket: Any = SimpleNamespace(protocol=SimpleNamespace(**limits))
    Presence(socket).limit(5)
    assert vars(socket.protocol) == {name: most and 5 for name, most in limits.items()}


def test_a_study_that_has_its_result_needs_nobody_to_go_on(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator was stopped before it had written the result, and nobody is back when time is up."""
    network, _ = made(study_of(public, "turns", "secagg+"))
    network.server._deadlines = Deadlines(1.0, 0.0, 60.0)
    monkeypatch.setattr(type(network.server.relay.coordinator), "is_over", True)
    asyncio.run(network.server._gather())


def test_without_tls_nothing_is_said_to_a_server_that_has_it(public: Path) -> None:
    """TLS 1.3 only."""
    network, _ = made(small(public, "helmet", "classification", summation="secagg+"))

    async def play() -> None:
        listening = await network.server.listen("127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, OSError)):
            await connect(f"wss://127.0.0.1:{port}/", ssl=old)
        listening.close()
        await listening.wait_closed()

    asyncio.run(play())
