"""All parties of an attempt in one process: threads work on blocks of parties, which are then forgotten."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from itertools import chain
from typing import Self, TypeVar

from threadpoolctl import ThreadpoolController

from unspoken.engines.attempt import Crowd, Post, Said
from unspoken.engines.work import Work
from unspoken.summation.addresses import party_at
from unspoken.summation.base import Endpoint, Envelope, Party, Protocol, Rejected, address_of
from unspoken.summation.simulated_keys import SimulatedKeys
from unspoken.types import Integers, Words

Item = TypeVar("Item")
Made = TypeVar("Made")
Helpers = Callable[[Protocol, SimulatedKeys], AbstractContextManager[dict[str, Endpoint]]]
"""Runs a protocol's helpers elsewhere: gives stand-ins for them, by address, and ends them in the end."""


class ThreadedCrowd(Crowd):
    """All participants in this process, except helpers that run elsewhere."""

    def __init__(self, work: Work, helpers: Helpers | None = None) -> None:
        """`helpers` runs the protocol's helpers; without it they are in this process."""
        super().__init__(work)
        self._elsewhere = helpers
        self._parties: dict[int, Party] = {}

    def __enter__(self) -> Self:
        endpoints = self.work.endpoints
        with ExitStack() as stack:
            if self._elsewhere is None:
                self._helpers = endpoints.helpers()
            else:
                self._helpers = stack.enter_context(self._elsewhere(endpoints.protocol, endpoints.keys))
            # Parties are what is done in parallel: threads within their own arithmetic would only wait for each other.
            stack.enter_context(_arithmetic_threads().limit(limits=1))
            self._pool = stack.enter_context(ThreadPoolExecutor(cores(), initializer=_torch_alone))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def helpers(self) -> dict[str, Endpoint]:
        return self._helpers

    def begin(self) -> Iterator[Said]:
        for index in set(range(self.work.endpoints.session.parties)) - self.gone:
            self._parties[index] = self.work.party(index)
        for index, party in self._parties.items():
            yield index, party.step(b"")

    def step(self, envelopes: list[Envelope]) -> Iterator[Said]:
        for envelope in envelopes:
            index = party_at(envelope.to)
            if index in self.gone or index not in self._parties:
                continue
            try:
                answers = self._parties[index].step(envelope.body)
            except Rejected:
                continue
            yield index, answers

    def submit(self, post: Post) -> Iterator[int]:
        for indices, messages in self._prepared():
            for index, envelopes in zip(indices.tolist(), messages, strict=True):
                post.send(envelopes, address_of(index))
            yield len(indices)

    def _prepared(self) -> Iterator[tuple[Integers, list[list[Envelope]]]]:
        """Blocks and what their parties send. If there is but one, nothing is gained by another thread."""
        layout = self.work.layout()
        first, second = next(layout, None), next(layout, None)
        if first is not None and second is not None:
            yield from in_order(chain((first, second), layout), self._messages, self._pool)
        elif first is not None:
            with _torch_alone_for_now():
                messages = self._messages(first)
            yield first, messages

    def _messages(self, indices: Integers) -> list[list[Envelope]]:
        return self.work.messages(indices, self._parties, self.silent, self.late)

    def added(self, function: Callable[[list[bytes]], Words], items: Iterable[list[bytes]]) -> Iterable[Words]:
        return (words for _, words in in_order(items, function, self._pool))


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _arithmetic_threads() -> ThreadpoolController:
    """The thread pools of the linear algebra libraries.

    Finding them takes milliseconds. Once is enough: numpy and scipy are loaded by now, and PyTorch has `_torch_alone`.
    """
    return ThreadpoolController()


def alone() -> None:
    """Let this process compute with one thread only, to its end."""
    _arithmetic_threads().limit(limits=1)
    _torch_alone()


def _torch_alone() -> None:
    """Let PyTorch, if it is loaded, use one thread only; it keeps a number of threads for each thread."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@contextmanager
def _torch_alone_for_now() -> Iterator[None]:
    """`_torch_alone` for this thread, which may use more again afterwards."""
    torch = sys.modules.get("torch")
    if torch is None or (before := torch.get_num_threads()) == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_order(
    items: Iterable[Item], prepare: Callable[[Item], Made], pool: ThreadPoolExecutor
) -> Iterator[tuple[Item, Made]]:
    """Prepare items in the pool's threads, a few at a time, and hand them out in order. (A pool's own `map` would
    begin with all of them, and keep what nobody has asked for yet.)"""
    waiting: deque[tuple[Item, Future[Made]]] = deque()
    most = cores()
    for item in items:
        waiting.append((item, pool.submit(prepare, item)))
        if len(waiting) > most:
            done, future = waiting.popleft()
            yield done, future.result()
    while waiting:
        done, future = waiting.popleft()
        yield done, future.result()
