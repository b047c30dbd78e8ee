"""A party against a coordinator that lies, and against garbage: refused by name, and nothing changes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast import EACH_SCENE, VICTIM, Cast, honest, study_of
from unspoken.methods.base import Method, Sum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.roles.messages import Ask, Carried
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore
from unspoken.study import Study
from unspoken.summation.base import Envelope, Rejected

Lie = tuple[str, str, bytes]
"""A name, a word that the refusal must have, and the message."""


def encoded(message: Ask | Carried) -> bytes:
    return msgspec.msgpack.encode(message)


def changed(ask: Ask, **fields: Any) -> Ask:
    return msgspec.structs.replace(ask, **fields)


class Liar:
    """A coordinator's lies to one party, made of what it asked honestly so far."""

    def __init__(self, method: Method, plan: Plan) -> None:
        self._method, self._plan, self._attempts = method, plan, itertools.count()
        self.asked: list[Ask] = []
        self.spent: set[tuple[str, str, int]] = set()

    def fresh(self) -> bytes:
        """An attempt that nobody has used."""
        return b"lie" + next(self._attempts).to_bytes(13, "big")

    def lies(self) -> Iterator[Lie]:
        """What must be refused now."""
        yield "a message of another attempt", "not under way", encoded(Carried(self.fresh(), memoryview(b"x")))
        yield "an oversized message", "bytes came where", bytes(1 << 24)
        yield "a short attempt", "attempt of 5 bytes", encoded(Ask(b"short", "sum", "model", 0))
        yield "an unknown name", '"salary", which is not in the plan', encoded(Ask(self.fresh(), "sum", "salary", 0))
        yield "a list too many", '"tokens"', encoded(Ask(self.fresh(), "shuffle", "salary", 1 << 40))
        for planned in self._plan.sums:
            yield from self._ways(planned)
            yield from self._orders(planned)
        for ask in self.asked:
            yield "an attempt used twice", "not newer", encoded(ask)
            yield "an attempt for something else", "not newer", encoded(changed(ask, turn=ask.turn + 1))
            if (ask.kind, ask.name, ask.turn) in self.spent:
                yield "a turn repeated", f'"{ask.name}"', encoded(changed(ask, attempt=self.fresh()))
        if self.asked:
            yield "an empty message", "empty", encoded(Carried(self.asked[-1].attempt, memoryview(b"")))
            yield from self._numbers(self.asked[-1])

    def _ask(self, kind: Any, name: str, turn: int, only: int | None = None) -> bytes:
        """A request that is well made, whether the plan has it or not."""
        request = Sum(name, None, max(turn, 0))
        size, places = self._method.parameters(request).size, self._method.indices(request).size
        numbers = self._method.parameters(request).nearest(np.zeros(size))
        return encoded(
            Ask(self.fresh(), kind, name, turn, numbers.tobytes(), np.arange(places, dtype=np.int64).tobytes(), only)
        )

    def _ways(self, planned: PlannedSum) -> Iterator[Lie]:
        """Ways of bringing numbers together that the plan does not have, and parties that are not meant."""
        name = planned.name
        if planned.noise.summed:
            for turn, only in itertools.product(range(planned.count), (None, 0)):
                yield "a secret sum in the open", "in the open, which is", self._ask("collect", name, turn, only)
            yield "noise for a secret sum", "a sum of noise, which is", self._ask("prepare", name, 0)
        else:
            yield "a message as a sum", "a secure sum, which is", self._ask("sum", name, 0)
            yield "a message as a vote", "a vote, which is", self._ask("vote", name, 0)
            if ("collect", name, 0) not in self.spent:
                yield "another party's message", "for party 1 alone", self._ask("collect", name, 0, only=1)

    def _orders(self, planned: PlannedSum) -> Iterator[Lie]:
        """Turns that the plan does not have, and requests before what they need."""
        name, noise = planned.name, planned.noise
        kind = "sum" if noise.summed else "collect"
        for turn in (planned.count, 1 << 62):
            yield "a turn too many", "more often than planned", self._ask(kind, name, turn)
        yield "a turn before the first", f'"{name}"', self._ask(kind, name, -1)
        if noise.prepares:
            if ("prepare", name, 0) in self.spent:
                yield "noise prepared twice", f'"{name}"', self._ask("prepare", name, 0)
            else:
                yield "a message without its noise", "no noise was prepared", self._ask("collect", name, 0)
                yield "noise of a later turn", "more often", self._ask("prepare", name, 1)
        if noise.cancels:
            yield "noise prepared", "a sum of noise, which is", self._ask("prepare", name, 0)
            if ("collect", name, 0) not in self.spent:
                yield "noise added up before its message", "there is no message of turn", self._ask("cancel", name, 0)
            elif ("cancel", name, 0) in self.spent:
                yield "noise added up twice", f'"{name}"', self._ask("cancel", name, 0)
        else:
            yield "noise added up later", "the noise of messages, which is", self._ask("cancel", name, 0)
        for turn in range(planned.count):
            if planned.draws_by_tokens and ("shuffle", "tokens", turn) not in self.spent:
                yield "a batch without its tokens", "no list of tokens for turn", self._ask("sum", name, turn)

    def _numbers(self, ask: Ask) -> Iterator[Lie]:
        """Parameters and places that the honest request does not have."""
        if ask.kind in ("prepare", "cancel", "shuffle"):
            return
        numbers, indices = np.frombuffer(ask.numbers), np.frombuffer(ask.indices, dtype=np.int64)
        wrong: dict[str, dict[str, bytes]] = {
            "more numbers": {"numbers": np.append(numbers, 0.0).tobytes()},
            "bytes that are no numbers": {"numbers": ask.numbers + b"1234567"},
            "more places": {"indices": np.append(indices, 0).tobytes()},
            "bytes that are no places": {"indices": ask.indices + b"1"},
        }
        if len(numbers):
            wrong["fewer numbers"] = {"numbers": numbers[1:].tobytes()}
            wrong["no numbers"] = {"numbers": b""}
            for value in (np.nan, np.inf, -np.inf, 1e300):
                wrong[f"the number {value}"] = {"numbers": np.append(numbers[:-1], value).tobytes()}
        if len(indices):
            wrong["no places"] = {"indices": b""}
            for place in (-1, 12, 1 << 62):
                wrong[f"the place {place}"] = {"indices": np.append(indices[:-1], place).tobytes()}
        for lie, fields in wrong.items():
            yield lie, f'"{ask.name}"', encoded(changed(ask, attempt=self.fresh(), **fields))


