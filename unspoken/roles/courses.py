"""A party's side of one attempt: a sum, to which it gives a vector, or a shuffle, to which it gives tokens.

Both have the same interface (`Course`): they take the messages of a protocol and say when the attempt is spent.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from unspoken.methods.base import TokenPositions
from unspoken.methods.parameters import Refused
from unspoken.summation.base import Endpoint, Envelope
from unspoken.summation.base import Party as SummationParty
from unspoken.summation.record_shuffle import ShuffleParty
from unspoken.summation.shuffle_course import STAGES, Confirm
from unspoken.types import Words

Vector = Callable[[Sequence[bytes]], Words]
"""Makes the party's vector, given the seeds of its noise that the protocol can open."""


class Gate:
    """Where vectors leave a party. It is closed before a certificate is signed, so that this states all that is spent:
    a coordinator could otherwise ask again afterwards. It is also closed when a study was given up, so that no vector
    is charged that nobody gets. Another thread may be computing one meanwhile."""

    def __init__(self) -> None:
        self._lock, self._is_closed = threading.Lock(), False

    def close(self) -> None:
        """Let no further vector out. One that is passing has been counted when this returns."""
        with self._lock:
            self._is_closed = True

    @contextmanager
    def passed(self, undo: Callable[[], None]) -> Iterator[None]:
        """For the time in which a vector is charged and counted; if the gate is closed, `undo` and `Refused`."""
        with self._lock:
            if not self._is_closed:
                yield
                return
        undo()
        raise Refused("the study is over (its certificate came, or it was given up), and no vector leaves after it.")


def _made_already(seeds: Sequence[bytes]) -> Words:
    raise RuntimeError("A vector is never made again.")


class Course(ABC):
    """One attempt from the party's side."""

    endpoint: Endpoint
    repeatable = True
    """Whether taking the same messages again leads to the same state"""

    @abstractmethod
    def step(self, incoming: bytes) -> list[Envelope]:
        """Take a message of the protocol (empty: begin) and say what to send."""

    @property
    @abstractmethod
    def spent(self) -> bool:
        """Whether something has left the party that makes this attempt a spent one."""

    def positions(self) -> TokenPositions | None:
        """The positions of the party's tokens, if this is a shuffle that has ended."""
        return None


class Summing(Course):
    """A sum: the vector leaves as soon as the protocol's setup is over, and is then forgotten."""

    def __init__(self, endpoint: SummationParty, vector: Vector, sent: bool = False) -> None:
        self.endpoint: SummationParty = endpoint
        self._vector, self._sent = _made_already if sent else vector, sent

    def step(self, incoming: bytes) -> list[Envelope]:
        begins_with_vector = not incoming and self.endpoint.ready
        envelopes = [] if begins_with_vector else self.endpoint.step(incoming)
        if self.endpoint.ready and not self._sent:
            envelopes += self.endpoint.submit(self._vector(self.endpoint.seeds))
            self.endpoint.forget_vector()
            # The function that makes the vector holds the secrets of its noise, so it is dropped.
            self._sent, self._vector = True, _made_already
        return envelopes

    @property
    def spent(self) -> bool:
        return self._sent


class Shuffling(Course):
    """A shuffle: everyone's tokens become one list, in an order that nobody knows."""

    repeatable = False  # Each layer of an onion has a key of its own, from the operating system.

    def __init__(self, endpoint: ShuffleParty) -> None:
        self.endpoint: ShuffleParty = endpoint

    def step(self, incoming: bytes) -> list[Envelope]:
        return self.endpoint.step(incoming)

    @property
    def spent(self) -> bool:
        """Whether the party's part of the seed has left. From then on others may know the batch, and may prevent the
        list if they do not like it."""
        return self.endpoint.state.stage >= STAGES.index(Confirm)

    def positions(self) -> TokenPositions | None:
        if not self.endpoint.complete:
            return None
        places, count = self.endpoint.positions(), len(self.endpoint.all_tokens())
        return TokenPositions(places, count, self.endpoint.seed())
