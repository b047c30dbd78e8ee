"""Claim: in cross-silo training, secrecy, projections, clipping and accounting cost little beside the training itself.

Round: one round of a network of a million weights with 100 parties and 8 compute nodes against the same round with the
ideal sum, through the local engine, which does everyone's work in one process; nothing is subtracted. With the ideal
sum the noise of the total is drawn once, with a secure sum by every party, so both are timed without any draws, too.
"On machines of their own" is the paper's way to count (one core a party): one party, then the busiest node, then the
coordinator. "Projected" is the paper's own remedy: parties send a structured projection of the gradient, a twentieth as
long.
With M nodes each, a key stream as long as the model is made 2(M − 1) times a party, half of them at the nodes, and a
share of the noise is drawn once a party instead of once for all: these, not messages or keys, are what secrecy costs.
Projection: a batch's clipped gradients as 1,000 numbers against an ordinary gradient of the same batch. Clipping: sums
of clipped per-example gradients against Opacus and torch.func. Planning: from epochs, batch and ε to noise.

Needs torch; Opacus is compared with if it is installed. Goals are printed beside the figures; all are ratios within one
run, of processor seconds, but on a busy machine they say little all the same.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _common import best_of, claim, options, say, show_claims, show_json, show_table
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.learners.projected_gradients import BeforeProjection, Plain, Projection, after_projection
from unspoken.learners.torch_models import TorchModel
from unspoken.learners.torch_modules import make_module
from unspoken.methods.base import PartyContext, Sum
from unspoken.methods.mechanisms import Participation
from unspoken.methods.registry import method_for
from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.stream import SecretStream
from unspoken.privacy import subsampled
from unspoken.study import Study, make_study
from unspoken.summation.base import COORDINATOR, Endpoint, Envelope
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Floats, Integers

PIXELS, CLASSES, CLIP = 784, 10, 1.0
HELD_BYTES = 64 << 20
"""How much memory the examples' gradients may take with Opacus and torch.func: both are slower with more."""
GROUP = 8
"""So many parties' messages are under way at a time."""


def main() -> None:
    arguments = options(__doc__).parse_args()
    torch.set_num_threads(1)
    result = measure(arguments)
    if arguments.json:
        show_json(result)
        return
    for title, headings in (
        ("round", ["a round", "seconds", "processor seconds"]),
        ("roles", ["on machines of their own", "ideal, ms", "compute nodes, ms"]),
        ("gradients", ["gradients of a batch", "ms", "over the plain gradient"]),
        ("planning", ["planning", "seconds", "noise multiplier"]),
    ):
        show_table(headings, result[title])
        print()
    show_claims(result["claims"])


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    quick = arguments.quick
    setting = Setting(10, 20, (32,), 0.1, 3) if quick else Setting(100, 600, (680, 680), 0.01, 8)
    repeats = 1 if quick else 3
    projection = 1_000 if quick else 50_000
    rounds = time_rounds(setting, projection, repeats)
    roles = {protocol: setting.roles(protocol) for protocol in ("ideal", "compute-nodes")}
    paths = {name: sum(parts.values()) for name, parts in roles.items()}
    hidden, batch = ((32,), 32) if quick else ((680, 680), 256)
    linear = time_gradients("mlp", hidden, batch, 2 if quick else 5)
    others = time_gradients("cross_silo:Convolutions", (), 16 if quick else 64, 2 if quick else 3)
    planning = [time_planning(*case) for case in (PLANS[:2] if quick else PLANS)]
    return {
        "weights": setting.weights,
        "bits": setting.bits,
        "round": [[name, f"{wall:.2f}", f"{work:.2f}"] for name, (wall, work) in rounds.items()],
        "roles": [[name, *(f"{1e3 * parts[name]:.1f}" for parts in roles.values())] for name in roles["ideal"]],
        "gradients": [*gradient_rows("linear layers", linear), *gradient_rows("convolutions", others)],
        "planning": [[name, f"{seconds:.2f}", f"{noise:.3f}"] for name, seconds, noise in planning],
        "claims": [
            claim(
                "round",
                "a secure round over the ideal one, everyone's work in one process",
                rounds["compute nodes"][1] / rounds["ideal"][1],
                at_most=1.3,
            ),
            claim(
                "round without draws",
                "the same, with no noise drawn by either",
                rounds["compute nodes, no noise"][1] / rounds["ideal, no noise"][1],
                at_most=1.3,
            ),
            claim(
                "own machines",
                "the same, parties and nodes on machines of their own",
                paths["compute-nodes"] / paths["ideal"],
                at_most=1.3,
            ),
            claim(
                "projected",
                f"a secure round with gradients as {projection:,} numbers over the ideal one with all of them",
                rounds["projected, compute nodes"][1] / rounds["ideal"][1],
                at_most=1.3,
            ),
            claim(
                "structured",
                "structured projection to 1,000 numbers over a plain gradient",
                linear["structured"] / linear["plain"],
                at_most=2.0,
            ),
            *opacus_claims("linear layers", linear),
            *opacus_claims("convolutions", others),
            claim("planning", "slowest planning, seconds", max(row[1] for row in planning), at_most=5.0),
        ],
    }


