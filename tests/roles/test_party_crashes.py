"""A party that crashes, or whose disk is full, at any point: no total changes, and no second vector leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cast import EACH_SCENE, VICTIM, Cast, honest, study_of
from unspoken.roles.messages import is_carried
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore
from unspoken.summation.base import Envelope


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

    def put(self, snapshot: bytes) -> None:
        self._write()
        super().put(snapshot)

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
            endpoint = getattr(role, "_endpoint", None)
            if is_carried(body) and endpoint is not None and endpoint.has_forgotten:
                return  # It can only repeat itself: there is nothing to keep.
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
