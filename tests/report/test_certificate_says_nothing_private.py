"""Nothing on a certificate depends on records beyond what the guarantee covers.

Two runs on neighbouring records, with the same secrets, have certificates that are equal in every key and value. What
is made of the release might differ without breaking the promise, but nothing of it is in a certificate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspoken
from factories import make
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.registry import METHODS, method_for
from unspoken.noise.stream import SecretStream
from unspoken.report.certificate import certificate
from unspoken.simulation import Simulation

PARTIES, EACH, FEATURES = 4, 12, 3

STUDIES: dict[str, dict[str, Any]] = {
    "helmet": {"norm": 1000.0, "method": {"regularization": 1e-6}},
    "moments": {"method": {"function": "softmax", "steps": 2}},
    "moments-regression": {"task": "regression"},
    "cape": {},
    "cross-silo": {"method": {"rounds": 2}},
    "cross-silo-tokens": {"method": {"rounds": 2, "sampling": "without-replacement", "rate": 0.3}},
    "multiparty": {"unit": "party"},
    "voting": {"method": {"queries": 5}},
    "voting-tally": {"method": {"queries": 5}, "protocol": "tally"},
    "fedavg": {"unit": "party", "method": {"rounds": 2, "rate": 0.5}},
    "fedsgd": {"method": {"rounds": 1, "local_steps": 2}},
    "conv": {"task": "statistics"},
    "independent-models": {"norm": 1000.0, "method": {"regularization": 1e-6}},
    "local": {"task": "statistics", "method": {"function": "histogram"}},
    "central": {"method": {"function": "network", "steps": 2}},
    "central-training": {"method": {"model": "linear", "rounds": 2}},
    "central-add-remove": {"method": {"model": "linear", "rounds": 2}, "adjacency": "add-remove"},
    "voting-add-remove": {"method": {"queries": 5}, "unit": "party", "adjacency": "add-remove"},
    "cross-silo-add-remove": {"method": {"rounds": 2}, "adjacency": "add-remove"},
    "dp-fm": {},
    "objective-perturbation": {},
    "none": {},
}
DATED = {"began", "model_sha256", "statistics_sha256"}
"""What is of the run, and the name of the release itself, which the promise is about"""


def method_of(name: str) -> str:
    return next(known for known in sorted(METHODS, key=len, reverse=True) if name.startswith(known))


def study(name: str, folder: Path, **parties: int) -> unspoken.Study:
    keys = STUDIES[name]
    method = method_of(name)
    task = keys.get("task", "classification")
    data: dict[str, Any] = {"features": FEATURES}
    if "norm" in keys:
        data["norm"] = keys["norm"]
    data |= {"classification": {"classes": 2}, "regression": {"label_bounds": [-1, 1]}, "statistics": {}}[task]
    options = dict(keys.get("method", {}))
    if method in ("voting", "multiparty"):
        np.savez(folder / "public.npz", X=np.random.default_rng(5).normal(size=(20, FEATURES)))
        options["public"] = str(folder / "public.npz")
    # The noise for an epsilon takes seconds to find if batches are sampled.
    promise = {"noise_multiplier": 4.0} if "rounds" in options else {"epsilon": 2.0}
    promise |= {"delta": 1e-4} | {key: keys[key] for key in ("unit", "adjacency") if key in keys}
    summation = {key: keys[key] for key in ("protocol",) if key in keys}
    return make(
        method,
        task=task,
        data=data,
        parties={"count": PARTIES, **parties},
        privacy=promise,
        method=options,
        summation=summation,
    )


def certified(agreed: unspoken.Study, features: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    method = method_for(agreed)
    if hasattr(method, "secrets"):
        method.secrets = SecretStream(bytes(32))
    plan = method.plan()
    federation = ArrayFederation(agreed, Records(features, labels), groups)
    outcome = local.run(method, plan, federation, Conditions(secrets=SecretStream(bytes(32))))
    made = certificate(plan, outcome)
    return {key: value for key, value in made.items() if key not in DATED}


def records(task: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features, count = rng.normal(size=(PARTIES * EACH, FEATURES)), PARTIES * EACH
    return features, rng.uniform(-1, 1, count) if task == "regression" else rng.integers(0, 2, count)


def test_every_method_is_looked_at() -> None:
    assert METHODS.keys() <= {method_of(name) for name in STUDIES}


@pytest.mark.parametrize("name", STUDIES)
def test_neighbouring_records_have_the_same_certificate(name: str, tmp_path: Path) -> None:
    """A record is replaced, or taken away, or where parties are protected all records of one, by more of them."""
    agreed = study(name, tmp_path, records=1, max_records=50)
    features, labels = records(agreed.study.task, 0)
    groups = np.arange(PARTIES * EACH) % PARTIES
    if agreed.group is None:
        others = groups != 0
        more = 0 if agreed.leaves_out_parties else 3 * EACH
        other_features = np.concatenate([features[others], np.full((more, FEATURES), 100.0)])
        other_labels = np.concatenate([labels[others], np.zeros(more, dtype=labels.dtype)])
        other_groups = np.concatenate([groups[others], np.zeros(more, dtype=groups.dtype)])
    elif agreed.privacy.adjacency == "add-remove":
        other_features, other_labels, other_groups = features[1:], labels[1:], groups[1:]
    else:
        other_features, other_labels, other_groups = features.copy(), labels.copy(), groups
        other_features[0], other_labels[0] = 1e3 * features[1] + 1e-3, 1 - labels[1]
    one = certified(agreed, features, labels, groups)
    other = certified(agreed, other_features, other_labels, other_groups)
    assert one == other
    assert not {"seconds", "made"} & (one.keys() | one["happened"].keys())


def numbers(content: Any) -> set[float]:
    """All numbers in nested dictionaries and lists."""
    if isinstance(content, dict):
        return set().union(*(numbers(value) for value in content.values()))
    if isinstance(content, list | tuple):
        return set().union(*(numbers(value) for value in content))
    return {content} if isinstance(content, int | float) and not isinstance(content, bool) else set()


SIZES = (17, 29, 41)


@pytest.mark.parametrize(
    ("method", "options"),
    [("helmet", {}), ("fedavg", {"rounds": 2, "rate": 0.5}), ("voting", {"queries": 5}), ("none", {})],
)
def test_where_parties_are_protected_an_estimator_s_study_plan_and_certificate_know_no_sizes(
    method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if method == "voting":
        np.savez(tmp_path / "public.npz", X=np.random.default_rng(5).normal(size=(20, FEATURES)))
        options = options | {"public": str(tmp_path / "public.npz"), "ballots": "neighbours", "neighbours": 3}

    def fitted(sizes: tuple[int, ...]) -> unspoken.PrivateClassifier:
        rng = np.random.default_rng(0)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        features, labels = rng.normal(size=(len(groups), FEATURES)), rng.integers(0, 2, len(groups))
        estimator = unspoken.PrivateClassifier(method, unit="party", classes=[0, 1], options=options, epsilon=5.0)
        return estimator.fit(features, labels, groups)

    one, other = fitted(SIZES), fitted((2, 5, 60))
    assert one.plan_.to_json() == other.plan_.to_json()
    assert one.plan_.study.digest() == other.plan_.study.digest()
    first, second = ({key: each.certificate_[key] for key in each.certificate_.keys() - DATED} for each in (one, other))
    assert first == second
    assert not numbers(first) & {*SIZES, sum(SIZES)}


def test_where_parties_are_protected_words_are_no_wider_than_the_model_needs() -> None:
    """That no size is known must not cost uploads of twice the length."""
    rng = np.random.default_rng(0)
    estimator = unspoken.PrivateClassifier("helmet", unit="party", classes=[0, 1])
    estimator.fit(rng.normal(size=(60, FEATURES)), rng.integers(0, 2, 60), np.arange(60) % 6)
    assert estimator.plan_.summation_parameters["bits"] == 32


def test_how_long_a_run_took_and_what_it_moved_are_told_to_the_person_who_ran_it() -> None:
    simulation: Simulation = unspoken.simulate(
        study("helmet", Path(), records=1, max_records=50), *records("classification", 0), np.arange(48) % PARTIES
    )
    shown = simulation.to_json()
    assert shown["seconds"] > 0
    assert shown["bytes"] > 0
    assert "seconds" not in simulation.certificate["happened"]