# --- A round ---------------------------------------------------------------------------------------------------------


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
        extra = {} if protocol == "ideal" else {"nodes": self.nodes}
        return make_study(
            {
                "study": {"name": "speed", "task": "classification"},
                "data": {"features": PIXELS, "norm": 1.0, "classes": CLASSES},
                "parties": {"count": self.parties, "records": self.records, "max_records": self.records},
                "privacy": {"noise_multiplier": 1.0, "delta": 1e-5, "colluding": 0.1},
                "method": {
                    "name": "cross-silo",
                    "model": "mlp",
                    "hidden": list(self.hidden),
                    "rounds": 1,
                    "rate": self.rate,
                    "clip": CLIP,
                    **({} if self.projection is None else {"projection": self.projection}),
                },
                "summation": {"protocol": protocol, **extra},
            }
        )

    @property
    def weights(self) -> int:
        sizes = (PIXELS, *self.hidden, CLASSES)
        return sum((before + 1) * after for before, after in pairwise(sizes))

    @property
    def bits(self) -> int:
        return method_for(self.study("compute-nodes")).plan().sums[0].encoding.bits

    def round(self, protocol: str) -> Callable[[], object]:
        """One round through the engine."""
        study = self.study(protocol)
        method = method_for(study)
        plan = method.plan()
        features, labels = data_of(self.parties * self.records)
        federation = ArrayFederation(study, Records(features, labels), np.arange(len(labels)) % self.parties)
        return lambda: local.run(method, plan, federation)

    def seconds(self, protocol: str, repeats: int) -> float:
        """Processor seconds of one round through the engine."""
        say(f"{protocol}, {self.nodes} nodes: whole rounds")
        return best_of(repeats, self.round(protocol))[1]

    def roles(self, protocol: str) -> dict[str, float]:
        """Processor seconds of a party but for noise, of its noise, of the busiest node, and of the coordinator."""
        say(f"{protocol}: a round by roles")
        study = self.study(protocol)
        method = method_for(study)
        plan = method.plan()
        planned = plan.sums[0]
        made = SimulatedEndpoints(plan.protocol(planned), SecretStream())
        coordinator = made.coordinator()
        post = _TimedPost({**made.helpers(), COORDINATOR: coordinator})
        features, labels = data_of(self.records)
        block = Block(features[None], labels[None], np.array([self.records]))
        request = Sum("gradient", TorchModel("mlp", PIXELS, CLASSES, "cross-entropy", self.hidden, 0).initial(), 0)
        works, draws = [], []
        for index in range(self.parties):
            started = time.thread_time()
            party = made.party(index, SecretStream())
            vector = planned.encoding.encode(method.contribute(request, block, [PartyContext(SecretStream())]).noisy)[0]
            drawing = time.thread_time()
            if not made.protocol.reveals_contributions:
                vector += local._share(planned.schedule, planned.dimension, party.seeds, SecretStream())
            drawn = time.thread_time()
            envelopes = party.submit(vector)
            works.append(time.thread_time() - drawn + drawing - started)
            draws.append(drawn - drawing)
            post.send(envelopes)
            if index % GROUP == GROUP - 1:
                post.send(post.timed(COORDINATOR, coordinator.settle))
        post.send(post.timed(COORDINATOR, coordinator.settle))
        post.send(post.timed(COORDINATOR, coordinator.finish))
        words = post.timed(COORDINATOR, coordinator.total)
        started = time.thread_time()
        if made.protocol.reveals_contributions:
            variance = planned.noise.total(Participation(self.parties, self.parties))
            words += sample(math.sqrt(variance), planned.dimension, SecretStream()).view(np.uint64)
        drawn_once = time.thread_time() - started
        coordinating = post.seconds.pop(COORDINATOR)
        return {
            "a party: gradients, encoding, masks": float(np.median(works)),
            "its noise": float(np.median(draws)),
            "the busiest node": max(post.seconds.values(), default=0.0),
            "the coordinator": coordinating,
            "the total's noise": drawn_once,
        }


