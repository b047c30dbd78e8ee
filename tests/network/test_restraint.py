"""Whoever causes lines in somebody else's log cannot fill it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cast import study_of
from network.test_server import made
from small_studies import public_file
from unspoken.engines.network.frames import Leaving, packed
from unspoken.engines.network.link import Arrived
from unspoken.engines.network.presence import Presence
from unspoken.engines.network.restraint import APART_SECONDS, AT_ONCE, Restraint


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


def test_lines_come_some_at_once_then_one_now_and_then_and_none_is_left_uncounted() -> None:
    said: list[str] = []
    now = [0.0]
    tell = Restraint(said.append, clock=lambda: now[0])
    for _ in range(100_000):
        now[0] += 0.01
        tell("party:0", "again")
    assert AT_ONCE + 95 <= len(said) <= AT_ONCE + 101
    left_out = sum(int(line.split("(")[1].split()[0].replace(",", "")) for line in said if "left out" in line)
    assert 99_000 - AT_ONCE <= left_out + len(said) <= 100_000
    tell("party:1", "once")
    assert said[-1] == "once"


def test_a_party_cannot_fill_the_coordinator_s_log(public: Path) -> None:
    """Of each participant some lines are told at once, then one now and then."""
    network, _ = made(study_of(public, "turns", "secagg+"))
    said: list[str] = []
    network.server._events.told = said.append

    async def flood() -> None:
        for number in range(200):
            await network.server._message("party:0", Arrived(number, "party:1", b"x"))
        await network.server._message("party:1", Arrived(0, "coordinator", b"x"))

    began = time.monotonic()
    asyncio.run(flood())
    assert said[0].startswith("a message of party:0 is ignored: ")
    assert said[-1].startswith("a message of party:1 is ignored: ")
    assert len(said) <= 2 + AT_ONCE + (time.monotonic() - began) / APART_SECONDS


def test_a_party_that_says_again_and_again_that_it_leaves_is_told_of_a_few_times(public: Path) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    said: list[str] = []
    network.server._events.told = said.append

    async def frames_of_it() -> AsyncIterator[bytes]:
        for _ in range(500):
            yield packed(Leaving("disk"))

    began = time.monotonic()
    asyncio.run(network.server._receive("party:0", Presence(frames_of_it())))  # type: ignore[arg-type]
    assert said[0] == "party:0 leaves: it could not keep its state"
    assert len(said) <= 1 + AT_ONCE + (time.monotonic() - began) / APART_SECONDS
