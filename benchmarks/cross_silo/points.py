"""One point of a curve: the mean of some runs, with settings that were chosen on records kept aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cross_silo.data import HeldParties, Images
from benchmarks.studies import Finished, Study, method_for, run, share_right, study

PARTIES, COLLUDING, DELTA = 10, 3, 1e-5


@dataclass(frozen=True)
class Curve:
    """A method, and the options of which the best on records kept aside is taken."""

    label: str
    method: str
    choices: tuple[dict[str, Any], ...]
    private: bool = True


def measured(
    images: Images, curve: Curve, parties: int, epsilon: float, runs: int, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Mean, least and largest accuracy, and the options that were chosen."""
    options = dict(curve.choices[0])
    if len(curve.choices) > 1:
        aside = images.validation()
        scores = [accuracy(aside, curve.method, parties, epsilon, each | (extra or {})) for each in curve.choices]
        options = dict(curve.choices[int(np.argmax(scores))])
    found = [accuracy(images, curve.method, parties, epsilon, options | (extra or {})) for _ in range(runs)]
    return {"mean": float(np.mean(found)), "least": min(found), "best": max(found), "options": options}


def accuracy(images: Images, method: str, parties: int, epsilon: float, keys: dict[str, Any]) -> float:
    agreed = study_of(images, method, parties, epsilon, keys)
    return share_right(agreed, run_study(images, agreed).release, images.test_features, images.test_labels)


def run_study(images: Images, agreed: Study) -> Finished:
    return run(method_for(agreed), HeldParties.of(images, agreed.parties.count))


def study_of(
    images: Images, method: str, parties: int, epsilon: float, keys: dict[str, Any], protocol: str = "ideal"
) -> Study:
    each = len(images.labels) // parties
    return study(
        {"features": images.features.shape[1], "norm": 1.0, "classes": 10},
        {"count": parties, "records": each, "max_records": each},
        {
            "epsilon": epsilon,
            "delta": DELTA,
            "colluding": COLLUDING if parties == PARTIES else parties // 3,
            "unit": "party" if method == "fedavg" else "record",
        },
        {"name": method, "model": "linear", "rounds": images.rounds, "rate": images.rate, **keys},
        protocol,
    )