class _TimedPost:
    """Delivers envelopes, and knows how long each receiver took."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def send(self, envelopes: list[Envelope]) -> None:
        waiting = deque(envelopes)
        while waiting:
            envelope = waiting.popleft()
            waiting.extend(self.timed(envelope.to, self._endpoints[envelope.to].step, envelope.body))

    def timed(self, who: str, work: Callable[..., Any], *given: bytes) -> Any:
        started = time.thread_time()
        answer = work(*given)
        self.seconds[who] += time.thread_time() - started
        return answer


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

    with patch.object(local, "sample", silence):
        yield


# --- Gradients of a batch --------------------------------------------------------------------------------------------


class Convolutions(nn.Sequential):
    """A small network that is trained in all its layers, convolutions too."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 8, stride=2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, outputs),
        )


def time_gradients(name: str, hidden: tuple[int, ...], batch: int, repeats: int) -> dict[str, float]:
    """Processor seconds of each way to a sum of clipped gradients, and of a plain gradient of the same batch."""
    features, labels = data_of(batch)
    model = TorchModel(name, PIXELS, CLASSES, "cross-entropy", hidden, 0)
    say(f"gradients of {batch} records in {model.size:,} weights")
    weights, counts = model.initial(), np.array([batch])
    inputs, targets = torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels)

    def by(projection: Projection) -> Callable[[], object]:
        return lambda: projection.sums(weights, features, labels, counts, 1)

    size = min(1_000, model.size)
    works: dict[str, Callable[[], object]] = {
        "plain": plain_gradient(make_module(name, PIXELS, CLASSES, hidden), inputs, targets),
        "clipped": by(Plain(model, CLIP)),
        "structured": by(after_projection(model, CLIP, size, 0)),
        "gaussian": by(BeforeProjection(model, CLIP, size, 0, 1e-9)),
        "torch.func": by_torch_func(make_module(name, PIXELS, CLASSES, hidden), inputs, targets),
    }
    if find_spec("opacus") is not None:
        works["Opacus"] = by_opacus(make_module(name, PIXELS, CLASSES, hidden), inputs, targets, ghost=False)
        works["Opacus, ghost"] = by_opacus(make_module(name, PIXELS, CLASSES, hidden), inputs, targets, ghost=True)
    taken: dict[str, list[float]] = defaultdict(list)
    for work in works.values():
        if work is not works["gaussian"]:
            work()
    for turn in range(repeats):
        for way, work in works.items():
            if way != "gaussian" or turn == 0:
                taken[way].append(best_of(1, work)[1])
    return {way: min(found) for way, found in taken.items()}


def plain_gradient(module: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], object]:
    def work() -> None:
        module.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]

    return work


def by_torch_func(module: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], object]:
    weights, most = {name: tensor.detach() for name, tensor in module.named_parameters()}, examples_held(module)

    def loss(weights: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, weights, (row[None],)), target[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))

    def work() -> list[Tensor]:
        total: list[Tensor] = []
        for start in range(0, len(inputs), most):
            slopes = list(each(weights, inputs[start : start + most], targets[start : start + most]).values())
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in slopes]).norm(dim=0)
            factors = CLIP / norms.clamp(min=CLIP)
            sums = [torch.tensordot(factors, part, dims=1) for part in slopes]
            total = [one + other for one, other in zip(total, sums, strict=True)] if total else sums
        return total

    return work


