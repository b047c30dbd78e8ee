"""The coordinator: its stages, what it rejects, and how it ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast import EACH_SCENE, Cast, study_of
from small_studies import PARTIES, small
from unspoken.engines.actors import Vanishing
from unspoken.methods.base import Cancel, Collect, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.roles.messages import Ask, Assist, Carried, Over
from unspoken.roles.store import MemoryStore
from unspoken.study import Study
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected


def encoded(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def test_stages_come_in_their_order(public: Path) -> None:
    cast, stages = Cast(study_of(public, "turns", "secagg+")), []
    cast.run([], lambda stage, done, parties: stages.append(stage))
    assert stages == ["setup", "setup", "setup", "vectors", "gathering", "agreement", "result"] * 2
    assert (cast.coordinator.stage, cast.coordinator.release is None) == ("done", False)


def test_a_protocol_without_setup_begins_with_vectors_and_a_shuffle_has_one_stage(public: Path) -> None:
    cast, stages = Cast(study_of(public, "tokens", "ideal")), []
    cast.run([], lambda stage, done, parties: stages.append(stage))
    assert stages == ["shuffle", "vectors", "gathering", "agreement", "result"] * 2


@EACH_SCENE
def test_every_request_is_a_new_attempt_that_parties_and_helpers_hear_of(
    kind: str, protocol: str, public: Path
) -> None:
    cast = Cast(study_of(public, kind, protocol))
    heard: dict[str, list[bytes]] = {}

    def listen(to: str, body: bytes) -> None:
        if to != COORDINATOR:
            message: Any = msgspec.msgpack.decode(body, type=Ask | Assist | Carried | Over)
            if isinstance(message, Ask | Assist):
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


@EACH_SCENE
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


@EACH_SCENE
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
    keys = {"order": "noise-first"}
    study = small(public, "cape", "statistics", keys=keys, dropouts=3, colluding=1, summation="compute-nodes")
    assert asked_in(study) == {"ZeroSum": list(range(PARTIES)), "Collect": [0, 1, 2, 3, 5]}


def test_only_those_who_sent_a_message_add_up_the_noise_of_it(public: Path) -> None:
    study = small(public, "cape", "statistics", dropouts=3, colluding=1, summation="compute-nodes")
    assert asked_in(study) == {"Collect": list(range(PARTIES)), "Cancel": [0, 1, 2, 3, 5]}


def test_a_party_that_was_not_asked_has_no_say(public: Path) -> None:
    """It would come into the sum of the noise, and end the attempt after vectors have left."""
    study = small(public, "cape", "statistics", dropouts=3, colluding=1, summation="compute-nodes")
    cast, refused = Cast(study), []

    def look(to: str, body: bytes) -> None:
        if isinstance(cast.coordinator.request, Cancel) and not refused:
            attempt = cast.coordinator.attempt
            for sender in ("party:4", "party:0"):
                message = msgspec.msgpack.encode(Carried(attempt, memoryview(b"anything")))
                with pytest.raises(Rejected) as told:
                    cast.coordinator.receive(message, sender)
                refused.append(str(told.value))

    cast.before = look
    cast.run([4, 1])
    assert refused[0] == "party:4 was not asked in this attempt"
    assert refused[1] != refused[0].replace("4", "0")


def asked_in(study: Study) -> dict[str, list[int]]:
    """Who is asked for what if party 4 vanishes first, and then party 1."""
    cast = Cast(study)
    asked: dict[str, list[int]] = {}

    def look(to: str, body: bytes) -> None:
        request = cast.coordinator.request
        if isinstance(request, ZeroSum | Collect | Cancel):
            asked[type(request).__name__] = cast.coordinator.expected()

    cast.before = look
    cast.run([4, 1])
    assert cast.coordinator.totals.participation["function"][0].sent == PARTIES - 2
    return asked


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


@EACH_SCENE
def test_it_says_by_itself_when_a_stage_is_complete(kind: str, protocol: str, public: Path) -> None:
    """Stages are closed as soon as they are complete: all but those in which some protocol awaits nothing."""
    cast, closed = Cast(study_of(public, kind, protocol)), list[tuple[str, bool]]()
    close = cast.coordinator.close_stage

    def watched() -> Any:
        closed.append((cast.coordinator.stage, cast.coordinator.complete))
        return close()

    cast.coordinator.close_stage = watched  # type: ignore[method-assign]
    assert cast.totals() == Cast(study_of(public, kind, protocol)).totals()
    assert {stage for stage, complete in closed if complete} >= {"vectors", "agreement", "result"}
    assert all(complete for _, complete in closed)


@pytest.mark.parametrize("protocol", ["secagg+", "compute-nodes"])
def test_a_stage_is_not_complete_before_everyone_has_answered(protocol: str, public: Path) -> None:
    """Before every message of a stage in which someone is expected: not yet, unless the message is no answer."""
    cast, early = Cast(study_of(public, "turns", protocol)), 0

    def look(to: str, body: bytes) -> None:
        nonlocal early
        early += cast.coordinator.complete

    cast.before = look
    cast.totals()
    # What is still on its way when a stage is complete: that the study is over, and to nodes what to count.
    assert early == 0


def test_who_vanished_is_waited_for(public: Path) -> None:
    study = small(public, "helmet", "classification", dropouts=2, summation="secagg+", colluding=1)
    cast, closed = Cast(study), list[bool]()
    close = cast.coordinator.close_stage

    def watched() -> Any:
        closed.append(cast.coordinator.complete)
        return close()

    cast.coordinator.close_stage = watched  # type: ignore[method-assign]
    cast.run([4, 1])
    # One vanishes after its keys, and one while it sends its vector.
    assert closed.count(False) == 2


def test_everyone_is_told_when_an_attempt_is_over_also_if_it_failed(public: Path) -> None:
    """And then nobody keeps anything of it."""
    for drop in (0, 3):
        study = small(public, "helmet", "classification", dropouts=2, summation="compute-nodes", colluding=1)
        cast = Cast(study)
        with contextlib.suppress(Aborted):
            cast.run(list(range(drop)))
        assert (cast.coordinator.release is None) == bool(drop)
        for role in (*cast.parties.values(), *cast.helpers.values()):
            if role not in [cast.parties[f"party:{index}"] for index in range(drop)]:
                assert role._attempt is None


def test_a_free_attempt_is_made_again_a_number_of_times(public: Path) -> None:
    """Nobody answers in the setup: no vector can have left."""
    coordinator = Cast(study_of(public, "turns", "secagg+")).coordinator
    coordinator.start()
    attempts = [coordinator.attempt]
    for _ in range(FREE_ATTEMPTS):
        with pytest.raises(Aborted) as ended:
            coordinator.close_stage()
        assert {envelope.to for envelope in coordinator.retry(ended.value)} == {f"party:{i}" for i in range(PARTIES)}
        attempts.append(coordinator.attempt)
    with pytest.raises(Aborted) as ended:
        coordinator.close_stage()
    with pytest.raises(Aborted) as last:
        coordinator.retry(ended.value)
    assert last.value.__cause__ is ended.value
    assert str(last.value).endswith("Nothing that depends on records had left a party, so it cost no epsilon.")
    assert sorted(set(attempts)) == attempts
    assert not coordinator.attempts.failed


def test_an_attempt_with_vectors_is_not_made_again_unless_the_plan_has_another(public: Path) -> None:
    for attempts in (1, 3):
        study = small(public, "helmet", "classification", summation="compute-nodes", attempts=attempts)
        coordinator = Cast(study).coordinator
        coordinator.start()
        ended = Aborted("it ended")
        for _ in range(attempts - 1):
            coordinator.retry(ended)
        with pytest.raises(Aborted, match="it ended"):
            coordinator.retry(ended)
        assert coordinator.attempts.failed == {"model": attempts}


class Leaving(Cast):
    """Messages for those who are not there are lost."""

    away: frozenset[str] = frozenset({"party:4", "party:5"})

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        return [] if to in self.away else super().step(to, body, gone, sender)


@pytest.mark.parametrize("summation", ["secagg", "pairwise"])
def test_if_the_noise_of_messages_can_never_be_added_up_others_send_new_ones(public: Path, summation: str) -> None:
    """Party 3 sends a message and leaves for good, so that too few senders are left. Parties 4 and 5 are back."""
    cancels = dict[int, int]()
    for attempts in (1, 2):
        keys = {"order": "messages-first"}
        said = {"dropouts": 2, "colluding": 1, "attempts": attempts, "summation": summation}
        cast, asked = Leaving(small(public, "cape", "statistics", keys=keys, **said)), list[tuple[bytes, str]]()

        def look(to: str, body: bytes, cast: Leaving = cast, asked: list[tuple[bytes, str]] = asked) -> None:
            now = cast.coordinator.attempt, type(cast.coordinator.request).__name__
            asked += [] if now in asked else [now]
            if now[1] == "Cancel":
                cast.away = frozenset({"party:3"})

        cast.before = look
        with contextlib.nullcontext() if attempts > 1 else pytest.raises(Aborted, match="epsilon = 2 of the planned 2"):
            cast.run([])
        kinds = [kind for _, kind in asked]
        cancels[attempts] = kinds.count("Cancel")
        assert kinds.count("Collect") == attempts
        assert cast.coordinator.attempts.failed == {cast.plan.sums[0].name: 1}
        # Each party counts by itself how often it may be begun with.
        assert cancels[attempts] <= attempts + FREE_ATTEMPTS
    assert cast.coordinator.totals.participation[cast.plan.sums[0].name][0].sent == PARTIES - 1
    assert cancels == {1: 1 + FREE_ATTEMPTS, 2: 1 + FREE_ATTEMPTS // 2 + 1}
