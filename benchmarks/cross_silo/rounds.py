"""A round of cross-silo training, timed as a whole and by roles."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common import best_of, say
from benchmarks.studies import ArrayFederation, Floats, Integers, Records, Study, deal, method_for, plan_of, study
from unspoken.data.block import Block
from unspoken.engines import local
from unspoken.learners.torch_models import TorchModel
from unspoken.methods.base import Method, PartyContext, Sum
from unspoken.methods.planning import PlannedSum, mechanisms
from unspoken.methods.planning.mechanisms import NoiseSource, Participation
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Envelope, Protocol
from unspoken.summation.simulated_keys import SimulatedEndpoints

PIXELS, CLASSES, CLIP = 784, 10, 1.0
GROUP = 8
"""So many parties' messages are under way at a time."""


@dataclass(frozen=True)
class Setting:
    """Who takes part in a round, and in what."""

    parties: int
    records: int
    hidden: tuple[int, ...]
    rate: float
    nodes: int
    projection: int | None = None

    def study(self, protocol: str) -> Study:
        extra = {"nodes": self.nodes} if protocol == "compute-nodes" else {}
        method = {"name": "cross-silo", "model": "mlp", "rounds": 1, "rate": self.rate, "clip": CLIP}
        projected = {} if self.projection is None else {"projection": self.projection}
        return study(
            {"features": PIXELS, "norm": 1.0, "classes": CLASSES},
            {"count": self.parties, "records": self.records, "max_records": self.records},
            {"noise_multiplier": 1.0, "delta": 1e-5, "colluding": 0.1},
            method | {"hidden": list(self.hidden)} | projected,
            protocol,
            **extra,
        )

    @property
    def weights(self) -> int:
        sizes = (PIXELS, *self.hidden, CLASSES)
        return sum((before + 1) * after for before, after in pairwise(sizes))

    @property
    def bits(self) -> int:
        return plan_of(self.study("compute-nodes")).sums[0].encoding.bits

    def round(self, protocol: str) -> Callable[[], object]:
        """One round through the engine."""
        agreed = self.study(protocol)
        method = method_for(agreed)
        plan = method.plan()
        features, labels = data_of(self.parties * self.records)
        federation = ArrayFederation(agreed, Records(features, labels), deal(len(labels), self.parties))
        return lambda: local.run(method, plan, federation)

    def seconds(self, protocol: str, repeats: int) -> float:
        """Processor seconds of one round through the engine."""
        say(f"{protocol}, {self.nodes} nodes: whole rounds")
        return best_of(repeats, self.round(protocol))[1]

    def roles(self, protocol: str) -> dict[str, float]:
        """Processor seconds of a party but for noise, of its noise, of the busiest node, and of the coordinator."""
        say(f"{protocol}: a round by roles")
        method = method_for(self.study(protocol))
        plan = method.plan()
        planned = plan.sums[0]
        made = SimulatedEndpoints(plan.protocol(planned), SecretStream())
        coordinator = made.coordinator()
        post = _TimedPost({**made.helpers(), COORDINATOR: coordinator})
        spent = [self._party(index, method, planned, made, post) for index in range(self.parties)]
        works, draws = zip(*spent, strict=True)
        post.settle()
        post.send(post.timed(COORDINATOR, coordinator.agree))
        post.send(post.timed(COORDINATOR, coordinator.finish))
        words = post.timed(COORDINATOR, coordinator.total)
        started = time.thread_time()
        if made.protocol.reveals_contributions:
            there = Participation(self.parties, self.parties)
            words[: planned.dimension] += planned.noise.at_once(planned.dimension, SecretStream(), there)
        drawn_once = time.thread_time() - started
        coordinating = post.seconds.pop(COORDINATOR)
        return {
            "a party: gradients, encoding, masks": float(np.median(works)),
            "its noise": float(np.median(draws)),
            "the busiest node": max(post.seconds.values(), default=0.0),
            "the coordinator": coordinating,
            "the total's noise": drawn_once,
        }

    def _party(
        self, index: int, method: Method, planned: PlannedSum, made: SimulatedEndpoints[Protocol], post: _TimedPost
    ) -> tuple[float, float]:
        """Processor seconds of one party's work, and of its noise; its messages go out."""
        features, labels = data_of(self.records)
        block = Block(features[None], labels[None], np.array([self.records]))
        request = Sum("gradient", TorchModel("mlp", PIXELS, CLASSES, "cross-entropy", self.hidden, 0).initial(), 0)
        started = time.thread_time()
        party = made.party(index, SecretStream())
        contribution = method.contribute(request, block, [PartyContext(SecretStream())])
        counts = contribution.exact.astype(np.int64).view(np.uint64)
        vector = np.concatenate([planned.encoding.encode(contribution.noisy), counts], axis=1)[0]
        drawing = time.thread_time()
        if not made.protocol.reveals_contributions:
            vector[: planned.dimension] += planned.noise.added(
                planned.dimension, NoiseSource(SecretStream(), party.seeds)
            )
        drawn = time.thread_time()
        envelopes = party.submit(vector)
        work = time.thread_time() - drawn + drawing - started
        post.send(envelopes)
        if index % GROUP == GROUP - 1:
            post.settle()
        return work, drawn - drawing


class _TimedPost:
    """Delivers envelopes, and knows how long each receiver took."""

    def __init__(self, endpoints: dict[str, Any]) -> None:
        self._endpoints = endpoints
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def send(self, envelopes: list[Envelope]) -> None:
        waiting = deque(envelopes)
        while waiting:
            envelope = waiting.popleft()
            waiting.extend(self.timed(envelope.to, self._endpoints[envelope.to].step, envelope.body))

    def settle(self) -> None:
        self.send(self.timed(COORDINATOR, self._endpoints[COORDINATOR].settle))

    def timed(self, who: str, work: Callable[..., Any], *given: bytes) -> Any:
        started = time.thread_time()
        answer = work(*given)
        self.seconds[who] += time.thread_time() - started
        return answer


@lru_cache(maxsize=1)
def data_of(records: int) -> tuple[Floats, Integers]:
    """Rows of norm 1 with random labels."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((records, PIXELS))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features, rng.integers(0, CLASSES, records)


def time_rounds(setting: Setting, projection: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds by the clock and of all cores, in turn, so that what else the machine does hits all."""
    works = {
        "ideal": setting.round("ideal"),
        "compute nodes": setting.round("compute-nodes"),
        "projected, ideal": replace(setting, projection=projection).round("ideal"),
        "projected, compute nodes": replace(setting, projection=projection).round("compute-nodes"),
    }
    works["compute nodes"]()  # compiles the sampler
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for turn in range(repeats):
        say(f"rounds of {setting.weights:,} weights and {setting.parties} parties: {turn + 1} of {repeats}")
        for name, work in works.items():
            taken[name].append(best_of(1, work))
            with no_noise():
                taken[f"{name}, no noise"].append(best_of(1, work))
    return {name: (min(wall for wall, _ in found), min(work for _, work in found)) for name, found in taken.items()}


@contextmanager
def no_noise() -> Iterator[None]:
    """The engine as it is, but for the draws."""

    def silence(sigma: float, count: int, stream: SecretStream) -> Integers:
        return np.zeros(count, dtype=np.int64)

    with patch.object(mechanisms, "sample", silence):
        yield
