"""A coordinator with the right key that lies, against a whole party with its ledger, over TLS: what it may not ask for
is refused with the reason, a true request is answered all the same, and the ledger has one charge."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server, socket
from threading import Event
from typing import Any

import numpy as np
import pytest

from network.liar import Liar, Talk, hub_of
from network.town import NAMES, Town
from unspoken import sites
from unspoken.engines.network import client
from unspoken.engines.network.frames import Ending, News, Piece, packed
from unspoken.engines.network.restraint import APART_SECONDS, AT_ONCE
from unspoken.engines.signing import canonical, sign
from unspoken.errors import UnspokenError
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report import countersigning
from unspoken.sites import serving

Lie = Callable[[Talk], Awaitable[Any]]


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / NAMES[0]))
    found = Town(tmp_path, "compute-nodes")
    yield found
    found.stop()


def honest(then: Ending | None = None) -> Lie:
    async def talk(talking: Talk) -> None:
        await talking.ask()
        await talking.end(then or Ending(reason="enough"))

    return talk


def lied_to(town: Town, *lies: Lie) -> tuple[sites.Joined, list[str], list[str], int]:
    """How the study ends for a party, what it says, whom it sent vectors to, and its charges."""
    said: list[str] = []
    ledger = Ledger(town.folder / "ledger.sqlite", "records")
    with Liar(town, *lies) as liar:
        joined = town.join(NAMES[0], liar.port, ledger, told=sites.Told(line=said.append)).result(300)
    return joined, said, liar.vectors(), len(ledger.account().charges)


async def asks_twice(talk: Talk) -> None:
    await talk.ask()
    await talk.ask()


async def asks_for_an_old_attempt(talk: Talk) -> None:
    attempt = await talk.ask()
    await talk.ask(bytes(8) + attempt[8:])


async def asks_from_the_future(talk: Talk) -> None:
    """Its clock is wrong, or this machine's is: a certificate would not be signed in the end."""
    await talk.ask((time.time_ns() + 2 * 86_400 * 10**9).to_bytes(8, "big") + os.urandom(8))


async def repeats_a_request(talk: Talk) -> None:
    """As a replay of an old session would: the same bytes, and so the same answer."""
    await talk.ask(await talk.ask())


def asks(**other: Any) -> Lie:
    async def lie(talk: Talk) -> None:
        await talk.ask(**other)

    return lie


def says(body: bytes, peer: str = "coordinator") -> Lie:
    return lambda talk: talk.say(body, peer)


LIES = {
    "asks twice": (asks_twice, 'a request is refused: "model" is asked for more often than planned, which is once'),
    "an old attempt": (asks_for_an_old_attempt, "an attempt that is not newer than those before"),
    "another clock": (asks_from_the_future, "the coordinator's clock is 2 days ahead of this machine's"),
    "in the open": (asks(kind="collect"), "which is not how the plan has it"),
    "another sum": (
        asks(name="records"),
        'a request is refused: the request is for "records", which is not in the plan',
    ),
    "a later turn": (asks(turn=7), "a request is refused: "),
    "parameters": (asks(numbers=np.ones(1).tobytes()), "a request is refused: "),
    "many parameters": (asks(numbers=bytes(1 << 20)), "bytes came where"),
    "half a number": (asks(numbers=b"123"), "which are no list of numbers"),
    "noise only": (asks(kind="prepare"), "a request is refused: "),
    "as another party": (asks(peer="party:1"), "it asks for something, and the coordinator has not sent it"),
    "garbage": (says(os.urandom(200)), "a message is ignored: "),
    "nesting": (says(b"\x91" * 60_000), "a message is ignored: "),
}


@pytest.mark.parametrize("which", LIES)
def test_a_lie_is_refused_with_the_reason_and_a_true_request_is_answered_once(which: str, town: Town) -> None:
    lie, told = LIES[which]

    async def then(talk: Talk) -> None:
        await lie(talk)
        if which not in ("asks twice", "an old attempt"):
            await talk.ask()
        await talk.end(Ending(reason="enough"))

    joined, said, sent, charges = lied_to(town, then)
    assert any(told in line for line in said), said
    assert (joined.reason, charges) == ("enough", 1)
    assert sorted(sent) == ["node:0", "node:1", "node:2"]


def test_a_request_that_is_played_back_gets_the_same_bytes_and_is_charged_once(town: Town) -> None:
    async def then(talk: Talk) -> None:
        await repeats_a_request(talk)
        await talk.end(Ending(reason="enough"))

    _, _, sent, charges = lied_to(town, then)
    assert (len(sent), charges) in ((3, 1), (6, 1))