def examples_held(module: nn.Module) -> int:
    return max(1, HELD_BYTES // (4 * sum(weights.numel() for weights in module.parameters())))


def by_opacus(module: nn.Module, inputs: Tensor, targets: Tensor, ghost: bool) -> Callable[[], object]:
    """Forward, backward, and clip-and-accumulate, as in Opacus's own training loop; no noise."""
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    grad_sample: Any = import_module("opacus.grad_sample")
    optimizers: Any = import_module("opacus.optimizers")
    fast_clipping: Any = import_module("opacus.utils.fast_gradient_clipping_utils")
    plain, most = torch.optim.SGD(module.parameters(), lr=0.0), examples_held(module)
    noise = {"noise_multiplier": 0.0, "max_grad_norm": CLIP, "expected_batch_size": len(inputs)}
    if not ghost:
        wrapped = grad_sample.GradSampleModule(module)
        optimizer = optimizers.DPOptimizer(plain, **noise)

        def held() -> None:
            optimizer.zero_grad(set_to_none=True)
            # In parts, as its BatchMemoryManager makes them.
            for rows, known in zip(torch.split(inputs, most), torch.split(targets, most), strict=True):
                nn.functional.cross_entropy(wrapped(rows), known).backward()  # type: ignore[no-untyped-call]
                optimizer.clip_and_accumulate()
                for weights in wrapped.parameters():
                    weights.grad_sample = None

        return held
    ghostly = grad_sample.GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, use_ghost_clipping=True)
    fast = optimizers.DPOptimizerFastGradientClipping(plain, **noise)
    criterion = fast_clipping.DPLossFastGradientClipping(ghostly, fast, nn.CrossEntropyLoss())

    def passed() -> None:
        fast.zero_grad(set_to_none=True)
        criterion(ghostly(inputs), targets).backward()

    return passed


def gradient_rows(kind: str, taken: dict[str, float]) -> list[list[str]]:
    return [
        [f"{kind}: {way}", f"{1e3 * seconds:.1f}", f"{seconds / taken['plain']:.2f}"] for way, seconds in taken.items()
    ]


def opacus_claims(kind: str, taken: dict[str, float]) -> list[dict[str, Any]]:
    return [
        claim("opacus", f"{kind}: speed over {way}", taken[way] / taken["clipped"], at_least=1.0)
        for way in ("Opacus", "Opacus, ghost", "torch.func")
        if way in taken
    ]


# --- Planning --------------------------------------------------------------------------------------------------------

PLANS = (
    ("50,000 records, batch 400, 10 epochs, ε = 1", 50_000, 400, 10, 1.0, "poisson"),
    ("the same, ε = 0.25", 50_000, 400, 10, 0.25, "poisson"),
    ("the same, ε = 8", 50_000, 400, 10, 8.0, "poisson"),
    ("the same, ε = 1, without replacement", 50_000, 400, 10, 1.0, "without-replacement"),
    ("60,000 records, batch 256, 60 epochs, ε = 3", 60_000, 256, 60, 3.0, "poisson"),
    ("1,000,000 records, batch 1,000, 100 epochs, ε = 2", 1_000_000, 1_000, 100, 2.0, "poisson"),
    ("1,500 records, batch 150, 20 epochs, ε = 2", 1_500, 150, 20, 2.0, "poisson"),
)


def time_planning(
    name: str, records: int, batch: int, epochs: int, epsilon: float, sampling: str
) -> tuple[str, float, float]:
    """Processor seconds of the whole plan, and its noise multiplier."""
    say(f"planning: {name}")
    study = make_study(
        {
            "study": {"name": "plan", "task": "classification"},
            "data": {"features": 64, "norm": 1.0, "classes": CLASSES},
            "parties": {"count": 10, "records": records // 10, "max_records": records // 10},
            "privacy": {"epsilon": epsilon, "delta": 1e-6, "colluding": 3},
            "method": {
                "name": "cross-silo",
                "model": "linear",
                "rounds": epochs * records // batch,
                "rate": batch / records,
                "sampling": sampling,
            },
        }
    )
    method = method_for(study)
    subsampled._composed.cache_clear()
    started = time.process_time()
    plan = method.plan()
    seconds = time.process_time() - started
    return name, seconds, plan.sums[0].noise_std / plan.sums[0].sensitivity


if __name__ == "__main__":
    main()
