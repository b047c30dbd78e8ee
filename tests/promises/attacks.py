"""What the promise suite is made of: studies of every kind, neighbours built to be far apart, and runs to compare.

A run records what its coordinator asks and is told. Its neighbour is asked the same again, with the same secrets, so
that noise, samples and masks are the same, and what is left of the difference of two totals is what the records did.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

import factories
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.methods.base import Collect, Method, Pool, Request, Sum, Total, Vote
from unspoken.methods.planning import Plan
from unspoken.methods.registry import METHODS, method_for
from unspoken.noise.encoding import Encoding
from unspoken.noise.stream import SecretStream
from unspoken.study import Study, StudyError
from unspoken.summation.registry import PROTOCOLS

FEATURES, CLASSES, PARTIES = 4, 3, 6
QUERIES = 9
KEY = bytes(range(32))
TASKS = ("classification", "regression", "statistics")
GROUP = 40
UNITS: tuple[Any, ...] = ("record", {"group": 3}, {"group": GROUP}, "party")
DROPOUTS = (0, 1, 4)
SUMS = [name for name, kind in PROTOCOLS.items() if "sum" in kind.serves]
"""The protocols that add: votes show no totals that could be compared."""
SOME_NODES = (3, 2)
"""Three compute nodes, of which each party uses two."""
SIZES = ((20, 20), (20, 26))
"""The fewest and the most records of a party."""

_BATCHES = {"rounds": 1, "rate": 1.0, "clip": 0.05}
_STRONG = {"regularization": 20.0}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "helmet": [
        {"learner": "softmax", **_STRONG},
        {"learner": "svm", **_STRONG},
        {"learner": "logistic", "regularization": 0.1},
        {"learner": "svm", "weights": "equal", **_STRONG},
        {"learner": "softmax", "solver": "sgd", "batch": 2, "epochs": 3, **_STRONG},
        {"learner": "svm", "radius": 0.02, **_STRONG},
    ],
    "moments": [
        {"function": "auto", "steps": 2},
        {"function": "linear-regression"},
        {"function": "linear-regression", "coefficients": 0.5},
        {"function": "mean"},
        {"function": "auto", "steps": 2, "epsilon": 8.0},
        {"steps": 1},
        {"function": "logistic-regression"},
        {"function": "logistic-regression", "reshape": False},
        {"function": "discriminant"},
        {"function": "network", "steps": 1, "hidden": 3, "clip": 0.1},
        {"function": "histogram", "bins": 3},
    ],
    "cape": [
        {},
        {"order": "messages-first"},
        {"function": "softmax", "steps": 1},
        {"function": "histogram", "bins": 3},
        {"function": "discriminant"},
    ],
    "conv": [{}, {"function": "histogram", "bins": 3}],
    "local": [{"reshape": False}, {"function": "mean"}, {"model": "linear", **_BATCHES}],
    "central": [
        {"reshape": False},
        {"function": "mean"},
        {"model": "linear", **_BATCHES},
        {"model": "linear", "sampling": "without-replacement", **_BATCHES},
    ],
    "cross-silo": [
        {**_BATCHES},
        {**_BATCHES, "sampling": "without-replacement"},
        {**_BATCHES, "sampling": "within-parties"},
        {**_BATCHES, "projection": 5},
        {**_BATCHES, "model": "mlp", "hidden": [3]},
    ],
    "fedavg": [{**_BATCHES, "local_rate": 1.0}],
    "fedsgd": [{**_BATCHES, "local_steps": 1}],
    "multiparty": [
        {"labels": "average", "learner": "svm", "noise": "gaussian", "regularization": 2700.0},
    ]
    + [
        {"labels": labels, "learner": learner, "noise": noise, "local_regularization": 0.01, **_STRONG}
        for labels, learner, noise in [
            ("weighted", "softmax", "gaussian"),
            ("weighted", "logistic", "laplace"),
            ("majority", "svm", "gaussian"),
            ("average", "svm", "gaussian"),
            ("average", "softmax", "laplace"),
        ]
    ]
    + [{"model": "sklearn.neighbors:KNeighborsClassifier", "model_options": {"n_neighbors": 1}, **_STRONG}],
    "voting": [
        {"queries": QUERIES, "asking": "first", "spreading": False, **ballots}
        for ballots in ({}, {"ballots": "neighbours", "neighbours": 2}, {"adaptation": "coral"})
    ],
}
VARIANTS |= {entry.name: entry.load() for entry in entry_points(group="unspoken.variants")}
"""Keys of methods in other packages, which they declare themselves"""
"""Keys of [method] to be tried; `epsilon` is that of [privacy], where a method's choices depend on it. A method that is
not here is tried with its defaults, for every task that it takes."""
ELSEWHERE = {"dp-fm", "objective-perturbation"}
"""Pooled baselines with noise of their own kind: test_baselines.py and test_objective_perturbation.py attack them."""


@dataclass(frozen=True)
class Case:
    """A study to be attacked."""

    method: str
    options: tuple[tuple[str, Any], ...]
    task: str
    unit: Any = "record"
    dropouts: int = 0
    sizes: tuple[int, int] = SIZES[0]
    protocol: str = "ideal"
    nodes: tuple[int, int] | None = None
    """Of compute nodes: how many there are, and how many of them each party uses."""
    directed: bool = False
    """Whether the study's [data] names public records, in whose directions linear methods learn."""
    adjacency: str = "replace"

    def __str__(self) -> str:
        return " ".join([self.task, self.method, *(f"{key}={value}" for key, value in self.options)])

    def _public(self, public: Path) -> dict[str, str]:
        return {"public": str(public)} if self.directed else {}

    def study(self, public: Path) -> Study:
        options: dict[str, Any] = {"name": self.method, **dict(self.options)}
        if self.method in ("voting", "multiparty"):
            options["public"] = str(public)
        target = {"classification": {"classes": CLASSES}, "regression": {"label_bounds": [-1, 1]}, "statistics": {}}
        intercept = options.get("function") == "discriminant"
        return factories.make(
            task=self.task,
            data={"features": FEATURES, "intercept": intercept, **target[self.task], **self._public(public)},
            parties={"count": PARTIES, "records": self.sizes[0], "max_records": self.sizes[1]},
            epsilon=options.pop("epsilon", 1.0),
            unit=self.unit,
            adjacency=self.adjacency,
            dropouts=self.dropouts,
            method=options,
            summation={"protocol": self.protocol, **dict(zip(("nodes", "per_party"), self.nodes or (), strict=False))},
        )


