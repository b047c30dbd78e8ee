"""A coordinator that repeats, rewraps and withholds messages, opens attempts as it likes, and runs the study again.

It must get one vector of a party under one attempt, in no more attempts than planned, whether the vector is a sum's, a
message under prepared noise, or one of a list of tokens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adversaries import random_asks
from adversaries.on_disk import HELPED, SCENE, SCENES, decoded, recount
from cast import VICTIM, Cast, study_of
from small_studies import small
from unspoken.methods.base import Cancel, Collect, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.roles.messages import Ask, Assist, Carried, ask_for
from unspoken.roles.party import Party
from unspoken.summation.base import Aborted, Envelope, Rejected


class Asked:
    """All requests and protocol messages that a participant got in a run."""

    def __init__(self, cast: Cast, address: str = VICTIM) -> None:
        self.messages: list[Any] = []
        cast.before = lambda to, body: self.messages.append(decoded(body)) if to == address else None

    @property
    def asks(self) -> list[Any]:
        return [message for message in self.messages if isinstance(message, Ask | Assist)]


@SCENE
def test_a_second_run_gets_nothing(kind: str, protocol: str, public: Path) -> None:
    """The study is run again, with the same coordinator and the parties' stores: nobody sends anything."""
    cast = Cast(study_of(public, kind, protocol))
    cast.totals()
    again = Cast(study_of(public, kind, protocol))
    again._keys, again.stores = cast._keys, cast.stores
    again.parties = {address: again.party(int(address.removeprefix("party:"))) for address in cast.parties}
    envelopes = [envelope for envelope in again.coordinator.start() if envelope.to in again.parties]
    assert len(envelopes) == len(again.parties)
    for to, body in envelopes:
        with pytest.raises(Refused, match=r"more often than planned|is over"):
            again.parties[to].receive(body)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("kind", "protocol"), [SCENES[0], SCENES[4]])
def test_messages_of_an_earlier_attempt_are_worth_nothing_in_a_later_one(
    kind: str, protocol: str, restarted: bool, public: Path
) -> None:
    """A party without a past is asked in a new attempt, and gets all that it got in an old one: keys of those whose
    mask keys were opened since, with valid signatures, and shares that others made. As they came, and under the new
    attempt's name. No vector leaves."""
    cast = Cast(study_of(public, kind, protocol))
    asked = Asked(cast)
    cast.totals()
    old = [message for message in asked.messages if isinstance(message, Carried)]
    assert old
    cast.stores[VICTIM] = type(cast.stores[VICTIM])()
    victim = cast.party(0)
    victim.receive(message := recount(cast, asked.asks[0]))
    if restarted:
        victim = cast.party(0)
    attempt = decoded(message).attempt
    for carried in old:
        for label in (carried.attempt, attempt):
            with contextlib.suppress(Rejected, Aborted):
                victim.receive(msgspec.msgpack.encode(Carried(label, carried.body)))
    assert not victim.has_sent
    assert all(not turn.spent for turn in victim._state.turns.values())


@HELPED
def test_shares_of_an_earlier_attempt_are_worth_nothing_to_a_helper(kind: str, protocol: str, public: Path) -> None:
    """A helper that lost everything, or never took part, is told of a new attempt and gets the old one's shares."""
    cast = Cast(study_of(public, kind, protocol))
    address = cast.plan.helper_addresses[0]
    asked = Asked(cast, address)
    cast.totals()
    cast.stores[address] = type(cast.stores[address])()
    helper = cast.helper(address)
    helper.receive(message := recount(cast, asked.asks[0]))
    attempt, taken = decoded(message).attempt, 0
    for carried in (message for message in asked.messages if isinstance(message, Carried)):
        for label in (carried.attempt, attempt):
            with pytest.raises(Rejected):
                helper.receive(msgspec.msgpack.encode(Carried(label, carried.body)))
            taken += 1
    assert taken > 10


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_coordinator_that_counts_again_gets_as_many_vectors_as_planned(attempts: int, public: Path) -> None:
    """By the party's own count, whatever the coordinator says became of the others; also if it crashes in between."""
    study = small(public, "helmet", "classification", summation="compute-nodes", attempts=attempts)
    cast = Cast(study)
    ask, sent = _first_ask(cast), []
    for _ in range(attempts):
        sent.append(cast.parties[VICTIM].receive(recount(cast, ask)))
        ask = msgspec.structs.replace(ask, attempt=cast.parties[VICTIM]._attempt)
        cast.parties[VICTIM] = cast.party(0)
    assert len({envelopes[0].body for envelopes in sent}) == attempts
    for turn in (ask.turn, ask.turn + 1):
        with pytest.raises(Refused, match="more often than planned"):
            cast.parties[VICTIM].receive(recount(cast, msgspec.structs.replace(ask, turn=turn)))


def _first_ask(cast: Cast) -> Ask:
    """The first request to the victim, before it has got it."""
    for to, body in cast.coordinator.start():
        if to == VICTIM:
            return msgspec.msgpack.decode(body, type=Ask)
    raise AssertionError("The victim is not asked.")


def test_attempts_without_a_vector_are_free_and_few(public: Path) -> None:
    """Each shows the coordinator another choice of neighbours: it does not get to choose among many."""
    cast = Cast(study_of(public, "turns", "secagg+"))
    ask = _first_ask(cast)
    for _ in range(1 + FREE_ATTEMPTS):
        assert cast.parties[VICTIM].receive(recount(cast, ask))
        ask = msgspec.structs.replace(ask, attempt=cast.parties[VICTIM]._attempt)
        assert not cast.parties[VICTIM].has_sent
        cast.parties[VICTIM] = cast.party(0)
    with pytest.raises(Refused, match="was begun 16 times, which is as often as planned"):
        cast.parties[VICTIM].receive(recount(cast, ask))
    assert len(b"".join(cast.kept(VICTIM))) < 10_000


