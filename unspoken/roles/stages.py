"""How one attempt goes at the coordinator, stage by stage: a sum, or a shuffle of tokens.

Both take the messages of a protocol, and are told when a stage is over. Nobody asks for the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from unspoken.methods.base import Total
from unspoken.roles.totals import nothing
from unspoken.summation.base import Coordinator, Endpoint, Envelope
from unspoken.summation.record_shuffle import ShuffleCoordinator

Stage = Literal["setup", "vectors", "agreement", "result", "shuffle", "done"]


class Stages(ABC):
    """One attempt from the coordinator's side."""

    endpoint: Endpoint
    stage: Stage
    setup_stages = 0
    """How many stages come before vectors are sent."""

    @abstractmethod
    def close(self) -> list[Envelope]:
        """Go on with those who are there, to the next stage or to "done"; `Aborted` if they are too few."""

    @abstractmethod
    def answer(self) -> Total:
        """What has come of it, when it is done."""


class SummingStages(Stages):
    """Setup, vectors, agreement on who is there, and what the total needs of them."""

    def __init__(self, endpoint: Coordinator, answer: Callable[[Coordinator], Total]) -> None:
        self.endpoint: Coordinator = endpoint
        self._answer, self._closed, self.setup_stages = answer, 0, endpoint.setup_stages
        self.stage = "setup" if endpoint.setup_stages else "vectors"

    def close(self) -> list[Envelope]:
        match self.stage:
            case "setup":
                envelopes = self.endpoint.advance()
                self._closed += 1
                self.stage = "setup" if self._closed < self.setup_stages else "vectors"
            case "vectors":
                envelopes, self.stage = self.endpoint.settle(), "agreement"
            case "agreement":
                envelopes, self.stage = self.endpoint.finish(), "result"
            case _:
                envelopes, self.stage = [], "done"
        return envelopes

    def answer(self) -> Total:
        return self._answer(self.endpoint)


class ShufflingStages(Stages):
    """One stage, in which every party must take its turns."""

    def __init__(self, endpoint: ShuffleCoordinator, parties: int) -> None:
        self.endpoint: ShuffleCoordinator = endpoint
        self._parties = parties
        self.stage = "shuffle"

    def close(self) -> list[Envelope]:
        self.endpoint.tokens()  # Aborted unless everyone has confirmed the list.
        self.stage = "done"
        return []

    def answer(self) -> Total:
        return nothing(self._parties)
