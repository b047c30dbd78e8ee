"""What is released does not depend on how many parties are computed at a time, which engines choose by themselves.

A party on a network or a Flower federation computes alone, the local engine and a cluster compute many at once. With
the small records of the conformance suite, numbers that differ in their last digits would be rounded alike.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import make
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local, work
from unspoken.engines.conditions import Conditions
from unspoken.methods.registry import METHODS, method_for
from unspoken.noise.stream import SecretStream

FEATURES, CLASSES = 64, 5
METHOD_KEYS: dict[str, dict[str, Any]] = {
    "helmet": {"learner": "softmax", "regularization": 0.01},
    "svm": {"name": "helmet", "learner": "svm", "regularization": 0.01},
    "logistic": {"name": "helmet", "learner": "logistic", "regularization": 0.01},
    "sgd": {"name": "helmet", "learner": "softmax", "regularization": 0.1, "solver": "sgd", "epochs": 2},
    "independent-models": {},
    "moments": {},
    "cape": {},
    "fedavg": {"rounds": 2},
    "fedsgd": {"rounds": 2, "rate": 0.5},
    "cross-silo": {"rounds": 2, "rate": 0.5},
    "voting": {"queries": 10},
}


@pytest.mark.parametrize("name", METHOD_KEYS)
def test_a_release_does_not_depend_on_the_size_of_blocks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Callable[[int, int], int]
) -> None:
    parties = runs(7, 24)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "public.npz", X=rng.normal(size=(30, FEATURES)) / 8)
    keys = dict(METHOD_KEYS[name])
    method = keys.pop("name", name)
    if "public" in METHODS[method].keys.model_fields:
        keys["public"] = str(tmp_path / "public.npz")
    groups = np.repeat(np.arange(parties), rng.integers(10, 30, parties))
    records = Records(rng.normal(size=(len(groups), FEATURES)) / 8, rng.integers(0, CLASSES, len(groups)))
    study = make(
        method,
        task="classification",
        data={"features": FEATURES, "classes": CLASSES},
        parties={"count": parties, "records": 10, "max_records": 30},
        method=keys,
        unit="party" if method in ("fedavg", "voting") else "record",
        epsilon=4.0,
    )
    plan, released = method_for(study).plan(), []
    for most in (parties, 1, 5):
        monkeypatch.setattr(work, "BLOCK_PARTIES", most)
        federation, conditions = ArrayFederation(study, records, groups), Conditions(secrets=SecretStream(bytes(32)))
        released.append(local.run(method_for(study), plan, federation, conditions).release.to_bytes(study))
    assert released[0] == released[1] == released[2]
