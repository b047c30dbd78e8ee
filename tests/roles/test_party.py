"""A party against a coordinator that lies, against garbage, and against crashes at every point."""

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

from cast import EACH_SCENE, Cast, study_of
from factories import make
from small_studies import KEY, small
from unspoken.data.block import Block
from unspoken.data.files import DataError
from unspoken.methods.base import Method, Sum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import draws_by_tokens
from unspoken.roles.messages import Ask, Assist, Carried, Over
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore
from unspoken.study import Study
from unspoken.summation.base import Envelope, Rejected
from unspoken.summation.simulated_keys import SimulatedKeys

VICTIM = "party:0"


@cache
def honest(public: Path, kind: str, protocol: str) -> tuple[list[Any], int]:
    """The totals of a run without faults, and how many bytes the victim sent."""
    cast = Cast(study_of(public, kind, protocol))
    return cast.totals(), cast.sent[VICTIM]


def encoded(message: Ask | Carried) -> bytes:
    return msgspec.msgpack.encode(message)


def changed(ask: Ask, **fields: Any) -> Ask:
    return msgspec.structs.replace(ask, **fields)


Lie = tuple[str, str, bytes]
"""A name, a word that the refusal must have, and the message."""


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
            if draws_by_tokens(planned) and ("shuffle", "tokens", turn) not in self.spent:
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


@EACH_SCENE
def test_a_crash_between_any_two_messages_changes_no_total(kind: str, protocol: str, public: Path) -> None:
    """Every party and every helper is thrown away and made again from its store before every message."""
    cast = Cast(study_of(public, kind, protocol))
    crashes = 0

    def crash(to: str, body: bytes) -> None:
        nonlocal crashes
        if to in cast.parties:
            cast.parties[to] = cast.party(int(to.removeprefix("party:")))
        elif to in cast.helpers:
            cast.helpers[to] = cast.helper(to)
        else:
            return
        crashes += 1

    cast.before = crash
    assert cast.totals() == honest(public, kind, protocol)[0]
    assert crashes >= 2 * len(cast.parties)


@EACH_SCENE
def test_a_message_that_comes_again_gets_the_same_answer_also_after_a_crash(
    kind: str, protocol: str, public: Path
) -> None:
    """An answer may be lost on its way. Every message comes again, to the role as it is and to one that is made again:
    the answers are the same, and a vector's is the same to the last byte. Nothing is kept or counted twice."""
    cast = Cast(study_of(public, kind, protocol))
    vectors = 0
    taken: dict[str, bytes] = {}

    def again(to: str, envelopes: list[Envelope]) -> None:
        nonlocal vectors
        if to not in cast.parties and to not in cast.helpers:
            return
        role, kept = {**cast.parties, **cast.helpers}[to], cast.kept(to)
        assert role.receive(taken[to]) == envelopes
        made = cast.party(int(to.removeprefix("party:"))) if to in cast.parties else cast.helper(to)
        if made._attempt is None and not envelopes:
            return  # A list of tokens is complete: nobody waits for an answer.
        answer = made.receive(taken[to])
        assert [(e.to, len(e.body)) for e in answer] == [(e.to, len(e.body)) for e in envelopes]
        if isinstance(made, Party) and made.has_sent and made._state.current.asked == taken[to]:  # type: ignore[union-attr]
            assert answer == envelopes != []
            vectors += 1
        assert cast.kept(to) == kept

    cast.before, cast.after = taken.__setitem__, again
    assert cast.totals() == honest(public, kind, protocol)[0]
    assert vectors >= len(cast.parties)


