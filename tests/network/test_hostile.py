"""Hostile peers on real sockets: each is refused, with the reason on the side where a person can act on it, and costs
a bounded amount of memory; the study goes on for the others."""

from __future__ import annotations

import asyncio
import functools
import resource
import socket as sockets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

import loopback
from cast import study_of
from network.test_server import honest, made
from small_studies import public_file
from unspoken.engines.network import frames, relay, server, tls
from unspoken.engines.network.client import Client, CoordinatorAddress, Told, Unreachable
from unspoken.engines.network.deadlines import Deadlines
from unspoken.engines.network.frames import Denied, Piece, packed
from unspoken.engines.network.sign_in import ClientSignIn, SignInRefused
from unspoken.roles.attempts import next_attempt
from unspoken.roles.messages import Ask, Carried
from unspoken.summation.base import Aborted, Envelope, Roster
from unspoken.summation.keys import Identity

STRANGER = Identity(bytes(range(32)))
IDLE = 400


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


class Impostor(Identity):
    """Claims someone's public key, and signs by another."""

    @property
    def public(self) -> bytes:
        return self.claimed

    claimed = b""


def unharmed(public: Path, harm: Callable[[loopback.Loopback, int], Awaitable[None]]) -> loopback.Loopback:
    """The network after a study in which someone did harm. Its totals are those of honest runs."""
    network, recording = made(study_of(public, "turns", "secagg+"))

    async def meanwhile(port: int) -> int:
        await harm(network, port)
        return port

    asyncio.run(network.run([], meanwhile))
    assert recording.answers == honest(public, "turns", "secagg+")
    return network


def refused(network: loopback.Loopback, port: int, identity: Identity, study: str = "") -> Client:
    """A client for party 0, of whom something is wrong."""
    where = CoordinatorAddress("127.0.0.1", port, tls.certificate_digest(network.keys.coordinator))
    role: Any = network.actors.parties["party:0"]
    return Client(role, study or network.study, identity, network.keys.roster, where, patience=5.0)


def test_who_signs_in_wrongly_is_told_why_and_the_study_goes_on(public: Path) -> None:
    said: list[str] = []

    async def harm(network: loopback.Loopback, port: int) -> None:
        network.server._events.told = said.append
        network.server._tell_refused = said.append  # type: ignore[method-assign]
        impostor = Impostor(bytes(32))
        impostor.claimed = network.keys.identity(0).public
        for client, reason in (
            (refused(network, port, STRANGER), "your identity is not in the study's roster; ask the coordinator"),
            (refused(network, port, impostor), "your signature does not match the identity that you claim"),
            (refused(network, port, network.keys.identity(0), "0" * 64), "serves another study, or another version"),
        ):
            with pytest.raises(SignInRefused, match=reason):
                await client.run()

    unharmed(public, harm)
    assert any("not in the study's roster" in line for line in said)
    assert any("signature does not match" in line for line in said)


def test_a_client_of_another_version_is_refused_by_name_with_both_versions(public: Path) -> None:
    async def harm(network: loopback.Loopback, port: int) -> None:
        async with connect(f"wss://127.0.0.1:{port}/", ssl=tls.client_context(pinned=True)) as socket:
            await socket.recv()
            await socket.send(msgspec.msgpack.encode(["net/proof", 2, "7.0", "what", {"comes": "later"}]))
            answer: Denied = frames.unpacked(await socket.recv(), Denied)
        assert answer.reason.startswith("you have unspoken 7.0, which speaks version 2 on the wire; the coordinator")
        assert "Install unspoken" in answer.reason

    unharmed(public, harm)


def test_a_coordinator_of_another_version_is_left_by_name_with_both_versions(public: Path) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))

    async def greet(socket: Any) -> None:
        await socket.send(msgspec.msgpack.encode(["net/challenge", 2, "7.0", "what", {"comes": "later"}]))
        await socket.wait_closed()

    async def play() -> None:
        async with serve(greet, "127.0.0.1", 0) as listening:
            where = CoordinatorAddress("127.0.0.1", listening.sockets[0].getsockname()[1], encrypted=False)
            role: Any = network.actors.parties["party:0"]
            client = Client(role, network.study, network.keys.identity(0), network.keys.roster, where)
            with pytest.raises(SignInRefused, match=r"unspoken 7\.0, which speaks version 2 .* Install unspoken 7\.0"):
                await client.run()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("listens", "encrypted", "reason"),
    [(True, False, "the port may want TLS: leave out --plain"), (False, True, "no TLS at this port")],
)
def test_who_forgets_or_adds_plain_is_told_so(listens: bool, encrypted: bool, reason: str, public: Path) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    said: list[str] = []

    async def play() -> None:
        listening = await network.server.listen("127.0.0.1", 0, encrypted=listens)
        pinned = tls.certificate_digest(network.keys.coordinator)
        where = CoordinatorAddress("127.0.0.1", listening.sockets[0].getsockname()[1], pinned, encrypted=encrypted)
        role: Any = network.actors.parties["party:0"]
        identity, roster = network.keys.identity(0), network.keys.roster
        client = Client(role, network.study, identity, roster, where, patience=0.0, told=Told(line=said.append))
        with pytest.raises(Unreachable, match=reason):
            await client.run()
        listening.close()
        await listening.wait_closed()

    asyncio.run(play())


