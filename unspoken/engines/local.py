"""All parties in one process, a block at a time: for simulation, for tests, and for the demo.

Every message is made, moved and read as bytes, exactly as over a network. What a party does is written in
`roles.contributor`, what the coordinator makes of it in `roles.totals`. Memory does not grow with the number of
parties: a block of them is trained, noised, masked and folded into the running sum, then forgotten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from unspoken.arithmetic import MOST_POOLED
from unspoken.data.block import Block
from unspoken.data.federation import BLOCK_PARTIES, Federation
from unspoken.engines.exchange import Exchange, Post
from unspoken.engines.journal import Entry, Journal, fingerprint
from unspoken.engines.outcome import Outcome, Progress
from unspoken.methods.base import (
    Answer,
    Collect,
    Method,
    PartyRequest,
    Pool,
    Request,
    Sum,
    TokenPositions,
    Tokens,
    Total,
    Vote,
    ZeroSum,
    release_of,
)
from unspoken.methods.mechanisms import Participation
from unspoken.methods.plan import Plan
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import protocol_for
from unspoken.roles.contributor import Contributor
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.totals import CommonNoise, Totals, nothing
from unspoken.summation.base import ATTEMPT_BYTES, COORDINATOR, Aborted, Party, Protocol, address_of
from unspoken.summation.simulated_keys import SimulatedEndpoints, SimulatedKeys
from unspoken.types import Integers, Words

_BLOCK_BYTES = 64 << 20
"""How much memory the contributions of one block may take (unless a single party's needs more)."""


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
    running = _Run(method, plan, federation, vanishing, progress, processes)
    answer = _Remembered(running, journal, secrets or SecretStream()).answer
    conversation = method.coordinate(plan)
    try:
        request = next(conversation)
        while True:
            request = conversation.send(answer(request))
    except StopIteration as end:
        release = release_of(method, end)
    there, counted = dict(running.totals.participation), running.totals.counted
    return Outcome(release, there, began, time.perf_counter() - started, running.bytes, running.largest, counted)


class _Run:
    """Answers the requests of one run of a method, and remembers what lasts from one to the next."""

    def __init__(
        self,
        method: Method,
        plan: Plan,
        federation: Federation,
        vanishing: list[int],
        progress: Progress | None,
        processes: bool,
    ) -> None:
        self._plan, self._federation, self._processes = plan, federation, processes
        self._vanishing, self._progress = vanishing, progress
        self._contributor = Contributor(method, plan)
        self.totals = Totals(plan)
        self.prepared: dict[str, bytes] = {}
        """The root of the noise that parties have in common, by the name of the messages that it is for."""
        self._positions: dict[int, TokenPositions] = {}
        self.bytes = self.largest = 0

    @property
    def parties(self) -> int:
        return self._federation.parties

    def answer(self, request: Request, secrets: SecretStream) -> Answer:
        match request:
            case Pool():
                return self._pool()
            case Tokens():
                return self._shuffle(request.turn, secrets)
            case ZeroSum():
                return self._prepare(request, secrets)
            case Sum() | Vote():
                # What every party does for itself, before it looks at its records.
                self._contributor.check(request, self.totals.turn(request.name))
                return self._sum(request, secrets)
            case Collect():
                self._contributor.check(request, self.totals.turn(request.name))
                return self._collect(request, secrets)
            case _:
                raise TypeError(f"Expected coordinate to yield a request, got {request!r}.")

    def _sum(self, request: Sum | Vote, secrets: SecretStream) -> Total:
        """A secure sum of contributions, each with its share of the noise; or only the winners of a vote."""
        root, noise, keys = secrets.key(), SecretStream(secrets.key()), SecretStream(secrets.key())
        protocol = self._protocol(request)
        clear = protocol.reveals_contributions

        def vectors(indices: Integers, block: Block, parties: list[Party]) -> list[Words]:
            seeds = [party.seeds for party in parties]
            return self._vectors(request, block, indices, root, None if clear else seeds)

        with Exchange(SimulatedEndpoints(protocol, keys), root, self._report, self._processes) as exchange:
            blocks = self._blocks(request.name)
            coordinator = exchange.run(blocks, vectors, self._vanishing, "training, noising and summing")
            self._count(exchange.post)
            if isinstance(request, Vote):
                return self.totals.voted(request, coordinator)
            return self.totals.summed(request, coordinator, noise if clear else None, exchange.parallel)

    def _prepare(self, request: ZeroSum, secrets: SecretStream) -> Total:
        """The secure sum of the noise that parties have in common, for all turns: no data takes part."""
        root, keys = secrets.key(), SecretStream(secrets.key())
        protocol = self._protocol(request)

        def vectors(indices: Integers, block: None, parties: list[Party]) -> list[Words]:
            everyone = [PartySecrets(root, index) for index in indices.tolist()]
            return [self._contributor.common_noise(request.name, party) for party in everyone]

        everyone, most = np.arange(self.parties), max(1, _BLOCK_BYTES // (8 * protocol.session.length))
        blocks = ((everyone[start : start + most], None) for start in range(0, self.parties, most))
        # Half of those who vanish do so here; the others between this noise and their message.
        vanishing = self._vanishing[: len(self._vanishing) // 2]
        with Exchange(SimulatedEndpoints(protocol, keys), root, self._report) as exchange:
            coordinator = exchange.run(blocks, vectors, vanishing, "summing the common noise")
            self._count(exchange.post)
        self.prepared[request.name] = root
        return self.totals.prepared(request, coordinator)

    def _collect(self, request: Collect, secrets: SecretStream) -> Total:
        """Messages in the open."""
        root, keys = secrets.key(), SecretStream(secrets.key())

        def vectors(indices: Integers, block: Block, parties: list[Party]) -> list[Words]:
            return self._vectors(request, block, indices, root, [()] * len(indices))

        common = self.totals.common.get(request.name)
        absent = set() if common is None else set(np.flatnonzero(~common.prepared).tolist())
        if request.only is not None:
            absent = set(range(self.parties)) - {request.only}
        silent = [] if request.only is not None else self._vanishing
        with Exchange(SimulatedEndpoints(self._protocol(request), keys), root, self._report) as exchange:
            what = "computing and collecting messages"
            coordinator = exchange.run(self._blocks(request.name), vectors, silent, what, absent)
            self._count(exchange.post)
        return self.totals.collected(request, coordinator)

    def _vectors(
        self,
        request: PartyRequest,
        block: Block,
        indices: Integers,
        root: bytes,
        seeds: list[list[bytes]] | list[tuple[()]] | None,
    ) -> list[Words]:
        """What the block's parties send, each by its own secrets. Without seeds no noise is added."""
        parties = [PartySecrets(root, index) for index in indices.tolist()]
        contexts = [party.context(self._positions.get(party.index)) for party in parties]
        if seeds is None:
            return self._contributor.vectors(request, block, contexts, None)
        prepared = self.prepared.get(request.name)
        sources = [
            party.noise(own, None if prepared is None else PartySecrets(prepared, party.index).common(request.turn))
            for party, own in zip(parties, seeds, strict=True)
        ]
        return self._contributor.vectors(request, block, contexts, sources)

    def _shuffle(self, turn: int, secrets: SecretStream) -> Total:
        """A token for each record in one list, shuffled by every party in turn."""
        root, counts = secrets.key(), self._federation.counts()
        keys = SimulatedKeys(SecretStream(secrets.key()), len(counts))
        protocol = self._plan.shuffle(turn, os.urandom(ATTEMPT_BYTES)).with_roster(keys.roster)
        post = Post({COORDINATOR: protocol.coordinator(keys.coordinator, keys.coordinator_secrets())})
        parties = {
            index: protocol.party(index, keys.identity(index), PartySecrets(root, index).stream("tokens"), count)
            for index, count in enumerate(counts.tolist())
        }
        post.endpoints.update({address_of(index): party for index, party in parties.items()})
        for index, party in parties.items():
            self._report("shuffling tokens", index)
            post.send(party.step(b""), address_of(index))
        self._positions = {
            index: TokenPositions(party.positions(), len(party.all_tokens()), party.seed())
            for index, party in parties.items()
        }
        self._count(post)
        return nothing(len(counts))

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
                f"only {len(parts)} of {self.parties} parties gave their records and the study asks for "
                f"at least {self._plan.trust.least_survivors}; nothing was revealed. Run it again, or agree on more."
            )
        if (records := sum(len(labels) for _, labels in parts)) > MOST_POOLED:
            raise Aborted(f"there are {records:,} records, but a curator adds up {MOST_POOLED:,} at most; have fewer.")
        features, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self.totals.participation["records"].append(Participation(len(parts), len(parts)))
        self.bytes += features.nbytes + labels.nbytes
        self.largest = max(self.largest, *(part[0].nbytes + part[1].nbytes for part in parts))
        return Block(features[None], labels[None], np.array([len(labels)]))

    def _protocol(self, request: PartyRequest | ZeroSum) -> Protocol:
        """The protocol for a new attempt at the request."""
        return protocol_for(self._plan, request, self.totals.turn(request.name), os.urandom(ATTEMPT_BYTES))

    def _blocks(self, name: str) -> Iterator[tuple[Integers, Block]]:
        return self._federation.blocks(
            min(BLOCK_PARTIES, max(1, _BLOCK_BYTES // (8 * self._plan.planned(name).length)))
        )

    def _count(self, post: Post) -> None:
        self.bytes += post.bytes
        self.largest += post.largest_party()

    def _report(self, what: str, done: int) -> None:
        if self._progress:
            self._progress(what, done, self.parties)


class _Remembered:
    """Answers a request, or says again what the journal knows of it."""

    def __init__(self, run: _Run, journal: Journal | None, secrets: SecretStream) -> None:
        self._run, self._journal, self._secrets, self._number = run, journal, secrets, 0

    def answer(self, request: Request) -> Answer:
        if self._journal is None or isinstance(request, Pool):
            return self._run.answer(request, self._secrets)
        number, asked = self._number, fingerprint(request)
        self._number += 1
        if entry := self._journal.entry(number, asked):
            return self._recall(request, entry)
        if isinstance(request, Tokens) and self._journal.is_over(number + 1):
            # The round that they were for is over: nothing depends on them any more.
            return nothing(self._run.parties)
        secrets = self._journal.begin(number, asked, self._secrets)
        bytes_before, largest_before = self._run.bytes, self._run.largest
        answer = self._run.answer(request, secrets)
        # The secrets of tokens are needed for the round that follows: a run that goes on deals the same ones again.
        if isinstance(answer, Total) and not isinstance(request, Tokens):
            moved, largest = self._run.bytes - bytes_before, self._run.largest - largest_before
            self._journal.finish(number, self._entry(request, answer, moved, largest))
        return answer

    def _entry(self, request: Request, answer: Total, moved: int, largest: int) -> Entry:
        totals, common, prepared, counted = self._run.totals, None, answer.survivors, b""
        if isinstance(request, ZeroSum):
            made = totals.common[request.name]
            common = (self._run.prepared[request.name], made.prepared.tobytes(), made.total.tobytes())
        elif isinstance(request, Sum | Vote | Collect):
            prepared = totals.participation[request.name][-1].prepared
        if isinstance(request, Sum | Vote):
            counted = totals.counted[request.name].tobytes()
        numbers = (answer.noisy.tobytes(), answer.exact.tobytes(), answer.survivors, answer.noise_std)
        return Entry(*numbers, prepared, moved, largest, common, counted)

    def _recall(self, request: Request, entry: Entry) -> Total:
        run, totals = self._run, self._run.totals
        run.bytes, run.largest = run.bytes + entry.moved, run.largest + entry.largest
        if entry.common is not None and isinstance(request, ZeroSum):
            root, prepared, total = entry.common
            flags, words = np.frombuffer(prepared, dtype=np.bool_), np.frombuffer(total, dtype=np.uint64)
            run.prepared[request.name], totals.common[request.name] = root, CommonNoise(flags, words)
        elif isinstance(request, Sum | Vote | Collect):
            totals.participation[request.name].append(Participation(entry.prepared, entry.survivors))
        if isinstance(request, Sum | Vote):
            totals.counted[request.name] = np.frombuffer(entry.counted, dtype=np.bool_)
        noisy, exact = np.frombuffer(entry.noisy), np.frombuffer(entry.exact, dtype=np.int64)
        return Total(noisy, exact, entry.survivors, entry.noise_std)
