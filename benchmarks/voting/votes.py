"""Single runs of the voting tables: every one goes through a study, a plan and the local engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import say
from benchmarks.studies import (
    ArrayFederation,
    Finished,
    Floats,
    Records,
    Study,
    method_for,
    run,
    share_right,
    study,
)
from benchmarks.voting import models
from benchmarks.voting.data import Setting
from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.methods.base import Method
from unspoken.methods.multiparty import Multiparty

CLASSES = 10


@dataclass(frozen=True)
class Promise:
    """What is protected, and how well."""

    epsilon: float
    delta: float
    unit: str = "party"


def make(setting: Setting, promise: Promise, method: dict[str, Any], protocol: str = "ideal") -> Study:
    counts = np.bincount(setting.groups)
    return study(
        {"features": setting.dimension, "norm": 1.0, "classes": CLASSES},
        {"count": setting.parties, "records": int(counts.min()), "max_records": int(counts.max())},
        {"epsilon": promise.epsilon, "delta": promise.delta, "unit": promise.unit},
        method,
        protocol,
    )


def run_method(setting: Setting, method: Method) -> Finished:
    records = Records(setting.features, setting.labels)
    return run(method, ArrayFederation(method.study, records, setting.groups))


def accuracy_of(setting: Setting, method: Method) -> float:
    return share_right(method.study, run_method(setting, method).release, setting.test, setting.test_labels)


def statistics(found: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation of a single run (None if there is only one), least and best."""
    spread = float(np.std(found, ddof=1)) if len(found) > 1 else None
    return {"mean": float(np.mean(found)), "spread": spread, "least": min(found), "best": max(found)}


# --- Votes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vote:
    """How parties vote: by their own models (which abstain, or not), or by their nearest records."""

    label: str
    ballots: str
    model: str = "benchmarks.voting.models:Remembering"
    neighbours: int = 5

    def keys(self, queries: int, public: Path) -> dict[str, Any]:
        keys = {"name": "voting", "queries": queries, "public": str(public), "ballots": self.ballots}
        return keys | ({"model": self.model} if self.ballots == "ensemble" else {"neighbours": self.neighbours})


OWN = "softmax of the queries alone"
"""The paper's own student"""
STUDENTS: dict[str, tuple[dict[str, Any], bool]] = {
    OWN: ({"spreading": False}, False),
    "softmax, labels spread": ({}, False),
    "SVC, labels spread": ({"student": "sklearn.svm:SVC"}, False),
    "SVC, totals spread": ({"student": "sklearn.svm:SVC"}, True),
}
"""Their keys, and whether they learn from noisy totals, or from the winners only"""


def vote(setting: Setting, way: Vote, queries: int, promise: Promise, protocol: str = "ideal") -> dict[str, float]:
    """Accuracy of all students after one vote, how many of the labels were right, and the noise."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "public.npz"
        np.savez(file, X=setting.public)
        keys = way.keys(queries, file)
        method = models.Kept(make(setting, promise, keys, protocol))
        plan = run_method(setting, method).plan
        for student, (extra, totals) in STUDENTS.items():
            made = models.Kept(make(setting, promise, keys | extra, protocol))
            made.order = method.order  # as it would find itself
            found[student] = share_right(
                made.study, made.student_of(method, plan, totals), setting.test, setting.test_labels
            )
    found["labels"] = float((method.winners == setting.public_labels[method.order[:queries]]).mean())
    found["noise"] = plan.sum_named("ballots").total_std(setting.parties)
    return found


def votes(setting: Setting, way: Vote, promise: Promise, queries: Sequence[int], runs: int) -> dict[str, Any]:
    """The number of queries that is best on records kept aside, for each student, and accuracies with it."""
    say(f"{setting.name}: {way.label}, ε = {promise.epsilon:g}")
    tuning = setting.tuning()
    tried = {count: vote(tuning, way, count, promise) for count in queries} if len(queries) > 1 else {}
    result: dict[str, Any] = {"label": way.label}
    done: dict[int, list[dict[str, float]]] = {}
    for student in STUDENTS:
        count = max(tried, key=lambda count: tried[count][student]) if tried else queries[0]
        if count not in done:
            done[count] = [vote(setting, way, count, promise) for _ in range(runs)]
        result[student] = statistics([each[student] for each in done[count]]) | {
            "queries": count,
            "labels": float(np.mean([each["labels"] for each in done[count]])),
            "noise": done[count][0]["noise"],
        }
    return result


# --- What it is compared with ----------------------------------------------------------------------------------------


def trained(setting: Setting, promise: Promise, keys: dict[str, Any]) -> float:
    """Accuracy of a method that trains a linear model in the public space."""
    keys = dict(keys)
    part = setting.cut(keys.pop("components", setting.dimension - 1))
    return accuracy_of(part, method_for(make(part, promise, {"model": "linear", **keys})))


def tuned(
    setting: Setting,
    promise: Promise,
    label: str,
    first: Sequence[dict[str, Any]],
    then: Sequence[dict[str, Any]],
    runs: int,
) -> dict[str, Any]:
    """The best options on records kept aside: first of some, then of variants of the best; and accuracies with it."""
    say(f"{setting.name}: {label}, ε = {promise.epsilon:g}")
    tuning = setting.tuning()
    scores = [(trained(tuning, promise, keys), place, keys) for place, keys in enumerate(first)]
    best = max(scores)[2]
    scores += [
        (trained(tuning, promise, best | keys), len(first) + place, best | keys) for place, keys in enumerate(then)
    ]
    best = max(scores)[2]
    found = statistics([trained(setting, promise, best) for _ in range(runs)])
    return {"label": label, **found, "options": best, "tried": len(scores)}


# --- Multiparty ------------------------------------------------------------------------------------------------------


class Noiseless(Multiparty):
    """What the trainer would release if nobody were to be protected."""

    def _noised(self, weights: Floats) -> Floats:
        return weights


def multiparty(
    setting: Setting, epsilon: float | None, keys: dict[str, Any], public: Path, runs: int
) -> tuple[list[float], float]:
    """Accuracies, and the sensitivity; ε None: without noise."""
    extra = {} if keys["labels"] == "average" else {"public": str(public)}
    method = {"name": "multiparty", "noise": "gaussian", **keys, **extra}
    agreed = make(setting, Promise(epsilon or 1.0, 1e-5), method)
    kind: Callable[[Study], Multiparty] = Multiparty if epsilon is not None else Noiseless
    trainer = kind(agreed)
    found = [accuracy_of(setting, trainer) for _ in range(runs if epsilon is not None else 1)]
    return found, trainer.sensitivity()


def alone(setting: Setting, regularization: float, parties: int) -> list[float]:
    """Accuracies of some parties' own models, which nobody else sees."""
    learner, found = LinearLearner(CrossEntropy(CLASSES), 1.0, regularization), []
    for party in range(parties):
        own = setting.groups == party
        block = Block(setting.features[own][None], setting.labels[own][None], np.array([int(own.sum())]))
        predicted = (setting.test @ learner.fit(block)[0].T).argmax(axis=1)
        found.append(float((predicted == setting.test_labels).mean()))
    return found
