"""Many runs with faults, on a simulated clock: each ends in the exact sum over its survivors or in an abort.

Parties vanish at any time; messages are slow, lost, doubled, overtaken and damaged; the coordinator is stopped and
started again from its dump. Every run has its seed, so that a failure can be replayed. With --soak, thousands of runs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import compute_nodes, pairwise, secagg
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Endpoint,
    Envelope,
    Party,
    Protocol,
    Rejected,
    Session,
    address_of,
)
from unspoken.summation.graph import Degree
from unspoken.summation.simulated_keys import SimulatedEndpoints

STAGE = 10.0
"""The simulated seconds after which the coordinator closes a stage."""


class SparseSecAgg(secagg.SecAgg):
    """SecAgg+ on a sparse graph, of few parties: below what its security asks for, with the same recovery."""

    def _degree(self, session: Session) -> Degree:
        return Degree(6, 4)


MAKERS: dict[str, tuple[int, Callable[[Session], Protocol]]] = {
    "secagg": (500, lambda agreed: secagg.SecAgg(agreed, secagg.Options())),
    "secagg+": (400, lambda agreed: SparseSecAgg(agreed, secagg.Options())),
    "pairwise": (600, lambda agreed: pairwise.Pairwise(agreed, pairwise.Options())),
    "compute-nodes": (
        1000,
        lambda agreed: compute_nodes.ComputeNodes(agreed, compute_nodes.Options(nodes=3, per_party=2)),
    ),
}


@dataclass
class World:
    """One run: its endpoints, its faults and its clock."""

    protocol: SimulatedEndpoints[Protocol]
    rng: np.random.Generator
    faulty: bool
    faults: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        agreed = self.protocol.session
        self.rows = self.rng.integers(0, 2**64, (agreed.parties, agreed.length), dtype=np.uint64)
        self.coordinator = self.protocol.coordinator()
        self.parties: dict[int, Party] = {i: self.protocol.party(i, SecretStream()) for i in range(agreed.parties)}
        self.endpoints: dict[str, Endpoint] = {**self.protocol.helpers(), COORDINATOR: self.coordinator}
        self.endpoints |= {address_of(index): party for index, party in self.parties.items()}
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.serial = 0
        self.gone: dict[str, float] = {}
        vanishing = int(self.rng.choice([0, 0, 1, 1, 2, 3])) if self.faulty else 0
        for index in self.rng.permutation(agreed.parties)[:vanishing]:
            self.gone[address_of(int(index))] = float(self.rng.uniform(0, 5 * STAGE))
            self.faults["party vanished"] += 1

    def at(self, time: float, event: Callable[[float], None]) -> None:
        self.serial += 1
        heapq.heappush(self.events, (time, self.serial, event))

    def post(self, now: float, sender: str, envelopes: list[Envelope]) -> None:
        """Messages on their way, with what may happen to them."""
        if now > self.gone.get(sender, np.inf):
            return
        for envelope in envelopes:
            copies = [envelope.body]
            if self.faulty and self.rng.random() < 0.01:
                self.faults["message lost"] += 1
                copies = []
            if self.faulty and self.rng.random() < 0.05:
                self.faults["message doubled"] += 1
                copies = copies * 2
            if self.faulty and self.rng.random() < 0.04:
                self.faults["message damaged"] += 1
                damaged = bytearray(envelope.body)
                damaged[int(self.rng.integers(0, len(damaged)))] ^= int(self.rng.integers(1, 256))
                copies = [bytes(damaged), *copies]
            for body in copies:
                slow = self.faulty and self.rng.random() < 0.015
                self.faults["message late"] += slow
                delay = self.rng.uniform(STAGE, 3 * STAGE) if slow else self.rng.uniform(0.0, 0.2 * STAGE)
                self.at(now + delay, lambda time, to=envelope.to, body=body: self.deliver(time, to, body))

    def deliver(self, now: float, to: str, body: bytes) -> None:
        if now > self.gone.get(to, np.inf):
            return
        try:
            answers = self.endpoints[to].step(body)
        except Rejected:
            self.faults["message rejected"] += 1
        except Aborted:
            if to == COORDINATOR:
                raise
            self.faults["party gave up"] += 1
            self.gone[to] = now
        else:
            self.post(now, to, answers)

    def restart(self, now: float) -> None:
        """A new coordinator process goes on from what the old one had written down."""
        self.faults["coordinator restarted"] += 1
        fresh = self.protocol.coordinator()
        fresh.load(self.coordinator.dump())
        self.endpoints[COORDINATOR] = self.coordinator = fresh

    def restart_party(self, now: float) -> None:
        self.faults["party restarted"] += 1
        index = int(self.rng.integers(0, len(self.parties)))
        fresh = self.protocol.party(index, SecretStream())
        fresh.load(self.parties[index].dump())
        self.endpoints[address_of(index)] = self.parties[index] = fresh

    def submit(self, now: float) -> None:
        for index, party in self.parties.items():
            if party.ready and now <= self.gone.get(address_of(index), np.inf):
                self.post(now, address_of(index), party.submit(self.rows[index]))

    def run(self) -> np.ndarray:
        for index, party in self.parties.items():
            self.at(0.0, lambda now, index=index, party=party: self.post(now, address_of(index), party.step(b"")))
        stages = self.coordinator.setup_stages
        for stage in range(stages):
            self.at(STAGE * (stage + 1), lambda now: self.post(now, COORDINATOR, self.coordinator.advance()))
        self.at(STAGE * (stages + 0.5), self.submit)
        self.at(STAGE * (stages + 0.8), lambda now: self.post(now, COORDINATOR, self.coordinator.settle()))
        self.at(STAGE * (stages + 2), lambda now: self.post(now, COORDINATOR, self.coordinator.settle()))
        self.at(STAGE * (stages + 3), lambda now: self.post(now, COORDINATOR, self.coordinator.finish()))
        if self.faulty and self.rng.random() < 0.5:
            self.at(float(self.rng.uniform(0, STAGE * (stages + 4))), self.restart)
            self.at(float(self.rng.uniform(0, STAGE * (stages + 4))), self.restart_party)
        end = STAGE * (stages + 4)
        while self.events and self.events[0][0] <= end:
            now, _, event = heapq.heappop(self.events)
            event(now)
        return self.coordinator.total()


def world(name: str, seed: int, faulty: bool) -> World:
    rng = np.random.default_rng(seed)
    parties = 9 if name == "secagg+" else 7
    dropouts = int(rng.integers(1, 4))
    schedule = NoiseSchedule.plan(parties, 1, dropouts, 1e6, 1.0) if name != "pairwise" else None
    agreed = Session("digest", "model", parties, 1, parties - dropouts, 3, 64, schedule)
    return World(SimulatedEndpoints(MAKERS[name][1](agreed), SecretStream()), rng, faulty)


@pytest.mark.parametrize("name", MAKERS)
def test_every_run_ends_in_the_exact_sum_over_its_survivors_or_in_an_abort(
    name: str, runs: Callable[[int, int], int]
) -> None:
    """Seen: 45 to 80 % exact, 20 to 55 % aborted, 6 to 13 faults in a run."""
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    count = runs(60, MAKERS[name][0])
    for seed in range(count):
        simulated = world(name, seed, faulty=True)
        agreed = simulated.protocol.session
        try:
            total = simulated.run()
        except Aborted:
            outcomes["aborted"] += 1
        else:
            survivors = simulated.coordinator.survivors()
            assert survivors.sum() >= agreed.least_survivors, f"seed {seed}: a total below the agreed number"
            expected = simulated.rows[survivors].sum(axis=0, dtype=np.uint64)
            assert (total == expected).all(), f"seed {seed}: a wrong total"
            opened = simulated.coordinator.opened()
            numbers = agreed.opened(int(survivors.sum()))
            for index, seeds in opened.items():
                assert seeds == [simulated.parties[index].seeds[number] for number in numbers], f"seed {seed}: noise"
            outcomes["exact"] += 1
        faults += simulated.faults
    print(f"{name}: {count} runs, {dict(outcomes)}, faults {dict(faults)}")
    assert outcomes["exact"] > 0.1 * count
    assert outcomes["aborted"] > 0.05 * count
    assert sum(faults.values()) > 2 * count


@pytest.mark.parametrize("name", MAKERS)
def test_without_faults_every_run_ends_in_the_exact_sum_over_all(name: str) -> None:
    for seed in range(10):
        simulated = world(name, seed, faulty=False)
        total = simulated.run()
        assert simulated.coordinator.survivors().all()
        assert (total == simulated.rows.sum(axis=0, dtype=np.uint64)).all()
