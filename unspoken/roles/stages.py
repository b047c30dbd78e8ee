"""The coordinator's side of one attempt, in stages: a sum, or a shuffle of tokens.

Both have the same interface (`Stages`): they take the messages of a protocol, say who has not answered yet, and are
told when a stage is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from unspoken.methods.base import Total
from unspoken.roles.totals import nothing
from unspoken.summation.addresses import is_party, party_at
from unspoken.summation.base import COORDINATOR, Coordinator, Envelope, Protocol, SignedStatement, address_of
from unspoken.summation.record_shuffle import ShuffleCoordinator
from unspoken.summation.shuffle_course import STAGES, Confirm

Stage = Literal["setup", "vectors", "gathering", "agreement", "result", "shuffle", "done"]


class Stages(ABC):
    """One attempt from the coordinator's side."""

    endpoint: Coordinator | ShuffleCoordinator
    stage: Stage
    setup_stages = 0
    """The number of stages before vectors are sent"""

    @property
    @abstractmethod
    def left(self) -> bool:
        """Whether something may have left a party that makes this attempt a spent one."""

    @property
    @abstractmethod
    def missing(self) -> set[str]:
        """The addresses of all who are expected to say something more in this stage."""

    @property
    def chain(self) -> int:
        """The most messages of helpers in this stage of which each waits for the one before."""
        return 1

    @abstractmethod
    def step(self, body: bytes, sender: str) -> list[Envelope]:
        """Take a message of the protocol."""

    def passed(self, sender: str, to: str) -> None:  # noqa: B027 (a shuffle has no such messages)
        """Note that a message passed from one participant to another."""

    @abstractmethod
    def close(self) -> list[Envelope]:
        """Go on with those who are there, to the next stage or to "done"; `Aborted` if they are too few."""

    @abstractmethod
    def answer(self) -> Total:
        """The result of the attempt, when it is done."""

    @property
    def rest(self) -> list[bytes]:
        """Last messages to all parties, without which some could not go on, when the attempt is done."""
        return []

    @property
    def blame(self) -> tuple[dict[str, str], tuple[SignedStatement, ...]]:
        """Whose faults the attempt got over: the fault by address, and signed statements that prove it."""
        return self.endpoint.blamed, self.endpoint.evidence


class SummingStages(Stages):
    """The stages of a sum: setup, sending vectors, taking them in, agreeing on who is there, and opening the total."""

    def __init__(
        self, protocol: Protocol, endpoint: Coordinator, asked: Iterable[int], answer: Callable[[Coordinator], Total]
    ) -> None:
        self.endpoint: Coordinator = endpoint
        self._protocol, self._answer, self._closed = protocol, answer, 0
        self.setup_stages = endpoint.setup_stages
        self.stage = "setup" if endpoint.setup_stages else "vectors"
        self._due: Counter[tuple[str, str]] = Counter()
        """The number of messages that are still to come, by sender and receiver"""
        self._expect(map(address_of, asked))

    @property
    def left(self) -> bool:
        """Whether vectors may have left: parties send them when the setup is over."""
        return self.stage != "setup"

    @property
    def missing(self) -> set[str]:
        waiting = None if self.stage in ("setup", "vectors") else self.endpoint.waiting_for
        return {sender for sender, _ in self._due} if waiting is None else set(waiting)

    @property
    def chain(self) -> int:
        return 1 if self.stage in ("setup", "vectors") else self.endpoint.helper_messages

    def step(self, body: bytes, sender: str) -> list[Envelope]:
        envelopes = self.endpoint.step(body)
        self.passed(sender, COORDINATOR)
        self._expect(to for to, _ in envelopes)
        return envelopes

    def passed(self, sender: str, to: str) -> None:
        if self._due[sender, to] <= 1:
            del self._due[sender, to]
        else:
            self._due[sender, to] -= 1

    def close(self) -> list[Envelope]:
        self._due.clear()
        match self.stage:
            case "setup":
                envelopes = self.endpoint.advance()
                self._closed += 1
                self.stage = "setup" if self._closed < self.setup_stages else "vectors"
            case "vectors":
                envelopes, self.stage = self.endpoint.settle(), "gathering"
            case "gathering":
                envelopes, self.stage = self.endpoint.agree(), "agreement"
            case "agreement":
                envelopes, self.stage = self.endpoint.finish(), "result"
            case _:
                envelopes, self.stage = [], "done"
        self._expect(to for to, _ in envelopes)
        return envelopes

    def answer(self) -> Total:
        return self._answer(self.endpoint)

    def _expect(self, addresses: Iterable[str]) -> None:
        """Expect an answer from everyone who was sent something: a message to the coordinator, or a vector to its
        receiver."""
        for address in addresses:
            receivers: tuple[str, ...] = (COORDINATOR,)
            if self.stage == "vectors" and is_party(address):
                receivers = self._protocol.recipients(party_at(address))
            for receiver in receivers:
                self._due[address, receiver] += 1


class ShufflingStages(Stages):
    """The one stage of a shuffle, in which every party must take its turns."""

    def __init__(self, endpoint: ShuffleCoordinator, parties: int) -> None:
        self.endpoint: ShuffleCoordinator = endpoint
        self._parties = parties
        self._rest: list[bytes] = []
        self.stage = "shuffle"

    @property
    def left(self) -> bool:
        """Whether parts of the seed may have left."""
        return self.endpoint.state.stage >= STAGES.index(Confirm)

    @property
    def missing(self) -> set[str]:
        return set(map(address_of, self.endpoint.waiting_for))

    def step(self, body: bytes, sender: str) -> list[Envelope]:
        before, envelopes = self.left, self.endpoint.step(body)
        if before and envelopes:
            self._rest.append(body)
        return envelopes

    @property
    def rest(self) -> list[bytes]:
        """The confirmations; a party that lacks one cannot know that the list is complete."""
        return self._rest

    def close(self) -> list[Envelope]:
        self.endpoint.tokens()  # Aborted unless everyone has confirmed the list.
        self.stage = "done"
        return []

    def answer(self) -> Total:
        return nothing(self._parties)
