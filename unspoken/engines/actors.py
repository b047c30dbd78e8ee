"""An engine in one process with a role object for each participant. It delivers one message at a time, and the roles
share nothing but bytes.

It is the reference for the engines that put roles on different machines, which add transport and clocks.
`engines.local` is faster for large simulations; from the same secrets both give the same totals.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import suppress
from datetime import UTC, datetime

from unspoken.data.block import Block
from unspoken.data.federation import Federation
from unspoken.engines.conditions import USUAL, Conditions, Progress, early_and_late, vanishing_at
from unspoken.engines.outcome import Outcome
from unspoken.methods.base import Method, Request, Sum, Vote
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.helper import Helper
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore, Store
from unspoken.summation.addresses import is_party
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, address_of
from unspoken.summation.simulated_keys import SimulatedKeys

_ENGINE = "actors: a role for each participant, all in one process"
_STEPS = 1 << 24
"""A bound on the messages of one stage, above that of any study that fits into one process"""


def run(method: Method, plan: Plan, federation: Federation, conditions: Conditions = USUAL) -> Outcome:
    """Run a method on a federation. It keeps no journal: roles have stores of their own."""
    if conditions.journal is not None:
        raise TypeError("Expected no journal for an engine whose roles have stores of their own.")
    federation.check_map(method.directions)
    began, started = datetime.now(UTC), time.perf_counter()
    actors = Actors(method, plan, federation, conditions.secrets or SecretStream())
    actors.run(conditions.vanishing(federation.parties), conditions.progress)
    moved = actors.bytes, max(actors.sent.values(), default=0)
    return Outcome.of(actors.coordinator, _ENGINE, began, time.perf_counter() - started, moved)


class Actors:
    """All participants of a study, each with its own keys, records and store."""

    def __init__(self, method: Method, plan: Plan, federation: Federation, secrets: SecretStream) -> None:
        self._attempts = _Attempts(secrets)
        self._keys = keys = SimulatedKeys(SecretStream(), plan.trust.parties, len(plan.helper_addresses))
        self.coordinator = Coordinator(
            method, keys.coordinator, keys.roster, plan=plan, noise_of=self._attempts.noise_of
        )
        self._method, self._plan = method, plan
        self._records = dict(_apart(federation))
        self.stores: dict[str, Store] = {
            address: MemoryStore() for address in [*map(address_of, self._records), *plan.helper_addresses]
        }
        self.parties = {address_of(index): self.party(index) for index in self._records}
        self.helpers = {address: self.helper(address) for address in plan.helper_addresses}
        self.bytes, self.sent = 0, Counter[str]()
        self._waiting: deque[tuple[str, Envelope]] = deque()
        """Messages on their way, with their senders"""

    def party(self, index: int) -> Party:
        """A party in the state of its store, as after a crash."""
        return Party(
            self._method,
            self._records[index],
            self._keys.identity(index),
            self._keys.roster,
            plan=self._plan,
            store=self.stores[address_of(index)],
            root_of=self._attempts.root_of,
        )

    def helper(self, address: str) -> Helper:
        """A helper in the state of its store."""
        index = self._plan.helper_addresses.index(address)
        return Helper(self._plan, index, self._keys.helper(index), self._keys.roster, store=self.stores[address])

    def run(self, vanishing: list[int], progress: Progress | None = None) -> None:
        """Run stage after stage to the end: deliver messages until the stage is complete or none is left, then close
        it."""
        gone, attempt = Vanishing(vanishing), b""
        self.send(self.coordinator.start())
        while self.coordinator.stage != "done":
            if attempt != self.coordinator.attempt:
                attempt = self.coordinator.attempt
                gone.begin(self.coordinator)
            try:
                self.deliver(gone)
                if progress:
                    progress(self.coordinator.stage, len(self.parties), len(self.parties))
                self.send(self.coordinator.close_stage())
            except Aborted as ended:
                self._retry(ended, gone)
        self.deliver(gone)

    def _retry(self, ended: Aborted, gone: Vanishing) -> None:
        """Another attempt, if there is one; otherwise everyone is told that it is over."""
        self._waiting.clear()
        try:
            self.send(self.coordinator.retry(ended))
        except Aborted:
            self.send(self.coordinator.end())
            self.deliver(gone)
            raise

    def send(self, envelopes: list[Envelope], sender: str = COORDINATOR) -> None:
        """Put envelopes on their way."""
        self._waiting.extend((sender, envelope) for envelope in envelopes)

    def deliver(self, gone: Vanishing) -> None:
        """Deliver what is on its way, and the answers to it, until the stage is complete or nothing is left.

        A message that its receiver rejects has no effect, as on a network; the stage then ends without an answer to it.
        """
        for _ in range(_STEPS):
            if not self._waiting or self.coordinator.complete:
                return
            sender, (to, body) = self._waiting.popleft()
            self.bytes += len(body)
            if is_party(sender):
                self.sent[sender] += len(body)
            with suppress(Rejected):
                self.send(self.step(to, body, gone, sender), to)
            if to != COORDINATOR:
                with suppress(Rejected):
                    self.coordinator.passed(sender, to, body)
        raise RuntimeError("There is no end of messages.")

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        """One participant takes one message."""
        if to == COORDINATOR:
            return self.coordinator.receive(body, sender)
        if to in self.helpers:
            return self.helpers[to].receive(body)
        if gone.is_gone(to):
            return []
        party = self.parties[to]
        return gone.sent(to, party.receive(body), party.has_sent)


class _Attempts:
    """The secrets of each attempt, drawn when it is opened, in the same order as `engines.local` draws them."""

    def __init__(self, secrets: SecretStream) -> None:
        self._secrets = secrets
        self._roots: dict[bytes, bytes] = {}

    def noise_of(self, attempt: bytes, request: Request) -> SecretStream:
        self._roots[attempt] = self._secrets.key()
        noise = SecretStream(self._secrets.key() if isinstance(request, Sum | Vote) else None)
        self._secrets.key()
        return noise

    def root_of(self, attempt: bytes) -> bytes:
        return self._roots[attempt]


class Vanishing:
    """The parties that vanish, in an attempt's setup or with their vectors. For the next attempt all are back."""

    def __init__(self, parties: list[int]) -> None:
        self._parties = parties
        self._early: set[str] = set()
        self._late: set[str] = set()
        self._gone: set[str] = set()

    def begin(self, coordinator: Coordinator) -> None:
        """Choose who vanishes in a new attempt, and when."""
        vanishing = vanishing_at(coordinator.plan, coordinator.request, self._parties)
        self._early, self._late = (
            set(map(address_of, parties)) for parties in early_and_late(vanishing, coordinator.setup_stages)
        )
        self._gone = set()

    def sent(self, sender: str, envelopes: list[Envelope], has_vector: bool) -> list[Envelope]:
        """The envelopes that really leave; the last one of a vector is lost with its sender."""
        if sender in self._early:
            self._gone.add(sender)
        elif sender in self._late and has_vector:
            self._gone.add(sender)
            return envelopes[:-1]
        return envelopes

    def is_gone(self, address: str) -> bool:
        return address in self._gone


def _apart(federation: Federation) -> list[tuple[int, Block]]:
    """Each party's index, and its records as a block of its own."""
    found = []
    for indices, block in federation.blocks():
        for row, index in enumerate(indices.tolist()):
            count = int(block.counts[row])
            features, labels = block.features[row : row + 1, :count], block.labels[row : row + 1, :count]
            found.append((index, Block(features, labels, block.counts[row : row + 1])))
    return found
