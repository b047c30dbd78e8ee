"""What the processes of a cluster do: blocks of parties in tasks, and helpers in actors.

A task gets the roots and indices, and derives everything else, as `engines.work` does; so a task that is done again
gives the same vectors. What all tasks of a run or of an attempt need is read from the object store once by each
process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.engines.attempt import Said
from unspoken.engines.cluster.connection import check_version, ray
from unspoken.engines.processes import Refusal
from unspoken.engines.threads import alone
from unspoken.engines.work import Work
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Endpoint, Envelope, Party, Rejected
from unspoken.types import Integers, Words

States = dict[int, bytes]
"""The states of parties between two tasks, by their indices"""


@dataclass(frozen=True)
class AttemptPlace:
    """Where an attempt is found in the object store. The references are in lists, so that Ray does not resolve them by
    itself."""

    run: int
    shared: list[Any]
    """Method, plan and federation of the run"""
    attempt: bytes
    job: list[Any]
    version: str
    """That of this package where the run was started"""


_runs: dict[int, Any] = {}
_works: dict[bytes, Work] = {}


def work_at(place: AttemptPlace) -> Work:
    """The work of an attempt. A process remembers that of the last one."""
    if place.attempt not in _works:
        check_version(place.version)
        _works.clear()
        if place.run not in _runs:
            alone()
            _runs.clear()
            _runs[place.run] = ray().get(place.shared[0])
        method, plan, federation = _runs[place.run]
        _works[place.attempt] = Work(method, plan, federation, ray().get(place.job[0]))
    return _works[place.attempt]


def begin(place: AttemptPlace, indices: list[int]) -> tuple[list[Said], States]:
    """Let parties begin. Returns what they say, and their states."""
    work = work_at(place)
    parties = {index: work.party(index) for index in indices}
    said = [(index, party.step(b"")) for index, party in parties.items()]
    return said, _dumped(parties)


def step(place: AttemptPlace, states: States, letters: list[tuple[int, bytes]]) -> tuple[list[Said], States]:
    """Deliver letters to parties. Returns their answers, and the states of all."""
    work, said = work_at(place), []
    touched = {index: _loaded(work, index, states[index]) for index, _ in letters}
    for index, body in letters:
        with suppress(Rejected):
            said.append((index, touched[index].step(body)))
    return said, {**states, **_dumped(touched)}


@dataclass(frozen=True)
class Summary:
    """What a block's parties have sent."""

    indices: Integers
    sizes: Integers
    """The bytes that each has sent"""


def submit(
    place: AttemptPlace,
    states: States | None,
    blocks: list[Integers],
    leaving: tuple[Collection[int], Collection[int]],
    addresses: tuple[str, ...],
) -> tuple[Any, ...]:
    """Have parties make their vectors. Returns a summary, their states, and what is for each of the addresses."""
    work, silent, late = work_at(place), *leaving
    parties = {index: _loaded(work, index, state) for index, state in (states or {}).items()}
    bodies: dict[str, list[bytes]] = {address: [] for address in addresses}
    sizes: list[int] = []
    for indices in blocks:
        for envelopes in work.messages(indices, parties, silent, late):
            sizes.append(sum(len(envelope.body) for envelope in envelopes))
            for to, body in envelopes:
                bodies[to].append(body)
    summary = Summary(np.concatenate(blocks), np.array(sizes, dtype=np.int64))
    given = [_for_coordinator(work, bodies[to]) if to == COORDINATOR else bodies[to] for to in addresses]
    return summary, None if states is None else _dumped(parties), *given


def _for_coordinator(work: Work, bodies: list[bytes]) -> list[bytes] | bytes:
    """The messages to the coordinator; or what it would make of them, if it can add that up."""
    coordinator = work.endpoints.coordinator() if bodies else None
    if coordinator is None or coordinator.part() is None:
        return bodies
    for body in bodies:
        with suppress(Rejected):
            coordinator.step(body)
    return coordinator.part() or b""


def add(function: Callable[[list[bytes]], Words], items: list[list[bytes]]) -> Words:
    """The sum of a function's values, modulo 2^64."""
    first, *others = items
    total = function(first).copy()
    for item in others:
        total += function(item)
    return total


class HelperActor:
    """A helper in a process of its own, for one attempt after another."""

    def __init__(self) -> None:
        self._endpoint: Endpoint | None = None

    def begin(self, place: AttemptPlace, index: int) -> None:
        """Be a helper of an attempt, from its beginning. That of another one is forgotten."""
        endpoints = work_at(place).endpoints
        keys = endpoints.keys
        self._endpoint = endpoints.protocol.helper(index, keys.helper(index), SecretStream(keys.helper_root(index)))

    def step(self, body: bytes) -> list[Envelope] | Refusal:
        """Take one message."""
        if self._endpoint is None:
            raise RuntimeError("Expected a helper that has begun.")
        try:
            return self._endpoint.step(body)
        except (Rejected, Aborted) as error:
            return Refusal.of(error)

    def take(self, bodies: list[bytes]) -> list[Envelope] | Refusal:
        """Take the messages of many parties. What is rejected has no effect."""
        answers: list[Envelope] = []
        for body in bodies:
            answer = self.step(body)
            if isinstance(answer, Refusal):
                if answer.rejected:
                    continue
                return answer
            answers += answer
        return answers


def _loaded(work: Work, index: int, state: bytes) -> Party:
    party = work.party(index)
    party.load(state)
    return party


def _dumped(parties: dict[int, Party]) -> States:
    return {index: party.dump() for index, party in parties.items()}


def grouped(blocks: Iterable[Integers], most: int) -> Iterable[list[Integers]]:
    """Blocks in groups of at most so many parties, unless one block alone has more.

    >>> [[len(block) for block in blocks] for blocks in grouped([np.arange(3), np.arange(3), np.arange(2)], 5)]
    [[3], [3, 2]]
    """
    group: list[Integers] = []
    for block in blocks:
        if group and sum(map(len, group)) + len(block) > most:
            yield group
            group = []
        group.append(block)
    if group:
        yield group
