"""All parties in one process, a block at a time: for simulation, for tests, and for the demo.

Every message is made, moved and read as bytes, exactly as over a network. Memory does not grow with the number of
parties: a block of them is trained, noised, masked and folded into the running sum, then forgotten.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data.block import Block
from tacit.data.federation import Federation
from tacit.methods.base import Method, Release, Sum, Total
from tacit.methods.plan import Plan, PlannedSum
from tacit.noise.discrete_gaussian import sample
from tacit.noise.stream import SecretStream
from tacit.summation.base import COORDINATOR, Coordinator, Endpoint, Envelope, Protocol
from tacit.types import Flags, Integers, Words

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many parties are done, and how many there are."""


@dataclass
class Outcome:
    """What really happened."""

    release: Release
    survivors: int
    seconds: float
    bytes: int
    party_bytes: int
    """The most that any one party sent."""


@dataclass
class _Post:
    """Carries envelopes and counts their bytes."""

    endpoints: dict[str, Endpoint]
    bytes: int = 0
    largest_party: int = 0
    queue: deque[Envelope] = field(default_factory=deque)

    def send(self, envelopes: list[Envelope]) -> None:
        """Deliver the envelopes, and whatever they give rise to."""
        self.queue.extend(envelopes)
        while self.queue:
            envelope = self.queue.popleft()
            self.bytes += len(envelope.body)
            self.queue.extend(self.endpoints[envelope.to].step(envelope.body))

    def send_from_party(self, envelopes: list[Envelope]) -> None:
        self.largest_party = max(self.largest_party, sum(len(envelope.body) for envelope in envelopes))
        self.send(envelopes)


def run(
    method: Method,
    plan: Plan,
    federation: Federation,
    *,
    drop: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    secrets: SecretStream | None = None,
) -> Outcome:
    """Run a method on a federation. `drop` parties, chosen by the public seed, vanish while they send.

    `secrets` is where all secret randomness comes from: the operating system, unless a test injects a stream.
    """
    started = time.perf_counter()
    secrets = secrets or SecretStream()
    vanishing = np.zeros(federation.parties, dtype=np.bool_)
    vanishing[np.random.default_rng(seed).permutation(federation.parties)[:drop]] = True
    sent = largest = survivors = 0
    conversation = method.coordinate(plan)
    try:
        request = next(conversation)
        while True:
            total, post = _sum(request, method, plan, federation, vanishing, progress, secrets)
            sent, largest, survivors = sent + post.bytes, largest + post.largest_party, total.survivors
            request = conversation.send(total)
    except StopIteration as end:
        release: Release = end.value
    return Outcome(release, survivors, time.perf_counter() - started, sent, largest)


def _sum(
    request: Sum,
    method: Method,
    plan: Plan,
    federation: Federation,
    vanishing: Flags,
    progress: Progress | None,
    secrets: SecretStream,
) -> tuple[Total, _Post]:
    """One secure sum over all parties."""
    planned = plan.planned(request.name)
    protocol = plan.protocol(planned, secrets)
    coordinator = protocol.coordinator()
    post = _Post({**protocol.helpers(), COORDINATOR: coordinator})

    def prepare(parties: Integers, block: Block, secrets: SecretStream) -> list[list[Envelope]]:
        """What the block's parties do, each for itself: contribute, round, add noise, mask."""
        words = _protected(method, request, block, planned, protocol, secrets)
        return [protocol.party(int(party), row, secrets).step(b"") for party, row in zip(parties, words, strict=True)]

    done = 0
    for parties, messages in _in_parallel(federation.blocks(), prepare, secrets):
        for party, envelopes in zip(parties, messages, strict=True):
            post.send_from_party(envelopes[:-1] if vanishing[party] else envelopes)
        post.send(coordinator.settle())
        done += len(parties)
        if progress:
            progress("training, noising and summing", done, federation.parties)
    post.send(coordinator.finish())
    return _decoded(coordinator, protocol, planned, secrets), post


def _protected(
    method: Method, request: Sum, block: Block, planned: PlannedSum, protocol: Protocol, secrets: SecretStream
) -> Words:
    """The parties' contributions as integers with their noise shares: rows ready to be masked."""
    contribution = method.contribute(request, block)
    noisy = planned.encoding.encode(contribution.noisy)
    if not protocol.reveals_contributions:
        noisy += _noise(planned.share_sigma, noisy.size, secrets).reshape(noisy.shape)
    return np.concatenate([noisy, contribution.exact.astype(np.int64).view(np.uint64)], axis=1)


def _decoded(coordinator: Coordinator, protocol: Protocol, planned: PlannedSum, secrets: SecretStream) -> Total:
    """The total as numbers. The ideal sum, whose parties add no noise, gets all survivors' noise here."""
    words = coordinator.total()
    survivors = int(coordinator.survivors().sum())
    noisy, exact = words[: planned.dimension], words[planned.dimension :]
    if protocol.reveals_contributions:
        noisy = noisy + _noise(planned.share_sigma * survivors**0.5, noisy.size, secrets)
    return Total(planned.encoding.decode(noisy), planned.encoding.centered(exact), survivors)


def _noise(sigma: float, count: int, secrets: SecretStream) -> Words:
    return sample(sigma, count, secrets).view(np.uint64)


def _in_parallel(
    blocks: Iterator[tuple[Integers, Block]],
    prepare: Callable[[Integers, Block, SecretStream], list[list[Envelope]]],
    secrets: SecretStream,
) -> Iterator[tuple[Integers, list[list[Envelope]]]]:
    """Prepare blocks in as many threads as there are cores, a few at a time, in order.

    Each block has a stream of its own, keyed in order, so that injected randomness gives the same run again.
    """
    workers = os.cpu_count() or 1
    waiting: deque[tuple[Integers, Future[list[list[Envelope]]]]] = deque()
    # Many small products: a thread of ours each is faster than BLAS's own threads.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        for parties, block in blocks:
            waiting.append((parties, pool.submit(prepare, parties, block, SecretStream(secrets.key()))))
            if len(waiting) > workers:
                parties_done, future = waiting.popleft()
                yield parties_done, future.result()
        while waiting:
            parties_done, future = waiting.popleft()
            yield parties_done, future.result()
