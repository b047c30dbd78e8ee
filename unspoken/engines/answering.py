"""Answers a method's requests in a simulation, whether its parties are simulated by threads here or on a cluster.

Every message is made, moved and read as bytes, exactly as over a network. What a party does is written in
`roles.contributor`, what the coordinator makes of it in `roles.totals`. Memory does not grow with the number of
parties: a block of them is trained, noised, masked and folded into the running sum, then forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from unspoken.arithmetic import MOST_POOLED
from unspoken.data.block import Block
from unspoken.data.federation import Federation
from unspoken.engines.attempt import Attempt, Crowd, Post
from unspoken.engines.conditions import Conditions, vanishing_at
from unspoken.engines.work import Job, Work
from unspoken.errors import UnspokenError
from unspoken.methods.base import (
    Answer,
    Cancel,
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
)
from unspoken.methods.planning import Plan
from unspoken.methods.planning.mechanisms import Participation
from unspoken.noise.stream import SecretStream
from unspoken.roles.attempts import AttemptCounts, given_up
from unspoken.roles.contributor import Contributor
from unspoken.roles.courses import Shuffling
from unspoken.roles.secrets import PartySecrets, common_root
from unspoken.roles.totals import Totals, nothing
from unspoken.summation.base import ATTEMPT_BYTES, COORDINATOR, Aborted, address_of
from unspoken.summation.simulated_keys import SimulatedKeys

Crowds = Callable[[Work], Crowd]
"""Makes the parties and helpers of an attempt"""
_LOSSES = 3
"""How often an attempt is repeated because a helper was lost"""


class HelperLost(UnspokenError):
    """A helper of a simulation was lost with its process and its state. Nobody is to blame. The attempt can be
    repeated: everything is drawn from the same secrets, so every party sends the same vector."""

    exit_status = 3


class Answering:
    """Answers the requests of one run of a method, and remembers what lasts from one to the next."""

    def __init__(
        self, method: Method, plan: Plan, federation: Federation, crowds: Crowds, conditions: Conditions
    ) -> None:
        federation.check_map(method.directions)
        self.method, self.plan = method, plan
        self._federation, self._crowds = federation, crowds
        self._vanishing, self._progress = conditions.vanishing(federation.parties), conditions.progress
        self._contributor = Contributor(method, plan)
        self.totals = Totals(plan)
        self.prepared: dict[str, dict[int, bytes]] = {}
        """The roots of the parties' common noise, by the name of the messages that it is for, and by the turn"""
        self._positions: dict[int, TokenPositions] = {}
        # The same parties vanish in every attempt, so an attempt that failed in its setup would fail again.
        self.attempts = AttemptCounts(plan, free=0)
        self._under_way: Attempt | None = None
        self.bytes = self.largest = 0

    @property
    def parties(self) -> int:
        return self._federation.parties

    def answer(self, request: Request, secrets: SecretStream) -> Answer:
        """The parties' answer to a request, in as many attempts as the plan has."""
        if isinstance(request, Pool):
            return self._pool()
        waiting: list[Request] = [request]
        while True:
            self._under_way = None
            try:
                answer = self._attempt(waiting[0], secrets)
            except Aborted as ended:
                waiting = self._again(waiting[0], ended) + waiting[1:]
                continue
            finally:
                if self._under_way is not None:
                    self._count(self._under_way.post)
            self.attempts.succeeded(waiting.pop(0))
            if not waiting:
                return answer

    def _again(self, request: Request, ended: Aborted) -> list[Request]:
        """The next requests after a failed attempt; raises `Aborted` if the plan has none left."""
        left = self._under_way is not None and self._under_way.left
        try:
            return self.attempts.again(request, left, ended)
        except Aborted:
            raise given_up(self.plan, self.totals.participation, self.attempts, ended) from ended

    def _attempt(self, request: Request, secrets: SecretStream) -> Total:
        root = secrets.key()
        match request:
            case Tokens():
                return self._shuffle(request.turn, root, secrets.key())
            case ZeroSum():
                keys = secrets.key()
                return self._lasting(lambda: self._prepare(request, root, keys))
            case Cancel():
                keys = secrets.key()
                return self._lasting(lambda: self._cancel(request, root, keys))
            case Sum() | Vote():
                # Every party does this for itself, before it looks at its records.
                self._contributor.check(request, self.totals.turn(request.name))
                noise, keys = secrets.key(), secrets.key()
                return self._lasting(lambda: self._sum(request, root, noise, keys))
            case Collect():
                self._contributor.check(request, self.totals.turn(request.name))
                keys = secrets.key()
                return self._lasting(lambda: self._collect(request, root, keys))
            case _:
                raise TypeError(f"Expected coordinate to yield a request, got {request!r}.")

    def _lasting(self, attempt: Callable[[], Total]) -> Total:
        """Make an attempt; if a helper is lost, repeat it from its beginning with the same secrets."""
        for _ in range(_LOSSES):
            with suppress(HelperLost):
                return attempt()
        return attempt()

    def _sum(self, request: Sum | Vote, root: bytes, noise: bytes, keys: bytes) -> Total:
        """A secure sum of contributions, each with its share of the noise; or only the winners of a vote."""
        with self._opened(self._job(request, root, keys)) as (attempt, crowd):
            coordinator = attempt.run("training, noising and summing")
            if isinstance(request, Vote):
                return self.totals.voted(request, coordinator)
            clear = crowd.work.endpoints.protocol.reveals_contributions
            return self.totals.summed(request, coordinator, SecretStream(noise) if clear else None, crowd.added)

    def _prepare(self, request: ZeroSum, root: bytes, keys: bytes) -> Total:
        """The secure sum of the parties' common noise, for all turns. No records are used."""
        with self._opened(self._job(request, root, keys)) as (attempt, _):
            coordinator = attempt.run("summing the common noise")
        turns = range(self.plan.sum_named(request.name).count)
        self.prepared[request.name] = {turn: common_root(root, turn) for turn in turns}
        return self.totals.prepared(request, coordinator)

    def _collect(self, request: Collect, root: bytes, keys: bytes) -> Total:
        """The total of messages that everyone may see."""
        if half := self.is_half(request):
            self.prepared[request.name] = {request.turn: common_root(root, request.turn)}
        common = self.totals.common.get(request.name)
        absent: Iterable[int] = () if common is None else np.flatnonzero(~common.prepared).tolist()
        if request.only is not None:
            absent = set(range(self.parties)) - {request.only}
        with self._opened(self._job(request, root, keys, absent)) as (attempt, _):
            coordinator = attempt.run("computing and collecting messages")
        total = self.totals.collected(request, coordinator)
        if not half:
            self.prepared.get(request.name, {}).pop(request.turn, None)
        return total

    def is_half(self, request: Request) -> bool:
        """Whether a request is for messages whose noise is to be added up next."""
        return isinstance(request, Collect) and self.plan.sum_named(request.name).noise.cancels

    def _cancel(self, request: Cancel, root: bytes, keys: bytes) -> Total:
        """The secure sum of the common noise of a turn's messages, by those who sent one."""
        absent = set(range(self.parties)) - self.totals.senders(request.name)
        with self._opened(self._job(request, root, keys, absent)) as (attempt, _):
            coordinator = attempt.run("summing the noise of the messages")
        total = self.totals.cancelled(request, coordinator)
        del self.prepared[request.name]
        return total

    def _job(
        self, request: PartyRequest | ZeroSum | Cancel, root: bytes, keys: bytes, absent: Iterable[int] = ()
    ) -> Job:
        """A new attempt."""
        common: bytes | None = None
        if not isinstance(request, ZeroSum) and (prepared := self.prepared.get(request.name)) is not None:
            common = prepared[request.turn]
        return Job(
            request,
            self.totals.turn(request.name),
            os.urandom(ATTEMPT_BYTES),
            root,
            keys,
            vanishing=tuple(vanishing_at(self.plan, request, self._vanishing)),
            absent=frozenset(absent),
            common=common,
            positions=self._positions,
        )

    @contextmanager
    def _opened(self, job: Job) -> Iterator[tuple[Attempt, Crowd]]:
        """One attempt, with all who take part in it."""
        with self._crowds(Work(self.method, self.plan, self._federation, job)) as crowd:
            self._under_way = Attempt(crowd, self._report)
            yield self._under_way, crowd

    def _shuffle(self, turn: int, root: bytes, made_of: bytes) -> Total:
        """Make a list with a token for each record, shuffled by every party in turn."""
        counts = self._federation.counts()
        keys = SimulatedKeys(SecretStream(made_of), len(counts))
        protocol = self.plan.shuffle(turn, os.urandom(ATTEMPT_BYTES)).with_roster(keys.roster)
        post = Post({COORDINATOR: protocol.coordinator(keys.coordinator, keys.coordinator_secrets())})
        parties = {
            index: Shuffling(
                protocol.party(index, keys.identity(index), PartySecrets(root, index).stream("tokens"), count)
            )
            for index, count in enumerate(counts.tolist())
        }
        post.endpoints.update({address_of(index): party.endpoint for index, party in parties.items()})
        for index, party in parties.items():
            self._report("shuffling tokens", index)
            post.send(party.step(b""), address_of(index))
        self._positions = {index: found for index, party in parties.items() if (found := party.positions()) is not None}
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
        if len(parts) < max(self.plan.trust.least_survivors, 1):
            raise Aborted(
                f"only {len(parts)} of {self.parties} parties gave their records and the study asks for "
                f"at least {self.plan.trust.least_survivors}, so there is no result; have more of them stay, or agree "
                "on more dropouts"
            )
        if (records := sum(len(labels) for _, labels in parts)) > MOST_POOLED:
            raise Aborted(f"there are {records:,} records, but a curator adds up {MOST_POOLED:,} at most; have fewer")
        features, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self.totals.participation["records"].append(Participation(len(parts), len(parts)))
        self.bytes += features.nbytes + labels.nbytes
        self.largest = max(self.largest, *(part[0].nbytes + part[1].nbytes for part in parts))
        return Block(features[None], labels[None], np.array([len(labels)]))

    def _count(self, post: Post) -> None:
        self.bytes += post.bytes
        self.largest += post.largest_party()

    def _report(self, what: str, done: int) -> None:
        if self._progress:
            self._progress(what, done, self.parties)