class LiedTo:
    """A run in which every lie is told before every message to the victim and after the last."""

    def __init__(self, study: Study, seed: int = 0) -> None:
        self.cast = Cast(study, seed)
        self._liar = Liar(self.cast.method, self.cast.plan)
        self.said: list[tuple[str, str]] = []
        """Each lie, and what the victim said to it."""
        self.cast.before, self.cast.after = self._before, self._after
        self.totals = self.cast.totals()
        self._lie()

    def _lie(self) -> None:
        for name, word, message in self._liar.lies():
            kept = self.cast.kept(VICTIM)
            if message == self.cast.parties[VICTIM]._last[0]:
                # That the last message comes again is no lie: see below.
                continue
            with pytest.raises((Refused, Rejected)) as caught:
                self.cast.parties[VICTIM].receive(message)
            assert self.cast.kept(VICTIM) == kept, name
            assert word in str(caught.value), name
            self.said.append((name, f"{caught.type.__name__}: {caught.value}"))

    def _before(self, to: str, body: bytes) -> None:
        if to == VICTIM:
            self._lie()
            with contextlib.suppress(msgspec.ValidationError):
                self._liar.asked.append(msgspec.msgpack.decode(body, type=Ask))

    def _after(self, to: str, envelopes: list[Envelope]) -> None:
        if to == VICTIM:
            ask, current = self._liar.asked[-1], self.cast.parties[VICTIM]._state.current
            if current is None or current.spent:
                self._liar.spent.add((ask.kind, ask.name, ask.turn))


@EACH_SCENE
def test_lies_are_refused_by_name_and_change_nothing(kind: str, protocol: str, public: Path) -> None:
    """Every lie before every message: the totals are those of an honest run, and no byte more has left the victim."""
    run = LiedTo(study_of(public, kind, protocol))
    assert (run.totals, run.cast.sent[VICTIM]) == honest(public, kind, protocol)
    told = {name for name, _ in run.said}
    assert {"an attempt for something else", "a turn repeated", "an unknown name", "an oversized message"} <= told
    assert {
        "turns": {"a secret sum in the open", "the number nan", "fewer numbers"},
        "messages": {"noise prepared twice", "a message without its noise", "another party's message"},
        "cancelled": {"noise prepared", "noise added up before its message", "noise added up twice"},
        "votes": {"the place 12", "no places", "a secret sum in the open"},
        "tokens": {"a batch without its tokens", "a list too many"},
    }[kind] <= told


@EACH_SCENE
def test_refusals_say_nothing_about_records(kind: str, protocol: str, public: Path) -> None:
    """Two runs with other records: the same refusals in the same words."""
    study = study_of(public, kind, protocol)
    first, second = (LiedTo(study, seed).said for seed in (0, 1))
    assert first == second
    assert len(first) > 20


@given(st.binary(max_size=200))
def test_garbage_is_rejected(garbage: bytes) -> None:
    party, store, _ = waiting()
    kept = store.read()
    with pytest.raises((Refused, Rejected)):
        party.receive(garbage)
    assert store.read() == kept


SOME = st.binary(max_size=40) | st.binary(min_size=16, max_size=16)
ASKS = st.builds(
    Ask,
    attempt=SOME,
    kind=st.sampled_from(["sum", "vote", "collect", "prepare", "shuffle"]),
    name=st.sampled_from(["function", "salary", "tokens", ""]) | st.text(max_size=9),
    turn=st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 3),
    numbers=SOME,
    indices=SOME,
    only=st.none() | st.integers(-1, 7),
)
CARRIED = st.builds(Carried, attempt=SOME, body=SOME.map(memoryview))


@given(ASKS | CARRIED)
def test_made_up_messages_are_rejected(message: Ask | Carried) -> None:
    """In turn 1 of two, after the first was answered: nothing that is made up without its parameters fits."""
    party, store, _ = waiting()
    kept = store.read()
    with pytest.raises((Refused, Rejected)):
        party.receive(encoded(message))
    assert store.read() == kept


@cache
def _until_the_second_turn() -> tuple[Cast, list[bytes]]:
    cast = Cast(study_of(Path("no public records"), "turns", "pairwise"))

    class Enough(Exception): ...

    def stop(to: str, body: bytes) -> None:
        if to == VICTIM and (turn := cast.parties[VICTIM]._state.turns.get("function")) and turn.turn == 1:
            raise Enough

    cast.before = stop
    with pytest.raises(Enough):
        cast.totals()
    kept = cast.kept(VICTIM)
    assert kept
    return cast, kept


def waiting() -> tuple[Party, MemoryStore, Cast]:
    """The victim in the middle of its second turn, as its store has it."""
    cast, kept = _until_the_second_turn()
    cast.stores[VICTIM] = store = MemoryStore(kept)
    return cast.party(0), store, cast