def public_records(folder: Path) -> Path:
    """Public records that all point one way, so that whatever votes move, they move together. (As many as directions
    are learnt from; votes are on the first.)"""
    path = folder / "public.npz"
    features = np.zeros((QUERIES + 1, FEATURES))
    features[:, 0] = 1.0
    np.savez(path, X=features)
    return path


def variants() -> list[Case]:
    """Every method of the registry with its variants, for every task, whether it takes it or not."""
    return [
        Case(name, tuple(options.items()), task)
        for name in METHODS
        if name not in ELSEWHERE
        for options, task in itertools.product(VARIANTS.get(name, [{}]), TASKS)
    ]


def directed() -> list[Case]:
    """Every linear classifier that learns in the directions of public records."""
    classifiers = [case for case in variants() if case.task == "classification"]
    linear = [case for case in classifiers if METHODS[case.method].learns_directions(case.study(Path("unread.npz")))]
    return [replace(case, directed=True) for case in linear]


def first_of_each_method(cases: list[Case]) -> list[Case]:
    """The first case of each method, and the one by which `moments` chooses everything by itself."""
    first = {case.method: case for case in reversed(cases)}
    return [*first.values(), *(case for case in cases if ("function", "auto") in case.options)]


def planned(case: Case, public: Path) -> tuple[Method, Plan] | None:
    """The case's method and plan; None if it is refused, or promises nothing."""
    try:
        method = method_for(case.study(public))
        plan = method.plan()
    except StudyError:
        return None
    return (method, plan) if plan.guarantee.is_promise else None


def refusal(case: Case, public: Path) -> str:
    """Why a case is not attacked."""
    try:
        guarantee = method_for(case.study(public)).plan().guarantee
    except StudyError as error:
        return str(error)
    return guarantee.sentence()


@cache
def settings() -> tuple[dict[str, Any], ...]:
    """Units, dropouts, sizes and protocols, so that each pair of them occurs."""
    product, chosen = list(all_settings()), []
    wanted = {pair for setting in product for pair in _pairs(setting)}
    while wanted:
        best = max(product, key=lambda setting: len(wanted & _pairs(setting)))
        wanted -= _pairs(best)
        chosen.append(best)
    return tuple(chosen)


def settings_of_left_out() -> Iterator[dict[str, Any]]:
    """Units that are left out, or put in, where nothing is masked and nobody drops out."""
    for unit in ("record", {"group": 3}, "party"):
        yield {"unit": unit, "sizes": SIZES[1], "adjacency": "add-remove"}


def cheap_settings() -> Iterator[dict[str, Any]]:
    """All units, where nothing is masked and nobody drops out, with the sizes in turn."""
    for unit, sizes in zip(UNITS, itertools.cycle(SIZES), strict=False):
        yield {"unit": unit, "sizes": sizes}


def all_settings() -> Iterator[dict[str, Any]]:
    """Units, dropouts, sizes and protocols in all combinations."""
    for values in itertools.product(UNITS, DROPOUTS, SIZES, SUMS):
        yield dict(zip(("unit", "dropouts", "sizes", "protocol"), values, strict=True))
    for unit, dropouts, sizes in itertools.product(UNITS, DROPOUTS, SIZES):
        yield {"unit": unit, "dropouts": dropouts, "sizes": sizes, "protocol": "compute-nodes", "nodes": SOME_NODES}


