"""Who has reached the coordinator once comes back to it, whoever is at its address meanwhile; and patience ends."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner
from websockets.asyncio.server import serve

from unspoken import sites
from unspoken.cli import app
from unspoken.engines.network import tls
from unspoken.engines.network.client import Client, CoordinatorAddress, Finished, Told, Unreachable
from unspoken.engines.network.deadlines import Deadlines
from unspoken.engines.network.frames import ENDING, Ending, Piece, packed
from unspoken.engines.network.sign_in import ServerSignIn, SignInRefused
from unspoken.errors import UnspokenError
from unspoken.summation.base import Roster
from unspoken.summation.keys import Identity

HUB, ME, STRANGER = (Identity(os.urandom(32)) for _ in range(3))
ROSTER = Roster([ME.public], HUB.public, [])
STUDY = "d" * 64
COMMANDS: dict[str, Callable[..., Any]] = {"serve": sites.serve, "join": sites.join, "assist": sites.assist}


class Role:
    largest = 1 << 20

    def leave(self) -> None:
        pass


async def accepts(socket: Any, study: str = STUDY, then: bytes = b"") -> tuple[int, int]:
    """The coordinator: it says one thing, and ends the connection. What the participant expects next."""
    sign_in = ServerSignIn(study, ROSTER, [], HUB)
    await socket.send(packed(sign_in.challenge()))
    proof = sign_in.read(await socket.recv())
    await socket.send(packed(sign_in.accepted(proof, bytes(16), (0, 0))))
    if then:
        await socket.send(then)
        await asyncio.sleep(0.2)
    return proof.expects


async def ends(socket: Any) -> None:
    body = packed(Ending(reason="all is over"))
    await accepts(socket, then=packed(Piece(0, ENDING, len(body), 0, memoryview(body))))


async def other_study(socket: Any) -> None:
    await accepts(socket, study="e" * 64)


async def babbles(socket: Any) -> None:
    await socket.send(b"something else")


OTHERS = [
    pytest.param(STRANGER, accepts, "shows another certificate than the study's roster has", id="certificate"),
    pytest.param(HUB, other_study, "the coordinator serves another study", id="study"),
    pytest.param(HUB, babbles, "this is no coordinator of unspoken", id="babble"),
]


def client_of(port: int, said: list[str], patience: float = 20.0) -> Client:
    role: Any = Role()
    where = CoordinatorAddress("127.0.0.1", port, tls.certificate_digest(HUB))
    return Client(role, STUDY, ME, ROSTER, where, told=Told(line=said.append), patience=patience)


async def visited(served: list[tuple[Identity, Callable[[Any], Any]]], said: list[str]) -> Finished:
    """A participant, while these are at the coordinator's address one after the other, each until somebody came."""
    port, running = 0, None
    for identity, handler in served:
        came = asyncio.Event()

        async def handle(socket: Any, handler: Any = handler, came: asyncio.Event = came) -> None:
            await handler(socket)
            came.set()

        lines = len(said)
        async with serve(handle, "127.0.0.1", port, ssl=tls.server_context(identity)) as listening:
            port = listening.sockets[0].getsockname()[1]
            running = running or asyncio.create_task(client_of(port, said).run())
            while not came.is_set() and not running.done() and not any("else answers" in line for line in said[lines:]):
                await asyncio.sleep(0.01)
    assert running is not None
    return await running


@pytest.mark.parametrize(("identity", "handler", "told"), OTHERS)
def test_somebody_else_at_the_address_for_a_moment_ends_nothing(identity: Identity, handler: Any, told: str) -> None:
    said: list[str] = []
    served = [(HUB, accepts), (identity, handler), (HUB, ends)]
    finished = asyncio.run(asyncio.wait_for(visited(served, said), 300.0))
    assert finished.ending.reason == "all is over"
    assert any(f"is not reached (somebody else answers: {told}" in line for line in said)


@pytest.mark.parametrize(("identity", "handler", "told"), OTHERS)
def test_somebody_else_at_the_first_address_is_a_mistake(identity: Identity, handler: Any, told: str) -> None:
    with pytest.raises(SignInRefused, match=told):
        asyncio.run(asyncio.wait_for(visited([(identity, handler)], []), 300.0))


def test_a_patience_that_is_no_number_ends_at_once() -> None:
    with pytest.raises(Unreachable):
        asyncio.run(asyncio.wait_for(client_of(9, [], math.nan).run(), 300.0))


@pytest.mark.parametrize("seconds", ["nan", "-1"])
@pytest.mark.parametrize("command", [["join", "--data", "x.csv"], ["assist"]])
def test_patience_is_a_number_of_seconds(command: list[str], seconds: str) -> None:
    given = [*command, "study.toml", "--coordinator", "127.0.0.1:9", "--patience", seconds]
    said = CliRunner().invoke(app, given)
    assert said.exit_code == 2
    assert "is no number of seconds, such as 600" in said.stderr


@pytest.mark.parametrize("name", ["stage_seconds", "join_seconds", "grace_seconds"])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_terms_are_numbers_of_seconds(name: str, seconds: float) -> None:
    with pytest.raises(UnspokenError, match=f"{name} is .*, but should be a number of seconds"):
        Deadlines(**{name: seconds})


def test_the_command_line_waits_as_long_as_python_does() -> None:
    commands = typer.main.get_command(app)
    usual = {name: {option.name: option.default for option in commands.commands[name].params} for name in COMMANDS}  # type: ignore[attr-defined]
    assert {name: usual["serve"][name] for name in vars(Deadlines())} == vars(Deadlines())
    for name, called in COMMANDS.items():
        if name != "serve":
            assert usual[name]["patience"] == inspect.signature(called).parameters["patience"].default
