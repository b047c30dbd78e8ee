"""All parties in one process, a block at a time: for simulation, for tests, and for the demo.

Every message is made, moved and read as bytes, exactly as over a network. Memory does not grow with the number of
parties: a block of them is trained, noised, masked and folded into the running sum, then forgotten.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from unspoken.arithmetic import MOST_POOLED
from unspoken.data.block import Block
from unspoken.data.federation import BLOCK_PARTIES, Federation
from unspoken.engines.journal import Entry, Journal, fingerprint
from unspoken.engines.processes import separate
from unspoken.methods.base import (
    Answer,
    Collect,
    Dealt,
    Method,
    PartyRequest,
    Pool,
    Private,
    Request,
    Sum,
    Tokens,
    Total,
    Vote,
    ZeroSum,
)
from unspoken.methods.mechanisms import Correlated, Independent, Inside, Turnout
from unspoken.methods.plan import Plan, PlannedSum
from unspoken.methods.releases import Release
from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Coordinator, Endpoint, Envelope, Party, Protocol, address_of
from unspoken.summation.tally import Tally, TallyCoordinator
from unspoken.summation.tokens import TokenProtocol
from unspoken.types import Flags, Integers, Words

_BLOCK_BYTES = 64 << 20
"""How much memory the contributions of one block may take (unless a single party's needs more)."""

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many parties are done, and how many there are."""


@dataclass
class Outcome:
    """What really happened."""

    release: Release
    turnouts: dict[str, list[Turnout]]
    """How many parties were in each total, by its name, each time that it was asked for"""
    began: datetime
    seconds: float
    """How long it took: it depends on records, so it is for the person who ran it alone"""
    bytes: int
    party_bytes: int
    """The most that any one party sent."""
    counted: dict[str, Flags]
    """Which parties are in each sum or vote, by its name, the last time that it was asked for"""

    @property
    def survivors(self) -> int:
        """How many parties were there to the end."""
        return min(turnout.sent for turns in self.turnouts.values() for turnout in turns)


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
    journal: Journal | None = None,
    processes: bool = False,
) -> Outcome:
    """Run a method on a federation. `drop` parties, chosen by the public seed, vanish while they send.

    `secrets` is where all secret randomness comes from: the operating system, unless a test injects a stream. With a
    `journal`, a run that was cut off goes on where it stopped. With `processes`, each tallier of a vote is a process of
    its own: if one dies or hangs, the run ends in `Aborted` within the study's deadline.
    """
    began, started = datetime.now(UTC), time.perf_counter()
    vanishing = [int(party) for party in np.random.default_rng(seed).permutation(federation.parties)[:drop]]
    running = _Run(method, plan, federation, vanishing, progress, secrets or SecretStream(), journal, processes)
    conversation = method.coordinate(plan)
    try:
        request = next(conversation)
        while True:
            request = conversation.send(running.answer(request))
    except StopIteration as end:
        release: Release = end.value
    seconds = time.perf_counter() - started
    return Outcome(release, dict(running.turnouts), began, seconds, running.bytes, running.largest, running.counted)


@dataclass
class _Common:
    """Noise that the parties have in common: what each drew can be drawn again from `root`."""

    root: bytes
    prepared: Flags
    total: Words


class _Run:
    """Answers the requests of one run of a method, and remembers what lasts from one to the next."""

    def __init__(
        self,
        method: Method,
        plan: Plan,
        federation: Federation,
        vanishing: list[int],
        progress: Progress | None,
        secrets: SecretStream,
        journal: Journal | None,
        processes: bool,
    ) -> None:
        self._method, self._plan, self._federation, self._processes = method, plan, federation, processes
        self._vanishing, self._progress, self._secrets = vanishing, progress, secrets
        self._journal, self._source, self._number = journal, secrets, 0
        self._common: dict[str, _Common] = {}
        self._dealt: dict[int, Dealt] = {}
        self.turnouts: dict[str, list[Turnout]] = defaultdict(list)
        self.counted: dict[str, Flags] = {}
        self.bytes = self.largest = 0

    def answer(self, request: Request) -> Answer:
        """Answer a request, or say again what the journal knows of it."""
        if self._journal is None or isinstance(request, Pool):
            return self._answer(request)
        number, asked = self._number, fingerprint(request)
        self._number += 1
        if entry := self._journal.entry(number, asked):
            return self._recall(request, entry)
        if isinstance(request, Tokens) and self._journal.is_over(number + 1):
            # The round that they were for is over: nothing depends on them any more.
            return Total(np.empty(0), np.empty(0, dtype=np.int64), self._federation.parties, 0.0)
        self._secrets = self._journal.begin(number, asked, self._source)
        bytes_before, largest_before = self.bytes, self.largest
        answer = self._answer(request)
        # The secrets of tokens are needed for the round that follows: a run that goes on deals the same ones again.
        if isinstance(answer, Total) and not isinstance(request, Tokens):
            moved, largest = self.bytes - bytes_before, self.largest - largest_before
            self._journal.finish(number, self._entry(request, answer, moved, largest))
        return answer

    def _entry(self, request: Request, answer: Total, moved: int, largest: int) -> Entry:
        common, prepared, counted = None, answer.survivors, b""
        if isinstance(request, ZeroSum):
            made = self._common[request.name]
            common = (made.root, made.prepared.tobytes(), made.total.tobytes())
        elif isinstance(request, Sum | Vote | Collect):
            prepared = self.turnouts[request.name][-1].prepared
        if isinstance(request, Sum | Vote):
            counted = self.counted[request.name].tobytes()
        numbers = (answer.noisy.tobytes(), answer.exact.tobytes(), answer.survivors, answer.noise_std)
        return Entry(*numbers, prepared, moved, largest, common, counted)

    def _recall(self, request: Request, entry: Entry) -> Total:
        self.bytes, self.largest = self.bytes + entry.moved, self.largest + entry.largest
        if entry.common is not None and isinstance(request, ZeroSum):
            root, prepared, total = entry.common
            flags, words = np.frombuffer(prepared, dtype=np.bool_), np.frombuffer(total, dtype=np.uint64)
            self._common[request.name] = _Common(root, flags, words)
        elif isinstance(request, Sum | Vote | Collect):
            self.turnouts[request.name].append(Turnout(entry.prepared, entry.survivors))
        if isinstance(request, Sum | Vote):
            self.counted[request.name] = np.frombuffer(entry.counted, dtype=np.bool_)
        noisy, exact = np.frombuffer(entry.noisy), np.frombuffer(entry.exact, dtype=np.int64)
        return Total(noisy, exact, entry.survivors, entry.noise_std)

    def _answer(self, request: Request) -> Answer:
        match request:
            case Pool():
                return self._pool()
            case Tokens():
                return self._deal_tokens(request.turn)
            case ZeroSum():
                return self._prepare(self._plan.planned(request.name))
            case Sum() | Vote() | Collect():
                planned = self._plan.planned(request.name)
                turn = len(self.turnouts[request.name])
                if turn >= planned.count:
                    raise RuntimeError(f"The method asks for {request.name!r} more often than it planned.")
                # What every party does for itself, before it looks at its records.
                self._method.check(request, turn)
                return self._collect(request, planned) if isinstance(request, Collect) else self._sum(request, planned)

    def _sum(self, request: Sum | Vote, planned: PlannedSum) -> Total:
        """A secure sum of contributions, each with its share of the noise; or only the winners of a vote."""
        root, total_noise = self._secrets.key(), SecretStream(self._secrets.key())
        turn = len(self.turnouts[request.name])
        protocol = self._plan.protocol(planned, SecretStream(self._secrets.key()), turn)

        def vectors(indices: Integers, block: Block, parties: list[Party]) -> list[Words]:
            noisy, exact = self._encoded(request, planned, block, indices, root)
            if not protocol.reveals_contributions:
                for row, index, party in zip(noisy, indices.tolist(), parties, strict=True):
                    secrets = _secrets_of(root, index, "noise")
                    row += _share(planned.schedule, planned.dimension, party.seeds, secrets)
            return _rows(noisy, exact)

        with _Exchange(protocol, self._federation.parties, root, self._report, self._processes) as exchange:
            coordinator = exchange.run(self._blocks(planned), vectors, self._vanishing, "training, noising and summing")
            self.counted[request.name] = coordinator.survivors().copy()
            sent = int(self.counted[request.name].sum())
            if isinstance(request, Vote):
                return self._won(request, planned, coordinator, sent, exchange)
            words = coordinator.total()
            if protocol.reveals_contributions:
                variance = planned.noise.total(Turnout(sent, sent))
                words[: planned.dimension] += sample(variance**0.5, planned.dimension, total_noise).view(np.uint64)
            else:
                words[: planned.dimension] -= exchange.opened_noise(planned, coordinator, sent)
        return self._total(request.name, planned, words, Turnout(sent, sent), exchange)

    def _won(
        self, request: Vote, planned: PlannedSum, coordinator: Coordinator, sent: int, exchange: _Exchange
    ) -> Total:
        if not isinstance(coordinator, TallyCoordinator):
            raise RuntimeError("A vote needs talliers.")
        self.turnouts[request.name].append(Turnout(sent, sent))
        self._count(exchange)
        return Total(np.empty(0), coordinator.winners(), sent, planned.total_std(sent))

    def _prepare(self, planned: PlannedSum) -> Total:
        """The secure sum of the noise that parties have in common, for all turns: no data takes part."""
        root = self._secrets.key()
        protocol = self._plan.preparation(planned, SecretStream(self._secrets.key()))
        deviation = _correlated(planned).common ** 0.5

        def vectors(indices: Integers, block: None, parties: list[Party]) -> list[Words]:
            turns = range(planned.count)
            return [
                np.concatenate([_common_noise(root, index, turn, deviation, planned.dimension) for turn in turns])
                for index in indices.tolist()
            ]

        everyone = np.arange(self._federation.parties)
        most = max(1, _BLOCK_BYTES // (8 * planned.dimension * planned.count))
        blocks = ((everyone[start : start + most], None) for start in range(0, len(everyone), most))
        # Half of those who vanish do so here; the others between this noise and their message.
        vanishing = self._vanishing[: len(self._vanishing) // 2]
        with _Exchange(protocol, self._federation.parties, root, self._report) as exchange:
            coordinator = exchange.run(blocks, vectors, vanishing, "summing the common noise")
            prepared, total = coordinator.survivors().copy(), coordinator.total()
        self._common[planned.name] = _Common(root, prepared, total)
        self._count(exchange)
        return Total(np.empty(0), np.empty(0, dtype=np.int64), int(prepared.sum()), 0.0)

    def _collect(self, request: Collect, planned: PlannedSum) -> Total:
        """Messages in the open; the sum of the common noise is taken away."""
        root, turn = self._secrets.key(), len(self.turnouts[request.name])
        protocol = self._plan.collection(planned, SecretStream(self._secrets.key()), turn, request.only)
        common = self._common.get(request.name)
        own, shared = _deviations(planned)

        def vectors(indices: Integers, block: Block, parties: list[Party]) -> list[Words]:
            noisy, exact = self._encoded(request, planned, block, indices, root)
            for row, index in zip(noisy, indices.tolist(), strict=True):
                if own > 0.0:
                    row += sample(own, planned.dimension, _secrets_of(root, index, "noise")).view(np.uint64)
                if common is not None:
                    row += _common_noise(common.root, index, turn, shared, planned.dimension)
            return _rows(noisy, exact)

        with _Exchange(protocol, self._federation.parties, root, self._report) as exchange:
            absent = set() if common is None else set(np.flatnonzero(~common.prepared).tolist())
            if request.only is not None:
                absent = set(range(self._federation.parties)) - {request.only}
            silent = [] if request.only is not None else self._vanishing
            what = "computing and collecting messages"
            coordinator = exchange.run(self._blocks(planned), vectors, silent, what, absent)
            words, sent = coordinator.total(), int(coordinator.survivors().sum())
        prepared = sent
        if common is not None:
            words[: planned.dimension] -= common.total[turn * planned.dimension : (turn + 1) * planned.dimension]
            prepared = int(common.prepared.sum())
        return self._total(request.name, planned, words, Turnout(prepared, sent), exchange)

    def _deal_tokens(self, turn: int) -> Total:
        """A token for each record in one list, shuffled by every party in turn."""
        root, counts = self._secrets.key(), self._federation.counts()
        label = f"{self._plan.study.digest()}/tokens/{turn}"
        protocol = TokenProtocol(label, counts.tolist(), SecretStream(self._secrets.key()))
        coordinator = protocol.coordinator()
        post = _Post({COORDINATOR: coordinator})
        parties = {index: protocol.party(index, _secrets_of(root, index, "tokens")) for index in range(len(counts))}
        post.endpoints.update({address_of(index): party for index, party in parties.items()})
        for index, party in parties.items():
            self._report("shuffling tokens", index)
            post.send(party.step(b""), address_of(index))
        self._dealt = {
            index: Dealt(party.positions(), len(party.all_tokens()), party.seed()) for index, party in parties.items()
        }
        self.bytes, self.largest = self.bytes + post.bytes, self.largest + post.largest_party()
        return Total(np.empty(0), np.empty(0, dtype=np.int64), len(counts), 0.0)

    def _pool(self) -> Block:
        """The records of all parties that did not vanish, as those of one."""
        gone, parts = set(self._vanishing), []
        for indices, block in self._federation.blocks():
            for index, features, labels, count in zip(
                indices.tolist(), block.features, block.labels, block.counts, strict=True
            ):
                if index not in gone:
                    parts.append((features[:count], labels[:count]))
        if len(parts) < max(self._plan.trust.least_survivors, 1):
            raise Aborted(
                f"only {len(parts)} of {self._federation.parties} parties gave their records and the study asks for "
                f"at least {self._plan.trust.least_survivors}; nothing was revealed. Run it again, or agree on more."
            )
        if (records := sum(len(labels) for _, labels in parts)) > MOST_POOLED:
            raise Aborted(f"there are {records:,} records, but a curator adds up {MOST_POOLED:,} at most; have fewer.")
        features, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self.turnouts["records"].append(Turnout(len(parts), len(parts)))
        self.bytes += features.nbytes + labels.nbytes
        self.largest = max(self.largest, *(part[0].nbytes + part[1].nbytes for part in parts))
        return Block(features[None], labels[None], np.array([len(labels)]))

    def _encoded(
        self, request: PartyRequest, planned: PlannedSum, block: Block, indices: Integers, root: bytes
    ) -> tuple[Words, Words]:
        """What the block's parties contribute, as words without noise."""
        privates = [Private(_secrets_of(root, index, "sampling"), self._dealt.get(index)) for index in indices.tolist()]
        contribution = self._method.contribute(request, block, privates)
        return planned.encoding.encode(contribution.noisy), contribution.exact.astype(np.int64).view(np.uint64)

    def _blocks(self, planned: PlannedSum) -> Iterator[tuple[Integers, Block]]:
        return self._federation.blocks(min(BLOCK_PARTIES, max(1, _BLOCK_BYTES // (8 * planned.length))))

    def _total(self, name: str, planned: PlannedSum, words: Words, turnout: Turnout, exchange: _Exchange) -> Total:
        self.turnouts[name].append(turnout)
        self._count(exchange)
        noisy, exact = words[: planned.dimension], words[planned.dimension :]
        deviation = planned.total_std(turnout.sent, turnout.prepared)
        return Total(planned.encoding.decode(noisy), planned.encoding.centered(exact), turnout.sent, deviation)

    def _count(self, exchange: _Exchange) -> None:
        self.bytes += exchange.post.bytes
        self.largest += exchange.post.largest_party()

    def _report(self, what: str, done: int) -> None:
        if self._progress:
            self._progress(what, done, self._federation.parties)


class _Exchange:
    """One run of a protocol over all parties, their vectors made a block at a time."""

    def __init__(
        self,
        protocol: Protocol,
        parties: int,
        root: bytes,
        report: Callable[[str, int], None],
        processes: bool = False,
    ) -> None:
        self._protocol, self._count, self._root, self._report = protocol, parties, root, report
        self._processes = processes
        self._coordinator = protocol.coordinator()
        self.post = _Post({COORDINATOR: self._coordinator})
        self._parties: dict[int, Party] = {}
        self._early: set[int] = set()
        self._late: set[int] = set()
        self._absent: set[int] = set()

    def __enter__(self) -> _Exchange:
        with ExitStack() as stack:
            if self._processes and isinstance(self._protocol, Tally):
                self.post.endpoints.update(stack.enter_context(separate(self._protocol)))
            else:
                self.post.endpoints.update(self._protocol.helpers())
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

        for indices, messages in _in_order(blocks, prepare, self._pool):
            for index, envelopes in zip(indices.tolist(), messages, strict=True):
                self.post.send(envelopes[:-1] if index in self._late else envelopes, address_of(index))
            self.post.send(self._coordinator.settle())
            done += len(indices)
            self._report(what, done)
        self.post.send(self._coordinator.finish())
        return self._coordinator

    def opened_noise(self, planned: PlannedSum, coordinator: Coordinator, survivors: int) -> Words:
        """The noise that proved unneeded, from the seeds that were opened."""
        schedule, total = planned.schedule, np.zeros(planned.dimension, dtype=np.uint64)
        numbers = schedule.opened(survivors)

        def excess(seeds: list[bytes]) -> Words:
            noise = np.zeros(planned.dimension, dtype=np.int64)
            for number, seed in zip(numbers, seeds, strict=True):
                noise += sample(schedule.components[number] ** 0.5, planned.dimension, SecretStream(seed))
            return noise.view(np.uint64)

        for noise in self._pool.map(excess, coordinator.opened().values()) if numbers else ():
            total += noise
        return total

    def _set_up(self) -> None:
        """Keys and shares, for protocols that need them: a few kilobytes a party, kept to the end."""
        for index in range(self._count):
            self._parties[index] = self._protocol.party(index, _secrets_of(self._root, index, "keys"))
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
            self._parties.get(index) or self._protocol.party(index, _secrets_of(self._root, index, "keys"))
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


def _rows(noisy: Words, exact: Words) -> list[Words]:
    """Each party's vector: what carries noise, then what does not."""
    return list(np.concatenate([noisy, exact], axis=1) if exact.size else noisy)


def _share(schedule: NoiseSchedule, count: int, seeds: list[bytes], secrets: SecretStream) -> Words:
    """A party's whole share of the noise: the base from its own secrets, each component from its seed."""
    noise = sample(schedule.base**0.5, count, secrets)
    # A party whose setup never ended has no seeds, and sends nothing.
    for variance, seed in zip(schedule.components, seeds, strict=False):
        noise += sample(variance**0.5, count, SecretStream(seed))
    return noise.view(np.uint64)


def _common_noise(root: bytes, party: int, turn: int, deviation: float, count: int) -> Words:
    """What a party drew for one turn of the noise whose sum is known: the same whenever it is asked for."""
    return sample(deviation, count, _secrets_of(root, party, f"common/{turn}")).view(np.uint64)


def _correlated(planned: PlannedSum) -> Correlated:
    if not isinstance(planned.noise, Correlated):
        raise RuntimeError(f"The messages {planned.name!r} were not planned with correlated noise.")
    return planned.noise


def _deviations(planned: PlannedSum) -> tuple[float, float]:
    """Of a message's own noise, and of the noise that its sender has in common with others."""
    if isinstance(planned.noise, Inside):
        return 0.0, 0.0
    if isinstance(planned.noise, Independent):
        return planned.noise.own**0.5, 0.0
    return _correlated(planned).own ** 0.5, _correlated(planned).common ** 0.5


def _secrets_of(root: bytes, index: int, purpose: str) -> SecretStream:
    """A party's own secret randomness: the same for each protocol if a test injects the root."""
    return SecretStream(hashlib.sha256(root + f"{purpose}/{index}".encode()).digest())


def _in_order(
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
