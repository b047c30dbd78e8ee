"""A coordinator that shows a certificate while a vector is on its way, or asks on after it was signed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from network.town import NAMES, Town
from unspoken import sites
from unspoken.engines.network.client import Client
from unspoken.engines.network.frames import Ending, packed
from unspoken.methods.base import Sum
from unspoken.methods.parameters import Refused
from unspoken.privacy.events import Event
from unspoken.privacy.ledger import Ledger, Run
from unspoken.roles.attempts import next_attempt
from unspoken.roles.contributor import Contributor
from unspoken.roles.messages import ask_for
from unspoken.roles.party import Party
from unspoken.roles.store import StoreError

SECONDS = 60.0
"""Longer than anything here takes"""


class Pause:
    """Holds up whoever comes, until it is told to go on."""

    def __init__(self) -> None:
        self.came, self._goes_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.came.set()
        assert self._goes_on.wait(SECONDS)

    def end(self) -> None:
        self._goes_on.set()


class Doing:
    """Does something in another thread."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self._what, self.error = what, ""
        self._thread = threading.Thread(target=self._do)
        self._thread.start()

    def _do(self) -> None:
        try:
            self._what()
        except Refused as refused:
            self.error = str(refused)

    def wait(self, seconds: float = SECONDS) -> bool:
        """Whether it is done after so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


class SlowLedger(Ledger):
    """Takes a while to write a charge."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._pause = pause

    def charge(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        self._pause()
        super().charge(run, attempt, events)


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path))
    made = Town(tmp_path, "compute-nodes")
    yield made
    made.stop()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The numbers of vectors that certificates were compared with. Every certificate is one here."""
    found: list[dict[str, int]] = []
    monkeypatch.setattr(sites.joining, "_check_ending", lambda plan, roster, ending, sent: found.append(dict(sent)))
    monkeypatch.setattr(sites.joining, "received", lambda *given: None)
    return found


def ready(town: Town, ledger: Ledger | None = None) -> sites.ReadyParty:
    return sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]), ledger=ledger)


def asked(who: sites.Participant) -> bytes:
    """A request for the study's sum, in a new attempt: the vector leaves at once."""
    return msgspec.msgpack.encode(ask_for(Sum(who.plan.sums[0].name), 0, next_attempt()))


def slow_vectors(monkeypatch: pytest.MonkeyPatch) -> Pause:
    """Vectors take a while to make."""
    pause, made = Pause(), Contributor.vectors

    def slow(contributor: Contributor, *given: Any) -> Any:
        pause()
        return made(contributor, *given)

    monkeypatch.setattr(Contributor, "vectors", slow)
    return pause


def party_of(who: sites.Participant) -> Party:
    assert isinstance(who.role, Party)
    return who.role


def test_a_vector_that_is_just_leaving_is_counted_before_the_certificate_is_looked_at(
    town: Town, shown: list[dict[str, int]]
) -> None:
    """The connection is read while the party computes, so both can happen at once. Otherwise a certificate of one
    attempt less would be signed."""
    pause = Pause()
    with ready(town, SlowLedger(pause)).participant() as who:
        sending = Doing(lambda: who.role.receive(asked(who)))
        assert pause.came.wait(SECONDS)
        signing = Doing(lambda: who.agrees(Ending(b"one")))
        signing.wait(0.1)
        pause.end()
        assert sending.wait()
        assert signing.wait()
        assert not sending.error
        assert shown == [{who.plan.sums[0].name: 1}]


def test_a_vector_that_is_being_made_when_the_certificate_is_signed_does_not_leave(
    town: Town, shown: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, ledger = slow_vectors(monkeypatch), Ledger()
    with ready(town, ledger).participant() as who:
        before = msgspec.msgpack.encode(party_of(who)._state)
        sending = Doing(lambda: who.role.receive(asked(who)))
        assert pause.came.wait(SECONDS)
        assert who.agrees(Ending(b"one"))
        pause.end()
        assert sending.wait()
        assert "no vector leaves after it" in sending.error
        assert msgspec.msgpack.encode(party_of(who)._state) == before
        assert shown == [{}]
    assert not ledger.account().charges


def test_a_vector_that_is_being_made_when_the_study_is_given_up_costs_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party was too slow for the others, and hears that all is over: nobody would get its vector."""
    pause, ledger = slow_vectors(monkeypatch), Ledger()
    with ready(town, ledger).participant() as who:
        client = Client(who.role, town.study.digest(), who.identity, who.roster, town.where(1))
        sending = Doing(lambda: who.role.receive(asked(who)))
        assert pause.came.wait(SECONDS)
        asyncio.run(client._end(packed(Ending(reason="too few are left"))))
        pause.end()
        assert sending.wait()
        assert "no vector leaves after it" in sending.error
        assert client.finished is not None
    assert not ledger.account().charges


def test_what_was_signed_is_not_forgotten_with_the_file_that_says_so(town: Town, shown: list[dict[str, int]]) -> None:
    """Its witness counts it before the signature leaves, so that neither a second certificate nor a vector follows."""
    signer = ready(town)
    with signer.participant() as who:
        who.agrees(Ending(b"one"))
    (journal,) = (town.folder / "states").glob("*certificate.journal")
    journal.unlink()
    with pytest.raises(StoreError, match="is gone, but its witness"), signer.participant():
        pass


def test_a_certificate_that_is_not_signed_stops_vectors_for_this_process_alone(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was signed, so nothing that was signed is made false."""

    def refuse(*given: object) -> None:
        raise Refused("the certificate is malformed.")

    monkeypatch.setattr(sites.joining, "_check_ending", refuse)
    with ready(town).participant() as who:
        with pytest.raises(Refused, match="malformed"):
            who.agrees(Ending(b"one"))
        with pytest.raises(Refused, match="no vector leaves after it"):
            who.role.receive(asked(who))
    with ready(town).participant() as again:
        assert again.role.receive(asked(again))
