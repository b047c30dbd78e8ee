"""Runs of neighbours, compared: how far apart their totals are, in units of the planned sensitivity.

A run records what its coordinator asks and is told. Its neighbour is asked the same again, with the same secrets, so
that noise, samples and masks are the same, and what is left of the difference of two totals is what the records did.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cases import KEY, PARTIES, Case, planned
from neighbours import Neighbours, neighbours

from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.base import Collect, Method, Pool, Request, Sum, Total, Vote
from unspoken.methods.planning import Plan
from unspoken.noise.encoding import Encoding
from unspoken.noise.stream import SecretStream


@dataclass
class Recorded:
    """What happened in a run."""

    requests: list[Request] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)
    encoded: list[tuple[Encoding, Any]] = field(default_factory=list)
    release: Any = None


class Listening(Method):
    """A method whose conversation is written down; or, with a script, one that asks what was asked before."""

    def __init__(self, method: Method, script: Sequence[Request] | None = None) -> None:
        super().__init__(method.study)
        self.name, self._method, self._script, self.heard = method.name, method, script, Recorded()
        self.directions = method.directions

    def plan(self) -> Plan:
        return self._method.plan()

    def parameters(self, request: Any) -> Any:
        return self._method.parameters(request)

    def indices(self, request: Any) -> Any:
        return self._method.indices(request)

    def contribute(self, request: Any, block: Any, contexts: Any = ()) -> Any:
        return self._method.contribute(request, block, contexts)

    def coordinate(self, plan: Plan) -> Any:
        conversation = self._method.coordinate(plan)
        request = next(conversation)
        try:
            for number in itertools.count():
                if self._script is not None:
                    request = self._script[number]
                self.heard.requests.append(request)
                answer = yield request
                if isinstance(answer, Total):
                    self.heard.totals.append(answer)
                request = conversation.send(answer)
        except StopIteration as end:
            return end.value


def run(
    case: Case,
    method: Method,
    plan: Plan,
    records: Records,
    groups: Any,
    script: Sequence[Request] | None = None,
) -> Recorded:
    """One run through the real engine, under the same secrets as any other, with as many dropouts as are allowed: but
    pairwise masks cannot be taken away without those who are gone."""
    drop = 0 if case.protocol == "pairwise" else case.dropouts
    listening = Listening(method, script)
    if hasattr(method, "secrets"):
        method.secrets = SecretStream(KEY)
    federation = ArrayFederation(method.study, records, groups, method.directions)
    heard = listening.heard
    original = Encoding.encode

    def encode(self: Encoding, vectors: Any) -> Any:
        words = original(self, vectors)
        heard.encoded.append((self, words))
        return words

    Encoding.encode = encode  # type: ignore[method-assign]
    try:
        outcome = local.run(listening, plan, federation, Conditions(drop=drop, secrets=SecretStream(KEY)))
    finally:
        Encoding.encode = original  # type: ignore[method-assign]
    heard.release = outcome.release
    return heard


@dataclass(frozen=True)
class Distance:
    """How far a unit moved something, and how far the plan says that it can."""

    what: str
    moved: float
    stated: float

    @property
    def ratio(self) -> float:
        return self.moved / self.stated


def stated(plan: Plan, name: str) -> float:
    """The sensitivity that the plan prints, for the protected unit."""
    return float(next(row["sensitivity"] for row in plan.to_json()["releases"] if row["name"] == name))


def distances(case: Case, method: Method, plan: Plan, pair: Neighbours) -> list[Distance]:
    """What neighbours do to everything that carries noise."""
    one = run(case, method, plan, pair.one, pair.groups)
    fewer = pair.groups if pair.fewer is None else pair.fewer
    other = run(case, method, plan, pair.other, fewer, one.requests)
    if plan.others:
        # The model itself carries the noise, the same in both runs.
        release = plan.others[0]
        moved = float(np.linalg.norm(one.release.weights - other.release.weights))
        return [Distance(release.name, moved, stated(plan, release.name))]
    if isinstance(one.requests[0], Pool) or plan.sums[0].total_std(PARTIES) == 0.0:
        return _of_encoded(plan, one, other)
    found = []
    asked = [request for request in one.requests if isinstance(request, Sum | Vote | Collect)]
    for request, first, second in zip(asked, *(_with_numbers(heard) for heard in (one, other)), strict=True):
        moved = float(np.linalg.norm(first.noisy - second.noisy))
        found.append(Distance(request.name, moved, stated(plan, request.name)))
        if not (first.exact == second.exact).all():
            raise AssertionError(f"exact numbers of {request} differ between neighbours")
    return found


def _with_numbers(heard: Recorded) -> list[Total]:
    return [total for total in heard.totals if total.noisy.size]


def _of_encoded(plan: Plan, one: Recorded, other: Recorded) -> list[Distance]:
    """Of the first integers that someone makes of his records, where he adds noise to them on the spot."""
    name, found = plan.sums[0].name, []
    for (encoding, first), (_, second) in zip(one.encoded, other.encoded, strict=True):
        if len(first) == 1:
            differences = (first - second).view(np.int64).astype(float) / encoding.scale
            found.append(Distance(name, float(np.linalg.norm(differences)), stated(plan, name)))
    return found[:PARTIES]


Ratios = dict[str, float]
"""By the names of totals"""
ENOUGH = 0.5
ROUNDING = 1.0 + 1e-9
"""Of the comparison itself: decoded totals are divided by a power of two, and norms are taken of them."""


def attacked(case: Case, public: Path, chosen: Iterable[int] | None = None) -> Ratios | None:
    """The largest ratio of what neighbours moved to what was stated, of each planned total; None if the study is
    refused."""
    found = planned(case, public)
    if found is None:
        return None
    method, plan = found
    worst = dict.fromkeys((release["name"] for release in plan.to_json()["releases"]), 0.0)
    if plan.others:
        # What a trusted trainer receives is no release.
        worst = {plan.others[0].name: 0.0}
    for name, pair in neighbours(case, plan, chosen):
        for distance in distances(case, method, plan, pair):
            if distance.moved > distance.stated * ROUNDING:
                raise AssertionError(f"{case!r}: {name}: {distance}")
            worst[distance.what] = max(worst[distance.what], distance.ratio)
    return worst


def worst_of(found: Iterable[Ratios | None]) -> Ratios:
    """The largest ratio of each total over several studies of one variant."""
    worst: Ratios = {}
    for ratios in found:
        for name, ratio in (ratios or {}).items():
            worst[name] = max(worst.get(name, 0.0), ratio)
    return worst


def check_reached(worst: Ratios) -> None:
    """Fail if some sensitivity is stated more than twice as large as what was reached: then an attack is missing."""
    for name, ratio in worst.items():
        if ratio < ENOUGH:
            raise AssertionError(f'neighbours reach {ratio:.2f} of the sensitivity of "{name}" only')
