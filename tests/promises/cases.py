"""Studies of every kind for the promise suite: which keys of each method are tried, and in which settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

import factories
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.methods.registry import METHODS, method_for
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
