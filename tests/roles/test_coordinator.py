"""The coordinator: its stages, what it rejects, and how it ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cast import SCENES, Cast, study_of
from hypothesis import given
from hypothesis import strategies as st

from small_studies import PARTIES, small
from unspoken.methods.base import Collect, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.roles.messages import Ask, Assist, Carried
from unspoken.roles.store import MemoryStore
from unspoken.summation.base import COORDINATOR, Aborted, Rejected


def encoded(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def test_stages_come_in_their_order(public: Path) -> None:
    cast, stages = Cast(study_of(public, "turns", "secagg+")), []
    cast.run([], lambda stage, done, parties: stages.append(stage))
    assert stages == ["setup", "setup", "vectors", "agreement", "result"] * 2
    assert (cast.coordinator.stage, cast.coordinator.release is None) == ("done", False)


def test_a_protocol_without_setup_begins_with_vectors_and_a_shuffle_has_one_stage(public: Path) -> None:
    cast, stages = Cast(study_of(public, "tokens", "ideal")), []
    cast.run([], lambda stage, done, parties: stages.append(stage))
    assert stages == ["shuffle", "vectors", "agreement", "result"] * 2


@pytest.mark.parametrize(("kind", "protocol"), SCENES)
def test_every_request_is_a_new_attempt_that_parties_and_helpers_hear_of(
    kind: str, protocol: str, public: Path
) -> None:
    cast = Cast(study_of(public, kind, protocol))
    heard: dict[str, list[bytes]] = {}

    def listen(to: str, body: bytes) -> None:
        if to != COORDINATOR:
            message: Any = msgspec.msgpack.decode(body, type=Ask | Assist | Carried)
            if not isinstance(message, Carried):
                heard.setdefault(to, []).append(message.attempt)

    cast.before = listen
    cast.totals()
    attempts = heard["party:0"]
    assert len(set(attempts)) == len(attempts) == cast.plan.rounds + 2 * (kind == "tokens")
    assert all(heard[address] == attempts for address in cast.parties)
    # Messages in the open need no helpers.
    assert all(set(heard[address]) <= set(attempts) for address in cast.helpers)


@given(st.binary(max_size=100))
def test_garbage_is_rejected_before_the_start_and_after_it(garbage: bytes) -> None:
    cast = Cast(study_of(Path("no public records"), "turns", "compute-nodes"))
    coordinator = cast.coordinator
    with pytest.raises(Rejected):
        coordinator.receive(garbage)
    coordinator.start()
    with pytest.raises(Rejected):
        coordinator.receive(garbage)


@pytest.mark.parametrize(("kind", "protocol"), SCENES)
def test_messages_that_do_not_belong_change_no_total(kind: str, protocol: str, public: Path) -> None:
    """Before every message: one of another attempt, a damaged one, and the one before once more."""
    honest = Cast(study_of(public, kind, protocol)).totals()
    cast, last = Cast(study_of(public, kind, protocol)), b""

    def disturb(to: str, body: bytes) -> None:
        nonlocal last
        if to != COORDINATOR:
            return
        message: Any = msgspec.msgpack.decode(body, type=Carried)
        damaged = bytes(message.body)[:-1]
        for wrong in (
            encoded(Carried(b"x" * 16, message.body)),
            encoded(Carried(message.attempt, memoryview(damaged))),
            encoded(Assist(message.attempt, "sum", "model", 0)),
            body + b"x",
        ):
            with pytest.raises(Rejected):
                cast.coordinator.receive(wrong)
        # Some protocols reject what came before; to others it is no news, or they relay it again.
        with contextlib.suppress(Rejected):
            cast.coordinator.receive(last)
        last = body

    cast.before = disturb
    assert cast.totals() == honest
    with pytest.raises(Rejected):
        cast.coordinator.receive(last)


def test_nothing_is_closed_before_the_start_or_after_the_end(public: Path) -> None:
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    with pytest.raises(RuntimeError, match="no stage"):
        cast.coordinator.close_stage()
    cast.totals()
    with pytest.raises(RuntimeError, match="no stage"):
        cast.coordinator.close_stage()


@pytest.mark.parametrize(("kind", "protocol"), SCENES)
def test_without_answers_it_gives_up(kind: str, protocol: str, public: Path) -> None:
    """Whatever stage is closed with nobody there: no total and no release."""
    coordinator = Cast(study_of(public, kind, protocol)).coordinator
    coordinator.start()

    def close_all() -> None:
        for _ in range(9):
            coordinator.close_stage()

    with pytest.raises(Aborted):
        close_all()
    assert coordinator.release is None


def test_only_those_who_prepared_noise_are_asked_for_a_message(public: Path) -> None:
    study = small(public, "cape", "statistics", dropouts=3, colluding=1, summation="compute-nodes")
    cast = Cast(study)
    asked: dict[str, list[int]] = {}

    def look(to: str, body: bytes) -> None:
        request = cast.coordinator.request
        name = type(request).__name__
        if isinstance(request, ZeroSum | Collect):
            asked[name] = cast.coordinator.expected()

    cast.before = look
    cast.run([4, 1])
    assert asked == {"ZeroSum": list(range(PARTIES)), "Collect": [0, 1, 2, 3, 5]}


def test_a_party_that_lost_its_store_is_left_out_of_the_messages(public: Path) -> None:
    """It has no prepared noise any more: it refuses, and nobody gets a message without noise."""
    cast = Cast(study_of(public, "messages", "compute-nodes"))

    def lose(to: str, body: bytes) -> None:
        if to == "party:2" and isinstance(cast.coordinator.request, Collect):
            cast.stores[to] = MemoryStore()
            cast.parties[to] = cast.party(2)

    cast.before = lose
    with pytest.raises(Refused, match="no noise was prepared"):
        cast.totals()


def test_tokens_are_asked_for_turn_by_turn(public: Path) -> None:
    cast, turns = Cast(study_of(public, "tokens", "ideal")), []

    def look(to: str, body: bytes) -> None:
        if to == "party:0" and isinstance(cast.coordinator.request, Tokens):
            message: Any = msgspec.msgpack.decode(body, type=Ask | Carried)
            if isinstance(message, Ask):
                turns.append(message.turn)

    cast.before = look
    cast.totals()
    assert turns == [0, 1]
