"""Blame in a driven run: the coordinator names who did what, and a reader of the study finds the same by himself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cast import Cast, study_of
from small_studies import small
from unspoken.engines.actors import Vanishing
from unspoken.roles.evidence import convicted
from unspoken.roles.messages import Ask, Carried, Over
from unspoken.roles.party import Party
from unspoken.summation.base import Aborted, Envelope, Rejected, SignedStatement
from unspoken.summation.evidence import from_json, to_json

FORGETFUL = "party:3"
FOUND = {FORGETFUL: "it signed two one-time keys"}


class WithTwin(Cast):
    """One party has lost its state: it answers every request twice, the second time from secrets of its own."""

    def __init__(self, public: Path, summation: str, dropouts: int, attempts: int = 1) -> None:
        method, keys = ("voting", {}) if summation == "tally" else ("moments", {"function": "network", "steps": 2})
        agreed: dict[str, Any] = {"dropouts": dropouts, "attempts": attempts, "colluding": 1}
        super().__init__(small(public, method, "classification", keys=keys, summation=summation, **agreed))
        self.before = self._answer_twice

    def _answer_twice(self, to: str, body: bytes) -> None:
        message: Any = msgspec.msgpack.decode(body, type=Ask | Carried | Over) if to == FORGETFUL else None
        if isinstance(message, Ask):
            twin = Party(self.method, self._records[3], self._keys.identity(3), self._keys.roster, plan=self.plan)
            # Each helper hears first from one of the two.
            self.send(twin.receive(body)[:1], FORGETFUL)

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        try:
            return super().step(to, body, gone, sender)
        except Rejected:  # A tallier takes one ballot of a party.
            return []

    @property
    def roster(self) -> Any:
        return self._keys.roster


@pytest.mark.parametrize("summation", ["compute-nodes", "tally"])
def test_who_was_left_out_is_named_and_others_can_check_it(summation: str, public: Path) -> None:
    """The run goes on without it. Evidence is about both turns, and travels as a file."""
    cast = WithTwin(public, summation, dropouts=2)
    cast.totals()
    coordinator = cast.coordinator
    assert list(coordinator.blamed) == [FORGETFUL]
    assert len(coordinator.evidence) == 2 * cast.plan.rounds
    shown = from_json(to_json(coordinator.evidence))
    assert convicted(cast.plan, cast.roster, shown) == FOUND
    assert convicted(cast.plan, cast.roster, shown[::2]) == {}, "a key for each turn"


def test_the_end_of_a_run_says_who_is_to_blame_and_what_it_cost(public: Path) -> None:
    cast = WithTwin(public, "compute-nodes", dropouts=0, attempts=2)
    with pytest.raises(
        Aborted, match=r"To blame: party 3 \(it signed two one-time keys\). Vectors may have left 2 times"
    ) as ended:
        cast.run([])
    assert ended.value.blamed == (FORGETFUL,)
    assert cast.coordinator.blamed.keys() == {FORGETFUL}
    assert convicted(cast.plan, cast.roster, cast.coordinator.evidence) == FOUND
    spent = cast.plan.guarantee_after({}, {"function": 2}).epsilon
    assert str(ended.value).endswith(f"so epsilon = {spent:.4g} of the planned 2 is spent.")


def test_statements_of_another_study_or_by_others_are_rejected(public: Path) -> None:
    cast, other = (WithTwin(public, "compute-nodes", dropouts=2, attempts=attempts) for attempts in (1, 2))
    cast.totals()
    with pytest.raises(Rejected, match="not about a sum of this study"):
        convicted(other.plan, cast.roster, cast.coordinator.evidence)
    with pytest.raises(Rejected, match="party 3 does not match its identity"):
        convicted(cast.plan, other.roster, cast.coordinator.evidence)
    with pytest.raises(Rejected, match="not about a sum of this study"):
        convicted(cast.plan, cast.roster, [SignedStatement("party:3", b"share/", b"")])


def test_a_liar_that_ends_attempts_without_end_fills_no_memory(public: Path) -> None:
    """Of evidence the first statements are kept, each once, and no more than so many."""
    party = Cast(study_of(public, "turns", "compute-nodes")).parties["party:0"]
    signed = [SignedStatement("coordinator", bytes([number]), b"") for number in range(100)]
    for each in signed:
        for _ in range(2):
            party._blame(Aborted("it lies", ("coordinator",), (each,)))
    assert party.evidence == tuple(signed[:64])
    assert party.blamed == {"coordinator": "it lies"}