def test_plain_http_garbage_and_slow_loris_on_the_tls_port_end_by_themselves(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SIGN_IN_SECONDS", 0.5)
    open_ones: list[asyncio.StreamWriter] = []
    dripping: list[asyncio.Task[None]] = []

    async def drip(writer: asyncio.StreamWriter, content: bytes) -> None:
        with suppress(OSError):
            for byte in content * 50:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)

    async def ended(reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while await asyncio.wait_for(reader.read(4096), 300.0):
                pass

    async def harm(network: loopback.Loopback, port: int) -> None:
        readers = []
        for content in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 40, b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(content)
            readers.append(reader)
            open_ones.append(writer)
        # Within a TLS record that never ends, and within a request that never ends.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        dripping.append(asyncio.create_task(drip(writer, b"\x16\x03\x01\x40\x00\x01")))
        secure, inside = await asyncio.open_connection("127.0.0.1", port, ssl=tls.client_context(pinned=True))
        dripping.append(asyncio.create_task(drip(inside, b"GET / HTTP/1.1\r\nX-")))
        open_ones.extend([writer, inside])
        await asyncio.gather(*map(ended, [*readers, reader, secure]))
        for task in dripping:
            task.cancel()
        for each in open_ones:
            each.close()

    network = unharmed(public, harm)
    assert network.server._door is not None
    assert network.server._door.strangers == 0


def test_hundreds_of_idle_connections_keep_nobody_out(public: Path) -> None:
    """Each costs memory from its first byte on, so there are never more than a number of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * IDLE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * IDLE, hard), hard))
    idle: list[sockets.socket] = []

    async def harm(network: loopback.Loopback, port: int) -> None:
        for _ in range(IDLE):
            idle.append(sockets.create_connection(("127.0.0.1", port)))
            if len(idle) % 50 == 0:
                await asyncio.sleep(0)
        door = network.server._door
        assert door is not None
        while door.sent_away < IDLE - server.STRANGERS:
            await asyncio.sleep(0.01)
        assert door.strangers <= server.STRANGERS

    try:
        network = unharmed(public, harm)
    finally:
        for each in idle:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert network.server.status.refused >= IDLE - server.STRANGERS


async def signed_in(network: loopback.Loopback, port: int, party: int) -> Any:
    """A connection of a party of the roster, which then does as it likes."""
    socket = await connect(f"wss://127.0.0.1:{port}/", ssl=tls.client_context(pinned=True), compression=None)
    sign_in = ClientSignIn(network.study, network.keys.roster, network.keys.identity(party), bytes(16))
    await socket.send(packed(sign_in.proof(sign_in.read(await socket.recv()), (0, 0))))
    sign_in.check(frames.unpacked(await socket.recv(), frames.Accepted | Denied))
    return socket


def test_a_party_that_reads_no_acknowledgements_is_cut_off(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_WAITING", 50)
    said: list[str] = []

    async def harm(network: loopback.Loopback, port: int) -> None:
        network.server._events.told = said.append
        network.server.relay.coordinator._largest = 1000

        async def stuck(self: Any, address: str, connection: Any) -> None:
            """As if the other side did not read: nothing more can be sent to it."""
            await asyncio.Event().wait()

        monkeypatch.setattr(server.Server, "_send", stuck)
        socket = await signed_in(network, port, 0)
        monkeypatch.undo()
        monkeypatch.setattr(frames, "MOST_WAITING", 50)
        with suppress(ConnectionClosed):
            for offset in range(200):
                await socket.send(packed(Piece(0, "coordinator", 1000, offset, memoryview(b"x"))))
        await asyncio.wait_for(socket.wait_closed(), 300.0)

    unharmed(public, harm)
    assert any("50 acknowledgements wait to be read" in line for line in said)


def test_a_party_cannot_fill_the_coordinator_with_messages_for_others(public: Path) -> None:
    network, _ = made(study_of(public, "messages", "compute-nodes"))
    coordinator = network.actors.coordinator
    attempt = bytes(16)
    with suppress(Exception):
        network.server.relay.send(coordinator.start())
    body = packed(Carried(attempt, memoryview(b"x" * 100)))
    node = network.server.relay.peers[next(iter(network.actors.helpers))]
    for _ in range(relay.MOST_PASSED):
        network.server.relay.send([Envelope(node.address, body)], "party:0")
    before = network.server.relay.bytes
    with pytest.raises(relay.Rejected, match=r"8 messages for node:0 wait already"):
        network.server.relay.send([Envelope(node.address, body)], "party:0")
    assert network.server.relay.bytes == before
    network.server.relay.send([Envelope(node.address, body)], "party:1")


def test_a_coordinator_that_goes_on_without_acknowledgements_is_not_heard(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that computes takes in a bounded amount meanwhile."""
    from unspoken.engines.network import client as module

    monkeypatch.setattr(module, "WINDOW_BYTES", 2000)
    monkeypatch.setattr(module, "_MOST_AHEAD", 5000)
    network, _ = made(study_of(public, "turns", "secagg+"))
    where = CoordinatorAddress("127.0.0.1", 1)

    class Role:
        largest = 500

    made_client = Client(Role(), network.study, STRANGER, network.keys.roster, where)  # type: ignore[arg-type]
    comes = (Piece(number, "coordinator", 500, 0, memoryview(bytes(500))) for number in range(100))
    with pytest.raises(frames.Rejected, match="more comes than was acknowledged"):
        deque(map(made_client._piece, comes))
    assert len(made_client._arrived) < 20
    # What the role has taken makes room, and only then the rest is acknowledged.
    assert len(made_client._extra) == 2
    while made_client._arrived:
        asyncio.run(made_client._next())
    assert len(made_client._extra) > 2
    assert not made_client._held


Lie = Callable[[Any], None]


def lied_to(public: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie) -> Any:
    """What parties say of a coordinator that lies, and how the study ends for it."""
    said: list[str] = []
    monkeypatch.setattr(loopback, "DEADLINES", Deadlines(1.5, 60.0, 0.2))
    monkeypatch.setattr(loopback, "Client", functools.partial(Client, told=Told(line=said.append)))
    network, recording = made(study_of(public, "turns", "secagg+"))
    network.actors.coordinator.attempts._most_free = 0
    lie(network)
    with suppress(Aborted):
        asyncio.run(network.run([]))
    return network, said, recording.answers


def test_a_coordinator_that_wants_in_the_open_what_has_little_noise_is_refused(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secure sum's vectors carry a share of the noise each: in the open that would be less than was promised."""

    def lie(network: Any) -> None:
        coordinator, start = network.actors.coordinator, network.actors.coordinator.start

        def lying() -> list[Envelope]:
            name = coordinator.plan.sums[0].name
            ask = packed(Ask(next_attempt(), "collect", name, 0))
            return [*start(), *(Envelope(f"party:{party}", ask) for party in range(6))]

        coordinator.start = lying

    _, said, _ = lied_to(public, monkeypatch, lie)
    assert sum("which is not how the plan has it" in line for line in said) >= 6


def test_a_coordinator_that_asks_twice_gets_nothing_the_second_time(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(network: Any) -> None:
        coordinator, answered = network.actors.coordinator, network.actors.coordinator._answered

        def again(answer: Any) -> None:
            coordinator._answered = answered
            # The same turn once more, as if its total had never been made.
            coordinator.totals.participation.clear()
            coordinator._waiting = [coordinator.request]

        coordinator._answered = again

    network, said, answers = lied_to(public, monkeypatch, lie)
    assert not answers
    assert sum("a request is refused" in line for line in said) >= 6
    assert all(max(party.sent.values()) == 1 for party in network.actors.parties.values())


def test_a_coordinator_that_invents_a_party_gets_no_total(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of one, with a key of its own."""

    def lie(network: Any) -> None:
        true = network.keys.roster
        false = Roster((*true.parties[:5], STRANGER.public), true.coordinator, true.helpers)
        network.server._roster = false
        network.actors.coordinator._roster = false
        party = network.actors.parties["party:5"]
        party._identity, party._roster = STRANGER, false
        identity = network.keys.identity
        network.keys.__dict__["identity"] = lambda index: STRANGER if index == 5 else identity(index)

    network, said, answers = lied_to(public, monkeypatch, lie)
    assert not answers
    assert network.actors.coordinator.release is None
    assert sum("the signature of party 5 does not match its identity in the roster" in line for line in said) >= 5
