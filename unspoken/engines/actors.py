"""One role for each participant, one message at a time: how a study runs when nobody shares anything but bytes.

The reference for engines that put roles on different machines: what these add is transport and clocks. For large
simulations `engines.local` is faster; both make the same totals of the same secrets.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from datetime import UTC, datetime

import numpy as np

from unspoken.data.block import Block
from unspoken.data.federation import Federation
from unspoken.engines.outcome import Outcome, Progress
from unspoken.methods.base import Collect, Method, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.plan import Plan
from unspoken.noise.stream import SecretStream
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.helper import Helper
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore, Store
from unspoken.summation.base import COORDINATOR, Envelope, address_of
from unspoken.summation.simulated_keys import SimulatedKeys

_STEPS = 1 << 24
"""More messages than any study has that fits into one process: a loop that does not end is an error."""


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
    began, started = datetime.now(UTC), time.perf_counter()
    vanishing = [int(party) for party in np.random.default_rng(seed).permutation(federation.parties)[:drop]]
    actors = Actors(method, plan, federation, secrets or SecretStream())
    actors.run(vanishing, progress)
    coordinator = actors.coordinator
    if coordinator.release is None:
        raise RuntimeError("The coordinator ended without a release.")
    seconds, largest = time.perf_counter() - started, max(actors.sent.values(), default=0)
    totals = coordinator.totals
    there, moved = dict(totals.participation), actors.bytes
    return Outcome(coordinator.release, there, began, seconds, moved, largest, totals.counted)


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

    def party(self, index: int) -> Party:
        """A party as its store has it: anew after a crash."""
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
        """A helper as its store has it."""
        index = self._plan.helper_addresses.index(address)
        return Helper(self._plan, index, self._keys.helper(index), self._keys.roster, store=self.stores[address])

    def run(self, vanishing: list[int], progress: Progress | None = None) -> None:
        """Deliver messages until there are none, close the stage, and so on to the end."""
        gone, asked = Vanishing(vanishing), None
        envelopes = self.coordinator.start()
        while self.coordinator.stage != "done":
            if asked is not self.coordinator.request:
                asked = self.coordinator.request
                gone.begin(self.coordinator)
            self.deliver(envelopes, gone)
            if progress:
                progress(self.coordinator.stage, len(self.parties), len(self.parties))
            envelopes = self.coordinator.close_stage()

    def deliver(self, envelopes: list[Envelope], gone: Vanishing) -> None:
        """Deliver the envelopes, and whatever they give rise to."""
        waiting = deque((COORDINATOR, envelope) for envelope in envelopes)
        for _ in range(_STEPS):
            if not waiting:
                return
            sender, (to, body) = waiting.popleft()
            self.bytes += len(body)
            if sender.startswith("party:"):
                self.sent[sender] += len(body)
            waiting.extend((to, answer) for answer in self.step(to, body, gone))
        raise RuntimeError("There is no end of messages.")

    def step(self, to: str, body: bytes, gone: Vanishing) -> list[Envelope]:
        """One participant takes one message."""
        if to == COORDINATOR:
            return self.coordinator.receive(body)
        if to in self.helpers:
            return self.helpers[to].receive(body)
        if gone.is_gone(to):
            return []
        party = self.parties[to]
        return gone.sent(to, party.receive(body), party.has_sent)


class _Attempts:
    """The secrets of each attempt, drawn when it is opened: in the same order as by `engines.local`."""

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
    """Who vanishes, and when: half of them in the setup, if there is one, the others while they send their vectors.

    Of noise that is prepared half of them see the end. They are all back for the next request, and vanish again.
    """

    def __init__(self, parties: list[int]) -> None:
        self._parties = parties
        self._early: set[str] = set()
        self._late: set[str] = set()
        self._gone: set[str] = set()

    def begin(self, coordinator: Coordinator) -> None:
        """A new attempt."""
        match coordinator.request:
            case Tokens():
                parties = []
            case ZeroSum():
                parties = self._parties[: len(self._parties) // 2]
            case Collect(only=only) if only is not None:
                parties = []
            case _:
                parties = self._parties
        early = len(parties) // 2 if coordinator.setup_stages else 0
        self._early = {address_of(party) for party in parties[:early]}
        self._late = {address_of(party) for party in parties[early:]}
        self._gone = set()

    def sent(self, sender: str, envelopes: list[Envelope], has_vector: bool) -> list[Envelope]:
        """What really leaves."""
        if sender in self._early:
            self._gone.add(sender)
        elif sender in self._late and has_vector:
            self._gone.add(sender)
            return envelopes[:-1]
        return envelopes

    def is_gone(self, address: str) -> bool:
        return address in self._gone


def _apart(federation: Federation) -> list[tuple[int, Block]]:
    """Each party's records, as a block of its own."""
    found = []
    for indices, block in federation.blocks():
        for row, index in enumerate(indices.tolist()):
            count = int(block.counts[row])
            features, labels = block.features[row : row + 1, :count], block.labels[row : row + 1, :count]
            found.append((index, Block(features, labels, block.counts[row : row + 1])))
    return found
