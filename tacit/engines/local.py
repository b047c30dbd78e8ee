"""All parties in one process, a block at a time: for simulation, for tests, and for the demo.

Every message is made, moved and read as bytes, exactly as over a network. Memory does not grow with the number of
parties: a block of them is trained, noised, masked and folded into the running sum, then forgotten.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data.block import Block
from tacit.data.federation import BLOCK_PARTIES, Federation
from tacit.methods.base import Method, Release, Sum, Total
from tacit.methods.plan import Plan
from tacit.noise.discrete_gaussian import sample
from tacit.noise.stream import SecretStream
from tacit.summation.base import COORDINATOR, Endpoint, Envelope, Party, address_of
from tacit.types import Integers, Words

_BLOCK_BYTES = 64 << 20
"""How much memory the contributions of one block may take (unless a single party's needs more)."""

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many parties are done, and how many there are."""


@dataclass
class Outcome:
    """What really happened."""

    release: Release
    sums: dict[str, int]
    """How many parties are in each sum's total"""
    seconds: float
    bytes: int
    party_bytes: int
    """The most that any one party sent."""

    @property
    def survivors(self) -> int:
        """How many parties were there to the end."""
        return min(self.sums.values())


class _Post:
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
    vanishing = [int(party) for party in np.random.default_rng(seed).permutation(federation.parties)[:drop]]
    sent = largest = 0
    sums: dict[str, int] = {}
    conversation = method.coordinate(plan)
    try:
        request = next(conversation)
        while True:
            total, post = _Sum(request, method, plan, federation, vanishing, progress, secrets).run()
            sent, largest, sums[request.name] = sent + post.bytes, largest + post.largest_party(), total.survivors
            request = conversation.send(total)
    except StopIteration as end:
        release: Release = end.value
    return Outcome(release, sums, time.perf_counter() - started, sent, largest)


class _Sum:
    """One secure sum over all parties."""

    def __init__(
        self,
        request: Sum,
        method: Method,
        plan: Plan,
        federation: Federation,
        vanishing: list[int],
        progress: Progress | None,
        secrets: SecretStream,
    ) -> None:
        self._request, self._method, self._federation, self._progress = request, method, federation, progress
        self._planned = plan.planned(request.name)
        self._root, self._total_noise = secrets.key(), SecretStream(secrets.key())
        self._protocol = plan.protocol(self._planned, SecretStream(secrets.key()))
        self._coordinator = self._protocol.coordinator()
        self._post = _Post({**self._protocol.helpers(), COORDINATOR: self._coordinator})
        # Half of those who vanish do so in the setup, if there is one; the others while they send their vectors.
        early = len(vanishing) // 2 if self._coordinator.setup_stages else 0
        self._early, self._late = set(vanishing[:early]), set(vanishing[early:])
        self._parties: dict[int, Party] = {}

    def run(self) -> tuple[Total, _Post]:
        with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            if self._coordinator.setup_stages:
                self._set_up()
            self._collect(pool)
            self._post.send(self._coordinator.finish())
            return self._decoded(pool), self._post

    def _set_up(self) -> None:
        """Keys and shares, for protocols that need them: a few kilobytes a party, kept to the end."""
        count = self._federation.parties
        for index in range(count):
            self._parties[index] = self._protocol.party(index, self._secrets_of(index, "keys"))
            self._post.endpoints[address_of(index)] = self._parties[index]
        for index, party in self._parties.items():
            self._post.send(party.step(b""), address_of(index))
        for index in self._early:
            del self._post.endpoints[address_of(index)]
        for stage in range(self._coordinator.setup_stages):
            for done, envelope in enumerate(self._coordinator.advance()):
                self._report(f"exchanging keys and shares ({stage + 1}/{self._coordinator.setup_stages})", done)
                self._post.send([envelope])
        for index in self._late:
            self._post.endpoints.pop(address_of(index), None)

    def _collect(self, pool: ThreadPoolExecutor) -> None:
        """Every party's vector, a block at a time: trained, noised, masked, sent, and forgotten."""
        done = 0
        most = min(BLOCK_PARTIES, max(1, _BLOCK_BYTES // (8 * self._planned.length)))
        for indices, messages in _in_order(self._federation.blocks(most), self._prepare, pool):
            for index, envelopes in zip(indices.tolist(), messages, strict=True):
                self._post.send(envelopes[:-1] if index in self._late else envelopes, address_of(index))
            self._post.send(self._coordinator.settle())
            done += len(indices)
            self._report("training, noising and summing", done)

    def _prepare(self, indices: Integers, block: Block) -> list[list[Envelope]]:
        """What the block's parties do, each for itself: contribute, round, add noise, mask."""
        contribution = self._method.contribute(self._request, block)
        words = self._planned.encoding.encode(contribution.noisy)
        exact = contribution.exact.astype(np.int64).view(np.uint64)
        messages: list[list[Envelope]] = []
        for index, noisy, rest in zip(indices.tolist(), words, exact, strict=True):
            party = self._parties.get(index) or self._protocol.party(index, self._secrets_of(index, "keys"))
            if not party.ready or index in self._early:
                messages.append([])
                continue
            if not self._protocol.reveals_contributions:
                noisy += self._noise_of(party.seeds, self._secrets_of(index, "noise"))
            messages.append(party.submit(np.concatenate([noisy, rest])))
            party.forget_vector()
        return messages

    def _noise_of(self, seeds: list[bytes], secrets: SecretStream) -> Words:
        """A party's whole share of the noise: the base from its own secrets, each component from its seed."""
        schedule, count = self._planned.schedule, self._planned.dimension
        noise = sample(schedule.base**0.5, count, secrets)
        for variance, seed in zip(schedule.components, seeds, strict=True):
            noise += sample(variance**0.5, count, SecretStream(seed))
        return noise.view(np.uint64)

    def _decoded(self, pool: ThreadPoolExecutor) -> Total:
        """The total as numbers, without the noise that was opened. The ideal sum gets all its noise here, at once."""
        planned, schedule = self._planned, self._planned.schedule
        words = self._coordinator.total()
        survivors = int(self._coordinator.survivors().sum())
        noisy, exact = words[: planned.dimension].copy(), words[planned.dimension :]
        if self._protocol.reveals_contributions:
            variance = schedule.kept(survivors) * survivors
            noisy += sample(variance**0.5, planned.dimension, self._total_noise).view(np.uint64)
        else:
            numbers = schedule.opened(survivors)

            def excess(seeds: list[bytes]) -> Words:
                noise = np.zeros(planned.dimension, dtype=np.int64)
                for number, seed in zip(numbers, seeds, strict=True):
                    noise += sample(schedule.components[number] ** 0.5, planned.dimension, SecretStream(seed))
                return noise.view(np.uint64)

            for noise in pool.map(excess, self._coordinator.opened().values()) if numbers else ():
                noisy -= noise
        return Total(planned.encoding.decode(noisy), planned.encoding.centered(exact), survivors)

    def _secrets_of(self, index: int, purpose: str) -> SecretStream:
        """A party's own secret randomness: the same for each protocol if a test injects the root."""
        return SecretStream(hashlib.sha256(self._root + f"{purpose}/{index}".encode()).digest())

    def _report(self, what: str, done: int) -> None:
        if self._progress:
            self._progress(what, done, self._federation.parties)


def _in_order(
    blocks: Iterator[tuple[Integers, Block]],
    prepare: Callable[[Integers, Block], list[list[Envelope]]],
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