def _pairs(setting: dict[str, Any]) -> set[Any]:
    return set(itertools.combinations(((name, str(value)) for name, value in setting.items()), 2))


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one unit; row i belongs to groups[i]. Where records are left out, the other one has
    fewer rows, of the parties `fewer`."""

    groups: Any
    one: Records
    other: Records
    fewer: Any = None


def _base(case: Case) -> tuple[Any, Any]:
    """Which party each row belongs to, and which rows a neighbour may replace: the protected unit's, and party 0's."""
    least, most = case.sizes
    # Where records are left out, no party has fewer than the least afterwards.
    spare = (1 if case.unit == "record" else case.unit["group"]) if case.unit != "party" else 0
    spare = 0 if case.adjacency == "replace" else spare
    counts = [min(most, least + spare + (party % (most - least + 1))) for party in range(PARTIES)]
    groups = np.repeat(np.arange(PARTIES), counts)
    first = np.flatnonzero(groups == 0)
    if case.unit == "party":
        return groups, [first]
    size = 1 if case.unit == "record" else int(case.unit["group"])
    # As many as there are: at one party first, and one at each party first.
    by_round = sorted(range(len(groups)), key=lambda row: (row - int(np.flatnonzero(groups == groups[row])[0]), row))
    together, spread = np.arange(len(groups))[:size], np.array(by_round)[:size]
    return groups, [together] if size == 1 else [together, spread]


ROUNDED = "opposite, rounded away"
_UNIT = np.eye(FEATURES)
_TILT = math.sqrt(1.0 - 0.5**2)
_EVEN = np.full(FEATURES, 1.0 / math.sqrt(FEATURES))
_REPLACED: list[tuple[str, Any, Any, Any]] = [
    # All other records (direction, label; None: half of each party's have 0, half 1), what is replaced, and by what.
    ("opposite", (_UNIT[3] * 1e-3, 0), (_UNIT[0], 0), (-_UNIT[0], 0)),
    ("relabelled", (_UNIT[0], 0), (_UNIT[0], 0), (_UNIT[0], 1)),
    ("turned, far out of bounds", (_UNIT[3] * 1e-3, 0), (_UNIT[0] * 100.0, 0), (_UNIT[1] * 100.0, 1)),
    ("mirrored", (_UNIT[0], 1), (-0.5 * _UNIT[0] + _TILT * _UNIT[1], 1), (-0.5 * _UNIT[0] - _TILT * _UNIT[1], 1)),
    ("the scales tipped", (_UNIT[0], None), (_UNIT[0], 0), (_UNIT[0], 1)),
    (ROUNDED, (np.zeros(FEATURES), 0), (_EVEN, 0), (-_EVEN, 0)),
]


PAIRS = 2 * len(_REPLACED)
"""Each kind of neighbours at one party first, and at each party first (which is the same for a record, or a party)."""


def neighbours(case: Case, plan: Plan, chosen: Iterable[int] | None = None) -> Iterator[tuple[str, Neighbours]]:
    """Pairs of data sets that are built to be as far apart as a method can be driven: all, or some of `PAIRS`."""
    groups, places = _base(case)
    everything = [(kind, place) for kind in range(len(_REPLACED)) for place in range(len(places))]
    some = everything if chosen is None else [(number // 2, number % len(places)) for number in chosen]
    for kind, place in some:
        name, (others, label), (before, one), (after, other) = _REPLACED[kind]
        rows = places[place]
        features = np.tile(others, (len(groups), 1)).astype(float)
        labels = _halves(groups) if label is None else np.full(len(groups), label)
        pair = []
        for record, number in ((before, one), (after, other)):
            moved, named = features.copy(), labels.copy()
            moved[rows], named[rows] = _off_the_grid(record, plan) if name == ROUNDED else record, number
            pair.append(Records(moved, _labels(case, named)))
        pair_of = Neighbours(groups, pair[0], pair[1])
        if case.adjacency == "add-remove":
            stay = np.delete(np.arange(len(groups)), rows)
            fewer = Records(pair[1].features[stay], pair[1].labels[stay])
            pair_of = Neighbours(groups, pair[1], fewer, groups[stay])
        yield f"{name}, rows {rows[:3].tolist()}…", pair_of


def _off_the_grid(record: Any, plan: Plan) -> Any:
    """A record as long as allowed whose numbers lie half a unit off the grid, where a total is of the records: so all
    of them are rounded away from zero, and those of its opposite the other way."""
    scale = plan.sums[-1].encoding.scale
    units = np.full(FEATURES, max(math.floor(scale / math.sqrt(FEATURES) - 0.5), 0) + 0.5 + 1e-6)
    for place in range(FEATURES):
        longer = units.copy()
        longer[place] += 1.0
        if np.linalg.norm(longer) <= scale:
            units = longer
    return np.sign(record) * units / scale


def _halves(groups: Any) -> Any:
    """At each party as many records of class 0 as of class 1, or one more: one record tips the scales."""
    labels = np.zeros(len(groups), dtype=int)
    for party in range(PARTIES):
        rows = np.flatnonzero(groups == party)
        labels[rows[(len(rows) + 1) // 2 :]] = 1
    return labels


def _labels(case: Case, numbers: Any) -> Any:
    match case.task:
        case "classification":
            return numbers.astype(np.int64)
        case "regression":
            return 1.0 - 2.0 * (numbers == 1)
        case _:
            return np.zeros(len(numbers))


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
        outcome = local.run(listening, plan, federation, drop=drop, secrets=SecretStream(KEY))
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