class FullDisk(MemoryStore):
    """Fails once, at the write that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.writes, self.fails_at = 0, -1

    def append(self, record: bytes) -> None:
        self._write()
        super().append(record)

    def replace(self, snapshot: bytes) -> None:
        self._write()
        super().replace(snapshot)

    def _write(self) -> None:
        self.writes += 1
        if self.writes == self.fails_at:
            raise OSError("no space left on device")


@EACH_SCENE
def test_what_is_not_kept_does_not_leave(kind: str, protocol: str, public: Path) -> None:
    """Each write of the victim and of a helper fails once: nothing leaves and nothing changes, and asked again, it
    goes on as if nothing had been."""
    study = study_of(public, kind, protocol)
    addresses = [VICTIM, *Cast(study).plan.helper_addresses[:1]]
    for address in addresses:
        cast = Cast(study)
        cast.stores[address] = store = FullDisk()
        cast.parties[VICTIM] = cast.party(0)
        if address in cast.helpers:
            cast.helpers[address] = cast.helper(address)

        def fail(to: str, body: bytes, cast: Cast = cast, store: FullDisk = store, address: str = address) -> None:
            if to != address:
                return
            role, kept = {**cast.parties, **cast.helpers}[to], cast.kept(to)
            store.fails_at = store.writes + 1
            with pytest.raises(OSError, match="no space"):
                role.receive(body)
            assert cast.kept(to) == kept

        cast.before = fail
        assert cast.totals() == honest(public, kind, protocol)[0]
        assert store.writes >= 2


@EACH_SCENE
def test_an_error_on_the_way_changes_nothing(kind: str, protocol: str, public: Path) -> None:
    """An error of ours while the victim makes its vector: asked again, it goes on as if nothing had been."""
    cast = Cast(study_of(public, kind, protocol))
    method: Any = cast.method
    contribute, errors = method.contribute, 0

    def broken(request: Any, block: Any, contexts: Any = ()) -> Any:
        raise ArithmeticError("broken")

    def fail(to: str, body: bytes) -> None:
        nonlocal errors
        if to != VICTIM:
            return
        kept, store = cast.kept(VICTIM), cast.stores[VICTIM]
        # Which messages make it contribute is found out at a copy.
        cast.stores[VICTIM] = MemoryStore(kept)
        method.contribute = broken
        try:
            if _breaks(cast.party(0), body):
                errors += 1
                with pytest.raises(ArithmeticError):
                    cast.parties[VICTIM].receive(body)
        finally:
            method.contribute, cast.stores[VICTIM] = contribute, store
        assert cast.kept(VICTIM) == kept

    cast.before = fail
    assert cast.totals() == honest(public, kind, protocol)[0]
    assert errors == sum(planned.count for planned in cast.plan.sums)


def _breaks(party: Party, body: bytes) -> bool:
    try:
        party.receive(body)
    except ArithmeticError:
        return True
    return False


def test_a_vector_that_left_is_on_record_before(public: Path) -> None:
    """When a vector has left, the store says that its turn is spent, and has forgotten what its noise was made of."""
    cast = Cast(study_of(public, "turns", "compute-nodes"))
    spent = []

    def look(to: str, envelopes: list[Envelope]) -> None:
        if to == VICTIM and envelopes:
            kept = msgspec.msgpack.decode(cast.kept(VICTIM)[0])
            spent.append((kept["turns"]["function"], kept["current"]["spent"], kept["current"]["root"]))

    cast.after = look
    cast.totals()
    assert spent == [({"turn": turn, "begun": 1, "spent": 1}, True, b"") for turn in range(2)]


def test_prepared_noise_is_forgotten_turn_by_turn(public: Path) -> None:
    """Once a message has left, nobody who breaks in later learns the noise that protects it."""
    cast = Cast(study_of(public, "messages", "compute-nodes"))
    left = []

    def look(to: str, envelopes: list[Envelope]) -> None:
        if to == VICTIM and envelopes:
            kept = msgspec.msgpack.decode(cast.kept(VICTIM)[0], strict=False)
            left.append(sum(len(keys) for keys in kept["prepared"].values()))

    cast.after = look
    cast.totals()
    sums = len(cast.plan.sums)
    assert max(left) == sum(planned.count for planned in cast.plan.sums)
    assert left[-1] == 0
    assert sorted(left[-sums:], reverse=True) == left[-sums:]


def test_noise_comes_from_the_operating_system_unless_a_root_is_injected(public: Path) -> None:
    """The same party, the same records and the same attempt, asked anew: other noise each time, so other vectors."""
    cast = Cast(small(public, "conv", "statistics"))
    asks: list[bytes] = []
    cast.before = lambda to, body: asks.append(body) if to == VICTIM else None
    cast.totals()

    def sent(root: bytes | None) -> bytes:
        records, keys = cast._records[0], cast._keys
        given = None if root is None else lambda attempt: root
        party = Party(cast.method, records, keys.identity(0), keys.roster, plan=cast.plan, root_of=given)
        return b"".join(envelope.body for envelope in party.receive(asks[0]))

    assert sent(KEY) == sent(KEY)
    assert sent(None) != sent(None)


def test_a_stranger_is_no_party(public: Path) -> None:
    cast, other = (Cast(study_of(public, "turns", "pairwise")) for _ in range(2))
    with pytest.raises(ValueError, match="in the roster"):
        Party(cast.method, cast._records[0], other._keys.identity(0), cast._keys.roster, plan=cast.plan)


def test_a_party_that_was_away_goes_on_with_a_later_turn_and_never_back(public: Path) -> None:
    """It was not there for turn 0. In turn 1 it is, and turn 0 is refused from then on."""
    cast, asks = Cast(study_of(public, "turns", "compute-nodes")), list[Ask]()

    def watch(to: str, body: bytes) -> None:
        message: Any = msgspec.msgpack.decode(body, type=Ask | Carried | Over | Assist)
        if to == VICTIM and isinstance(message, Ask):
            asks.append(message)

    cast.before = watch
    cast.totals()
    cast.stores[VICTIM] = MemoryStore()
    late = cast.party(0)
    assert late.receive(encoded(asks[1]))
    with pytest.raises(Refused, match="more often than planned"):
        late.receive(encoded(changed(asks[0], attempt=b"a" * 16)))


@pytest.mark.parametrize(
    ("count", "norm", "refusal"),
    [
        (1, 1.0, "this party has 1 records, but"),
        (60, 1.0, "this party has 60 records, above"),
        (45, 1.1, "of norm 1.0"),
    ],
)
def test_a_party_refuses_records_that_are_not_bounded_as_the_study_says(count: int, norm: float, refusal: str) -> None:
    """With one record in place of forty, neighbours would be fifteen times too far apart."""
    study = make("helmet", parties={"count": 5, "records": 40, "max_records": 50})
    assert study.data.norm == 1.0
    features = np.zeros((1, count, study.data.dimension))
    features[..., 0] = norm
    keys = SimulatedKeys(SecretStream(), 5)
    records = Block(features, np.zeros((1, count), dtype=np.int64), np.array([count]))
    with pytest.raises((DataError, ValueError), match=refusal):
        Party(method_for(study), records, keys.identity(0), keys.roster)