class Spoken(Cast):
    """One party, to which the coordinator says what it likes."""

    def ask(self, request: Any, turn: int = 0) -> list[Envelope]:
        ask = ask_for(request, turn, self.coordinator.attempt)
        message = recount(self, msgspec.structs.replace(ask, attempt=self.parties[VICTIM]._state.last))
        return self.parties[VICTIM].receive(message)


def test_a_message_under_prepared_noise_is_sent_once(public: Path) -> None:
    """CAPE: asked again under the same attempt, the same bytes; under another one, nothing, unless noise was prepared
    anew; and no more often than planned."""
    study = small(public, "cape", "statistics", summation="compute-nodes", attempts=2)
    cast = Spoken(study)
    name = cast.plan.sums[0].name
    with pytest.raises(Refused, match="no noise was prepared"):
        cast.ask(Collect(name))
    cast.ask(ZeroSum(name))
    first = cast.ask(Collect(name))
    asked = cast.parties[VICTIM]._last[0]
    assert cast.parties[VICTIM].receive(asked) == cast.party(0).receive(asked) == first
    with pytest.raises(Refused, match="no noise was prepared"):
        cast.ask(Collect(name))
    cast.ask(ZeroSum(name))
    assert cast.ask(Collect(name)) != first
    for request in (Collect(name), ZeroSum(name)):
        with pytest.raises(Refused, match=r"no noise was prepared|more often than planned|is over"):
            cast.ask(request)


def test_the_noise_of_a_message_is_added_up_once(public: Path) -> None:
    """CAPE, messages first: two sums of the same ê over different parties would differ by a party's ê. So another sum
    is of the noise of another message, and no more often than planned; after a crash, too."""
    keys = {"order": "messages-first"}
    cast = Spoken(small(public, "cape", "statistics", keys=keys, summation="compute-nodes", attempts=2))
    name = cast.plan.sums[0].name
    with pytest.raises(Refused, match="there is no message of turn 0"):
        cast.ask(Cancel(name))
    sent, sums = [], []
    for _ in range(2):
        sent.append(cast.ask(Collect(name)))
        sums.append(cast.ask(Cancel(name)))
        asked = cast.parties[VICTIM]._last[0]
        assert cast.parties[VICTIM].receive(asked) == cast.party(0).receive(asked) == sums[-1]
        cast.parties[VICTIM] = cast.party(0)
        with pytest.raises(Refused, match=r"there is no message of turn 0|more often than planned|is over"):
            cast.ask(Cancel(name))
    assert sent[0] != sent[1]
    assert sums[0] != sums[1]
    with pytest.raises(Refused, match="more often than planned"):
        cast.ask(Collect(name))


def test_noise_of_an_earlier_message_is_forgotten(public: Path) -> None:
    keys = {"order": "messages-first"}
    cast = Spoken(small(public, "cape", "statistics", keys=keys, summation="compute-nodes", attempts=2))
    name = cast.plan.sums[0].name
    cast.parties[VICTIM]._root_of = lambda attempt: os.urandom(32)
    cast.ask(Collect(name))
    (first,) = cast.parties[VICTIM]._state.prepared[name].values()
    cast.ask(Collect(name))
    (second,) = cast.parties[VICTIM]._state.prepared[name].values()
    assert first != second
    cast.ask(Cancel(name))
    assert not cast.parties[VICTIM]._state.prepared.get(name)
    assert second not in b"".join(cast.kept(VICTIM))


def test_a_list_of_tokens_serves_one_vector(public: Path) -> None:
    """Two sums over the same batch would not be two rounds: another attempt needs another list."""
    keys = {"sampling": "without-replacement"}
    study = small(public, "cross-silo", "regression", keys=keys, summation="ideal", attempts=2)
    cast = Cast(study)

    def spent() -> Ask | None:
        current = cast.parties[VICTIM]._state.current
        return current.ask if current and current.spent and current.ask.kind == "sum" else None

    cast.run_until(VICTIM, lambda envelopes: spent())
    ask = spent()
    assert ask is not None
    with pytest.raises(Refused, match="there is no list of tokens for turn 0"):
        cast.parties[VICTIM].receive(recount(cast, ask))


def test_a_list_of_tokens_whose_seed_has_left_is_spent(public: Path) -> None:
    """Whoever confirms last knows the batch before it confirms, and may prevent it: not more often than planned."""
    keys = {"sampling": "without-replacement"}
    cast = Cast(small(public, "cross-silo", "regression", keys=keys, summation="ideal"))
    cast.run_until(VICTIM, lambda envelopes: cast.parties[VICTIM].has_sent)
    current = cast.parties[VICTIM]._state.current
    assert current is not None
    assert current.ask.kind == "shuffle"
    assert isinstance(cast.coordinator.request, Tokens)
    with pytest.raises(Refused, match=r"more often than planned|is over"):
        cast.parties[VICTIM].receive(recount(cast, current.ask))


def test_whatever_a_party_is_asked_its_ledger_has_what_left_and_no_more_than_planned_does(
    seeds: Callable[[int, int], range],
) -> None:
    played = [random_asks.play(seed) for seed in seeds(2, 60)]
    assert any(len(each.left) > 1 for each in played)


def test_the_check_notices_a_vector_that_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Party, "_charge", lambda party, current: None)
    with pytest.raises(AssertionError, match="seed 0: a vector left that was not charged"):
        random_asks.play(0)