async def talks_nonsense(talk: Talk) -> None:
    for number in range(300):
        await talk.say(b"nonsense %d" % number)


def test_a_liar_cannot_fill_a_party_s_log_and_a_true_request_is_answered(town: Town) -> None:
    async def then(talk: Talk) -> None:
        await talks_nonsense(talk)
        await talk.ask()
        await talk.end(Ending(reason="enough"))

    began = time.monotonic()
    joined, said, sent, charges = lied_to(town, then)
    ignored = [line for line in said if "a message is ignored: " in line]
    assert 1 < len(ignored) <= len(said) <= 1 + AT_ONCE + (time.monotonic() - began) / APART_SECONDS
    assert (joined.reason, len(sent), charges) == ("enough", 3, 1)


def test_a_liar_that_ends_every_connection_is_not_connected_to_without_a_pause(town: Town) -> None:
    connections = 0

    async def cuts(talk: Talk) -> None:
        nonlocal connections
        connections += 1
        await talk.socket.send(packed(News("waiting", 0, 1, 1.0)))
        await talk.socket.close()

    async def then(talk: Talk) -> None:
        await talk.end(Ending(reason="enough"))

    began = time.monotonic()
    joined, _, _, charges = lied_to(town, *[cuts] * 8, then)
    assert (joined.reason, connections, charges) == ("enough", 8, 0)
    assert time.monotonic() - began >= 8 * client.APART_SECONDS


HUGE = packed(Piece(0, "coordinator", 10 << 30, 0, memoryview(b"x")))


@pytest.mark.parametrize(
    ("frame", "told"),
    [(HUGE, "a message of 10,737,418,240 bytes was announced"), (os.urandom(500), "the connection is ended: ")],
    ids=["10 GB", "garbage"],
)
def test_a_frame_that_cannot_be_ends_the_connection_and_the_next_one_goes_on(
    frame: bytes, told: str, town: Town
) -> None:
    joined, said, sent, charges = lied_to(town, lambda talk: talk.socket.send(frame), honest())
    assert any(told in line for line in said), said
    assert (joined.reason, len(sent), charges) == ("enough", 3, 1)


def test_a_coordinator_that_never_finishes_a_word_is_left_when_patience_ends(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SIGN_IN_SECONDS", 0.3)
    ready, over = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0])), Event()

    def drips(listening: socket) -> None:
        peer, _ = listening.accept()
        with peer, suppress(OSError):
            for byte in b"HTTP/1.1 101 Switching Protocols\r\n":
                peer.send(bytes([byte]))
                if over.wait(0.05):
                    return

    with create_server(("127.0.0.1", 0)) as listening:
        dripping = town.submit(lambda: drips(listening))
        with pytest.raises(client.Unreachable, match="not reached for"):
            ready.join(sites.CoordinatorAddress("127.0.0.1", listening.getsockname()[1], encrypted=False), patience=0.5)
        over.set()
        dripping.result(10)


@pytest.mark.parametrize(
    ("forged", "told"),
    [
        ({"guarantee": {"epsilon": 0.1}}, "promises something else than this study's plan"),
        ({"audited": True}, "says something that no certificate of this study says"),
        ({}, "says something that cannot be"),
    ],
    ids=["less", "more", "nothing happened"],
)
def test_a_forged_certificate_is_not_signed_and_nothing_is_written(
    forged: dict[str, Any], told: str, town: Town
) -> None:
    content = countersigning._known(plan_for(town.study), {})
    content["guarantee"] = {**content["guarantee"], **forged.pop("guarantee", {})}
    certificate = canonical({**content, **forged})

    async def then(talk: Talk) -> None:
        await talk.ask()
        signature = sign(hub_of(town), certificate)
        await talk.end(Ending(certificate, "", signature, "model.skops", b"a model"))
        await talk.end(Ending(reason="it was a joke"))

    joined, said, _, charges = lied_to(town, then)
    assert any(f"the certificate is not signed: the certificate {told}" in line for line in said), said
    assert (joined.certificate, charges) == (None, 1)
    assert not list(town.folder.glob("*.certificate.json"))


def test_a_coordinator_whose_clock_is_long_ago_does_not_begin(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "EARLIEST", datetime.now(UTC) + timedelta(days=9))
    with pytest.raises(UnspokenError, match=r"this machine's clock says [-0-9]+, when no study can have begun"):
        sites.serve(town.study, sites.Entrance("127.0.0.1", 0), key=town.key("hub"))
