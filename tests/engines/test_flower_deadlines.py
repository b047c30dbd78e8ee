"""How long a stage lasts: while talliers count, it goes on with each of their messages, and still not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cast import study_of
from flower_nodes import Nodes, Pushed
from small_studies import KEY, Recording, federation_of, method_of, public_file
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.engines.network import conductor
from unspoken.engines.network.deadlines import Deadlines
from unspoken.engines.network.link import Arrived
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted

STAGE = 300.0


class Vote(Nodes):
    """A vote of six parties and three talliers, by a clock that moves on with each answer only."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, each: float) -> None:
        study = study_of(public_file(folder), "votes", "tally")
        self.method = method_of(study)
        self.recording = Recording(self.method)
        self.plan, self.records = self.method.plan(), federation_of(study)
        super().__init__(self.method, self.plan, self.records, SecretStream(KEY))
        self.now, self._each = 0.0, each
        self.silent: set[str] = set()
        monkeypatch.setattr(conductor, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.server._since = self.server._helped = self.now
        self.server._deadlines = Deadlines(STAGE, 1e9, 1e9)
        self.grid.before = self._answers
        self.waited: dict[str, list[float]] = {}
        news = self.server._news

        def noted(stage: str, deadline: float) -> None:
            self.waited.setdefault(stage, []).append(deadline)
            if self.silent:
                self.now += self._each
            news(stage, deadline)

        self.server._news = noted

    def _answers(self, pushed: Pushed) -> bytes | None:
        address = self.address_of(pushed.node)
        if self.actors.coordinator.stage == "result" and address == "tallier:2" and self.fails:
            self.silent.add(address)
        if address in self.silent:
            return b""
        if self.server.relay.coordinator.stage != "done":
            self.now += self._each
        return None

    fails = False

    def address_of(self, node: int) -> str:
        return [*self.actors.parties, *self.actors.helpers][node - 100]


def test_counting_a_vote_may_take_longer_than_a_stage_if_messages_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vote = Vote(tmp_path, monkeypatch, STAGE / 10)
    asyncio.run(vote.run([]))
    method = method_of(vote.plan.study)
    recording = Recording(method)
    local.run(method, vote.plan, vote.records, Conditions(secrets=SecretStream(KEY)))
    assert vote.recording.answers == recording.answers
    assert vote.waited["result"][-1] - vote.waited["result"][0] > 2 * STAGE


def test_messages_of_parties_do_not_move_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everyone can see it, and the time of a party's answer may depend on its records."""
    vote = Vote(tmp_path, monkeypatch, 1.0)
    asyncio.run(vote.run([]))
    assert len(set(vote.waited["vectors"])) == 1
    assert len(set(vote.waited["result"])) > 10


def test_a_tallier_that_is_silent_ends_a_vote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vote = Vote(tmp_path, monkeypatch, STAGE / 10)
    vote.fails = True
    with pytest.raises(Aborted, match="tallier:2"):
        asyncio.run(asyncio.wait_for(vote.run([]), 120.0))


def test_talliers_that_never_end_do_not_keep_a_stage_open_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vote = Vote(tmp_path, monkeypatch, 1.0)
    seen: list[Any] = []
    deadline = vote.server._deadline

    def with_chatter(began: float) -> float:
        """As if a tallier's message had just come, at any time."""
        helped, vote.server._helped = vote.server._helped, 1e12
        seen.append((vote.actors.coordinator.stage, deadline(began) - began))
        vote.server._helped = helped
        return deadline(began)

    vote.server._deadline = with_chatter
    asyncio.run(vote.run([]))
    longest = dict(seen)
    assert longest["vectors"] == STAGE
    assert longest["result"] == (vote.plan.summation_parameters["rounds"] + 1) * STAGE


@pytest.mark.parametrize(("address", "moves"), [("tallier:0", True), ("party:0", False)])
def test_a_party_cannot_prolong_the_count(
    address: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ballots that come too late are still handed to talliers, who refuse them."""
    server = Vote(tmp_path, monkeypatch, 1.0).server
    monkeypatch.setattr(server.relay, "arrived", lambda sender, arrived: set())
    server._helped = -1.0
    asyncio.run(server._message(address, Arrived(0, "tallier:1", b"")))
    assert (server._helped == 0.0) is moves
