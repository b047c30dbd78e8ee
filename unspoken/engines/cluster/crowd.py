"""The parties and helpers of an attempt on a Ray cluster: parties as tasks, helpers as actors, and their messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from unspoken.engines.attempt import Crowd, Post, Said, StandIn
from unspoken.engines.cluster import tasks
from unspoken.engines.cluster.connection import Cluster, ray
from unspoken.engines.cluster.tasks import AttemptPlace, grouped
from unspoken.engines.processes import Refusal
from unspoken.engines.work import BLOCK_BYTES, Work
from unspoken.errors import UnspokenError
from unspoken.summation.addresses import party_at
from unspoken.summation.base import COORDINATOR, Endpoint, Envelope, Rejected, address_of
from unspoken.types import Integers, Words

TASK_PARTIES = 1000
"""The largest number of parties in a task. Starting a task takes milliseconds, as long as the work of so many
parties"""
_SHARES = 4
"""The least number of tasks for each worker, so that none waits long for the last one"""
_AHEAD = 2
"""The number of tasks for each worker that are under way or done and not yet delivered"""
_UNTAKEN = 4
"""The number of blocks that a helper may have before it"""


class ActorStandIn(StandIn):
    """Stands in for a helper that is an actor."""

    def __init__(self, cluster: Cluster, actor: Any, begun: Any) -> None:
        """`begun` is a Ray reference that is ready (with no value) once the actor has begun."""
        self._cluster, self._actor = cluster, actor
        self._taken: deque[Any] = deque([begun])

    def take(self, bodies: Any) -> list[Envelope]:
        """Give it the messages of a block, by reference. Returns its answers to earlier ones, if there are some."""
        self._taken.append(self._actor.take.remote(bodies))
        return self._answers(_UNTAKEN)

    def ask(self, incoming: bytes) -> Callable[[], list[Envelope]]:
        asked = self._actor.step.remote(incoming)
        return lambda: [*self._answers(0), *self._answer(asked)]

    def _answers(self, left: int) -> list[Envelope]:
        found: list[Envelope] = []
        while len(self._taken) > left:
            found += self._answer(self._taken.popleft())
        return found

    def _answer(self, reference: Any) -> list[Envelope]:
        answer: list[Envelope] | Refusal | None = self._cluster.got(reference)
        if isinstance(answer, Refusal):
            raise answer.error()
        return answer or []


class _Call(NamedTuple):
    """A task to do."""

    number: int
    function: Callable[..., Any]
    results: int
    """How many results the function returns"""
    arguments: tuple[Any, ...]


class ClusterCrowd(Crowd):
    """Parties as tasks, helpers as actors."""

    def __init__(self, work: Work, cluster: Cluster, place: AttemptPlace) -> None:
        super().__init__(work)
        self._cluster, self._place = cluster, place
        self._helpers: dict[str, ActorStandIn] = {}
        self._under_way: set[Any] = set()
        self._states: dict[int, Any] = {}
        """References to the states of each task's parties, if the protocol has a setup"""

    def __enter__(self) -> Self:
        for index, address in enumerate(self.work.endpoints.protocol.helper_addresses):
            actor = self._cluster.actor(index, tasks.HelperActor)
            self._helpers[address] = ActorStandIn(self._cluster, actor, actor.begin.remote(self._place, index))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nobody waits for tasks under way, nor for helpers if the run was interrupted."""
        for reference in self._under_way:
            ray().cancel(reference, force=True)
        if error is not None and not isinstance(error, UnspokenError):
            self._cluster.dismiss()
        self._under_way, self._helpers, self._states = set(), {}, {}

    def helpers(self) -> dict[str, Endpoint]:
        return {**self._helpers}

    @cached_property
    def _blocks(self) -> list[list[Integers]]:
        """The blocks of each task."""
        session = self.work.endpoints.session
        share = -(-session.parties // (_SHARES * self._cluster.cpus))
        most = max(1, min(TASK_PARTIES, share, BLOCK_BYTES // (8 * session.length)))
        return list(grouped(self.work.layout(most), most))

    @cached_property
    def _task_of(self) -> Integers:
        """The number of the task that a party belongs to."""
        found = np.zeros(self.work.endpoints.session.parties, dtype=np.int64)
        for number, blocks in enumerate(self._blocks):
            found[np.concatenate(blocks)] = number
        return found

    def begin(self) -> Iterator[Said]:
        parties = (np.concatenate(blocks).tolist() for blocks in self._blocks)
        there = ([index for index in indices if index not in self.gone] for indices in parties)
        return self._conversation(
            _Call(number, tasks.begin, 2, (self._place, indices)) for number, indices in enumerate(there)
        )

    def step(self, envelopes: list[Envelope]) -> Iterator[Said]:
        letters: dict[int, list[tuple[int, bytes]]] = {}
        for to, body in envelopes:
            index = party_at(to)
            if index not in self.gone and self._states:
                letters.setdefault(int(self._task_of[index]), []).append((index, body))
        return self._conversation(
            _Call(number, tasks.step, 2, (self._place, self._states[number], given))
            for number, given in letters.items()
        )

    def _conversation(self, calls: Iterable[_Call]) -> Iterator[Said]:
        for number, (said, states) in self._done(calls):
            self._states[number] = states
            yield from self._cluster.got(said)

    def submit(self, post: Post) -> Iterator[int]:
        addresses = (COORDINATOR, *self._helpers)

        def call(number: int, blocks: list[Integers]) -> _Call:
            given = self._place, self._states.get(number), blocks, self._leaving(blocks), addresses
            return _Call(number, tasks.submit, 2 + len(addresses), given)

        calls = (call(number, blocks) for number, blocks in enumerate(self._blocks))
        for number, (summarised, states, *bodies) in self._done(calls):
            summary: tasks.Summary = self._cluster.got(summarised)
            if self._states:
                self._states[number] = states
            for index, size in zip(summary.indices.tolist(), summary.sizes.tolist(), strict=True):
                post.count(address_of(index), size)
            self._deliver(post, dict(zip(addresses, bodies, strict=True)))
            yield len(summary.indices)

    def _leaving(self, blocks: list[Integers]) -> tuple[set[int], set[int]]:
        """Who of a task's parties is silent, and who is late."""
        here = set(np.concatenate(blocks).tolist())
        return self.silent & here, self.late & here

    def _deliver(self, post: Post, bodies: dict[str, Any]) -> None:
        """Hand over what a task's parties have sent: to helpers by reference, so that it does not come through here."""
        given: list[bytes] | bytes = self._cluster.got(bodies.pop(COORDINATOR))
        coordinator: Any = post.endpoints[COORDINATOR]
        if isinstance(given, bytes):
            coordinator.absorb(given)
        else:
            for body in given:
                with suppress(Rejected):
                    post.send(coordinator.step(body))
        for address, reference in bodies.items():
            post.send(self._helpers[address].take(reference), address)

    def added(self, function: Callable[[list[bytes]], Words], items: Iterable[list[bytes]]) -> Iterable[Words]:
        rest = iter(items)
        batches = iter(lambda: list(islice(rest, TASK_PARTIES)), [])
        calls = (_Call(number, tasks.add, 1, (function, batch)) for number, batch in enumerate(batches))
        for _, (reference,) in self._done(calls):
            yield self._cluster.got(reference)

    def _done(self, calls: Iterable[_Call]) -> Iterator[tuple[int, list[Any]]]:
        """Call tasks, a few ahead. Hand out each call's number and references to its results, in the order in which
        they are done."""
        waiting: dict[Any, tuple[int, list[Any]]] = {}
        for number, function, results, arguments in calls:
            called = self._cluster.task(function, results).remote(*arguments)
            references = [called] if results == 1 else list(called)
            waiting[references[0]] = number, references
            self._under_way.add(references[0])
            if len(waiting) > _AHEAD * self._cluster.cpus:
                yield self._next(waiting)
        while waiting:
            yield self._next(waiting)

    def _next(self, waiting: dict[Any, tuple[int, list[Any]]]) -> tuple[int, list[Any]]:
        (ready,), _ = ray().wait(list(waiting), num_returns=1)
        self._under_way.discard(ready)
        return waiting.pop(ready)
