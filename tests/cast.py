"""Casts for the tests of roles: all participants of a small study, with a hook before and after every message."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from small_studies import KEY, Recording, federation_of, method_of, small
from unspoken.engines.actors import Actors, Vanishing
from unspoken.noise.stream import SecretStream
from unspoken.study import Study
from unspoken.summation.base import Envelope

VICTIM = "party:0"
"""Whom attacks and crashes are aimed at."""
STUDIES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    # Requests with numbers, in several turns, for a secure sum.
    "turns": ("moments", {"function": "network", "steps": 2, "hidden": 3}, ("secagg+", "pairwise", "compute-nodes")),
    # Noise that is prepared, and messages in the open.
    "messages": ("cape", {}, ("secagg", "compute-nodes")),
    # Messages in the open, and then the sum of their noise.
    "cancelled": ("cape", {"order": "messages-first"}, ("secagg", "compute-nodes")),
    # Requests with places of public records.
    "votes": ("voting", {}, ("tally", "secagg+")),
    # A list of tokens before each turn.
    "tokens": ("cross-silo", {"sampling": "without-replacement"}, ("ideal", "secagg+")),
}
SCENES = [(kind, protocol) for kind, (_, _, protocols) in STUDIES.items() for protocol in protocols]
_LONG = {("messages", "compute-nodes"), ("cancelled", "secagg"), ("votes", "secagg+"), ("tokens", "secagg+")}
"""What is asked in these is asked in another scene, and so is their protocol."""
EACH_SCENE = pytest.mark.parametrize(
    ("kind", "protocol"),
    [pytest.param(*scene, marks=pytest.mark.long if scene in _LONG else ()) for scene in SCENES],
)


def study_of(public: Path, kind: str, protocol: str) -> Study:
    method, keys, _ = STUDIES[kind]
    task = "regression" if kind == "tokens" else "classification"
    return small(public, method, task, keys=keys, summation=protocol, colluding=1)


class Cast(Actors):
    """`before` is called with every address and message before it is taken, and `after` with what it led to."""

    def __init__(self, study: Study, seed: int = 0) -> None:
        self.study, self.method = study, method_of(study)
        self.recording = Recording(self.method)
        self.before: Callable[[str, bytes], None] = lambda to, body: None
        self.after: Callable[[str, list[Envelope]], None] = lambda to, envelopes: None
        super().__init__(self.method, self.method.plan(), federation_of(study, seed), SecretStream(KEY))

    @property
    def plan(self) -> Any:
        return self.coordinator.plan

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        self.before(to, body)
        envelopes = super().step(to, body, gone, sender)
        self.after(to, envelopes)
        return envelopes

    def totals(self, vanishing: tuple[int, ...] = ()) -> list[Any]:
        """Run to the end: all that the method was told."""
        self.run(list(vanishing))
        return self.recording.answers

    def run_until(self, address: str, is_enough: Callable[[list[Envelope]], object]) -> None:
        """Run until this is true of what a participant answers, and go no further."""

        class Enough(Exception): ...

        def stop(to: str, envelopes: list[Envelope]) -> None:
            if to == address and is_enough(envelopes):
                raise Enough

        self.after = stop
        with pytest.raises(Enough):
            self.totals()

    def kept(self, address: str) -> list[bytes]:
        """What the participant's store has."""
        return self.stores[address].read()


@cache
def honest(public: Path, kind: str, protocol: str) -> tuple[list[Any], int]:
    """The totals of a run without faults, and how many bytes the victim sent."""
    cast = Cast(study_of(public, kind, protocol))
    return cast.totals(), cast.sent[VICTIM]
