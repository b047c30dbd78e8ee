"""One attempt at a sum in a simulation: the coordinator's side of it, wherever parties and helpers are.

These are a `Crowd`: `engines.threads` has one in this process, and `engines.cluster` one on a Ray cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

from unspoken.engines.conditions import early_and_late
from unspoken.engines.work import Work
from unspoken.summation.addresses import is_party, party_at
from unspoken.summation.base import COORDINATOR, Coordinator, Endpoint, Envelope, Rejected, address_of
from unspoken.types import Words

Said = tuple[int, list[Envelope]]
"""A party, and what it sends"""


class StandIn(Endpoint):
    """A stand-in for an endpoint that runs elsewhere, so that several can work at the same time."""

    @abstractmethod
    def ask(self, incoming: bytes) -> Callable[[], list[Envelope]]:
        """Send it a message. The answer comes when the result is called."""

    def step(self, incoming: bytes) -> list[Envelope]:
        return self.ask(incoming)()

    def dump(self) -> bytes:
        raise TypeError("The state of an endpoint stays where it runs; dump it there.")

    def load(self, dumped: bytes) -> None:
        raise TypeError("The state of an endpoint stays where it runs; load it there.")


class Post:
    """Carries envelopes and counts their bytes. What is addressed to a party that has vanished is lost, and what its
    receiver rejects has no effect, as on a network."""

    def __init__(
        self, endpoints: dict[str, Endpoint], parties: Callable[[list[Envelope]], Iterable[Said]] | None = None
    ) -> None:
        """`parties` delivers what is for none of the endpoints, and gives the answers."""
        self.endpoints, self._parties = endpoints, parties
        self.bytes = 0
        self._sent = array("q")
        """The bytes that each party has sent. A million parties have 8 MB here"""
        self._counts = True

    def send(self, envelopes: list[Envelope], sender: str = COORDINATOR) -> None:
        """Deliver the envelopes, the answers to them, and so on."""
        waiting = [(sender, envelope) for envelope in envelopes]
        while waiting:
            asked: list[tuple[str, Callable[[], list[Envelope]]]] = []
            others: list[Envelope] = []
            for source, envelope in waiting:
                self.count(source, len(envelope.body))
                if (endpoint := self.endpoints.get(envelope.to)) is not None:
                    asked.append((envelope.to, _asked(endpoint, envelope.body)))
                else:
                    others.append(envelope)
            waiting = []
            for to, answer in asked:
                with suppress(Rejected):
                    waiting += [(to, envelope) for envelope in answer()]
            if others and self._parties is not None:
                for index, answers in self._parties(others):
                    self.send(answers, address_of(index))

    def count(self, sender: str, size: int) -> None:
        """Count what someone sent."""
        if not self._counts:
            return
        self.bytes += size
        if is_party(sender):
            party = party_at(sender)
            if (more := party + 1 - len(self._sent)) > 0:
                self._sent.frombytes(bytes(more * self._sent.itemsize))
            self._sent[party] += size

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Carry envelopes for a while without counting their bytes."""
        self._counts = False
        try:
            yield
        finally:
            self._counts = True

    def largest_party(self) -> int:
        """The most bytes that one party has sent."""
        return max(self._sent, default=0)


def _asked(endpoint: Endpoint, body: bytes) -> Callable[[], list[Envelope]]:
    return endpoint.ask(body) if isinstance(endpoint, StandIn) else partial(endpoint.step, body)


class Crowd(ABC):
    """The parties and helpers of one attempt, wherever they are. What a party rejects has no effect."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.silent: set[int] = set()
        """The parties that vanish in the setup, after their first message"""
        self.late: set[int] = set()
        """The parties that vanish while they send their vectors"""
        self.gone: set[int] = set()
        """The parties that nothing reaches any more"""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def helpers(self) -> dict[str, Endpoint]:
        """The protocol's helpers, or stand-ins for them, by address."""

    @abstractmethod
    def begin(self) -> Iterator[Said]:
        """Let every party that is not gone begin with the setup. Asked for only if the protocol has one."""

    @abstractmethod
    def step(self, envelopes: list[Envelope]) -> Iterator[Said]:
        """Deliver envelopes to parties that are not gone, and give their answers."""

    @abstractmethod
    def submit(self, post: Post) -> Iterator[int]:
        """Have all vectors made (`Work.messages`), block by block, and sent by `post`, each from its party's address.
        Yields the number of parties in each block."""

    @abstractmethod
    def added(self, function: Callable[[list[bytes]], Words], items: Iterable[list[bytes]]) -> Iterable[Words]:
        """Like `map`, in parallel, but several results may come back as their sum."""


class Attempt:
    """One attempt: takes a crowd through the stages of a protocol."""

    def __init__(self, crowd: Crowd, report: Callable[[str, int], None]) -> None:
        """The crowd is there already: its context was entered."""
        self._crowd, self._report = crowd, report
        self._coordinator = crowd.work.endpoints.coordinator()
        self.post = Post({COORDINATOR: self._coordinator, **crowd.helpers()}, crowd.step)
        self.left = False
        """Whether vectors have begun to leave"""

    def run(self, what: str) -> Coordinator:
        """Take everyone's vector through the protocol."""
        crowd, done = self._crowd, 0
        crowd.silent, crowd.late = early_and_late([*crowd.work.job.vanishing], self._coordinator.setup_stages)
        if self._coordinator.setup_stages:
            self._set_up()
        self.left = True
        for count in crowd.submit(self.post):
            # These messages are not counted: their number depends on the size of blocks, which is not a property of the
            # study.
            with self.post.uncounted():
                self.post.send(self._coordinator.settle())
            done += count
            self._report(what, done)
        self.post.send(self._coordinator.agree())
        self.post.send(self._coordinator.finish())
        return self._coordinator

    def _set_up(self) -> None:
        """Keys and shares, for protocols that need them: a few kilobytes a party, kept to the end."""
        stages = self._coordinator.setup_stages
        self._crowd.gone |= self._crowd.work.job.absent
        self._deliver(self._crowd.begin(), "making keys")
        self._crowd.gone |= self._crowd.silent
        for stage in range(stages):
            envelopes = self._coordinator.advance()
            for envelope in envelopes:
                self.post.count(COORDINATOR, len(envelope.body))
            self._deliver(self._crowd.step(envelopes), f"exchanging keys and shares ({stage + 1}/{stages})")
        self._crowd.gone |= self._crowd.late

    def _deliver(self, said: Iterable[Said], what: str) -> None:
        """Deliver what parties say, one after another."""
        for done, (index, envelopes) in enumerate(said):
            self._report(what, done)
            self.post.send(envelopes, address_of(index))
