"""A party's noise, the turns that it missed, and the records that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cast import VICTIM, Cast, study_of
from factories import make
from small_studies import KEY, small
from unspoken.data.block import Block
from unspoken.data.files import DataError
from unspoken.methods.parameters import Refused
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.roles.messages import Ask, Assist, Carried, Over
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore
from unspoken.summation.base import Envelope
from unspoken.summation.simulated_keys import SimulatedKeys


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
    assert late.receive(msgspec.msgpack.encode(asks[1]))
    with pytest.raises(Refused, match="more often than planned"):
        late.receive(msgspec.msgpack.encode(msgspec.structs.replace(asks[0], attempt=b"a" * 16)))


@pytest.mark.parametrize(
    ("count", "norm", "refusal"),
    [
        (1, 1.0, "this party has 1 record, but"),
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
