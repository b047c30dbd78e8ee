"""One run of a protocol over all parties in one process: bytes are moved, and vectors are made a block at a time."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from unspoken.engines.processes import tallier_processes
from unspoken.roles.secrets import PartySecrets
from unspoken.summation.base import COORDINATOR, Coordinator, Endpoint, Envelope, Party, Protocol, address_of
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.summation.tally import Tally
from unspoken.types import Integers, Words


class Post:
    """Carries envelopes and counts their bytes. What is addressed to a party that has vanished is lost."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self.endpoints = endpoints
        self.bytes = 0
        self.sent: Counter[str] = Counter()

    def send(self, envelopes: list[Envelope], sender: str = COORDINATOR) -> None:
        """Deliver the envelopes, and whatever they give rise to."""
        waiting = deque((sender, envelope) for envelope in envelopes)
        while waiting:
            sender, envelope = waiting.popleft()
            self.bytes += len(envelope.body)
            self.sent[sender] += len(envelope.body)
            if envelope.to in self.endpoints:
                answers = self.endpoints[envelope.to].step(envelope.body)
                waiting.extend((envelope.to, answer) for answer in answers)

    def largest_party(self) -> int:
        return max((count for sender, count in self.sent.items() if sender.startswith("party:")), default=0)


class Exchange:
    """One run of a protocol over all parties, their vectors made a block at a time."""

    def __init__(
        self,
        endpoints: SimulatedEndpoints[Protocol],
        root: bytes,
        report: Callable[[str, int], None],
        processes: bool = False,
    ) -> None:
        self._endpoints, self._root, self._report, self._processes = endpoints, root, report, processes
        self._coordinator = endpoints.coordinator()
        self.post = Post({COORDINATOR: self._coordinator})
        self._parties: dict[int, Party] = {}
        self._early: set[int] = set()
        self._late: set[int] = set()
        self._absent: set[int] = set()

    def __enter__(self) -> Exchange:
        with ExitStack() as stack:
            protocol, keys = self._endpoints.protocol, self._endpoints.keys
            if self._processes and isinstance(protocol, Tally):
                self.post.endpoints.update(stack.enter_context(tallier_processes(protocol, keys)))
            else:
                self.post.endpoints.update(self._endpoints.helpers())
            # Parties are what is done in parallel: threads within their own arithmetic would only wait for each other.
            stack.enter_context(_arithmetic_threads().limit(limits=1))
            self._pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count() or 1, initializer=_torch_alone))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(
        self,
        blocks: Iterable[tuple[Integers, Any]],
        vectors: Callable[[Integers, Any, list[Party]], list[Words]],
        vanishing: list[int],
        what: str,
        absent: set[int] | None = None,
    ) -> Coordinator:
        """Everyone's vector through the protocol. `absent` parties have left before."""
        # Half of those who vanish do so in the setup, if there is one; the others while they send their vectors.
        early = len(vanishing) // 2 if self._coordinator.setup_stages else 0
        self._early, self._late, self._absent = set(vanishing[:early]), set(vanishing[early:]), absent or set()
        if self._coordinator.setup_stages:
            self._set_up()
        done = 0

        def prepare(indices: Integers, block: Any) -> list[list[Envelope]]:
            return self._prepare(indices, block, vectors)

        for indices, messages in in_order(blocks, prepare, self._pool):
            for index, envelopes in zip(indices.tolist(), messages, strict=True):
                self.post.send(envelopes[:-1] if index in self._late else envelopes, address_of(index))
            self.post.send(self._coordinator.settle())
            done += len(indices)
            self._report(what, done)
        self.post.send(self._coordinator.finish())
        return self._coordinator

    def parallel(self, function: Callable[[list[bytes]], Words], items: Iterable[list[bytes]]) -> Iterable[Words]:
        """Like `map`, in the threads of this exchange."""
        return self._pool.map(function, items)

    def _set_up(self) -> None:
        """Keys and shares, for protocols that need them: a few kilobytes a party, kept to the end."""
        for index in range(self._endpoints.session.parties):
            self._parties[index] = self._endpoints.party(index, PartySecrets(self._root, index).stream("keys"))
            self.post.endpoints[address_of(index)] = self._parties[index]
        for index, party in self._parties.items():
            self.post.send(party.step(b""), address_of(index))
        for index in self._early:
            del self.post.endpoints[address_of(index)]
        for stage in range(self._coordinator.setup_stages):
            for done, envelope in enumerate(self._coordinator.advance()):
                self._report(f"exchanging keys and shares ({stage + 1}/{self._coordinator.setup_stages})", done)
                self.post.send([envelope])
        for index in self._late:
            self.post.endpoints.pop(address_of(index), None)

    def _prepare(
        self,
        indices: Integers,
        block: Any,
        vectors: Callable[[Integers, Any, list[Party]], list[Words]],
    ) -> list[list[Envelope]]:
        """What the block's parties do, each for itself: contribute, round, add noise, mask."""
        if self._absent.issuperset(indices.tolist()):
            return [[] for _ in indices]
        parties = [
            self._parties.get(index) or self._endpoints.party(index, PartySecrets(self._root, index).stream("keys"))
            for index in indices.tolist()
        ]
        messages: list[list[Envelope]] = []
        for index, party, vector in zip(indices.tolist(), parties, vectors(indices, block, parties), strict=True):
            if not party.ready or index in self._early or index in self._absent:
                messages.append([])
                continue
            messages.append(party.submit(vector))
            party.forget_vector()
        return messages


@lru_cache(maxsize=1)
def _arithmetic_threads() -> ThreadpoolController:
    """The thread pools of the linear algebra that is loaded. Finding them takes milliseconds: once is enough, since
    numpy and scipy are loaded by now and PyTorch is told by itself."""
    return ThreadpoolController()


def _torch_alone() -> None:
    """PyTorch, if it is there, counts threads by thread."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def in_order(
    blocks: Iterable[tuple[Integers, Any]],
    prepare: Callable[[Integers, Any], list[list[Envelope]]],
    pool: ThreadPoolExecutor,
) -> Iterator[tuple[Integers, list[list[Envelope]]]]:
    """Prepare blocks in the pool's threads, a few at a time, and hand them out in order."""
    waiting: deque[tuple[Integers, Future[list[list[Envelope]]]]] = deque()
    for indices, block in blocks:
        waiting.append((indices, pool.submit(prepare, indices, block)))
        if len(waiting) > (os.cpu_count() or 1):
            done, future = waiting.popleft()
            yield done, future.result()
    while waiting:
        done, future = waiting.popleft()
        yield done, future.result()
